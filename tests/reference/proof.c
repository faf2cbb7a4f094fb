/* SPDX-License-Identifier: Apache-2.0 */
/* verify=wrap: known values go through a new model, by the same functions that a host calls. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define MOST_TRAFFIC 64

/* A proof under way: the first defect is kept. */
struct proof {
    hsdp_model *model;
    struct hsdp_error error; /* of a call that failed */
    int32_t status;
    char defect[400];
    uint64_t *n_names; /* of tied parameters, over all of the ranks that hold them */
    struct traffic traffic[MOST_TRAFFIC]; /* as it was */
    uint64_t counts[N_COUNTS];
};

static bool proof_call(struct proof *proof, int32_t status)
{
    if (proof->status == HSDP_OK) {
        proof->status = status;
    }
    return proof->status == HSDP_OK;
}

static void defect_note(struct proof *proof, uint32_t param, const char *what, double found,
                        double expected)
{
    const struct hsdp_param_info *info = &proof->model->params[param].info;
    const struct unit *unit = &proof->model->units[info->unit];

    if (proof->defect[0] == '\0') {
        snprintf(proof->defect, sizeof(proof->defect),
                 "class \"%.60s\", unit \"%.60s\", parameter \"%.60s\": %s %g, not %g",
                 proof->model->plan->classes[unit->class_index].name, unit->name, info->name, what,
                 found, expected);
    }
}

/* ----------------------------------------------------------------------------------- gradients */

/* True if a unit has a name for a parameter of the other. */
static bool unit_goes_before(const hsdp_model *model, uint32_t unit, uint32_t other)
{
    for (uint32_t p = 0; p < model->n_params; p++) {
        const struct param *param = &model->params[p];

        if (param->info.unit == unit && param->is_alias && !param->is_frozen &&
            model->params[param->info.storage].info.unit == other) {
            return true;
        }
    }
    return false;
}

static bool is_listed(const uint32_t *units, uint64_t n, uint32_t unit)
{
    for (uint64_t i = 0; i < n; i++) {
        if (units[i] == unit) {
            return true;
        }
    }
    return false;
}

/* Lists the trainable units, names of other units' parameters before those. */
static uint64_t units_order(const hsdp_model *model, uint32_t *units)
{
    uint64_t n = 0;

    for (uint32_t turn = 0; turn < model->n_units; turn++) {
        for (uint32_t u = 0; u < model->n_units; u++) {
            bool is_due = !is_listed(units, n, u) && model->units[u].is_trainable;

            for (uint32_t other = 0; other < model->n_units && is_due; other++) {
                is_due =
                    is_listed(units, n, other) || other == u || !unit_goes_before(model, other, u);
            }
            if (is_due) {
                units[n++] = u;
            }
        }
    }
    return n;
}

static void ones_fill(struct proof *proof, uint32_t unit)
{
    hsdp_model *model = proof->model;

    for (uint32_t p = 0; p < model->n_params; p++) {
        struct hsdp_tensor view;
        enum dtype dtype;

        if (model->params[p].info.unit != unit || model->params[p].is_frozen) {
            continue;
        }
        proof_call(proof,
                   reference_model.param_view(model, p, HSDP_VIEW_GRAD, &view, &proof->error));
        for (uint64_t i = 0; proof->status == HSDP_OK && dtype_of(&view, &dtype) &&
                             i < model->params[p].info.n_elems;
             i++) {
            element_write((void *)tensor_at(&view), dtype, i, 1.0f);
        }
    }
}

static void ones_reduce(struct proof *proof, const uint32_t *units, uint64_t n_units)
{
    hsdp_model *model = proof->model;
    struct hsdp_error *error = &proof->error;
    uint64_t pass = 0;

    proof_call(proof,
               reference_unit.backward_begin(model, units, n_units, HSDP_SCOPE_FULL, &pass, error));
    for (uint64_t i = 0; i < n_units && proof->status == HSDP_OK; i++) {
        proof_call(proof, reference_unit.unshard(model, units[i], HSDP_USE_BACKWARD_SET, NULL, NULL,
                                                 error));
        ones_fill(proof, units[i]);
        if (proof_call(proof, reference_unit.reduce(model, pass, units[i], NULL, NULL, error))) {
            proof_call(proof, reference_unit.release(model, units[i], NULL, error));
        }
    }
    if (proof->status == HSDP_OK) {
        proof_call(proof, reference_unit.backward_end(model, pass, NULL, NULL, error));
    }
}

