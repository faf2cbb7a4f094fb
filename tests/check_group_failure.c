/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: members that disagree, stay away, die or close too early; and the clock of open work. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "jobs.h"
#include "ranks.h"
#include "suite.h"

static void message_assert(const struct hsdp_error *err, const char *part)
{
    ck_assert_msg(strstr(err->message, part) != NULL, "no '%s' in: %s", part, err->message);
}

/* One collective over n fp32 values, and all that it needs. */
struct
try {
    struct hsdp_tensor input;
    struct hsdp_tensor output;
    int64_t shapes[2];
    float values[16];
    struct hsdp_coll_spec spec;
};

static void try_set(struct try *try, int32_t kind, int64_t n_input, int64_t n_output)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    memset(try, 0, sizeof(*try));
    try->shapes[0] = n_input;
    try->shapes[1] = n_output;
    try->input.base = try->values;
    try->input.device_type = HSDP_DEVICE_CPU;
    try->input.n_dims = 1;
    try->input.dtype_code = HSDP_DTYPE_FLOAT;
    try->input.dtype_bits = 32;
    try->input.dtype_lanes = 1;
    try->output = try->input;
    try->input.shape = &try->shapes[0];
    try->output.shape = &try->shapes[1];
    try->output.base = n_input == n_output ? try->values : &try->values[8];
    spec.kind = kind;
    spec.input = n_input < 0 ? NULL : &try->input;
    spec.output = n_output < 0 ? NULL : &try->output;
    try->spec = spec;
}

static int32_t try_run(struct hsdp_group *group, const struct try *try, struct hsdp_error *err)
{
    uint64_t ticket = 0;
    int32_t status = group_start(group, &try->spec, 1, NULL, &ticket, err);

    return status == HSDP_OK ? job_ticket_wait(group_job(group), ticket, UINT64_MAX, err) : status;
}

/* ----------------------------------------------------------------------------- disagreement */

/* What rank 0 does, and the others; the two halves of the sentence. */
struct difference {
    int32_t kinds[2];
    int64_t n_inputs[2];
    int64_t n_outputs[2];
    int32_t reduces[2];
    uint32_t peers[2];
    const char *parts[2];
};

static const struct difference differences[] = {
    {{HSDP_COLL_ALL_REDUCE, HSDP_COLL_ALL_REDUCE},
     {8, 4},
     {8, 4},
     {0, 0},
     {0, 0},
     {"all_reduce (sum) of 8 fp32 elements on rank 0", "4 fp32 elements on rank 1"}},
    {{HSDP_COLL_ALL_REDUCE, HSDP_COLL_ALL_REDUCE},
     {8, 8},
     {8, 8},
     {HSDP_REDUCE_SUM, HSDP_REDUCE_MAX},
     {0, 0},
     {"all_reduce (sum)", "all_reduce (max)"}},
    {{HSDP_COLL_ALL_REDUCE, HSDP_COLL_BARRIER},
     {8, -1},
     {8, -1},
     {0, 0},
     {0, 0},
     {"all_reduce (sum) of 8", "barrier on rank 1"}},
    {{HSDP_COLL_BROADCAST, HSDP_COLL_BROADCAST},
     {8, 8},
     {8, 8},
     {0, 0},
     {0, 1},
     {"root 0", "root 1"}},
    {{HSDP_COLL_ALL_GATHER, HSDP_COLL_ALL_GATHER},
     {1, 2},
     {2, 4},
     {0, 0},
     {0, 0},
     {"all_gather of 1 fp32", "all_gather of 2 fp32"}},
    {{HSDP_COLL_SEND, HSDP_COLL_RECV},
     {8, -1},
     {-1, 4},
     {0, 0},
     {1, 0},
     {"send of 8 fp32 elements on rank 0", "recv of 4 fp32 elements on rank 1"}},
};

#define N_DIFFERENCES ((int)(sizeof(differences) / sizeof(differences[0])))

static void difference_check(uint32_t rank, const struct difference *difference)
{
    struct hsdp_job *job = test_job_open("2");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct try try;

    try_set(&try, difference->kinds[rank], difference->n_inputs[rank], difference->n_outputs[rank]);
    try.spec.reduce = difference->reduces[rank];
    try.spec.peer = difference->peers[rank];
    if (difference->kinds[rank] != HSDP_COLL_SEND) { /* which may be done before it is seen */
        status_assert(try_run(group, &try, &err), HSDP_ERR_MISMATCH, &err);
        message_assert(&err, difference->parts[0]);
        message_assert(&err, difference->parts[1]);
        ck_assert_str_eq(err.group, "dp");
        ck_assert_uint_eq(err.sequence, 1);
        job_leave(job);
        ck_assert_int_eq(job_enter(job, &err), HSDP_ERR_ABORTED);
        message_assert(&err, difference->parts[0]);
        ck_assert_int_eq(job_enter_failed(job, &err), HSDP_OK);
    } else {
        try_run(group, &try, &err);
    }
    group_destroy(group);
    test_job_drop(job);
}

