/* SPDX-License-Identifier: Apache-2.0 */
/* Layout: where each parameter lies in its unit's buffers, and how those are padded and cut. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/arith.h"
#include "plan/blocks.h"
#include "plan/build.h"
#include "plan/sort.h"

#define PLAN_MAX_ELEMS  (PLAN_MAX_BYTES / 4) /* as fp32 */
#define BLOCK_TRIES     (1u << 18)           /* of shard lengths, times all parameters */
#define BLOCK_MAX_TRIES 96u                  /* for one buffer */

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

static uint64_t unit_n_shards(const struct hsdp_plan *plan, const struct plan_unit *unit)
{
    const struct plan_class *klass = &plan->classes[unit->class_index];

    return placement_n_slices(&klass->place, plan->mesh, HSDP_SHARD_STEP);
}

/* A buffer's length is a multiple of this: equal step shards of whole PLAN_ALIGN_ELEMS, and
 * parameter shards of whole granules. */
static bool buffer_multiple(const struct hsdp_plan *plan, const struct plan_unit *unit,
                            uint64_t *ret_multiple)
{
    const struct plan_class *klass = &plan->classes[unit->class_index];
    uint64_t step = unit_n_shards(plan, unit);
    uint64_t param = placement_n_slices(&klass->place, plan->mesh, HSDP_SHARD_PARAM);
    uint64_t granule = PLAN_GRANULE_BYTES / dtype_bytes(klass->param_dtype);

    return arith_mul(step, PLAN_ALIGN_ELEMS, &step) && arith_mul(param, granule, &param) &&
           arith_lcm(step, param, ret_multiple);
}

