/* SPDX-License-Identifier: Apache-2.0 */
/* The extension hsdp.adamw: one update of all trainable step shards. */
#include "shard/adamw.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pages.h"
#include "comm/probe.h"
#include "device/checksum.h"
#include "device/fpmode.h"
#include "device/kernels.h"
#include "device/space.h"
#include "shard/grads.h"
#include "shard/runs.h"

/* What the steps of a model keep, so that only the first one allocates. */
struct adamw {
    struct runs runs;
    struct adamw_constants *constants; /* of every hyper group, in this step */
    bool *keeps_zero;                  /* whether zeros stay +0 under them */
};

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

/* Names the first parameter whose hyper group is not there. */
static int32_t params_refuse(const struct hsdp_model *model, uint32_t n_hyper_groups,
                             struct hsdp_error *reterr)
{
    const struct plan_param *param = model->plan->params;

    while ((param->flags & HSDP_PARAM_FROZEN) != 0 || param->hyper_group < n_hyper_groups) {
        param++;
    }
    return error_set(reterr, HSDP_ERR_INVALID,
                     "adamw.step: parameter \"%s\" is in hyper group %" PRIu32
                     ", n_hyper_groups is %" PRIu32,
                     param->name, param->hyper_group, n_hyper_groups);
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
    if (status == HSDP_OK && model->n_hyper_groups > spec->n_hyper_groups) {
        status = params_refuse(model, spec->n_hyper_groups, reterr);
    }
    return status;
}

void adamw_free(struct adamw *adamw)
{
    if (adamw == NULL) {
        return;
    }
    runs_fini(&adamw->runs);
    free(adamw->constants);
    free(adamw->keeps_zero);
    free(adamw);
}

static int32_t state_populate(const struct hsdp_model *model, uint32_t state,
                              struct hsdp_error *reterr)
{
    const struct model_state *row = &model->states[state];
    int error = model->space->ops->is_host ? pages_populate(row->base, row->n_bytes, true) : 0;

    if (error != 0) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "adamw.step: no memory for \"%s\" (%" PRIu64 " bytes): %s", row->name,
                         row->n_bytes, strerror(error));
    }
    return HSDP_OK;
}

/* At the first step. */
static int32_t adamw_create(struct hsdp_model *model, const uint32_t states[2],
                            struct hsdp_error *reterr)
{
    struct adamw *adamw = calloc(1, sizeof(*adamw));
    int32_t status = HSDP_ERR_NO_MEMORY;

    if (adamw != NULL) {
        adamw->constants = calloc(model->n_hyper_groups + 1, sizeof(*adamw->constants));
        adamw->keeps_zero = calloc(model->n_hyper_groups + 1, sizeof(*adamw->keeps_zero));
    }
    if (adamw == NULL || adamw->constants == NULL || adamw->keeps_zero == NULL) {
        error_set(reterr, HSDP_ERR_NO_MEMORY, "adamw.step: no memory for %" PRIu64 " hyper groups",
                  model->n_hyper_groups);
        goto out;
    }
    status = runs_init(&adamw->runs, model, reterr);
    for (int i = 0; status == HSDP_OK && i < 2; i++) {
        status = state_populate(model, states[i], reterr);
    }
    if (status != HSDP_OK) {
        goto out;
    }
    model->adamw = adamw;
    adamw = NULL; /* handed over */

out:
    adamw_free(adamw);
    return status;
}

/*
 * What gradients are multiplied by or, where only the device knows that yet, the most that it can
 * be: clipping makes it smaller, and so do the weights of other ranks.
 */
static float factor_bound(const struct hsdp_model *model)
{
    const struct hsdp_step_spec *spec = &model->step.spec;
    double scale = spec->gradient_scale == 0.0 ? 1.0 : spec->gradient_scale;

    if (model->step.is_known) {
        return model->factor[1];
    }
    return (float)(spec->has_weight != 0 ? scale / spec->weight : scale);
}

