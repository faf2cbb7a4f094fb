/* SPDX-License-Identifier: Apache-2.0 */
/* Failure: timeouts, deaths, departures and aborts, and that every rank tells the same. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "jobs.h"
#include "ranks.h"
#include "suite.h"

static void message_assert(const struct hsdp_error *err, const char *part)
{
    ck_assert_msg(strstr(err->message, part) != NULL, "no '%s' in: %s", part, err->message);
}

/* The next call on a failed job repeats the first reason. */
static void aborted_assert(struct hsdp_job *job, const char *reason)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    job_leave(job);
    ck_assert_int_eq(job_enter(job, &err), HSDP_ERR_ABORTED);
    message_assert(&err, "aborted: ");
    message_assert(&err, reason);
    ck_assert_int_eq(job_enter_failed(job, &err), HSDP_OK);
    ck_assert_int_eq(job_close(job, &err), HSDP_ERR_ABORTED);
    message_assert(&err, reason);
}

static int32_t exchange_with(struct hsdp_job *job, struct hsdp_error *ret_err)
{
    uint64_t mine = 0;
    uint64_t all[RANKS_MAX];

    return job_exchange(job, "test", &mine, sizeof(mine), all, ret_err);
}

/* Rank 1 connects, and is then away for good (until the test has ended). */
struct absence {
    _Atomic uint32_t n_done;
};

static void absent_rank(uint32_t rank, void *shared)
{
    struct absence *absence = shared;
    struct hsdp_job *job = test_job_open("1");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t start_ms = ranks_now_ms();

    if (rank != 1) {
        status_assert(exchange_with(job, &err), HSDP_ERR_TIMEOUT, &err);
        ck_assert_uint_ge(ranks_now_ms() - start_ms, 900);
        message_assert(&err, "test: timeout after");
        message_assert(&err, " s on rank "); /* 0 or 2, who was the first */
        message_assert(&err, ": no sign of rank 1");
        ck_assert_str_eq(err.operation, "test");
        ck_assert_uint_eq(err.n_missing_ranks, 1);
        ck_assert_uint_eq(err.missing_ranks[0], 1);
        ck_assert_uint_ge(err.waited_ms, 1000);
        aborted_assert(job, "test: timeout after");
    }
    ranks_meet(&absence->n_done, 3);
    if (rank == 1) {
        aborted_assert(job, "test: timeout after");
    }
    test_job_drop(job);
}

START_TEST(job_wait_for_an_absent_rank_times_out_on_all)
{
    ranks_run(3, RANKS_LIMIT_MS, absent_rank, ranks_memory(sizeof(struct absence)));
}
END_TEST

static void bereaved_rank(uint32_t rank, void *shared)
{
    struct absence *absence = shared;
    struct hsdp_job *job = test_job_open("60");
    struct hsdp_error err = HSDP_ERROR_INIT;

    atomic_fetch_add(&absence->n_done, 1u);
    if (rank == 1) {
        ranks_sleep_ms(60000);
    }
    status_assert(exchange_with(job, &err), HSDP_ERR_PEER_LOST, &err);
    message_assert(&err, "rank 1 died");
    ck_assert_uint_eq(err.missing_ranks[0], 1);
    aborted_assert(job, "rank 1 died");
    test_job_drop(job);
}

START_TEST(job_wait_for_a_killed_rank_loses_it)
{
    struct absence *absence = ranks_memory(sizeof(*absence));
    struct ranks ranks;

    ranks_start(&ranks, 3, 5000, bereaved_rank, absence);
    while (atomic_load(&absence->n_done) < 3) {
        ranks_sleep_ms(1);
    }
    ranks_kill(&ranks, 1);
    ranks_wait(&ranks);
}
END_TEST

/* A child of the killed rank holds copies of all its descriptors; that hides nothing. */
static void parent_rank(uint32_t rank, void *shared)
{
    struct absence *absence = shared;
    struct hsdp_job *job = test_job_open("60");
    struct hsdp_error err = HSDP_ERROR_INIT;

    if (rank == 1 && fork() == 0) {
        ranks_meet(&absence->n_done, 2);
        _exit(0);
    }
    if (rank == 1) {
        raise(SIGKILL);
    }
    status_assert(exchange_with(job, &err), HSDP_ERR_PEER_LOST, &err);
    ranks_meet(&absence->n_done, 2);
    test_job_drop(job);
}

START_TEST(job_wait_for_a_killed_parent_loses_it)
{
    struct ranks ranks;

    ranks_start(&ranks, 2, 5000, parent_rank, ranks_memory(sizeof(struct absence)));
    ranks.expected_signal[1] = SIGKILL;
    ranks_wait(&ranks);
}
END_TEST

