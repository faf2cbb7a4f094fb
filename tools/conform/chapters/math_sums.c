/* SPDX-License-Identifier: Apache-2.0 */
/* Mathematics: over whom gradients are summed, and what the sum is divided by. */
#include <math.h>
#include <stdio.h>

#include "mathematics.h"
#include "numbers.h"

#define EXACT 0.0
#define FP32  0x1p-22 /* a few roundings of fp32 */

static void step_drop(struct host *host)
{
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

/* ---------------------------------------------------------------------------------------- mean */

/* Gradients 1 and 3 of every size are 2. */
static double one_three(struct host_at at)
{
    return at.rank == 0 ? 1.0 : 3.0;
}

static void sizes_run(struct host *host)
{
    numbers_step(host, one_three);
    for (uint32_t param = 0; param < host->n_params; param++) {
        numbers_expect_grad(host, host->params[param].name, 2.0, EXACT);
    }
    step_drop(host);
}

void math_mean(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2", "", "unit a: w1[1] w2[2]; unit b: w3[3] w6[6] w0[]; unit c: odd[1031]", sizes_run};

    numbers_try(conform, &trial);
}

static void four_run(struct host *host)
{
    numbers_step(host, numbers_rank_plus_1);
    numbers_expect_grad(host, "w", 2.5, EXACT);
    step_drop(host);
}

void math_mean_of_dims(struct conform *conform)
{
    static const char *const dims[] = {"dp=4", "dp=2,cp=2", "cp=2,ep=2", "cp=4"};
    static char name[] = "mean-0";

    numbers_begin(conform);
    for (uint32_t i = 0; i < NUMBERS_N(dims); i++) {
        struct numbers_trial trial = {dims[i], "", "unit a: w[5]; unit b: x[97]", four_run};
        struct host host;

        name[5] = (char)('0' + i);
        host_join_as(&host, conform->rank, dims[i], "", name);
        numbers_try_joined(&host, &trial);
        host_close(&host);
    }
}

static void sum_run(struct host *host)
{
    numbers_step(host, numbers_rank_plus_1);
    numbers_expect_grad(host, "w", 10.0, EXACT);
    step_drop(host);
}

void math_sum(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2,cp=2", "gradient_op=sum gradient_divisor=7",
                                               "unit a: w[5]", sum_run};

    numbers_try(conform, &trial);
}

static double three_hundred(struct host_at at)
{
    (void)at;
    return 300.0;
}

static void divisor_run(struct host *host)
{
    numbers_step(host, three_hundred);
    numbers_expect_grad(host, "w", 4.0, FP32);
    numbers_expect_grad(host, "x", 12.0, FP32);
    step_drop(host);
}

void math_divisor(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2,cp=2", "gradient_divisor=300",
        "unit a: w[3]; class other gradient_divisor=100; unit b: x[3]", divisor_run};

    numbers_try(conform, &trial);
}

/* Dense 1, 2, 3, 4; experts 8 and 16 on ep 0, 4 and 12 on ep 1. */
static double of_experts(struct host_at at)
{
    static const double experts[] = {8.0, 4.0, 16.0, 12.0};

    return at.param == 0 ? 1.0 + at.rank : experts[at.rank];
}

static void experts_run(struct host *host)
{
    numbers_step(host, of_experts);
    numbers_expect_grad(host, "w", 2.5, EXACT);
    numbers_expect_grad(host, "x", host->rank % 2 == 0 ? 6.0 : 4.0, EXACT);
    step_drop(host);
}

void math_experts(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2,ep=2", "", "unit a: w[3]; class expert(dp); unit e: x[5]", experts_run};

    numbers_try(conform, &trial);
}

/* Ranks along tp see equal data, and hold other parts of `w`, but the same `n`. */
static double of_parts(struct host_at at)
{
    return at.param == 0 ? 1.0 + at.rank : 1.0 + at.rank / 2;
}

