/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the host against a serial model, over numbers of ranks, sizes and dtypes. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/half.h"
#include "jobs.h"
#include "ranks.h"
#include "suite.h"

#define MAX_RANKS 5

/* Empty, one, fewer than ranks, many, and more than one piece holds (32768 fp32). */
static const uint64_t sizes[] = {0, 1, 3, 1000, 40000, 70001};

#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* One rank's view of a test. */
struct scene {
    struct hsdp_job *job;
    struct hsdp_group *group;
    uint32_t rank;
    uint32_t n;
};

static struct scene scene_open(uint32_t rank)
{
    struct scene scene = {.rank = rank};

    scene.job = test_job_open("10");
    scene.group = test_group(scene.job);
    scene.n = job_world_ranks(scene.job);
    return scene;
}

static void scene_close(struct scene *scene)
{
    test_job_end(scene->job);
    group_destroy(scene->group);
}

/* What rank `rank` gives at `i`: no two alike, and sums of them depend on the order. */
static float given(uint32_t rank, uint64_t i)
{
    return (float)((rank + 1) * 1.0e-3) + (float)(i % 977) * (rank % 2 == 0 ? 1.7f : -1.3e4f);
}

static float *given_alloc(uint32_t rank, uint64_t n)
{
    float *values = malloc((n + 1) * sizeof(float));

    for (uint64_t i = 0; i < n; i++) {
        values[i] = given(rank, i);
    }
    values[n] = 77.0f; /* nothing may be written here */
    return values;
}

static float *blank_alloc(uint64_t n)
{
    float *values = malloc((n + 1) * sizeof(float));

    for (uint64_t i = 0; i <= n; i++) {
        values[i] = 77.0f;
    }
    return values;
}

static float tree_sum(uint32_t n, uint64_t i)
{
    float x[MAX_RANKS];

    for (uint32_t r = 0; r < n; r++) {
        x[r] = given(r, i);
    }
    for (uint32_t step = 1; step < n; step *= 2) {
        for (uint32_t r = 0; r + step < n; r += 2 * step) {
            x[r] += x[r + step];
        }
    }
    return x[0];
}

static void tensor_fp32(struct hsdp_tensor *ret, float *base, int64_t *shape)
{
    memset(ret, 0, sizeof(*ret));
    ret->base = base;
    ret->device_type = HSDP_DEVICE_CPU;
    ret->n_dims = 1;
    ret->dtype_code = HSDP_DTYPE_FLOAT;
    ret->dtype_bits = 32;
    ret->dtype_lanes = 1;
    ret->shape = shape;
}

/* Runs one collective over fp32 arrays; a NULL array is a NULL tensor. */
struct coll {
    float *input;
    uint64_t n_input;
    float *output;
    uint64_t n_output;
    const uint64_t *send_elems;
    const uint64_t *recv_elems;
    int32_t kind;
    int32_t reduce;
    uint32_t peer;
};

static void coll_spec(const struct coll *coll, struct hsdp_tensor tensors[2], int64_t shapes[2],
                      struct hsdp_coll_spec *ret)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    shapes[0] = (int64_t)coll->n_input;
    shapes[1] = (int64_t)coll->n_output;
    tensor_fp32(&tensors[0], coll->input, &shapes[0]);
    tensor_fp32(&tensors[1], coll->output, &shapes[1]);
    spec.input = coll->input == NULL ? NULL : &tensors[0];
    spec.output = coll->output == NULL ? NULL : &tensors[1];
    spec.send_elems = coll->send_elems;
    spec.recv_elems = coll->recv_elems;
    spec.kind = coll->kind;
    spec.reduce = coll->reduce;
    spec.peer = coll->peer;
    *ret = spec;
}

static void coll_run(struct scene *scene, const struct coll *coll)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_tensor tensors[2];
    struct hsdp_coll_spec spec;
    int64_t shapes[2];
    uint64_t ticket = 0;

    coll_spec(coll, tensors, shapes, &spec);
    status_assert(group_start(scene->group, &spec, 1, NULL, &ticket, &err), HSDP_OK, &err);
    status_assert(job_ticket_wait(scene->job, ticket, UINT64_MAX, &err), HSDP_OK, &err);
    if (coll->output != NULL) {
        ck_assert_msg(coll->output[coll->n_output] == 77.0f, "written past the end");
    }
}

