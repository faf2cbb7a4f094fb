/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW: bits of a step computed elsewhere, and the course of many against a fp64 model. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/adamw.h"
#include "device/cast.h"
#include "kernel_values.h"
#include "suite.h"

enum { MAX_ELEMS = 600 };

static const struct adamw_hyper hyper = {
    .learning_rate = 1e-3,
    .weight_decay = 0.1,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .epsilon = 1e-8,
};

/* The arrays of a shard and the shard. */
struct arrays {
    float params[MAX_ELEMS];
    float exp_avg[MAX_ELEMS];
    float exp_avg_sq[MAX_ELEMS];
    float grads[MAX_ELEMS];
};

static struct adamw_shard arrays_shard(struct arrays *arrays, size_t first, size_t n_elems)
{
    return (struct adamw_shard){
        .params = arrays->params + first,
        .exp_avg = arrays->exp_avg + first,
        .exp_avg_sq = arrays->exp_avg_sq + first,
        .grads = arrays->grads + first,
        .n_elems = n_elems,
    };
}

static void arrays_fill(struct arrays *arrays, uint64_t seed)
{
    for (size_t i = 0; i < MAX_ELEMS; i++) {
        arrays->params[i] = values_float(&seed, 115, 12);
        arrays->exp_avg[i] = values_float(&seed, 110, 10);
        arrays->exp_avg_sq[i] = fabsf(values_float(&seed, 95, 15));
        arrays->grads[i] = values_float(&seed, 110, 12);
    }
}

START_TEST(adamw_constants_are_fp64_rounded_once)
{
    struct adamw_constants c = adamw_constants_compute(&hyper, 3);

    ck_assert_float_eq(c.decay, 0x1.fff2e4p-1f);
    ck_assert_float_eq(c.beta1, 0x1.ccccccp-1f);
    ck_assert_float_eq(c.one_minus_beta1, 0x1.99999ap-4f);
    ck_assert_float_eq(c.beta2, 0x1.e66666p-1f);
    ck_assert_float_eq(c.one_minus_beta2, 0x1.99999ap-5f);
    ck_assert_float_eq(c.step_size, 0x1.e3a918p-9f);
    ck_assert_float_eq(c.bias2_sqrt, 0x1.82b896p-2f);
    ck_assert_float_eq(c.epsilon, 0x1.5798eep-27f);
}
END_TEST

START_TEST(adamw_constants_of_any_step_match_pow)
{
    static const uint64_t steps[] = {1, 2, 3, 7, 100, 1023, 65537, 10000000000};

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct adamw_constants c = adamw_constants_compute(&hyper, steps[i]);
        double bias1 = 1.0 - pow(hyper.beta1, (double)steps[i]);
        double bias2 = 1.0 - pow(hyper.beta2, (double)steps[i]);

        ck_assert_double_eq_tol(c.step_size * bias1 / hyper.learning_rate, 1.0, 1e-7);
        ck_assert_double_eq_tol(c.bias2_sqrt / sqrt(bias2), 1.0, 1e-7);
    }
}
END_TEST

struct golden {
    float before[4]; /* parameter, first moment, second moment, gradient */
    float after[3];
};

/*
 * Rational arithmetic, rounded after each operation. Chosen so that each case comes out otherwise
 * with a fused multiply-add, with factors grouped otherwise, with a reciprocal instead of a
 * division, and with the decay subtracted instead of multiplied.
 */
static const struct golden goldens[] = {
    {{-0x1.baa47ep-13f, 0x1.22eabcp-12f, 0x1.f3fdaap-21f, -0x1.e78ff0p-7f},
     {0x1.dec148p-13f, -0x1.9f283cp-11f, 0x1.a760c8p-18f}},
    {{-0x1.3a705ap-17f, 0x1.2d3f96p-11f, 0x1.4df322p-22f, -0x1.fcdc46p-8f},
     {0x1.324f42p-16f, -0x1.bad380p-16f, 0x1.dbd038p-20f}},
    {{0x1.e8b6e0p-14f, -0x1.a0650ep-12f, 0x1.0b7f7cp-20f, 0x1.c28aacp-8f},
     {-0x1.48d740p-19f, 0x1.03b3f0p-13f, 0x1.1a795cp-19f}},
};

