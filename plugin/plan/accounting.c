/* SPDX-License-Identifier: Apache-2.0 */
/* Accounting: what a plan costs in memory and in traffic. */
#include <assert.h>

#include "hsdp/unit.h"
#include "plan/build.h"

/* The layout has bounded the sum of all buffers to PLAN_MAX_BYTES; no sum here can wrap. */

bool plan_steps_in_place(const struct hsdp_plan *plan, uint32_t unit)
{
    const struct plan_class *klass = &plan->classes[plan->units[unit].class_index];

    /* The step slice lies inside of this rank's own parameter slice. */
    return klass->param_dtype == klass->master_dtype;
}

struct plan_accumulators plan_accumulators(const struct hsdp_plan *plan, uint32_t unit)
{
    const struct plan_unit *row = &plan->units[unit];
    const struct placement *place = &plan->classes[row->class_index].place;
    const struct plan_buffer *buffer = plan_trainable(row);
    struct plan_accumulators sizes = {0, 0, 0, 0};
    uint32_t n_reduced = mesh_span(plan->mesh, place->reduced);
    uint32_t n_grad = placement_n_slices(place, plan->mesh, HSDP_SHARD_GRAD);
    bool has_inner = n_reduced > n_grad && (n_grad > 1 || plan->scope == HSDP_SCOPE_INNER);
    bool is_local;

    if (buffer == NULL) {
        return sizes;
    }
    is_local = plan->scope == HSDP_SCOPE_NONE;
    sizes.step_elems = buffer->shard_elems[HSDP_SHARD_STEP];
    if (is_local) {
        sizes.local_elems = buffer->n_elems;
    }
    if (has_inner) {
        sizes.inner_elems = buffer->shard_elems[HSDP_SHARD_GRAD];
    }
    if (row->is_grad_storage) {
        sizes.late_elems = (is_local ? 2 : 3) * buffer->n_elems;
    }
    return sizes;
}

struct plan_part plan_step_part(const struct hsdp_plan *plan, uint32_t unit)
{
    const struct placement *place = &plan->classes[plan->units[unit].class_index].place;
    uint32_t dims = place->reduced & ~place->cuts[HSDP_SHARD_STEP];
    uint64_t n_elems = plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];
    uint64_t n_lines = n_elems / PLAN_ALIGN_ELEMS; /* step shards are whole ones */
    uint64_t n_parts = mesh_span(plan->mesh, dims);
    uint64_t part_elems = (n_lines + n_parts - 1) / n_parts * PLAN_ALIGN_ELEMS;
    uint64_t first_elem = mesh_index(plan->mesh, dims, plan->mesh->rank) * part_elems;
    struct plan_part part = {.first_elem = first_elem < n_elems ? first_elem : n_elems};

    part.n_elems = n_elems - part.first_elem < part_elems ? n_elems - part.first_elem : part_elems;
    return part;
}

uint64_t plan_accumulator_elems(const struct plan_accumulators *sums)
{
    return sums->local_elems + sums->inner_elems + sums->step_elems + sums->late_elems;
}

/* ---------------------------------------------------------------------------------- memory */

static void segment_add_elems(void *user, const struct hsdp_segment *segment)
{
    *(uint64_t *)user += segment->n_elems;
}

/* Padding within this rank's parameter shard of a buffer, in elements. */
static uint64_t shard_padding(const struct hsdp_plan *plan, uint32_t unit, uint32_t buffer)
{
    const struct segment_walk walk = {plan, unit, buffer, HSDP_SHARD_PARAM, plan->mesh->rank};
    uint64_t n_elems = 0;

    plan_walk_segments(&walk, segment_add_elems, &n_elems);
    return plan->units[unit].buffers[buffer].shard_elems[HSDP_SHARD_PARAM] - n_elems;
}

static void unit_add_up(const struct hsdp_plan *plan, uint32_t unit, struct hsdp_plan_info *info)
{
    const struct plan_unit *row = &plan->units[unit];
    struct plan_accumulators sums = plan_accumulators(plan, unit);
    const struct plan_class *klass = &plan->classes[row->class_index];
    uint64_t param_elem_bytes = dtype_bytes(klass->param_dtype);

    for (uint32_t b = 0; b < row->n_buffers; b++) {
        const struct plan_buffer *buffer = &row->buffers[b];

        info->param_bytes += buffer->shard_elems[HSDP_SHARD_PARAM] * param_elem_bytes;
        info->padding_bytes += shard_padding(plan, unit, b) * param_elem_bytes;
        if (!plan_steps_in_place(plan, unit)) {
            info->master_bytes +=
                buffer->shard_elems[HSDP_SHARD_STEP] * dtype_bytes(klass->master_dtype);
        }
    }
    info->grad_bytes += plan_accumulator_elems(&sums) * sizeof(float);
    info->n_state_elems += sums.step_elems;
}

void plan_add_up(struct hsdp_plan *plan)
{
    struct hsdp_plan_info info = HSDP_PLAN_INFO_INIT;

    for (uint32_t u = 0; u < plan->n_units; u++) {
        unit_add_up(plan, u, &info);
    }
    /* Shared memory maps the shards back to back: nothing is copied. A transport that copies counts
     * its parameter slots here, and each unit that is_storage beside them. */
    info.unsharded_bytes = 0;
    info.grad_bytes += plan_ties_bytes(plan);
    info.grad_slot_bytes = plan->grad_slots_bytes;
    info.peak_bytes = info.param_bytes + info.master_bytes + info.grad_bytes +
                      info.unsharded_bytes + info.grad_slot_bytes +
                      2 * info.n_state_elems * sizeof(float);
    info.n_classes = plan->n_classes;
    info.n_units = plan->n_units;
    info.n_params = plan->n_params;
    info.n_notes = plan->n_notes;
    plan->totals = info;
}

