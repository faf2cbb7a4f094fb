/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: what reaches whom, what is left behind, and what is refused at its moment. */
#include <math.h>
#include <stdio.h>

#include "numbers.h"
#include "steps.h"

#define FP64 1e-14

static void step_drop(struct host *host)
{
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

static int32_t step_begin(struct host *host, const struct hsdp_step_spec *spec)
{
    return host->api->step->begin(host->model, spec, NULL, &host->err);
}

static struct hsdp_model_info model_of(struct host *host)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;

    host_must(host, host->api->model->info(host->model, &info, &host->err));
    return info;
}

/* A full window and a step, as if nothing had been refused. */
static void window_finish(struct host *host)
{
    uint64_t n_elems = 0;

    for (uint32_t param = 0; param < host->n_params; param++) {
        n_elems += host->params[param].is_frozen ? 0 : host->params[param].n_elems;
    }
    numbers_expect_near("the norm of the next step", numbers_step(host, numbers_one).norm,
                        sqrt((double)n_elems), FP64);
    host_step_end(host);
}

/* --------------------------------------------------------------------------------- publishing */

/* Every element of every unit, unsharded, is what numbers_small says, less something. */
static void params_expect(struct host *host, double less)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);
        uint32_t unit = host->params[param].unit;
        struct host_at at = {0, 0, param, 0};

        host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
        for (; at.elem < host->params[param].n_elems; at.elem++) {
            host_expect_number(host, host->params[param].name, at.elem, host_read(&view, at.elem),
                               numbers_small(at) - less);
        }
        host_must(host, host_release(host, unit));
    }
}

static void moves_run(struct host *host)
{
    host_load(host, numbers_small);
    for (int step = 1; step <= 3; step++) {
        numbers_step(host, numbers_one);
        host_descend(host, 1.0, 1.0);
        host_step_end(host);
        params_expect(host, step);
    }
}