enum { N_GOLDENS = sizeof(goldens) / sizeof(goldens[0]) };

/* Also in the middle of an array, where a vector may hold it. */
START_TEST(adamw_update_has_the_bits_of_its_formula)
{
    const struct golden *golden = &goldens[_i];
    struct adamw_constants c = adamw_constants_compute(&hyper, 3);
    static struct arrays arrays;
    struct adamw_shard shard = arrays_shard(&arrays, 0, 67);

    for (size_t i = 0; i < 67; i++) {
        arrays.params[i] = golden->before[0];
        arrays.exp_avg[i] = golden->before[1];
        arrays.exp_avg_sq[i] = golden->before[2];
        arrays.grads[i] = golden->before[3];
    }
    adamw_update(&c, &shard, 0.7f);
    for (size_t i = 0; i < 67; i++) {
        ck_assert_float_eq(arrays.params[i], golden->after[0]);
        ck_assert_float_eq(arrays.exp_avg[i], golden->after[1]);
        ck_assert_float_eq(arrays.exp_avg_sq[i], golden->after[2]);
    }
}
END_TEST

START_TEST(adamw_update_of_any_cut_has_the_same_bits)
{
    static const size_t sizes[] = {0, 1, 3, 7, 8, 9, 63, 513};
    static struct arrays whole;
    static struct arrays single;
    struct adamw_constants c = adamw_constants_compute(&hyper, 10);
    struct adamw_shard shard = arrays_shard(&whole, 1, sizes[_i]);

    arrays_fill(&whole, (uint64_t)_i);
    single = whole;
    adamw_update(&c, &shard, 0.3f);
    for (size_t i = 0; i < sizes[_i]; i++) {
        struct adamw_shard one = arrays_shard(&single, 1 + i, 1);

        adamw_update(&c, &one, 0.3f);
    }
    ck_assert_mem_eq(&whole, &single, sizeof(whole));
}
END_TEST

/* In fp32, and rounded once in the end: also where a shard has more than one block. */
START_TEST(adamw_update_of_narrow_parameters_rounds_what_it_stores)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_FP16};
    struct adamw_constants constants = adamw_constants_compute(&hyper, 3);
    struct arrays wide;
    struct arrays narrow;
    uint16_t stored[MAX_ELEMS];
    uint16_t expected[MAX_ELEMS];
    struct adamw_shard shard = arrays_shard(&narrow, 0, MAX_ELEMS);
    struct adamw_shard wide_shard = arrays_shard(&wide, 0, MAX_ELEMS);

    arrays_fill(&narrow, 9);
    cast_from_fp32(stored, dtypes[_i], narrow.params, MAX_ELEMS);
    wide = narrow;
    cast_to_fp32(wide.params, stored, dtypes[_i], MAX_ELEMS);
    adamw_update(&constants, &wide_shard, 0.5f);
    cast_from_fp32(expected, dtypes[_i], wide.params, MAX_ELEMS);
    shard.params = stored;
    shard.params_dtype = dtypes[_i];
    adamw_update(&constants, &shard, 0.5f);
    ck_assert_mem_eq(stored, expected, sizeof(stored));
    ck_assert_mem_eq(narrow.exp_avg, wide.exp_avg, sizeof(wide.exp_avg));
    ck_assert_mem_eq(narrow.exp_avg_sq, wide.exp_avg_sq, sizeof(wide.exp_avg_sq));
}
END_TEST

