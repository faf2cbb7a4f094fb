/* SPDX-License-Identifier: Apache-2.0 */
/* The extension hsdp.adamw, as its formula stands in books, in double precision. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "intake.h"
#include "model.h"
#include "text.h"

static const struct intake spec_intake = {"spec", 72, sizeof(struct hsdp_adamw_spec)};

static int32_t numbers_check(const struct call *call, const struct hsdp_adamw_spec *spec)
{
    if (!(spec->beta1 >= 0.0 && spec->beta1 < 1.0 && spec->beta2 >= 0.0 && spec->beta2 < 1.0) ||
        !(spec->epsilon > 0.0 && isfinite(spec->epsilon))) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: beta1 %g, beta2 %g, epsilon %g; 0 <= beta < 1 and epsilon > 0 are "
                           "allowed",
                           call->name, spec->beta1, spec->beta2, spec->epsilon);
    }
    if (!call_has_array(call, "spec.learning_rate", spec->learning_rate, spec->n_hyper_groups) ||
        !call_has_array(call, "spec.weight_decay", spec->weight_decay, spec->n_hyper_groups)) {
        return HSDP_ERR_INVALID;
    }
    for (uint32_t g = 0; g < spec->n_hyper_groups; g++) {
        if (!(spec->learning_rate[g] >= 0.0 && isfinite(spec->learning_rate[g]) &&
              spec->weight_decay[g] >= 0.0 && isfinite(spec->weight_decay[g]))) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "%s: hyper group %" PRIu32
                               " has learning_rate %g and weight_decay %g; finite numbers from 0 "
                               "are allowed",
                               call->name, g, spec->learning_rate[g], spec->weight_decay[g]);
        }
    }
    return HSDP_OK;
}

static int32_t spec_check(const struct call *call, const hsdp_model *model,
                          const struct hsdp_adamw_spec *spec)
{
    int32_t status = intake_reserved(call, &spec_intake, spec->reserved);

    if (status == HSDP_OK) {
        status = stream_check(call, spec->stream);
    }
    if (status == HSDP_OK) {
        status = numbers_check(call, spec);
    }
    for (uint32_t p = 0; p < model->n_params && status == HSDP_OK; p++) {
        const struct hsdp_param_info *info = &model->params[p].info;

        if (!model->params[p].is_frozen && info->hyper_group >= spec->n_hyper_groups) {
            status = error_raise(call, HSDP_ERR_INVALID,
                                 "%s: parameter \"%s\" is in hyper group %" PRIu32
                                 ", n_hyper_groups is %" PRIu32,
                                 call->name, info->name, info->hyper_group, spec->n_hyper_groups);
        }
    }
    if (status == HSDP_OK && model->step.has_updated) {
        status = error_raise(call, HSDP_ERR_STATE,
                             "%s: called twice in one step; step.end was expected", call->name);
    }
    return status;
}

/* The update of one element. */
struct update {
    const struct hsdp_adamw_spec *spec;
    double factor; /* of the gradient */
    double correction1;
    double correction2;
};

static double element_update(const struct update *update, uint32_t hyper_group, double master,
                             double gradient, float *first, float *second)
{
    const struct hsdp_adamw_spec *spec = update->spec;
    double rate = spec->learning_rate[hyper_group];
    double g = gradient * update->factor;
    double m = spec->beta1 * (double)*first + (1.0 - spec->beta1) * g;
    double v = spec->beta2 * (double)*second + (1.0 - spec->beta2) * g * g;

    *first = (float)m;
    *second = (float)v;
    master -= rate * spec->weight_decay[hyper_group] * master;
    return master -
           rate * (m / update->correction1) / (sqrt(v / update->correction2) + spec->epsilon);
}

