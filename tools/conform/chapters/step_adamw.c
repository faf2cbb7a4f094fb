/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: the extension hsdp.adamw against AdamW in double precision. */
#include <math.h>

#include "numbers.h"
#include "steps.h"

#define N_ELEMS 97u
#define SLACK   4e-6 /* of fp32, over a few steps */

#define BETA1   0.9
#define BETA2   0.95
#define EPSILON 1e-3

static const double rates[] = {0.125, 0.0625};
static const double decays[] = {0.25, 0.0};

static const struct hsdp_adamw_ops *adamw_of(struct host *host)
{
    const void *table = NULL;

    host_needs(HOST_EXTENSION, HSDP_ADAMW_EXTENSION);
    host_must(host, host->api->extension(HSDP_ADAMW_EXTENSION, &table, &host->err));
    return table;
}

static struct hsdp_adamw_spec spec_of(void)
{
    struct hsdp_adamw_spec spec = HSDP_ADAMW_SPEC_INIT;

    spec.learning_rate = rates;
    spec.weight_decay = decays;
    spec.n_hyper_groups = 2;
    spec.beta1 = BETA1;
    spec.beta2 = BETA2;
    spec.epsilon = EPSILON;
    return spec;
}

static void adamw_step(struct host *host, const struct hsdp_adamw_spec *spec)
{
    host_must(host, adamw_of(host)->step(host->model, spec, &host->err));
}

/* Weights, and gradients of the same sizes; each microbatch has others. */
static double value_of(struct host_at at)
{
    double magnitude = ldexp(1.0 + (double)(at.elem % 32) / 32.0, (int)(at.elem % 5) - 3);

    return (at.elem + at.microbatch) % 3 == 0 ? -magnitude : magnitude;
}

/* One element by the formula. */
struct adam {
    double p, m, v;
};

static void adam_step(struct adam *adam, double grad, uint64_t step, uint32_t group)
{
    double bias1 = 1.0 - pow(BETA1, (double)step);
    double bias2 = 1.0 - pow(BETA2, (double)step);

    adam->m = BETA1 * adam->m + (1.0 - BETA1) * grad;
    adam->v = BETA2 * adam->v + (1.0 - BETA2) * grad * grad;
    adam->p -= rates[group] * decays[group] * adam->p;
    adam->p -= rates[group] * (adam->m / bias1) / (sqrt(adam->v / bias2) + EPSILON);
}

struct model {
    struct adam elems[2][N_ELEMS]; /* of w and x */
};

static void model_init(struct model *model)
{
    memset(model, 0, sizeof(*model));
    for (uint32_t param = 0; param < 2; param++) {
        for (uint64_t elem = 0; elem < N_ELEMS; elem++) {
            model->elems[param][elem].p = value_of((struct host_at){0, 0, param, elem});
        }
    }
}

static void model_step(struct model *model, uint64_t step, uint32_t microbatch, double factor)
{
    for (uint32_t param = 0; param < 2; param++) {
        for (uint64_t elem = 0; elem < N_ELEMS; elem++) {
            double grad = value_of((struct host_at){0, microbatch, param, elem});

            adam_step(&model->elems[param][elem], grad * factor, step, param);
        }
    }
}

static void near_expect(struct host *host, const char *what, uint64_t elem, double found,
                        double expected)
{
    if (!(fabs(found - expected) <= SLACK * (1.0 + fabs(expected)))) {
        host_fail("rank %u: %s[%u] is %.9g, by the formula %.9g", host->rank, what, (unsigned)elem,
                  found, expected);
    }
}

static void model_expect(struct host *host, const struct model *model)
{
    for (uint32_t param = 0; param < 2; param++) {
        const float *values = host_export(host, param, HSDP_FLAT_MASTER);

        for (uint64_t elem = 0; elem < N_ELEMS; elem++) {
            near_expect(host, host->params[param].name, elem, (double)values[elem],
                        model->elems[param][elem].p);
        }
    }
}

static double window(struct host *host, uint32_t microbatch, double max_norm)
{
    host_backward(host, HSDP_SCOPE_FULL, microbatch, value_of);
    return host_step(host, max_norm).factor;
}

/* One of each of the host's two hyper groups, and one that is frozen. */
#define UNITS "unit a: w[97]; unit b: x[97]@1; unit c: k[1]!"

/* ---------------------------------------------------------------------------------- the formula */

static void formula_run(struct host *host)
{
    static struct model model;
    struct hsdp_adamw_spec spec = spec_of();
    struct hsdp_tensor view = host_view(host, 2, HSDP_VIEW_PARAM);

    model_init(&model);
    host_load(host, value_of);
    for (uint32_t step = 1; step <= 3; step++) {
        window(host, step, 0.0);
        adamw_step(host, &spec);
        host_step_end(host);
        model_step(&model, step, step, 1.0);
        model_expect(host, &model);
    }
    host_must(host, host_unshard(host, 2, HSDP_USE_FORWARD));
    host_expect_number(host, "frozen k", 0, host_read(&view, 0),
                       value_of((struct host_at){0, 0, 2, 0}));
    host_must(host, host_release(host, 2));
}

