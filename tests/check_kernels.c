/* SPDX-License-Identifier: Apache-2.0 */
/* Every path of the CPU against the plain one, whose results the suites of the kernels prove. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "device/kernels.h"
#include "kernel_values.h"
#include "suite.h"

enum {
    MAX_ELEMS = 1100,
    MAX_OFFSET = 17, /* elements by which arrays are off a vector's alignment */
    GUARD = 0x5a,
};

static const size_t sizes[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 511, 512, 513, 1025};
static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};

enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]), N_DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

/* One round: a size, an offset, and what the values are like. */
struct round {
    uint64_t state;
    size_t n_elems;
    size_t offset;
    uint32_t kind; /* of values: values_kind */
};

static struct round round_of(int index)
{
    struct round round = {.state = (uint64_t)index + 1};

    round.n_elems = sizes[index % N_SIZES];
    round.offset = values_below(&round.state, MAX_OFFSET);
    round.kind = (uint32_t)index % VALUES_N_KINDS;
    return round;
}

static void round_fill(struct round *round, float *values)
{
    for (size_t i = 0; i < MAX_ELEMS; i++) {
        values[i] = values_kind(&round->state, round->kind);
    }
}

/* Same bits; of a NaN, which one it is may differ. */
static void same_expect(const char *what, const float *found, const float *expected)
{
    for (size_t i = 0; i < MAX_ELEMS; i++) {
        if (fp32_bits(found[i]) != fp32_bits(expected[i]) &&
            !(isnan(found[i]) && isnan(expected[i]))) {
            ck_abort_msg("%s: element %zu is %a, not %a", what, i, (double)found[i],
                         (double)expected[i]);
        }
    }
}

/* The paths beside the plain one; a test of them runs over no path where there is no other. */
static uint32_t n_others(void)
{
    return kernels_n_paths() - 1;
}

static const struct kernels *other(uint32_t index)
{
    return kernels_path(index + 1);
}

START_TEST(to_fp32_of_every_half_is_the_same_on_every_path)
{
    static uint16_t halves[65536];
    static uint32_t expected[65536];
    static uint32_t found[65536];

    for (uint32_t i = 0; i < 65536; i++) {
        halves[i] = (uint16_t)i;
    }
    for (uint32_t p = 0; p < n_others(); p++) {
        cast_to_fp32((float *)expected, halves, dtypes[_i], 65536);
        other(p)->to_fp32((float *)found, halves, dtypes[_i], 65536);
        ck_assert_mem_eq(found, expected, sizeof(found));
    }
}
END_TEST

/* Every upper half of a pattern with the lower halves around every tie; bits, also of NaNs. */
START_TEST(from_fp32_around_every_tie_is_the_same_on_every_path)
{
    static const uint32_t lows[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff,
                                    0x8000, 0x8001, 0x9000, 0xafff, 0xb000, 0xefff, 0xf000, 0xffff};
    static float values[65536];
    static uint16_t expected[65536];
    static uint16_t found[65536];

    for (size_t low = 0; low < sizeof(lows) / sizeof(lows[0]); low++) {
        for (uint32_t i = 0; i < 65536; i++) {
            values[i] = fp32_from_bits(i << 16 | lows[low]);
        }
        cast_from_fp32(expected, dtypes[_i], values, 65536);
        for (uint32_t p = 0; p < n_others(); p++) {
            other(p)->from_fp32(found, dtypes[_i], values, 65536);
            ck_assert_mem_eq(found, expected, sizeof(found));
        }
    }
}
END_TEST

/* Odd lengths, misaligned, and not a byte beside. */
START_TEST(casts_of_any_length_are_the_same_on_every_path)
{
    struct round round = round_of(_i);
    float values[MAX_ELEMS];
    uint8_t expected[2][MAX_ELEMS * 4];
    uint8_t found[2][MAX_ELEMS * 4];

    round_fill(&round, values);
    for (uint32_t i = 0; i < n_others() * N_DTYPES; i++) {
        const struct kernels *path = other(i / N_DTYPES);
        enum dtype dtype = dtypes[i % N_DTYPES];
        size_t at = round.offset * dtype_bytes(dtype);

        memset(expected, GUARD, sizeof(expected));
        memset(found, GUARD, sizeof(found));
        cast_from_fp32(expected[0] + at, dtype, values + round.offset, round.n_elems);
        path->from_fp32(found[0] + at, dtype, values + round.offset, round.n_elems);
        cast_to_fp32((float *)expected[1] + round.offset, expected[0] + at, dtype, round.n_elems);
        path->to_fp32((float *)found[1] + round.offset, found[0] + at, dtype, round.n_elems);
        ck_assert_mem_eq(found, expected, sizeof(found));
    }
}
END_TEST