static void parts_run(struct host *host)
{
    numbers_step(host, of_parts);
    numbers_expect_grad(host, "w", host->rank % 2 == 0 ? 2.0 : 3.0, EXACT);
    numbers_expect_grad(host, "n", 1.5, EXACT);
    step_drop(host);
}

void math_reduced_over_a_part(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2,tp=2", "", "unit a: w[5]; class norm(dp,tp)(dp); unit b: n[7]", parts_run};

    numbers_try(conform, &trial);
}

/* Peers whose gradients are partial: they are summed, and divided by the data ranks alone. */
static void partial_run(struct host *host)
{
    numbers_step(host, numbers_rank_plus_1);
    numbers_expect_grad(host, "n", 5.0, EXACT);
    step_drop(host);
}

void math_reduced_beyond_data(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2,tp=2", "", "class norm(dp,tp); unit b: n[7]",
                                               partial_run};

    numbers_try(conform, &trial);
}

/* ------------------------------------------------------------------------------ inner and outer */

void math_outer(struct conform *conform)
{
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (uint32_t size = 1; size <= 2; size++) {
        char settings[32];
        struct numbers_trial trial = {"dp=2", settings, "unit a: w[5]; unit b: x[1031]", sizes_run};

        snprintf(settings, sizeof(settings), "shard_size=%u", size);
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* Any element of any rank has its own, so that a slice in another one's place is seen. */
static double by_place(struct host_at at)
{
    return (double)(at.elem % 1021u) + 2048.0 * at.param + 4.0 * at.rank;
}

static void place_run(struct host *host)
{
    numbers_step(host, by_place);
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *values = host_export(host, param, HSDP_FLAT_GRAD);

        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            double expected = by_place((struct host_at){0, 0, param, elem}) + 6.0;

            host_expect_number(host, host->params[param].name, elem, (double)values[elem],
                               expected);
        }
    }
    step_drop(host);
}

void math_places(struct conform *conform)
{
    static const char *const settings[] = {"shard_size=2", "shard_size=4", "shard_size=1"};
    struct host host;

    numbers_join(conform, &host, "dp=4", "");
    for (uint32_t i = 0; i < NUMBERS_N(settings); i++) {
        struct numbers_trial trial = {"dp=4", settings[i],
                                      "unit a: w[97] x[5001]; unit b: y[2050] z[33,67]", place_run};

        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* What the plan says lies where in the step shard is what lies there; and what is written there is
 * what all ranks unshard. */
static void segments_run(struct host *host)
{
    numbers_step(host, by_place);
    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_segment segments[HOST_MAX_PARAMS];
        uint64_t n_segments = 0;

        host_must(host, host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, host->rank,
                                                  segments, sizeof(segments[0]), HOST_MAX_PARAMS,
                                                  &n_segments, &host->err));
        for (uint64_t s = 0; s < n_segments; s++) {
            const struct hsdp_segment *segment = &segments[s];
            struct hsdp_tensor grad;
            struct hsdp_tensor master;

            host_must(host, host->api->model->flat_view(host->model, unit, segment->buffer,
                                                        HSDP_FLAT_GRAD, &grad, &host->err));
            host_must(host, host->api->model->flat_view(host->model, unit, segment->buffer,
                                                        HSDP_FLAT_MASTER, &master, &host->err));
            for (uint64_t i = 0; i < segment->n_elems; i++) {
                struct host_at at = {0, 0, segment->param, segment->param_offset_elems + i};
                uint64_t place = segment->shard_offset_elems + i;

                host_expect_number(host, host->params[at.param].name, at.elem,
                                   host_read(&grad, place), by_place(at) + 6.0);
                host_write(&master, place, by_place(at));
            }
        }
    }
    host_step_end(host);
    for (uint32_t param = 0; param < host->n_params; param++) {
        struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);
        struct host_at at = {0, 0, param, 0};

        host_must(host, host_unshard(host, host->params[param].unit, HSDP_USE_FORWARD));
        for (; at.elem < host->params[param].n_elems; at.elem++) {
            host_expect_number(host, host->params[param].name, at.elem, host_read(&view, at.elem),
                               by_place(at));
        }
        host_must(host, host_release(host, host->params[param].unit));
    }
}

