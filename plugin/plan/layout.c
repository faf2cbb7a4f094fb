/* SPDX-License-Identifier: Apache-2.0 */
/* Layout: where each parameter lies in its unit's buffers, and how those are padded and cut. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/arith.h"
#include "plan/build.h"

#define PLAN_MAX_ELEMS (PLAN_MAX_BYTES / 4) /* as fp32 */

static int32_t size_refuse(const struct plan_unit *unit, struct hsdp_error *reterr)
{
    return error_set(reterr, HSDP_ERR_INVALID,
                     "plan: with the padding of unit %s the buffers are larger than 2^60 bytes",
                     unit->name);
}

/* True for the parameters that take up room in a buffer: those that are no second name. */
static bool param_is_in(const struct hsdp_plan *plan, uint32_t index, bool is_frozen)
{
    const struct plan_param *param = &plan->params[index];

    return param->storage == index && ((param->flags & HSDP_PARAM_FROZEN) != 0) == is_frozen;
}

/* The run of elements that no shard boundary may fall into: 1 where any element may be first. */
static uint64_t param_block(const struct plan_param *param)
{
    uint64_t block = param->block_elems < param->n_elems ? param->block_elems : param->n_elems;

    return block == 0 ? 1 : block;
}

static bool unit_is_cut(const struct hsdp_plan *plan, const struct plan_unit *unit)
{
    const struct plan_class *klass = &plan->classes[unit->class_index];

    return placement_n_slices(&klass->place, plan->mesh, HSDP_SHARD_STEP) > 1;
}

/*
 * Step shards are a multiple of this many elements, and so is the offset of each parameter that
 * has blocks: then no boundary can fall inside of one. Where blocks have no common multiple that
 * is small beside the buffer, padding would outgrow the parameters; that is refused.
 */
static int32_t shard_multiple(const struct hsdp_plan *plan, const struct plan_unit *unit,
                              bool is_frozen, uint64_t *ret_multiple, struct hsdp_error *reterr)
{
    uint64_t multiple = PLAN_ALIGN_ELEMS;
    uint64_t n_elems = PLAN_GRANULE_BYTES; /* what is small anyway */
    bool is_small = true;

    for (uint32_t i = 0; i < unit->n_params && unit_is_cut(plan, unit); i++) {
        const struct plan_param *param = &plan->params[unit->params[i]];

        if (param_is_in(plan, unit->params[i], is_frozen)) {
            is_small = is_small && arith_add(n_elems, param->n_elems, &n_elems) &&
                       arith_lcm(multiple, param_block(param), &multiple);
        }
    }
    if (!is_small || multiple > n_elems) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "plan: unit %s: the block_elems of its parameters have no common multiple "
                         "within the %" PRIu64 " elements that they hold; padding for that is not "
                         "built in this version",
                         unit->name, n_elems - PLAN_GRANULE_BYTES);
    }
    *ret_multiple = multiple;
    return HSDP_OK;
}

/* A buffer's length is a multiple of this: equal step shards of whole multiples, and parameter
 * shards of whole granules. */
static bool buffer_multiple(const struct hsdp_plan *plan, const struct plan_unit *unit,
                            uint64_t step_multiple, uint64_t *ret_multiple)
{
    const struct plan_class *klass = &plan->classes[unit->class_index];
    uint64_t step = placement_n_slices(&klass->place, plan->mesh, HSDP_SHARD_STEP);
    uint64_t param = placement_n_slices(&klass->place, plan->mesh, HSDP_SHARD_PARAM);
    uint64_t granule = PLAN_GRANULE_BYTES / dtype_bytes(klass->param_dtype);

    return arith_mul(step, step_multiple, &step) && arith_mul(param, granule, &param) &&
           arith_lcm(step, param, ret_multiple);
}

/* Places the parameters of one buffer in the order in which they were added. */
static bool params_place(struct hsdp_plan *plan, const struct plan_unit *unit, bool is_frozen,
                         uint64_t *ret_end, uint64_t *ret_n_elems)
{
    bool is_cut = unit_is_cut(plan, unit);
    uint64_t end = 0;
    uint64_t n_elems = 0;

    for (uint32_t i = 0; i < unit->n_params; i++) {
        struct plan_param *param = &plan->params[unit->params[i]];
        uint64_t align = PLAN_ALIGN_ELEMS;

        if (!param_is_in(plan, unit->params[i], is_frozen)) {
            continue;
        }
        if ((is_cut && !arith_lcm(align, param_block(param), &align)) ||
            !arith_round_up(end, align, &param->offset_elems) ||
            !arith_add(param->offset_elems, param->n_elems, &end) || end > PLAN_MAX_ELEMS) {
            return false;
        }
        param->buffer = unit->n_buffers;
        n_elems += param->n_elems;
    }
    *ret_end = end;
    *ret_n_elems = n_elems;
    return true;
}