START_TEST(convert_is_the_same_on_every_path)
{
    struct round round = round_of(_i);
    float values[MAX_ELEMS];
    uint8_t expected[MAX_ELEMS * 4];
    uint8_t found[MAX_ELEMS * 4];

    round_fill(&round, values);
    for (uint32_t i = 0; i < n_others() * N_DTYPES * N_DTYPES; i++) {
        enum dtype dst = dtypes[i % N_DTYPES];
        enum dtype src = dtypes[i / N_DTYPES % N_DTYPES];
        const uint8_t *from = (const uint8_t *)values + round.offset * dtype_bytes(src);
        size_t at = round.offset * dtype_bytes(dst);

        memset(expected, GUARD, sizeof(expected));
        memset(found, GUARD, sizeof(found));
        cast_convert(expected + at, dst, from, src, round.n_elems);
        other(i / N_DTYPES / N_DTYPES)->convert(found + at, dst, from, src, round.n_elems);
        ck_assert_mem_eq(found, expected, sizeof(found));
    }
}
END_TEST

/* So much that it is streamed, from the middle of a line to the middle of another. */
START_TEST(convert_of_more_than_the_caches_hold_is_that_of_its_pieces)
{
    enum { N_ELEMS = (16 << 20) / 2 + 100, N_PIECE = 10000, OFFSET = 3 };
    static float values[N_ELEMS];
    static uint16_t expected[N_ELEMS + 2 * OFFSET];
    static uint16_t found[N_ELEMS + 2 * OFFSET];
    uint64_t state = 3;

    for (size_t i = 0; i < N_ELEMS; i++) {
        values[i] = values_float(&state, 100, 40);
    }
    for (size_t i = 0; i < N_ELEMS; i += N_PIECE) {
        cast_convert(expected + OFFSET + i, dtypes[_i], values + i, DTYPE_FP32,
                     N_ELEMS - i < N_PIECE ? N_ELEMS - i : N_PIECE);
    }
    for (uint32_t p = 0; p < kernels_n_paths(); p++) {
        memset(found, 0, sizeof(found));
        kernels_path(p)->convert(found + OFFSET, dtypes[_i], values, DTYPE_FP32, N_ELEMS);
        ck_assert(memcmp(found, expected, sizeof(found)) == 0);
    }
}
END_TEST

START_TEST(round_is_the_same_on_every_path)
{
    struct round round = round_of(_i);
    float values[MAX_ELEMS];
    float expected[MAX_ELEMS];
    float found[MAX_ELEMS];

    round_fill(&round, values);
    for (uint32_t i = 0; i < n_others() * N_DTYPES; i++) {
        memcpy(expected, values, sizeof(values));
        memcpy(found, values, sizeof(values));
        cast_round(expected + round.offset, dtypes[i % N_DTYPES], round.n_elems);
        other(i / N_DTYPES)->round(found + round.offset, dtypes[i % N_DTYPES], round.n_elems);
        ck_assert_mem_eq(found, expected, sizeof(found));
    }
}
END_TEST

/* Seven ranks in a tree of 7 or of 1, 7: odd ones are carried; one of them is absent. */
START_TEST(tree_is_the_same_on_every_path)
{
    static float sources[7][MAX_ELEMS];
    static const uint32_t dim_sizes[] = {7, 1};
    const void *starts[7] = {NULL};
    enum dtype source_dtypes[7];
    struct reduce_spec spec = {.sources = starts, .dim_sizes = dim_sizes, .n_dims = 2};
    struct round round = round_of(_i);
    float expected[MAX_ELEMS] = {0};
    float found[MAX_ELEMS] = {0};

    for (int i = 0; i < 6; i++) {
        round_fill(&round, sources[i]);
        source_dtypes[i] = dtypes[(_i + i) % N_DTYPES];
        starts[i] = (const uint8_t *)sources[i] + round.offset * dtype_bytes(source_dtypes[i]);
    }
    source_dtypes[6] = DTYPE_FP32;
    spec.source_dtypes = source_dtypes;
    spec.n_elems = round.n_elems;
    spec.accumulate = _i % 2 != 0;
    for (uint32_t i = 0; i < n_others() * N_DTYPES; i++) {
        spec.wire_dtype = dtypes[i % N_DTYPES];
        spec.dst = expected + round.offset;
        reduce_tree(&spec);
        spec.dst = found + round.offset;
        other(i / N_DTYPES)->tree(&spec);
        same_expect("tree", found, expected);
    }
}
END_TEST

