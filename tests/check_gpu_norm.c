/* SPDX-License-Identifier: Apache-2.0 */
/* Norms and steps of the devices, as the double computes them, against those of the CPU. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/norm.h"
#include "device/reduce.h"
#include "kernel_arrays.h"
#include "suite.h"

/* ------------------------------------------------------------------------------------- norm */

static struct norm_sum norm_of(struct array *values, const struct gpu_norm_args *spec,
                               const uint32_t grid[2], uint64_t *ret_max_bits)
{
    struct gpu_norm norm;
    struct gpu_norm_args args = *spec;
    struct norm_sum sum;

    memset(&norm, 0, sizeof(norm));
    args.norm = &norm;
    args.values = values->values;
    args.n_elems = values->n_bytes / sizeof(float);
    kernel_run(GPU_NORM, &args, grid);
    memcpy(sum.limbs, norm.limbs, sizeof(sum.limbs));
    sum.n_inf = norm.n_inf;
    sum.n_nan = norm.n_nan;
    *ret_max_bits = norm.max_bits;
    norm_sum_normalize(&sum);
    return sum;
}

/* What the CPU makes of the same values, which it divides. */
static struct norm_sum norm_expected(struct array *values, const struct gpu_norm_args *spec)
{
    struct norm_sum sum;

    memset(&sum, 0, sizeof(sum));
    if (isinf(spec->p)) {
        reduce_divide(values->values, spec->divisor, values->n_bytes / sizeof(float));
    } else {
        norm_sum_divide_add(&sum, values->values, spec->divisor, values->n_bytes / sizeof(float),
                            spec->p);
    }
    return sum;
}

static void norm_check_values(struct array *values, const struct gpu_norm_args *spec,
                              const uint32_t grid[2])
{
    struct array original = array_copy(values, DTYPE_FP32, 0);
    struct array expected = array_copy(values, DTYPE_FP32, 0);
    struct norm_sum sum = norm_expected(&expected, spec);
    uint64_t max_bits;
    struct norm_sum found = norm_of(values, spec, grid, &max_bits);
    float largest = norm_max_abs(expected.values, expected.n_bytes / sizeof(float));

    ck_assert_mem_eq(&found, &sum, sizeof(sum));
    arrays_check_equal(values, spec->is_divided != 0 ? &expected : &original, DTYPE_FP32);
    if (!isinf(spec->p)) {
        ck_assert_uint_eq(max_bits, 0);
    } else if (isnan(largest)) {
        ck_assert_uint_gt(max_bits, 0x7f800000);
    } else {
        ck_assert_uint_eq(max_bits, fp32_bits(largest));
    }
    array_check_guards(values);
    array_destroy(&original);
    array_destroy(&expected);
}

static const double powers[] = {2.0, 1.0, 3.0, INFINITY, 1.5, 8.0};

static void norm_check(const struct setting *s)
{
    static const float divisors[] = {1.0f, 8.0f, 3.0f};
    uint64_t state = s->seed;

    for (uint32_t k = 0; k < 36; k++) {
        struct gpu_norm_args spec = {.p = powers[k / 6], .divisor = divisors[k % 3]};
        struct array values = array_create(DTYPE_FP32, s->n_elems, s->shifts[3]);

        spec.is_divided = (k + (uint32_t)s->seed) & 1;
        array_fill(&values, DTYPE_FP32, &state, k % 6);
        norm_check_values(&values, &spec, s->grid);
        array_destroy(&values);
    }
}

START_TEST(norm_of_any_values_equals_the_cpu)
{
    each_setting(norm_check);
}
END_TEST