static void leaving_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("60");
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)shared;
    if (rank == 1) {
        test_job_drop(job);
        return;
    }
    status_assert(exchange_with(job, &err), HSDP_ERR_PEER_LOST, &err);
    message_assert(&err, "rank 1 left the job");
    test_job_drop(job);
}

START_TEST(job_wait_for_a_rank_that_left_loses_it)
{
    ranks_run(3, 5000, leaving_rank, NULL);
}
END_TEST

/* What a rank did before it died counts; what it did not, is lost. */
struct estate {
    _Atomic uint64_t counter;
};

static void heir_rank(uint32_t rank, void *shared)
{
    struct estate *estate = shared;
    struct hsdp_job *job = test_job_open("60");
    struct wait_entry entry = {.counter = &estate->counter, .target = 1, .rank = 1};
    struct wait wait = {.entries = &entry, .n_entries = 1, .operation = "inherit"};
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t peer = 0;

    if (rank == 1) {
        job_signal(job, &estate->counter, 1, &peer, 1);
        raise(SIGKILL);
    }
    ranks_sleep_ms(200);
    status_assert(job_wait(job, &wait, &err), HSDP_OK, &err);
    entry.target = 2;
    status_assert(job_wait(job, &wait, &err), HSDP_ERR_PEER_LOST, &err);
    message_assert(&err, "peer lost: rank 1 died"); /* by the watchdog, before anybody waited */
    test_job_drop(job);
}

START_TEST(job_wait_met_before_a_death_succeeds)
{
    struct ranks ranks;

    ranks_start(&ranks, 2, 5000, heir_rank, ranks_memory(sizeof(struct estate)));
    ranks.expected_signal[1] = SIGKILL;
    ranks_wait(&ranks);
}
END_TEST

/* -------------------------------------------------------------------------------------- abort */

static void aborting_rank(uint32_t rank, void *shared)
{
    struct absence *absence = shared;
    struct hsdp_job *job = test_job_open("60");
    struct hsdp_error err = HSDP_ERROR_INIT;

    if (rank == 1) {
        ranks_sleep_ms(50);
        ck_assert_int_eq(job_abort(job, "out of patience", &err), HSDP_OK);
        ck_assert_int_eq(job_abort(job, "and again", &err), HSDP_OK);
        ck_assert_int_eq(job_status(job, &err), HSDP_ERR_ABORTED);
    } else {
        status_assert(exchange_with(job, &err), HSDP_ERR_ABORTED, &err);
    }
    ck_assert_str_eq(err.message,
                     rank == 1 ? "out of patience" : "rank 1 has aborted: out of patience");
    ranks_meet(&absence->n_done, 3);
    aborted_assert(job, "rank 1 reported: out of patience");
    test_job_drop(job);
}

START_TEST(job_abort_ends_the_calls_of_all)
{
    ranks_run(3, 5000, aborting_rank, ranks_memory(sizeof(struct absence)));
}
END_TEST

struct witness {
    struct hsdp_job *job;
    uint32_t n_told;
    int32_t entered;
    char message[512];
};

static void abort_witness(void *user, const struct hsdp_error *reason)
{
    struct witness *witness = user;
    struct hsdp_error err = HSDP_ERROR_INIT;

    witness->n_told++;
    witness->entered = job_enter(witness->job, &err); /* a host that does what it may not */
    snprintf(witness->message, sizeof(witness->message), "%s", reason->message);
}

static void *abort_thread(void *job)
{
    ranks_sleep_ms(50);
    ck_assert_int_eq(job_abort(job, NULL, NULL), HSDP_OK);
    return NULL;
}

static void witnessed_rank(uint32_t rank, void *shared)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct witness witness = {.n_told = 0};
    pthread_t thread;

    (void)shared;
    spec.on_abort = abort_witness;
    spec.user = &witness;
    status_assert(job_create(&spec, &witness.job, &err), HSDP_OK, &err);
    status_assert(job_enter(witness.job, &err), HSDP_OK, &err);
    status_assert(job_connect(witness.job, &err), HSDP_OK, &err);
    if (rank == 0) {
        ck_assert_int_eq(pthread_create(&thread, NULL, abort_thread, witness.job), 0);
    }
    while (exchange_with(witness.job, &err) == HSDP_OK) {
    }
    if (rank == 0) {
        pthread_join(thread, NULL);
    }
    ck_assert_uint_eq(witness.n_told, 1);
    ck_assert_int_eq(witness.entered, HSDP_ERR_BUSY);
    ck_assert_str_eq(witness.message, "abort called by the host");
    aborted_assert(witness.job, "rank 0 reported: abort called by the host");
    ck_assert_uint_eq(witness.n_told, 1);
    test_job_drop(witness.job);
}