START_TEST(add_and_divide_are_the_same_on_every_path)
{
    struct round round = round_of(_i);
    float values[MAX_ELEMS];
    float addend[MAX_ELEMS];
    float expected[MAX_ELEMS];
    float found[MAX_ELEMS];

    round_fill(&round, values);
    round_fill(&round, addend);
    for (uint32_t i = 0; i < n_others() * N_DTYPES; i++) {
        const struct kernels *path = other(i / N_DTYPES);
        float divisor = (float)(1 + values_below(&round.state, 64));

        memcpy(expected, values, sizeof(values));
        memcpy(found, values, sizeof(values));
        reduce_add(expected + round.offset, addend, dtypes[i % N_DTYPES], round.n_elems);
        path->add(found + round.offset, addend, dtypes[i % N_DTYPES], round.n_elems);
        same_expect("add", found, expected);
        reduce_divide(expected + round.offset, divisor, round.n_elems);
        path->divide(found + round.offset, divisor, round.n_elems);
        same_expect("divide", found, expected);
    }
}
END_TEST

START_TEST(norms_are_the_same_on_every_path)
{
    static const double powers[] = {1, 2, 2.5, 8};
    struct round round = round_of(_i);
    float values[MAX_ELEMS];

    round_fill(&round, values);
    for (uint32_t i = 0; i < n_others() * 4; i++) {
        const struct kernels *path = other(i / 4);
        struct norm_sum sums[2] = {{{0}, 0, 0}, {{0}, 0, 0}};
        double p = powers[i % 4];
        float left[2][MAX_ELEMS];

        norm_sum_add(&sums[0], values + round.offset, round.n_elems, p);
        path->norm_add(&sums[1], values + round.offset, round.n_elems, p);
        ck_assert_mem_eq(&sums[1], &sums[0], sizeof(sums[0]));
        memcpy(left[0], values, sizeof(values));
        memcpy(left[1], values, sizeof(values));
        norm_sum_divide_add(&sums[0], left[0] + round.offset, 3.0f, round.n_elems, p);
        path->norm_divide_add(&sums[1], left[1] + round.offset, 3.0f, round.n_elems, p);
        ck_assert_mem_eq(&sums[1], &sums[0], sizeof(sums[0]));
        same_expect("norm_divide_add", left[1], left[0]);
    }
}
END_TEST

START_TEST(max_abs_is_the_same_on_every_path)
{
    struct round round = round_of(_i);
    float values[MAX_ELEMS];

    round_fill(&round, values);
    for (uint32_t p = 0; p < n_others(); p++) {
        float expected = norm_max_abs(values + round.offset, round.n_elems);
        float found = other(p)->max_abs(values + round.offset, round.n_elems);

        ck_assert_uint_eq(fp32_bits(found), fp32_bits(expected));
    }
}
END_TEST

/* Arrays that an update writes: parameters and both averages. */
struct updated {
    float params[MAX_ELEMS];
    float exp_avg[MAX_ELEMS];
    float exp_avg_sq[MAX_ELEMS];
};

static struct adamw_shard updated_shard(struct updated *arrays, const float *grads,
                                        const struct round *round, enum dtype dtype)
{
    return (struct adamw_shard){.params =
                                    (uint8_t *)arrays->params + round->offset * dtype_bytes(dtype),
                                .params_dtype = dtype,
                                .exp_avg = arrays->exp_avg + round->offset,
                                .exp_avg_sq = arrays->exp_avg_sq + round->offset,
                                .grads = grads,
                                .n_elems = round->n_elems};
}

static void params_expect(const struct updated *found, const struct updated *expected,
                          enum dtype dtype)
{
    float wide[2][MAX_ELEMS];

    cast_to_fp32(wide[0], found->params, dtype, MAX_ELEMS);
    cast_to_fp32(wide[1], expected->params, dtype, MAX_ELEMS);
    same_expect("params", wide[0], wide[1]);
}