static int32_t buffer_lay_out(struct hsdp_plan *plan, struct plan_unit *unit, bool is_frozen,
                              struct hsdp_error *reterr)
{
    const struct plan_class *klass = &plan->classes[unit->class_index];
    struct plan_buffer *buffer = &unit->buffers[unit->n_buffers];
    uint64_t multiple = 1;
    uint64_t end = 0;
    uint64_t n_elems = 0;
    int32_t status;

    status = shard_multiple(plan, unit, is_frozen, &multiple, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    /* At least one multiple, so that a buffer of empty parameters is a buffer like any other. */
    if (!params_place(plan, unit, is_frozen, &end, &n_elems) ||
        !buffer_multiple(plan, unit, multiple, &multiple) ||
        !arith_round_up(end == 0 ? 1 : end, multiple, &buffer->n_elems) ||
        buffer->n_elems > PLAN_MAX_ELEMS) {
        return size_refuse(unit, reterr);
    }
    buffer->is_frozen = is_frozen;
    buffer->n_padding_elems = buffer->n_elems - n_elems;
    for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
        buffer->shard_elems[cut] =
            buffer->n_elems / placement_n_slices(&klass->place, plan->mesh, cut);
    }
    unit->n_buffers++;
    return HSDP_OK;
}

/* --------------------------------------------------------------- order of a unit's parameters */

struct place_key {
    uint64_t offset_elems;
    uint32_t buffer;
    uint32_t storage;
    uint32_t param;
};

static int key_compare(const void *left, const void *right)
{
    const struct place_key *a = left;
    const struct place_key *b = right;

    if (a->buffer != b->buffer) {
        return a->buffer < b->buffer ? -1 : 1;
    }
    if (a->offset_elems != b->offset_elems) {
        return a->offset_elems < b->offset_elems ? -1 : 1;
    }
    if (a->storage != b->storage) { /* empty parameters share an offset */
        return a->storage < b->storage ? -1 : 1;
    }
    return a->param < b->param ? -1 : a->param > b->param;
}

/* Sorts a unit's list by place, second names behind their storage, and gives those its place. */
static void params_order(struct hsdp_plan *plan, struct plan_unit *unit, struct place_key *keys)
{
    for (uint32_t i = 0; i < unit->n_params; i++) {
        struct plan_param *param = &plan->params[unit->params[i]];
        const struct plan_param *storage = &plan->params[param->storage];

        param->offset_elems = storage->offset_elems;
        param->buffer = storage->buffer;
        keys[i] = (struct place_key){storage->offset_elems, storage->buffer, param->storage,
                                     unit->params[i]};
    }
    qsort(keys, unit->n_params, sizeof(*keys), key_compare);
    for (uint32_t i = 0; i < unit->n_params; i++) {
        unit->params[i] = keys[i].param;
    }
}

static int32_t unit_lay_out(struct hsdp_plan *plan, struct plan_unit *unit,
                            struct hsdp_error *reterr)
{
    unit->n_buffers = 0;
    for (int is_frozen = 0; is_frozen <= 1; is_frozen++) {
        bool is_needed = false;

        for (uint32_t i = 0; i < unit->n_params && !is_needed; i++) {
            is_needed = param_is_in(plan, unit->params[i], is_frozen != 0);
        }
        if (is_needed) {
            int32_t status = buffer_lay_out(plan, unit, is_frozen != 0, reterr);

            if (status != HSDP_OK) {
                return status;
            }
        }
    }
    return HSDP_OK;
}

static uint32_t largest_unit(const struct hsdp_plan *plan)
{
    uint32_t n_params = 1;

    for (uint32_t u = 0; u < plan->n_units; u++) {
        n_params = plan->units[u].n_params > n_params ? plan->units[u].n_params : n_params;
    }
    return n_params;
}

int32_t plan_lay_out(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    struct place_key *keys = malloc(largest_unit(plan) * sizeof(*keys));
    uint64_t n_elems = 0;
    int32_t status = HSDP_OK;

    if (keys == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for a layout");
    }
    for (uint32_t u = 0; u < plan->n_units && status == HSDP_OK; u++) {
        struct plan_unit *unit = &plan->units[u];

        status = unit_lay_out(plan, unit, reterr);
        if (status != HSDP_OK) {
            break;
        }
        params_order(plan, unit, keys);
        for (uint32_t b = 0; b < unit->n_buffers; b++) {
            n_elems += unit->buffers[b].n_elems; /* neither can wrap: each is at most 2^58 */
        }
        if (n_elems > PLAN_MAX_ELEMS) {
            status = size_refuse(unit, reterr);
        }
    }
    free(keys);
    return status;
}
