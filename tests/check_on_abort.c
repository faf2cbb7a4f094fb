/* SPDX-License-Identifier: Apache-2.0 */
/* on_abort: whoever hears of a failure, and however soon it goes then, is told of it once. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/failure.h"
#include "comm/job_internal.h"
#include "jobs.h"
#include "ranks.h"
#include "suite.h"

struct told {
    uint32_t n;
    char message[512];
};

static void abort_hear(void *user, const struct hsdp_error *reason)
{
    struct told *told = user;

    told->n++;
    snprintf(told->message, sizeof(told->message), "%s", reason->message);
}

/* Entered, not connected. */
static struct hsdp_job *job_make(struct told *told)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    spec.on_abort = abort_hear;
    spec.user = told;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    return job;
}

/* As the watchdog's thread does it: the failure is there, and the host does not know yet. */
static int32_t failure_put(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct hsdp_error err;

    error_set(&err, HSDP_ERR_ABORTED, "the reason");
    failure_record(job, job->launch.rank, &err);
    return error_set(reterr, HSDP_ERR_ABORTED, "the reason");
}

/* Rank 0 has come to an exchange with a failed job; then rank 1 comes, for whom all is there. */
static void late_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *is_late = shared;
    struct told told = {.n = 0};
    struct hsdp_job *job = job_make(&told);
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status;

    status_assert(job_connect(job, &err), HSDP_OK, &err);
    if (rank == 0) {
        status = failure_put(job, &err);
        ck_assert_int_eq(exchange_agree(job, "test", status, &err), HSDP_ERR_ABORTED);
        atomic_store(is_late, 1u);
    } else {
        while (atomic_load(is_late) == 0) {
            ranks_sleep_ms(1);
        }
        ck_assert_int_eq(exchange_agree(job, "test", HSDP_OK, &err), HSDP_ERR_ABORTED);
        ck_assert_str_eq(err.message, "rank 0 has aborted: the reason");
        ck_assert_uint_eq(told.n, 1);
    }
    test_job_drop(job);
    ck_assert_uint_eq(told.n, 1);
    ck_assert_str_eq(told.message, "the reason");
}

START_TEST(exchange_of_a_failed_job_tells_its_reason)
{
    ranks_run(2, RANKS_LIMIT_MS, late_rank, ranks_memory(sizeof(_Atomic uint32_t)));
}
END_TEST

/* It goes before its watchdog has looked again. */
static void hasty_rank(uint32_t rank, void *shared)
{
    struct told told = {.n = 0};
    struct hsdp_job *job = job_make(&told);
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)rank;
    (void)shared;
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    failure_put(job, &err);
    test_job_drop(job);
    ck_assert_uint_eq(told.n, 1);
    ck_assert_str_eq(told.message, "the reason");
}

START_TEST(job_destroy_before_anybody_has_told_the_host_tells_it)
{
    ranks_run(2, RANKS_LIMIT_MS, hasty_rank, NULL);
}
END_TEST

/* Four seconds: destroy waits for one of them, and the thread is left to itself. */
static void abort_linger(void *user, const struct hsdp_error *reason)
{
    _Atomic uint32_t *n = user;

    (void)reason;
    atomic_fetch_add(n, 1u);
    ranks_sleep_ms(4000);
}

static void lingering_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_told = (_Atomic uint32_t *)shared + rank;
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t start_ms;
    struct hsdp_job *job;

    spec.on_abort = abort_linger;
    spec.user = n_told;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    failure_put(job, &err);
    start_ms = ranks_now_ms();
    test_job_drop(job);
    ck_assert_uint_lt(ranks_now_ms() - start_ms, 3500);
    ck_assert_uint_eq(atomic_load(n_told), 1);
}

START_TEST(job_destroy_does_not_wait_for_a_host_that_stays_in_its_on_abort)
{
    ranks_run(2, RANKS_LIMIT_MS, lingering_rank, ranks_memory(2 * sizeof(_Atomic uint32_t)));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("on_abort");
    TCase *tcase = tcase_create("on_abort");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, exchange_of_a_failed_job_tells_its_reason);
    tcase_add_test(tcase, job_destroy_before_anybody_has_told_the_host_tells_it);
    tcase_add_test(tcase, job_destroy_does_not_wait_for_a_host_that_stays_in_its_on_abort);
    suite_add_tcase(suite, tcase);
    return suite;
}
