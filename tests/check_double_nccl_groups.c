/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of NCCL's double: groups, orders, scaled sums, splits and revoking. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "double_ranks.h"
#include "suite.h"

#define AVG      4
#define NO_COLOR (-1)

static struct double_shared solo_shared;

/* A communicator of one rank, in the test's own process. */
static nccl_comm solo_start(void)
{
    double_rank_start(0);
    solo_shared.n_ranks = 1;
    return double_comm(&solo_shared, 0, 0);
}

static float *floats_put(float value, uint64_t n)
{
    float *values = malloc(n * sizeof(*values));
    void *address;

    ck_assert_ptr_nonnull(values);
    for (uint64_t i = 0; i < n; i++) {
        values[i] = value;
    }
    address = double_put(values, n * sizeof(*values));
    free(values);
    return address;
}

static float float_get(const float *address)
{
    float value;

    double_get(&value, address, sizeof(value));
    return value;
}

/* ------------------------------------------------------------------------------------ groups */

START_TEST(group_nested_is_issued_by_the_outermost_end)
{
    nccl_comm comm = solo_start();
    cu_stream stream = stream_make();
    float *from = floats_put(3, 1);
    float *to = floats_put(1, 1);

    NCCL(group_start());
    NCCL(group_start());
    NCCL(all_reduce(from, to, 1, NCCL_FLOAT32, NCCL_SUM, comm, stream));
    NCCL(group_end());
    usleep(20000);
    stream_finish(stream);
    ck_assert_float_eq(float_get(to), 1);
    ck_assert_int_eq(nccl.group_end(), NCCL_IN_PROGRESS);
    ck_assert_int_eq(double_comm_wait(comm), NCCL_OK);
    stream_finish(stream);
    ck_assert_float_eq(float_get(to), 3);
    double_comm_end(comm);
}
END_TEST

START_TEST(group_with_a_refused_call_issues_nothing)
{
    nccl_comm comm = solo_start();
    cu_stream stream = stream_make();
    float *from = floats_put(3, 1);
    float *to = floats_put(1, 1);

    NCCL(group_start());
    NCCL(all_reduce(from, to, 1, NCCL_FLOAT32, NCCL_SUM, comm, stream));
    ck_assert_int_eq(nccl.all_reduce(from, to, 1, 99, NCCL_SUM, comm, stream), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.group_end(), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(double_comm_wait(comm), NCCL_BAD_ARGUMENT);
    stream_finish(stream);
    ck_assert_float_eq(float_get(to), 1);
    NCCL(comm_abort(comm));
}
END_TEST

START_TEST(group_with_half_a_message_to_oneself_is_bad_usage)
{
    nccl_comm comm = solo_start();
    cu_stream stream = stream_make();
    float *values = floats_put(3, 4);

    NCCL(group_start());
    NCCL(send(values, 2, NCCL_FLOAT32, 0, comm, stream));
    if (_i == 1) { /* or the other half is of another size */
        NCCL(recv(values + 2, 1, NCCL_FLOAT32, 0, comm, stream));
    }
    ck_assert_int_eq(nccl.group_end(), NCCL_BAD_USAGE);
    NCCL(comm_abort(comm));
}
END_TEST

START_TEST(group_of_blocking_and_other_communicators_is_refused)
{
    nccl_comm comm = solo_start();
    nccl_comm other = NULL;
    cu_stream stream = stream_make();
    float *values = floats_put(3, 4);

    NCCL(comm_init(&other, 1, double_id(&solo_shared, 0, 1), 0, NULL));
    NCCL(group_start());
    NCCL(all_reduce(values, values, 1, NCCL_FLOAT32, NCCL_SUM, comm, stream));
    NCCL(all_reduce(values, values, 1, NCCL_FLOAT32, NCCL_SUM, other, stream));
    ck_assert_int_eq(nccl.group_end(), NCCL_BAD_ARGUMENT);
}
END_TEST

static void two_comms_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    struct nccl_config config = nccl_config_make();
    nccl_comm comms[2] = {NULL, NULL};

    double_rank_start(rank);
    NCCL(group_start());
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t index = rank == 0 ? i : 1 - i; /* in whatever order */

        nccl.comm_init(&comms[index], 2, double_id(shared, rank, index), (int32_t)rank, &config);
    }
    ck_assert_int_eq(nccl.group_end(), NCCL_IN_PROGRESS);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(double_comm_wait(comms[i]), NCCL_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        double_comm_end(comms[i]);
    }
}

