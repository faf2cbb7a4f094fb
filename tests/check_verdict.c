/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts: the sentence of a timeout names the rank that did not come, and what it was doing. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "comm/job_internal.h"
#include "jobs.h"
#include "ranks.h"
#include "suite.h"

#define N_MAX 8u

/* What ranks of a test wait for: each waits for the counter of another, which nobody raises. */
struct scene {
    _Atomic uint64_t counters[N_MAX];
    _Atomic uint32_t n_there;
    _Atomic uint32_t n_done;
    uint32_t n_ranks;
};

static struct scene *scene_make(uint32_t n_ranks)
{
    struct scene *scene = ranks_memory(sizeof(*scene));

    scene->n_ranks = n_ranks;
    return scene;
}

static void message_assert(const struct hsdp_error *err, const char *part)
{
    ck_assert_msg(strstr(err->message, part) != NULL, "no '%s' in: %s", part, err->message);
}

/* Waits for the counters of the ranks of a mask. */
static int32_t others_await(struct hsdp_job *job, struct scene *scene, const char *operation,
                            uint64_t ranks, struct hsdp_error *err)
{
    struct wait_entry entries[N_MAX];
    struct wait wait = {.entries = entries, .operation = operation};

    memset(entries, 0, sizeof(entries));
    for (uint32_t rank = 0; rank < N_MAX; rank++) {
        if ((ranks >> rank & 1u) != 0) {
            entries[wait.n_entries].counter = &scene->counters[rank];
            entries[wait.n_entries].target = 1;
            entries[wait.n_entries++].rank = rank;
        }
    }
    return job_wait(job, &wait, err);
}

/* Connected; the ranks named here have all the time in the world, the others two seconds. */
static struct hsdp_job *scene_open(uint32_t rank, uint64_t patient)
{
    struct hsdp_job *job = test_job_open("2");
    struct hsdp_error err = HSDP_ERROR_INIT;

    if ((patient >> rank & 1u) != 0) {
        status_assert(job_phase_push(job, "patience", 600000, &err), HSDP_OK, &err);
    }
    return job;
}

/* What all ranks in a call get: the same sentence, and the rank that it ends with. */
static void verdict_assert(int32_t status, const struct hsdp_error *err, uint32_t culprit)
{
    status_assert(status, HSDP_ERR_TIMEOUT, err);
    ck_assert_str_eq(err->operation, "first");
    message_assert(err, " s on rank 0: no sign of rank 1, which ");
    ck_assert_uint_eq(err->n_missing_ranks, 1);
    ck_assert_uint_eq(err->missing_ranks[0], culprit);
}

static void scene_end(struct hsdp_job *job, struct scene *scene)
{
    ranks_meet(&scene->n_done, scene->n_ranks);
    test_job_drop(job);
}

/* ------------------------------------------------------------------------------- one rank */

static void outside_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(rank, 0);
    struct hsdp_error err = HSDP_ERROR_INIT;

    if (rank == 1) {
        status_assert(job_phase_push(job, "outer", 1000, &err), HSDP_OK, &err);
        status_assert(job_phase_push(job, "compile", 1000, &err), HSDP_OK, &err);
        job_leave(job);
    } else {
        verdict_assert(others_await(job, scene, "first", 2, &err), &err, 1);
        message_assert(&err, "which has been outside of any call for ");
        message_assert(&err, " s in phase \"compile\", since connect");
    }
    scene_end(job, scene);
}

START_TEST(timeout_for_a_rank_outside_of_calls_says_so)
{
    ranks_run(2, RANKS_LIMIT_MS, outside_rank, scene_make(2));
}
END_TEST

static void busy_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(rank, 0);
    struct hsdp_error err = HSDP_ERROR_INIT;

    if (rank == 1) {
        job_call(job, "adamw.step");
    } else {
        verdict_assert(others_await(job, scene, "first", 2, &err), &err, 1);
        message_assert(&err, "which has been inside of adamw.step for ");
    }
    scene_end(job, scene);
}

START_TEST(timeout_for_a_rank_busy_in_a_call_names_the_call)
{
    ranks_run(2, RANKS_LIMIT_MS, busy_rank, scene_make(2));
}
END_TEST

static void dying_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(rank, 0);
    struct hsdp_error err = HSDP_ERROR_INIT;

    if (rank == 1) {
        job_leave(job);
        raise(SIGKILL);
    }
    status_assert(others_await(job, scene, "first", 2, &err), HSDP_ERR_PEER_LOST, &err);
    message_assert(&err, "first: peer lost: rank 1 died outside of any call, since connect");
    test_job_drop(job);
}