START_TEST(adamw_is_the_same_on_every_path)
{
    static const struct adamw_hyper hyper = {1e-3, 0.1, 0.9, 0.95, 1e-8};
    static struct updated first, expected, found;
    struct adamw_constants constants = adamw_constants_compute(&hyper, 7);
    struct round round = round_of(_i);
    float grads[MAX_ELEMS];

    round_fill(&round, grads);
    round_fill(&round, first.params);
    round_fill(&round, first.exp_avg);
    round_fill(&round, first.exp_avg_sq);
    for (uint32_t i = 0; i < n_others() * N_DTYPES; i++) {
        enum dtype dtype = dtypes[i % N_DTYPES];
        struct adamw_shard shards[2];

        expected = first;
        found = first;
        shards[0] = updated_shard(&expected, grads, &round, dtype);
        shards[1] = updated_shard(&found, grads, &round, dtype);
        adamw_update(&constants, &shards[0], 0.25f);
        other(i / N_DTYPES)->adamw(&constants, &shards[1], 0.25f);
        params_expect(&found, &expected, dtype);
        same_expect("exp_avg", found.exp_avg, expected.exp_avg);
        same_expect("exp_avg_sq", found.exp_avg_sq, expected.exp_avg_sq);
    }
}
END_TEST

START_TEST(kernels_choose_of_each_name_is_that_path)
{
    for (uint32_t i = 0; i < kernels_n_paths(); i++) {
        const struct kernels *kernels = NULL;

        ck_assert_int_eq(kernels_choose(kernels_path(i)->path, kernels_n_paths(), &kernels, NULL),
                         HSDP_OK);
        ck_assert_ptr_eq(kernels, kernels_path(i));
    }
    ck_assert_str_eq(kernels_path(0)->path, "plain");
}
END_TEST

START_TEST(kernels_choose_of_auto_is_the_last_path)
{
    for (uint32_t n_paths = 1; n_paths <= kernels_n_paths(); n_paths++) {
        const struct kernels *kernels = NULL;

        ck_assert_int_eq(kernels_choose("auto", n_paths, &kernels, NULL), HSDP_OK);
        ck_assert_ptr_eq(kernels, kernels_path(n_paths - 1));
    }
}
END_TEST

/* As on a processor that has the plain path alone. */
START_TEST(kernels_choose_of_a_missing_path_is_refused)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const struct kernels *kernels = NULL;

    ck_assert_int_eq(kernels_choose("avx512", 1, &kernels, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_str_eq(
        err.message,
        "cpu_path: avx512 is not there, in this build on this processor; it has plain");
    ck_assert_ptr_null(kernels);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("kernels");
    TCase *tcase = tcase_create("paths");
    TCase *choice = tcase_create("choice");
    int n_rounds = N_SIZES * VALUES_N_KINDS; /* each size with each kind */

    tcase_add_loop_test(tcase, to_fp32_of_every_half_is_the_same_on_every_path, 1, N_DTYPES);
    tcase_add_loop_test(tcase, from_fp32_around_every_tie_is_the_same_on_every_path, 1, N_DTYPES);
    tcase_add_loop_test(tcase, casts_of_any_length_are_the_same_on_every_path, 0, n_rounds);
    tcase_add_loop_test(tcase, convert_is_the_same_on_every_path, 0, n_rounds);
    tcase_add_loop_test(tcase, convert_of_more_than_the_caches_hold_is_that_of_its_pieces, 1,
                        N_DTYPES);
    tcase_add_loop_test(tcase, round_is_the_same_on_every_path, 0, n_rounds);
    tcase_add_loop_test(tcase, tree_is_the_same_on_every_path, 0, n_rounds);
    tcase_add_loop_test(tcase, add_and_divide_are_the_same_on_every_path, 0, n_rounds);
    tcase_add_loop_test(tcase, norms_are_the_same_on_every_path, 0, n_rounds);
    tcase_add_loop_test(tcase, max_abs_is_the_same_on_every_path, 0, n_rounds);
    tcase_add_loop_test(tcase, adamw_is_the_same_on_every_path, 0, n_rounds);
    tcase_add_test(choice, kernels_choose_of_each_name_is_that_path);
    tcase_add_test(choice, kernels_choose_of_auto_is_the_last_path);
    tcase_add_test(choice, kernels_choose_of_a_missing_path_is_refused);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, choice);
    return suite;
}
