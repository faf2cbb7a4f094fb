/* SPDX-License-Identifier: Apache-2.0 */
/* Mathematics: parameters that are tied, frozen, empty, scalar, or end in padding. */
#include <math.h>

#include "mathematics.h"
#include "numbers.h"

#define EXACT 0.0
#define FP64  1e-14

static void step_drop(struct host *host)
{
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

/* ---------------------------------------------------------------------------------------- ties */

/* Both names of one unit have one view: the host adds up by itself what it writes there. */
static void names_run(struct host *host)
{
    struct hsdp_tensor first = host_view(host, host_param(host, "emb"), HSDP_VIEW_GRAD);
    struct hsdp_tensor second = host_view(host, host_param(host, "head"), HSDP_VIEW_GRAD);

    numbers_expect((char *)first.base + first.byte_offset ==
                       (char *)second.base + second.byte_offset,
                   "two names in one unit have two gradient views");
    host_load(host, numbers_small);
    host_pass_begin(host, HSDP_SCOPE_FULL);
    host_acquire(host, 0);
    for (uint64_t elem = 0; elem < 6; elem++) {
        host_write(&first, elem, 1.0);
        host_write(&second, elem, host_read(&second, elem) + 2.0);
    }
    host_hand_over(host, 0);
    host_pass_end(host);
    numbers_expect_near("the norm", host_step(host, 0.0).norm, sqrt(6.0 * 9.0), FP64);
    numbers_expect_grad(host, "emb", 3.0, EXACT);
    numbers_expect_grad(host, "head", 3.0, EXACT);
    host_descend(host, 1.0, 1.0);
    host_step_end(host);
    host_must(host, host_unshard(host, 0, HSDP_USE_FORWARD));
    for (uint32_t param = 0; param < host->n_params; param++) {
        struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);

        for (uint64_t elem = 0; elem < 6; elem++) {
            host_expect_number(host, host->params[param].name, elem, host_read(&view, elem),
                               numbers_small((struct host_at){0, 0, 0, elem}) - 3.0);
        }
    }
    host_must(host, host_release(host, 0));
}

void math_names_of_one_unit(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: emb[3,2] head[3,2]=emb",
                                               names_run};

    numbers_try(conform, &trial);
}

/* 1 for the storage, and 2 for its name in another unit. */
static double by_name(struct host_at at)
{
    return at.param == 0 ? 1.0 : at.param == 1 ? 5.0 : 2.0;
}

static void alias_run(struct host *host)
{
    struct hsdp_tensor view = host_view(host, host_param(host, "emb"), HSDP_VIEW_PARAM);
    struct hsdp_tensor name = host_view(host, host_param(host, "head"), HSDP_VIEW_PARAM);

    host_load(host, numbers_small);
    numbers_expect_near("the norm", numbers_step(host, by_name).norm, sqrt(97.0 * 9.0 + 7.0 * 25.0),
                        FP64);
    numbers_expect_grad(host, "emb", 3.0, EXACT);
    numbers_expect_grad(host, "head", 3.0, EXACT);
    numbers_expect_grad(host, "w", 5.0, EXACT);
    host_descend(host, 1.0, 1.0);
    host_step_end(host);
    host_must(host, host_unshard(host, host_unit(host, "b"), HSDP_USE_FORWARD));
    for (uint64_t elem = 0; elem < 97; elem++) {
        double expected = numbers_small((struct host_at){0, 0, 0, elem}) - 3.0;

        host_expect_number(host, "emb", elem, host_read(&view, elem), expected);
        host_expect_number(host, "head", elem, host_read(&name, elem), expected);
    }
    host_must(host, host_release(host, host_unit(host, "b")));
}

void math_names_of_two_units(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2", "", "unit a: emb[97] w[7]; unit b: head[97]=emb", alias_run};

    numbers_try(conform, &trial);
}

/* Two stages of two data ranks: means of 1.5 and 3.5 add to 5. */
static double of_stage(struct host_at at)
{
    return at.param == 0 ? 1.0 + at.rank : 2.0;
}