static void unit_update(const hsdp_model *model, uint32_t unit, const struct update *update,
                        const uint32_t states[2])
{
    const struct unit *u = &model->units[unit];
    const struct hsdp_segment *segment;
    struct walk walk;

    walk_begin(model, unit, HSDP_SHARD_STEP, model->job->launch.rank, &walk);
    while ((segment = walk_next(&walk)) != NULL) {
        const struct param *param = &model->params[segment->param];
        const struct buffer *b = &u->buffers[segment->buffer];
        uint64_t at = segment->shard_offset_elems;

        for (uint64_t i = at; !param->is_frozen && i < at + segment->n_elems; i++) {
            double master = (double)element_read(b->master, u->master_dtype, i);

            master =
                element_update(update, param->info.hyper_group, master, (double)b->step_grad[i],
                               (float *)(void *)b->states[states[0]] + i,
                               (float *)(void *)b->states[states[1]] + i);
            element_write(b->master, u->master_dtype, i, (float)master);
        }
    }
}

/* What is updated with, for the next step to compare. */
static int32_t text_write(const struct call *call, hsdp_model *model,
                          const struct hsdp_adamw_spec *spec, uint64_t step)
{
    struct text lines;
    char *chars;

    if (text_open(&lines)) {
        fprintf(lines.file, "adamw step=%" PRIu64 "\nbeta1=%.17g\nbeta2=%.17g\nepsilon=%.17g\n",
                step, spec->beta1, spec->beta2, spec->epsilon);
        for (uint32_t g = 0; g < spec->n_hyper_groups; g++) {
            fprintf(lines.file,
                    "learning_rate[%" PRIu32 "]=%.17g\nweight_decay[%" PRIu32 "]=%.17g\n", g,
                    spec->learning_rate[g], g, spec->weight_decay[g]);
        }
    }
    chars = text_take(&lines);
    if (chars == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    free(model->adamw_text);
    model->adamw_text = chars;
    return HSDP_OK;
}

static int32_t model_update(const struct call *call, hsdp_model *model,
                            const struct hsdp_adamw_spec *spec, const uint32_t states[2])
{
    struct update update = {.spec = spec};
    uint64_t step = spec->step != 0 ? spec->step : model->adamw_step + 1;
    int32_t status = step_await(call, model);

    if (status == HSDP_OK) {
        status = text_write(call, model, spec, step);
    }
    if (status != HSDP_OK) {
        return status;
    }
    model->adamw_step = step;
    update.factor = model->step.info.factor;
    update.correction1 = 1.0 - pow(spec->beta1, (double)model->adamw_step);
    update.correction2 = 1.0 - pow(spec->beta2, (double)model->adamw_step);
    for (uint32_t u = 0; u < model->n_units; u++) {
        unit_update(model, u, &update, states);
    }
    model->step.has_updated = true;
    return HSDP_OK;
}

static int32_t table_step(hsdp_model *model, const struct hsdp_adamw_spec *theirs,
                          struct hsdp_error *reterr)
{
    const struct call call = {"adamw.step", reterr};
    int32_t status = model_enter(&call, model);
    struct hsdp_adamw_spec spec;
    uint32_t states[2];

    if (status != HSDP_OK) {
        return status;
    }
    status = intake_take(&call, &spec_intake, theirs, &spec);
    if (status == HSDP_OK && !model->step.is_open) {
        status = error_raise(&call, HSDP_ERR_STATE,
                             "adamw.step: no step is open; step.begin was expected");
    }
    if (status == HSDP_OK) {
        status = spec_check(&call, model, &spec);
    }
    if (status == HSDP_OK) {
        status = state_create(&call, model, "exp_avg", "fp32", &states[0]);
    }
    if (status == HSDP_OK) {
        status = state_create(&call, model, "exp_avg_sq", "fp32", &states[1]);
    }
    if (status == HSDP_OK) {
        status = model_update(&call, model, &spec, states);
    }
    return job_leave(model->job, status);
}

const struct hsdp_adamw_ops reference_adamw = {
    .struct_size = sizeof(struct hsdp_adamw_ops),
    .step = table_step,
};
