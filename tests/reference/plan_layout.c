/* SPDX-License-Identifier: Apache-2.0 */
/* Layout: where parameters lie in their buffers, how those are cut, and what it comes to. */
#include <inttypes.h>
#include <string.h>

#include "hsdp/unit.h"
#include "plan.h"

/* Parameters and shards begin on a multiple of this: 64 bytes of bf16, 128 of fp32. */
#define ALIGN_ELEMS UINT64_C(32)
/* Of all buffers of a plan: 2^60 bytes as fp32. */
#define MOST_ELEMS (UINT64_C(1) << 58)
#define NO_PLACE   UINT64_MAX

static uint64_t round_up(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* True for a parameter that takes up room in one of its unit's buffers. */
static bool param_is_in(const struct hsdp_plan *plan, uint32_t p, uint32_t unit, bool is_frozen)
{
    const struct plan_param *param = &plan->params[p];

    return param->unit == unit && param->storage == p &&
           ((param->flags & HSDP_PARAM_FROZEN) != 0) == is_frozen;
}

/* --------------------------------------------------------------------------------------- blocks */

#define NEVER_CUT UINT64_MAX

/* After how many elements a parameter may be cut: since all cuts are multiples of ALIGN_ELEMS from
 * its first element, the least common multiple with that. */
static uint64_t block_of(const struct plan_param *param)
{
    uint64_t a = param->block_elems;
    uint64_t b = ALIGN_ELEMS;

    if (param->block_elems <= 1) {
        return ALIGN_ELEMS;
    }
    if (param->block_elems >= param->n_elems) {
        return NEVER_CUT;
    }
    while (b != 0) { /* Euclid */
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return param->block_elems / a * ALIGN_ELEMS;
}

/* True if n elements at an offset are cut by shards of `shard_elems` between blocks only. */
static bool cuts_are_legal(uint64_t offset, uint64_t n, uint64_t block, uint64_t shard_elems)
{
    uint64_t first = shard_elems - offset % shard_elems; /* where the first cut is, from offset */

    if (n <= first) {
        return true;
    }
    return first % block == 0 && (n <= first + shard_elems || shard_elems % block == 0);
}

/* The first place from `end` on, up to the next cut, at which no block is cut. */
static uint64_t place_find(const struct plan_param *param, uint64_t end, uint64_t shard_elems)
{
    uint64_t block = block_of(param);
    uint64_t next = (end / shard_elems + 1) * shard_elems;
    uint64_t blocks_before = next - (next - end) / block * block; /* whole blocks, then the cut */

    if (cuts_are_legal(end, param->n_elems, block, shard_elems)) {
        return end;
    }
    return cuts_are_legal(blocks_before, param->n_elems, block, shard_elems) ? blocks_before
                                                                             : NO_PLACE;
}

/* ---------------------------------------------------------------------------------- one buffer */

/* Places the parameters of a buffer one behind the other. Returns where they end, or NO_PLACE. */
static uint64_t params_place(struct hsdp_plan *plan, uint32_t unit, bool is_frozen,
                             uint64_t shard_elems)
{
    uint64_t end = 0;

    for (uint32_t p = 0; p < plan->n_params; p++) {
        struct plan_param *param = &plan->params[p];

        if (!param_is_in(plan, p, unit, is_frozen)) {
            continue;
        }
        param->offset_elems = place_find(param, end, shard_elems);
        if (param->offset_elems > MOST_ELEMS || param->n_elems > MOST_ELEMS) {
            return NO_PLACE;
        }
        end = round_up(param->offset_elems + param->n_elems, ALIGN_ELEMS);
        param->buffer = plan->units[unit].n_buffers;
    }
    return end;
}

static int32_t size_refuse(const struct call *call, const struct plan_unit *unit)
{
    return error_raise(call, HSDP_ERR_INVALID,
                       "plan: with the padding of unit %s the plan is larger than 2^60 bytes",
                       unit->name);
}

/* The shortest shards that do: as many elements as there are need, then a little longer each time.
 * One that is as long as all parameters together always does. */
static int32_t shards_find(const struct call *call, struct hsdp_plan *plan, uint32_t unit,
                           bool is_frozen, uint64_t *ret_n_elems)
{
    const struct plan_class *klass = &plan->classes[plan->units[unit].class_index];
    uint64_t n_shards = mesh_count(plan->mesh, klass->cuts[HSDP_SHARD_STEP]);
    uint64_t total = params_place(plan, unit, is_frozen, 2 * MOST_ELEMS);
    uint64_t shard_elems;

    if (total > MOST_ELEMS) {
        return size_refuse(call, &plan->units[unit]);
    }
    /* A buffer of empty parameters has shards like any other. */
    shard_elems = round_up(total == 0 ? 1 : (total + n_shards - 1) / n_shards, ALIGN_ELEMS);
    while (shard_elems <= MOST_ELEMS / n_shards) {
        if (params_place(plan, unit, is_frozen, shard_elems) <= shard_elems * n_shards) {
            *ret_n_elems = shard_elems * n_shards;
            return HSDP_OK;
        }
        shard_elems += round_up(shard_elems / 1024 + 1, ALIGN_ELEMS);
    }
    return size_refuse(call, &plan->units[unit]);
}

static int32_t buffer_lay_out(const struct call *call, struct hsdp_plan *plan, uint32_t u,
                              bool is_frozen)
{
    struct plan_unit *unit = &plan->units[u];
    const struct plan_class *klass = &plan->classes[unit->class_index];
    struct plan_buffer buffer = {.is_frozen = is_frozen};
    uint64_t n_elems = 0;
    bool is_needed = false;
    int32_t status;

    for (uint32_t p = 0; p < plan->n_params; p++) {
        if (param_is_in(plan, p, u, is_frozen)) {
            is_needed = true;
            n_elems += plan->params[p].n_elems; /* too many are refused below */
        }
    }
    if (!is_needed) {
        return HSDP_OK;
    }
    status = shards_find(call, plan, u, is_frozen, &buffer.n_elems);
    if (status != HSDP_OK) {
        return status;
    }
    buffer.n_padding_elems = buffer.n_elems - n_elems;
    for (int cut = 0; cut < N_CUTS; cut++) {
        buffer.shard_elems[cut] = buffer.n_elems / mesh_count(plan->mesh, klass->cuts[cut]);
    }
    unit->buffers[unit->n_buffers++] = buffer;
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------------ all units */

/* Second names lie where their storages do. Gradients of aliases lie in their own unit. */
static void names_place(struct hsdp_plan *plan)
{
    for (uint32_t u = 0; u < plan->n_units; u++) {
        plan->units[u].n_alias_elems = 0;
        plan->units[u].is_added_to = false;
    }
    for (uint32_t p = 0; p < plan->n_params; p++) {
        struct plan_param *param = &plan->params[p];
        const struct plan_param *storage = &plan->params[param->storage];

        param->buffer = storage->buffer;
        param->offset_elems = storage->offset_elems;
        if (plan_is_alias(plan, p) && (param->flags & HSDP_PARAM_FROZEN) == 0) {
            plan->units[param->unit].n_alias_elems += round_up(param->n_elems + 1, ALIGN_ELEMS);
            plan->units[storage->unit].is_added_to = true;
        }
    }
}

static const struct plan_buffer *unit_trainable(const struct plan_unit *unit)
{
    return unit->n_buffers > 0 && !unit->buffers[0].is_frozen ? &unit->buffers[0] : NULL;
}

/* Every unit has memory of its own; a slot is no more than a number in reduce order. */
static void slots_number(struct hsdp_plan *plan)
{
    uint32_t n_slots = (uint32_t)settings_number(&plan->settings, "slots");
    uint32_t position = 0;

    for (uint32_t u = plan->n_units; u-- > 0;) {
        struct plan_unit *unit = &plan->units[u];
        bool has_gradients = unit_trainable(unit) != NULL || unit->n_alias_elems > 0;

        unit->grad_slot = has_gradients ? position++ % n_slots : HSDP_NO_SLOT;
    }
}

/* --------------------------------------------------------------------------------------- totals */

uint64_t plan_dtype_bytes(const struct settings *settings, const char *key)
{
    return strcmp(settings_text(settings, key), "fp32") == 0 ? 4 : 2;
}

/* Elements of this rank's parameter shard that are padding. */
static uint64_t shard_padding(const struct hsdp_plan *plan, uint32_t unit, uint32_t buffer)
{
    struct plan_walk walk = {plan, unit, buffer, HSDP_SHARD_PARAM, plan->mesh->rank, 0};
    uint64_t n_padding = plan->units[unit].buffers[buffer].shard_elems[HSDP_SHARD_PARAM];
    struct hsdp_segment segment;

    while (plan_walk_next(&walk, &segment)) {
        n_padding -= segment.n_elems;
    }
    return n_padding;
}

/* fp32 sums that rest between microbatches: of the step shard; before that of the whole gradient,
 * or of its shard; and of what other units add. */
static uint64_t rest_elems(const struct hsdp_plan *plan, const struct plan_unit *unit)
{
    const struct plan_class *klass = &plan->classes[unit->class_index];
    const struct plan_buffer *buffer = unit_trainable(unit);
    bool is_local = strcmp(settings_text(&plan->settings, "accumulation_scope"), "none") == 0;
    uint64_t n_elems;

    if (buffer == NULL) {
        return 0;
    }
    n_elems = buffer->shard_elems[HSDP_SHARD_STEP];
    if (is_local) {
        n_elems += buffer->n_elems;
    } else if (klass->reduced != klass->cuts[HSDP_SHARD_GRAD]) {
        n_elems += buffer->shard_elems[HSDP_SHARD_GRAD];
    }
    return n_elems + (unit->is_added_to ? buffer->n_elems : 0);
}

static void unit_add_up(const struct hsdp_plan *plan, uint32_t u, struct hsdp_plan_info *info)
{
    const struct plan_unit *unit = &plan->units[u];
    const struct plan_class *klass = &plan->classes[unit->class_index];
    const struct plan_buffer *trainable = unit_trainable(unit);
    uint64_t param_bytes = plan_dtype_bytes(&klass->settings, "param_dtype");
    uint64_t master_bytes = plan_dtype_bytes(&klass->settings, "master_dtype");
    bool has_masters = strcmp(settings_text(&klass->settings, "param_dtype"),
                              settings_text(&klass->settings, "master_dtype")) != 0;
    uint64_t n_grads = unit->n_alias_elems + (trainable == NULL ? 0 : trainable->n_elems);

    for (uint32_t b = 0; b < unit->n_buffers; b++) {
        const struct plan_buffer *buffer = &unit->buffers[b];

        info->param_bytes += buffer->shard_elems[HSDP_SHARD_PARAM] * param_bytes;
        info->padding_bytes += shard_padding(plan, u, b) * param_bytes;
        info->master_bytes += has_masters ? buffer->shard_elems[HSDP_SHARD_STEP] * master_bytes : 0;
        if (buffer->shard_elems[HSDP_SHARD_PARAM] != buffer->n_elems) {
            info->unsharded_bytes += buffer->n_elems * param_bytes;
        }
    }
    info->grad_bytes += rest_elems(plan, unit) * sizeof(float);
    info->grad_slot_bytes += n_grads * plan_dtype_bytes(&klass->settings, "gradient_dtype");
    info->n_state_elems += trainable == NULL ? 0 : trainable->shard_elems[HSDP_SHARD_STEP];
}

static void plan_add_up(struct hsdp_plan *plan)
{
    struct hsdp_plan_info info = HSDP_PLAN_INFO_INIT;
    char note[NOTE_BYTES];

    for (uint32_t u = 0; u < plan->n_units; u++) {
        unit_add_up(plan, u, &info);
    }
    info.peak_bytes = info.param_bytes + info.master_bytes + info.grad_bytes +
                      info.unsharded_bytes + info.grad_slot_bytes +
                      2 * info.n_state_elems * sizeof(float);
    info.n_classes = plan->n_classes;
    info.n_units = plan->n_units;
    info.n_params = plan->n_params;
    while (plan_note(plan, info.n_notes, note)) {
        info.n_notes++;
    }
    plan->totals = info;
}

int32_t plan_lay_out(const struct call *call, struct hsdp_plan *plan)
{
    uint64_t n_elems = 0;
    int32_t status = HSDP_OK;

    for (uint32_t u = 0; u < plan->n_units && status == HSDP_OK; u++) {
        struct plan_unit *unit = &plan->units[u];

        unit->n_buffers = 0; /* of a finish that failed */
        status = buffer_lay_out(call, plan, u, false);
        if (status == HSDP_OK) {
            status = buffer_lay_out(call, plan, u, true);
        }
        for (uint32_t b = 0; b < unit->n_buffers && status == HSDP_OK; b++) {
            n_elems += unit->buffers[b].n_elems;
            if (n_elems > MOST_ELEMS) {
                status = size_refuse(call, unit);
            }
        }
    }
    if (status == HSDP_OK) {
        names_place(plan);
        slots_number(plan);
        plan_add_up(plan);
    }
    return status;
}
