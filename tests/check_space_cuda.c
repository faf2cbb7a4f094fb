/* SPDX-License-Identifier: Apache-2.0 */
/* The space of a device beside that of a CPU: the same bits, by whatever way they come. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/fpmode.h"
#include "device/space.h"
#include "stand_in.h"
#include "suite.h"

#define must(expression) ck_assert_msg((expression) == HSDP_OK, "%s", err.message)

#define CHUNK_BYTES (UINT64_C(1) << 21) /* as long as one of space_cuda.c */
#define N_ELEMS     5003u

static struct gpu gpu;
static struct space device;
static struct space cpu;
static struct hsdp_error err;
static uint64_t patience_ns;

static int32_t look(void *user, uint64_t waited_ns, struct hsdp_error *reterr)
{
    ck_assert_ptr_eq(user, &device);
    return waited_ns < patience_ns ? HSDP_OK
                                   : error_set(reterr, HSDP_ERR_TIMEOUT, "test: no patience left");
}

static void spaces_open(void)
{
    const struct space_patience patience = {look, &device};

    patience_ns = UINT64_C(20000000000);
    cpu = space_cpu(kernels_path(0));
    must(gpu_open(double_path("libcuda.so.1"), 0, NULL, &gpu, &err));
    must(space_cuda(&gpu, kernels_path(0), &patience, &device, &err));
}

static void spaces_close(void)
{
    space_fini(&device);
    space_fini(&cpu);
    gpu_close(&gpu);
    ck_assert_uint_eq(double_races(), 0);
}

static unsigned char *bytes_make(uint64_t n_bytes, uint64_t seed)
{
    unsigned char *bytes = malloc(n_bytes + 1);

    ck_assert_ptr_nonnull(bytes);
    for (uint64_t i = 0; i < n_bytes; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = (unsigned char)(seed >> 56);
    }
    return bytes;
}

/* ------------------------------------------------------------------------- to and from the host */

static const uint64_t sizes[] = {0,
                                 1,
                                 4096,
                                 CHUNK_BYTES - 1,
                                 CHUNK_BYTES,
                                 CHUNK_BYTES + 1,
                                 2 * CHUNK_BYTES,
                                 5 * CHUNK_BYTES + 12345};

START_TEST(read_brings_back_what_was_written)
{
    uint64_t n_bytes = sizes[_i];
    unsigned char *given = bytes_make(n_bytes, 1);
    unsigned char *found = bytes_make(n_bytes, 2);
    void *base = NULL;

    must(device.ops->alloc(&device, n_bytes + 3, "this test", &base, &err));
    must(device.ops->write(&device, (char *)base + 3, given, n_bytes, &err)); /* any address */
    must(device.ops->read(&device, found, (char *)base + 3, n_bytes, &err));
    ck_assert_int_eq(memcmp(given, found, n_bytes), 0);
    device.ops->free(&device, base, n_bytes + 3);
    free(given);
    free(found);
}
END_TEST

START_TEST(alloc_is_zeroed_for_every_stream)
{
    unsigned char *found = bytes_make(4096, 2);
    void *base = NULL;

    setenv("HSDP_DOUBLE_FAULTS", "slow_stream=20000", 1);
    must(device.ops->alloc(&device, 4096, "this test", &base, &err));
    must(gpu_enter(&gpu, &err));
    ck_assert_int_eq(gpu.cuda.stream_query(gpu.reduce_stream), CU_OK);
    gpu_leave(&gpu);
    must(device.ops->read(&device, found, base, 4096, &err));
    for (int i = 0; i < 4096; i++) {
        ck_assert_uint_eq(found[i], 0);
    }
    device.ops->free(&device, base, 4096);
    device.ops->free(&device, NULL, 0);
    free(found);
}
END_TEST

START_TEST(alloc_without_memory_says_what_for)
{
    void *base = NULL;

    setenv("HSDP_DOUBLE_FAULTS", "alloc_fails=1", 1);
    ck_assert_int_eq(device.ops->alloc(&device, 4096, "slots of unit a", &base, &err),
                     HSDP_ERR_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.message, "slots of unit a: 4096 bytes are wanted"));
    ck_assert_ptr_null(base);
}
END_TEST

START_TEST(read_that_takes_too_long_is_ended_by_the_look)
{
    unsigned char found[16];
    void *base = NULL;

    must(device.ops->alloc(&device, sizeof(found), "this test", &base, &err));
    setenv("HSDP_DOUBLE_FAULTS", "slow_stream=500000", 1);
    patience_ns = 1000000;
    ck_assert_int_eq(device.ops->read(&device, found, base, sizeof(found), &err), HSDP_ERR_TIMEOUT);
    ck_assert_str_eq(err.message, "test: no patience left");
    unsetenv("HSDP_DOUBLE_FAULTS");
    patience_ns = UINT64_C(20000000000);
    must(device.ops->read(&device, found, base, sizeof(found), &err)); /* behind the first */
    device.ops->free(&device, base, sizeof(found));
}
END_TEST