void step_moves_values(struct conform *conform)
{
    static const char *const settings[] = {"", "param_dtype=bf16",
                                           "param_dtype=fp16 master_dtype=fp16"};
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (uint32_t i = 0; i < NUMBERS_N(settings); i++) {
        struct numbers_trial trial = {"dp=2", settings[i], "unit a: w[97]; unit b: x[5] y[1031]",
                                      moves_run};

        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

void step_publishes_to_all(struct conform *conform)
{
    static const char *const settings[] = {"shard_size=2", "shard_size=1", "shard_size=4"};
    struct host host;

    numbers_join(conform, &host, "dp=4", "");
    for (uint32_t i = 0; i < NUMBERS_N(settings); i++) {
        struct numbers_trial trial = {
            "dp=4", settings[i], "unit a: w[97]; unit b: x[5] y[1031]; unit c: z[4099]", moves_run};

        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* In each step another rank is late to publish, and the others unshard at once. */
static void late_run(struct host *host)
{
    host_load(host, numbers_small);
    for (uint32_t step = 1; step <= 4; step++) {
        numbers_step(host, numbers_one);
        host_descend(host, 1.0, 1.0);
        if (host->rank == step - 1) {
            conform_sleep_ms(5);
        }
        host_step_end(host);
        params_expect(host, step);
    }
}

void step_publishes_to_the_late(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=4", "shard_size=2", "unit a: w[97]; unit b: x[5] y[1031]; unit c: z[4099]", late_run};

    numbers_try(conform, &trial);
}

static void discard_run(struct host *host)
{
    host_load(host, numbers_small);
    numbers_step(host, numbers_one);
    step_drop(host);
    params_expect(host, 0.0);
    numbers_step(host, numbers_one);
    host_descend(host, 1.0, 1.0);
    host_step_end(host);
    params_expect(host, 1.0);
    numbers_step(host, numbers_one);
    step_drop(host);
    params_expect(host, 1.0);
}

void step_discard(struct conform *conform)
{
    static const char *const settings[] = {"", "param_dtype=bf16"};
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (uint32_t i = 0; i < NUMBERS_N(settings); i++) {
        struct numbers_trial trial = {"dp=2", settings[i], "unit a: w[97]; unit b: x[5] y[1031]",
                                      discard_run};

        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* Masters that are no parameters were written: nobody sees it, and they are put back. */
static void unpublished_run(struct host *host)
{
    host_load(host, numbers_small);
    numbers_step(host, numbers_one);
    host_descend(host, 1.0, 1.0);
    step_drop(host);
    params_expect(host, 0.0);
    host_load(host, numbers_small);
    numbers_step(host, numbers_one);
    host_descend(host, 2.0, 1.0);
    host_step_end(host);
    params_expect(host, 2.0);
}

void step_discard_of_written(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2", "param_dtype=bf16", "unit a: w[97]; unit b: x[5] y[1031]", unpublished_run};

    numbers_try(conform, &trial);
}

static void drops_run(struct host *host)
{
    for (int i = 0; i < 2; i++) {
        numbers_step(host, numbers_one);
        if (i == 0) {
            host_step_end(host);
        } else {
            step_drop(host);
        }
        numbers_expect(host_step(host, 0.0).norm == 0.0, "gradients are left of a step that was %s",
                       i == 0 ? "ended" : "discarded");
        step_drop(host);
    }
}

void step_drops_gradients(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[97]; unit b: x[5]",
                                               drops_run};

    numbers_try(conform, &trial);
}

static void numbered_run(struct host *host)
{
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;

    for (uint64_t step = 1; step <= 3; step++) {
        struct hsdp_step_info first = numbers_step(host, numbers_one);

        numbers_expect(first.step == step, "step %u says that it is %u", (unsigned)step,
                       (unsigned)first.step);
        numbers_expect(model_of(host).is_stepping == 1, "the model does not say that it steps");
        host_must(host, host->api->step->result(host->model, &result, &host->err));
        numbers_expect(result.norm == first.norm && result.step == step && result.reserved == 0,
                       "the result, asked again, is another one");
        if (step == 2) {
            step_drop(host);
        } else {
            host_step_end(host);
        }
        numbers_expect(model_of(host).step == step && model_of(host).is_stepping == 0,
                       "after step %u the model has had %u", (unsigned)step,
                       (unsigned)model_of(host).step);
    }
}

void step_counts(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[97]", numbered_run};

    numbers_try(conform, &trial);
}

/* --------------------------------------------------------------------------------- left behind */

static void unit_named(struct host *host, const char *unit)
{
    numbers_expect(strcmp(host->err.unit, unit) == 0, "the error names unit \"%s\", not \"%s\"",
                   host->err.unit, unit);
}

static int32_t window_scope;

static void unclosed_run(struct host *host)
{
    static const uint32_t second[] = {1};
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    host_must(host, host_backward_begin(host, second, 1, window_scope, &host->pass));
    host_acquire(host, 1);
    host_fill(host, 1, 0, numbers_one);
    host_hand_over(host, 1);
    host_pass_end(host);
    numbers_refused(host, step_begin(host, &spec), HSDP_ERR_STATE);
    unit_named(host, "b");
    host_backward(host, HSDP_SCOPE_FULL, 0, numbers_one);
    host_step(host, 0.0);
    numbers_expect_grad(host, "w", 1.0, 0.0);
    numbers_expect_grad(host, "x", 2.0, 0.0);
    host_step_end(host);
}

void step_unclosed_window(struct conform *conform)
{
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (window_scope = HSDP_SCOPE_NONE; window_scope <= HSDP_SCOPE_INNER; window_scope++) {
        char settings[64];
        struct numbers_trial trial = {"dp=2", settings, "unit a: w[2]; unit b: x[2]", unclosed_run};

        snprintf(settings, sizeof(settings), "accumulation_scope=%s", host_scopes[window_scope]);
        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

static void open_pass_run(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    host_pass_begin(host, HSDP_SCOPE_FULL);
    numbers_refused(host, step_begin(host, &spec), HSDP_ERR_STATE);
    numbers_expect(host->err.unit[0] != '\0', "the error names no unit");
    host_pass_end(host);
    window_finish(host);
}

void step_open_pass(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[2]; unit b: x[2]",
                                               open_pass_run};

    numbers_try(conform, &trial);
}

static void unsharded_run(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    host_must(host, host_unshard(host, 1, HSDP_USE_FORWARD));
    numbers_refused(host, step_begin(host, &spec), HSDP_ERR_STATE);
    unit_named(host, "b");
    host_must(host, host_release(host, 1));
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
    numbers_refused(host, step_begin(host, &spec), HSDP_ERR_STATE);
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
    window_finish(host);
}

void step_unsharded_unit(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[2]; unit b: x[2]",
                                               unsharded_run};

    numbers_try(conform, &trial);
}

static void wrong_weights_run(struct host *host)
{
    static const double weights[] = {-1.0, NAN, INFINITY};
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    spec.has_weight = 1;
    for (uint32_t i = 0; i < NUMBERS_N(weights); i++) {
        spec.weight = weights[i];
        numbers_expect(step_begin(host, &spec) == HSDP_ERR_INVALID, "weight %g is not refused",
                       weights[i]);
    }
    numbers_step(host, numbers_one);
    host_step_end(host);
}

/* Where gradients are a mean, every weight is wrong. */
static void weight_of_mean_run(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    spec.has_weight = 1;
    spec.weight = 4.0;
    numbers_refused(host, step_begin(host, &spec), HSDP_ERR_INVALID);
    window_finish(host);
}

void step_wrong_weights(struct conform *conform)
{
    struct numbers_trial trial = {"dp=2", "gradient_op=sum", "unit a: w[2]; unit b: x[2]",
                                  wrong_weights_run};
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    numbers_try_joined(&host, &trial);
    trial.settings = "";
    trial.run = weight_of_mean_run;
    numbers_try_joined(&host, &trial);
    host_close(&host);
}

void step_other_numbers(struct conform *conform)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;
    int32_t status;

    numbers_open(conform, &host, "dp=2", "", "unit a: w[2]");
    host_backward(&host, HSDP_SCOPE_FULL, 0, numbers_one);
    spec.max_norm = host.rank == 0 ? 1.0 : 2.0;
    status = step_begin(&host, &spec);
    if (status == HSDP_OK) {
        status = host.api->step->result(host.model, &result, &host.err);
    }
    numbers_expect(status == HSDP_ERR_MISMATCH || status == HSDP_ERR_ABORTED,
                   "max_norm 1 and 2 ended with %d", (int)status);
    numbers_refused(&host, host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
    conform_meet(conform);
    host_leave(&host);
}

/* Two slots: of three units the third waits for the first to be handed over. */
static void ahead_run(struct host *host)
{
    host_pass_begin(host, HSDP_SCOPE_FULL);
    host_acquire(host, 2);
    host_acquire(host, 1);
    numbers_refused(host, host_unshard(host, 0, HSDP_USE_BACKWARD), HSDP_ERR_STATE);
    numbers_expect(strstr(host->err.message, "first") != NULL &&
                       strstr(host->err.message, "last") != NULL,
                   "\"%s\" does not name both units, \"first\" and \"last\"", host->err.message);
    for (uint32_t unit = 3; unit-- > 1;) {
        host_fill(host, unit, 0, numbers_one);
        host_hand_over(host, unit);
    }
    host_acquire(host, 0);
    host_fill(host, 0, 0, numbers_one);
    host_hand_over(host, 0);
    host_pass_end(host);
    host_step(host, 0.0);
    numbers_expect_grad(host, "w", 1.0, 0.0);
    host_step_end(host);
}

void step_too_far_ahead(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2", "slots=2", "unit first: w[2]; unit between: x[2]; unit last: y[2]", ahead_run};

    numbers_try(conform, &trial);
}