/* Check writes a note for each assertion that it passes; there are millions of these. */
static void bits_assert(float actual, float expected, uint64_t i)
{
    if (memcmp(&actual, &expected, sizeof(actual)) != 0) {
        ck_abort_msg("element %lu is %a, not %a", (unsigned long)i, (double)actual,
                     (double)expected);
    }
}

/* ----------------------------------------------------------------------------- the kinds */

static float reduced(int32_t reduce, uint32_t n, uint64_t i)
{
    float value = given(0, i);

    if (reduce == HSDP_REDUCE_SUM || reduce == HSDP_REDUCE_MEAN) {
        value = tree_sum(n, i);
        return reduce == HSDP_REDUCE_SUM ? value : value / (float)n;
    }
    for (uint32_t r = 1; r < n; r++) {
        value = reduce == HSDP_REDUCE_MAX ? fmaxf(value, given(r, i)) : fminf(value, given(r, i));
    }
    return value;
}

static void all_reduce_check(struct scene *scene, uint64_t n, int32_t reduce, int is_in_place)
{
    float *input = given_alloc(scene->rank, n);
    float *output = is_in_place ? input : blank_alloc(n);
    struct coll coll = {.input = input, .output = output, .n_input = n, .n_output = n};

    coll.kind = HSDP_COLL_ALL_REDUCE;
    coll.reduce = reduce;
    coll_run(scene, &coll);
    for (uint64_t i = 0; i < n; i++) {
        bits_assert(output[i], reduced(reduce, scene->n, i), i);
    }
    if (!is_in_place) {
        free(output);
    }
    free(input);
}

static void all_reduce_rank(uint32_t rank, void *shared)
{
    struct scene scene = scene_open(rank);

    (void)shared;
    for (size_t s = 0; s < N_SIZES; s++) {
        for (int32_t reduce = HSDP_REDUCE_SUM; reduce <= HSDP_REDUCE_MIN; reduce++) {
            all_reduce_check(&scene, sizes[s], reduce, (int)(s + (size_t)reduce) % 2);
        }
    }
    scene_close(&scene);
}

START_TEST(all_reduce_is_the_tree_of_the_inputs)
{
    ranks_run((uint32_t)_i, RANKS_LIMIT_MS, all_reduce_rank, NULL);
}
END_TEST

/* Uneven: member i has `n + i` elements, the first none. */
static uint64_t uneven(uint64_t n, uint32_t i)
{
    return i == 0 ? 0 : n + i;
}

static uint64_t counts_fill(uint64_t *elems, uint32_t n_ranks, uint64_t n, int is_uneven)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n_ranks; i++) {
        elems[i] = is_uneven ? uneven(n, i) : n;
        sum += elems[i];
    }
    return sum;
}

static void all_gather_check(struct scene *scene, uint64_t n, int is_uneven)
{
    uint64_t elems[MAX_RANKS];
    uint64_t n_all = counts_fill(elems, scene->n, n, is_uneven);
    uint64_t n_mine = elems[scene->rank];
    float *input = given_alloc(scene->rank, n_mine);
    float *output = blank_alloc(n_all);
    struct coll coll = {.input = input, .output = output, .n_input = n_mine, .n_output = n_all};
    uint64_t at = 0;

    coll.kind = HSDP_COLL_ALL_GATHER;
    coll.recv_elems = is_uneven ? elems : NULL;
    coll_run(scene, &coll);
    for (uint32_t r = 0; r < scene->n; r++) {
        for (uint64_t i = 0; i < elems[r]; i++) {
            bits_assert(output[at++], given(r, i), i);
        }
    }
    free(input);
    free(output);
}

