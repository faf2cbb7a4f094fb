/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of NCCL's double: what collectives compute, on 1 to 8 ranks, beside a serial computation.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/half.h"
#include "double_ranks.h"
#include "suite.h"

static const int32_t dtypes[] = {NCCL_INT8,    NCCL_UINT8,   NCCL_INT32,   NCCL_UINT32,
                                 NCCL_INT64,   NCCL_UINT64,  NCCL_FLOAT16, NCCL_FLOAT32,
                                 NCCL_FLOAT64, NCCL_BFLOAT16};

static const uint64_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

#define N_DTYPES N_OF(dtypes)

/* ------------------------------------------------------------------------ values, and their sums
 */

/* Halves and small integers, of which no dtype loses anything unless sums do. */
static double value_of(uint32_t rank, uint64_t index, int32_t dtype)
{
    uint64_t mixed = (index * 2654435761u + rank * 40503u) >> 3;

    if (dtype == NCCL_INT8 || dtype == NCCL_UINT8) {
        return (double)(mixed % 5);
    }
    return dtype < NCCL_FLOAT16 ? (double)(mixed % 1000) : (double)(mixed % 201) / 16.0;
}

static void value_store(void *ret, int32_t dtype, double value)
{
    uint16_t half;
    float single = (float)value;
    int64_t whole = (int64_t)value;

    switch (dtype) {
    case NCCL_FLOAT16:
        half = fp16_from_fp32(single);
        memcpy(ret, &half, sizeof(half));
        break;
    case NCCL_BFLOAT16:
        half = bf16_from_fp32(single);
        memcpy(ret, &half, sizeof(half));
        break;
    case NCCL_FLOAT32:
        memcpy(ret, &single, sizeof(single));
        break;
    case NCCL_FLOAT64:
        memcpy(ret, &value, sizeof(value));
        break;
    default: /* the low bytes come first */
        memcpy(ret, &whole, sizes[dtype]);
        break;
    }
}

static double value_load(const void *address, int32_t dtype)
{
    uint16_t half;
    float single;
    double value;
    int64_t whole = 0;

    switch (dtype) {
    case NCCL_FLOAT16:
        memcpy(&half, address, sizeof(half));
        return fp16_to_fp32(half);
    case NCCL_BFLOAT16:
        memcpy(&half, address, sizeof(half));
        return bf16_to_fp32(half);
    case NCCL_FLOAT32:
        memcpy(&single, address, sizeof(single));
        return single;
    case NCCL_FLOAT64:
        memcpy(&value, address, sizeof(value));
        return value;
    default:
        memcpy(&whole, address, sizes[dtype]);
        return (double)whole;
    }
}

static double value_round(double value, int32_t dtype)
{
    unsigned char bytes[8] = {0};

    value_store(bytes, dtype, value);
    return value_load(bytes, dtype);
}

static double values_combine(double a, double b, int32_t dtype, int32_t op)
{
    double result = a + b;

    if (op == NCCL_PROD) {
        result = a * b;
    } else if (op == NCCL_MAX) {
        result = a > b ? a : b;
    } else if (op == NCCL_MIN) {
        result = a < b ? a : b;
    }
    return value_round(result, dtype);
}

/* As a ring adds: from the rank behind `last` on, each step rounded. */
static double ring_expected(uint64_t index, int32_t dtype, int32_t op, uint32_t n_ranks,
                            uint32_t last)
{
    double total = value_round(value_of((last + 1) % n_ranks, index, dtype), dtype);

    for (uint32_t i = 2; i <= n_ranks; i++) {
        double next = value_round(value_of((last + i) % n_ranks, index, dtype), dtype);

        total = values_combine(total, next, dtype, op);
    }
    return total;
}

/* A rank's values, as they are sent. */
static unsigned char *values_make(uint32_t rank, uint64_t n, int32_t dtype)
{
    unsigned char *bytes = malloc(n * sizes[dtype] + 1);

    ck_assert_ptr_nonnull(bytes);
    for (uint64_t i = 0; i < n; i++) {
        value_store(bytes + i * sizes[dtype], dtype, value_of(rank, i, dtype));
    }
    return bytes;
}

static void values_check(const void *address, uint64_t n, int32_t dtype,
                         double (*expected)(uint64_t index, const void *arg), const void *arg)
{
    unsigned char *bytes = malloc(n * sizes[dtype] + 1);

    ck_assert_ptr_nonnull(bytes);
    double_get(bytes, address, n * sizes[dtype]);
    for (uint64_t i = 0; i < n; i++) {
        double is = value_load(bytes + i * sizes[dtype], dtype);
        double wanted = expected(i, arg);

        ck_assert_msg(is == wanted, "dtype %d, element %llu of %llu: %.17g instead of %.17g", dtype,
                      (unsigned long long)i, (unsigned long long)n, is, wanted);
    }
    free(bytes);
}