/* How often a gradient of 1 has to be counted: by all that reduce it, under all of its names. */
static double ones_expected(const struct proof *proof, uint32_t param)
{
    const hsdp_model *model = proof->model;
    const struct unit *unit = &model->units[model->params[param].info.unit];

    if (model->params[param].tied_over != NULL) { /* stages need not have as many names */
        return (double)proof->n_names[param] / unit->divisor;
    }
    return (double)(names_count(model, param) * unit->reduced.n) / unit->divisor;
}

static void ones_check(struct proof *proof, uint32_t unit)
{
    hsdp_model *model = proof->model;
    const struct hsdp_segment *segment;
    struct walk walk;

    walk_begin(model, unit, HSDP_SHARD_STEP, model->job->launch.rank, &walk);
    while ((segment = walk_next(&walk)) != NULL) {
        const float *grad = model->units[unit].buffers[segment->buffer].step_grad;
        double expected = ones_expected(proof, segment->param);

        for (uint64_t i = 0; !model->params[segment->param].is_frozen && i < segment->n_elems;
             i++) {
            double found = (double)grad[segment->shard_offset_elems + i];

            if (found != (double)(float)expected) {
                defect_note(proof, segment->param, "a gradient of 1 on each rank is", found,
                            expected);
            }
        }
    }
}

static void gradients_prove(struct proof *proof)
{
    hsdp_model *model = proof->model;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    uint32_t *units = calloc(model->n_units + 1, sizeof(*units));

    if (units == NULL) {
        proof->status = HSDP_ERR_NO_MEMORY;
        return;
    }
    ones_reduce(proof, units, units_order(model, units));
    free(units);
    if (proof->status == HSDP_OK &&
        proof_call(proof, reference_step.begin(model, &spec, NULL, &proof->error)) &&
        proof_call(proof, reference_step.result(model, &result, &proof->error))) {
        for (uint32_t u = 0; u < model->n_units; u++) {
            ones_check(proof, u);
        }
        proof_call(proof, reference_step.discard(model, NULL, &proof->error));
    }
}

/* ---------------------------------------------------------------------------------- parameters */

/* Small whole numbers, which every dtype has. */
static float pattern(uint32_t param, uint64_t elem)
{
    return (float)(1 + (param * 31u + elem) % 127u);
}

static void masters_fill(struct proof *proof, bool is_zero)
{
    hsdp_model *model = proof->model;

    if (!proof_call(proof, reference_model.edit_begin(model, NULL, &proof->error))) {
        return;
    }
    for (uint32_t u = 0; u < model->n_units; u++) {
        const struct hsdp_segment *segment;
        struct walk walk;

        walk_begin(model, u, HSDP_SHARD_STEP, model->job->launch.rank, &walk);
        while ((segment = walk_next(&walk)) != NULL) {
            for (uint64_t i = 0; i < segment->n_elems; i++) {
                float value = pattern(segment->param, segment->param_offset_elems + i);

                element_write(model->units[u].buffers[segment->buffer].master,
                              model->units[u].master_dtype, segment->shard_offset_elems + i,
                              is_zero ? 0.0f : value);
            }
        }
    }
    proof_call(proof, reference_model.edit_end(model, NULL, &proof->error));
}

static void params_check(struct proof *proof, uint32_t unit)
{
    hsdp_model *model = proof->model;
    const struct unit *u = &model->units[unit];

    if (!proof_call(proof, reference_unit.unshard(model, unit, HSDP_USE_FORWARD, NULL, NULL,
                                                  &proof->error))) {
        return;
    }
    for (uint32_t p = 0; p < model->n_params; p++) {
        const struct hsdp_param_info *info = &model->params[p].info;

        for (uint64_t i = 0; info->unit == unit && model->params[p].is_storage && i < info->n_elems;
             i++) {
            float found = element_read(u->buffers[info->buffer].params_read, u->param_dtype,
                                       info->offset_elems + i);

            if (found != pattern(p, i)) {
                defect_note(proof, p, "a published value is", (double)found, (double)pattern(p, i));
            }
        }
    }
    proof_call(proof, reference_unit.release(model, unit, NULL, &proof->error));
}

