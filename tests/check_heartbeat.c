/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats: hosts that stand still, processes that are stopped, watchdogs that are stuck. */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/watchdog.h"
#include "jobs.h"
#include "ranks.h"
#include "suite.h"

/* A job with nccl_timeout_seconds and heartbeat_timeout_seconds, connected, outside of calls. */
static struct hsdp_job *job_open(const char *seconds, const char *heartbeat)
{
    static const char *const keys[] = {"nccl_timeout_seconds", "heartbeat_timeout_seconds"};
    const char *values[] = {seconds, heartbeat};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    spec.settings = (struct hsdp_settings){keys, values, 2};
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    job_leave(job);
    return job;
}

/* Makes calls for so long, or until the job has failed. */
static void host_work(struct hsdp_job *job, uint32_t ms)
{
    uint64_t end_ms = ranks_now_ms() + ms;
    int32_t status = HSDP_OK;

    while (status == HSDP_OK && ranks_now_ms() < end_ms) {
        struct hsdp_error err;

        status = job_enter(job, &err);
        if (status == HSDP_OK) {
            job_leave(job);
        }
        ranks_sleep_ms(10);
    }
}

static void failure_expect(struct hsdp_job *job, uint32_t missing, const char *const *parts)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    status_assert(job_status(job, &err), HSDP_ERR_TIMEOUT, &err);
    ck_assert_str_eq(err.operation, "heartbeat");
    ck_assert_uint_eq(err.n_missing_ranks, 1);
    ck_assert_uint_eq(err.missing_ranks[0], missing);
    ck_assert_uint_ge(err.waited_ms, 1000);
    for (; *parts != NULL; parts++) {
        ck_assert_msg(strstr(err.message, *parts) != NULL, "no '%s' in: %s", *parts, err.message);
    }
}

/* -------------------------------------------------------------------------------------- hosts */

/* Case D8 of tests/cases/README.md: rank 1 stands still for 4 s. */
static void still_rank(uint32_t rank, void *shared)
{
    static const char *const parts[] = {"heartbeat: rank 1 has made no call for ",
                                        " s, outside of any phase; the last one was ", NULL};
    struct hsdp_job *job = job_open("60", "1");
    uint64_t start_ms = ranks_now_ms();

    (void)shared;
    if (rank == 1) {
        ranks_sleep_ms(4000);
    }
    host_work(job, 15000);
    ck_assert_uint_ge(ranks_now_ms() - start_ms, 900);
    failure_expect(job, 1, parts);
    job_destroy(job);
}

START_TEST(heartbeat_of_a_host_that_stands_still_names_it)
{
    ranks_run(2, RANKS_LIMIT_MS, still_rank, NULL);
}
END_TEST

/* Case D8 of tests/cases/README.md. */
static void compiling_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = job_open("60", "1");
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)rank;
    (void)shared;
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status_assert(job_phase_push(job, "compile", 8000, &err), HSDP_OK, &err);
    job_leave(job);
    ranks_sleep_ms(4000);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    status_assert(job_phase_pop(job, &err), HSDP_OK, &err);
    test_job_end(job);
}

START_TEST(heartbeat_within_a_phase_is_the_longer_of_both)
{
    ranks_run(2, RANKS_LIMIT_MS, compiling_rank, NULL);
}
END_TEST

static void saving_rank(uint32_t rank, void *shared)
{
    static const char *const parts[] = {"heartbeat: rank 1 ", ", in phase \"save\"; ", NULL};
    struct hsdp_job *job = job_open("60", "1");
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)shared;
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status_assert(job_phase_push(job, "save", 1, &err), HSDP_OK, &err);
    job_leave(job);
    if (rank == 1) {
        ranks_sleep_ms(4000);
    }
    host_work(job, 15000);
    failure_expect(job, 1, parts);
    job_destroy(job);
}

START_TEST(heartbeat_within_a_phase_names_it)
{
    ranks_run(2, RANKS_LIMIT_MS, saving_rank, NULL);
}
END_TEST

/* A call that waits is no host that stands still: the operation has a deadline of its own. */
static void waiting_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = job_open("60", "1");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t all[2];

    (void)shared;
    if (rank == 1) {
        host_work(job, 3500);
    }
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    status_assert(job_exchange(job, "test", &(uint64_t){0}, 8, all, &err), HSDP_OK, &err);
    test_job_end(job);
}

START_TEST(heartbeat_of_a_host_within_a_call_is_none)
{
    ranks_run(2, RANKS_LIMIT_MS, waiting_rank, NULL);
}
END_TEST

/* -------------------------------------------------------------------------------- processes */

/* Case D8 of tests/cases/README.md: rank 1 is stopped, and named at the deadline of who waits. */
static void stopped_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *is_over = shared;
    struct hsdp_job *job = job_open("2", "1");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t start_ms = ranks_now_ms();
    uint64_t all[2];

    if (rank == 1) {
        raise(SIGSTOP);
    } else {
        ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
        status_assert(job_exchange(job, "test", &(uint64_t){0}, 8, all, &err), HSDP_ERR_TIMEOUT,
                      &err);
        ck_assert_uint_ge(ranks_now_ms() - start_ms, 1900);
        ck_assert_str_eq(err.operation, "test");
        ck_assert_msg(strstr(err.message, "rank 1, which is stopped") != NULL, "%s", err.message);
        job_leave(job);
    }
    ranks_meet(is_over, 2);
    ck_assert_int_eq(job_status(job, &err), HSDP_ERR_TIMEOUT);
    ck_assert_str_eq(err.operation, "test");
    job_destroy(job);
}

