/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a finished plan, row by row; and who owns what. */
#include <inttypes.h>
#include <string.h>

#include "intake.h"
#include "plan.h"

static const struct intake plan_intake = {"ret_info", 88, sizeof(struct hsdp_plan_info)};
static const struct intake class_intake = {"ret_info", 72, sizeof(struct hsdp_class_info)};
static const struct intake unit_intake = {"ret_info", 48, sizeof(struct hsdp_unit_info)};
static const struct intake buffer_intake = {"ret_info", 56, sizeof(struct hsdp_buffer_info)};
static const struct intake param_intake = {"ret_info", 80, sizeof(struct hsdp_param_info)};

#define SEGMENT_FIRST_BYTES 32u /* of ABI 1.0; hsdp_segment has no struct_size, but a stride */

/* --------------------------------------------------------------------------------------- checks */

static int32_t finished_check(const struct call *call, const struct hsdp_plan *plan)
{
    return plan->is_finished
               ? HSDP_OK
               : error_raise(call, HSDP_ERR_STATE, "%s: the plan is to be read, call finish before",
                             call->name);
}

/* What all that tell a struct begin with. */
static int32_t info_check(const struct call *call, const struct hsdp_plan *plan,
                          const struct intake *intake, const void *ret_info)
{
    int32_t status;

    if (!call_has(call, "plan", plan)) {
        return HSDP_ERR_INVALID;
    }
    status = intake_check(call, intake, ret_info);
    return status == HSDP_OK ? finished_check(call, plan) : status;
}

static int32_t index_check(const struct call *call, const char *what, uint32_t index, uint32_t n)
{
    return index < n
               ? HSDP_OK
               : error_raise(call, HSDP_ERR_INVALID,
                             "plan: there is no %s %" PRIu32 ", only %" PRIu32, what, index, n);
}

/* -------------------------------------------------------------------------- totals and settings */

int32_t plan_info(const hsdp_plan *plan, struct hsdp_plan_info *ret_info, struct hsdp_error *reterr)
{
    const struct call call = {"plan.info", reterr};
    int32_t status = info_check(&call, plan, &plan_intake, ret_info);

    if (status == HSDP_OK) {
        intake_give(&plan_intake, &plan->totals, ret_info);
    }
    return status;
}

int32_t plan_mesh(const hsdp_plan *plan, const hsdp_mesh **ret_mesh, struct hsdp_error *reterr)
{
    const struct call call = {"plan.mesh", reterr};
    int32_t status;

    if (!call_has(&call, "plan", plan) || !call_has(&call, "ret_mesh", ret_mesh)) {
        return HSDP_ERR_INVALID;
    }
    status = finished_check(&call, plan);
    if (status == HSDP_OK) {
        *ret_mesh = plan->mesh;
    }
    return status;
}

int32_t plan_setting(const hsdp_plan *plan, const char *key, const char **ret_value,
                     const char **ret_source, struct hsdp_error *reterr)
{
    const struct call call = {"plan.setting", reterr};
    int32_t status;

    if (!call_has(&call, "plan", plan) || !call_has(&call, "key", key) ||
        !call_has(&call, "ret_value", ret_value) || !call_has(&call, "ret_source", ret_source)) {
        return HSDP_ERR_INVALID;
    }
    status = finished_check(&call, plan);
    if (status != HSDP_OK) {
        return status;
    }
    /* Not set when the plan is made: a class may have a reduce_dtype of its own. */
    if (strcmp(key, "gradient_dtype") == 0 && settings_text(&plan->settings, key) == NULL) {
        *ret_value = settings_text(&plan->settings, "reduce_dtype");
        *ret_source = "derived from reduce_dtype";
        return HSDP_OK;
    }
    return settings_tell(&call, &plan->settings, key, ret_value, ret_source);
}

int32_t plan_class_setting(const hsdp_plan *plan, uint32_t class_index, const char *key,
                           const char **ret_value, const char **ret_source,
                           struct hsdp_error *reterr)
{
    const struct call call = {"plan.class_setting", reterr};
    int32_t status;