/* Again and again: whichever comes first, and however close together they are. */
static void differing_rank(uint32_t rank, void *shared)
{
    for (int i = 0; i < 30; i++) {
        difference_check(rank, &differences[*(int *)shared]);
    }
}

START_TEST(group_start_of_two_kinds_mismatches_on_both)
{
    int *row = ranks_memory(sizeof(*row));

    *row = _i;
    ranks_run(2, RANKS_LIMIT_MS, differing_rank, row);
}
END_TEST

/* --------------------------------------------------------------------------- absence, death */

struct absence {
    _Atomic uint32_t n_done;
};

/* On a 2 x 2 mesh one member of each group in turn stays away; its own members time out. */
static void skipping_rank(uint32_t rank, void *shared)
{
    struct absence *absence = shared;
    struct hsdp_job *job = test_job_open("1");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t start_ms = ranks_now_ms();
    struct try try;

    try_set(&try, HSDP_COLL_ALL_REDUCE, 8, 8);
    if (rank != 1) {
        status_assert(try_run(group, &try, &err), HSDP_ERR_TIMEOUT, &err);
        ck_assert_uint_ge(ranks_now_ms() - start_ms, 900);
        message_assert(&err, "all_reduce of group \"dp\", sequence 1: timeout after");
        message_assert(&err, "rank 1");
        ck_assert_uint_eq(err.n_missing_ranks, 1);
        ck_assert_uint_eq(err.missing_ranks[0], 1);
        ck_assert_uint_eq(err.ticket, 1);
    }
    ranks_meet(&absence->n_done, 3);
    group_destroy(group);
    test_job_drop(job);
}

START_TEST(ticket_wait_without_a_member_times_out)
{
    ranks_run(3, RANKS_LIMIT_MS, skipping_rank, ranks_memory(sizeof(struct absence)));
}
END_TEST

static void unmatched_rank(uint32_t rank, void *shared)
{
    struct absence *absence = shared;
    struct hsdp_job *job = test_job_open("1");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct try try;

    try_set(&try, HSDP_COLL_ALL_REDUCE, 8, 8);
    if (rank == 1) {
        status_assert(group_start(group, &try.spec, 1, NULL, NULL, &err), HSDP_OK, &err);
        status_assert(job_close(job, &err), HSDP_ERR_TIMEOUT, &err);
        message_assert(&err, "all_reduce of group \"dp\", sequence 1");
        message_assert(&err, "rank 0");
    }
    ranks_meet(&absence->n_done, 2);
    group_destroy(group);
    test_job_drop(job);
}

START_TEST(job_close_with_an_unmatched_operation_times_out)
{
    ranks_run(2, RANKS_LIMIT_MS, unmatched_rank, ranks_memory(sizeof(struct absence)));
}
END_TEST

static void dying_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("60");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct try try;

    (void)shared;
    if (rank == 1) {
        raise(SIGKILL);
    }
    try_set(&try, HSDP_COLL_ALL_REDUCE, 8, 8);
    status_assert(try_run(group, &try, &err), HSDP_ERR_PEER_LOST, &err);
    message_assert(&err, "rank 1 died");
    ck_assert_str_eq(err.group, "dp");
    group_destroy(group);
    test_job_drop(job);
}

START_TEST(ticket_wait_for_a_killed_member_loses_it)
{
    struct ranks ranks;

    ranks_start(&ranks, 3, 5000, dying_rank, NULL);
    ranks.expected_signal[1] = SIGKILL;
    ranks_wait(&ranks);
}
END_TEST

/* A stopped process lives: it is waited for until the deadline, and named. */
static void stopping_rank(uint32_t rank, void *shared)
{
    struct absence *absence = shared;
    struct hsdp_job *job = test_job_open("1");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct try try;

    atomic_fetch_add(&absence->n_done, 1u);
    if (rank == 1) {
        ranks_sleep_ms(60000);
    }
    try_set(&try, HSDP_COLL_BARRIER, -1, -1);
    status_assert(try_run(group, &try, &err), HSDP_ERR_TIMEOUT, &err);
    message_assert(&err, "rank 1, which is stopped");
    group_destroy(group);
    test_job_drop(job);
}

START_TEST(ticket_wait_for_a_stopped_member_times_out_and_names_it)
{
    struct absence *absence = ranks_memory(sizeof(*absence));
    struct ranks ranks;

    ranks_start(&ranks, 2, 10000, stopping_rank, absence);
    while (atomic_load(&absence->n_done) < 2) {
        ranks_sleep_ms(1);
    }
    kill(ranks.pids[1], SIGSTOP);
    while (ranks_running(&ranks) > 1) {
        ranks_sleep_ms(5);
    }
    ranks_kill(&ranks, 1);
    ranks_wait(&ranks);
}
END_TEST

