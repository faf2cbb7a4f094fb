/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives at the same time: in several groups, in both directions, among many ranks. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "jobs.h"
#include "ranks.h"
#include "suite.h"

/* A tensor over int32 values, with its shape. */
struct numbers {
    struct hsdp_tensor tensor;
    int64_t size;
};

static struct hsdp_tensor *numbers_set(struct numbers *numbers, int32_t *base, uint64_t n)
{
    memset(numbers, 0, sizeof(*numbers));
    numbers->size = (int64_t)n;
    numbers->tensor.base = base;
    numbers->tensor.device_type = HSDP_DEVICE_CPU;
    numbers->tensor.n_dims = 1;
    numbers->tensor.shape = &numbers->size;
    numbers->tensor.dtype_code = HSDP_DTYPE_INT;
    numbers->tensor.dtype_bits = 32;
    numbers->tensor.dtype_lanes = 1;
    return &numbers->tensor;
}

static int32_t *numbers_alloc(uint64_t n, int32_t first)
{
    int32_t *values = malloc((n + 1) * sizeof(*values));

    for (uint64_t i = 0; i < n; i++) {
        values[i] = first + (int32_t)i;
    }
    return values;
}

static uint64_t started(struct hsdp_group *group, const struct hsdp_coll_spec *specs, uint64_t n)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t ticket = 0;

    status_assert(group_start(group, specs, n, NULL, &ticket, &err), HSDP_OK, &err);
    return ticket;
}

static void waited(struct hsdp_job *job, uint64_t ticket)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    status_assert(job_ticket_wait(job, ticket, UINT64_MAX, &err), HSDP_OK, &err);
}

static struct hsdp_coll_spec sum_spec(struct hsdp_tensor *tensor)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = tensor;
    spec.output = tensor;
    return spec;
}

static struct hsdp_coll_spec lane_spec(int32_t kind, struct hsdp_tensor *tensor, uint32_t peer)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    spec.kind = kind;
    spec.peer = peer;
    if (kind == HSDP_COLL_SEND) {
        spec.input = tensor;
    } else {
        spec.output = tensor;
    }
    return spec;
}

/* ---------------------------------------------------------------------------- several groups */

#define N_CROSSING 50000u

/* Two groups of the same ranks, used in opposite order by the two: nothing blocks. */
static void crossing_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_group *groups[2] = {test_group(job), test_group(job)};
    struct numbers numbers[2];
    int32_t *values[2];
    uint64_t tickets[2];

    (void)shared;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t which = (k + rank) % 2;
        struct hsdp_coll_spec spec;

        values[which] = numbers_alloc(N_CROSSING, (int32_t)which);
        spec = sum_spec(numbers_set(&numbers[which], values[which], N_CROSSING));
        tickets[which] = started(groups[which], &spec, 1);
    }
    for (uint32_t which = 0; which < 2; which++) {
        waited(job, tickets[which]);
        ck_assert_int_eq(values[which][0], (int32_t)(2 * which));
        ck_assert_int_eq(values[which][N_CROSSING - 1], (int32_t)(2 * (which + N_CROSSING - 1)));
        free(values[which]);
        group_destroy(groups[which]);
    }
    test_job_end(job);
}

START_TEST(group_start_in_opposite_orders_on_two_groups_cannot_deadlock)
{
    ranks_run(2, RANKS_LIMIT_MS, crossing_rank, NULL);
}
END_TEST

/* --------------------------------------------------------------------------------- messages */

/* Many messages to one peer and from it, started before any wait: they arrive in order. */
static void chatting_rank(uint32_t rank, void *shared)
{
    static const uint64_t sizes[] = {5, 0, 30000, 1, 8192, 100000};
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_group *group = test_group(job);
    struct numbers numbers[12];
    int32_t *values[12];
    uint64_t last = 0;

    (void)shared;
    for (int k = 0; k < 12; k++) {
        struct hsdp_coll_spec spec;
        bool is_send = k < 6;

        values[k] = numbers_alloc(sizes[k % 6], is_send ? 1000 * (int32_t)rank + k : -1);
        numbers_set(&numbers[k], values[k], sizes[k % 6]);
        spec = lane_spec(is_send ? HSDP_COLL_SEND : HSDP_COLL_RECV, &numbers[k].tensor, 1 - rank);
        last = started(group, &spec, 1);
    }
    waited(job, last);
    for (int k = 6; k < 12; k++) {
        for (uint64_t i = 0; i < sizes[k % 6]; i++) {
            if (values[k][i] != 1000 * (1 - (int32_t)rank) + k - 6 + (int32_t)i) {
                ck_abort_msg("message %d, element %lu: %d", k, (unsigned long)i, values[k][i]);
            }
        }
    }
    while (last > 0) {
        waited(job, last--);
    }
    for (int k = 0; k < 12; k++) {
        free(values[k]);
    }
    group_destroy(group);
    test_job_end(job);
}