    if (!call_has(&call, "plan", plan) || !call_has(&call, "key", key) ||
        !call_has(&call, "ret_value", ret_value) || !call_has(&call, "ret_source", ret_source)) {
        return HSDP_ERR_INVALID;
    }
    status = finished_check(&call, plan);
    if (status == HSDP_OK) {
        status = index_check(&call, "class", class_index, plan->n_classes);
    }
    if (status != HSDP_OK) {
        return status;
    }
    return settings_tell(&call, &plan->classes[class_index].settings, key, ret_value, ret_source);
}

/* ----------------------------------------------------------------------------------------- rows */

int32_t plan_class_info(const hsdp_plan *plan, uint32_t class_index,
                        struct hsdp_class_info *ret_info, struct hsdp_error *reterr)
{
    const struct call call = {"plan.class_info", reterr};
    struct hsdp_class_info info = HSDP_CLASS_INFO_INIT;
    const struct plan_class *klass;
    int32_t status = info_check(&call, plan, &class_intake, ret_info);

    if (status == HSDP_OK) {
        status = index_check(&call, "class", class_index, plan->n_classes);
    }
    if (status != HSDP_OK) {
        return status;
    }
    klass = &plan->classes[class_index];
    info.name = klass->name;
    info.strategy = klass->strategy->name;
    info.param_dims = klass->cut_texts[HSDP_SHARD_PARAM];
    info.grad_dims = klass->cut_texts[HSDP_SHARD_GRAD];
    info.step_dims = klass->cut_texts[HSDP_SHARD_STEP];
    info.reduce_dims = klass->reduced_text;
    info.replicated_dims = klass->replicated_text;
    info.divisor = klass->divisor;
    intake_give(&class_intake, &info, ret_info);
    return HSDP_OK;
}

static uint32_t first_param(const struct hsdp_plan *plan, uint32_t unit)
{
    uint32_t p = 0;

    while (plan->params[p].unit != unit) { /* a finished plan has no unit without parameters */
        p++;
    }
    return p;
}

int32_t plan_unit_info(const hsdp_plan *plan, uint32_t unit, struct hsdp_unit_info *ret_info,
                       struct hsdp_error *reterr)
{
    const struct call call = {"plan.unit_info", reterr};
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;
    const struct plan_unit *row;
    int32_t status = info_check(&call, plan, &unit_intake, ret_info);

    if (status == HSDP_OK) {
        status = index_check(&call, "unit", unit, plan->n_units);
    }
    if (status != HSDP_OK) {
        return status;
    }
    row = &plan->units[unit];
    info.name = row->name;
    info.class_index = row->class_index;
    info.first_param = first_param(plan, unit);
    info.n_params = row->n_params;
    info.n_buffers = row->n_buffers;
    info.divisor = plan->classes[row->class_index].divisor;
    info.param_slot = HSDP_NO_SLOT; /* unsharded, each has memory of its own */
    info.grad_slot = row->grad_slot;
    intake_give(&unit_intake, &info, ret_info);
    return HSDP_OK;
}

int32_t plan_buffer_info(const hsdp_plan *plan, uint32_t unit, uint32_t buffer,
                         struct hsdp_buffer_info *ret_info, struct hsdp_error *reterr)
{
    const struct call call = {"plan.buffer_info", reterr};
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;
    const struct plan_buffer *row;
    int32_t status = info_check(&call, plan, &buffer_intake, ret_info);

    if (status == HSDP_OK) {
        status = index_check(&call, "unit", unit, plan->n_units);
    }
    if (status == HSDP_OK) {
        status = index_check(&call, "buffer", buffer, plan->units[unit].n_buffers);
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
    intake_give(&buffer_intake, &info, ret_info);
    return HSDP_OK;
}

int32_t plan_param_info(const hsdp_plan *plan, uint32_t param, struct hsdp_param_info *ret_info,
                        struct hsdp_error *reterr)
{
    const struct call call = {"plan.param_info", reterr};
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;
    const struct plan_param *row, *storage;
    int32_t status = info_check(&call, plan, &param_intake, ret_info);

