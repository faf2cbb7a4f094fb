/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces: what is done to buffers is what the kernels of the CPU do, wherever they lie. */
#include <check.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/space.h"
#include "kernel_values.h"
#include "suite.h"

static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
static const size_t sizes[] = {0, 1, 7, 1024, 8191, 20001};

enum { N_DTYPES = N_OF(dtypes), N_SIZES = N_OF(sizes) };

static struct space space;
static struct gpu gpu; /* zeroed on a CPU */
static const struct kernels *kernels;
static uint64_t seed;

static void cpu_setup(void)
{
    kernels = kernels_path(kernels_n_paths() - 1);
    space = space_cpu(kernels);
    seed = 1;
}

/* The library is what HSDP_CUDA_LIBRARY names, else the double. */
static const char *cuda_library(void)
{
    static char path[4096];
    const char *name = getenv("HSDP_CUDA_LIBRARY");
    const char *folder = getenv("HSDP_TEST_DOUBLES");

    if (name == NULL && folder != NULL) {
        snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
        name = path;
    }
    return name;
}

static int32_t seconds_look(void *user, uint64_t waited_ns, struct hsdp_error *reterr)
{
    (void)user;
    return waited_ns < UINT64_C(20000000000)
               ? HSDP_OK
               : error_set(reterr, HSDP_ERR_TIMEOUT, "the device does not come to an end");
}

static void cuda_setup(void)
{
    static const struct gpu_allocator drivers;
    const struct space_patience patience = {.look = seconds_look};
    struct hsdp_error err = HSDP_ERROR_INIT;

    cpu_setup();
    ck_assert_msg(gpu_open(cuda_library(), 0, &drivers, &gpu, &err) == HSDP_OK, "%s", err.message);
    ck_assert_msg(space_cuda(&gpu, kernels, &patience, &space, &err) == HSDP_OK, "%s", err.message);
}

/* The double has seen no two accesses that neither a stream nor an event puts in order. */
static void races_check(void)
{
    void *library = cuda_library() == NULL ? NULL : dlopen(cuda_library(), RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library == NULL ? NULL : dlsym(library, "double_n_races");
    uint64_t (*n_races)(void);

    if (symbol != NULL) {
        memcpy(&n_races, &symbol, sizeof(n_races));
        ck_assert_uint_eq(n_races(), 0);
    }
}

static void space_teardown(void)
{
    space_fini(&space);
    gpu_close(&gpu);
    races_check();
}

/* ------------------------------------------------------------------------------- fixtures */

/* A buffer of the space, and the same bytes of the host's. */
struct pair {
    void *there;
    uint8_t *here;
    uint64_t n_bytes;
};

static struct pair pair_make(enum dtype dtype, size_t n_elems)
{
    struct pair pair = {.n_bytes = n_elems * dtype_bytes(dtype)};
    float value;

    pair.here = malloc(pair.n_bytes + 1);
    ck_assert_ptr_nonnull(pair.here);
    for (size_t i = 0; i < n_elems; i++) {
        value = values_kind(&seed, (uint32_t)(i % 2 == 0 ? 3 : 4));
        kernels->from_fp32(pair.here + i * dtype_bytes(dtype), dtype, &value, 1);
    }
    ck_assert_int_eq(space.ops->alloc(&space, pair.n_bytes, "test", &pair.there, NULL), HSDP_OK);
    ck_assert_int_eq(space.ops->write(&space, pair.there, pair.here, pair.n_bytes, NULL), HSDP_OK);
    return pair;
}

static void pair_free(struct pair *pair)
{
    space.ops->free(&space, pair->there, pair->n_bytes);
    free(pair->here);
}

/* Whether both hold the same bytes. */
static void pair_check(const struct pair *pair)
{
    uint8_t *found = malloc(pair->n_bytes + 1);

    ck_assert_ptr_nonnull(found);
    ck_assert_int_eq(space.ops->read(&space, found, pair->there, pair->n_bytes, NULL), HSDP_OK);
    ck_assert_int_eq(memcmp(found, pair->here, pair->n_bytes), 0);
    free(found);
}

/* --------------------------------------------------------------------------------- memory */

START_TEST(alloc_gives_zeros)
{
    static const uint8_t zeros[4096];
    uint8_t found[4096];
    void *base = NULL;

    memset(found, 1, sizeof(found));
    ck_assert_int_eq(space.ops->alloc(&space, sizeof(found), "test", &base, NULL), HSDP_OK);
    ck_assert_int_eq(space.ops->read(&space, found, base, sizeof(found), NULL), HSDP_OK);
    ck_assert_int_eq(memcmp(found, zeros, sizeof(found)), 0);
    space.ops->free(&space, base, sizeof(found));
}
END_TEST

START_TEST(alloc_of_more_than_there_is_says_how_much_and_what)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    void *base = NULL;

    ck_assert_int_eq(space.ops->alloc(&space, UINT64_C(1) << 60, "all the states", &base, &err),
                     HSDP_ERR_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(err.message, "all the states"));
    ck_assert_ptr_nonnull(strstr(err.message, "1152921504606846976"));
    ck_assert_ptr_null(base);
    space.ops->free(&space, NULL, 8);
}
END_TEST

