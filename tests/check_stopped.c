/* SPDX-License-Identifier: Apache-2.0 */
/* A job that is stopped as a whole, as by Ctrl-Z, for longer than its timeout: it goes on. */
#include <check.h>
#include <signal.h>

#include "jobs.h"
#include "ranks.h"
#include "suite.h"

#define STOP_MS 4000u /* longer than the timeout, which is 3 s */

struct stop {
    _Atomic uint32_t n_waiting;
    _Atomic uint32_t is_over;
};

static int32_t all_meet(struct hsdp_job *job, struct hsdp_error *reterr)
{
    return job_exchange(job, "test", NULL, 0, NULL, reterr);
}

/* Rank 0 waits while all are stopped; rank 1 comes a moment after it has been woken. */
static void stopped_rank(uint32_t rank, void *shared)
{
    struct stop *stop = shared;
    struct hsdp_job *job = test_job_open("3");
    struct hsdp_error err = HSDP_ERROR_INIT;

    atomic_fetch_add(&stop->n_waiting, 1u);
    while (rank == 1 && atomic_load(&stop->is_over) == 0) {
        ranks_sleep_ms(10);
    }
    if (rank == 1) {
        ranks_sleep_ms(300);
    }
    status_assert(all_meet(job, &err), HSDP_OK, &err);
    test_job_end(job);
}

static void all_signal(const struct ranks *ranks, int signal)
{
    for (uint32_t rank = 0; rank < ranks->n_ranks; rank++) {
        ck_assert_int_eq(kill(ranks->pids[rank], signal), 0);
    }
}

START_TEST(job_stopped_as_a_whole_goes_on)
{
    struct stop *stop = ranks_memory(sizeof(*stop));
    struct ranks ranks;

    ranks_start(&ranks, 2, RANKS_LIMIT_MS, stopped_rank, stop);
    while (atomic_load(&stop->n_waiting) < 2) {
        ranks_sleep_ms(1);
    }
    ranks_sleep_ms(200);
    all_signal(&ranks, SIGSTOP);
    ranks_sleep_ms(STOP_MS);
    atomic_store(&stop->is_over, 1u);
    all_signal(&ranks, SIGCONT);
    ranks_wait(&ranks);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("stopped");
    TCase *tcase = tcase_create("stopped");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, job_stopped_as_a_whole_goes_on);
    suite_add_tcase(suite, tcase);
    return suite;
}
