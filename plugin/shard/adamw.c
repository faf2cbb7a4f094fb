/* SPDX-License-Identifier: Apache-2.0 */
/* The extension hsdp.adamw: one update of all trainable step shards. */
#include "shard/adamw.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/probe.h"
#include "device/checksum.h"
#include "device/fpmode.h"
#include "device/kernels.h"
#include "shard/step.h"

static int32_t group_check(const struct hsdp_adamw_spec *spec, uint32_t group,
                           struct hsdp_error *reterr)
{
    double rate = spec->learning_rate[group];
    double decay = spec->weight_decay[group];

    if (!isfinite(rate) || rate < 0.0 || !isfinite(decay) || decay < 0.0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "adamw.step: hyper group %" PRIu32
                         " has learning_rate %g and weight_decay %g; both are finite, from 0",
                         group, rate, decay);
    }
    return HSDP_OK;
}

static int32_t spec_check(const struct hsdp_model *model, const struct hsdp_adamw_spec *spec,
                          struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    if (!(spec->beta1 >= 0.0 && spec->beta1 < 1.0 && spec->beta2 >= 0.0 && spec->beta2 < 1.0)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "adamw.step: beta1 %g and beta2 %g are from 0, below 1", spec->beta1,
                         spec->beta2);
    }
    if (!(spec->epsilon > 0.0) || !isfinite(spec->epsilon)) {
        return error_set(reterr, HSDP_ERR_INVALID, "adamw.step: epsilon %g is not above 0",
                         spec->epsilon);
    }
    if (spec->n_hyper_groups != 0 && (spec->learning_rate == NULL || spec->weight_decay == NULL)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "adamw.step: %" PRIu32 " hyper groups, but no %s", spec->n_hyper_groups,
                         spec->learning_rate == NULL ? "learning_rate" : "weight_decay");
    }
    for (uint32_t group = 0; status == HSDP_OK && group < spec->n_hyper_groups; group++) {
        status = group_check(spec, group, reterr);
    }
    for (uint32_t param = 0; status == HSDP_OK && param < model->plan->n_params; param++) {
        const struct plan_param *p = &model->plan->params[param];

        if ((p->flags & HSDP_PARAM_FROZEN) == 0 && p->hyper_group >= spec->n_hyper_groups) {
            status = error_set(reterr, HSDP_ERR_INVALID,
                               "adamw.step: parameter \"%s\" is in hyper group %" PRIu32
                               ", n_hyper_groups is %" PRIu32,
                               p->name, p->hyper_group, spec->n_hyper_groups);
        }
    }
    return status;
}

/* The constants of every hyper group; freed by the caller. */
static struct adamw_constants *constants_create(const struct hsdp_adamw_spec *spec, uint64_t step)
{
    struct adamw_constants *constants = calloc(spec->n_hyper_groups + 1u, sizeof(*constants));

    for (uint32_t group = 0; constants != NULL && group < spec->n_hyper_groups; group++) {
        struct adamw_hyper hyper = {.beta1 = spec->beta1,
                                    .beta2 = spec->beta2,
                                    .epsilon = spec->epsilon,
                                    .learning_rate = spec->learning_rate[group],
                                    .weight_decay = spec->weight_decay[group]};

        constants[group] = adamw_constants_compute(&hyper, step);
    }
    return constants;
}

/* A unit's step shard, parameter by parameter; padding stays zero. */
static int32_t unit_update(struct hsdp_model *model, uint32_t unit,
                           const struct adamw_constants *constants, const uint32_t states[2],
                           struct hsdp_error *reterr)
{
    float factor = (float)model->step.result.factor;
    uint64_t state_offset = model->units[unit].state_offset_elems;
    float *exp_avg = (float *)model->states[states[0]].base + state_offset;
    float *exp_avg_sq = (float *)model->states[states[1]].base + state_offset;
    enum dtype dtype = model->plan->classes[model->plan->units[unit].class_index].master_dtype;
    uint8_t *master = model->ops->master(model->store, unit, 0);
    const float *grads = model->ops->step_grads(model->store, unit);
    struct hsdp_segment *segments;
    uint64_t n_segments;
    uint64_t n_elems;
    int32_t status;