static void stages_run(struct host *host)
{
    double norm = numbers_step(host, of_stage).norm;

    numbers_expect_grad(host, "emb", 5.0, EXACT);
    numbers_expect_grad(host, "w", 2.0, EXACT);
    numbers_expect_near("the norm", norm, sqrt(97.0 * 25.0 + 2.0 * 7.0 * 4.0), FP64);
    step_drop(host);
}

void math_stages(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "pp=2,dp=2", "", "unit a: emb[97]~pp[0,-1]; unit b: w[7]", stages_run};

    numbers_try(conform, &trial);
}

/* -------------------------------------------------------------------------------------- frozen */

static void frozen_run(struct host *host)
{
    struct hsdp_tensor view;

    host_load(host, numbers_small);
    numbers_expect_near("the norm", numbers_step(host, numbers_one).norm, 2.0, FP64);
    numbers_expect_grad(host, "w", 1.0, EXACT);
    numbers_refused(host,
                    host->api->model->param_view(host->model, 1, HSDP_VIEW_GRAD, &view, &host->err),
                    HSDP_ERR_INVALID);
    host_descend(host, 1.0, 1.0);
    host_step_end(host);
    for (uint32_t param = 1; param <= 2; param++) {
        uint32_t unit = host->params[param].unit;

        view = host_view(host, param, HSDP_VIEW_PARAM);
        host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
        for (uint64_t elem = 0; elem < 4; elem++) {
            host_expect_number(host, host->params[param].name, elem, host_read(&view, elem),
                               numbers_small((struct host_at){0, 0, param, elem}));
        }
        host_must(host, host_release(host, unit));
    }
}

void math_frozen(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[4] b[4]!; unit c: k[4]!",
                                               frozen_run};

    numbers_try(conform, &trial);
}

/* ------------------------------------------------------------------------------ small and empty */

static double seven_and_a_half(struct host_at at)
{
    return at.param == 0 ? 7.5 : (double)at.elem;
}

static void scalar_run(struct host *host)
{
    struct hsdp_tensor view = host_view(host, 0, HSDP_VIEW_PARAM);

    numbers_expect(view.n_dims == 0, "the view of a scalar has %d dimensions", (int)view.n_dims);
    host_load(host, seven_and_a_half);
    host_expect_param(host, "s", 7.5);
    host_expect_number(host, "exported s", 0, (double)host_export(host, 0, HSDP_FLAT_MASTER)[0],
                       7.5);
    numbers_step(host, numbers_rank_plus_1);
    numbers_expect_grad(host, "s", 1.5, EXACT);
    host_descend(host, 1.0, 1.0);
    host_step_end(host);
    host_expect_param(host, "s", 6.0);
}

void math_scalar(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: s[] v[4]", scalar_run};

    numbers_try(conform, &trial);
}

static void empty_run(struct host *host)
{
    struct hsdp_step_info result;

    host_load(host, numbers_small);
    host_forward(host);
    result = numbers_step(host, numbers_one);
    numbers_expect(result.norm == 0.0, "the norm of nothing is %g", result.norm);
    numbers_expect(result.is_nonfinite == 0, "nothing is not finite");
    host_export(host, 0, HSDP_FLAT_GRAD);
    host_descend(host, 1.0, 1.0);
    host_step_end(host);
    host_forward(host);
}

void math_empty(struct conform *conform)
{
    static const struct numbers_trial one = {"dp=4", "", "unit a: none[1,0,2]", empty_run};
    static const struct numbers_trial three = {
        "dp=4", "shard_size=2", "unit a: none[0]; unit b: no[0,7] ne[3,0]", empty_run};
    struct host host;

    numbers_join(conform, &host, "dp=4", "");
    numbers_try_joined(&host, &one);
    numbers_try_joined(&host, &three);
    host_close(&host);
}

static void beside_run(struct host *host)
{
    numbers_step(host, numbers_rank_plus_1);
    numbers_expect_grad(host, "w", 2.5, EXACT);
    host_step_end(host);
}

