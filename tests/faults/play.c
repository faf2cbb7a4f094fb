/* SPDX-License-Identifier: Apache-2.0 */
/* Playing a trial: the parent of its ranks. */
#include "faults/play.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults/host.h"
#include "faults/leaks.h"
#include "faults/link.h"

/* A rank that runs for so long after all that it may wait for hangs. */
#define HANG_MS 12000u
#define LEFT_MS 3000u /* so long a process may take to end once it may */
#define TICK_US 1000u
#define MS      UINT64_C(1000000)

struct play {
    const struct trial *trial;
    struct record *record;
    bool has_fault;
    bool has_struck;
    uint64_t strike_ns; /* by the parent; UINT64_MAX = not */
    uint64_t limit_ns;
    pid_t pids[TRIAL_MAX_RANKS]; /* 0 = ended */
    uint32_t n_running;
    pid_t proxy; /* 0 = there is none */
};

struct record *record_create(void)
{
    void *memory = mmap(NULL, sizeof(struct record), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

void record_destroy(struct record *record)
{
    if (record != NULL) {
        munmap(record, sizeof(*record));
    }
}

static bool is_struck_from_outside(const struct trial *trial)
{
    return trial->moment == MOMENT_TIME && (trial->kind == FAULT_KILL || trial->kind == FAULT_STOP);
}

uint32_t trial_aim(struct trial *trial, const struct record *without)
{
    const struct rank_record *victim = &without->ranks[trial->victim];
    uint32_t n_calls = record_n_calls(victim);
    uint32_t n_of_kind[CALL_N_KINDS + 2] = {0};

    for (uint32_t i = 0; i < n_calls; i++) {
        n_of_kind[victim->calls[i].kind]++;
    }
    /* There may be no export, or no setting, in this one. */
    for (uint32_t i = 0; i < CALL_N_KINDS && n_of_kind[trial->at_call] == 0; i++) {
        trial->at_call = (enum call_kind)((trial->at_call + 1) % CALL_N_KINDS);
    }
    return 1 + (uint32_t)(trial->at_fraction * n_of_kind[trial->at_call]);
}

static void ranks_start(struct play *play, uint64_t run_ns, uint32_t at_occurrence)
{
    pid_t parent = getpid();

    fflush(NULL);
    play->record->start_ns = host_now_ns();
    for (uint32_t rank = 0; rank < play->trial->n_ranks; rank++) {
        pid_t pid = fork();

        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) {
                _exit(3);
            }
            host_main(play->trial, play->record, rank, play->has_fault, run_ns, at_occurrence);
        }
        play->pids[rank] = pid;
        play->n_running += pid > 0;
    }
}

/* Takes up those that have ended, and what descends from them. */
static void ranks_collect(struct play *play)
{
    int wait_status;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        play->proxy = pid == play->proxy ? 0 : play->proxy;
        for (uint32_t rank = 0; rank < play->trial->n_ranks; rank++) {
            if (play->pids[rank] == pid) {
                play->pids[rank] = 0;
                play->record->wait_status[rank] = wait_status;
                play->n_running--;
            }
        }
    }
}

static void victim_strike(struct play *play)
{
    pid_t pid = play->pids[play->trial->victim];

    if (play->has_struck || host_now_ns() < play->strike_ns) {
        return;
    }
    play->has_struck = true;
    if (pid > 0) {
        atomic_store(&play->record->ranks[play->trial->victim].fault_ns, host_now_ns());
        kill(pid, play->trial->kind == FAULT_KILL ? SIGKILL : SIGSTOP);
    }
}

/* By a signal, and not by a tracer: a sanitizer that looks for leaks is one. */
static bool is_stopped(pid_t pid)
{
    char path[64];
    char state = '?';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) {
            state = '?';
        }
        fclose(file);
    }
    return state == 'T';
}

/* Once only the victim is left, it may go on: whenever it is stopped, which may be later still. */
static void victim_release(struct play *play)
{
    pid_t pid = play->pids[play->trial->victim];

    if (play->n_running > (pid > 0)) {
        return;
    }
    atomic_store(&play->record->is_over, 1);
    if (pid > 0 && play->trial->kind == FAULT_STOP && is_stopped(pid)) {
        kill(pid, SIGCONT);
    }
}

static void hanging_end(struct play *play)
{
    for (uint32_t rank = 0; rank < play->trial->n_ranks; rank++) {
        if (play->pids[rank] > 0) {
            play->record->has_hung[rank] = true;
            kill(play->pids[rank], SIGKILL);
        }
    }
    atomic_store(&play->record->is_over, 1);
}

/* A short sleep; how much too long it takes says how loaded the machine is. */
static void tick_sleep(struct play *play)
{
    uint64_t start_ns = host_now_ns();
    uint64_t took_ns;

    host_sleep_us(TICK_US);
    took_ns = host_now_ns() - start_ns;
    if (took_ns > TICK_US * UINT64_C(1000) + play->record->overshoot_ns) {
        play->record->overshoot_ns = took_ns - TICK_US * UINT64_C(1000);
    }
}

/* Whoever is left over was left behind by a rank. */
static void orphans_end(struct play *play)
{
    uint64_t limit_ns = host_now_ns() + LEFT_MS * MS;
    pid_t pid;

    do {
        pid = waitpid(-1, NULL, WNOHANG);
        if (pid == 0) {
            host_sleep_us(TICK_US);
        }
    } while (pid >= 0 && host_now_ns() < limit_ns);
    play->record->n_processes_left = pid < 0 ? 0 : leaks_end_children();
}

void trial_play(const struct trial *trial, struct record *record, bool has_fault, uint64_t run_ns,
                uint32_t at_occurrence)
{
    struct play play = {.trial = trial, .record = record, .has_fault = has_fault};
    uint64_t longest_ms = trial->init_ms + 2 * SCENARIO_LONGEST_MS + trial->delay_ms;

    record->master_port = link_free_port();
    play.proxy = trial->has_proxy ? link_start(record) : 0;
    ranks_start(&play, run_ns, at_occurrence);
    play.strike_ns = UINT64_MAX;
    if (has_fault && is_struck_from_outside(trial)) {
        play.strike_ns = record->start_ns + (uint64_t)(trial->at_fraction * 1.1 * (double)run_ns);
    }
    play.limit_ns = record->start_ns + (longest_ms + HANG_MS) * MS;
    while (play.n_running > 0) {
        victim_strike(&play);
        ranks_collect(&play);
        victim_release(&play);
        if (host_now_ns() > play.limit_ns) {
            hanging_end(&play);
        }
        tick_sleep(&play);
    }
    record->end_ns = host_now_ns();
    atomic_store(&record->is_over, 1);
    link_end(play.proxy);
    orphans_end(&play);
    leaks_find(record->left, sizeof(record->left));
}