    status =
        model_step_segments(model, unit, model->plan->mesh->rank, &segments, &n_segments, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    n_elems = model->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];
    probe_read(job_probe(model->job), PROBE_GRADS, unit, grads, n_elems * sizeof(*grads));
    probe_write(job_probe(model->job), PROBE_MASTER, unit, master, n_elems * dtype_bytes(dtype));
    for (uint64_t i = 0; i < n_segments; i++) {
        uint64_t at = segments[i].shard_offset_elems;
        struct adamw_shard shard = {.params = master + at * dtype_bytes(dtype),
                                    .params_dtype = dtype,
                                    .exp_avg = exp_avg + at,
                                    .exp_avg_sq = exp_avg_sq + at,
                                    .grads = grads + at,
                                    .grads_divisor = step_grads_divisor(model, unit),
                                    .n_elems = segments[i].n_elems};

        if (segments[i].buffer == 0) { /* the trainable one */
            job_kernels(model->job)
                ->adamw(&constants[model->plan->params[segments[i].param].hyper_group], &shard,
                        factor);
        }
    }
    free(segments);
    return HSDP_OK;
}

static uint64_t bits_hash(uint64_t hash, double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof(bits));
    return checksum_mix(hash ^ bits);
}

/* For the other ranks to compare, in the next step. */
static void words_keep(struct optimizer_words *words, const struct hsdp_adamw_spec *spec,
                       uint64_t step)
{
    double *numbers = words->numbers;
    double n_updates = numbers[OPTIMIZER_N_UPDATES] + 1.0;

    memset(words, 0, sizeof(*words));
    numbers[OPTIMIZER_N_UPDATES] = n_updates;
    numbers[OPTIMIZER_STEP] = (double)step;
    numbers[OPTIMIZER_BETA1] = spec->beta1;
    numbers[OPTIMIZER_BETA2] = spec->beta2;
    numbers[OPTIMIZER_EPSILON] = spec->epsilon;
    numbers[OPTIMIZER_N_HYPER_GROUPS] = (double)spec->n_hyper_groups;
    for (uint32_t group = 0; group < spec->n_hyper_groups; group++) {
        if (group < STEP_MAX_HYPER_GROUPS) {
            numbers[OPTIMIZER_LEARNING_RATES + group] = spec->learning_rate[group];
            numbers[OPTIMIZER_WEIGHT_DECAYS + group] = spec->weight_decay[group];
        }
        words->hash = bits_hash(words->hash, spec->learning_rate[group]);
        words->hash = bits_hash(words->hash, spec->weight_decay[group]);
    }
}

int32_t adamw_step(struct hsdp_model *model, const struct hsdp_adamw_spec *spec,
                   struct hsdp_error *reterr)
{
    uint64_t step = spec->step != 0 ? spec->step : model->n_updates + 1;
    struct adamw_constants *constants;
    uint32_t states[2];
    struct fp_mode mode;
    int32_t status;

    status = step_await(model, "adamw.step", reterr);
    if (status == HSDP_OK) {
        status = spec_check(model, spec, reterr);
    }
    if (status == HSDP_OK) {
        status = step_result_check(model, "adamw.step", reterr);
    }
    if (status == HSDP_OK && model->step.is_updated) {
        status = error_set(reterr, HSDP_ERR_STATE,
                           "adamw.step: called twice in one step; step.end was expected");
    }
    if (status == HSDP_OK) {
        status = model_state_create(model, "exp_avg", "fp32", &states[0], reterr);
    }
    if (status == HSDP_OK) {
        status = model_state_create(model, "exp_avg_sq", "fp32", &states[1], reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    mode = fp_mode_enter();
    constants = constants_create(spec, step);
    if (constants == NULL) {
        fp_mode_leave(mode);
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "adamw.step: no memory for %" PRIu32 " hyper groups",
                         spec->n_hyper_groups);
    }
    for (uint32_t unit = 0; status == HSDP_OK && unit < model->plan->n_units; unit++) {
        if (plan_is_trainable(model->plan, unit)) {
            status = unit_update(model, unit, constants, states, reterr);
        }
    }
    fp_mode_leave(mode);
    free(constants);
    if (status == HSDP_OK) {
        model->step.is_updated = true;
        model->n_updates = step;
        words_keep(&model->optimizer, spec, step);
    }
    return status;
}