START_TEST(group_start_of_many_messages_keeps_their_order)
{
    ranks_run(2, RANKS_LIMIT_MS, chatting_rank, NULL);
}
END_TEST

/* Everybody to everybody and a sum in one start, none of which can be done before the others. */
static void mixing_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_group *group = test_group(job);
    struct numbers numbers[9];
    struct hsdp_coll_spec specs[9];
    int32_t *values[9];
    const uint64_t n = 20000;

    (void)shared;
    for (uint32_t peer = 0; peer < 4; peer++) {
        values[peer] = numbers_alloc(n, (int32_t)(10 * rank + peer));
        values[4 + peer] = numbers_alloc(n, -1);
        specs[peer] = lane_spec(HSDP_COLL_SEND, numbers_set(&numbers[peer], values[peer], n), peer);
        specs[4 + peer] =
            lane_spec(HSDP_COLL_RECV, numbers_set(&numbers[4 + peer], values[4 + peer], n), peer);
    }
    values[8] = numbers_alloc(n, (int32_t)rank);
    specs[8] = sum_spec(numbers_set(&numbers[8], values[8], n));
    waited(job, started(group, specs, 9));
    for (uint32_t peer = 0; peer < 4; peer++) {
        ck_assert_int_eq(values[4 + peer][0], (int32_t)(10 * peer + rank));
        ck_assert_int_eq(values[4 + peer][n - 1], (int32_t)(10 * peer + rank + n - 1));
    }
    ck_assert_int_eq(values[8][n - 1], (int32_t)(6 + 4 * (n - 1)));
    for (uint32_t k = 0; k < 9; k++) {
        free(values[k]);
    }
    group_destroy(group);
    test_job_end(job);
}

START_TEST(group_start_of_messages_and_a_sum_together_finishes)
{
    ranks_run(4, RANKS_LIMIT_MS, mixing_rank, NULL);
}
END_TEST

/* -------------------------------------------------------------------------------- many ranks */

static void crowded_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("20");
    struct hsdp_group *group = test_group(job);
    struct hsdp_coll_spec spec;
    struct numbers numbers[3];
    uint32_t n = job_world_ranks(job);
    int32_t all[3][RANKS_MAX];

    (void)shared;
    for (uint32_t i = 0; i < n; i++) {
        all[0][i] = (int32_t)(100 * rank + i);
        all[2][i] = (int32_t)i;
    }
    spec = sum_spec(numbers_set(&numbers[2], all[2], n));
    waited(job, started(group, &spec, 1));
    spec.kind = HSDP_COLL_ALL_TO_ALL;
    spec.input = numbers_set(&numbers[0], all[0], n);
    spec.output = numbers_set(&numbers[1], all[1], n);
    waited(job, started(group, &spec, 1));
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(all[1][i], (int32_t)(100 * i + rank));
        ck_assert_int_eq(all[2][i], (int32_t)(n * i));
    }
    group_destroy(group);
    test_job_end(job);
}

START_TEST(collectives_of_64_ranks_are_exact)
{
    ranks_run(64, RANKS_LIMIT_MS, crowded_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- traffic */

/* What went through is counted as it was moved: a gather of 10 from each of three. */
static void counting_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("10");
    struct hsdp_group *group = test_group(job);
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct numbers numbers[2];
    int32_t input[10] = {0};
    int32_t output[30];
    uint64_t n_bytes = 0;

    (void)rank;
    (void)shared;
    spec.kind = HSDP_COLL_ALL_GATHER;
    spec.input = numbers_set(&numbers[0], input, 10);
    spec.output = numbers_set(&numbers[1], output, 30);
    waited(job, started(group, &spec, 1));
    status_assert(group_info(group, &info, &err), HSDP_OK, &err);
    ck_assert_uint_eq(info.n_bytes_sent, 40);
    ck_assert_uint_eq(info.n_bytes_received, 80);
    status_assert(job_counter(job, "traffic.dp", &n_bytes, &err), HSDP_OK, &err);
    ck_assert_uint_eq(n_bytes, 120);
    status_assert(job_counter(job, "operations.dp", &n_bytes, &err), HSDP_OK, &err);
    ck_assert_uint_eq(n_bytes, 1);
    group_destroy(group);
    test_job_end(job);
}

START_TEST(traffic_of_a_gather_is_counted)
{
    ranks_run(3, RANKS_LIMIT_MS, counting_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("coll_many");
    TCase *tcase = tcase_create("coll_many");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, group_start_in_opposite_orders_on_two_groups_cannot_deadlock);
    tcase_add_test(tcase, group_start_of_many_messages_keeps_their_order);
    tcase_add_test(tcase, group_start_of_messages_and_a_sum_together_finishes);
    tcase_add_test(tcase, collectives_of_64_ranks_are_exact);
    tcase_add_test(tcase, traffic_of_a_gather_is_counted);
    suite_add_tcase(suite, tcase);
    return suite;
}