START_TEST(copy_and_zero_change_what_they_are_told)
{
    struct pair from = pair_make(DTYPE_FP32, 1000);
    struct pair to = pair_make(DTYPE_FP32, 1000);

    ck_assert_int_eq(
        space.ops->copy(&space, (float *)to.there + 5, (float *)from.there + 9, 400, NULL),
        HSDP_OK);
    memcpy(to.here + 20, from.here + 36, 400);
    ck_assert_int_eq(space.ops->zero(&space, (uint8_t *)to.there + 1000, 2500, NULL), HSDP_OK);
    memset(to.here + 1000, 0, 2500);
    pair_check(&to);
    pair_check(&from);
    pair_free(&from);
    pair_free(&to);
}
END_TEST

/* ----------------------------------------------------------------------------- arithmetic */

START_TEST(convert_rounds_once)
{
    enum dtype from_dtype = dtypes[_i % N_DTYPES];
    enum dtype to_dtype = dtypes[_i / N_DTYPES];

    for (int i = 0; i < N_SIZES; i++) {
        struct pair from = pair_make(from_dtype, sizes[i]);
        struct pair to = pair_make(to_dtype, sizes[i]);
        struct space_cast cast = {to.there, from.there, sizes[i], to_dtype, from_dtype};

        kernels->convert(to.here, to_dtype, from.here, from_dtype, sizes[i]);
        ck_assert_int_eq(space.ops->convert(&space, &cast, NULL), HSDP_OK);
        pair_check(&to);
        pair_free(&from);
        pair_free(&to);
    }
}
END_TEST

START_TEST(load_and_store_convert_on_the_way)
{
    enum dtype dtype = dtypes[_i % N_DTYPES];
    size_t n_elems = sizes[_i / N_DTYPES];
    struct pair pair = pair_make(dtype, n_elems);
    float *values = calloc(n_elems + 1, sizeof(*values));
    float *expected = calloc(n_elems + 1, sizeof(*expected));

    ck_assert(values != NULL && expected != NULL);
    ck_assert_int_eq(space_load(&space, values, pair.there, dtype, n_elems, NULL), HSDP_OK);
    kernels->to_fp32(expected, pair.here, dtype, n_elems);
    ck_assert_int_eq(memcmp(values, expected, n_elems * sizeof(*values)), 0);
    values_fill(&seed, values, n_elems);
    ck_assert_int_eq(space_store(&space, pair.there, dtype, values, n_elems, NULL), HSDP_OK);
    kernels->from_fp32(pair.here, dtype, values, n_elems);
    pair_check(&pair);
    free(values);
    free(expected);
    pair_free(&pair);
}
END_TEST

START_TEST(add_and_divide_are_of_fp32)
{
    enum dtype dtype = dtypes[_i % N_DTYPES];
    size_t n_elems = sizes[_i / N_DTYPES];
    struct pair from = pair_make(dtype, n_elems);
    struct pair to = pair_make(DTYPE_FP32, n_elems);

    ck_assert_int_eq(space.ops->add(&space, to.there, from.there, dtype, n_elems, NULL), HSDP_OK);
    kernels->add((float *)to.here, from.here, dtype, n_elems);
    pair_check(&to);
    ck_assert_int_eq(space.ops->divide(&space, to.there, 3.0f, n_elems, NULL), HSDP_OK);
    kernels->divide((float *)to.here, 3.0f, n_elems);
    pair_check(&to);
    pair_free(&from);
    pair_free(&to);
}
END_TEST

/* Denormals are kept, whatever the host has set. */
START_TEST(arithmetic_is_not_the_hosts)
{
    static const float least = 0x1p-149f;
    float found = 0.0f;
    struct pair pair = pair_make(DTYPE_FP32, 1);

    ck_assert_int_eq(space.ops->write(&space, pair.there, &least, sizeof(least), NULL), HSDP_OK);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x9fc0); /* denormals are zeros */
#endif
    ck_assert_int_eq(space.ops->add(&space, pair.there, pair.there, DTYPE_FP32, 1, NULL), HSDP_OK);
    ck_assert_int_eq(space.ops->divide(&space, pair.there, 2.0f, 1, NULL), HSDP_OK);
