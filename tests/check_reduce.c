/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical tree against its definition, written out literally, bit for bit. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/cast.h"
#include "device/half.h"
#include "device/reduce.h"
#include "kernel_values.h"
#include "suite.h"

enum { MAX_ELEMS = 1100, N_DTYPES = 3 };

/* Sources in memory of their own, and the spec that adds them up. */
struct tree {
    uint32_t dim_sizes[REDUCE_MAX_DIMS];
    const void *sources[REDUCE_MAX_SOURCES];
    float storage[REDUCE_MAX_SOURCES][MAX_ELEMS];
    float dst[MAX_ELEMS];
    float expected[MAX_ELEMS];
    uint32_t n_sources;
    struct reduce_spec spec;
};

static struct tree tree; /* every test runs in a process of its own */

static void tree_set(const uint32_t *dim_sizes, uint32_t n_dims)
{
    memset(&tree, 0, sizeof(tree));
    tree.n_sources = 1;
    for (uint32_t dim = 0; dim < n_dims; dim++) {
        tree.dim_sizes[dim] = dim_sizes[dim];
        tree.n_sources *= dim_sizes[dim];
    }
    for (uint32_t source = 0; source < tree.n_sources; source++) {
        tree.sources[source] = tree.storage[source];
    }
    tree.spec.dst = tree.dst;
    tree.spec.sources = tree.sources;
    tree.spec.dim_sizes = tree.dim_sizes;
    tree.spec.n_dims = n_dims;
}

static void tree_fill(uint64_t *state, enum dtype source_dtype, enum dtype wire, size_t n_elems)
{
    float values[MAX_ELEMS];

    tree.spec.source_dtype = source_dtype;
    tree.spec.wire_dtype = wire;
    tree.spec.n_elems = n_elems;
    for (uint32_t source = 0; source < tree.n_sources; source++) {
        values_fill(state, values, MAX_ELEMS);
        cast_from_fp32(tree.storage[source], source_dtype, values, MAX_ELEMS);
    }
    values_fill(state, tree.dst, MAX_ELEMS);
}

static float wire_round(float value, enum dtype wire)
{
    switch (wire) {
    case DTYPE_BF16:
        return bf16_to_fp32(bf16_from_fp32(value));
    case DTYPE_FP16:
        return fp16_to_fp32(fp16_from_fp32(value));
    default:
        return value;
    }
}

static float source_value(const struct reduce_spec *spec, uint32_t source, size_t elem)
{
    const void *values = spec->sources[source];
    float value = 0.0f;

    if (values != NULL) {
        cast_to_fp32(&value, (const char *)values + elem * dtype_bytes(spec->source_dtype),
                     spec->source_dtype, 1);
    }
    return wire_round(value, spec->wire_dtype);
}

/* The loop of the definition over n values; the sum ends in x[0]. */
static void literal_add(float *x, uint32_t n)
{
    for (uint32_t s = 1; s < n; s *= 2) {
        for (uint32_t i = 0; i + s < n; i += 2 * s) {
            x[i] += x[i + s];
        }
    }
}

/* Innermost dimension first; each leaves one value per row, which the next one takes as its own. */
static float literal_tree(const struct reduce_spec *spec, uint32_t n_sources, size_t elem)
{
    float x[REDUCE_MAX_SOURCES];

    for (uint32_t source = 0; source < n_sources; source++) {
        x[source] = source_value(spec, source, elem);
    }
    for (uint32_t dim = spec->n_dims; dim-- > 0;) {
        uint32_t size = spec->dim_sizes[dim];

        n_sources /= size;
        for (uint32_t row = 0; row < n_sources; row++) {
            literal_add(&x[row * size], size);
            x[row] = x[row * size];
        }
    }
    return x[0];
}

/* Runs the tree and compares all of dst, behind its end too. */
static void tree_assert(void)
{
    const struct reduce_spec *spec = &tree.spec;

    memcpy(tree.expected, spec->dst, sizeof(tree.expected));
    for (size_t i = 0; i < spec->n_elems; i++) {
        float sum = literal_tree(spec, tree.n_sources, i);

        tree.expected[i] = spec->accumulate ? tree.expected[i] + sum : sum;
    }
    reduce_tree(spec);
    ck_assert_mem_eq(spec->dst, tree.expected, sizeof(tree.expected));
}

/* One element of each of n fp32 sources. */
static float tree_of(const float *values, const uint32_t *dim_sizes, uint32_t n_dims,
                     enum dtype wire)
{
    tree_set(dim_sizes, n_dims);
    for (uint32_t source = 0; source < tree.n_sources; source++) {
        tree.storage[source][0] = values[source];
    }
    tree.spec.n_elems = 1;
    tree.spec.wire_dtype = wire;
    reduce_tree(&tree.spec);
    return tree.dst[0];
}

