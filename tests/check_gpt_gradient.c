/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of hsdp-gpt's units, in double precision, against differences of the loss. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/model.h"
#include "suite.h"

enum { MAX_UNITS = 4, N_TOKENS = 8 };

static const uint8_t inputs[N_TOKENS] = {7, 200, 7, 31, 0, 255, 31, 9};
static const uint8_t targets[N_TOKENS] = {200, 7, 31, 7, 255, 31, 9, 9};

/* A small model whose parameters are far from any symmetric point. */
struct fixture {
    struct model_shape shape;
    struct model_arena arena;
    struct model_pass pass;
    real *base;
    real *params[MAX_UNITS][MODEL_MAX_PARAMS];
    real *grads[MAX_UNITS][MODEL_MAX_PARAMS];
    size_t n_elems[MAX_UNITS][MODEL_MAX_PARAMS];
    uint32_t n_params[MAX_UNITS];
    uint32_t n_units;
};

static void params_fill(struct fixture *fixture, uint32_t unit)
{
    struct model_param table[MODEL_MAX_PARAMS];

    fixture->n_params[unit] = model_unit_params(&fixture->shape, unit, table);
    for (uint32_t i = 0; i < fixture->n_params[unit]; i++) {
        const size_t n_elems = model_param_elems(&table[i]);
        real *values = calloc(n_elems, sizeof(*values));
        real *grads = calloc(n_elems, sizeof(*grads));

        for (size_t k = 0; k < n_elems; k++) {
            values[k] = table[i].constant + 0.4 * sin(3.0 * (double)k + 11.0 * i + 5.0 * unit);
            grads[k] = NAN; /* so that an element left unwritten shows */
        }
        fixture->params[unit][i] = values;
        fixture->grads[unit][i] = grads;
        fixture->n_elems[unit][i] = n_elems;
    }
}

static struct fixture *fixture_create(uint32_t is_rotary)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    fixture->shape = (struct model_shape){.n_layers = 2,
                                          .n_channels = 8,
                                          .n_heads = 2,
                                          .n_positions = 4,
                                          .n_batch = 2,
                                          .is_rotary = is_rotary};
    fixture->n_units = model_n_units(&fixture->shape);
    fixture->base = calloc(model_arena_elems(&fixture->shape), sizeof(real));
    model_arena_init(&fixture->shape, fixture->base, &fixture->arena);
    fixture->pass = (struct model_pass){&fixture->shape, &fixture->arena, inputs, targets};
    for (uint32_t unit = 0; unit < fixture->n_units; unit++) {
        params_fill(fixture, unit);
    }
    return fixture;
}

static void fixture_destroy(struct fixture *fixture)
{
    for (uint32_t unit = 0; unit < fixture->n_units; unit++) {
        for (uint32_t i = 0; i < fixture->n_params[unit]; i++) {
            free(fixture->params[unit][i]);
            free(fixture->grads[unit][i]);
        }
    }
    free(fixture->base);
    free(fixture);
}

static double loss_of(const struct fixture *fixture)
{
    for (uint32_t unit = 0; unit < fixture->n_units; unit++) {
        model_forward(&fixture->pass, unit, (const real *const *)fixture->params[unit]);
    }
    return model_loss(&fixture->pass, fixture->shape.n_batch);
}

static void grads_compute(const struct fixture *fixture)
{
    loss_of(fixture);
    for (uint32_t unit = fixture->n_units; unit-- > 0;) {
        model_backward(&fixture->pass, unit, (const real *const *)fixture->params[unit],
                       fixture->grads[unit]);
    }
}

/* Central difference of the loss by one element. */
static double loss_slope(const struct fixture *fixture, real *element)
{
    const double width = 1e-5, kept = *element;
    double above, below;

    *element = kept + width;
    above = loss_of(fixture);
    *element = kept - width;
    below = loss_of(fixture);
    *element = kept;
    return (above - below) / (2 * width);
}