#if defined(__x86_64__)
    ck_assert_uint_eq(__builtin_ia32_stmxcsr(), 0x9fc0);
    __builtin_ia32_ldmxcsr(0x1f80);
#endif
    ck_assert_int_eq(space.ops->read(&space, &found, pair.there, sizeof(found), NULL), HSDP_OK);
    ck_assert(found == least);
    pair_free(&pair);
}
END_TEST

/* ------------------------------------------------------------------------------------ norm */

static const double powers[] = {1.0, 2.0, 3.5, INFINITY};

enum { N_POWERS = N_OF(powers) };

static const float divisors[] = {1.0f, 3.0f, 8.0f};

enum { N_DIVISORS = N_OF(divisors) };

/* What a space has added up. */
struct found {
    struct norm_sum sum;
    uint64_t max_bits;
};

static void norm_take(struct found *found, const struct pair *pair, struct space_norm norm)
{
    norm.sum = &found->sum;
    norm.max_bits = &found->max_bits;
    norm.values = pair->there;
    norm.n_elems = pair->n_bytes / sizeof(float);
    ck_assert_int_eq(space.ops->norm(&space, &norm, NULL), HSDP_OK);
}

/* What a device has added up lies there, and is not normalised. */
static void norm_fetch(struct found *found)
{
    struct gpu_norm norm;

    if (space.ops->is_host) {
        return;
    }
    ck_assert_int_eq(space.ops->read(&space, &norm, space.norm, sizeof(norm), NULL), HSDP_OK);
    memcpy(found->sum.limbs, norm.limbs, sizeof(norm.limbs));
    found->sum.n_inf = norm.n_inf;
    found->sum.n_nan = norm.n_nan;
    found->max_bits = norm.max_bits;
    norm_sum_normalize(&found->sum);
}

static void norm_expect(struct found *expected, struct pair *pair, const struct space_norm *norm)
{
    uint64_t n_elems = pair->n_bytes / sizeof(float);
    float *quotients = calloc(n_elems + 1, sizeof(*quotients));
    float largest;
    uint32_t bits;

    ck_assert_ptr_nonnull(quotients);
    memcpy(quotients, pair->here, pair->n_bytes);
    kernels->divide(quotients, norm->divisor, n_elems);
    largest = kernels->max_abs(quotients, n_elems);
    memcpy(&bits, &largest, sizeof(bits));
    if (isinf(norm->p)) {
        expected->max_bits = bits > expected->max_bits ? bits : expected->max_bits;
    } else {
        kernels->norm_add(&expected->sum, quotients, n_elems, norm->p);
    }
    if (norm->is_divided) {
        memcpy(pair->here, quotients, pair->n_bytes);
    }
    free(quotients);
}

START_TEST(norm_adds_up_quotients_and_leaves_sums_unless_told)
{
    struct space_norm norm = {.p = powers[_i % N_POWERS],
                              .divisor = divisors[_i / N_POWERS % N_DIVISORS],
                              .is_divided = _i / N_POWERS / N_DIVISORS == 1};
    struct pair a = pair_make(DTYPE_FP32, 20001);
    struct pair b = pair_make(DTYPE_FP32, 5);
    struct found expected = {.max_bits = 0};
    struct found found = {.max_bits = 0};

    norm_take(&found, &a, norm);
    norm_take(&found, &b, norm);
    norm_fetch(&found);
    norm_expect(&expected, &a, &norm);
    norm_expect(&expected, &b, &norm);
    ck_assert_int_eq(memcmp(&found, &expected, sizeof(found)), 0);
    pair_check(&a);
    pair_check(&b);
    pair_free(&a);
    pair_free(&b);
}
END_TEST

/* ----------------------------------------------------------------------------------- adamw */