START_TEST(group_of_two_communicators_makes_both)
{
    double_ranks_run(2, 0, two_comms_rank);
}
END_TEST

/* What is in one group waits for all its streams, and they for it. */
static void joined_streams_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_comm comm;
    cu_stream streams[2];
    float *values[2];
    struct gate gate = {0};

    double_rank_start(rank);
    comm = double_comm(shared, rank, 0);
    for (int i = 0; i < 2; i++) {
        streams[i] = stream_make();
        values[i] = floats_put(1, 1);
    }
    gate_enqueue(&gate, streams[1], NULL, 0);
    NCCL(group_start());
    for (int i = 0; i < 2; i++) {
        NCCL(all_reduce(values[i], values[i], 1, NCCL_FLOAT32, NCCL_SUM, comm, streams[i]));
    }
    double_comm_done(comm, nccl.group_end());
    ck_assert(!double_stream_ends(streams[0], 100));
    gate_open(&gate);
    for (int i = 0; i < 2; i++) {
        stream_finish(streams[i]);
        ck_assert_float_eq(float_get(values[i]), 2);
    }
    double_comm_end(comm);
}

START_TEST(group_on_two_streams_joins_them)
{
    double_ranks_run(2, 0, joined_streams_rank);
}
END_TEST

/* ------------------------------------------------------------------------------------- orders */

static void ordered_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_comm comm;
    cu_stream streams[2];
    float *values[2];
    struct gate gate = {0};

    double_rank_start(rank);
    comm = double_comm(shared, rank, 0);
    for (int i = 0; i < 2; i++) {
        streams[i] = stream_make();
        values[i] = floats_put(1, 1);
    }
    gate_enqueue(&gate, streams[0], NULL, 0);
    for (int i = 0; i < 2; i++) {
        double_comm_done(comm, nccl.all_reduce(values[i], values[i], 1, NCCL_FLOAT32, NCCL_SUM,
                                               comm, streams[i]));
    }
    ck_assert(!double_stream_ends(streams[1], 100));
    gate_open(&gate);
    stream_finish(streams[0]);
    stream_finish(streams[1]);
    double_comm_end(comm);
}

START_TEST(operations_of_one_communicator_run_in_order_on_any_stream)
{
    double_ranks_run(2, 0, ordered_rank);
}
END_TEST

static void zero_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_comm comm;
    cu_stream stream;

    double_rank_start(rank);
    comm = double_comm(shared, rank, 0);
    stream = stream_make();
    if (rank == 0) {
        NCCL(all_reduce(NULL, NULL, 0, NCCL_FLOAT32, NCCL_SUM, comm, stream));
        NCCL(all_gather(NULL, NULL, 0, NCCL_FLOAT32, comm, stream));
        stream_finish(stream);
    }
    double_comm_end(comm);
}

START_TEST(operation_of_no_elements_is_nothing)
{
    double_ranks_run(2, 0, zero_rank);
}
END_TEST

START_TEST(operation_in_pinned_memory_is_done)
{
    nccl_comm comm = solo_start();
    cu_stream stream = stream_make();
    float *pinned = pinned_memory(2 * sizeof(float));

    pinned[0] = 7;
    double_comm_done(comm,
                     nccl.all_reduce(pinned, pinned + 1, 1, NCCL_FLOAT32, NCCL_MAX, comm, stream));
    stream_finish(stream);
    ck_assert_float_eq(pinned[1], 7);
    double_comm_end(comm);
}
END_TEST