START_TEST(reduce_tree_of_one_dimension_is_its_definition)
{
    static const size_t sizes[] = {0, 1, 7, 513};
    uint32_t n = (uint32_t)_i;
    uint64_t state = n;

    for (int pair = 0; pair < N_DTYPES * N_DTYPES; pair++) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            tree_set(&n, 1);
            tree_fill(&state, (enum dtype)(pair / N_DTYPES), (enum dtype)(pair % N_DTYPES),
                      sizes[k]);
            tree_assert();
        }
    }
}
END_TEST

/* Random dimensions with at most 64 sources together. */
static void tree_set_random(uint64_t *state)
{
    uint32_t dim_sizes[REDUCE_MAX_DIMS];
    uint32_t n_dims = values_below(state, REDUCE_MAX_DIMS + 1);
    uint32_t room = REDUCE_MAX_SOURCES;

    for (uint32_t dim = 0; dim < n_dims; dim++) {
        dim_sizes[dim] = 1 + values_below(state, room < 5 ? room : 5);
        room /= dim_sizes[dim];
    }
    tree_set(dim_sizes, n_dims);
}

START_TEST(reduce_tree_of_any_dimensions_is_its_definition)
{
    static const size_t sizes[] = {0, 1, 7, 8, 511, 512, 513, 1025};
    uint64_t state = (uint64_t)_i;

    for (int trial = 0; trial < 60; trial++) {
        tree_set_random(&state);
        tree_fill(&state, (enum dtype)values_below(&state, N_DTYPES),
                  (enum dtype)values_below(&state, N_DTYPES), sizes[values_below(&state, 8)]);
        for (uint32_t source = 0; source < tree.n_sources; source++) {
            if (values_below(&state, 4) == 0) {
                tree.sources[source] = NULL;
            }
        }
        tree.spec.accumulate = values_below(&state, 2) == 0;
        tree_assert();
    }
}
END_TEST

START_TEST(reduce_tree_into_a_source_is_its_definition)
{
    uint64_t state = (uint64_t)_i;

    for (int trial = 0; trial < 20; trial++) {
        tree_set_random(&state);
        tree_fill(&state, DTYPE_FP32, (enum dtype)values_below(&state, N_DTYPES), 1025);
        tree.spec.dst = tree.storage[values_below(&state, tree.n_sources)];
        tree.spec.accumulate = values_below(&state, 2) == 0;
        tree_assert();
    }
}
END_TEST

START_TEST(reduce_tree_adds_pairs_not_one_after_another)
{
    const float values[] = {0x1p24f, 1.0f, 1.0f, 1.0f};

    ck_assert_float_eq(((values[0] + values[1]) + values[2]) + values[3], 0x1p24f);
    ck_assert_float_eq(tree_of(values, (const uint32_t[]){4}, 1, DTYPE_FP32), 0x1.000002p24f);
}
END_TEST

START_TEST(reduce_tree_carries_the_odd_one)
{
    /* ((1 - 2^24) + (2^24 + 1)) + 1; the odd one added to its neighbour first would give 1 */
    const float values[] = {1.0f, -0x1p24f, 0x1p24f, 1.0f, 1.0f};

    ck_assert_float_eq(tree_of(values, (const uint32_t[]){5}, 1, DTYPE_FP32), 2.0f);
}
END_TEST

START_TEST(reduce_tree_adds_one_dimension_after_another)
{
    /* {6}: ((2^24 + 1) + (1 + 1)) + (1 - 2^24); {2, 3}: ((2^24 + 1) + 1) + ((1 + 1) - 2^24) */
    const float values[] = {0x1p24f, 1.0f, 1.0f, 1.0f, 1.0f, -0x1p24f};

    ck_assert_float_eq(tree_of(values, (const uint32_t[]){6}, 1, DTYPE_FP32), 3.0f);
    ck_assert_float_eq(tree_of(values, (const uint32_t[]){3, 2}, 2, DTYPE_FP32), 3.0f);
    ck_assert_float_eq(tree_of(values, (const uint32_t[]){2, 3}, 2, DTYPE_FP32), 2.0f);
}
END_TEST

START_TEST(reduce_tree_of_inner_powers_of_two_is_that_of_the_product)
{
    float values[48];
    uint64_t state = (uint64_t)_i;
    float flat;

    values_fill(&state, values, 48);
    flat = tree_of(values, (const uint32_t[]){48}, 1, DTYPE_FP32);
    ck_assert_float_eq(tree_of(values, (const uint32_t[]){3, 16}, 2, DTYPE_FP32), flat);
    ck_assert_float_eq(tree_of(values, (const uint32_t[]){12, 4}, 2, DTYPE_FP32), flat);
    ck_assert_float_eq(tree_of(values, (const uint32_t[]){3, 4, 1, 2, 2}, 5, DTYPE_FP32), flat);
}
END_TEST

