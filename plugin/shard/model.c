/* SPDX-License-Identifier: Apache-2.0 */
/* Models: creation, the addresses of views, optimizer states, and checks shared within shard/. */
#include "shard/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/space.h"
#include "hsdp/unit.h"
#include "shard/adamw.h"
#include "shard/drift.h"
#include "shard/grads.h"
#include "shard/tensor.h"
#include "shard/verify.h"

struct hsdp_job *model_job(const struct hsdp_model *model)
{
    return model->job;
}

/* ------------------------------------------------------------------------------- creation */

static int32_t tables_allocate(struct hsdp_model *model, struct hsdp_error *reterr)
{
    uint64_t n_units = model->plan->n_units;
    uint64_t n_params = model->plan->n_params;
    uint32_t n_slots = model->plan->n_slots;

    model->units = calloc(n_units + 1, sizeof(*model->units));
    model->flat_shapes = calloc(n_units * PLAN_MAX_BUFFERS + 1, sizeof(*model->flat_shapes));
    model->strides = calloc(n_params * HSDP_PARAM_MAX_DIMS + 1, sizeof(*model->strides));
    model->param_slots = malloc(n_slots * sizeof(*model->param_slots));
    model->acquired = calloc(n_units + 1, sizeof(*model->acquired));
    if (model->units == NULL || model->acquired == NULL || model->flat_shapes == NULL ||
        model->strides == NULL || model->param_slots == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "model: no memory for %" PRIu64 " units and %" PRIu64 " parameters",
                         n_units, n_params);
    }
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        model->param_slots[slot] = HSDP_NO_SLOT;
    }
    return HSDP_OK;
}

/* Shapes and strides that views point to. */
static void shapes_fill(struct hsdp_model *model)
{
    const struct hsdp_plan *plan = model->plan;

    for (uint32_t unit = 0; unit < plan->n_units; unit++) {
        const struct plan_unit *plan_unit = &plan->units[unit];

        for (uint32_t b = 0; b < plan_unit->n_buffers; b++) {
            model->flat_shapes[unit * PLAN_MAX_BUFFERS + b] =
                (int64_t)plan_unit->buffers[b].shard_elems[HSDP_SHARD_STEP];
        }
        model->units[unit].state_offset_elems = model->state_elems;
        if (plan_is_trainable(model->plan, unit)) {
            model->state_elems += plan_unit->buffers[0].shard_elems[HSDP_SHARD_STEP];
        }
    }
    for (uint32_t param = 0; param < plan->n_params; param++) {
        const struct plan_param *p = &plan->params[param];
        uint64_t n_groups = p->hyper_group + UINT64_C(1);
        int64_t stride = 1;

        if ((p->flags & HSDP_PARAM_FROZEN) == 0 && n_groups > model->n_hyper_groups) {
            model->n_hyper_groups = n_groups;
        }
        for (uint32_t d = p->n_dims; d-- > 0;) {
            model->strides[param * HSDP_PARAM_MAX_DIMS + d] = stride;
            stride *= p->shape[d] == 0 ? 1 : p->shape[d];
        }
    }
    model->unit_stride[0] = 1;
    model->factor_shape[0] = 2;
}

static int32_t plan_check(struct hsdp_job *job, const struct hsdp_plan *plan,
                          struct hsdp_error *reterr)
{
    if (!plan->is_finished) {
        return error_set(reterr, HSDP_ERR_STATE, "model.create: the plan is not finished");
    }
    if (!job_is_connected(job)) {
        return error_set(reterr, HSDP_ERR_STATE, "model.create: the job is not connected");
    }
    if (plan->mesh->world_ranks != job_world_ranks(job) || plan->mesh->rank != job_rank(job)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "model.create: the plan is for rank %" PRIu32 " of %" PRIu32
                         ", the job is rank %" PRIu32 " of %" PRIu32,
                         plan->mesh->rank, plan->mesh->world_ranks, job_rank(job),
                         job_world_ranks(job));
    }
    return job_check_host(job, "model.create", reterr);
}

/* What the plan remarked; hosts that never read its report see it here. */
static void notes_log(const struct hsdp_model *model)
{
    for (uint32_t i = 0; i < model->plan->n_notes; i++) {
        job_log(model->job, HSDP_LOG_INFO, "plan: %s", model->plan->notes[i]);
    }
}

static int32_t model_allocate(struct hsdp_job *job, const struct hsdp_plan *plan,
                              struct hsdp_model **ret_model, struct hsdp_error *reterr)
{
    struct hsdp_model *model = calloc(1, sizeof(*model));