/* --------------------------------------------------------------------------------------- whole */

/* All ranks hear of a defect that one has found. */
static int32_t proof_agree(const struct call *call, struct proof *proof)
{
    hsdp_job *job = proof->model->job;
    struct packet answer = {0};
    struct meeting_text text;
    struct request request;
    int32_t status;

    request_of_job(call, job, &text, &request);
    request.alike = "verify=wrap";
    request.payload = proof->defect;
    request.payload_bytes = strlen(proof->defect) + 1;
    status = job_meet(call, job, &request, &answer);
    for (uint32_t r = 0; r < job->launch.world_ranks && status == HSDP_OK; r++) {
        const char *defect = packet_get_text(&answer);

        if (defect[0] != '\0') {
            status = error_raise(call, HSDP_ERR_DEFECT, "%s: verify=wrap: rank %" PRIu32 ": %s",
                                 call->name, r, defect);
        }
    }
    packet_free(&answer);
    return status;
}

/* Counters are kept, or put back as they were. */
static void counters_keep(struct proof *proof, bool is_back)
{
    hsdp_job *job = proof->model->job;
    uint32_t n = 0;

    for (int c = 0; c < N_COUNTS; c++) {
        if (is_back) {
            job->counts[c] = proof->counts[c];
        } else {
            proof->counts[c] = job->counts[c];
        }
    }
    pthread_mutex_lock(&job->mutex);
    for (struct traffic *t = job->traffic; t != NULL && n < MOST_TRAFFIC; t = t->next, n++) {
        if (is_back) { /* new ones have been appended: theirs is 0 */
            t->n_bytes = proof->traffic[n].n_bytes;
            t->n_operations = proof->traffic[n].n_operations;
        } else {
            proof->traffic[n] = *t;
        }
    }
    pthread_mutex_unlock(&job->mutex);
}

/* No trace is left: everything counts from 1 again. */
static void numbers_reset(hsdp_model *model)
{
    model->n_steps = model->n_passes = model->n_publishes = 0;
    for (uint32_t u = 0; u < model->n_units; u++) {
        model->units[u].n_reductions = 0;
    }
    for (uint32_t c = 0; c < model->n_classes; c++) {
        model->logs[c].n_passes = model->logs[c].n_compared = 0;
        packet_free(&model->logs[c].made_whole);
    }
}

static int32_t proof_run(const struct call *call, struct proof *proof)
{
    hsdp_model *model = proof->model;
    hsdp_job *job = model->job;
    int32_t status = ties_count(call, model, proof->n_names);

    if (status != HSDP_OK) {
        return status;
    }
    job_leave(job, HSDP_OK); /* what follows are calls of their own */
    gradients_prove(proof);
    masters_fill(proof, false);
    for (uint32_t u = 0; u < model->n_units && proof->status == HSDP_OK; u++) {
        params_check(proof, u);
    }
    masters_fill(proof, true);
    status = job_enter(call, job);
    if (status == HSDP_OK && proof->status != HSDP_OK) {
        status = error_pass(call, &proof->error);
    }
    return status;
}

int32_t model_prove(const struct call *call, hsdp_model *model)
{
    struct proof proof = {.model = model, .error = HSDP_ERROR_INIT};
    int32_t status;

    proof.n_names = calloc(model->n_params + 1, sizeof(*proof.n_names));
    if (proof.n_names == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    counters_keep(&proof, false);
    status = proof_run(call, &proof);
    free(proof.n_names);
    if (status != HSDP_OK) {
        return status;
    }
    status = proof_agree(call, &proof); /* behind it no rank asks with the old numbers any more */
    numbers_reset(model);
    counters_keep(&proof, true);
    return status;
}
