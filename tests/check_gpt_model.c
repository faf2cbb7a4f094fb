/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp-gpt in single precision: first weights by slice, first loss, bits that no address changes.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/init.h"
#include "examples/gpt/model.h"
#include "examples/gpt/rng.h"
#include "suite.h"

enum { MAX_UNITS = 4, N_TOKENS = 24 };

static const struct model_shape shape = {
    .n_layers = 2, .n_channels = 24, .n_heads = 3, .n_positions = 12, .n_batch = 2, .is_rotary = 1};

static float *params[MAX_UNITS][MODEL_MAX_PARAMS];
static float *grads[MAX_UNITS][MODEL_MAX_PARAMS];
static size_t n_elems[MAX_UNITS][MODEL_MAX_PARAMS];
static uint32_t n_params[MAX_UNITS];
static uint8_t inputs[N_TOKENS], targets[N_TOKENS];

static void model_setup(void)
{
    struct model_param table[MODEL_MAX_PARAMS];

    for (uint32_t unit = 0; unit < model_n_units(&shape); unit++) {
        n_params[unit] = model_unit_params(&shape, unit, table);
        for (uint32_t i = 0; i < n_params[unit]; i++) {
            n_elems[unit][i] = model_param_elems(&table[i]);
            params[unit][i] = calloc(n_elems[unit][i], sizeof(float));
            grads[unit][i] = calloc(n_elems[unit][i], sizeof(float));
            init_slice(params[unit][i], &table[i], 1, 0, n_elems[unit][i]);
        }
    }
    for (int i = 0; i < N_TOKENS; i++) {
        inputs[i] = (uint8_t)(31 * i);
        targets[i] = (uint8_t)(31 * (i + 1));
    }
}

static void model_teardown(void)
{
    for (uint32_t unit = 0; unit < model_n_units(&shape); unit++) {
        for (uint32_t i = 0; i < n_params[unit]; i++) {
            free(params[unit][i]);
            free(grads[unit][i]);
        }
    }
}

/* Forward and backward with the activations `shift` floats into their memory; the mean loss. */
static double model_run(size_t shift)
{
    const size_t n_arena = model_arena_elems(&shape);
    float *base = calloc(n_arena + shift, sizeof(float));
    struct model_arena arena;
    const struct model_pass pass = {&shape, &arena, inputs, targets};
    double loss;

    model_arena_init(&shape, base + shift, &arena);
    for (uint32_t unit = 0; unit < model_n_units(&shape); unit++) {
        model_forward(&pass, unit, (const float *const *)params[unit]);
    }
    loss = model_loss(&pass, shape.n_batch);
    for (uint32_t unit = model_n_units(&shape); unit-- > 0;) {
        model_backward(&pass, unit, (const float *const *)params[unit], grads[unit]);
    }
    free(base);
    return loss;
}

/* A sum in which every gradient bit counts. */
static uint64_t grads_digest(void)
{
    uint64_t digest = 0;
    uint32_t bits;

    for (uint32_t unit = 0; unit < model_n_units(&shape); unit++) {
        for (uint32_t i = 0; i < n_params[unit]; i++) {
            for (size_t k = 0; k < n_elems[unit][i]; k++) {
                memcpy(&bits, &grads[unit][i][k], sizeof(bits));
                digest = digest * 6364136223846793005u + bits;
            }
        }
    }
    return digest;
}

static void params_descend(float rate)
{
    for (uint32_t unit = 0; unit < model_n_units(&shape); unit++) {
        for (uint32_t i = 0; i < n_params[unit]; i++) {
            for (size_t k = 0; k < n_elems[unit][i]; k++) {
                params[unit][i][k] -= rate * grads[unit][i][k];
            }
        }
    }
}

START_TEST(model_loss_first_weights_is_near_that_of_a_guess)
{
    ck_assert_double_eq_tol(model_run(0), log(256), 0.05);
}
END_TEST

START_TEST(model_loss_after_descent_is_lower)
{
    const double first = model_run(0);

    for (int i = 0; i < 50; i++) {
        params_descend(0.5F);
        model_run(0);
    }
    ck_assert_double_lt(model_run(0), first / 2);
}
END_TEST

START_TEST(model_backward_other_addresses_give_the_same_bits)
{
    const double loss = model_run(0);
    const uint64_t digest = grads_digest();

    for (size_t shift = 1; shift < 16; shift += 2) {
        ck_assert_double_eq(model_run(shift), loss);
        ck_assert_uint_eq(grads_digest(), digest);
    }
}
END_TEST