START_TEST(reduce_tree_rounds_sources_and_not_sums)
{
    const float values[] = {256.0f, 1.0f, -256.0f};
    const float fine[] = {257.0f, 1.0f};

    /* 257 is no bf16: rounding sums would give 0, for fp16 2048 + 1 likewise */
    ck_assert_float_eq(tree_of(values, (const uint32_t[]){3}, 1, DTYPE_BF16), 1.0f);
    ck_assert_float_eq(tree_of(fine, (const uint32_t[]){2}, 1, DTYPE_BF16), 257.0f);
    ck_assert_float_eq(tree_of(fine, (const uint32_t[]){1}, 1, DTYPE_BF16), 256.0f);
    ck_assert_float_eq(tree_of(fine, (const uint32_t[]){1}, 1, DTYPE_FP32), 257.0f);
}
END_TEST

START_TEST(reduce_tree_of_absent_sources_is_plus_zero)
{
    tree_set((const uint32_t[]){2}, 1);
    tree.spec.n_elems = 600;
    tree.sources[0] = NULL;
    for (size_t i = 0; i < 600; i++) {
        tree.storage[1][i] = -0.0f;
        tree.dst[i] = NAN;
    }
    reduce_tree(&tree.spec);
    for (size_t i = 0; i < 600; i++) {
        ck_assert_uint_eq(fp32_bits(tree.dst[i]), 0);
    }
}
END_TEST

START_TEST(reduce_tree_of_one_source_stores_and_does_not_add)
{
    const float minus_zero = -0.0f;

    ck_assert_uint_eq(fp32_bits(tree_of(&minus_zero, NULL, 0, DTYPE_BF16)), 0x80000000);
    tree.dst[0] = NAN;
    reduce_tree(&tree.spec);
    ck_assert_uint_eq(fp32_bits(tree.dst[0]), 0x80000000);
    tree.spec.accumulate = true;
    tree.dst[0] = 0.0f;
    reduce_tree(&tree.spec);
    ck_assert_uint_eq(fp32_bits(tree.dst[0]), 0);
}
END_TEST

START_TEST(reduce_tree_accumulates_the_finished_sum)
{
    const float ones[] = {1.0f, 1.0f};

    tree_of(ones, (const uint32_t[]){2}, 1, DTYPE_FP32);
    tree.spec.accumulate = true;
    tree.dst[0] = 0x1p24f; /* to which 1, twice, would add nothing */
    reduce_tree(&tree.spec);
    ck_assert_float_eq(tree.dst[0], 0x1.000002p24f);
}
END_TEST

/* One rank alone in its group: what comes out is what went in. */
static const size_t one_rank_sizes[] = {1, 2, 7, 8, 9, 1023, 1025};

enum { N_ONE_RANK_SIZES = sizeof(one_rank_sizes) / sizeof(one_rank_sizes[0]) };

static void one_rank_set(uint16_t *halves, size_t n_elems)
{
    uint64_t state = 7;

    for (size_t i = 0; i < n_elems; i++) {
        halves[i] = (uint16_t)values_next(&state);
        halves[i] |= (halves[i] & 0x7f80) == 0x7f80 ? 0x0040 : 0; /* no signalling NaN comes back */
    }
    tree_set((const uint32_t[]){1}, 1);
    tree.spec.n_elems = n_elems;
    tree.spec.wire_dtype = DTYPE_BF16;
}

START_TEST(reduce_tree_of_one_bf16_rank_returns_every_bit)
{
    size_t n_elems = one_rank_sizes[_i];
    uint16_t in[1025] = {0};
    uint16_t out[1025];

    one_rank_set(in, n_elems);
    tree.sources[0] = in;
    tree.spec.source_dtype = DTYPE_BF16;
    reduce_tree(&tree.spec);
    cast_from_fp32(out, DTYPE_BF16, tree.dst, n_elems);
    ck_assert_mem_eq(out, in, n_elems * sizeof(in[0]));
}
END_TEST

START_TEST(reduce_tree_of_one_rank_in_place_returns_every_bit)
{
    size_t n_elems = one_rank_sizes[_i];
    uint16_t in[1025] = {0};
    uint16_t out[1025];

    one_rank_set(in, n_elems);
    cast_to_fp32(tree.dst, in, DTYPE_BF16, n_elems);
    tree.sources[0] = tree.dst;
    reduce_tree(&tree.spec);
    cast_from_fp32(out, DTYPE_BF16, tree.dst, n_elems);
    ck_assert_mem_eq(out, in, n_elems * sizeof(in[0]));
}
END_TEST