START_TEST(adamw_updates_shard_and_copy)
{
    static const struct adamw_hyper hyper = {0.01, 0.1, 0.9, 0.95, 1e-8};
    struct adamw_constants constants = adamw_constants_compute(&hyper, 3);
    enum dtype dtype = dtypes[_i];
    size_t n_elems = 1003;
    struct pair params = pair_make(dtype, n_elems);
    struct pair exp_avg = pair_make(DTYPE_FP32, n_elems);
    struct pair exp_avg_sq = pair_make(DTYPE_FP32, n_elems);
    struct pair grads = pair_make(DTYPE_FP32, n_elems);
    struct pair copy = pair_make(DTYPE_BF16, n_elems);
    struct pair factor = pair_make(DTYPE_FP32, 1);
    struct adamw_shard shard = {.params = params.here,
                                .exp_avg = (float *)exp_avg.here,
                                .exp_avg_sq = (float *)exp_avg_sq.here,
                                .grads = (const float *)grads.here,
                                .n_elems = n_elems,
                                .copies = (void *const *)&copy.here,
                                .n_copies = 1,
                                .copies_dtype = DTYPE_BF16,
                                .params_dtype = dtype,
                                .grads_divisor = 3.0f};

    memset(exp_avg_sq.here, 0, exp_avg_sq.n_bytes);
    ck_assert_int_eq(space.ops->zero(&space, exp_avg_sq.there, exp_avg_sq.n_bytes, NULL), HSDP_OK);
    kernels->adamw(&constants, &shard, *(const float *)factor.here);
    shard.params = params.there;
    shard.exp_avg = exp_avg.there;
    shard.exp_avg_sq = exp_avg_sq.there;
    shard.grads = grads.there;
    shard.copies = (void *const *)&copy.there;
    ck_assert_int_eq(space.ops->adamw(&space, &constants, &shard, factor.there, NULL), HSDP_OK);
    pair_check(&params);
    pair_check(&exp_avg);
    pair_check(&exp_avg_sq);
    pair_check(&grads);
    pair_check(&copy);
    pair_free(&params);
    pair_free(&exp_avg);
    pair_free(&exp_avg_sq);
    pair_free(&grads);
    pair_free(&copy);
    pair_free(&factor);
}
END_TEST

START_TEST(streams_of_the_host_are_followed_and_preceded)
{
    struct pair pair = pair_make(DTYPE_FP32, 100);

    ck_assert_int_eq(space.ops->follow(&space, NULL, NULL), HSDP_OK);
    ck_assert_int_eq(space.ops->zero(&space, pair.there, pair.n_bytes, NULL), HSDP_OK);
    ck_assert_int_eq(space.ops->precede(&space, NULL, NULL), HSDP_OK);
    ck_assert_int_eq(space.ops->wait(&space, NULL), HSDP_OK);
    memset(pair.here, 0, pair.n_bytes);
    pair_check(&pair);
    pair_free(&pair);
}
END_TEST

START_TEST(norm_of_what_is_not_finite_says_so)
{
    static const float values[] = {1.0f, -INFINITY, NAN, INFINITY};
    struct space_norm norm = {.p = powers[_i], .divisor = 2.0f};
    struct pair pair = pair_make(DTYPE_FP32, 4);
    struct found expected = {.max_bits = 0};
    struct found found = {.max_bits = 0};

    memcpy(pair.here, values, sizeof(values));
    ck_assert_int_eq(space.ops->write(&space, pair.there, values, sizeof(values), NULL), HSDP_OK);
    norm_take(&found, &pair, norm);
    norm_fetch(&found);
    norm_expect(&expected, &pair, &norm);
    ck_assert_mem_eq(&found.sum, &expected.sum, sizeof(found.sum));
    ck_assert(isinf(norm.p) ? found.max_bits > 0x7f800000 : found.max_bits == 0);
    pair_free(&pair);
}
END_TEST

static TCase *tcase_of(const char *name, void (*setup)(void))
{
    TCase *tcase = tcase_create(name);

    tcase_add_checked_fixture(tcase, setup, space_teardown);
    tcase_add_test(tcase, alloc_gives_zeros);
    tcase_add_test(tcase, alloc_of_more_than_there_is_says_how_much_and_what);
    tcase_add_test(tcase, copy_and_zero_change_what_they_are_told);
    tcase_add_loop_test(tcase, convert_rounds_once, 0, N_DTYPES * N_DTYPES);
    tcase_add_loop_test(tcase, load_and_store_convert_on_the_way, 0, N_DTYPES * N_SIZES);
    tcase_add_loop_test(tcase, add_and_divide_are_of_fp32, 0, N_DTYPES * N_SIZES);
    tcase_add_test(tcase, arithmetic_is_not_the_hosts);
    tcase_add_loop_test(tcase, norm_adds_up_quotients_and_leaves_sums_unless_told, 0,
                        N_POWERS * N_DIVISORS * 2);
    tcase_add_loop_test(tcase, norm_of_what_is_not_finite_says_so, 0, N_POWERS);
    tcase_add_loop_test(tcase, adamw_updates_shard_and_copy, 0, N_DTYPES);
    tcase_add_test(tcase, streams_of_the_host_are_followed_and_preceded);
    return tcase;
}

Suite *module_suite(void)
{
    Suite *suite = suite_create("space");

    suite_add_tcase(suite, tcase_of("cpu", cpu_setup));
    if (cuda_library() != NULL) {
        suite_add_tcase(suite, tcase_of("cuda", cuda_setup));
    }
    return suite;
}