/* Places the parameters of one buffer in the order in which they were added. */
static bool params_place(struct hsdp_plan *plan, const struct plan_unit *unit, bool is_frozen,
                         uint64_t *ret_end, uint64_t *ret_n_elems)
{
    uint64_t end = 0;
    uint64_t n_elems = 0;

    for (uint32_t i = 0; i < unit->n_params; i++) {
        struct plan_param *param = &plan->params[unit->params[i]];

        if (!param_is_in(plan, unit->params[i], is_frozen)) {
            continue;
        }
        if (!arith_round_up(end, PLAN_ALIGN_ELEMS, &param->offset_elems) ||
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

/* ----------------------------------------------------------------------------------- blocks */

/* What of a buffer blocks.c has to know. */
static uint32_t items_fill(const struct hsdp_plan *plan, const struct plan_unit *unit,
                           bool is_frozen, struct block_item *items)
{
    uint32_t n_items = 0;

    for (uint32_t i = 0; i < unit->n_params; i++) {
        const struct plan_param *param = &plan->params[unit->params[i]];
        uint64_t n_elems = 0;

        if (!param_is_in(plan, unit->params[i], is_frozen)) {
            continue;
        }
        arith_round_up(param->n_elems, PLAN_ALIGN_ELEMS, &n_elems); /* all of them were added up */
        items[n_items++] = (struct block_item){.n_elems = n_elems,
                                               .block_elems = block_of(n_elems, param->block_elems),
                                               .index = unit->params[i]};
    }
    return n_items;
}

/* Moves the parameters so that no boundary cuts a block; *n_elems is the buffer's length. */
static int32_t blocks_lay_out(struct hsdp_plan *plan, const struct plan_unit *unit, bool is_frozen,
                              uint64_t multiple, uint64_t *n_elems, struct hsdp_error *reterr)
{
    struct block_item *items = malloc(unit->n_params * sizeof(*items));
    struct block_spec spec = {.items = items, .n_shards = unit_n_shards(plan, unit)};
    struct block_shards shards = {0};
    enum block_result result = BLOCKS_NO_MEMORY;

    if (items != NULL) {
        spec.n_items = items_fill(plan, unit, is_frozen, items);
        spec.shard_multiple = multiple / spec.n_shards;
        spec.max_elems = PLAN_MAX_ELEMS;
        spec.max_tries = BLOCK_TRIES / plan->n_params; /* bounds the time of the whole plan */
        spec.max_tries = spec.max_tries > BLOCK_MAX_TRIES ? BLOCK_MAX_TRIES : spec.max_tries;
        result = blocks_place(&spec, &shards);
    }
    for (uint32_t i = 0; result == BLOCKS_PLACED && i < spec.n_items; i++) {
        plan->params[items[i].index].offset_elems = items[i].offset_elems;
    }
    free(items);
    *n_elems = shards.shard_elems * spec.n_shards;
    if (result == BLOCKS_NO_MEMORY) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for a layout");
    }
    return result == BLOCKS_PLACED ? HSDP_OK : size_refuse(unit, reterr);
}

static bool unit_has_blocks(const struct hsdp_plan *plan, const struct plan_unit *unit,
                            bool is_frozen)
{
    bool has_blocks = false;

    for (uint32_t i = 0; i < unit->n_params && !has_blocks; i++) {
        has_blocks = param_is_in(plan, unit->params[i], is_frozen) &&
                     plan->params[unit->params[i]].block_elems > 1;
    }
    return has_blocks && unit_n_shards(plan, unit) > 1;
}

static int32_t buffer_lay_out(struct hsdp_plan *plan, struct plan_unit *unit, bool is_frozen,
                              struct hsdp_error *reterr)
{
    const struct plan_class *klass = &plan->classes[unit->class_index];
    struct plan_buffer *buffer = &unit->buffers[unit->n_buffers];
    uint64_t multiple = 1;
    uint64_t end = 0;
    uint64_t n_elems = 0;
    uint64_t n_dense;
    int32_t status;

    /* At least one multiple, so that a buffer of empty parameters is a buffer like any other. */
    if (!params_place(plan, unit, is_frozen, &end, &n_elems) ||
        !buffer_multiple(plan, unit, &multiple) ||
        !arith_round_up(end == 0 ? 1 : end, multiple, &n_dense) || n_dense > PLAN_MAX_ELEMS) {
        return size_refuse(unit, reterr);
    }
    buffer->n_elems = n_dense;
    if (unit_has_blocks(plan, unit, is_frozen)) {
        status = blocks_lay_out(plan, unit, is_frozen, multiple, &buffer->n_elems, reterr);
        if (status != HSDP_OK) {
            return status;
        }
    }
    buffer->is_frozen = is_frozen;
    buffer->n_padding_elems = buffer->n_elems - n_elems;
    buffer->n_block_padding_elems = buffer->n_elems - n_dense;
    for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
        buffer->shard_elems[cut] =
            buffer->n_elems / placement_n_slices(&klass->place, plan->mesh, cut);
    }
    unit->n_buffers++;
    return HSDP_OK;
}

/* --------------------------------------------------------------- order of a unit's parameters */

#define PLACE_BUFFER_BIT 60 /* above every offset */

/* Where a parameter stands in its unit's list: buffer by buffer by offset, aliases behind all. */
static uint64_t param_place(const struct hsdp_plan *plan, uint32_t index)
{
    const struct plan_param *param = &plan->params[index];

    return plan_param_is_alias(plan, index)
               ? (uint64_t)PLAN_MAX_BUFFERS << PLACE_BUFFER_BIT | param->alias_offset_elems
               : (uint64_t)param->buffer << PLACE_BUFFER_BIT | param->offset_elems;
}

/* Sorts a unit's list by place, second names behind their storage, and gives names the place of
 * their storage. Empty parameters share an offset: they, too, stand by storage. */
static void params_order(struct hsdp_plan *plan, struct plan_unit *unit, struct sort_row *rows)
{
    for (uint32_t i = 0; i < unit->n_params; i++) {
        struct plan_param *param = &plan->params[unit->params[i]];

        param->offset_elems = plan->params[param->storage].offset_elems;
        param->buffer = plan->params[param->storage].buffer;
        rows[i] = (struct sort_row){param->storage, unit->params[i]};
    }
    sort_rows(rows, rows + unit->n_params, unit->n_params);
    for (uint32_t i = 0; i < unit->n_params; i++) {
        rows[i].key = param_place(plan, (uint32_t)rows[i].index);
    }
    sort_rows(rows, rows + unit->n_params, unit->n_params);
    for (uint32_t i = 0; i < unit->n_params; i++) {
        unit->params[i] = (uint32_t)rows[i].index;
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
    struct sort_row *rows = malloc(2 * (uint64_t)largest_unit(plan) * sizeof(*rows));
    uint64_t n_elems = 0;
    int32_t status = HSDP_OK;

    if (rows == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for a layout");
    }
    plan_storages_mark(plan);
    for (uint32_t u = 0; u < plan->n_units && status == HSDP_OK; u++) {
        struct plan_unit *unit = &plan->units[u];

        status = unit_lay_out(plan, unit, reterr);
        if (status == HSDP_OK) {
            status = plan_aliases_place(plan, unit, reterr);
        }
        if (status != HSDP_OK) {
            break;
        }
        n_elems += unit->n_alias_elems;
        for (uint32_t b = 0; b < unit->n_buffers; b++) {
            n_elems += unit->buffers[b].n_elems; /* none can wrap: each is at most 2^58 */
        }
        if (n_elems > PLAN_MAX_ELEMS) {
            status = size_refuse(unit, reterr);
        }
    }
    for (uint32_t u = 0; u < plan->n_units && status == HSDP_OK; u++) { /* all have a place now */
        params_order(plan, &plan->units[u], rows);
    }
    free(rows);
    return status;
}