/* Values of a few exponents that change from chunk to chunk: windows stay, move and split. */
START_TEST(norm_of_windows_that_move_equals_the_cpu)
{
    uint64_t state = 7;

    for (uint32_t round = 0; round < 300; round++) {
        struct gpu_norm_args spec = {.p = round % 3 == 0 ? 1.0 : 2.0, .divisor = 1.0f};
        struct array values = array_create(DTYPE_FP32, MAX_ELEMS, round % 4);
        float *v = values.values;
        uint32_t least = 0;
        uint32_t n_exponents = 1;

        for (uint64_t i = 0; i < MAX_ELEMS; i++) {
            if (i % 700 == 0) {
                least = values_below(&state, 254);
                n_exponents = 1 + values_below(&state, 255 - least);
                n_exponents = n_exponents > 24 && round % 2 == 0 ? 24 : n_exponents;
            }
            v[i] = values_float(&state, least, n_exponents);
        }
        norm_check_values(&values, &spec, grids[round % N_GRIDS]);
        array_destroy(&values);
    }
}
END_TEST

enum { N_LARGEST = 1100 * 512 };

/* More chunks than a window takes before its sums go to the block, each value the largest. */
START_TEST(norm_of_many_largest_values_does_not_overflow)
{
    struct array values = array_create(DTYPE_FP32, N_LARGEST, 0);
    struct gpu_norm_args spec = {.p = 2.0, .divisor = 1.0f};
    float *v = values.values;

    for (uint64_t i = 0; i < N_LARGEST; i++) {
        v[i] = 0x1.fffffep0f;
    }
    norm_check_values(&values, &spec, grids[0]);
    array_destroy(&values);
}
END_TEST

START_TEST(norm_adds_to_what_is_there)
{
    struct array values = array_create(DTYPE_FP32, 1000, 0);
    struct norm_sum expected = {{0}, 0, 0};
    struct gpu_norm norm;
    struct gpu_norm_args args = {&norm, values.values, 1000, 2.0, 1.0f, 0};
    struct norm_sum found = {{0}, 0, 0};
    uint64_t state = 3;

    memset(&norm, 0, sizeof(norm));
    array_fill(&values, DTYPE_FP32, &state, VALUES_N_KINDS);
    for (uint32_t k = 0; k < 5; k++) {
        norm_sum_add(&expected, values.values, 1000, 2.0);
        kernel_run(GPU_NORM, &args, grids[k % N_GRIDS]);
    }
    memcpy(&found, &norm, sizeof(found));
    norm_sum_normalize(&found);
    ck_assert_mem_eq(&found, &expected, sizeof(found));
    array_destroy(&values);
}
END_TEST

/* ------------------------------------------------------------------------------------- step */

enum { MAX_PARTS = 64, PART_STRIDE = 1024 };

struct parts {
    _Alignas(64) char bytes[MAX_PARTS * PART_STRIDE];
    uint32_t weighed[MAX_PARTS];
    uint32_t n_parts;
    uint32_t n_weighed;
};

static struct gpu_step_part *part_of(struct parts *parts, uint32_t rank)
{
    return (struct gpu_step_part *)(parts->bytes + (size_t)rank * PART_STRIDE);
}

/* Parts of some values each; *ret_sum is their sum, *ret_max the largest. */
static void parts_fill(struct parts *parts, uint64_t *state, double p, struct norm_sum *ret_sum,
                       float *ret_max)
{
    float values[100];

    *ret_max = 0.0f;
    memset(ret_sum, 0, sizeof(*ret_sum));
    memset(parts->bytes, 0xa5, sizeof(parts->bytes));
    for (uint32_t rank = 0; rank < parts->n_parts; rank++) {
        struct gpu_step_part *part = part_of(parts, rank);
        struct gpu_norm_args args = {&part->norm, values, 100, p, 1.0f, 0};
        uint32_t kind = rank % 5 == 4 ? values_below(state, 5) : 3;
        float max;

        for (uint32_t i = 0; i < 100; i++) {
            values[i] = values_kind(state, kind);
        }
        memset(part, 0, sizeof(*part));
        part->weight = 1.0 + 1e-3 * rank;
        kernel_run(GPU_NORM, &args, grids[rank % N_GRIDS]);
        if (!isinf(p)) {
            norm_sum_add(ret_sum, values, 100, p);
        }
        max = norm_max_abs(values, 100);
        *ret_max = fp32_bits(max) > fp32_bits(*ret_max) ? max : *ret_max;
    }
}