    if (model == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model: no memory");
    }
    model->job = job;
    job_ref(job);
    model->space = job_space(job);
    model->plan = plan_share(plan);
    model->norm_p = 2.0;
    *ret_model = model;
    return HSDP_OK;
}

int32_t model_create(struct hsdp_job *job, const struct hsdp_plan *plan,
                     struct hsdp_model **ret_model, struct hsdp_error *reterr)
{
    struct hsdp_model *model = NULL;
    int32_t status;

    status = plan_check(job, plan, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = model_allocate(job, plan, &model, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = tables_allocate(model, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    status = drift_create(model, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    status = model_agree(job, plan, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    status = verify_agree(job, plan, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    status = ties_create(model, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    model->ops = transport_of(job);
    status = model->ops->open(job, plan, &model->store, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    shapes_fill(model);
    notes_log(model);
    if (plan->verify.is_wrap) {
        status = verify_wrap(model, reterr);
    }
    if (status != HSDP_OK) {
        goto out;
    }
    model->number = job_model_number(job); /* now that all ranks have it */
    model->reporter.write = model_report_write;
    job_reporter_add(job, &model->reporter);
    model_memory_count(model, true);
    *ret_model = model;
    model = NULL; /* handed over */

out:
    model_destroy(model);
    return status;
}

void model_destroy(struct hsdp_model *model)
{
    if (model == NULL) {
        return;
    }
    if (model->reporter.write != NULL) {
        model_memory_count(model, false);
        job_reporter_remove(model->job, &model->reporter);
    }
    if (model->step.is_under_way) {
        job_work_cancel(model->job, &model->step.work);
    }
    passes_free(model);
    adamw_free(model->adamw);
    drift_destroy(model->drift);
    ties_free(model);
    if (model->ops != NULL) {
        model->ops->close(model->store);
    }
    for (uint32_t state = 0; state < model->n_states; state++) {
        free(model->states[state].name);
        model->space->ops->free(model->space, model->states[state].base,
                                model->states[state].n_bytes);
    }
    free(model->units);
    free(model->param_slots);
    free(model->acquired);
    free(model->flat_shapes);
    free(model->strides);
    plan_destroy(model->plan);
    job_unref(model->job);
    free(model);
}

int32_t model_info(const struct hsdp_model *model, struct hsdp_model_info *ret_info,
                   struct hsdp_error *reterr)
{
    (void)reterr;
    model->ops->memory(model->store, ret_info);
    for (uint32_t state = 0; state < model->n_states; state++) {
        ret_info->state_bytes += model->states[state].n_bytes;
    }
    ret_info->step = model->n_steps;
    ret_info->n_states = model->n_states;
    ret_info->is_stepping = model->step.is_open;
    ret_info->is_editing = model->is_editing;
    return HSDP_OK;
}

/* ---------------------------------------------------------------------------------- views */

int32_t model_param_view(struct hsdp_model *model, uint32_t param, int32_t view,
                         struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    const struct plan_param *p;
    const struct plan_param *name;
    const struct plan_class *class;
    uint64_t offset_elems;
    struct tensor_elems elems = {.space = model->space};
    const uint8_t *base;

    if (param >= model->plan->n_params) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "model.param_view: parameter %" PRIu32 " of %" PRIu32, param,
                         model->plan->n_params);
    }
    name = &model->plan->params[param];
    p = &model->plan->params[name->storage];
    offset_elems = p->offset_elems;
    class = &model->plan->classes[model->plan->units[p->unit].class_index];
    if (view == HSDP_VIEW_PARAM) {
        base = model->ops->params(model->store, p->unit, p->buffer);
        elems.dtype = class->param_dtype;
    } else if (view == HSDP_VIEW_GRAD) {
        if ((p->flags & HSDP_PARAM_FROZEN) != 0) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "model.param_view: \"%s\" is frozen and has no gradient", p->name);
        }
        base = model->ops->grads(model->store, name->unit);
        offset_elems = name->unit == p->unit ? offset_elems : name->alias_offset_elems;
        elems.dtype = class->gradient_dtype;
    } else {
        return error_set(
            reterr, HSDP_ERR_INVALID,
            "model.param_view: view %" PRId32 " is none of 0 (parameter), 1 (gradient)", view);
    }
    elems.base = base + offset_elems * dtype_bytes(elems.dtype);
    tensor_fill(ret_view, &elems, p->shape,
                p->n_dims == 0 ? NULL : &model->strides[name->storage * HSDP_PARAM_MAX_DIMS],
                p->n_dims);
    return HSDP_OK;
}

int32_t model_follow(struct hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    int32_t status = model->ops->settle(model->store, reterr);

    return status == HSDP_OK ? model->space->ops->follow(model->space, stream, reterr) : status;
}

int32_t model_precede(struct hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    return model->space->ops->precede(model->space, stream, reterr);
}

int32_t model_order(struct hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    int32_t status = model->ops->settle(model->store, reterr);

    return status == HSDP_OK ? model_precede(model, stream, reterr) : status;
}

int32_t model_flat_shard(struct hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                         struct flat_shard *ret, struct hsdp_error *reterr)
{
    const struct plan_unit *plan_unit = &model->plan->units[unit];
    const struct plan_buffer *plan_buffer = &plan_unit->buffers[buffer];
    uint32_t state = (uint32_t)(flat - HSDP_FLAT_STATE);

    ret->n_elems = plan_buffer->shard_elems[HSDP_SHARD_STEP];
    ret->dtype = DTYPE_FP32;
    if (flat == HSDP_FLAT_MASTER) {
        ret->dtype = model->plan->classes[plan_unit->class_index].master_dtype;
        ret->base = model->ops->master(model->store, unit, buffer);
        return HSDP_OK;
    }
    if (flat != HSDP_FLAT_GRAD && (flat < HSDP_FLAT_STATE || state >= model->n_states)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "model: flat %" PRId32 " is none of 0 (master), 1 (gradient), 16 and up "
                         "(%" PRIu32 " states)",
                         flat, model->n_states);
    }
    if (plan_buffer->is_frozen) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "model: buffer %" PRIu32
                         " of unit \"%s\" is frozen and has no gradient and no state",
                         buffer, plan_unit->name);
    }
    if (flat == HSDP_FLAT_GRAD) {
        ret->base = (uint8_t *)model->ops->step_grads(model->store, unit);
        return grads_divide(model, unit, reterr); /* for who asks for them now */
    }
    ret->dtype = model->states[state].dtype;
    ret->base = (uint8_t *)model->states[state].base +
                model->units[unit].state_offset_elems * dtype_bytes(ret->dtype);
    return HSDP_OK;
}

int32_t model_flat_view(struct hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                        struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    struct tensor_elems elems = {.space = model->space};
    struct flat_shard shard;
    int32_t status;

    status = model_unit_check(model, "model.flat_view", unit, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (buffer >= model->plan->units[unit].n_buffers) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "model.flat_view: buffer %" PRIu32 " of unit \"%s\", which has %" PRIu32,
                         buffer, model->plan->units[unit].name, model->plan->units[unit].n_buffers);
    }
    status = model_flat_shard(model, unit, buffer, flat, &shard, reterr);
    if (status == HSDP_OK && flat == HSDP_FLAT_GRAD && model->step.is_open) {
        status =
            model->space->ops->wait(model->space, reterr); /* no stream is told of a division */
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (flat == HSDP_FLAT_MASTER) { /* from now on the host may write there in any step */
        model->units[unit].is_viewed = true;
        model->ops->publish_skip(model->store, unit, false);
    }
    if (flat == HSDP_FLAT_GRAD) { /* likewise read there */
        model->units[unit].are_grads_viewed = true;
    }
    elems.base = shard.base;
    elems.dtype = shard.dtype;
    tensor_fill(ret_view, &elems, &model->flat_shapes[unit * PLAN_MAX_BUFFERS + buffer],
                model->unit_stride, 1);
    return HSDP_OK;
}

/* --------------------------------------------------------------------------------- states */

static int32_t state_find(const struct hsdp_model *model, const char *name, enum dtype dtype,
                          uint32_t *ret_state, struct hsdp_error *reterr)
{
    *ret_state = model->n_states;
    for (uint32_t state = 0; state < model->n_states; state++) {
        if (strcmp(model->states[state].name, name) != 0) {
            continue;
        }
        if (model->states[state].dtype != dtype) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "model.state_create: \"%s\" exists as %s, not as %s", name,
                             dtype_name(model->states[state].dtype), dtype_name(dtype));
        }
        *ret_state = state;
    }
    return HSDP_OK;
}