static void reduce_scatter_check(struct scene *scene, uint64_t n, int is_uneven, int32_t reduce)
{
    uint64_t elems[MAX_RANKS];
    uint64_t n_all = counts_fill(elems, scene->n, n, is_uneven);
    uint64_t n_mine = elems[scene->rank];
    float *input = given_alloc(scene->rank, n_all);
    float *output = blank_alloc(n_mine);
    struct coll coll = {.input = input, .output = output, .n_input = n_all, .n_output = n_mine};
    uint64_t first = 0;

    for (uint32_t r = 0; r < scene->rank; r++) {
        first += elems[r];
    }
    coll.kind = HSDP_COLL_REDUCE_SCATTER;
    coll.reduce = reduce;
    coll.send_elems = is_uneven ? elems : NULL;
    coll_run(scene, &coll);
    for (uint64_t i = 0; i < n_mine; i++) {
        bits_assert(output[i], reduced(reduce, scene->n, first + i), i);
    }
    free(input);
    free(output);
}

/* From `from` to `to`; zero for some, and another number for each pair. */
static uint64_t pair_elems(uint64_t n, uint32_t from, uint32_t to, int is_uneven)
{
    return !is_uneven ? n : (from + to) % 3 == 0 ? 0 : n + 10 * from + to;
}

static void all_to_all_check(struct scene *scene, uint64_t n, int is_uneven)
{
    uint64_t send_elems[MAX_RANKS];
    uint64_t recv_elems[MAX_RANKS];
    struct coll coll = {.kind = HSDP_COLL_ALL_TO_ALL};
    uint64_t at = 0;

    for (uint32_t r = 0; r < scene->n; r++) {
        send_elems[r] = pair_elems(n, scene->rank, r, is_uneven);
        recv_elems[r] = pair_elems(n, r, scene->rank, is_uneven);
        coll.n_input += send_elems[r];
        coll.n_output += recv_elems[r];
    }
    coll.input = given_alloc(scene->rank, coll.n_input);
    coll.output = is_uneven ? blank_alloc(coll.n_output) : coll.input;
    coll.send_elems = is_uneven ? send_elems : NULL;
    coll.recv_elems = is_uneven ? recv_elems : NULL;
    coll_run(scene, &coll);
    for (uint32_t r = 0; r < scene->n; r++) {
        uint64_t first = 0;

        for (uint32_t to = 0; to < scene->rank; to++) {
            first += pair_elems(n, r, to, is_uneven);
        }
        for (uint64_t i = 0; i < recv_elems[r]; i++) {
            bits_assert(coll.output[at++], given(r, first + i), i);
        }
    }
    if (is_uneven) {
        free(coll.output);
    }
    free(coll.input);
}

static void gathering_rank(uint32_t rank, void *shared)
{
    struct scene scene = scene_open(rank);

    (void)shared;
    for (size_t s = 0; s < N_SIZES; s++) {
        for (int is_uneven = 0; is_uneven < 2; is_uneven++) {
            all_gather_check(&scene, sizes[s], is_uneven);
            reduce_scatter_check(&scene, sizes[s], is_uneven, (int32_t)(s % 4));
            all_to_all_check(&scene, sizes[s], is_uneven);
        }
    }
    scene_close(&scene);
}

START_TEST(gathers_scatters_and_exchanges_are_those_of_the_model)
{
    ranks_run((uint32_t)_i, RANKS_LIMIT_MS, gathering_rank, NULL);
}
END_TEST

static void broadcast_check(struct scene *scene, uint64_t n, uint32_t root)
{
    int is_root = scene->rank == root;
    float *input = is_root ? given_alloc(root, n) : NULL;
    float *output = is_root && n % 2 == 0 ? NULL : blank_alloc(n);
    struct coll coll = {.input = input, .output = output, .n_input = n, .n_output = n};

    coll.kind = HSDP_COLL_BROADCAST;
    coll.peer = root;
    coll_run(scene, &coll);
    for (uint64_t i = 0; output != NULL && i < n; i++) {
        bits_assert(output[i], given(root, i), i);
    }
    free(input);
    free(output);
}

static void broadcast_rank(uint32_t rank, void *shared)
{
    struct scene scene = scene_open(rank);
    struct coll barrier = {.kind = HSDP_COLL_BARRIER};

    (void)shared;
    for (size_t s = 0; s < N_SIZES; s++) {
        for (uint32_t root = 0; root < scene.n; root++) {
            broadcast_check(&scene, sizes[s], root);
        }
        coll_run(&scene, &barrier);
    }
    scene_close(&scene);
}