START_TEST(reduce_add_of_any_dtype_adds_its_values)
{
    enum dtype dtype = (enum dtype)_i;
    uint64_t state = 8;
    float values[MAX_ELEMS];
    float expected[MAX_ELEMS];

    tree_set((const uint32_t[]){1}, 1);
    tree_fill(&state, dtype, dtype, MAX_ELEMS);
    values_fill(&state, values, MAX_ELEMS);
    for (size_t i = 0; i < MAX_ELEMS; i++) {
        expected[i] = values[i] + (i < 1025 ? source_value(&tree.spec, 0, i) : 0.0f);
    }
    reduce_add(values, tree.storage[0], dtype, 1025);
    ck_assert_mem_eq(values, expected, sizeof(values));
}
END_TEST

START_TEST(reduce_add_of_itself_doubles)
{
    float values[1025];

    for (size_t i = 0; i < 1025; i++) {
        values[i] = (float)i;
    }
    reduce_add(values, values, DTYPE_FP32, 1025);
    for (size_t i = 0; i < 1025; i++) {
        ck_assert_float_eq(values[i], 2.0f * (float)i);
    }
}
END_TEST

START_TEST(reduce_divide_is_a_true_division)
{
    uint64_t state = 9;
    float values[1025];
    float quotients[1025];
    int n_unlike_reciprocal = 0;

    values_fill(&state, values, 1025);
    memcpy(quotients, values, sizeof(values));
    reduce_divide(quotients, 3.0f, 1024);
    for (size_t i = 0; i < 1024; i++) {
        /* fp64 holds more than twice the bits: rounding twice is rounding once */
        ck_assert_float_eq(quotients[i], (float)((double)values[i] / 3.0));
        n_unlike_reciprocal += quotients[i] != values[i] * (1.0f / 3.0f);
    }
    ck_assert_float_eq(quotients[1024], values[1024]);
    ck_assert_int_gt(n_unlike_reciprocal, 0);
}
END_TEST

START_TEST(reduce_streams_only_what_no_cache_keeps)
{
    ck_assert(!reduce_streams(0));
    ck_assert(!reduce_streams(8 << 20));
    ck_assert(reduce_streams(32 << 20));
    ck_assert(reduce_streams(UINT64_C(1) << 40));
}
END_TEST

static TCase *tree_tcase(void)
{
    TCase *tcase = tcase_create("tree");

    tcase_add_loop_test(tcase, reduce_tree_of_one_dimension_is_its_definition, 1, 65);
    tcase_add_loop_test(tcase, reduce_tree_of_any_dimensions_is_its_definition, 0, 4);
    tcase_add_loop_test(tcase, reduce_tree_into_a_source_is_its_definition, 0, 4);
    tcase_add_test(tcase, reduce_tree_adds_pairs_not_one_after_another);
    tcase_add_test(tcase, reduce_tree_carries_the_odd_one);
    tcase_add_test(tcase, reduce_tree_adds_one_dimension_after_another);
    tcase_add_loop_test(tcase, reduce_tree_of_inner_powers_of_two_is_that_of_the_product, 0, 20);
    tcase_add_test(tcase, reduce_tree_rounds_sources_and_not_sums);
    tcase_add_test(tcase, reduce_tree_of_absent_sources_is_plus_zero);
    tcase_add_test(tcase, reduce_tree_of_one_source_stores_and_does_not_add);
    tcase_add_test(tcase, reduce_tree_accumulates_the_finished_sum);
    tcase_add_loop_test(tcase, reduce_tree_of_one_bf16_rank_returns_every_bit, 0, N_ONE_RANK_SIZES);
    tcase_add_loop_test(tcase, reduce_tree_of_one_rank_in_place_returns_every_bit, 0,
                        N_ONE_RANK_SIZES);
    return tcase;
}

Suite *module_suite(void)
{
    Suite *suite = suite_create("reduce");
    TCase *elementwise = tcase_create("elementwise");

    suite_add_tcase(suite, tree_tcase());
    tcase_add_loop_test(elementwise, reduce_add_of_any_dtype_adds_its_values, 0, N_DTYPES);
    tcase_add_test(elementwise, reduce_add_of_itself_doubles);
    tcase_add_test(elementwise, reduce_divide_is_a_true_division);
    tcase_add_test(elementwise, reduce_streams_only_what_no_cache_keeps);
    suite_add_tcase(suite, elementwise);
    return suite;
}