START_TEST(adamw_update_multiplies_gradients_by_the_factor)
{
    static struct arrays factored;
    static struct arrays plain;
    struct adamw_constants c = adamw_constants_compute(&hyper, 1);
    struct adamw_shard factored_shard = arrays_shard(&factored, 0, MAX_ELEMS);
    struct adamw_shard plain_shard = arrays_shard(&plain, 0, MAX_ELEMS);

    arrays_fill(&factored, 30);
    plain = factored;
    for (size_t i = 0; i < MAX_ELEMS; i++) {
        plain.grads[i] *= 0.3f;
    }
    adamw_update(&c, &factored_shard, 0.3f);
    adamw_update(&c, &plain_shard, 1.0f);
    ck_assert_mem_eq(factored.params, plain.params, sizeof(plain.params));
    ck_assert_mem_eq(factored.exp_avg, plain.exp_avg, sizeof(plain.exp_avg));
    ck_assert_mem_eq(factored.exp_avg_sq, plain.exp_avg_sq, sizeof(plain.exp_avg_sq));
}
END_TEST

START_TEST(adamw_update_without_gradients_only_decays)
{
    static struct arrays arrays;
    struct adamw_constants c = adamw_constants_compute(&hyper, 1);
    struct adamw_shard shard = arrays_shard(&arrays, 0, 2);

    arrays.params[0] = 1.0f;
    arrays.params[1] = -3.0f;
    adamw_update(&c, &shard, 1.0f);
    ck_assert_float_eq(arrays.params[0], c.decay);
    ck_assert_float_eq(arrays.params[1], -3.0f * c.decay);
    ck_assert_float_eq(arrays.exp_avg[0], 0.0f);
    ck_assert_float_eq(arrays.exp_avg_sq[0], 0.0f);
}
END_TEST

/* One parameter of the fp64 model. */
static void model_update(double state[3], double grad, uint64_t step)
{
    double bias1 = 1.0 - pow(hyper.beta1, (double)step);
    double bias2 = 1.0 - pow(hyper.beta2, (double)step);

    state[1] = hyper.beta1 * state[1] + (1.0 - hyper.beta1) * grad;
    state[2] = hyper.beta2 * state[2] + (1.0 - hyper.beta2) * grad * grad;
    state[0] -= hyper.learning_rate * hyper.weight_decay * state[0];
    state[0] -= hyper.learning_rate * (state[1] / bias1) / (sqrt(state[2] / bias2) + hyper.epsilon);
}

START_TEST(adamw_update_follows_the_model)
{
    static struct arrays arrays;
    double model[8][3] = {{0}};
    uint64_t state = 31;

    for (uint64_t step = 1; step <= 500; step++) {
        struct adamw_constants c = adamw_constants_compute(&hyper, step);
        struct adamw_shard shard = arrays_shard(&arrays, 0, 8);

        for (size_t i = 0; i < 8; i++) {
            arrays.grads[i] = values_float(&state, 118, 4) + 0.01f * (float)i;
            model_update(model[i], (double)arrays.grads[i] * 0.5, step);
        }
        adamw_update(&c, &shard, 0.5f);
    }
    for (size_t i = 0; i < 8; i++) {
        ck_assert_double_eq_tol(arrays.params[i], model[i][0], 1e-5);
        ck_assert_double_eq_tol(arrays.exp_avg[i], model[i][1], 1e-7);
        ck_assert_double_eq_tol(arrays.exp_avg_sq[i] / model[i][2], 1.0, 1e-5);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("adamw");
    TCase *tcase = tcase_create("adamw");

    tcase_add_test(tcase, adamw_constants_are_fp64_rounded_once);
    tcase_add_test(tcase, adamw_constants_of_any_step_match_pow);
    tcase_add_loop_test(tcase, adamw_update_has_the_bits_of_its_formula, 0, N_GOLDENS);
    tcase_add_loop_test(tcase, adamw_update_of_any_cut_has_the_same_bits, 0, 8);
    tcase_add_loop_test(tcase, adamw_update_of_narrow_parameters_rounds_what_it_stores, 0, 2);
    tcase_add_test(tcase, adamw_update_multiplies_gradients_by_the_factor);
    tcase_add_test(tcase, adamw_update_without_gradients_only_decays);
    tcase_add_test(tcase, adamw_update_follows_the_model);
    suite_add_tcase(suite, tcase);
    return suite;
}
