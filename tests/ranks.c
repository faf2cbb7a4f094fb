/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of several ranks: starting them, collecting them, ending those that hang. */
#include "ranks.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u * NS_PER_MS + (uint64_t)now.tv_nsec;
}

uint64_t ranks_now_ms(void)
{
    return now_ns() / NS_PER_MS;
}

void ranks_sleep_ms(uint32_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000u, .tv_nsec = (long)(ms % 1000u) * 1000000L};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void *ranks_memory(size_t n_bytes)
{
    void *memory = mmap(NULL, n_bytes == 0 ? 1 : n_bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory;
}

void ranks_environment_clear(void)
{
    static const char *const names[] = {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "HSDP_RUN_ID",
        "HSDP_ATTEMPT",
        "HSDP_NODE_RANK",
        "HSDP_RENDEZVOUS_PORT",
        "HSDP_TOKEN_FILE",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_USE_AGENT_STORE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_MCA_orte_hnp_uri",
        "PMIX_NAMESPACE",
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "PMI_LOCAL_RANK",
        "PMI_LOCAL_SIZE",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_NODELIST",
        "SLURM_JOB_NODELIST",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_TASKS_PER_NODE",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_RESTART_COUNT",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
}

static void number_set(const char *name, uint64_t value)
{
    char digits[24];

    snprintf(digits, sizeof(digits), "%" PRIu64, value);
    setenv(name, digits, 1);
}

void ranks_environment(uint32_t rank, uint32_t n_ranks, const char *run_id)
{
    ranks_environment_clear();
    number_set("RANK", rank);
    number_set("WORLD_SIZE", n_ranks);
    number_set("LOCAL_RANK", rank);
    number_set("LOCAL_WORLD_SIZE", n_ranks);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29500", 1);
    setenv("HSDP_RUN_ID", run_id, 1);
}

void ranks_start(struct ranks *ret, uint32_t n_ranks, uint32_t limit_ms,
                 void (*function)(uint32_t rank, void *shared), void *shared)
{
    char run_id[64];

    ck_assert_uint_le(n_ranks, RANKS_MAX);
    memset(ret, 0, sizeof(*ret));
    ret->n_ranks = n_ranks;
    ret->deadline_ns = now_ns() + limit_ms * NS_PER_MS;
    snprintf(run_id, sizeof(run_id), "test-%ld-%" PRIu64, (long)getpid(), now_ns());
    fflush(NULL); /* what is buffered would be written by each rank again */
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        pid_t pid = fork();

        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives a test that was killed */
            ranks_environment(rank, n_ranks, run_id);
            function(rank, shared);
            exit(0);
        }
        ret->pids[rank] = pid;
    }
}

/* Takes up those that have ended. */
uint32_t ranks_running(struct ranks *ranks)
{
    uint32_t n_left = 0;

    for (uint32_t rank = 0; rank < ranks->n_ranks; rank++) {
        pid_t pid = ranks->pids[rank];

        if (pid == 0) {
            continue;
        }
        if (waitpid(pid, &ranks->wait_status[rank], WNOHANG) == pid) {
            ranks->pids[rank] = 0;
        } else {
            n_left++;
        }
    }
    return n_left;
}

static void hanging_kill(struct ranks *ranks, char *ret_names, size_t max_bytes)
{
    size_t n_bytes = 0;

    ret_names[0] = '\0';
    for (uint32_t rank = 0; rank < ranks->n_ranks; rank++) {
        if (ranks->pids[rank] != 0 && n_bytes + 8 < max_bytes) {
            n_bytes +=
                (size_t)snprintf(ret_names + n_bytes, max_bytes - n_bytes, " %" PRIu32, rank);
        }
        if (ranks->pids[rank] != 0) {
            kill(ranks->pids[rank], SIGKILL);
            waitpid(ranks->pids[rank], &ranks->wait_status[rank], 0);
            ranks->pids[rank] = 0;
        }
    }
}

static int ended_well(const struct ranks *ranks, uint32_t rank)
{
    int status = ranks->wait_status[rank];

    if (ranks->expected_signal[rank] != 0) {
        return WIFSIGNALED(status) && WTERMSIG(status) == ranks->expected_signal[rank];
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void ranks_wait(struct ranks *ranks)
{
    char names[256];
    uint32_t n_left;

    while ((n_left = ranks_running(ranks)) > 0 && now_ns() < ranks->deadline_ns) {
        ranks_sleep_ms(2);
    }
    if (n_left > 0) {
        hanging_kill(ranks, names, sizeof(names));
        ck_abort_msg("still running at the limit: ranks%s", names);
    }
    for (uint32_t rank = 0; rank < ranks->n_ranks; rank++) {
        int status = ranks->wait_status[rank];

        if (!ended_well(ranks, rank)) {
            fprintf(stderr, "rank %" PRIu32 " ended by %s %d\n", rank,
                    WIFSIGNALED(status) ? "signal" : "exit status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            if (WIFEXITED(status) && WEXITSTATUS(status) == 1) {
                exit(1); /* it has told Check itself which assertion failed */
            }
            ck_abort_msg("rank %" PRIu32 " ended badly: wait status 0x%x", rank, (unsigned)status);
        }
    }
}

void ranks_run(uint32_t n_ranks, uint32_t limit_ms, void (*function)(uint32_t rank, void *shared),
               void *shared)
{
    struct ranks ranks;

    ranks_start(&ranks, n_ranks, limit_ms, function, shared);
    ranks_wait(&ranks);
}

void ranks_kill(struct ranks *ranks, uint32_t rank)
{
    ck_assert_int_ne(ranks->pids[rank], 0);
    ranks->expected_signal[rank] = SIGKILL;
    ck_assert_int_eq(kill(ranks->pids[rank], SIGKILL), 0);
}

void ranks_meet(_Atomic uint32_t *count, uint32_t n)
{
    atomic_fetch_add(count, 1u);
    while (atomic_load(count) < n) {
        ranks_sleep_ms(1);
    }
}

static uint32_t n_entries(const char *path)
{
    DIR *folder = opendir(path);
    uint32_t n = 0;

    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        n += entry->d_name[0] != '.';
    }
    closedir(folder);
    return n;
}

uint32_t ranks_n_descriptors(void)
{
    return n_entries("/proc/self/fd");
}

uint32_t ranks_n_threads(void)
{
    return n_entries("/proc/self/task");
}
