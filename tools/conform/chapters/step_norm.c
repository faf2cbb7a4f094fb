/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: the norm, what it is clipped to, scales and weights, and what is not finite. */
#include <math.h>
#include <stdio.h>

#include "numbers.h"
#include "steps.h"

#define FP64 1e-14

static void step_drop(struct host *host)
{
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

static struct hsdp_step_info step_with(struct host *host, const struct hsdp_step_spec *spec)
{
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;

    host_must(host, host->api->step->begin(host->model, spec, NULL, &host->err));
    host_must(host, host->api->step->result(host->model, &result, &host->err));
    return result;
}

/* ---------------------------------------------------------------------------- what is counted */

static void replicas_run(struct host *host)
{
    numbers_expect_near("the norm", numbers_step(host, numbers_one).norm, sqrt(97.0 + 1031.0 + 1.0),
                        FP64);
    step_drop(host);
}

void step_norm_of_replicas(struct conform *conform)
{
    struct host host;

    numbers_join(conform, &host, "dp=4", "");
    for (uint32_t size = 1; size <= 4; size *= 2) {
        char settings[32];
        struct numbers_trial trial = {"dp=4", settings, "unit a: w[97]; unit b: x[1031] y[1]",
                                      replicas_run};

        snprintf(settings, sizeof(settings), "shard_size=%u", size);
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* Each rank along tp has a part of w, each along ep other experts; n is the same along tp. */
static void classes_run(struct host *host)
{
    double norm = numbers_step(host, numbers_one).norm;

    if (host->dims[1].is_data) { /* each expert has gradients of dp alone, over four data ranks */
        numbers_expect_near("the norm", norm, sqrt(5.0 + 2.0 * 7.0 * 0.25), FP64);
    } else {
        numbers_expect_near("the norm", norm, sqrt(2.0 * 5.0 + 7.0), FP64);
    }
    step_drop(host);
}

void step_norm_of_classes(struct conform *conform)
{
    static const struct numbers_trial trials[] = {
        {"dp=2,tp=2", "", "unit a: w[5]; class norm(dp,tp)(dp); unit b: n[7]", classes_run},
        {"dp=2,ep=2", "", "unit a: w[5]; class expert(dp); unit b: e[7]", classes_run},
    };

    numbers_begin(conform);
    for (uint32_t i = 0; i < NUMBERS_N(trials); i++) {
        struct host host;

        host_join_as(&host, conform->rank, trials[i].dims, "", i == 0 ? "parts" : "experts");
        numbers_try_joined(&host, &trials[i]);
        host_close(&host);
    }
}

/* Values of many bits, large and small. */
static double spread(struct host_at at)
{
    double sign = (at.elem + at.rank) % 3 == 0 ? -1.0 : 1.0;

    return sign * ldexp(1.0 + (double)(at.elem * 37 % 1009) / 1013.0, (int)(at.elem % 23) - 11);
}

/* The exact sum, nearly: of the very gradients that the plugin has. */
static void exact_run(struct host *host)
{
    struct hsdp_step_info result = numbers_step(host, spread);
    long double sum = 0.0L;

    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *values = host_export(host, param, HSDP_FLAT_GRAD);

        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            sum += (long double)values[elem] * (long double)values[elem];
        }
    }
    numbers_expect_near("the norm", result.norm, (double)sqrtl(sum), 1e-15);
    step_drop(host);
}

void step_norm_is_exact(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2",
                                               "unit a: w[97] y[1]; unit b: x[5003]", exact_run};

    numbers_try(conform, &trial);
}

/* Ones beside 2^27, whose square has no room for them: they count together. */
static double large_and_ones(struct host_at at)
{
    return at.elem == 0 ? 0x1p27 : 1.0;
}

static void small_run(struct host *host)
{
    double norm = numbers_step(host, large_and_ones).norm;

    numbers_expect_near("the norm", norm, sqrt(0x1p54 + 8191.0), 1e-15);
    step_drop(host);
}

void step_norm_of_small(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2", "unit a: w[8192]",
                                               small_run};

    numbers_try(conform, &trial);
}

static double first_norm;

/* Sums that are exact, so that the gradients have one value. */
static double few_bits(struct host_at at)
{
    return (double)((at.elem * 13 + at.rank * 5) % 61) / 8.0 - 3.0;
}

static void same_run(struct host *host)
{
    double norm = numbers_step(host, few_bits).norm;

    first_norm = numbers_is_under("ddp") ? norm : first_norm;
    numbers_expect(norm == first_norm, "the norm is %.17g, under ddp %.17g", norm, first_norm);
    step_drop(host);
}

void step_norm_of_any_strategy(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2",
                                               "unit a: w[97] y[1]; unit b: x[5003]", same_run};

    numbers_try(conform, &trial);
}