void math_segments(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=4", "shard_size=2", "unit a: w[97] x[5001] b[30]/4; unit b: y[2050] z[33,67]",
        segments_run};

    numbers_try(conform, &trial);
}

/* --------------------------------------------------------------------------- absent gradients */

/* p is 1 and 3, q is 6 and missing; the neighbour is missing on both. */
static double one_sided(struct host_at at)
{
    return at.param == 0 ? 1.0 + 2.0 * at.rank : 6.0;
}

enum absence { SKIPPED, LEFT_OUT, ZEROS, ON_NOBODY };
static enum absence absence;

static void absent_unit(struct host *host, uint32_t unit)
{
    host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
    host_must(host, host_release(host, unit));
    if (absence != LEFT_OUT) {
        host_must(host, host_skip(host, unit));
    }
}

static void absent_run(struct host *host)
{
    host_pass_begin(host, HSDP_SCOPE_FULL);
    for (uint32_t unit = 2; unit-- > 0;) {
        if (unit == 0 || (host->rank == 0 && absence != ON_NOBODY)) {
            host_acquire(host, unit);
            host_fill(host, unit, 0, one_sided);
            host_hand_over(host, unit);
        } else if (absence == ZEROS) {
            host_acquire(host, unit);
            host_hand_over(host, unit);
        } else {
            absent_unit(host, unit);
        }
    }
    host_pass_end(host);
    host_step(host, 0.0);
    numbers_expect_grad(host, "p", 2.0, EXACT);
    numbers_expect_grad(host, "q", absence == ON_NOBODY ? 0.0 : 3.0, EXACT);
    step_drop(host);
}

static void absence_try(struct conform *conform, enum absence what)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: p[5]; unit b: q[5]",
                                               absent_run};

    absence = what;
    numbers_try(conform, &trial);
}

void math_skipped(struct conform *conform)
{
    absence_try(conform, SKIPPED);
}

void math_left_out(struct conform *conform)
{
    conform_needs_cpu(conform,
                      "its ranks interleave unshards and hand-overs alike, skips among them");
    absence_try(conform, LEFT_OUT);
}

void math_unwritten(struct conform *conform)
{
    absence_try(conform, ZEROS);
}

void math_on_nobody(struct conform *conform)
{
    absence_try(conform, ON_NOBODY);
}

static void no_pass_run(struct host *host)
{
    host_step(host, 0.0);
    numbers_expect_grad(host, "w", 0.0, EXACT);
    step_drop(host);
}

void math_no_pass(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[5]", no_pass_run};

    numbers_try(conform, &trial);
}

/* ---------------------------------------------------------------------------------- one rank */

/* Every kind of finite number of bf16: large, small, below normal, negative. */
static double odd_values(struct host_at at)
{
    static const int exponents[] = {0, -133, 127, -126, 5, -130};
    double value = ldexp(1.0 + (double)(at.elem % 128u) / 128.0, exponents[at.elem % 6u]);

    return host_round(at.elem % 2u == 0 ? value : -value, "bf16");
}

static void alone_run(struct host *host)
{
    host_load(host, odd_values);
    numbers_step(host, odd_values);
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *grad = host_export(host, param, HSDP_FLAT_GRAD);

        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            host_expect_number(host, "gradient", elem, (double)grad[elem],
                               odd_values((struct host_at){0, 0, param, elem}));
        }
    }
    step_drop(host);
}

void math_one_rank(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=1", "param_dtype=bf16 reduce_dtype=bf16",
        "unit a: w1[1] w2[2] w7[7] w8[8]; unit b: w9[9] w1023[1023] w1025[1025]", alone_run};

    numbers_try(conform, &trial);
}
