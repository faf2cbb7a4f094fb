/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a finished plan, row by row. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/build.h"
#include "plan/names.h"

/* What every query checks first: its pointers, and that there is something to read. */
static int32_t query_check(const struct hsdp_plan *plan, const void *ret, const char *query,
                           struct hsdp_error *reterr)
{
    if (plan == NULL || ret == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "plan: %s needs a plan and a place to answer",
                         query);
    }
    return plan_check_state(plan, true, reterr);
}

static int32_t index_check(const char *what, uint32_t index, uint32_t n, struct hsdp_error *reterr)
{
    if (index < n) {
        return HSDP_OK;
    }
    return error_set(reterr, HSDP_ERR_INVALID,
                     "plan: %s %" PRIu32 " does not exist, there are %" PRIu32, what, index, n);
}

int32_t plan_info(const struct hsdp_plan *plan, struct hsdp_plan_info *ret_info,
                  struct hsdp_error *reterr)
{
    int32_t status;

    status = query_check(plan, ret_info, "info", reterr);
    if (status == HSDP_OK) {
        *ret_info = plan->totals;
    }
    return status;
}

int32_t plan_mesh(const struct hsdp_plan *plan, const struct hsdp_mesh **ret_mesh,
                  struct hsdp_error *reterr)
{
    int32_t status;

    status = query_check(plan, ret_mesh, "mesh", reterr);
    if (status == HSDP_OK) {
        *ret_mesh = plan->mesh;
    }
    return status;
}