void math_empty_beside(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=4", "", "unit a: none[0] w[5] no[3,0]; unit b: x[1]", beside_run};

    numbers_try(conform, &trial);
}

/* ------------------------------------------------------------------------------------- padding */

/* All of a view's elements that no segment covers. */
static void padding_expect(struct host *host, int32_t flat, const char *what)
{
    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_segment segments[HOST_MAX_PARAMS];
        struct hsdp_tensor view;
        uint64_t n_segments = 0;
        uint64_t place = 0;

        host_must(host, host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, host->rank,
                                                  segments, sizeof(segments[0]), HOST_MAX_PARAMS,
                                                  &n_segments, &host->err));
        host_must(host, host->api->model->flat_view(host->model, unit, 0, flat, &view, &host->err));
        for (uint64_t s = 0; s <= n_segments; s++) {
            uint64_t end =
                s < n_segments ? segments[s].shard_offset_elems : (uint64_t)view.shape[0];

            for (; place < end; place++) {
                host_expect_number(host, what, place, host_read(&view, place), 0.0);
            }
            place += s < n_segments ? segments[s].n_elems : 0;
        }
    }
}

static double nan_first(struct host_at at)
{
    return at.microbatch == 0 ? NAN : 1.0;
}

/* The buffers have held NaN before: in a pass that was taken back, all of it. */
static void padding_run(struct host *host)
{
    struct hsdp_step_info result;

    host_load(host, numbers_one);
    host_backward(host, HSDP_SCOPE_FULL, 0, nan_first);
    host_step(host, 0.0);
    step_drop(host);
    host_backward(host, HSDP_SCOPE_FULL, 1, nan_first);
    result = host_step(host, 0.0);
    numbers_expect_near("the norm", result.norm, sqrt(6.0), FP64);
    padding_expect(host, HSDP_FLAT_GRAD, "padding of gradients");
    padding_expect(host, HSDP_FLAT_MASTER, "padding of masters");
    host_descend(host, 1.0, 1.0);
    host_step_end(host);
    host_expect_param(host, "w", 0.0);
}

void math_padding(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "param_dtype=bf16 reduce_dtype=bf16",
                                               "unit a: w[5]; unit b: x[1]", padding_run};

    numbers_try(conform, &trial);
}

/* ---------------------------------------------------------------------------------------- parts */

static double any_value(struct host_at at)
{
    return (double)((at.elem * 31 + at.param * 11 + at.rank * 5 + at.microbatch) % 127) - 63.0;
}

/* The mean of three ranks: the sum is exact, so dividing it is all that rounds. */
static void uneven_grad_expect(struct host *host, uint32_t param)
{
    const float *values = host_export(host, param, HSDP_FLAT_GRAD);

    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        double sum = 0.0;

        for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
            sum += any_value((struct host_at){rank, 0, param, elem});
        }
        host_expect_number(host, host->params[param].name, elem, (double)values[elem],
                           (double)(float)(sum / 3.0));
    }
}

static void uneven_run(struct host *host)
{
    host_load(host, any_value);
    numbers_step(host, any_value);
    for (uint32_t param = 0; param < host->n_params; param++) {
        uneven_grad_expect(host, param);
    }
    step_drop(host);
    for (uint32_t param = 0; param < host->n_params; param++) {
        struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);
        uint32_t unit = host->params[param].unit;

        host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            host_expect_number(host, host->params[param].name, elem, host_read(&view, elem),
                               any_value((struct host_at){0, 0, param, elem}));
        }
        host_must(host, host_release(host, unit));
    }
}

void math_uneven(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=3", "", "unit a: w[1] x[7] y[97]; unit b: z[1031]; unit c: v[4099]", uneven_run};

    numbers_try(conform, &trial);
}

void math_blocks(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=3", "", "unit a: w[64]/8 x[7] y[5000]/96; unit b: z[1031]/1031 v[50]/7", uneven_run};

    numbers_try(conform, &trial);
}
