/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of several ranks: processes under a hard limit, so that a hang is a failure. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RANKS_MAX 80u /* more than a host holds */

/* Long enough for every test on a loaded machine; a test that is meant to end sooner says so. */
#define RANKS_LIMIT_MS 20000u

struct ranks {
    pid_t pids[RANKS_MAX]; /* 0 = ended and collected */
    int wait_status[RANKS_MAX];
    int expected_signal[RANKS_MAX]; /* 0 = it has to exit with 0 */
    uint64_t deadline_ns;
    uint32_t n_ranks;
};

/** Zeroed memory that the test and every rank see. It lives as long as the test. */
void *ranks_memory(size_t n_bytes);

/**
 * Runs function(rank, shared) in n_ranks processes, each in the environment that a launcher gives
 * it (RANK, WORLD_SIZE, ..., HSDP_RUN_ID unique to this call), and waits for them. In a rank
 * ck_assert works as in a test. The test fails if a rank does, or runs after limit_ms.
 */
void ranks_run(uint32_t n_ranks, uint32_t limit_ms, void (*function)(uint32_t rank, void *shared),
               void *shared);

/* The same in two steps, for tests that do something meanwhile. */
void ranks_start(struct ranks *ret, uint32_t n_ranks, uint32_t limit_ms,
                 void (*function)(uint32_t rank, void *shared), void *shared);
void ranks_wait(struct ranks *ranks);

/** How many ranks have not ended. */
uint32_t ranks_running(struct ranks *ranks);

/** Sends SIGKILL to a rank, whose end by it is no failure of the test. */
void ranks_kill(struct ranks *ranks, uint32_t rank);

/** The launcher's environment for one rank, in this process; other launchers' is removed. */
void ranks_environment(uint32_t rank, uint32_t n_ranks, const char *run_id);
/** No launcher's environment at all: a job of one rank. */
void ranks_environment_clear(void);

/** Adds one to *count and waits until n have. Not bounded: the limit of the test is. */
void ranks_meet(_Atomic uint32_t *count, uint32_t n);

uint64_t ranks_now_ms(void);
void ranks_sleep_ms(uint32_t ms);

/** Open file descriptors of this process. */
uint32_t ranks_n_descriptors(void);
/** Threads of this process. */
uint32_t ranks_n_threads(void);

#endif /* TESTS_RANKS_H */