    if (status == HSDP_OK) {
        status = index_check(&call, "parameter", param, plan->n_params);
    }
    if (status != HSDP_OK) {
        return status;
    }
    row = &plan->params[param];
    storage = &plan->params[row->storage];
    info.name = row->name;
    info.shape = row->shape;
    info.tied_over = storage->given_tied_over == NULL ? "" : storage->given_tied_over;
    info.n_elems = row->n_elems;
    info.offset_elems = row->offset_elems;
    info.block_elems = row->block_elems;
    info.n_dims = row->n_dims;
    info.unit = row->unit;
    info.buffer = row->buffer;
    info.storage = row->storage;
    info.hyper_group = row->hyper_group;
    info.flags = row->flags | (storage->is_copy ? HSDP_PARAM_COPY : 0);
    intake_give(&param_intake, &info, ret_info);
    return HSDP_OK;
}

int32_t plan_param_find(const hsdp_plan *plan, const char *name, uint32_t *ret_param,
                        struct hsdp_error *reterr)
{
    const struct call call = {"plan.param_find", reterr};
    int32_t status;

    if (!call_has(&call, "plan", plan) || !call_has(&call, "name", name) ||
        !call_has(&call, "ret_param", ret_param)) {
        return HSDP_ERR_INVALID;
    }
    status = finished_check(&call, plan);
    if (status != HSDP_OK) {
        return status;
    }
    for (uint32_t p = 0; p < plan->n_params; p++) {
        if (strcmp(plan->params[p].name, name) == 0) {
            *ret_param = p;
            return HSDP_OK;
        }
    }
    return error_raise(&call, HSDP_ERR_INVALID, "plan: there is no parameter \"%.128s\"", name);
}

/* ------------------------------------------------------------------------------------- segments */

bool plan_walk_next(struct plan_walk *walk, struct hsdp_segment *ret)
{
    const struct hsdp_plan *plan = walk->plan;
    const struct plan_unit *unit = &plan->units[walk->unit];
    const struct plan_class *klass = &plan->classes[unit->class_index];
    uint64_t shard_elems = unit->buffers[walk->buffer].shard_elems[walk->cut];
    uint64_t shard_begin = plan_slice(plan, klass, walk->cut, walk->rank) * shard_elems;
    uint64_t shard_end = shard_begin + shard_elems;

    /* Parameters lie in a buffer in the order of their numbers: see plan_layout.c. */
    while (walk->param < plan->n_params) {
        uint32_t p = walk->param++;
        const struct plan_param *param = &plan->params[p];
        uint64_t begin = param->offset_elems;
        uint64_t end = begin + param->n_elems;

        begin = begin < shard_begin ? shard_begin : begin;
        end = end > shard_end ? shard_end : end;
        if (param->unit == walk->unit && param->storage == p && param->buffer == walk->buffer &&
            begin < end) {
            *ret = (struct hsdp_segment){.param = p,
                                         .buffer = walk->buffer,
                                         .param_offset_elems = begin - param->offset_elems,
                                         .shard_offset_elems = begin - shard_begin,
                                         .n_elems = end - begin};
            return true;
        }
    }
    return false;
}

static int32_t shard_check(const struct call *call, const struct hsdp_plan *plan, uint32_t unit,
                           int32_t shard, uint32_t rank)
{
    int32_t status = finished_check(call, plan);

    if (status == HSDP_OK) {
        status = index_check(call, "unit", unit, plan->n_units);
    }
    if (status == HSDP_OK && (shard < HSDP_SHARD_PARAM || shard > HSDP_SHARD_STEP)) {
        return error_raise(call, HSDP_ERR_INVALID, "plan: shard %" PRId32 " is no HSDP_SHARD_*",
                           shard);
    }
    return status == HSDP_OK ? mesh_rank_check(call, plan->mesh, rank) : status;
}

static int32_t stride_check(const struct call *call, uint64_t segment_bytes)
{
    if (segment_bytes < SEGMENT_FIRST_BYTES || segment_bytes > MOST_STRUCT_BYTES) {
        return error_raise(call, HSDP_ERR_VERSION,
                           "plan.segments: segment_bytes is %" PRIu64
                           "; ABI 1.0 has %u, this plugin %zu",
                           segment_bytes, SEGMENT_FIRST_BYTES, sizeof(struct hsdp_segment));
    }
    if (segment_bytes % _Alignof(struct hsdp_segment) != 0) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "plan.segments: segment_bytes is %" PRIu64 ", not a multiple of %zu",
                           segment_bytes, _Alignof(struct hsdp_segment));
    }
    return HSDP_OK;
}