START_TEST(loss_of_a_rank_says_where_it_was)
{
    struct ranks ranks;

    ranks_start(&ranks, 2, RANKS_LIMIT_MS, dying_rank, scene_make(2));
    ranks.expected_signal[1] = SIGKILL;
    ranks_wait(&ranks);
}
END_TEST

/* --------------------------------------------------------------------------------- chains */

/* Rank 0 waits for rank 1, which waits for rank 2, which is outside. */
static void chain_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(rank, 2);
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status;

    if (rank == 2) {
        job_leave(job);
    } else {
        status = rank == 0 ? others_await(job, scene, "first", 2, &err)
                           : others_await(job, scene, "second", 4, &err);
        verdict_assert(status, &err, 2);
        message_assert(&err,
                       "rank 1, which waits in second for rank 2, which has been outside of ");
    }
    scene_end(job, scene);
}

START_TEST(timeout_for_a_rank_that_waits_names_whom_it_waits_for)
{
    ranks_run(3, RANKS_LIMIT_MS, chain_rank, scene_make(3));
}
END_TEST

static void stopped_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(rank, 2);
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status;

    atomic_fetch_add(&scene->n_there, 1u);
    if (rank == 2) {
        raise(SIGSTOP);
    } else {
        status = rank == 0 ? others_await(job, scene, "first", 2, &err)
                           : others_await(job, scene, "second", 4, &err);
        verdict_assert(status, &err, 2);
        message_assert(&err, "rank 1, which waits in second for rank 2, which is stopped");
        atomic_fetch_add(&scene->n_done, 1u);
    }
    test_job_drop(job);
}

START_TEST(timeout_for_a_rank_that_waits_for_a_stopped_one_names_that)
{
    struct scene *scene = scene_make(3);
    struct ranks ranks;

    ranks_start(&ranks, 3, RANKS_LIMIT_MS, stopped_rank, scene);
    while (atomic_load(&scene->n_done) < 2 && ranks_now_ms() * 1000000u < ranks.deadline_ns) {
        ranks_sleep_ms(10);
    }
    ck_assert_int_eq(kill(ranks.pids[2], SIGCONT), 0);
    ranks_wait(&ranks);
}
END_TEST

/* Rank 1 does not sleep, but asks again and again, as a host does that has other work. */
static void asking_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(rank, 6);
    struct hsdp_group *group = test_group(job);
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t ticket = 0;
    int32_t status = HSDP_PENDING;

    spec.kind = HSDP_COLL_BARRIER;
    if (rank == 0) {
        verdict_assert(others_await(job, scene, "first", 2, &err), &err, 2);
        message_assert(&err, "which waits in barrier of group \"dp\", sequence 1 for rank");
    } else if (rank == 1) {
        status_assert(group_start(group, &spec, 1, NULL, &ticket, &err), HSDP_OK, &err);
        while (status == HSDP_PENDING) {
            status = job_ticket_wait(job, ticket, 0, &err);
            job_leave(job);
            ranks_sleep_ms(1);
            job_enter_failed(job, NULL);
        }
        status_assert(status, HSDP_ERR_TIMEOUT, &err);
    }
    ranks_meet(&scene->n_done, scene->n_ranks);
    group_destroy(group);
    test_job_drop(job);
}

START_TEST(timeout_for_a_rank_that_asks_names_whom_it_waits_for)
{
    ranks_run(3, RANKS_LIMIT_MS, asking_rank, scene_make(3));
}
END_TEST

/* Rank 1 asks, and might do something else instead: so nobody knows before the deadline. */
static void circle_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(rank, 2);
    struct hsdp_group *group = test_group(job);
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t ticket = 0;
    int32_t status = HSDP_PENDING;

    spec.kind = HSDP_COLL_BARRIER;
    if (rank == 1) {
        status_assert(group_start(group, &spec, 1, NULL, &ticket, &err), HSDP_OK, &err);
    } else {
        status = others_await(job, scene, "first", 2, &err);
    }
    while (status == HSDP_PENDING) {
        status = job_ticket_wait(job, ticket, 50, &err);
    }
    verdict_assert(status, &err, 1);
    message_assert(&err, "waits in barrier of group \"dp\", sequence 1 for rank 0: a deadlock");
    ranks_meet(&scene->n_done, scene->n_ranks);
    group_destroy(group);
    test_job_drop(job);
}