/* Gradients (3, 4) in each of two units. */
static double three_four(struct host_at at)
{
    return (at.elem == 0 ? 3.0 : 4.0) + (at.rank % 2 == 0 ? -1.0 : 1.0);
}

static void p_run(struct host *host)
{
    static const double powers[] = {0.0, 1.0, 2.0, 2.5, 3.0, 8.0, HUGE_VAL};

    for (uint32_t i = 0; i < NUMBERS_N(powers); i++) {
        struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
        double p = powers[i] == 0.0 ? 2.0 : powers[i];
        double expected = isinf(p) ? 4.0 : pow(2.0 * pow(3.0, p) + 2.0 * pow(4.0, p), 1.0 / p);
        char what[32];

        snprintf(what, sizeof(what), "the norm of p %g", powers[i]);
        spec.norm_p = powers[i];
        host_backward(host, HSDP_SCOPE_FULL, 0, three_four);
        numbers_expect_near(what, step_with(host, &spec).norm, expected, FP64);
        step_drop(host);
    }
}

void step_norm_p(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[2]; unit b: x[2] k[3]!",
                                               p_run};

    numbers_try(conform, &trial);
}

/* ----------------------------------------------------------------------------------- the factor */

struct factor_row {
    double max_norm, scale;
    double norm, clip;
};

/* The norm of the gradients is sqrt 50. */
static void factors_run(struct host *host, const struct factor_row *rows, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
        struct hsdp_step_info result;

        spec.max_norm = rows[i].max_norm;
        spec.gradient_scale = rows[i].scale;
        host_backward(host, HSDP_SCOPE_FULL, 0, three_four);
        result = step_with(host, &spec);
        numbers_expect_near("the norm", result.norm, rows[i].norm, FP64);
        numbers_expect_near("clip", result.clip, rows[i].clip, FP64);
        numbers_expect_near("factor", result.factor,
                            rows[i].clip * (rows[i].scale == 0.0 ? 1.0 : rows[i].scale), FP64);
        numbers_expect(result.is_nonfinite == 0 && result.weight == 0.0,
                       "is_nonfinite is %u, weight %g", result.is_nonfinite, result.weight);
        step_drop(host);
    }
}

#define ROOT_50 7.0710678118654755

static void clip_run(struct host *host)
{
    static const struct factor_row rows[] = {
        {0.0, 0.0, ROOT_50, 1.0},
        {100.0, 0.0, ROOT_50, 1.0},
        {1.0, 0.0, ROOT_50, 1.0 / (ROOT_50 + 1e-6)},
        {ROOT_50, 0.0, ROOT_50, ROOT_50 / (ROOT_50 + 1e-6)},
        {1e-3, 0.0, ROOT_50, 1e-3 / (ROOT_50 + 1e-6)},
    };

    factors_run(host, rows, NUMBERS_N(rows));
}

void step_clip(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[2]; unit b: x[2]", clip_run};

    numbers_try(conform, &trial);
}

static void scale_run(struct host *host)
{
    static const struct factor_row rows[] = {
        {0.0, 0.5, 0.5 * ROOT_50, 1.0},
        {1.0, 0.5, 0.5 * ROOT_50, 1.0 / (0.5 * ROOT_50 + 1e-6)},
        {4.0, 0.25, 0.25 * ROOT_50, 1.0},
        {4.0, 8.0, 8.0 * ROOT_50, 4.0 / (8.0 * ROOT_50 + 1e-6)},
    };

    factors_run(host, rows, NUMBERS_N(rows));
}

void step_scale(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[2]; unit b: x[2]", scale_run};

    numbers_try(conform, &trial);
}

/* Data ranks have 3 and 5 tokens, and their peers along tp as many. */
static void weight_run(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result;

    spec.has_weight = 1;
    spec.weight = host->rank / 2 == 0 ? 3.0 : 5.0;
    spec.max_norm = 0.5;
    host_backward(host, HSDP_SCOPE_FULL, 0, numbers_one);
    result = step_with(host, &spec);
    numbers_expect_near("weight", result.weight, 8.0, 0.0);
    /* four elements on each of two parts: the sum of two ranks, by 8 */
    numbers_expect_near("the norm", result.norm, sqrt(8.0) * 2.0 / 8.0, FP64);
    numbers_expect_near("factor", result.factor, 0.5 / (sqrt(8.0) * 2.0 / 8.0 + 1e-6) / 8.0, FP64);
    numbers_expect_grad(host, "w", 2.0, 0.0);
    step_drop(host);
}

void step_weight(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2,tp=2", "gradient_op=sum", "unit a: w[4]",
                                               weight_run};

    numbers_try(conform, &trial);
}