/* Writes one element of an array whose elements may be longer or shorter than they are here. */
static void segment_give(const struct hsdp_segment *segment, void *array, uint64_t index,
                         uint64_t segment_bytes)
{
    char *element = (char *)array + index * segment_bytes;
    size_t n_known = segment_bytes < sizeof(*segment) ? segment_bytes : sizeof(*segment);

    memset(element, 0, segment_bytes);
    memcpy(element, segment, n_known);
}

/* An array of the host. */
struct segment_array {
    struct hsdp_segment *first;
    uint64_t segment_bytes;
    uint64_t n_room;
};

/* Counts the segments of a shard, and writes those for which there is room. */
static uint64_t segments_list(const struct hsdp_plan *plan, uint32_t unit, int cut, uint32_t rank,
                              const struct segment_array *array)
{
    struct hsdp_segment segment;
    uint64_t n = 0;

    for (uint32_t b = 0; b < plan->units[unit].n_buffers; b++) {
        struct plan_walk walk = {plan, unit, b, cut, rank, 0};

        while (plan_walk_next(&walk, &segment)) {
            if (n < array->n_room) {
                segment_give(&segment, array->first, n, array->segment_bytes);
            }
            n++;
        }
    }
    return n;
}

int32_t plan_segments(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                      struct hsdp_segment *ret_segments, uint64_t segment_bytes,
                      uint64_t max_segments, uint64_t *ret_n_segments, struct hsdp_error *reterr)
{
    const struct call call = {"plan.segments", reterr};
    const struct segment_array array = {ret_segments, segment_bytes, max_segments};
    const struct segment_array none = {NULL, segment_bytes, 0};
    uint64_t n;
    int32_t status;

    if (!call_has(&call, "plan", plan) ||
        !call_has_array(&call, "ret_segments", ret_segments, max_segments) ||
        !call_has(&call, "ret_n_segments", ret_n_segments)) {
        return HSDP_ERR_INVALID;
    }
    status = stride_check(&call, segment_bytes);
    if (status == HSDP_OK) {
        status = shard_check(&call, plan, unit, shard, rank);
    }
    if (status != HSDP_OK) {
        return status;
    }
    n = segments_list(plan, unit, shard, rank, &none);
    *ret_n_segments = n;
    if (n > max_segments) { /* nothing is written then */
        return error_raise(&call, HSDP_ERR_BUFFER_TOO_SMALL,
                           "plan: there are %" PRIu64 " segments, max_segments is %" PRIu64, n,
                           max_segments);
    }
    segments_list(plan, unit, shard, rank, &array);
    return HSDP_OK;
}

int32_t plan_writer(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                    uint32_t *ret_writer_rank, struct hsdp_error *reterr)
{
    const struct call call = {"plan.writer", reterr};
    int32_t status;

    if (!call_has(&call, "plan", plan) || !call_has(&call, "ret_writer_rank", ret_writer_rank)) {
        return HSDP_ERR_INVALID;
    }
    status = shard_check(&call, plan, unit, shard, rank);
    if (status == HSDP_OK) {
        *ret_writer_rank =
            plan_slice_writer(plan, &plan->classes[plan->units[unit].class_index], shard, rank);
    }
    return status;
}