/* --------------------------------------------------------------------------------- traffic */

/*
 * What one rank receives in one step of one microbatch, with unshard before the forward and again
 * before the backward pass. For a group of g ranks and n elements per buffer:
 *
 *   all-gather      (g - 1) shards of n / g elements in the parameters' dtype
 *   reduce-scatter  (g - 1) contributions to the own n / g elements
 *   all-reduce      the same, then finished sums of all other elements; here n / g are the elements
 *                   of this rank's part, which is whole lines (plan_step_part)
 *
 * Contributions travel in reduce_dtype; what has been summed once stays fp32, so later stages, and
 * the second half of an all-reduce, count 4 bytes. Groups of one rank move nothing. The step's own
 * collective (the norm) is a few hundred bytes and is left out.
 */
struct traffic_sum {
    const struct hsdp_plan *plan;
    uint32_t class_index;
    struct traffic_row *rows;
    uint32_t n_rows;
};

/* Adds one operation on each buffer of the class: n_elems(buffer) * bytes for every other rank. */
struct traffic_kind {
    const char *phase;
    const char *operation;
    uint32_t dims;
    int shard_cut;      /* the shard that each of the others sends */
    bool is_all_reduce; /* only this rank's part of it, and then the other parts' sums */
    bool with_frozen;
    uint64_t elem_bytes; /* per element received */
    uint32_t n_times;
};

/* What one operation brings of one buffer. */
static uint64_t kind_bytes(const struct hsdp_plan *plan, const struct traffic_kind *kind,
                           uint32_t unit, uint32_t buffer)
{
    uint64_t n_elems = plan->units[unit].buffers[buffer].shard_elems[kind->shard_cut];
    uint64_t n_others = mesh_span(plan->mesh, kind->dims) - 1;
    struct plan_part part;

    if (!kind->is_all_reduce) {
        return n_others * n_elems * kind->elem_bytes;
    }
    part = plan_step_part(plan, unit);
    return n_others * part.n_elems * kind->elem_bytes + (n_elems - part.n_elems) * sizeof(float);
}

static void kind_add(struct traffic_sum *sum, const struct traffic_kind *kind)
{
    const struct hsdp_plan *plan = sum->plan;
    struct traffic_row row = {kind->phase, kind->operation, kind->dims, 0, 0};

    if (mesh_span(plan->mesh, kind->dims) == 1) {
        return;
    }
    for (uint32_t u = 0; u < plan->n_units; u++) {
        const struct plan_unit *unit = &plan->units[u];

        for (uint32_t b = 0; b < unit->n_buffers && unit->class_index == sum->class_index; b++) {
            if (unit->buffers[b].is_frozen && !kind->with_frozen) {
                continue;
            }
            row.n_operations += kind->n_times;
            row.payload_bytes += kind->n_times * kind_bytes(plan, kind, u, b);
        }
    }
    if (row.n_operations > 0) {
        assert(sum->n_rows < TRAFFIC_MAX_ROWS);
        sum->rows[sum->n_rows++] = row;
    }
}

uint32_t plan_traffic(const struct hsdp_plan *plan, uint32_t class_index,
                      struct traffic_row ret_rows[TRAFFIC_MAX_ROWS])
{
    const struct plan_class *klass = &plan->classes[class_index];
    const uint32_t *cuts = klass->place.cuts;
    uint32_t later = cuts[HSDP_SHARD_STEP] & ~cuts[HSDP_SHARD_GRAD];
    uint32_t rest = klass->place.reduced & ~cuts[HSDP_SHARD_STEP];
    uint64_t param_bytes = dtype_bytes(klass->param_dtype);
    uint64_t wire_bytes = dtype_bytes(klass->reduce_dtype);
    uint64_t sum_bytes = sizeof(float);
    bool is_grad_first = mesh_span(plan->mesh, cuts[HSDP_SHARD_GRAD]) > 1;
    bool is_later_first = !is_grad_first && mesh_span(plan->mesh, later) > 1;
    uint64_t rest_bytes = is_grad_first || is_later_first ? sum_bytes : wire_bytes;
    const struct traffic_kind kinds[TRAFFIC_MAX_ROWS] = {
        {"unshard", "all_gather", cuts[HSDP_SHARD_PARAM], HSDP_SHARD_PARAM, false, true,
         param_bytes, 2},
        {"reduce", "reduce_scatter", cuts[HSDP_SHARD_GRAD], HSDP_SHARD_GRAD, false, false,
         wire_bytes, 1},
        {"reduce", "reduce_scatter", later, HSDP_SHARD_STEP, false, false,
         is_later_first ? wire_bytes : sum_bytes, 1},
        {"reduce", "all_reduce", rest, HSDP_SHARD_STEP, true, false, rest_bytes, 1},
        {"publish", "all_gather", cuts[HSDP_SHARD_STEP] & ~cuts[HSDP_SHARD_PARAM], HSDP_SHARD_STEP,
         false, false, param_bytes, 1},
    };
    struct traffic_sum sum = {plan, class_index, ret_rows, 0};

    for (uint32_t k = 0; k < TRAFFIC_MAX_ROWS; k++) {
        kind_add(&sum, &kinds[k]);
    }
    return sum.n_rows;
}