/* ---------------------------------------------------------------------- one case on one rank */

struct scene {
    nccl_comm comm;
    cu_stream stream;
    uint32_t rank;
    uint32_t n_ranks;
    int32_t dtype;
    int32_t op;
    uint64_t n; /* elements of a rank's part */
    uint32_t root;
    bool is_in_place;
};

static double all_reduce_expected(uint64_t index, const void *arg)
{
    const struct scene *scene = arg;
    uint32_t block = 0;

    /* blocks begin at n * block / n_ranks */
    while (scene->n * (block + 1) / scene->n_ranks <= index) {
        block++;
    }
    return ring_expected(index, scene->dtype, scene->op, scene->n_ranks, block);
}

static void *buffer_put(const struct scene *scene, uint32_t rank, uint64_t n)
{
    unsigned char *values = values_make(rank, n, scene->dtype);
    void *address = double_put(values, n * sizes[scene->dtype]);

    free(values);
    return address;
}

static void *buffer_empty(const struct scene *scene, uint64_t n)
{
    return (void *)(uintptr_t)device_memory(n * sizes[scene->dtype]);
}

static void buffers_free(const struct scene *scene, void *send, void *recv)
{
    stream_finish(scene->stream);
    DRIVER(memory_free((cu_address)(uintptr_t)send));
    if (recv != send) {
        DRIVER(memory_free((cu_address)(uintptr_t)recv));
    }
}

static void all_reduce_run(const struct scene *scene)
{
    void *send = buffer_put(scene, scene->rank, scene->n);
    void *recv = scene->is_in_place ? send : buffer_empty(scene, scene->n);

    double_comm_done(scene->comm, nccl.all_reduce(send, recv, scene->n, scene->dtype, scene->op,
                                                  scene->comm, scene->stream));
    stream_finish(scene->stream);
    values_check(recv, scene->n, scene->dtype, all_reduce_expected, scene);
    buffers_free(scene, send, recv);
}

static double reduce_scatter_expected(uint64_t index, const void *arg)
{
    const struct scene *scene = arg;

    return ring_expected(scene->rank * scene->n + index, scene->dtype, scene->op, scene->n_ranks,
                         scene->rank);
}

static void reduce_scatter_run(const struct scene *scene)
{
    uint64_t own = scene->rank * scene->n * sizes[scene->dtype];
    unsigned char *send = buffer_put(scene, scene->rank, scene->n * scene->n_ranks);
    void *recv = scene->is_in_place ? send + own : buffer_empty(scene, scene->n);

    double_comm_done(scene->comm, nccl.reduce_scatter(send, recv, scene->n, scene->dtype, scene->op,
                                                      scene->comm, scene->stream));
    stream_finish(scene->stream);
    values_check(recv, scene->n, scene->dtype, reduce_scatter_expected, scene);
    buffers_free(scene, send, scene->is_in_place ? send : recv);
}

static double all_gather_expected(uint64_t index, const void *arg)
{
    const struct scene *scene = arg;

    return value_round(value_of((uint32_t)(index / scene->n), index % scene->n, scene->dtype),
                       scene->dtype);
}

static void all_gather_run(const struct scene *scene)
{
    uint64_t own = scene->rank * scene->n * sizes[scene->dtype];
    unsigned char *recv = buffer_empty(scene, scene->n * scene->n_ranks);
    void *send = buffer_put(scene, scene->rank, scene->n);

    if (scene->is_in_place) {
        DRIVER(copy((cu_address)(uintptr_t)(recv + own), (cu_address)(uintptr_t)send,
                    scene->n * sizes[scene->dtype], scene->stream));
    }
    double_comm_done(scene->comm,
                     nccl.all_gather(scene->is_in_place ? recv + own : send, recv, scene->n,
                                     scene->dtype, scene->comm, scene->stream));
    stream_finish(scene->stream);
    values_check(recv, scene->n * scene->n_ranks, scene->dtype, all_gather_expected, scene);
    buffers_free(scene, send, recv);
}

static double broadcast_expected(uint64_t index, const void *arg)
{
    const struct scene *scene = arg;

    return value_round(value_of(scene->root, index, scene->dtype), scene->dtype);
}

static void broadcast_run(const struct scene *scene)
{
    void *send = buffer_put(scene, scene->rank, scene->n);
    void *recv = scene->is_in_place ? send : buffer_empty(scene, scene->n);

    double_comm_done(scene->comm, nccl.broadcast(scene->rank == scene->root ? send : NULL, recv,
                                                 scene->n, scene->dtype, (int32_t)scene->root,
                                                 scene->comm, scene->stream));
    stream_finish(scene->stream);
    values_check(recv, scene->n, scene->dtype, broadcast_expected, scene);
    buffers_free(scene, send, recv);
}