static int32_t state_add(struct hsdp_model *model, const char *name, enum dtype dtype,
                         struct hsdp_error *reterr)
{
    struct model_state state = {.dtype = dtype};
    char what[MODEL_STATE_NAME_MAX + 32];
    int32_t status;

    if (model->n_states == MODEL_MAX_STATES) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "model.state_create: \"%s\" would be one more than %u states", name,
                         MODEL_MAX_STATES);
    }
    state.n_bytes = model->state_elems * dtype_bytes(dtype);
    state.n_bytes = state.n_bytes == 0 ? 1 : state.n_bytes;
    state.name = strdup(name);
    if (state.name == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.state_create: no memory for \"%s\"",
                         name);
    }
    snprintf(what, sizeof(what), "state \"%s\"", name);
    status = model->space->ops->alloc(model->space, state.n_bytes, what, &state.base, reterr);
    if (status != HSDP_OK) {
        free(state.name);
        return status;
    }
    model->states[model->n_states] = state;
    model->n_states++;
    model_state_count(model, state.n_bytes);
    return HSDP_OK;
}

int32_t model_state_create(struct hsdp_model *model, const char *name, const char *dtype,
                           uint32_t *ret_state, struct hsdp_error *reterr)
{
    enum dtype parsed;
    uint32_t state;
    int32_t status;

    if (name[0] == '\0' || strlen(name) > MODEL_STATE_NAME_MAX) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "model.state_create: the name has %zu bytes, not 1 to %u", strlen(name),
                         MODEL_STATE_NAME_MAX);
    }
    if (!dtype_parse(dtype, &parsed)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "model.state_create: dtype \"%.32s\" is none of fp32, bf16, fp16", dtype);
    }
    status = state_find(model, name, parsed, &state, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (state == model->n_states) {
        status = state_add(model, name, parsed, reterr);
        if (status != HSDP_OK) {
            return status;
        }
    }
    *ret_state = state;
    return HSDP_OK;
}

