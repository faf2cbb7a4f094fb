/* SPDX-License-Identifier: Apache-2.0 */
/* The runner: starts the ranks of a check, ends those that hang, and says what was wrong. */
#include "runner.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rank.h"

#define OUTPUT_MAX_BYTES   1048576 /* who writes more is ended */
#define OUTPUT_SHOWN_BYTES 400u
#define STRANGERS_MS       500u /* for what ranks have started to end behind them */

/* ----------------------------------------------------------------------------------- sentences */

static void message_add(struct runner_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void message_add(struct runner_result *result, const char *format, ...)
{
    size_t n_bytes = strlen(result->message);
    va_list args;

    va_start(args, format);
    vsnprintf(result->message + n_bytes, sizeof(result->message) - n_bytes, format, args);
    va_end(args);
}

void runner_plain(char *text)
{
    for (char *at = text; *at != '\0'; at++) {
        unsigned char letter = (unsigned char)*at;

        *at = letter < ' ' || letter == 127 ? '?' : *at;
    }
}

static const char *signal_name(int number)
{
    static const struct {
        int number;
        const char *name;
    } signals[] = {
        {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},   {SIGABRT, "SIGABRT"}, {SIGFPE, "SIGFPE"},
        {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"}, {SIGSYS, "SIGSYS"},   {SIGKILL, "SIGKILL"},
        {SIGTERM, "SIGTERM"}, {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGUSR1, "SIGUSR1"},
        {SIGUSR2, "SIGUSR2"}, {SIGINT, "SIGINT"},   {SIGHUP, "SIGHUP"},   {SIGQUIT, "SIGQUIT"},
    };

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (signals[i].number == number) {
            return signals[i].name;
        }
    }
    return "another signal";
}

/* Where a rank was when it ended or was ended. */
static void place_add(struct runner *runner, uint32_t rank)
{
    struct slot_rank *seen = &runner->slot->ranks[rank];

    seen->call[sizeof(seen->call) - 1] = '\0';
    if (atomic_load(&seen->has_returned) != 0) {
        message_add(&runner->result, "after its part was done");
    } else if (atomic_load(&seen->is_meeting) != 0) {
        message_add(&runner->result, "waiting for the others");
    } else if (seen->call[0] == '\0') {
        message_add(&runner->result, "before its first call");
    } else {
        message_add(&runner->result, "%s %s", atomic_load(&seen->is_inside) != 0 ? "in" : "behind",
                    seen->call);
    }
}

/* ------------------------------------------------------------------------------------- starting */

static bool memory_prepare(struct runner *runner)
{
    void *memory = mmap(NULL, sizeof(*runner->slot), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return false;
    }
    runner->slot = memory;
    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        for (int i = 0; i < 2; i++) {
            runner->ranks[rank].output_fds[i] = memfd_create("output", MFD_CLOEXEC);
            if (runner->ranks[rank].output_fds[i] < 0) {
                return false;
            }
        }
    }
    return true;
}

static void memory_release(struct runner *runner)
{
    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        for (int i = 0; i < 2; i++) {
            if (runner->ranks[rank].output_fds[i] >= 0) {
                close(runner->ranks[rank].output_fds[i]);
            }
        }
    }
    if (runner->slot != NULL) {
        munmap(runner->slot, sizeof(*runner->slot));
        runner->slot = NULL;
    }
}

static bool rank_start(struct runner *runner, uint32_t rank)
{
    pid_t parent = getpid();
    pid_t process = fork();

    if (process == 0) {
        rank_play(runner, rank, parent);
    }
    if (process < 0) {
        return false;
    }
    runner->ranks[rank].process = process;
    if (runner->process_group == 0) {
        runner->process_group = process;
    }
    setpgid(process, runner->process_group); /* here and there: whoever comes first */
    return true;
}

/* Nobody of the group has been reaped who could not be: the number is still ours. */
static void ranks_kill(const struct runner *runner)
{
    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        if (runner->ranks[rank].process != 0) {
            kill(runner->ranks[rank].process, SIGKILL);
        }
    }
}

static bool start_fail(struct runner *runner, const char *what)
{
    snprintf(runner->result.message, sizeof(runner->result.message), "cannot %s: %s", what,
             strerror(errno));
    ranks_kill(runner);
    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        if (runner->ranks[rank].process != 0) {
            waitpid(runner->ranks[rank].process, NULL, 0);
        }
    }
    memory_release(runner);
    runner->result.status = RUNNER_FAILED;
    return false;
}

static uint32_t limit_of(const struct runner_setup *setup, const struct conform_check *check)
{
    if (setup->limit_ms != 0) {
        return setup->limit_ms;
    }
    return check->limit_ms == 0 ? CONFORM_LIMIT_MS : check->limit_ms;
}