/* ---------------------------------------------------------------------- the clock of open work */

/* The host computes for longer than the timeout with a receive open; then the other sends. */
static void computing_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("1");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct try try;
    uint64_t ticket;

    (void)shared;
    try_set(&try, rank == 0 ? HSDP_COLL_RECV : HSDP_COLL_SEND, rank == 0 ? -1 : 8,
            rank == 0 ? 8 : -1);
    try.spec.peer = 1 - rank;
    if (rank == 1) {
        ranks_sleep_ms(1500);
        try.values[0] = 3.0f;
    }
    status_assert(group_start(group, &try.spec, 1, NULL, &ticket, &err), HSDP_OK, &err);
    if (rank == 0) {
        job_leave(job);
        ranks_sleep_ms(1200);
        status_assert(job_enter(job, &err), HSDP_OK, &err);
    }
    status_assert(job_ticket_wait(job, ticket, UINT64_MAX, &err), HSDP_OK, &err);
    ck_assert(rank == 1 || try.values[8] == 3.0f);
    group_destroy(group);
    test_job_end(job);
}

START_TEST(ticket_wait_time_that_the_host_was_away_does_not_count)
{
    ranks_run(2, RANKS_LIMIT_MS, computing_rank, NULL);
}
END_TEST

static void asking_rank(uint32_t rank, void *shared)
{
    struct absence *absence = shared;
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct try try;
    uint64_t ticket;

    try_set(&try, HSDP_COLL_BARRIER, -1, -1);
    if (rank == 0) {
        status_assert(group_start(group, &try.spec, 1, NULL, &ticket, &err), HSDP_OK, &err);
        status_assert(job_ticket_wait(job, ticket, 0, &err), HSDP_PENDING, &err);
        status_assert(job_ticket_wait(job, ticket, 20, &err), HSDP_PENDING, &err);
        ck_assert_int_eq(job_info(job, &info, &err), HSDP_OK);
        ck_assert_uint_eq(info.n_tickets_open, 1);
        status_assert(job_ticket_wait(job, ticket + 1, 0, &err), HSDP_ERR_INVALID, &err);
    }
    ranks_meet(&absence->n_done, 2);
    if (rank == 1) {
        status_assert(group_start(group, &try.spec, 1, NULL, &ticket, &err), HSDP_OK, &err);
    }
    status_assert(job_ticket_order(job, ticket, NULL, &err), HSDP_OK, &err);
    ck_assert_int_eq(job_info(job, &info, &err), HSDP_OK);
    ck_assert_uint_eq(info.n_tickets_open, 0);
    status_assert(job_ticket_wait(job, ticket, 0, &err), HSDP_OK, &err);
    group_destroy(group);
    test_job_end(job);
}

START_TEST(ticket_wait_of_no_time_only_asks)
{
    ranks_run(2, RANKS_LIMIT_MS, asking_rank, ranks_memory(sizeof(struct absence)));
}
END_TEST

/* A job and a group given back with work open, in either order. */
static void dropping_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("5");
    struct hsdp_group *group = test_group(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct try try;

    (void)shared;
    try_set(&try, HSDP_COLL_RECV, -1, 8);
    try.spec.peer = 1 - rank;
    status_assert(group_start(group, &try.spec, 1, NULL, NULL, &err), HSDP_OK, &err);
    if (rank == 0) {
        group_destroy(group);
        test_job_drop(job);
    } else {
        test_job_drop(job);
        ck_assert_int_eq(job_enter(group_job(group), &err), HSDP_ERR_STATE);
        group_destroy(group);
    }
}

START_TEST(group_destroy_with_work_open_is_clean)
{
    ranks_run(2, RANKS_LIMIT_MS, dropping_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("group_failure");
    TCase *tcase = tcase_create("group_failure");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, group_start_of_two_kinds_mismatches_on_both, 0, N_DIFFERENCES);
    tcase_add_test(tcase, ticket_wait_without_a_member_times_out);
    tcase_add_test(tcase, job_close_with_an_unmatched_operation_times_out);
    tcase_add_test(tcase, ticket_wait_for_a_killed_member_loses_it);
    tcase_add_test(tcase, ticket_wait_for_a_stopped_member_times_out_and_names_it);
    tcase_add_test(tcase, ticket_wait_time_that_the_host_was_away_does_not_count);
    tcase_add_test(tcase, ticket_wait_of_no_time_only_asks);
    tcase_add_test(tcase, group_destroy_with_work_open_is_clean);
    suite_add_tcase(suite, tcase);
    return suite;
}
