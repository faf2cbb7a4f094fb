/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the devices, as the double runs them, against those of the CPU: bit for bit. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "device/cast.h"
#include "device/reduce.h"
#include "doubles/double.h"
#include "kernel_arrays.h"
#include "suite.h"

static void cast_check(const struct setting *s)
{
    uint64_t state = s->seed;

    for (uint32_t k = 0; k < 9; k++) {
        int32_t from = dtypes[k / 3];
        int32_t to = dtypes[k % 3];
        struct array src = array_create(from, s->n_elems, s->shifts[0]);
        struct array dst = array_create(to, s->n_elems, s->shifts[1]);
        struct array expected = array_create(to, s->n_elems, 0);
        struct gpu_cast_args args = {dst.values, src.values, s->n_elems, to, from};

        array_fill(&src, from, &state, VALUES_N_KINDS);
        cast_convert(expected.values, (enum dtype)to, src.values, (enum dtype)from, s->n_elems);
        kernel_run(GPU_CAST, &args, s->grid);
        arrays_check_equal(&dst, &expected, to);
        array_check_guards(&dst);
        array_destroy(&src);
        array_destroy(&dst);
        array_destroy(&expected);
    }
}

START_TEST(cast_of_any_values_equals_the_cpu)
{
    each_setting(cast_check);
}
END_TEST

static void add_check(const struct setting *s)
{
    uint64_t state = s->seed;

    for (uint32_t k = 0; k < 3; k++) {
        struct array src = array_create(dtypes[k], s->n_elems, s->shifts[1]);
        struct array dst = array_create(DTYPE_FP32, s->n_elems, s->shifts[2]);
        struct array expected;
        struct gpu_add_args args = {dst.values, src.values, s->n_elems, dtypes[k], 0};

        array_fill(&src, dtypes[k], &state, VALUES_N_KINDS);
        array_fill(&dst, DTYPE_FP32, &state, k + 1);
        expected = array_copy(&dst, DTYPE_FP32, 0);
        reduce_add(expected.values, src.values, (enum dtype)dtypes[k], s->n_elems);
        kernel_run(GPU_ADD, &args, s->grid);
        arrays_check_equal(&dst, &expected, DTYPE_FP32);
        array_check_guards(&dst);
        array_destroy(&src);
        array_destroy(&dst);
        array_destroy(&expected);
    }
}

START_TEST(add_of_any_values_equals_the_cpu)
{
    each_setting(add_check);
}
END_TEST

/* first + second in fp32, what is NULL left out, then rounded. */
static struct array combine_expected(const struct gpu_combine_args *args)
{
    struct array sum = array_create(DTYPE_FP32, args->n_elems, 0);
    struct array rounded = array_create(args->dst_dtype, args->n_elems, 0);

    memset(sum.values, 0, sum.n_bytes);
    if (args->first != NULL && args->n_elems != 0) {
        memcpy(sum.values, args->first, sum.n_bytes);
    }
    if (args->first != NULL && args->second != NULL) {
        reduce_add(sum.values, args->second, (enum dtype)args->second_dtype, args->n_elems);
    } else if (args->second != NULL) {
        cast_to_fp32(sum.values, args->second, (enum dtype)args->second_dtype, args->n_elems);
    }
    cast_from_fp32(rounded.values, (enum dtype)args->dst_dtype, sum.values, args->n_elems);
    array_destroy(&sum);
    return rounded;
}