/* --------------------------------------------------------------------------------- scaled sums */

static void scaled_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    int32_t whole = 3 + (int32_t)rank;
    float factor = 0.25f;
    float *at_device;
    int32_t *wholes;
    int32_t ops[2];
    nccl_comm comm;
    cu_stream stream;
    float *values;

    double_rank_start(rank);
    comm = double_comm(shared, rank, 0);
    stream = stream_make();
    values = floats_put(4, 1);
    at_device = floats_put(0.5f, 1);
    wholes = double_put(&whole, sizeof(whole));
    ck_assert_int_eq(nccl_extra.op_create(&ops[0], &factor, NCCL_FLOAT32, 1, comm), NCCL_OK);
    ck_assert_int_eq(nccl_extra.op_create(&ops[1], at_device, NCCL_FLOAT32, 0, comm), NCCL_OK);
    ck_assert_int_eq(nccl_extra.op_create(&ops[1], NULL, NCCL_FLOAT32, 0, comm), NCCL_BAD_ARGUMENT);
    double_comm_done(comm, nccl.all_reduce(values, values, 1, NCCL_FLOAT32, ops[0], comm, stream));
    double_comm_done(comm, nccl.all_reduce(values, values, 1, NCCL_FLOAT32, ops[1], comm, stream));
    double_comm_done(comm, nccl.all_reduce(values, values, 1, NCCL_FLOAT32, AVG, comm, stream));
    double_comm_done(comm, nccl.all_reduce(wholes, wholes, 1, NCCL_INT32, AVG, comm, stream));
    stream_finish(stream);
    ck_assert_float_eq(float_get(values), 2);
    double_get(&whole, wholes, sizeof(whole));
    ck_assert_int_eq(whole, 3); /* 7 / 2 */
    ck_assert_int_eq(nccl_extra.op_destroy(ops[0], comm), NCCL_OK);
    ck_assert_int_eq(nccl_extra.op_destroy(ops[0], comm), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl_extra.op_destroy(NCCL_SUM, comm), NCCL_BAD_ARGUMENT);
    ck_assert_int_eq(nccl.all_reduce(wholes, wholes, 1, NCCL_INT32, ops[1], comm, stream),
                     NCCL_BAD_ARGUMENT); /* it is of floats */
    NCCL(comm_abort(comm));
}

START_TEST(sums_with_a_factor_are_scaled_before)
{
    double_ranks_run(2, 0, scaled_rank);
}
END_TEST

/* ------------------------------------------------------------------------------------ splitting */

static void split_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    int32_t color = rank == 4 ? NO_COLOR : (int32_t)(rank % 2);
    nccl_comm parent;
    nccl_comm child = NULL;
    cu_stream stream;
    float *values;
    float gathered[2];

    double_rank_start(rank);
    parent = double_comm(shared, rank, 0);
    stream = stream_make();
    for (int i = 0; i < 2; i++) { /* the second time in the other order */
        int32_t key = i == 0 ? (int32_t)rank : -(int32_t)rank;
        bool is_first = (rank < 2) == (i == 0);

        double_comm_done(parent, nccl_extra.split(parent, color, key, &child, NULL));
        ck_assert(color == NO_COLOR ? child == NULL : child != NULL);
        if (child == NULL) {
            continue;
        }
        values = floats_put((float)rank, 2);
        double_comm_done(child, nccl.all_gather(values + (is_first ? 0 : 1), values, 1,
                                                NCCL_FLOAT32, child, stream));
        stream_finish(stream);
        double_get(gathered, values, sizeof(gathered));
        ck_assert_float_eq(gathered[is_first ? 0 : 1], (float)rank);
        ck_assert_float_eq(gathered[is_first ? 1 : 0], (float)(rank ^ 2u));
        double_comm_end(child);
    }
    double_comm_end(parent);
}