START_TEST(timeout_in_a_circle_is_called_a_deadlock)
{
    ranks_run(2, RANKS_LIMIT_MS, circle_rank, scene_make(2));
}
END_TEST

/* ------------------------------------------------------------------------------ many ranks */

/* Rank 0 waits for all; 1 and 2 wait for 3, the rest is outside. */
static void crowd_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(rank, 6);
    struct hsdp_error err = HSDP_ERROR_INIT;

    if (rank > 2) {
        job_leave(job);
    } else {
        status_assert(others_await(job, scene, "first", rank == 0 ? 0xfe : 8, &err),
                      HSDP_ERR_TIMEOUT, &err);
        message_assert(&err, ": no sign of ranks 1, 2, 3, 4, 5, 6, 7; rank 3 has been outside ");
        message_assert(&err, "; rank 6 has been ");
        message_assert(&err, "; and 3 more");
        ck_assert_uint_eq(err.n_missing_ranks, 5);
        ck_assert_uint_eq(err.missing_ranks[0], 3);
    }
    scene_end(job, scene);
}

START_TEST(timeout_for_many_ranks_counts_those_that_do_not_fit)
{
    ranks_run(8, RANKS_LIMIT_MS, crowd_rank, scene_make(8));
}
END_TEST

/* ------------------------------------------------------------------------------- the record */

static void report_assert(const struct hsdp_job *job, const char *part)
{
    static char text[100000];
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t n_bytes;

    status_assert(job_report(job, "flight", text, sizeof(text), &n_bytes, &err), HSDP_OK, &err);
    ck_assert_msg(strstr(text, part) != NULL, "no %s in %s", part, text);
}

static void recording_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("20");
    struct hsdp_group *group = test_group(job);
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t ticket = 0;

    (void)rank;
    (void)shared;
    spec.kind = HSDP_COLL_BARRIER;
    status_assert(group_start(group, &spec, 1, NULL, &ticket, &err), HSDP_OK, &err);
    status_assert(job_ticket_wait(job, ticket, UINT64_MAX, &err), HSDP_OK, &err);
    report_assert(job, "\"state\":\"done\",\"operation\":\"connect\"");
    report_assert(job, "\"state\":\"done\",\"operation\":\"group.connect\"");
    report_assert(job,
                  "\"state\":\"done\",\"operation\":\"barrier\",\"group\":\"dp\",\"unit\":\"\","
                  "\"sequence\":1,\"ticket\":1,");
    group_destroy(group);
    status_assert(job_close(job, &err), HSDP_OK, &err);
    report_assert(job, "\"state\":\"done\",\"operation\":\"close\"");
    test_job_drop(job);
}

START_TEST(job_report_of_flight_has_what_was_done)
{
    ranks_run(2, RANKS_LIMIT_MS, recording_rank, NULL);
}
END_TEST

static void forked_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(rank, 0);
    uint64_t n_begun = flight_last(&job->flight);

    if (rank == 1 && fork() == 0) {
        job_record_done(job, &(struct wait){.operation = "child"});
        job_destroy(job);
        atomic_store(&scene->n_there, 1u);
        _exit(0);
    }
    while (atomic_load(&scene->n_there) == 0) {
        ranks_sleep_ms(1);
    }
    ck_assert_uint_eq(flight_last(&job->flight), n_begun);
    scene_end(job, scene);
}

START_TEST(job_record_in_a_child_leaves_the_parents_alone)
{
    ranks_run(2, RANKS_LIMIT_MS, forked_rank, scene_make(2));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("verdict");
    TCase *tcase = tcase_create("verdict");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, timeout_for_a_rank_outside_of_calls_says_so);
    tcase_add_test(tcase, timeout_for_a_rank_busy_in_a_call_names_the_call);
    tcase_add_test(tcase, loss_of_a_rank_says_where_it_was);
    tcase_add_test(tcase, timeout_for_a_rank_that_waits_names_whom_it_waits_for);
    tcase_add_test(tcase, timeout_for_a_rank_that_waits_for_a_stopped_one_names_that);
    tcase_add_test(tcase, timeout_for_a_rank_that_asks_names_whom_it_waits_for);
    tcase_add_test(tcase, timeout_in_a_circle_is_called_a_deadlock);
    tcase_add_test(tcase, timeout_for_many_ranks_counts_those_that_do_not_fit);
    tcase_add_test(tcase, job_report_of_flight_has_what_was_done);
    tcase_add_test(tcase, job_record_in_a_child_leaves_the_parents_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