/*
 * Whether an update leaves zeros as they are, so that it may run over the padding between
 * parameters: seen by making one. It would not with a factor that is not finite, say; and if it
 * does with one, it does with all that are smaller.
 */
static bool zero_is_kept(const struct hsdp_model *model, const struct adamw_constants *constants)
{
    static const float zero = 0.0f;
    float values[3] = {0.0f, 0.0f, 0.0f};
    struct adamw_shard shard = {.params = &values[0], .params_dtype = DTYPE_FP32};

    shard.exp_avg = &values[1];
    shard.exp_avg_sq = &values[2];
    shard.grads = &zero;
    shard.n_elems = 1;
    job_kernels(model->job)->adamw(constants, &shard, factor_bound(model));
    for (int i = 0; i < 3; i++) {
        if (memcmp(&values[i], &zero, sizeof(zero)) != 0) { /* -0 is another */
            return false;
        }
    }
    return true;
}

static void constants_compute(struct hsdp_model *model, const struct hsdp_adamw_spec *spec,
                              uint64_t step)
{
    struct adamw *adamw = model->adamw;
    struct fp_mode mode = fp_mode_enter();

    for (uint64_t group = 0; group < model->n_hyper_groups; group++) {
        struct adamw_hyper hyper = {.beta1 = spec->beta1,
                                    .beta2 = spec->beta2,
                                    .epsilon = spec->epsilon,
                                    .learning_rate = spec->learning_rate[group],
                                    .weight_decay = spec->weight_decay[group]};

        adamw->constants[group] = adamw_constants_compute(&hyper, step);
        adamw->keeps_zero[group] = zero_is_kept(model, &adamw->constants[group]);
    }
    fp_mode_leave(mode);
}

/* Where the new parameters of a unit go besides: what publishing would copy them to. */
struct copies {
    void *targets[STORE_MAX_TARGETS];
    uint32_t n_targets;
    enum dtype dtype;
    bool are_streamed; /* all ranks' together are more than what stays in the caches until read */
};

/*
 * While the host may write masters until step.end, only publishing knows what they are. Else they
 * go to where they rest at once; nobody reads there before this rank's next epoch.
 */
static void copies_find(struct hsdp_model *model, uint32_t unit, struct copies *ret)
{
    const struct plan_unit *plan_unit = &model->plan->units[unit];

    memset(ret, 0, sizeof(*ret));
    ret->dtype = model->plan->classes[plan_unit->class_index].param_dtype;
    if (model->units[unit].is_viewed) {
        return;
    }
    ret->n_targets = model->ops->publish_targets(model->store, unit, 0, ret->targets);
    ret->are_streamed = reduce_streams(model->plan->totals.n_state_elems * dtype_bytes(ret->dtype) *
                                       ret->n_targets * model->plan->mesh->world_ranks);
    for (uint32_t i = 0; i < ret->n_targets; i++) {
        probe_write(job_probe(model->job), PROBE_PARAMS, unit, ret->targets[i],
                    plan_unit->buffers[0].shard_elems[HSDP_SHARD_STEP] * dtype_bytes(ret->dtype));
    }
    model->ops->publish_skip(model->store, unit, true);
}

/* Elements of a unit's step shard from `whole`, which begins at its first one. */
static int32_t run_update(struct hsdp_model *model, const struct run *run,
                          const struct adamw_shard *whole, const struct copies *copies,
                          struct hsdp_error *reterr)
{
    uint64_t at = run->first_elem;
    struct adamw_shard shard = *whole;
    void *targets[STORE_MAX_TARGETS];