START_TEST(split_by_color_and_key_makes_children)
{
    double_ranks_run(5, 0, split_rank);
}
END_TEST

static void lonely_split_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_comm child = NULL;
    nccl_comm parent;
    nccl_result result;

    double_rank_start(rank);
    parent = double_comm(shared, rank, 0);
    if (rank == 0) {
        ck_assert_int_eq(nccl_extra.split(parent, 0, 0, &child, NULL), NCCL_IN_PROGRESS);
        ck_assert(!double_comm_wait_ms(parent, 100, &result));
        ck_assert_ptr_null(child);
    }
    NCCL(comm_abort(parent));
    ck_assert_ptr_null(child);
}

START_TEST(split_to_which_not_all_come_ends_by_the_parents_abort)
{
    double_ranks_run(2, 0, lonely_split_rank);
}
END_TEST

/* ------------------------------------------------------------------------------------ revoking */

static void revoke_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    nccl_comm child = NULL;
    nccl_comm comm;
    cu_stream stream;
    float *values;

    double_rank_start(rank);
    comm = double_comm(shared, rank, 0);
    stream = stream_make();
    values = floats_put(1, 1);
    if (rank == 0) { /* the other one never comes */
        double_comm_done(comm,
                         nccl.all_reduce(values, values, 1, NCCL_FLOAT32, NCCL_SUM, comm, stream));
        ck_assert(!double_stream_ends(stream, 100));
    }
    ck_assert_int_eq(nccl.comm_revoke(comm, 1), NCCL_BAD_ARGUMENT);
    double_comm_done(comm, nccl.comm_revoke(comm, 0));
    stream_finish(stream);
    ck_assert_int_eq(nccl.comm_revoke(comm, 0), NCCL_BAD_ARGUMENT);
    double_comm_done(comm, nccl_extra.split(comm, 0, (int32_t)rank, &child, NULL));
    double_comm_done(child,
                     nccl.all_reduce(values, values, 1, NCCL_FLOAT32, NCCL_SUM, child, stream));
    stream_finish(stream);
    double_comm_end(child);
    if (rank == 0) {
        NCCL(comm_destroy(comm));
        return;
    }
    ck_assert_int_eq(shared->number == 0
                         ? nccl.comm_finalize(comm)
                         : nccl.all_reduce(values, values, 1, NCCL_FLOAT32, NCCL_SUM, comm, stream),
                     NCCL_BAD_USAGE);
    NCCL(comm_abort(comm));
}

START_TEST(revoke_ends_what_runs_and_leaves_a_parent)
{
    double_ranks_run(2, _i, revoke_rank);
}
END_TEST

/* --------------------------------------------------------------------------------------- suite */

Suite *module_suite(void)
{
    Suite *suite = suite_create("double_nccl_groups");
    TCase *tcase = tcase_create("groups");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, group_nested_is_issued_by_the_outermost_end);
    tcase_add_test(tcase, group_with_a_refused_call_issues_nothing);
    tcase_add_loop_test(tcase, group_with_half_a_message_to_oneself_is_bad_usage, 0, 2);
    tcase_add_test(tcase, group_of_blocking_and_other_communicators_is_refused);
    tcase_add_test(tcase, group_of_two_communicators_makes_both);
    tcase_add_test(tcase, group_on_two_streams_joins_them);
    tcase_add_test(tcase, operations_of_one_communicator_run_in_order_on_any_stream);
    tcase_add_test(tcase, operation_of_no_elements_is_nothing);
    tcase_add_test(tcase, operation_in_pinned_memory_is_done);
    tcase_add_test(tcase, sums_with_a_factor_are_scaled_before);
    tcase_add_test(tcase, split_by_color_and_key_makes_children);
    tcase_add_test(tcase, split_to_which_not_all_come_ends_by_the_parents_abort);
    tcase_add_loop_test(tcase, revoke_ends_what_runs_and_leaves_a_parent, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