int32_t plan_setting(const struct hsdp_plan *plan, const char *key, const char **ret_value,
                     const char **ret_source, struct hsdp_error *reterr)
{
    int32_t status;

    status = query_check(plan, key, "setting", reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (ret_value == NULL || ret_source == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: setting needs a ret_value and a ret_source");
    }
    /* Not derived when the plan is made: a class may still give its own reduce_dtype. */
    if (strcmp(key, "gradient_dtype") == 0 && settings_text(&plan->settings, key) == NULL) {
        *ret_value = settings_text(&plan->settings, "reduce_dtype");
        *ret_source = "derived from reduce_dtype";
        return HSDP_OK;
    }
    return settings_get(&plan->settings, key, ret_value, ret_source, reterr);
}

int32_t plan_class_setting(const struct hsdp_plan *plan, uint32_t class_index, const char *key,
                           const char **ret_value, const char **ret_source,
                           struct hsdp_error *reterr)
{
    int32_t status = query_check(plan, key, "class_setting", reterr);

    if (status == HSDP_OK) {
        status = index_check("class", class_index, plan->n_classes, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    return settings_get(&plan->classes[class_index].settings, key, ret_value, ret_source, reterr);
}

int32_t plan_class_info(const struct hsdp_plan *plan, uint32_t class_index,
                        struct hsdp_class_info *ret_info, struct hsdp_error *reterr)
{
    struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;
    const struct plan_class *klass;
    int32_t status;

    status = query_check(plan, ret_info, "class_info", reterr);
    if (status == HSDP_OK) {
        status = index_check("class", class_index, plan->n_classes, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    klass = &plan->classes[class_index];
    info.name = klass->name;
    info.strategy = klass->strategy->name;
    info.param_dims = klass->cut_dims[HSDP_SHARD_PARAM];
    info.grad_dims = klass->cut_dims[HSDP_SHARD_GRAD];
    info.step_dims = klass->cut_dims[HSDP_SHARD_STEP];
    info.reduce_dims = klass->reduce_dims;
    info.replicated_dims = klass->replicated_dims;
    info.divisor = klass->divisor;
    *ret_info = info;
    return HSDP_OK;
}

static uint32_t first_param(const struct plan_unit *unit)
{
    uint32_t first = unit->params[0];

    for (uint32_t i = 1; i < unit->n_params; i++) {
        first = unit->params[i] < first ? unit->params[i] : first;
    }
    return first;
}

int32_t plan_unit_info(const struct hsdp_plan *plan, uint32_t unit, struct hsdp_unit_info *ret_info,
                       struct hsdp_error *reterr)
{
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;
    const struct plan_unit *row;
    int32_t status;

    status = query_check(plan, ret_info, "unit_info", reterr);
    if (status == HSDP_OK) {
        status = index_check("unit", unit, plan->n_units, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    row = &plan->units[unit];
    info.name = row->name;
    info.class_index = row->class_index;
    info.first_param = first_param(row);
    info.n_params = row->n_params;
    info.n_buffers = row->n_buffers;
    info.divisor = plan->classes[row->class_index].divisor;
    info.param_slot = row->param_slot;
    info.grad_slot = row->grad_slot;
    *ret_info = info;
    return HSDP_OK;
}

int32_t plan_buffer_info(const struct hsdp_plan *plan, uint32_t unit, uint32_t buffer,
                         struct hsdp_buffer_info *ret_info, struct hsdp_error *reterr)
{
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;
    const struct plan_buffer *row;
    int32_t status;

    status = query_check(plan, ret_info, "buffer_info", reterr);
    if (status == HSDP_OK) {
        status = index_check("unit", unit, plan->n_units, reterr);
    }
    if (status == HSDP_OK) {
        status = index_check("buffer", buffer, plan->units[unit].n_buffers, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    row = &plan->units[unit].buffers[buffer];
    info.n_elems = row->n_elems;
    info.n_padding_elems = row->n_padding_elems;
    info.param_shard_elems = row->shard_elems[HSDP_SHARD_PARAM];
    info.grad_shard_elems = row->shard_elems[HSDP_SHARD_GRAD];
    info.step_shard_elems = row->shard_elems[HSDP_SHARD_STEP];
    info.is_frozen = row->is_frozen ? 1 : 0;
    *ret_info = info;
    return HSDP_OK;
}

int32_t plan_param_info(const struct hsdp_plan *plan, uint32_t param,
                        struct hsdp_param_info *ret_info, struct hsdp_error *reterr)
{
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;
    const struct plan_param *row;
    const char *tied_over;
    int32_t status;

    status = query_check(plan, ret_info, "param_info", reterr);
    if (status == HSDP_OK) {
        status = index_check("param", param, plan->n_params, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    row = &plan->params[param];
    tied_over = plan->params[row->storage].tied_over;
    info.name = row->name;
    info.shape = row->shape;
    info.tied_over = tied_over == NULL ? "" : tied_over;
    info.n_elems = row->n_elems;
    info.offset_elems = row->offset_elems;
    info.block_elems = row->block_elems;
    info.n_dims = row->n_dims;
    info.unit = row->unit;
    info.buffer = row->buffer;
    info.storage = row->storage;
    info.hyper_group = row->hyper_group;
    info.flags = row->flags | (plan_param_is_copy(plan, param) ? HSDP_PARAM_COPY : 0);
    *ret_info = info;
    return HSDP_OK;
}

int32_t plan_param_find(const struct hsdp_plan *plan, const char *name, uint32_t *ret_param,
                        struct hsdp_error *reterr)
{
    int32_t status;

    status = query_check(plan, ret_param, "param_find", reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (name == NULL || !names_find(plan->param_names, name, ret_param)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: none of the %" PRIu32 " parameters has the name \"%.200s\"",
                         plan->n_params, name == NULL ? "" : name);
    }
    return HSDP_OK;
}

uint32_t plan_shared_dims(const struct hsdp_plan *plan)
{
    uint32_t dims = 0;

    for (uint32_t c = 0; c < plan->n_classes; c++) {
        dims |= plan->classes[c].place.replicated | plan->classes[c].place.reduced;
    }
    return dims;
}

bool plan_is_trainable(const struct hsdp_plan *plan, uint32_t unit)
{
    return plan_trainable(&plan->units[unit]) != NULL;
}

uint64_t plan_grad_elems(const struct hsdp_plan *plan, uint32_t unit)
{
    const struct plan_buffer *buffer = plan_trainable(&plan->units[unit]);

    return (buffer == NULL ? 0 : buffer->n_elems) + plan->units[unit].n_alias_elems;
}

bool plan_class_is_trainable(const struct hsdp_plan *plan, uint32_t class_index)
{
    for (uint32_t unit = 0; unit < plan->n_units; unit++) {
        if (plan->units[unit].class_index == class_index && plan_is_trainable(plan, unit)) {
            return true;
        }
    }
    return false;
}