    for (uint32_t i = 0; i < copies->n_targets; i++) {
        targets[i] = (uint8_t *)copies->targets[i] + at * dtype_bytes(copies->dtype);
    }
    shard.params = (uint8_t *)whole->params + at * dtype_bytes(whole->params_dtype);
    shard.exp_avg += at;
    shard.exp_avg_sq += at;
    shard.grads += at;
    shard.n_elems = run->n_elems;
    shard.copies = targets;
    shard.n_copies = copies->n_targets;
    shard.copies_dtype = copies->dtype;
    shard.are_copies_streamed = copies->are_streamed;
    return model->space->ops->adamw(model->space, &model->adamw->constants[run->hyper_group],
                                    &shard, step_factor(model) + 1, reterr);
}

/* A unit's step shard, run by run; padding stays zero. */
static int32_t unit_update(struct hsdp_model *model, uint32_t unit, const uint32_t states[2],
                           struct hsdp_error *reterr)
{
    const struct plan_unit *plan_unit = &model->plan->units[unit];
    uint64_t state_offset = model->units[unit].state_offset_elems;
    uint64_t n_elems = plan_unit->buffers[0].shard_elems[HSDP_SHARD_STEP];
    const struct runs *runs = &model->adamw->runs;
    struct adamw_shard whole = {.params = model->ops->master(model->store, unit, 0)};
    struct copies copies;
    int32_t status = HSDP_OK;

    whole.params_dtype = model->plan->classes[plan_unit->class_index].master_dtype;
    whole.exp_avg = (float *)model->states[states[0]].base + state_offset;
    whole.exp_avg_sq = (float *)model->states[states[1]].base + state_offset;
    whole.grads = model->ops->step_grads(model->store, unit);
    whole.grads_divisor = grads_divisor(model, unit);
    probe_read(job_probe(model->job), PROBE_GRADS, unit, whole.grads, n_elems * sizeof(float));
    probe_write(job_probe(model->job), PROBE_MASTER, unit, whole.params,
                n_elems * dtype_bytes(whole.params_dtype));
    copies_find(model, unit, &copies);
    for (uint64_t at = runs->unit_first[unit];
         status == HSDP_OK && at < runs->unit_first[unit + 1];) {
        struct run run = runs_next(runs, &at, runs->unit_first[unit + 1], model->adamw->keeps_zero);

        status = run_update(model, &run, &whole, &copies, reterr);
    }
    return status;
}

static int32_t units_update(struct hsdp_model *model, const uint32_t states[2],
                            struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (uint32_t unit = 0; status == HSDP_OK && unit < model->plan->n_units; unit++) {
        if (plan_is_trainable(model->plan, unit)) {
            status = unit_update(model, unit, states, reterr);
        }
    }
    return status;
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

/* Whether the open step may be updated, by these numbers. */
static int32_t step_check(struct hsdp_model *model, const struct hsdp_adamw_spec *spec,
                          struct hsdp_error *reterr)
{
    int32_t status = step_proceed(model, "adamw.step", reterr);

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
    return status;
}

int32_t adamw_step(struct hsdp_model *model, const struct hsdp_adamw_spec *spec,
                   struct hsdp_error *reterr)
{
    uint64_t step = spec->step != 0 ? spec->step : model->n_updates + 1;
    uint32_t states[2];
    int32_t status = step_check(model, spec, reterr);

    if (status == HSDP_OK) {
        status = model_state_create(model, "exp_avg", "fp32", &states[0], reterr);
    }
    if (status == HSDP_OK) {
        status = model_state_create(model, "exp_avg_sq", "fp32", &states[1], reterr);
    }
    if (status == HSDP_OK && model->adamw == NULL) {
        status = adamw_create(model, states, reterr);
    }
    if (status == HSDP_OK) {
        status = model_follow(model, spec->stream, reterr);
    }
    if (status == HSDP_OK) {
        constants_compute(model, spec, step);
        status = units_update(model, states, reterr);
    }
    if (status == HSDP_OK) {
        status = model_precede(model, spec->stream, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    model->step.is_updated = true;
    model->n_updates = step;
    words_keep(&model->optimizer, spec, step);
    return HSDP_OK;
}