static void no_weight_run(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result;

    spec.has_weight = 1;
    host_backward(host, HSDP_SCOPE_FULL, 0, numbers_one);
    result = step_with(host, &spec);
    numbers_expect(isnan(result.norm), "the norm is %g", result.norm);
    numbers_expect(result.is_nonfinite == 1 && result.clip == 1.0, "is_nonfinite is %u, clip %g",
                   result.is_nonfinite, result.clip);
    step_drop(host);
}

void step_weight_of_zero(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "gradient_op=sum", "unit a: w[4]",
                                               no_weight_run};

    numbers_try(conform, &trial);
}

static void factor_view_run(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_tensor view, again;
    uint64_t ticket = 0;

    host_must(host, host->api->step->factor_view(host->model, &view, &host->err));
    numbers_expect(view.n_dims == 1 && view.shape[0] == 2 && view.dtype_bits == 32 &&
                       view.dtype_code == HSDP_DTYPE_FLOAT,
                   "the view is no fp32[2]");
    spec.max_norm = 1.0;
    spec.gradient_scale = 0.5;
    host_backward(host, HSDP_SCOPE_FULL, 0, three_four);
    host_must(host, host->api->step->begin(host->model, &spec, &ticket, &host->err));
    host_must(host, host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err));
    numbers_expect_near("its norm", host_read(&view, 0), 0.5 * ROOT_50, 0x1p-23);
    numbers_expect_near("its factor", host_read(&view, 1), 0.5 / (0.5 * ROOT_50 + 1e-6), 0x1p-23);
    host_must(host, host->api->step->factor_view(host->model, &again, &host->err));
    numbers_expect(again.base == view.base && again.byte_offset == view.byte_offset,
                   "its address has changed");
    step_drop(host);
}

void step_factor_view(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[2]; unit b: x[2]",
                                               factor_view_run};

    numbers_try(conform, &trial);
}

/* ----------------------------------------------------------------------------------- not finite */

static double bad_value;

/* (1, 2) and (bad, 3) */
static double one_bad(struct host_at at)
{
    return at.elem == 0 ? (at.rank == 0 ? 1.0 : bad_value) : 2.0 + at.rank;
}

static void not_finite_run(struct host *host)
{
    static const double values[] = {INFINITY, -INFINITY, NAN};

    for (uint32_t i = 0; i < NUMBERS_N(values); i++) {
        struct hsdp_step_info result;
        const float *grad;

        bad_value = values[i];
        host_backward(host, HSDP_SCOPE_FULL, 0, one_bad);
        result = host_step(host, 1.0);
        numbers_expect(isnan(bad_value) ? isnan(result.norm) : result.norm == HUGE_VAL,
                       "the norm with %g is %g", bad_value, result.norm);
        numbers_expect(result.is_nonfinite == 1, "rank %u does not know of it", host->rank);
        numbers_expect(result.clip == 1.0 && result.factor == 1.0, "clip is %g, factor %g",
                       result.clip, result.factor);
        grad = host_export(host, 0, HSDP_FLAT_GRAD);
        host_expect_number(host, "gradient", 0, (double)grad[0], bad_value);
        host_expect_number(host, "gradient", 1, (double)grad[1], 2.5);
        step_drop(host);
    }
}

void step_not_finite(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[2]", not_finite_run};

    numbers_try(conform, &trial);
}

static double bad_on_rank_two(struct host_at at)
{
    return at.rank == 2 && at.elem == 1500 ? NAN : 1.0;
}

static void refused_run(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    const float *values;

    host_load(host, numbers_small);
    host_backward(host, HSDP_SCOPE_FULL, 0, bad_on_rank_two);
    spec.error_if_nonfinite = 1;
    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
    numbers_refused(host, host->api->step->result(host->model, &result, &host->err),
                    HSDP_ERR_NONFINITE);
    numbers_refused(host, host->api->step->end(host->model, NULL, NULL, &host->err),
                    HSDP_ERR_STATE);
    values = host_export(host, 0, HSDP_FLAT_GRAD);
    host_expect_number(host, "gradient", 1499, (double)values[1499], 1.0);
    host_expect_number(host, "gradient", 1500, (double)values[1500], NAN);
    step_drop(host);
    values = host_export(host, 0, HSDP_FLAT_MASTER);
    for (uint64_t elem = 0; elem < 4000; elem++) {
        host_expect_number(host, "w", elem, (double)values[elem],
                           numbers_small((struct host_at){0, 0, 0, elem}));
    }
    numbers_expect_near("the next norm", numbers_step(host, numbers_one).norm, sqrt(4000.0), FP64);
    step_drop(host);
}

void step_refuses_not_finite(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2", "unit a: w[4000]",
                                               refused_run};

    numbers_try(conform, &trial);
}