static void step_check(struct parts *parts, uint64_t *state, double p, double max_norm,
                       uint32_t has_weight)
{
    float view[4] = {-1.0f, -1.0f, -1.0f, -1.0f};
    struct gpu_step_args args = {.view = view,
                                 .parts = parts->bytes,
                                 .weighed = parts->weighed,
                                 .stride_bytes = PART_STRIDE,
                                 .n_parts = parts->n_parts,
                                 .n_weighed = parts->n_weighed,
                                 .p = p,
                                 .max_norm = max_norm,
                                 .scale = 0.125,
                                 .has_weight = has_weight};
    struct norm_sum sum;
    float largest;
    double weight = 0.0;
    double scale = 0.125;
    struct norm_step step;

    parts_fill(parts, state, p, &sum, &largest);
    for (uint32_t i = 0; i < parts->n_weighed; i++) {
        weight += part_of(parts, parts->weighed[i])->weight;
    }
    scale = has_weight != 0 ? scale / weight : scale;
    step = norm_step_scale(isinf(p) ? (double)largest : norm_sum_value(&sum, p), scale, max_norm);
    kernel_run(GPU_STEP, &args, grids[parts->n_parts % N_GRIDS]);
    ck_assert(fp32_bits(view[0]) == fp32_bits((float)step.norm) ||
              (isnan(view[0]) && isnan(step.norm)));
    ck_assert_uint_eq(fp32_bits(view[1]), fp32_bits((float)step.factor));
    ck_assert_float_eq(view[2], -1.0f);
}

START_TEST(step_of_any_parts_equals_the_cpu)
{
    static struct parts parts;
    uint64_t state = 11;

    for (uint32_t round = 0; round < 300; round++) {
        double max_norm = round % 4 == 0 ? 0.0 : ldexp(1.0, (int)(round % 60) - 30);

        parts.n_parts = 1 + values_below(&state, round % 10 == 0 ? MAX_PARTS : 8);
        parts.n_weighed = 1 + values_below(&state, parts.n_parts);
        for (uint32_t i = 0; i < parts.n_weighed; i++) {
            parts.weighed[i] = parts.n_parts - 1 - i;
        }
        step_check(&parts, &state, powers[round % 6], max_norm, round / 6 % 2);
    }
}
END_TEST

/* Weights of 0 are no tokens: the norm is NaN. Limbs may hold any number. */
START_TEST(step_of_limbs_of_any_size_does_not_overflow)
{
    static struct parts parts = {.n_parts = MAX_PARTS};
    float view[2];
    struct gpu_step_args args = {.view = view,
                                 .parts = parts.bytes,
                                 .stride_bytes = PART_STRIDE,
                                 .n_parts = MAX_PARTS,
                                 .p = 1.0,
                                 .scale = 1.0};

    for (uint32_t rank = 0; rank < MAX_PARTS; rank++) {
        part_of(&parts, rank)->norm.limbs[38] = INT64_MAX; /* of units of 2^-32 */
        part_of(&parts, rank)->norm.limbs[37] = INT64_MIN;
    }
    kernel_run(GPU_STEP, &args, grids[1]);
    ck_assert_float_eq(view[0], 0x1p37f);
    args.has_weight = 1;
    kernel_run(GPU_STEP, &args, grids[1]);
    ck_assert_float_nan(view[0]);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpu_norm");
    TCase *tcase = tcase_create("core");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, norm_of_any_values_equals_the_cpu);
    tcase_add_test(tcase, norm_of_windows_that_move_equals_the_cpu);
    tcase_add_test(tcase, norm_of_many_largest_values_does_not_overflow);
    tcase_add_test(tcase, norm_adds_to_what_is_there);
    tcase_add_test(tcase, step_of_any_parts_equals_the_cpu);
    tcase_add_test(tcase, step_of_limbs_of_any_size_does_not_overflow);
    suite_add_tcase(suite, tcase);
    return suite;
}