void step_adamw(struct conform *conform)
{
    static const char *const settings[] = {"", "param_dtype=bf16"};
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (uint32_t i = 0; i < NUMBERS_N(settings); i++) {
        struct numbers_trial trial = {"dp=2", settings[i], UNITS, formula_run};

        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* Only w decays, and x moves at another rate: with a gradient of zero, and with one of one. */
static void groups_run(struct host *host)
{
    struct hsdp_adamw_spec spec = spec_of();
    const float *values;

    host_load(host, numbers_one);
    host_step(host, 0.0);
    adamw_step(host, &spec);
    host_step_end(host);
    values = host_export(host, 0, HSDP_FLAT_MASTER);
    near_expect(host, "w", 1, (double)values[1], 1.0 - rates[0] * decays[0]);
    values = host_export(host, 1, HSDP_FLAT_MASTER);
    near_expect(host, "x", 1, (double)values[1], 1.0);
    numbers_step(host, numbers_one);
    spec.step = 1;
    adamw_step(host, &spec);
    host_step_end(host);
    values = host_export(host, 1, HSDP_FLAT_MASTER);
    near_expect(host, "x", 1, (double)values[1], 1.0 - rates[1] / (1.0 + EPSILON));
}

void step_adamw_groups(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", UNITS, groups_run};

    numbers_try(conform, &trial);
}

static void states_run(struct host *host)
{
    static const char *const names[] = {"exp_avg", "exp_avg_sq"};
    struct hsdp_adamw_spec spec = spec_of();
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;

    host_load(host, value_of);
    window(host, 1, 0.0);
    adamw_step(host, &spec);
    host_step_end(host);
    host_must(host, host->api->model->info(host->model, &info, &host->err));
    numbers_expect(info.n_states == 2, "there are %u states", info.n_states);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t state = 0;
        const float *values;

        host_must(host, host->api->model->state_create(host->model, names[i], "fp32", &state,
                                                       &host->err));
        values = host_export(host, 0, HSDP_FLAT_STATE + (int32_t)state);
        for (uint64_t elem = 0; elem < N_ELEMS; elem++) {
            double grad = value_of((struct host_at){0, 1, 0, elem});

            near_expect(host, names[i], elem, (double)values[elem],
                        i == 0 ? (1.0 - BETA1) * grad : (1.0 - BETA2) * grad * grad);
        }
    }
    host_must(host, host->api->model->info(host->model, &info, &host->err));
    numbers_expect(info.n_states == 2, "their names make others: %u", info.n_states);
}

void step_adamw_states(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", UNITS, states_run};

    numbers_try(conform, &trial);
}

/* The bias is corrected for the step that is said: 0 counts on from the last one. */
static void resumed_run(struct host *host)
{
    static struct model model;
    struct hsdp_adamw_spec spec = spec_of();

    model_init(&model);
    host_load(host, value_of);
    for (uint32_t step = 10; step <= 12; step++) {
        spec.step = step == 10 ? step : 0;
        window(host, step, 0.0);
        adamw_step(host, &spec);
        host_step_end(host);
        model_step(&model, step, step, 1.0);
        model_expect(host, &model);
    }
}

void step_adamw_resumed(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", UNITS, resumed_run};

    numbers_try(conform, &trial);
}

static void clipped_run(struct host *host)
{
    static struct model model;
    struct hsdp_adamw_spec spec = spec_of();

    model_init(&model);
    host_load(host, value_of);
    for (uint32_t step = 1; step <= 2; step++) {
        double factor = window(host, step, 0.01);

        numbers_expect(factor < 0.1, "the factor is %g", factor);
        adamw_step(host, &spec);
        host_step_end(host);
        model_step(&model, step, step, factor);
        model_expect(host, &model);
    }
}

void step_adamw_clipped(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", UNITS, clipped_run};

    numbers_try(conform, &trial);
}

/* ------------------------------------------------------------------------------------ refusals */

static void adamw_refused(struct host *host, const struct hsdp_adamw_spec *spec, int32_t status)
{
    numbers_refused(host, adamw_of(host)->step(host->model, spec, &host->err), status);
}

static double infinite(struct host_at at)
{
    return at.rank == 1 ? INFINITY : 1.0;
}

static void refusals_run(struct host *host)
{
    struct hsdp_adamw_spec spec = spec_of();
    struct hsdp_step_spec strict = HSDP_STEP_SPEC_INIT;

    host_load(host, numbers_one);
    window(host, 1, 0.0);
    spec.n_hyper_groups = 1;
    adamw_refused(host, &spec, HSDP_ERR_INVALID);
    spec = spec_of();
    adamw_step(host, &spec);
    host_step_end(host);
    host_backward(host, HSDP_SCOPE_FULL, 0, infinite);
    strict.error_if_nonfinite = 1;
    host_must(host, host->api->step->begin(host->model, &strict, NULL, &host->err));
    adamw_refused(host, &spec, HSDP_ERR_NONFINITE);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
}

void step_adamw_refusals(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", UNITS, refusals_run};

    numbers_try(conform, &trial);
}

/* Found in the step that follows; what each rank is told comes where it waits. */
void step_adamw_other_numbers(struct conform *conform)
{
    struct hsdp_adamw_spec spec = spec_of();
    struct hsdp_step_spec next = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;
    int32_t status;

    numbers_open(conform, &host, "dp=2", "", UNITS);
    host_load(&host, numbers_one);
    window(&host, 1, 0.0);
    spec.beta1 = host.rank == 0 ? 0.5 : 0.25;
    adamw_step(&host, &spec);
    status = host.api->step->end(host.model, NULL, NULL, &host.err);
    if (status == HSDP_OK) {
        status = host.api->step->begin(host.model, &next, NULL, &host.err);
    }
    if (status == HSDP_OK) {
        status = host.api->step->result(host.model, &result, &host.err);
    }
    numbers_expect(status == HSDP_ERR_MISMATCH || status == HSDP_ERR_ABORTED,
                   "beta1 0.5 and 0.25 ended with %d", (int)status);
    numbers_refused(&host, host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
    conform_meet(conform);
    host_leave(&host);
}