START_TEST(model_unit_params_names_are_unique_and_complete)
{
    struct model_param table[MODEL_MAX_PARAMS];
    char name[MODEL_NAME_BYTES];

    ck_assert_uint_eq(model_unit_params(&shape, 2, table), 12);
    ck_assert_str_eq(table[2].name, "block.1.qkv.weight");
    ck_assert_int_eq(table[2].shape[0], 72);
    ck_assert_int_eq(table[2].shape[1], 24);
    ck_assert_uint_eq(table[2].hyper_group, MODEL_GROUP_DECAY);
    ck_assert_uint_eq(table[3].hyper_group, MODEL_GROUP_NO_DECAY);
    model_unit_name(&shape, 3, name, sizeof(name));
    ck_assert_str_eq(name, "head");
}
END_TEST

START_TEST(init_slice_slices_equal_the_whole)
{
    static const uint64_t cuts[] = {0, 1, 7, 500, 501, 576};
    struct model_param table[MODEL_MAX_PARAMS];
    float whole[576], parts[576];

    model_unit_params(&shape, 1, table);
    init_slice(whole, &table[4], 3, 0, 576); /* block.0.mix.weight */
    for (int i = 4; i >= 0; i--) {
        init_slice(parts + cuts[i], &table[4], 3, cuts[i], cuts[i + 1] - cuts[i]);
    }
    ck_assert_mem_eq(whole, parts, sizeof(whole));
}
END_TEST

START_TEST(init_slice_other_name_or_seed_differs)
{
    struct model_param first[MODEL_MAX_PARAMS], second[MODEL_MAX_PARAMS];
    float own[64], other_name[64], other_seed[64];

    model_unit_params(&shape, 1, first);
    model_unit_params(&shape, 2, second);
    init_slice(own, &first[4], 3, 0, 64);
    init_slice(other_name, &second[4], 3, 0, 64);
    init_slice(other_seed, &first[4], 4, 0, 64);
    for (int i = 0; i < 64; i++) {
        ck_assert_float_ne(own[i], other_name[i]);
        ck_assert_float_ne(own[i], other_seed[i]);
    }
}
END_TEST

START_TEST(init_slice_norm_weight_is_one)
{
    struct model_param table[MODEL_MAX_PARAMS];
    float weight[24], bias[24];

    model_unit_params(&shape, 1, table);
    init_slice(weight, &table[0], 3, 0, 24);
    init_slice(bias, &table[1], 3, 0, 24);
    for (int i = 0; i < 24; i++) {
        ck_assert_float_eq(weight[i], 1);
        ck_assert_float_eq(bias[i], 0);
    }
}
END_TEST

START_TEST(rng_normal_many_have_the_moments_of_a_normal)
{
    const uint64_t key = rng_key(9, "moments");
    double sum = 0, squares = 0, fourths = 0;

    for (uint64_t i = 0; i < 100000; i++) {
        const double x = rng_normal(key, i);

        sum += x;
        squares += x * x;
        fourths += x * x * x * x;
    }
    ck_assert_double_eq_tol(sum / 100000, 0, 0.02);
    ck_assert_double_eq_tol(squares / 100000, 1, 0.03);
    ck_assert_double_eq_tol(fourths / 100000, 3, 0.2);
}
END_TEST

START_TEST(rng_bits_every_bit_is_set_half_of_the_time)
{
    const uint64_t key = rng_key(9, "bits");
    int n_set[64] = {0};

    for (uint64_t i = 0; i < 10000; i++) {
        for (int bit = 0; bit < 64; bit++) {
            n_set[bit] += (int)(rng_bits(key, i) >> bit & 1);
        }
    }
    for (int bit = 0; bit < 64; bit++) {
        ck_assert_int_ge(n_set[bit], 4750);
        ck_assert_int_le(n_set[bit], 5250);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpt_model");
    TCase *model = tcase_create("model"), *values = tcase_create("first values");

    tcase_add_checked_fixture(model, model_setup, model_teardown);
    tcase_add_test(model, model_loss_first_weights_is_near_that_of_a_guess);
    tcase_add_test(model, model_loss_after_descent_is_lower);
    tcase_add_test(model, model_backward_other_addresses_give_the_same_bits);
    tcase_add_test(model, model_unit_params_names_are_unique_and_complete);
    tcase_add_test(values, init_slice_slices_equal_the_whole);
    tcase_add_test(values, init_slice_other_name_or_seed_differs);
    tcase_add_test(values, init_slice_norm_weight_is_one);
    tcase_add_test(values, rng_normal_many_have_the_moments_of_a_normal);
    tcase_add_test(values, rng_bits_every_bit_is_set_half_of_the_time);
    tcase_set_timeout(model, 60);
    suite_add_tcase(suite, model);
    suite_add_tcase(suite, values);
    return suite;
}