START_TEST(stop_of_a_process_ends_at_the_deadline_of_who_waits)
{
    _Atomic uint32_t *is_over = ranks_memory(sizeof(*is_over));
    struct ranks ranks;

    ranks_start(&ranks, 2, RANKS_LIMIT_MS, stopped_rank, (void *)is_over);
    while (atomic_load(is_over) == 0 && ranks_running(&ranks) > 0) {
        ranks_sleep_ms(2);
    }
    kill(ranks.pids[1], SIGCONT);
    ranks_wait(&ranks);
}
END_TEST

/* Nobody waits, so nobody is to blame: neither by its own watchdog nor by the other. */
static void resting_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_open = shared;
    struct hsdp_job *job = job_open("60", "1");
    struct hsdp_error err = HSDP_ERROR_INIT;

    ranks_sleep_ms(200); /* its watchdog has looked by then */
    atomic_fetch_add(n_open, 1u);
    if (rank == 1) {
        raise(SIGSTOP);
        ranks_sleep_ms(500); /* it has as long as ever: the time before does not count */
    }
    host_work(job, rank == 1 ? 500 : 4500);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    test_job_end(job);
}

START_TEST(stop_of_a_process_for_which_nobody_waits_is_no_failure)
{
    _Atomic uint32_t *n_open = ranks_memory(sizeof(*n_open));
    struct ranks ranks;

    ranks_start(&ranks, 2, RANKS_LIMIT_MS, resting_rank, (void *)n_open);
    while (atomic_load(n_open) < 2 && ranks_running(&ranks) > 0) {
        ranks_sleep_ms(2);
    }
    ranks_sleep_ms(3000);
    kill(ranks.pids[1], SIGCONT);
    ranks_wait(&ranks);
}
END_TEST

/* -------------------------------------------------------------------------------- watchdogs */

/* A service that keeps the watchdog for 5 s. */
static uint64_t service_block(void *user)
{
    (void)user;
    ranks_sleep_ms(5000);
    return UINT64_MAX;
}

static void watchdog_block(struct hsdp_job *job)
{
    struct watchdog_service service = {.fd = -1, .serve = service_block};
    struct hsdp_error err = HSDP_ERROR_INIT;

    status_assert(watchdog_attach(job, &service, &err), HSDP_OK, &err);
}

static void neighbour_rank(uint32_t rank, void *shared)
{
    static const char *const parts[] = {"heartbeat: the watchdog of rank 1 has been stuck for ",
                                        NULL};
    struct hsdp_job *job = job_open("60", "1");

    (void)shared;
    if (rank == 1) {
        watchdog_block(job);
    }
    host_work(job, 15000);
    failure_expect(job, 1, parts);
    job_destroy(job);
}

START_TEST(watchdog_that_is_stuck_is_noticed_by_another)
{
    ranks_run(2, RANKS_LIMIT_MS, neighbour_rank, NULL);
}
END_TEST

/* All of them are stuck, so only a call can tell. */
static void caller_rank(uint32_t rank, void *shared)
{
    static const char *const parts[] = {"heartbeat: the watchdog of rank 0 has been stuck for ",
                                        NULL};
    _Atomic uint32_t *n_blocked = shared;
    struct hsdp_job *job = job_open("60", "1");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t all[2];

    watchdog_block(job);
    ranks_meet(&n_blocked[0], 2);
    if (rank == 0) {
        ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
        status_assert(job_exchange(job, "test", &(uint64_t){0}, 8, all, &err), HSDP_ERR_TIMEOUT,
                      &err);
        ck_assert_str_eq(err.operation, "heartbeat");
        job_leave(job);
    }
    ranks_meet(&n_blocked[1], 2);
    failure_expect(job, 0, parts);
    job_destroy(job);
}

START_TEST(watchdog_that_is_stuck_is_noticed_by_a_call)
{
    ranks_run(2, RANKS_LIMIT_MS, caller_rank, ranks_memory(2 * sizeof(uint32_t)));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("heartbeat");
    TCase *tcase = tcase_create("heartbeat");

    tcase_set_timeout(tcase, 40);
    tcase_add_test(tcase, heartbeat_of_a_host_that_stands_still_names_it);
    tcase_add_test(tcase, heartbeat_within_a_phase_is_the_longer_of_both);
    tcase_add_test(tcase, heartbeat_within_a_phase_names_it);
    tcase_add_test(tcase, heartbeat_of_a_host_within_a_call_is_none);
    tcase_add_test(tcase, stop_of_a_process_ends_at_the_deadline_of_who_waits);
    tcase_add_test(tcase, stop_of_a_process_for_which_nobody_waits_is_no_failure);
    tcase_add_test(tcase, watchdog_that_is_stuck_is_noticed_by_another);
    tcase_add_test(tcase, watchdog_that_is_stuck_is_noticed_by_a_call);
    suite_add_tcase(suite, tcase);
    return suite;
}
