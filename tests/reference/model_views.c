/* SPDX-License-Identifier: Apache-2.0 */
/* Views and states of models: functions of the table. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

static void view_fill(struct hsdp_tensor *ret, void *base, enum dtype dtype)
{
    *ret = (struct hsdp_tensor){.base = base, .device_type = HSDP_DEVICE_CPU, .dtype_lanes = 1};
    ret->dtype_code = dtype == DTYPE_BF16 ? HSDP_DTYPE_BFLOAT : HSDP_DTYPE_FLOAT;
    ret->dtype_bits = (uint8_t)(8 * dtype_bytes(dtype));
}

static int32_t param_view(const struct call *call, hsdp_model *model, uint32_t param, int32_t view,
                          struct hsdp_tensor *ret_view)
{
    struct param *p = &model->params[param];
    const struct param *storage = &model->params[p->info.storage];
    const struct unit *unit = &model->units[storage->info.unit];
    const struct buffer *buffer = &unit->buffers[storage->info.buffer];
    uint64_t offset = storage->info.offset_elems;

    if (view == HSDP_VIEW_PARAM) {
        view_fill(ret_view, buffer->params_read + offset * dtype_bytes(unit->param_dtype),
                  unit->param_dtype);
    } else if (view != HSDP_VIEW_GRAD) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: view %" PRId32 "; 0 (parameter) and 1 (gradient) are allowed",
                           call->name, view);
    } else if (p->is_frozen) {
        return error_raise(call, HSDP_ERR_INVALID, "%s: \"%s\" is frozen and has no gradient",
                           call->name, p->info.name);
    } else if (p->is_alias) {
        view_fill(ret_view, p->alias_grads, model->units[p->info.unit].gradient_dtype);
    } else {
        view_fill(ret_view, buffer->grads + offset * dtype_bytes(unit->gradient_dtype),
                  unit->gradient_dtype);
    }
    ret_view->n_dims = (int32_t)p->info.n_dims;
    ret_view->shape = p->info.n_dims > 0 ? (int64_t *)p->info.shape : NULL;
    ret_view->strides = p->info.n_dims > 0 ? p->strides : NULL;
    return HSDP_OK;
}

int32_t model_param_view(hsdp_model *model, uint32_t param, int32_t view,
                         struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    const struct call call = {"model.param_view", reterr};
    int32_t status = model_enter(&call, model);

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "ret_view", ret_view)) {
        return job_leave(model->job, HSDP_ERR_INVALID);
    }
    status = param_check(&call, model, param);
    if (status == HSDP_OK) {
        status = param_view(&call, model, param, view, ret_view);
    }
    return job_leave(model->job, status);
}

static int32_t flat_view(const struct call *call, hsdp_model *model, uint32_t unit, uint32_t buffer,
                         struct flat *ret, int32_t flat)
{
    int32_t status = unit_check(call, model, unit);

    if (status != HSDP_OK) {
        return status;
    }
    if (buffer >= model->units[unit].n_buffers) {
        return unit_refuse(call, model, unit, HSDP_ERR_INVALID,
                           "has no buffer %" PRIu32 ", only %" PRIu32, buffer,
                           model->units[unit].n_buffers);
    }
    if (!flat_find(model, unit, buffer, flat, ret)) {
        return unit_refuse(call, model, unit, HSDP_ERR_INVALID,
                           "has in buffer %" PRIu32 " no flat %" PRId32
                           "; allowed are 0 (master), and unless it is frozen 1 (gradient), and "
                           "16 and up (%" PRIu32 " states)",
                           buffer, flat, model->n_states);
    }
    return HSDP_OK;
}

int32_t model_flat_view(hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                        struct hsdp_tensor *ret_view, struct hsdp_error *reterr)
{
    const struct call call = {"model.flat_view", reterr};
    int32_t status = model_enter(&call, model);
    struct flat found;

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "ret_view", ret_view)) {
        return job_leave(model->job, HSDP_ERR_INVALID);
    }
    status = flat_view(&call, model, unit, buffer, &found, flat);
    if (status == HSDP_OK) {
        view_fill(ret_view, found.base, found.dtype);
        ret_view->n_dims = 1;
        ret_view->shape = model->units[unit].buffers[buffer].step_shape;
        ret_view->strides = model->flat_strides;
    }
    return job_leave(model->job, status);
}

/* -------------------------------------------------------------------------------------- states */

int32_t state_create(const struct call *call, hsdp_model *model, const char *name,
                     const char *dtype_text, uint32_t *ret_state)
{
    enum dtype dtype;
    int32_t status;

    if (strlen(name) < 1 || strlen(name) > 63 || !dtype_find(dtype_text, &dtype)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: \"%.64s\" of dtype \"%.16s\"; a name of 1 to 63 bytes, and fp32, "
                           "bf16 and fp16 are allowed",
                           call->name, name, dtype_text);
    }
    for (uint32_t s = 0; s < model->n_states; s++) {
        if (strcmp(model->states[s].name, name) != 0) {
            continue;
        }
        if (model->states[s].dtype != dtype) {
            return error_raise(call, HSDP_ERR_INVALID, "%s: \"%s\" exists as %s, not %s",
                               call->name, name, dtype_name(model->states[s].dtype), dtype_text);
        }
        *ret_state = s;
        return HSDP_OK;
    }
    if (model->n_states == MOST_STATES) {
        return error_raise(call, HSDP_ERR_UNSUPPORTED, "%s: there are %d states already",
                           call->name, MOST_STATES);
    }
    snprintf(model->states[model->n_states].name, sizeof(model->states[0].name), "%s", name);
    model->states[model->n_states].dtype = dtype;
    status = state_allocate(call, model, model->n_states);
    if (status == HSDP_OK) {
        *ret_state = model->n_states++;
    }
    return status;
}

int32_t model_state_create(hsdp_model *model, const char *name, const char *dtype,
                           uint32_t *ret_state, struct hsdp_error *reterr)
{
    const struct call call = {"model.state_create", reterr};
    int32_t status = model_enter(&call, model);

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "name", name) || !call_has(&call, "dtype", dtype) ||
        !call_has(&call, "ret_state", ret_state)) {
        return job_leave(model->job, HSDP_ERR_INVALID);
    }
    return job_leave(model->job, state_create(&call, model, name, dtype, ret_state));
}

int32_t model_state_info(const hsdp_model *model, uint32_t state, const char **ret_name,
                         const char **ret_dtype, struct hsdp_error *reterr)
{
    const struct call call = {"model.state_info", reterr};
    int32_t status;

    if (!call_has(&call, "model", model) || !call_has(&call, "ret_name", ret_name) ||
        !call_has(&call, "ret_dtype", ret_dtype)) {
        return HSDP_ERR_INVALID;
    }
    status = job_enter_to_ask(&call, model->job);
    if (status != HSDP_OK) {
        return status;
    }
    if (state >= model->n_states) {
        status =
            error_raise(&call, HSDP_ERR_INVALID, "model.state_info: state %" PRIu32 " of %" PRIu32,
                        state, model->n_states);
    }
    if (status == HSDP_OK) {
        *ret_name = model->states[state].name;
        *ret_dtype = dtype_name(model->states[state].dtype);
    }
    return job_leave(model->job, status);
}