START_TEST(broadcast_from_each_root_arrives)
{
    ranks_run((uint32_t)_i, RANKS_LIMIT_MS, broadcast_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------------------- sends */

/* To the next, from the one before; one rank talks to itself. Both in one start: no size blocks. */
static void ring_check(struct scene *scene, uint64_t n)
{
    uint32_t before = (scene->rank + scene->n - 1) % scene->n;
    struct coll send = {.kind = HSDP_COLL_SEND, .n_input = n};
    struct coll recv = {.kind = HSDP_COLL_RECV, .n_output = n};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_tensor tensors[4];
    struct hsdp_coll_spec specs[2];
    int64_t shapes[4];
    uint64_t ticket;

    send.input = given_alloc(scene->rank, n);
    send.peer = (scene->rank + 1) % scene->n;
    recv.output = blank_alloc(n);
    recv.peer = before;
    coll_spec(&send, &tensors[0], &shapes[0], &specs[0]);
    coll_spec(&recv, &tensors[2], &shapes[2], &specs[1]);
    status_assert(group_start(scene->group, specs, 2, NULL, &ticket, &err), HSDP_OK, &err);
    status_assert(job_ticket_wait(scene->job, ticket, UINT64_MAX, &err), HSDP_OK, &err);
    for (uint64_t i = 0; i < n; i++) {
        bits_assert(recv.output[i], given(before, i), i);
    }
    ck_assert_msg(recv.output[n] == 77.0f, "written past the end");
    free(send.input);
    free(recv.output);
}

static void ring_rank(uint32_t rank, void *shared)
{
    struct scene scene = scene_open(rank);

    (void)shared;
    for (size_t s = 0; s < N_SIZES; s++) {
        ring_check(&scene, sizes[s]);
    }
    scene_close(&scene);
}

START_TEST(send_and_recv_in_a_ring_cannot_deadlock)
{
    ranks_run((uint32_t)_i, RANKS_LIMIT_MS, ring_rank, NULL);
}
END_TEST

/* Many starts before any wait: done in order of issue, whatever the sizes. */
static void queueing_rank(uint32_t rank, void *shared)
{
    struct scene scene = scene_open(rank);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_tensor tensors[6][2];
    int64_t shapes[6][2];
    float *values[6];
    uint64_t tickets[6];

    (void)shared;
    for (int k = 0; k < 6; k++) {
        struct coll coll = {.kind = HSDP_COLL_ALL_REDUCE, .reduce = HSDP_REDUCE_SUM};
        struct hsdp_coll_spec spec;

        values[k] = given_alloc(rank, sizes[k]);
        coll.input = values[k];
        coll.output = values[k];
        coll.n_input = sizes[k];
        coll.n_output = sizes[k];
        coll_spec(&coll, tensors[k], shapes[k], &spec);
        status_assert(group_start(scene.group, &spec, 1, NULL, &tickets[k], &err), HSDP_OK, &err);
    }
    status_assert(job_ticket_wait(scene.job, tickets[5], UINT64_MAX, &err), HSDP_OK, &err);
    for (int k = 0; k < 6; k++) {
        status_assert(job_ticket_wait(scene.job, tickets[k], 0, &err), HSDP_OK, &err);
        for (uint64_t i = 0; i < sizes[k]; i++) {
            bits_assert(values[k][i], tree_sum(scene.n, i), i);
        }
        free(values[k]);
    }
    scene_close(&scene);
}

START_TEST(start_of_many_before_a_wait_finishes_all)
{
    ranks_run(3, RANKS_LIMIT_MS, queueing_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("coll");
    TCase *tcase = tcase_create("coll");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, all_reduce_is_the_tree_of_the_inputs, 1, MAX_RANKS + 1);
    tcase_add_loop_test(tcase, gathers_scatters_and_exchanges_are_those_of_the_model, 1,
                        MAX_RANKS + 1);
    tcase_add_loop_test(tcase, broadcast_from_each_root_arrives, 1, MAX_RANKS + 1);
    tcase_add_loop_test(tcase, send_and_recv_in_a_ring_cannot_deadlock, 1, MAX_RANKS + 1);
    tcase_add_test(tcase, start_of_many_before_a_wait_finishes_all);
    suite_add_tcase(suite, tcase);
    return suite;
}