int32_t model_state_info(const struct hsdp_model *model, uint32_t state, const char **ret_name,
                         const char **ret_dtype, struct hsdp_error *reterr)
{
    if (state >= model->n_states) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "model.state_info: state %" PRIu32 " of %" PRIu32, state, model->n_states);
    }
    *ret_name = model->states[state].name;
    *ret_dtype = dtype_name(model->states[state].dtype);
    return HSDP_OK;
}

/* --------------------------------------------------------------------------------- checks */

int32_t model_unit_check(const struct hsdp_model *model, const char *call, uint32_t unit,
                         struct hsdp_error *reterr)
{
    if (unit >= model->plan->n_units) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: unit %" PRIu32 " of %" PRIu32, call, unit,
                         model->plan->n_units);
    }
    return HSDP_OK;
}

int32_t model_idle_check(const struct hsdp_model *model, const char *call,
                         struct hsdp_error *reterr)
{
    if (model->step.is_open) {
        return error_set(reterr, HSDP_ERR_STATE,
                         "%s: a step is open; step.end or step.discard was expected", call);
    }
    if (model->is_editing) {
        return error_set(reterr, HSDP_ERR_STATE, "%s: an edit is open; model.edit_end was expected",
                         call);
    }
    return HSDP_OK;
}

int32_t model_rest_check(const struct hsdp_model *model, const char *call,
                         struct hsdp_error *reterr)
{
    for (uint32_t unit = 0; unit < model->plan->n_units; unit++) {
        if (model->units[unit].pass != NULL) {
            error_set(reterr, HSDP_ERR_STATE,
                      "%s: unit \"%s\" is in an open backward pass; unit.backward_end was expected",
                      call, model->plan->units[unit].name);
        } else if (model->units[unit].n_uses != 0) {
            error_set(reterr, HSDP_ERR_STATE,
                      "%s: unit \"%s\" is still unsharded; unit.release was expected", call,
                      model->plan->units[unit].name);
        } else {
            continue;
        }
        error_where(reterr, call, NULL, model->plan->units[unit].name);
        return HSDP_ERR_STATE;
    }
    return HSDP_OK;
}

int32_t model_step_segments(const struct hsdp_model *model, uint32_t unit, uint32_t rank,
                            struct hsdp_segment **ret, uint64_t *ret_n, struct hsdp_error *reterr)
{
    struct hsdp_segment *segments;
    uint64_t n = 0;
    int32_t status;

    status = plan_segments(model->plan, unit, HSDP_SHARD_STEP, rank, NULL, sizeof(*segments), 0, &n,
                           reterr);
    if (status != HSDP_OK && status != HSDP_ERR_BUFFER_TOO_SMALL) {
        return status;
    }
    segments = calloc(n + 1, sizeof(*segments));
    if (segments == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model: no memory for %" PRIu64 " segments",
                         n);
    }
    status = plan_segments(model->plan, unit, HSDP_SHARD_STEP, rank, segments, sizeof(*segments), n,
                           &n, reterr);
    if (status != HSDP_OK) {
        free(segments);
        return status;
    }
    *ret = segments;
    *ret_n = n;
    return HSDP_OK;
}
