/* SPDX-License-Identifier: Apache-2.0 */
/* Mathematics: several passes in a window, late gradients, and what is rounded when. */
#include <math.h>
#include <stdio.h>

#include "mathematics.h"
#include "numbers.h"

#define EXACT 0.0

static int32_t window_scope; /* of the passes before the last */
static uint32_t window_batches;

/* Gradients 1 and 3, then 2 and 6, ...: means of 2, 4, ... */
static double growing(struct host_at at)
{
    return (at.rank == 0 ? 1.0 : 3.0) * (at.microbatch + 1);
}

static void window_run(struct host *host)
{
    double expected = (double)(window_batches * (window_batches + 1));

    for (uint32_t batch = 0; batch < window_batches; batch++) {
        int32_t scope = batch + 1 == window_batches ? HSDP_SCOPE_FULL : window_scope;

        host_forward(host);
        host_backward(host, scope, batch, growing);
    }
    host_step(host, 0.0);
    numbers_expect_grad(host, "w", expected, EXACT);
    numbers_expect_grad(host, "x", expected, EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

static void window_try(struct conform *conform, int32_t scope)
{
    char settings[64];
    const struct numbers_trial trial = {"dp=2", settings, "unit a: w[5]; unit b: x[97]",
                                        window_run};
    struct host host;

    window_scope = scope;
    snprintf(settings, sizeof(settings), "accumulation_scope=%s", host_scopes[scope]);
    numbers_join(conform, &host, "dp=2", "");
    for (window_batches = 1; window_batches <= 3; window_batches++) {
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

void math_scope_none(struct conform *conform)
{
    window_try(conform, HSDP_SCOPE_NONE);
}

void math_scope_inner(struct conform *conform)
{
    window_try(conform, HSDP_SCOPE_INNER);
}

void math_scope_full(struct conform *conform)
{
    window_try(conform, HSDP_SCOPE_FULL);
}

/* The same over inner and outer ranks at once. */
static void nested_run(struct host *host)
{
    host_backward(host, window_scope, 0, numbers_rank_plus_1);
    host_backward(host, window_scope, 1, numbers_rank_plus_1);
    host_backward(host, HSDP_SCOPE_FULL, 2, numbers_rank_plus_1);
    host_step(host, 0.0);
    numbers_expect_grad(host, "w", 7.5, EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_scopes_of_two_levels(struct conform *conform)
{
    struct host host;

    numbers_join(conform, &host, "dp=4", "");
    for (window_scope = HSDP_SCOPE_NONE; window_scope <= HSDP_SCOPE_FULL; window_scope++) {
        char settings[64];
        struct numbers_trial trial = {"dp=4", settings, "unit a: w[5001]; unit b: x[5]",
                                      nested_run};

        snprintf(settings, sizeof(settings), "shard_size=2 accumulation_scope=%s",
                 host_scopes[window_scope]);
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* A window ends with its step: nothing of it is in the next one. */
static void two_windows_run(struct host *host)
{
    for (int i = 0; i < 2; i++) {
        host_backward(host, HSDP_SCOPE_NONE, 0, numbers_one);
        numbers_step(host, numbers_one);
        numbers_expect_grad(host, "w", 2.0, EXACT);
        host_step_end(host);
    }
    host_backward(host, HSDP_SCOPE_NONE, 0, numbers_one);
    numbers_step(host, numbers_one);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
    numbers_step(host, numbers_one);
    numbers_expect_grad(host, "w", 1.0, EXACT);
    host_step_end(host);
}

void math_windows_apart(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[97]; unit b: x[5]",
                                               two_windows_run};

    numbers_try(conform, &trial);
}

/* ------------------------------------------------------------------------------------- late */

static double five_then_four(struct host_at at)
{
    return at.microbatch == 0 ? 5.0 : 4.0;
}

/* p has 5 and a late 2, q is first seen in the last microbatch, r is never used. */
static void late_run(struct host *host)
{
    host_pass_begin(host, window_scope);
    host_acquire(host, host_unit(host, "c"));
    host_hand_over(host, host_unit(host, "c"));
    host_acquire(host, host_unit(host, "a"));
    host_fill(host, host_unit(host, "a"), 0, five_then_four);
    host_hand_over(host, host_unit(host, "a"));
    host_pass_end(host);
    host_grad_add(host, "p", 2.0, "bf16");
    host_pass_begin(host, HSDP_SCOPE_FULL);
    host_acquire(host, host_unit(host, "b"));
    host_fill(host, host_unit(host, "b"), 1, five_then_four);
    host_hand_over(host, host_unit(host, "b"));
    host_pass_end(host);
    host_step(host, 0.0);
    numbers_expect_grad(host, "p", 7.0, EXACT);
    numbers_expect_grad(host, "q", 4.0, EXACT);
    numbers_expect_grad(host, "r", 0.0, EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_late(struct conform *conform)
{
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (window_scope = HSDP_SCOPE_NONE; window_scope <= HSDP_SCOPE_FULL; window_scope++) {
        char settings[64];
        struct numbers_trial trial = {"dp=2", settings, "unit a: p[6]; unit b: q[6]; unit c: r[6]",
                                      late_run};

        snprintf(settings, sizeof(settings), "accumulation_scope=%s", host_scopes[window_scope]);
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* A foreign gradient joins the hand-over that is next, skipped or not; twice is twice. */
static void foreign_run(struct host *host)
{
    host_pass_begin(host, HSDP_SCOPE_FULL);
    host_attend(host, host_unit(host, "b"));
    host_grad_add(host, "q", 1.5, "fp16");
    host_grad_add(host, "q", 0.5, "fp32");
    host_must(host, host_skip(host, host_unit(host, "b")));
    host_acquire(host, host_unit(host, "a"));
    host_fill(host, host_unit(host, "a"), 0, numbers_one);
    host_grad_add(host, "p", 3.0, "fp32");
    host_hand_over(host, host_unit(host, "a"));
    host_pass_end(host);
    host_step(host, 0.0);
    numbers_expect_grad(host, "p", 4.0, EXACT);
    numbers_expect_grad(host, "q", 2.0, EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_foreign(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: p[6]; unit b: q[6]",
                                               foreign_run};

    numbers_try(conform, &trial);
}

/* --------------------------------------------------------------------------------- rounding */

/* 1 + 2^-9 is 1 in bf16. */
static double a_bit_more(struct host_at at)
{
    (void)at;
    return 1.0 + 0x1p-9;
}

/* 256 and ones: the sum has more bits than bf16. */
static double large_and_small(struct host_at at)
{
    return at.rank == 0 ? 256.0 : 1.0;
}

static void wire_run(struct host *host)
{
    numbers_step(host, a_bit_more);
    numbers_expect_grad(host, "w", 1.0, EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
    numbers_step(host, large_and_small);
    numbers_expect_grad(host, "w", 259.0 / 4.0, EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_wire(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=4", "reduce_dtype=bf16 gradient_dtype=fp32 shard_size=2", "unit a: w[97]", wire_run};

    numbers_try(conform, &trial);
}

static double sixty_thousand(struct host_at at)
{
    (void)at;
    return 60000.0;
}

static void overflow_run(struct host *host)
{
    numbers_step(host, sixty_thousand);
    numbers_expect_grad(host, "w", host_round(60000.0, "fp16"), EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_wire_overflow(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2,cp=2", "reduce_dtype=fp16", "unit a: w[97]",
                                               overflow_run};

    numbers_try(conform, &trial);
}

/* 1 and 3 * 2^-9 each fit bf16, and their sum does not: under scope none it is what is sent. */
static double two_parts(struct host_at at)
{
    return at.microbatch == 0 ? 1.0 : 3.0 * 0x1p-9;
}

static void local_sum_run(struct host *host)
{
    host_backward(host, window_scope, 0, two_parts);
    host_backward(host, HSDP_SCOPE_FULL, 1, two_parts);
    host_step(host, 0.0);
    numbers_expect_grad(host, "w",
                        window_scope == HSDP_SCOPE_NONE ? 1.0 + 0x1p-7 : 1.0 + 3.0 * 0x1p-9, EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_wire_of_windows(struct conform *conform)
{
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (window_scope = HSDP_SCOPE_NONE; window_scope <= HSDP_SCOPE_FULL; window_scope++) {
        char settings[96];
        struct numbers_trial trial = {"dp=2", settings, "unit a: w[97]", local_sum_run};

        snprintf(settings, sizeof(settings), "reduce_dtype=bf16 accumulation_scope=%s",
                 host_scopes[window_scope]);
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* The same over a wire of fp32: the views are narrow, and what is added up on a rank is not. */
static void local_fp32_run(struct host *host)
{
    host_backward(host, window_scope, 0, two_parts);
    host_backward(host, HSDP_SCOPE_FULL, 1, two_parts);
    host_step(host, 0.0);
    numbers_expect_grad(host, "w", 1.0 + 3.0 * 0x1p-9, EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_narrow_views(struct conform *conform)
{
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (window_scope = HSDP_SCOPE_NONE; window_scope <= HSDP_SCOPE_FULL; window_scope++) {
        char settings[96];
        struct numbers_trial trial = {"dp=2", settings, "unit a: w[97]", local_fp32_run};

        snprintf(settings, sizeof(settings), "gradient_dtype=bf16 accumulation_scope=%s",
                 host_scopes[window_scope]);
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* The dtype of each view is what was asked for. */
static void dtype_expect(const struct hsdp_tensor *view, const char *what, const char *dtype)
{
    uint8_t code = strcmp(dtype, "bf16") == 0 ? HSDP_DTYPE_BFLOAT : HSDP_DTYPE_FLOAT;
    uint8_t bits = strcmp(dtype, "fp32") == 0 ? 32 : 16;

    numbers_expect(view->dtype_code == code && view->dtype_bits == bits && view->dtype_lanes == 1,
                   "the %s view is of dtype code %u with %u bits, and was asked to be %s", what,
                   view->dtype_code, view->dtype_bits, dtype);
}

static const char *view_dtypes[3]; /* of parameters, gradients and masters */

static void views_run(struct host *host)
{
    const float *values;
    struct hsdp_tensor view = host_view(host, 0, HSDP_VIEW_PARAM);

    dtype_expect(&view, "parameter's", view_dtypes[0]);
    view = host_view(host, 0, HSDP_VIEW_GRAD);
    dtype_expect(&view, "gradient's", view_dtypes[1]);
    host_must(host,
              host->api->model->flat_view(host->model, 0, 0, HSDP_FLAT_MASTER, &view, &host->err));
    dtype_expect(&view, "masters'", view_dtypes[2]);
    host_must(host,
              host->api->model->flat_view(host->model, 0, 0, HSDP_FLAT_GRAD, &view, &host->err));
    dtype_expect(&view, "flat gradient's", "fp32");
    numbers_step(host, numbers_small);
    values = host_export(host, 0, HSDP_FLAT_GRAD);
    for (uint64_t elem = 0; elem < 97; elem++) {
        host_expect_number(host, "w", elem, (double)values[elem],
                           (numbers_small((struct host_at){0, 0, 0, elem}) +
                            numbers_small((struct host_at){1, 0, 0, elem})) /
                               2.0);
    }
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_dtypes(struct conform *conform)
{
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (uint32_t i = 0; i < 9; i++) {
        char settings[160];
        struct numbers_trial trial = {"dp=2", settings, "unit a: w[97]", views_run};

        view_dtypes[0] = host_dtypes[i % 3];
        view_dtypes[1] = host_dtypes[i / 3];
        view_dtypes[2] = host_dtypes[(i + i / 3) % 3];
        snprintf(settings, sizeof(settings),
                 "param_dtype=%s gradient_dtype=%s master_dtype=%s reduce_dtype=%s", view_dtypes[0],
                 view_dtypes[1], view_dtypes[2], host_dtypes[(i + 1) % 3]);
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* ------------------------------------------------------------------------------- fresh buffers */

static double not_a_number(struct host_at at)
{
    (void)at;
    return NAN;
}

/* What an earlier pass has left in the memory of a gradient is not in the next one. */
static void fresh_run(struct host *host)
{
    host_backward(host, HSDP_SCOPE_FULL, 0, not_a_number);
    host_step(host, 0.0);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
    host_pass_begin(host, HSDP_SCOPE_FULL);
    for (uint32_t unit = host->n_units; unit-- > 0;) {
        struct hsdp_tensor view;

        host_acquire(host, unit);
        view = host_view(host, unit, HSDP_VIEW_GRAD);
        for (uint64_t elem = 0; elem < host->params[unit].n_elems; elem++) {
            host_expect_number(host, "gradient", elem, host_read(&view, elem), 0.0);
        }
        host_hand_over(host, unit);
    }
    host_pass_end(host);
    host_step(host, 0.0);
    numbers_expect_grad(host, "w", 0.0, EXACT);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_fresh(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2", "slots=1", "unit a: w[97]; unit b: x[97]; unit c: y[97]", fresh_run};

    numbers_try(conform, &trial);
}

/* As many units at a time as there are slots. */
static uint32_t n_slots;

static void slots_run(struct host *host)
{
    host_pass_begin(host, HSDP_SCOPE_FULL);
    for (uint32_t unit = host->n_units; unit-- > 0;) {
        host_acquire(host, unit);
        host_fill(host, unit, 0, numbers_rank_plus_1);
        if (unit + n_slots - 1 < host->n_units) {
            host_hand_over(host, unit + n_slots - 1);
        }
    }
    for (uint32_t unit = n_slots - 1; unit-- > 0;) {
        host_hand_over(host, unit);
    }
    host_pass_end(host);
    host_step(host, 0.0);
    for (uint32_t param = 0; param < host->n_params; param++) {
        numbers_expect_grad(host, host->params[param].name, 1.5, EXACT);
    }
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void math_slots(struct conform *conform)
{
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (n_slots = 1; n_slots <= 4; n_slots++) {
        char settings[16];
        struct numbers_trial trial = {
            "dp=2", settings,
            "unit a: w[9]; unit b: x[9]; unit c: y[9]; unit d: z[9]; unit e: v[9]", slots_run};

        snprintf(settings, sizeof(settings), "slots=%u", n_slots);
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}