static void combine_check(const struct setting *s)
{
    uint64_t state = s->seed;

    for (uint32_t k = 0; k < 36; k++) {
        int32_t to = dtypes[k % 3];
        int32_t second_dtype = dtypes[k / 3 % 3];
        struct array first = array_create(DTYPE_FP32, s->n_elems, s->shifts[0]);
        struct array second = array_create(second_dtype, s->n_elems, s->shifts[1]);
        struct array dst = array_create(to, s->n_elems, s->shifts[2]);
        struct gpu_combine_args args = {dst.values,
                                        (k / 9 & 1) != 0 ? first.values : NULL,
                                        (k / 18 & 1) != 0 ? second.values : NULL,
                                        s->n_elems,
                                        to,
                                        second_dtype};
        struct array expected;

        array_fill(&first, DTYPE_FP32, &state, VALUES_N_KINDS);
        array_fill(&second, second_dtype, &state, 3);
        expected = combine_expected(&args);
        if (to == DTYPE_FP32 && args.first != NULL && (s->seed & 1) != 0) {
            args.dst = first.values; /* in place */
            kernel_run(GPU_COMBINE, &args, s->grid);
            arrays_check_equal(&first, &expected, to);
        } else {
            kernel_run(GPU_COMBINE, &args, s->grid);
            arrays_check_equal(&dst, &expected, to);
        }
        array_check_guards(&first);
        array_check_guards(&dst);
        array_destroy(&first);
        array_destroy(&second);
        array_destroy(&dst);
        array_destroy(&expected);
    }
}

START_TEST(combine_of_what_is_there_is_rounded_once)
{
    each_setting(combine_check);
}
END_TEST

static void divide_check(const struct setting *s)
{
    static const float divisors[] = {1.0f, 8.0f, 3.0f, 0x1p-126f, 0x1p127f, 0x1p-130f, 24.0f};
    uint64_t state = s->seed;

    for (uint32_t k = 0; k < sizeof(divisors) / sizeof(*divisors); k++) {
        struct array values = array_create(DTYPE_FP32, s->n_elems, s->shifts[3]);
        struct array expected;
        struct gpu_divide_args args = {values.values, s->n_elems, divisors[k], 0};

        array_fill(&values, DTYPE_FP32, &state, VALUES_N_KINDS);
        expected = array_copy(&values, DTYPE_FP32, 0);
        reduce_divide(expected.values, divisors[k], s->n_elems);
        kernel_run(GPU_DIVIDE, &args, s->grid);
        arrays_check_equal(&values, &expected, DTYPE_FP32);
        array_check_guards(&values);
        array_destroy(&values);
        array_destroy(&expected);
    }
}

START_TEST(divide_by_any_divisor_equals_the_cpu)
{
    each_setting(divide_check);
}
END_TEST

/* ------------------------------------------------------------------------------------- tree */

struct mesh {
    uint32_t n_dims;
    uint32_t sizes[GPU_TREE_MAX_DIMS];
};

static const struct mesh meshes[] = {
    {0, {0}},
    {1, {1}},
    {1, {2}},
    {1, {3}},
    {1, {4}},
    {1, {5}},
    {1, {7}},
    {1, {8}},
    {1, {9}},
    {1, {23}},
    {1, {63}},
    {1, {64}},
    {2, {2, 3}},
    {2, {3, 2}},
    {2, {5, 8}},
    {2, {3, 21}},
    {3, {3, 3, 7}},
    {3, {1, 6, 4}},
    {4, {2, 3, 2, 5}},
    {6, {2, 2, 2, 2, 2, 2}},
    {8, {1, 2, 1, 3, 1, 2, 1, 3}},
};

enum { N_MESHES = sizeof(meshes) / sizeof(*meshes) };

static uint32_t mesh_ranks(const struct mesh *mesh)
{
    uint32_t n_ranks = 1;

    for (uint32_t dim = 0; dim < mesh->n_dims; dim++) {
        n_ranks *= mesh->sizes[dim];
    }
    return n_ranks;
}

static void tree_expected(const struct gpu_tree_args *args, uint32_t n_sources, float *dst)
{
    const void *sources[GPU_TREE_MAX_SOURCES];
    struct reduce_spec spec = {
        .dst = dst,
        .sources = sources,
        .dim_sizes = args->dim_sizes,
        .n_elems = args->n_elems,
        .source_dtype = (enum dtype)args->source_dtype,
        .wire_dtype = (enum dtype)args->source_dtype,
        .n_dims = args->n_dims,
        .accumulate = args->is_added != 0,
    };

    for (uint32_t i = 0; i < n_sources; i++) {
        sources[i] = (const char *)args->sources + i * args->stride_bytes;
    }
    reduce_tree(&spec);
}