START_TEST(job_abort_by_a_thread_tells_every_host_once)
{
    ranks_run(3, 5000, witnessed_rank, NULL);
}
END_TEST

START_TEST(job_abort_before_connect_is_kept)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    ranks_environment_clear();
    job = test_job_create("1");
    ck_assert_int_eq(job_abort(job, "never mind", &err), HSDP_OK);
    ck_assert_int_eq(job_enter(job, &err), HSDP_ERR_ABORTED);
    message_assert(&err, "never mind");
    job_destroy(job);
}
END_TEST

static void sequence_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)rank;
    (void)shared;
    ck_assert_int_eq(job_abort(job, NULL, &err), HSDP_OK);
    ck_assert_int_eq(job_abort(job, NULL, &err), HSDP_OK);
    ck_assert_int_eq(job_close(job, &err), HSDP_ERR_ABORTED);
    test_job_drop(job);
}

START_TEST(job_abort_abort_close_destroy_is_clean)
{
    ranks_run(2, 5000, sequence_rank, NULL);
}
END_TEST

/* -------------------------------------------------------------------------------------- close */

static void unclosed_rank(uint32_t rank, void *shared)
{
    struct absence *absence = shared;
    struct hsdp_job *job = test_job_open("1");
    struct hsdp_error err = HSDP_ERROR_INIT;

    if (rank == 0) {
        status_assert(job_close(job, &err), HSDP_ERR_TIMEOUT, &err);
        message_assert(&err, "close: timeout after");
        message_assert(&err, "rank 1");
    }
    ranks_meet(&absence->n_done, 2);
    test_job_drop(job);
}

START_TEST(job_close_without_a_rank_times_out)
{
    ranks_run(2, 5000, unclosed_rank, ranks_memory(sizeof(struct absence)));
}
END_TEST

/* Watched by other threads while it fails: for the thread sanitizer. */
static _Atomic uint32_t watching;

static void *watching_thread(void *job)
{
    char text[4096];
    uint64_t n_bytes;
    uint64_t value;

    while (atomic_load(&watching) != 0) {
        job_status(job, NULL);
        job_report(job, "error", text, sizeof(text), &n_bytes, NULL);
        job_report(job, "settings", text, sizeof(text), &n_bytes, NULL);
        job_report(job, "flight", text, sizeof(text), &n_bytes, NULL);
        job_counter(job, "steps", &value, NULL);
    }
    return NULL;
}

static void watched_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = test_job_create("5");
    pthread_t thread;

    (void)shared;
    atomic_store(&watching, 1u);
    ck_assert_int_eq(pthread_create(&thread, NULL, watching_thread, job), 0);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    job_counter_register(job, "steps");
    for (int i = 0; i < 50; i++) {
        status_assert(exchange_with(job, &err), HSDP_OK, &err);
    }
    status_assert(job_setting_set(job, "nccl_timeout_seconds", "4", &err), HSDP_OK, &err);
    if (rank == 0) {
        job_abort(job, NULL, &err);
    }
    while (exchange_with(job, &err) == HSDP_OK) {
    }
    atomic_store(&watching, 0u);
    pthread_join(thread, NULL);
    test_job_drop(job);
}

START_TEST(job_report_by_another_thread_never_disturbs)
{
    ranks_run(2, RANKS_LIMIT_MS, watched_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("failure");
    TCase *tcase = tcase_create("failure");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, job_wait_for_an_absent_rank_times_out_on_all);
    tcase_add_test(tcase, job_wait_for_a_killed_rank_loses_it);
    tcase_add_test(tcase, job_wait_for_a_killed_parent_loses_it);
    tcase_add_test(tcase, job_wait_for_a_rank_that_left_loses_it);
    tcase_add_test(tcase, job_wait_met_before_a_death_succeeds);
    tcase_add_test(tcase, job_abort_ends_the_calls_of_all);
    tcase_add_test(tcase, job_abort_by_a_thread_tells_every_host_once);
    tcase_add_test(tcase, job_abort_before_connect_is_kept);
    tcase_add_test(tcase, job_abort_abort_close_destroy_is_clean);
    tcase_add_test(tcase, job_close_without_a_rank_times_out);
    tcase_add_test(tcase, job_report_by_another_thread_never_disturbs);
    suite_add_tcase(suite, tcase);
    return suite;
}