/* ---------------------------------------------------------------------- the same as on a CPU */

/* Arrays with the same contents in both spaces. */
struct pair {
    void *device;
    void *cpu;
    uint64_t n_bytes;
};

static struct pair pair_make(const void *values, uint64_t n_bytes)
{
    struct pair pair = {.n_bytes = n_bytes};

    must(device.ops->alloc(&device, n_bytes, "this test", &pair.device, &err));
    must(cpu.ops->alloc(&cpu, n_bytes, "this test", &pair.cpu, &err));
    if (values != NULL) {
        must(device.ops->write(&device, pair.device, values, n_bytes, &err));
        must(cpu.ops->write(&cpu, pair.cpu, values, n_bytes, &err));
    }
    return pair;
}

/* Compares, and gives both back. */
static void pair_same(struct pair *pair)
{
    unsigned char *found = malloc(pair->n_bytes);

    ck_assert_ptr_nonnull(found);
    must(device.ops->read(&device, found, pair->device, pair->n_bytes, &err));
    ck_assert_int_eq(memcmp(found, pair->cpu, pair->n_bytes), 0);
    free(found);
    device.ops->free(&device, pair->device, pair->n_bytes);
    cpu.ops->free(&cpu, pair->cpu, pair->n_bytes);
}

/* Of all magnitudes that gradients have, and both signs. */
static struct pair floats_make(uint64_t seed)
{
    float *values = malloc(N_ELEMS * sizeof(float));
    unsigned char *bytes = bytes_make(N_ELEMS * 2u, seed);
    struct pair pair;

    ck_assert_ptr_nonnull(values);
    for (uint32_t i = 0; i < N_ELEMS; i++) {
        values[i] = ((float)bytes[2 * i] - 127.5f) / (float)(1u << (bytes[2 * i + 1] % 24u));
    }
    pair = pair_make(values, N_ELEMS * sizeof(float));
    free(values);
    free(bytes);
    return pair;
}

static const struct {
    enum dtype dst;
    enum dtype src;
} casts[] = {
    {DTYPE_BF16, DTYPE_FP32},
    {DTYPE_FP16, DTYPE_FP32},
    {DTYPE_FP32, DTYPE_FP32},
};

START_TEST(convert_rounds_and_widens_as_a_cpu)
{
    struct pair values = floats_make(3);
    struct pair narrow = pair_make(NULL, N_ELEMS * dtype_bytes(casts[_i].dst));
    struct space_cast cast = {narrow.device, values.device, N_ELEMS, casts[_i].dst, casts[_i].src};

    must(device.ops->convert(&device, &cast, &err));
    cast.dst = narrow.cpu;
    cast.src = values.cpu;
    must(cpu.ops->convert(&cpu, &cast, &err));
    cast = (struct space_cast){values.device, narrow.device, N_ELEMS, casts[_i].src, casts[_i].dst};
    must(device.ops->convert(&device, &cast, &err));
    cast.dst = values.cpu;
    cast.src = narrow.cpu;
    must(cpu.ops->convert(&cpu, &cast, &err));
    pair_same(&narrow);
    pair_same(&values);
}
END_TEST

START_TEST(copy_zero_add_and_divide_are_those_of_a_cpu)
{
    struct pair sums = floats_make(4);
    struct pair values = floats_make(5);
    uint64_t half = N_ELEMS / 2 * sizeof(float);

    must(device.ops->zero(&device, sums.device, 64, &err));
    must(cpu.ops->zero(&cpu, sums.cpu, 64, &err));
    must(device.ops->add(&device, sums.device, values.device, DTYPE_FP32, N_ELEMS, &err));
    must(cpu.ops->add(&cpu, sums.cpu, values.cpu, DTYPE_FP32, N_ELEMS, &err));
    must(device.ops->divide(&device, sums.device, 3.0f, N_ELEMS, &err));
    must(cpu.ops->divide(&cpu, sums.cpu, 3.0f, N_ELEMS, &err));
    must(device.ops->copy(&device, values.device, sums.device, half, &err));
    must(cpu.ops->copy(&cpu, values.cpu, sums.cpu, half, &err));
    pair_same(&values);
    pair_same(&sums);
}
END_TEST