static void tree_check_mesh(const struct setting *s, const struct mesh *mesh, int32_t dtype)
{
    const uint32_t n_sources = mesh_ranks(mesh);
    /* a stride of elements that is a multiple of 16 bytes, or not */
    uint64_t stride = (s->n_elems + 7) / 8 * 8 + s->shifts[4];
    uint64_t state = s->seed + n_sources;
    struct array sources = array_create(dtype, stride * n_sources, s->shifts[0]);
    struct array dst = array_create(DTYPE_FP32, s->n_elems, s->shifts[1]);
    struct gpu_tree_args args = {
        .dst = dst.values,
        .sources = sources.values,
        .stride_bytes = stride * elem_bytes(dtype),
        .n_elems = s->n_elems,
        .n_dims = mesh->n_dims,
        .source_dtype = dtype,
        .is_added = (uint32_t)(s->seed ^ n_sources) & 1,
    };
    struct array expected;

    memcpy(args.dim_sizes, mesh->sizes, sizeof(args.dim_sizes));
    array_fill(&sources, dtype, &state, (uint32_t)s->seed % 2 == 0 ? 3 : VALUES_N_KINDS);
    array_fill(&dst, DTYPE_FP32, &state, 3);
    expected = array_copy(&dst, DTYPE_FP32, 0);
    tree_expected(&args, n_sources, expected.values);
    kernel_run(GPU_TREE, &args, s->grid);
    arrays_check_equal(&dst, &expected, DTYPE_FP32);
    array_check_guards(&dst);
    array_destroy(&sources);
    array_destroy(&dst);
    array_destroy(&expected);
}

static void tree_check(const struct setting *s)
{
    for (uint32_t i = 0; i < N_MESHES; i++) {
        tree_check_mesh(s, &meshes[i], dtypes[(i + s->seed) % 3]);
    }
}

START_TEST(tree_of_any_mesh_adds_in_the_order_of_the_cpu)
{
    each_setting(tree_check);
}
END_TEST

/* --------------------------------------------------------------------------------- accesses */

static void accesses_check(enum gpu_kernel kernel, const void *args,
                           const struct double_access *expected, uint32_t n_expected)
{
    struct double_access found[DOUBLE_MAX_ACCESSES];
    uint32_t n_found = double_kernels[kernel].accesses(args, found, DOUBLE_MAX_ACCESSES);

    ck_assert_uint_eq(n_found, n_expected);
    for (uint32_t i = 0; i < n_found; i++) {
        ck_assert_ptr_eq(found[i].address, expected[i].address);
        ck_assert_uint_eq(found[i].n_bytes, expected[i].n_bytes);
        ck_assert_uint_eq(found[i].is_write, expected[i].is_write);
    }
    ck_assert_uint_le(double_kernels[kernel].accesses(args, found, 1), 1);
}

static void *address(uintptr_t number)
{
    return (void *)number;
}

START_TEST(accesses_of_arrays_are_their_bytes)
{
    struct gpu_cast_args cast = {address(64), address(4096), 10, DTYPE_BF16, DTYPE_FP32};
    struct gpu_add_args add = {address(64), address(4096), 10, DTYPE_FP16, 0};
    struct gpu_combine_args combine = {address(64), NULL,       address(4096),
                                       10,          DTYPE_BF16, DTYPE_FP16};
    struct gpu_divide_args divide = {address(64), 0, 2.0f, 0};

    accesses_check(GPU_CAST, &cast,
                   (struct double_access[]){{address(64), 20, 1, 0}, {address(4096), 40, 0, 0}}, 2);
    accesses_check(GPU_ADD, &add,
                   (struct double_access[]){{address(64), 40, 1, 0}, {address(4096), 20, 0, 0}}, 2);
    accesses_check(GPU_COMBINE, &combine,
                   (struct double_access[]){{address(64), 20, 1, 0}, {address(4096), 20, 0, 0}}, 2);
    accesses_check(GPU_DIVIDE, &divide, NULL, 0);
}
END_TEST