bool runner_start(struct runner *ret, const struct runner_setup *setup,
                  const struct conform_check *check)
{
    memset(ret, 0, sizeof(*ret));
    ret->check = check;
    ret->setup = setup;
    ret->n_ranks = check->n_ranks == 0 ? setup->n_ranks : check->n_ranks;
    ret->result.n_ranks = ret->n_ranks;
    ret->result.rank = RUNNER_NO_RANK;
    for (uint32_t rank = 0; rank < ret->n_ranks; rank++) {
        ret->ranks[rank].output_fds[0] = -1;
        ret->ranks[rank].output_fds[1] = -1;
    }
    if (!memory_prepare(ret)) {
        return start_fail(ret, "get memory for a check");
    }
    environment_init(&ret->environment, ret->n_ranks);
    ret->begin_ms = conform_now_ms();
    ret->deadline_ms = ret->begin_ms + limit_of(setup, check);
    fflush(NULL); /* what is buffered would be written by each rank again */
    for (uint32_t rank = 0; rank < ret->n_ranks; rank++) {
        if (!rank_start(ret, rank)) {
            return start_fail(ret, "start a process");
        }
    }
    return true;
}

/* ----------------------------------------------------------------------------------- watching */

/* The runner itself has found something, unless it has already. A crash counts more than what other
 * ranks say of it. */
static bool failure_begin(struct runner *runner, uint32_t rank)
{
    struct runner_result *result = &runner->result;

    if (result->status == RUNNER_FAILED) {
        return false;
    }
    result->status = RUNNER_FAILED;
    result->rank = rank;
    result->message[0] = '\0';
    return true;
}

static bool is_ended_well(const struct runner *runner, uint32_t rank)
{
    struct slot_rank *seen = &runner->slot->ranks[rank];
    int expected = atomic_load(&seen->expected_signal);
    int status = runner->ranks[rank].wait_status;

    if (expected != 0) {
        return WIFSIGNALED(status) && WTERMSIG(status) == expected;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && atomic_load(&seen->has_returned) != 0;
}

/* A rank has ended by itself; by conform_fail() it ends with 1, and has said why. */
static void ending_judge(struct runner *runner, uint32_t rank)
{
    int status = runner->ranks[rank].wait_status;
    int expected = atomic_load(&runner->slot->ranks[rank].expected_signal);
    bool has_verdict = atomic_load(&runner->slot->verdict) != SLOT_OPEN;

    if (is_ended_well(runner, rank) ||
        (has_verdict && WIFEXITED(status) && WEXITSTATUS(status) == 1) ||
        (runner->is_ending && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
        !failure_begin(runner, rank)) {
        return;
    }
    if (WIFSIGNALED(status)) {
        message_add(&runner->result, "ended by %s (signal %d) ", signal_name(WTERMSIG(status)),
                    WTERMSIG(status));
    } else if (expected == 0 || WEXITSTATUS(status) != 0) {
        message_add(&runner->result, "ended with exit status %d ", WEXITSTATUS(status));
    } else {
        message_add(&runner->result, "went on ");
    }
    place_add(runner, rank);
    if (expected != 0) {
        message_add(&runner->result, "; it had to end by %s (signal %d)", signal_name(expected),
                    expected);
    }
}

static void process_ended(struct runner *runner, pid_t process, int wait_status)
{
    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        if (runner->ranks[rank].process == process) {
            runner->ranks[rank].process = 0;
            runner->ranks[rank].wait_status = wait_status;
            atomic_store(&runner->slot->ranks[rank].has_ended, 1u);
            ending_judge(runner, rank);
        }
    }
}

/* Takes up those of the group that have ended, also what ranks have left to us; false when none of
 * it is left. A rank counts as well where a plugin has taken it out of the group. */
static bool group_reap(struct runner *runner)
{
    int wait_status = 0;
    pid_t process;
    bool is_alive;

    while ((process = waitpid(-runner->process_group, &wait_status, WNOHANG)) > 0) {
        process_ended(runner, process, wait_status);
    }
    is_alive = process == 0;
    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        process = runner->ranks[rank].process;
        if (process != 0 && waitpid(process, &wait_status, WNOHANG) == process) {
            process_ended(runner, process, wait_status);
        }
        is_alive = is_alive || runner->ranks[rank].process != 0;
    }
    return is_alive;
}

static uint32_t n_running(const struct runner *runner)
{
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        n += runner->ranks[rank].process != 0;
    }
    return n;
}