/* Compares every stride-th element of a unit; returns how many gradients were not zero. */
static size_t unit_compare(const struct fixture *fixture, uint32_t unit, size_t stride)
{
    size_t n_nonzero = 0;

    for (uint32_t i = 0; i < fixture->n_params[unit]; i++) {
        for (size_t k = 0; k < fixture->n_elems[unit][i]; k += stride) {
            const double slope = loss_slope(fixture, &fixture->params[unit][i][k]);
            const double grad = fixture->grads[unit][i][k];

            ck_assert_msg(fabs(grad - slope) < 1e-8 + 1e-6 * fabs(slope),
                          "unit %u parameter %u element %zu: gradient %.12g, difference %.12g",
                          unit, i, k, grad, slope);
            n_nonzero += grad != 0;
        }
    }
    return n_nonzero;
}

START_TEST(model_backward_embedding_matches_differences)
{
    struct fixture *fixture = fixture_create((uint32_t)_i);

    grads_compute(fixture);
    /* of each fifth element: those of the six bytes that occur, and of learned positions */
    ck_assert_uint_eq(unit_compare(fixture, 0, 5), _i == 1 ? 10 : 17);
    fixture_destroy(fixture);
}
END_TEST

START_TEST(model_backward_block_matches_differences)
{
    struct fixture *fixture = fixture_create((uint32_t)_i);

    grads_compute(fixture);
    ck_assert_uint_gt(unit_compare(fixture, 1, 1), 800);
    ck_assert_uint_gt(unit_compare(fixture, 2, 3), 270);
    fixture_destroy(fixture);
}
END_TEST

START_TEST(model_backward_head_matches_differences)
{
    struct fixture *fixture = fixture_create((uint32_t)_i);

    grads_compute(fixture);
    ck_assert_uint_gt(unit_compare(fixture, 3, 7), 290);
    fixture_destroy(fixture);
}
END_TEST

START_TEST(model_backward_any_unit_writes_every_element)
{
    struct fixture *fixture = fixture_create((uint32_t)_i);

    grads_compute(fixture);
    for (uint32_t unit = 0; unit < fixture->n_units; unit++) {
        for (uint32_t i = 0; i < fixture->n_params[unit]; i++) {
            for (size_t k = 0; k < fixture->n_elems[unit][i]; k++) {
                ck_assert(isfinite(fixture->grads[unit][i][k]));
            }
        }
    }
    fixture_destroy(fixture);
}
END_TEST

START_TEST(model_forward_later_input_leaves_earlier_losses)
{
    struct fixture *fixture = fixture_create((uint32_t)_i);
    uint8_t changed[N_TOKENS];
    real before[N_TOKENS];

    loss_of(fixture);
    memcpy(before, fixture->arena.losses, sizeof(before));
    memcpy(changed, inputs, sizeof(changed));
    changed[2] = 99; /* the third of the first sequence */
    fixture->pass.inputs = changed;
    loss_of(fixture);
    ck_assert_double_eq(fixture->arena.losses[1], before[1]);
    ck_assert_double_ne(fixture->arena.losses[2], before[2]);
    ck_assert_double_ne(fixture->arena.losses[3], before[3]);
    ck_assert_double_eq(fixture->arena.losses[4], before[4]);
    fixture_destroy(fixture);
}
END_TEST

START_TEST(model_forward_swapped_inputs_change_the_last_loss)
{
    struct fixture *fixture = fixture_create((uint32_t)_i);
    uint8_t swapped[N_TOKENS];
    real before;

    loss_of(fixture);
    before = fixture->arena.losses[3];
    memcpy(swapped, inputs, sizeof(swapped));
    swapped[0] = inputs[1];
    swapped[1] = inputs[0];
    fixture->pass.inputs = swapped;
    loss_of(fixture);
    ck_assert_double_ne(fixture->arena.losses[3], before); /* positions count */
    fixture_destroy(fixture);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpt_gradient");
    TCase *tcase = tcase_create("units");

    /* each with learned positions (0) and with rotary ones (1) */
    tcase_add_loop_test(tcase, model_backward_embedding_matches_differences, 0, 2);
    tcase_add_loop_test(tcase, model_backward_block_matches_differences, 0, 2);
    tcase_add_loop_test(tcase, model_backward_head_matches_differences, 0, 2);
    tcase_add_loop_test(tcase, model_backward_any_unit_writes_every_element, 0, 2);
    tcase_add_loop_test(tcase, model_forward_later_input_leaves_earlier_losses, 0, 2);
    tcase_add_loop_test(tcase, model_forward_swapped_inputs_change_the_last_loss, 0, 2);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return suite;
}