START_TEST(norm_adds_up_to_the_sum_of_a_cpu)
{
    struct pair values = floats_make(6);
    struct gpu_norm found;
    struct norm_sum sum = {{0}, 0, 0};
    struct norm_sum mine = {{0}, 0, 0};
    struct space_norm norm = {
        .values = values.device, .n_elems = N_ELEMS, .p = 2.0, .divisor = 3.0f, .sum = &sum};

    must(device.ops->norm(&device, &norm, &err));
    must(device.ops->read(&device, &found, device.norm, sizeof(found), &err));
    norm.values = values.cpu;
    must(cpu.ops->norm(&cpu, &norm, &err));
    memcpy(mine.limbs, found.limbs, sizeof(mine.limbs));
    norm_sum_normalize(&mine);
    ck_assert_int_eq(memcmp(&mine, &sum, sizeof(sum)), 0);
    ck_assert_int_eq(found.n_inf, 0);
    pair_same(&values);
}
END_TEST

START_TEST(adamw_updates_as_on_a_cpu)
{
    const struct adamw_hyper hyper = {1e-3, 1e-2, 0.9, 0.95, 1e-8};
    struct adamw_constants constants = adamw_constants_compute(&hyper, 3);
    float factor = 0.75f;
    struct pair arrays[5] = {floats_make(7), floats_make(8), floats_make(9), floats_make(10),
                             pair_make(&factor, sizeof(factor))};
    struct pair copy = pair_make(NULL, N_ELEMS * dtype_bytes(DTYPE_BF16));
    struct adamw_shard shard = {.n_elems = N_ELEMS, .n_copies = 1, .copies_dtype = DTYPE_BF16};

    /* squares are not negative */
    must(device.ops->zero(&device, arrays[2].device, arrays[2].n_bytes, &err));
    must(cpu.ops->zero(&cpu, arrays[2].cpu, arrays[2].n_bytes, &err));
    shard.params = arrays[0].device;
    shard.exp_avg = arrays[1].device;
    shard.exp_avg_sq = arrays[2].device;
    shard.grads = arrays[3].device;
    shard.copies = &copy.device;
    must(device.ops->adamw(&device, &constants, &shard, arrays[4].device, &err));
    shard.params = arrays[0].cpu;
    shard.exp_avg = arrays[1].cpu;
    shard.exp_avg_sq = arrays[2].cpu;
    shard.grads = arrays[3].cpu;
    shard.copies = &copy.cpu;
    must(cpu.ops->adamw(&cpu, &constants, &shard, arrays[4].cpu, &err));
    for (int i = 0; i < 5; i++) {
        pair_same(&arrays[i]);
    }
    pair_same(&copy);
}
END_TEST

/* -------------------------------------------------------------------------------------- order */

/* A stream of the host's is slow; what follows it here sees what it has written, and back. */
START_TEST(follow_and_precede_order_a_stream_of_the_host)
{
    unsigned char found[512];
    cu_stream stream;
    void *base = NULL;

    must(device.ops->alloc(&device, sizeof(found), "this test", &base, &err));
    must(gpu_enter(&gpu, &err));
    ck_assert_int_eq(gpu.cuda.stream_create(&stream, CU_STREAM_NON_BLOCKING, 0), CU_OK);
    gpu_leave(&gpu);
    setenv("HSDP_DOUBLE_FAULTS", "slow_stream=20000", 1);
    must(gpu_fill(&gpu, base, 5, sizeof(found), stream, &err));
    must(device.ops->follow(&device, stream, &err));
    must(device.ops->read(&device, found, base, sizeof(found), &err));
    ck_assert_uint_eq(found[511], 5);
    must(device.ops->zero(&device, base, 256, &err));
    must(device.ops->precede(&device, stream, &err));
    must(gpu_fill(&gpu, (char *)base + 128, 6, 256, stream, &err));
    must(device.ops->follow(&device, stream, &err));
    must(device.ops->read(&device, found, base, sizeof(found), &err));
    ck_assert_uint_eq(found[127], 0);
    ck_assert_uint_eq(found[128], 6);
    ck_assert_uint_eq(found[384], 5);
    must(gpu_enter(&gpu, &err));
    gpu.cuda.stream_destroy(stream);
    gpu_leave(&gpu);
    device.ops->free(&device, base, sizeof(found));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("space_cuda");
    TCase *tcase = tcase_create("device");

    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, spaces_open, spaces_close);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, read_brings_back_what_was_written, 0, N_OF(sizes));
    tcase_add_test(tcase, alloc_is_zeroed_for_every_stream);
    tcase_add_test(tcase, alloc_without_memory_says_what_for);
    tcase_add_test(tcase, read_that_takes_too_long_is_ended_by_the_look);
    tcase_add_loop_test(tcase, convert_rounds_and_widens_as_a_cpu, 0, N_OF(casts));
    tcase_add_test(tcase, copy_zero_add_and_divide_are_those_of_a_cpu);
    tcase_add_test(tcase, norm_adds_up_to_the_sum_of_a_cpu);
    tcase_add_test(tcase, adamw_updates_as_on_a_cpu);
    tcase_add_test(tcase, follow_and_precede_order_a_stream_of_the_host);
    return suite;
}