START_TEST(accesses_of_a_tree_are_its_sources)
{
    struct gpu_tree_args tree = {.dst = address(64),
                                 .sources = address(4096),
                                 .stride_bytes = 256,
                                 .n_elems = 10,
                                 .dim_sizes = {3, 1},
                                 .n_dims = 2,
                                 .source_dtype = DTYPE_BF16};

    accesses_check(GPU_TREE, &tree,
                   (struct double_access[]){{address(64), 40, 1, 0},
                                            {address(4096), 20, 0, 0},
                                            {address(4352), 20, 0, 0},
                                            {address(4608), 20, 0, 0}},
                   4);
    tree.dim_sizes[0] = GPU_TREE_MAX_SOURCES;
    ck_assert_uint_eq(
        double_kernels[GPU_TREE].accesses(&tree, (struct double_access[DOUBLE_MAX_ACCESSES]){{0}},
                                          DOUBLE_MAX_ACCESSES),
        GPU_TREE_MAX_SOURCES + 1);
}
END_TEST

START_TEST(accesses_of_norm_and_step_are_all_that_they_read)
{
    struct gpu_norm_args norm = {address(64), address(4096), 10, 2.0, 1.0f, 0};
    struct gpu_step_args step = {.view = address(64),
                                 .parts = address(4096),
                                 .weighed = address(128),
                                 .stride_bytes = 1024,
                                 .n_parts = 2,
                                 .n_weighed = 1};

    accesses_check(GPU_NORM, &norm,
                   (struct double_access[]){{address(64), sizeof(struct gpu_norm), 1, 0},
                                            {address(4096), 40, 0, 0}},
                   2);
    norm.is_divided = 1;
    accesses_check(GPU_NORM, &norm,
                   (struct double_access[]){{address(64), sizeof(struct gpu_norm), 1, 0},
                                            {address(4096), 40, 1, 0}},
                   2);
    accesses_check(GPU_STEP, &step,
                   (struct double_access[]){{address(64), 8, 1, 0},
                                            {address(128), 4, 0, 0},
                                            {address(4096), sizeof(struct gpu_step_part), 0, 0},
                                            {address(5120), sizeof(struct gpu_step_part), 0, 0}},
                   4);
}
END_TEST

START_TEST(accesses_of_adamw_are_all_arrays)
{
    struct gpu_adamw_args adamw = {.params = address(1024),
                                   .exp_avg = address(2048),
                                   .exp_avg_sq = address(3072),
                                   .grads = address(4096),
                                   .copy = address(5120),
                                   .factor = address(64),
                                   .n_elems = 10,
                                   .params_dtype = DTYPE_FP32,
                                   .copy_dtype = DTYPE_BF16};

    accesses_check(GPU_ADAMW, &adamw,
                   (struct double_access[]){{address(1024), 40, 1, 0},
                                            {address(2048), 40, 1, 0},
                                            {address(3072), 40, 1, 0},
                                            {address(5120), 20, 1, 0},
                                            {address(4096), 40, 0, 0},
                                            {address(64), 4, 0, 0}},
                   6);
}
END_TEST

START_TEST(table_names_every_kernel)
{
    ck_assert_uint_eq(double_n_kernels, GPU_N_KERNELS);
    ck_assert_str_eq(double_kernels[GPU_CAST].symbol, "hsdp_cast");
    ck_assert_str_eq(double_kernels[GPU_ADAMW].symbol, "hsdp_adamw");
    ck_assert_uint_eq(double_kernels[GPU_ADAMW].args_bytes, sizeof(struct gpu_adamw_args));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpu_kernels");
    TCase *tcase = tcase_create("core");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, cast_of_any_values_equals_the_cpu);
    tcase_add_test(tcase, add_of_any_values_equals_the_cpu);
    tcase_add_test(tcase, combine_of_what_is_there_is_rounded_once);
    tcase_add_test(tcase, divide_by_any_divisor_equals_the_cpu);
    tcase_add_test(tcase, tree_of_any_mesh_adds_in_the_order_of_the_cpu);
    tcase_add_test(tcase, accesses_of_arrays_are_their_bytes);
    tcase_add_test(tcase, accesses_of_a_tree_are_its_sources);
    tcase_add_test(tcase, accesses_of_norm_and_step_are_all_that_they_read);
    tcase_add_test(tcase, accesses_of_adamw_are_all_arrays);
    tcase_add_test(tcase, table_names_every_kernel);
    suite_add_tcase(suite, tcase);
    return suite;
}