static void hang_tell(struct runner *runner)
{
    const char *between = "";

    if (!failure_begin(runner, RUNNER_NO_RANK)) {
        return;
    }
    message_add(&runner->result, "not finished after %" PRIu64 " s: ",
                (runner->deadline_ms - runner->begin_ms + 500u) / 1000u);
    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        if (runner->ranks[rank].process != 0) {
            message_add(&runner->result, "%srank %" PRIu32 " was ", between, rank);
            place_add(runner, rank);
            between = ", ";
        }
    }
}

static uint64_t output_bytes(int fd)
{
    struct stat file;

    return fstat(fd, &file) == 0 ? (uint64_t)file.st_size : 0;
}

static void flood_stop(struct runner *runner)
{
    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        for (int i = 0; i < 2; i++) {
            if (output_bytes(runner->ranks[rank].output_fds[i]) > OUTPUT_MAX_BYTES) {
                failure_begin(runner, rank);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- result */

/* Takes over what the ranks have said, unless the runner knows better. */
static void verdict_take(struct runner *runner)
{
    struct slot *slot = runner->slot;
    uint32_t verdict = atomic_load(&slot->verdict);

    if (verdict == SLOT_WRITING || verdict == SLOT_OPEN) {
        return; /* it died over it, and that is told */
    }
    slot->message[sizeof(slot->message) - 1] = '\0';
    if (runner->result.status == RUNNER_FAILED) {
        message_add(&runner->result, "; rank %" PRIu32 " then said: %s", slot->rank, slot->message);
        return;
    }
    runner->result.status = verdict == SLOT_FAILED ? RUNNER_FAILED : RUNNER_SKIPPED;
    runner->result.rank = slot->rank;
    message_add(&runner->result, "%s", slot->message);
}

static void text_add(struct runner_result *result, int fd)
{
    char text[OUTPUT_SHOWN_BYTES];
    ssize_t n_bytes = pread(fd, text, sizeof(text), 0);

    for (ssize_t i = 0; i < n_bytes; i++) {
        unsigned char letter = (unsigned char)text[i];

        if (letter == '\n') {
            message_add(result, i + 1 < n_bytes ? "\\n" : "");
        } else if (letter < ' ' || letter == 127) {
            message_add(result, "\\%03o", letter);
        } else {
            message_add(result, "%c", letter);
        }
    }
    message_add(result, "\"%s", output_bytes(fd) > sizeof(text) ? " and more" : "");
}

/* A plugin is silent; what it wrote is shown in any case. */
static void output_judge(struct runner *runner)
{
    struct runner_result *result = &runner->result;

    for (uint32_t rank = 0; rank < runner->n_ranks; rank++) {
        for (int i = 0; i < 2; i++) {
            int fd = runner->ranks[rank].output_fds[i];

            if (output_bytes(fd) == 0) {
                continue;
            }
            failure_begin(runner, rank);
            message_add(result, "%srank %" PRIu32 " wrote to %s: \"",
                        result->message[0] == '\0' ? "" : "; ", rank, i == 0 ? "stdout" : "stderr");
            text_add(result, fd);
        }
    }
}

static void runner_finish(struct runner *runner)
{
    verdict_take(runner);
    output_judge(runner);
    runner_plain(runner->result.message);
    runner->result.ms = conform_now_ms() - runner->begin_ms;
    if (runner->setup->ret_shared != NULL) {
        memcpy(runner->setup->ret_shared, runner->slot->shared, runner->setup->ret_shared_bytes);
    }
    memory_release(runner);
}

/* All ranks have ended; what they have started may do so for a moment longer. */
static bool strangers_wait(struct runner *runner)
{
    uint64_t now_ms = conform_now_ms();

    if (runner->strangers_ms == 0) {
        runner->strangers_ms = now_ms;
    }
    if (now_ms - runner->strangers_ms < STRANGERS_MS) {
        return true;
    }
    if (failure_begin(runner, RUNNER_NO_RANK)) {
        message_add(&runner->result,
                    "all ranks have ended, but not a process that one has started");
    }
    kill(-runner->process_group, SIGKILL);
    waitpid(-runner->process_group, NULL, 0);
    return group_reap(runner);
}

bool runner_poll(struct runner *runner)
{
    uint32_t verdict = atomic_load(&runner->slot->verdict);
    bool is_alive = group_reap(runner);

    if (is_alive && n_running(runner) == 0) {
        is_alive = strangers_wait(runner);
    }
    if (!is_alive) {
        runner_finish(runner);
        return true;
    }
    flood_stop(runner);
    if (conform_now_ms() >= runner->deadline_ms) {
        hang_tell(runner);
    }
    if (verdict == SLOT_FAILED || verdict == SLOT_SKIPPED ||
        runner->result.status == RUNNER_FAILED) {
        runner->is_ending = true;
        ranks_kill(runner);
    }
    return false;
}