static double reduce_expected(uint64_t index, const void *arg)
{
    const struct scene *scene = arg;

    return ring_expected(index, scene->dtype, scene->op, scene->n_ranks, scene->root);
}

static void reduce_run(const struct scene *scene)
{
    void *send = buffer_put(scene, scene->rank, scene->n);
    void *recv = scene->is_in_place ? send : buffer_empty(scene, scene->n);

    double_comm_done(scene->comm,
                     nccl_extra.reduce(send, scene->rank == scene->root ? recv : NULL, scene->n,
                                       scene->dtype, scene->op, (int32_t)scene->root, scene->comm,
                                       scene->stream));
    stream_finish(scene->stream);
    if (scene->rank == scene->root) {
        values_check(recv, scene->n, scene->dtype, reduce_expected, scene);
    }
    buffers_free(scene, send, recv);
}

/* Every rank sends to every rank, itself included, in an order of its own. */
static void all_to_all_run(const struct scene *scene)
{
    uint64_t part = scene->n * sizes[scene->dtype];
    unsigned char *send = buffer_empty(scene, scene->n * scene->n_ranks);
    unsigned char *recv = buffer_empty(scene, scene->n * scene->n_ranks);
    void *own = buffer_put(scene, scene->rank, scene->n);

    for (uint32_t peer = 0; peer < scene->n_ranks; peer++) {
        DRIVER(copy((cu_address)(uintptr_t)(send + peer * part), (cu_address)(uintptr_t)own, part,
                    scene->stream));
    }
    NCCL(group_start());
    for (uint32_t i = 0; i < scene->n_ranks; i++) {
        uint32_t from = (scene->rank + i) % scene->n_ranks;
        uint32_t to = scene->n_ranks - 1 - i;

        NCCL(recv(recv + from * part, scene->n, scene->dtype, (int32_t)from, scene->comm,
                  scene->stream));
        NCCL(send(send + to * part, scene->n, scene->dtype, (int32_t)to, scene->comm,
                  scene->stream));
    }
    double_comm_done(scene->comm, nccl.group_end());
    stream_finish(scene->stream);
    values_check(recv, scene->n * scene->n_ranks, scene->dtype, all_gather_expected, scene);
    buffers_free(scene, send, recv);
    DRIVER(memory_free((cu_address)(uintptr_t)own));
}

/* --------------------------------------------------------------------------------- the cases */

static const struct {
    const char *name;
    void (*run)(const struct scene *scene);
    bool reduces;
} kinds[] = {
    {"all-reduce", all_reduce_run, true},  {"reduce-scatter", reduce_scatter_run, true},
    {"all-gather", all_gather_run, false}, {"broadcast", broadcast_run, false},
    {"reduce", reduce_run, true},          {"all-to-all", all_to_all_run, false},
};

/* Fewer elements than ranks, numbers that are no multiples of them, more than all slots hold. */
static const uint64_t counts[] = {1, 3, 1000, 20011};

static void kind_run(struct scene *scene, void (*run)(const struct scene *scene), bool reduces)
{
    for (int d = 0; d < N_DTYPES; d++) {
        for (int32_t op = NCCL_SUM; op <= (reduces ? NCCL_MIN : NCCL_SUM); op++) {
            uint32_t which = (uint32_t)(d + op);

            if (op == NCCL_PROD && dtypes[d] != NCCL_FLOAT64) {
                continue; /* overflows */
            }
            if (scene->n_ranks > 4 && dtypes[d] < NCCL_UINT64) {
                continue; /* the others' loops are the same, and many ranks are slow */
            }
            scene->dtype = dtypes[d];
            scene->op = op;
            scene->root = which % scene->n_ranks;
            scene->n = counts[which % N_OF(counts)];
            scene->is_in_place = which / N_OF(counts) % 2 == 1;
            run(scene);
        }
    }
}

static void kind_rank(uint32_t rank, void *arg)
{
    struct double_shared *shared = arg;
    struct scene scene = {.rank = rank, .n_ranks = shared->n_ranks};

    double_rank_start(rank);
    scene.comm = double_comm(shared, rank, 0);
    scene.stream = stream_make();
    kind_run(&scene, kinds[shared->number].run, kinds[shared->number].reduces);
    double_comm_end(scene.comm);
    ck_assert_uint_eq(doubled.n_races(), 0);
}

static const uint32_t worlds[] = {1, 2, 3, 4, 8};

START_TEST(collective_every_dtype_and_op_as_a_serial_sum)
{
    double_ranks_run(worlds[_i / N_OF(kinds)], _i % N_OF(kinds), kind_rank);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("double_nccl_sums");
    TCase *tcase = tcase_create("sums");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, collective_every_dtype_and_op_as_a_serial_sum, 0,
                        N_OF(worlds) * N_OF(kinds));
    suite_add_tcase(suite, tcase);
    return suite;
}
