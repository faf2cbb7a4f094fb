/* SPDX-License-Identifier: Apache-2.0 */
/* Ties across stages: summing gradients, copying values, and what the norm leaves out. */
#include "shard/tie.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "comm/probe.h"
#include "device/space.h"
#include "shard/model.h"

/* ------------------------------------------------------------------------------- creation */

static int32_t memory_refuse(struct hsdp_error *reterr)
{
    return error_set(reterr, HSDP_ERR_NO_MEMORY, "model: no memory for parameters tied over ranks");
}

/*
 * The slices of a parameter begin elsewhere on each stage: another unit, another offset. Cut at all
 * of those, each range of elements has one owner on every stage: the rank that differs from this
 * one in the tie's dimensions, and in those of the step's slices.
 */
static uint64_t range_end(const struct tie_layout *layouts, uint32_t n_holders, uint64_t at,
                          uint64_t end)
{
    for (uint32_t h = 0; h < n_holders; h++) {
        uint64_t slice = (layouts[h].offset_elems + at) / layouts[h].shard_elems;
        uint64_t slice_end = (slice + 1) * layouts[h].shard_elems - layouts[h].offset_elems;

        end = slice_end < end ? slice_end : end;
    }
    return end;
}

/* Fills the owners of the range that begins at an element of the parameter. */
static void owners_fill(const struct hsdp_model *model, uint32_t tie,
                        const struct tie_layout *layouts, uint64_t at)
{
    const struct hsdp_plan *plan = model->plan;
    const struct plan_tie *row = &plan->ties[tie];
    const struct plan_unit *unit = &plan->units[plan->params[row->param].unit];
    const struct placement *place = &plan->classes[unit->class_index].place;
    const struct model_ties *ties = &model->ties;

    for (uint32_t h = 0; h < row->n_holders; h++) {
        uint32_t rank = selector_rank(plan->mesh, &row->selector, plan->mesh->rank, h);
        uint64_t slice = (layouts[h].offset_elems + at) / layouts[h].shard_elems;

        ties->run_ranks[ties->n_pointed + h] =
            placement_owner(place, plan->mesh, HSDP_SHARD_STEP, rank, (uint32_t)slice);
        ties->run_places[ties->n_pointed + h] = layouts[h].place_elems + at;
    }
    assert(ties->run_ranks[ties->n_pointed + row->own] == plan->mesh->rank);
}

/* Cuts one segment into ranges: counts them, and fills them where there is room. */
static void segment_cut(struct hsdp_model *model, uint32_t tie, const struct tie_layout *layouts,
                        const struct hsdp_segment *segment)
{
    const struct plan_tie *row = &model->plan->ties[tie];
    struct model_ties *ties = &model->ties;
    uint64_t begin = segment->param_offset_elems;
    uint64_t end = begin + segment->n_elems;

    for (uint64_t at = begin; at < end;) {
        uint64_t next = range_end(layouts, row->n_holders, at, end);

        if (ties->ranges != NULL) {
            struct store_tied_run *run = &ties->runs[ties->n_runs];

            ties->ranges[ties->n_runs] = (struct tied_range){
                .tie = tie,
                .unit = model->plan->params[row->param].unit,
                .buffer = segment->buffer,
                .first_elem = segment->shard_offset_elems + (at - begin),
                .n_elems = next - at,
            };
            owners_fill(model, tie, layouts, at);
            run->n_elems = next - at;
            run->ranks = ties->run_ranks + ties->n_pointed;
            run->places = ties->run_places + ties->n_pointed;
            run->dim_sizes = row->dim_sizes;
            run->n_dims = row->n_dims;
            run->n_holders = row->n_holders;
            run->own = row->own;
        }
        ties->n_runs++;
        ties->n_pointed += row->n_holders;
        at = next;
    }
}

static int32_t ties_cut(struct hsdp_model *model, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    const struct tie_layout *layouts = model->ties.layouts;

    model->ties.n_runs = model->ties.n_pointed = 0;
    for (uint32_t t = 0; t < plan->n_ties; t++) {
        uint32_t param = plan->ties[t].param;
        struct hsdp_segment *segments;
        uint64_t n_segments;
        int32_t status = model_step_segments(model, plan->params[param].unit, plan->mesh->rank,
                                             &segments, &n_segments, reterr);

        if (status != HSDP_OK) {
            return status;
        }
        for (uint64_t i = 0; i < n_segments; i++) {
            if (segments[i].param == param) {
                segment_cut(model, t, layouts, &segments[i]);
            }
        }
        free(segments);
        layouts += plan->ties[t].n_holders;
    }
    return HSDP_OK;
}

/* Everyone whose elements this rank may ever read, or who may read its own: also without ranges, so
 * that all holders' calls keep in step. */
static int32_t ranks_collect(struct hsdp_model *model, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = model->plan->mesh;
    struct model_ties *ties = &model->ties;

    ties->ranks = calloc(mesh->world_ranks, sizeof(*ties->ranks));
    if (ties->ranks == NULL) {
        return memory_refuse(reterr);
    }
    for (uint32_t rank = 0; rank < mesh->world_ranks; rank++) {
        if (rank != mesh->rank && plan_ties_reach(model->plan, rank)) {
            ties->ranks[ties->n_ranks++] = rank;
        }
    }
    selector_write(mesh, &model->plan->ties[0].selector, &ties->group);
    return HSDP_OK;
}

static int32_t ranges_create(struct hsdp_model *model, struct hsdp_error *reterr)
{
    struct model_ties *ties = &model->ties;
    int32_t status = ties_cut(model, reterr); /* counts */

    if (status != HSDP_OK) {
        return status;
    }
    ties->ranges = calloc(ties->n_runs + 1, sizeof(*ties->ranges));
    ties->runs = calloc(ties->n_runs + 1, sizeof(*ties->runs));
    ties->run_ranks = calloc(ties->n_pointed + 1, sizeof(*ties->run_ranks));
    ties->run_places = calloc(ties->n_pointed + 1, sizeof(*ties->run_places));
    if (ties->ranges == NULL || ties->runs == NULL || ties->run_ranks == NULL ||
        ties->run_places == NULL) {
        return memory_refuse(reterr);
    }
    return ties_cut(model, reterr);
}

int32_t ties_create(struct hsdp_model *model, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    uint64_t n_holders = 0;
    int32_t status;

    for (uint32_t t = 0; t < plan->n_ties; t++) {
        n_holders += plan->ties[t].n_holders;
    }
    model->ties.layouts = calloc(n_holders + 1, sizeof(*model->ties.layouts));
    if (model->ties.layouts == NULL) {
        return memory_refuse(reterr);
    }
    status = ties_agree(model->job, plan, model->ties.layouts, reterr);
    if (status == HSDP_OK && plan->n_ties > 0) {
        status = ranges_create(model, reterr);
    }
    if (status == HSDP_OK && plan->n_ties > 0) {
        status = ranks_collect(model, reterr);
    }
    return status;
}

void ties_free(struct hsdp_model *model)
{
    struct model_ties *ties = &model->ties;

    free(ties->layouts);
    free(ties->ranges);
    free(ties->runs);
    free(ties->run_ranks);
    free(ties->run_places);
    free(ties->ranks);
    text_fini(&ties->group);
}

/* ------------------------------------------------------------------------------- exchanges */

static int32_t ties_run(struct hsdp_model *model, const char *operation, bool is_sum,
                        struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    struct store_ties ties = {.operation = operation, .is_sum = is_sum};

    ties.group = model->ties.group.chars;
    ties.unit = plan->units[plan->params[plan->ties[0].param].unit].name;
    ties.runs = model->ties.runs;
    ties.n_runs = model->ties.n_runs;
    ties.ranks = model->ties.ranks;
    ties.n_ranks = model->ties.n_ranks;
    return model->ops->ties_run(model->store, &ties, reterr);
}

static bool range_is_frozen(const struct hsdp_model *model, const struct tied_range *range)
{
    return model->plan->units[range->unit].buffers[range->buffer].is_frozen;
}

bool ties_has_unit(const struct hsdp_model *model, uint32_t unit)
{
    for (uint64_t i = 0; i < model->ties.n_runs; i++) {
        const struct tied_range *range = &model->ties.ranges[i];

        if (range->unit == unit && !range_is_frozen(model, range)) {
            return true;
        }
    }
    return false;
}

int32_t ties_sum(struct hsdp_model *model, struct hsdp_error *reterr)
{
    struct space *space = model->space;
    int32_t status = HSDP_OK;

    if (model->plan->n_ties == 0) {
        return HSDP_OK;
    }
    for (uint32_t unit = 0; status == HSDP_OK && unit < model->plan->n_units; unit++) {
        if (ties_has_unit(model, unit) && !model->ops->has_step_grads(model->store, unit)) {
            uint64_t n_elems = model->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];

            status = space->ops->zero(space, model->ops->step_grads(model->store, unit),
                                      n_elems * sizeof(float), reterr);
        }
    }
    if (status != HSDP_OK) {
        return status;
    }
    for (uint64_t i = 0; i < model->ties.n_runs; i++) {
        const struct tied_range *range = &model->ties.ranges[i];
        float *grads = model->ops->step_grads(model->store, range->unit);

        model->ties.runs[i].values = NULL;
        if (!range_is_frozen(model, range)) {
            model->ties.runs[i].values = grads + range->first_elem;
            probe_write(job_probe(model->job), PROBE_GRADS, range->unit, model->ties.runs[i].values,
                        range->n_elems * sizeof(float));
        }
    }
    return ties_run(model, "step", true, reterr);
}

struct tied_range ties_next_copy(const struct hsdp_model *model, uint32_t unit, uint64_t from_elem)
{
    struct tied_range next = {.n_elems = 0};

    for (uint64_t i = 0; i < model->ties.n_runs; i++) {
        const struct tied_range *range = &model->ties.ranges[i];

        if (range->unit == unit && model->plan->ties[range->tie].own != 0 &&
            !range_is_frozen(model, range) && range->first_elem >= from_elem &&
            (next.n_elems == 0 || range->first_elem < next.first_elem)) {
            next = *range;
        }
    }
    return next;
}

/* ------------------------------------------------------------------------------------ sync */

static void range_probe(const struct hsdp_model *model, const struct tied_range *range,
                        const struct flat_shard *shard, bool is_write)
{
    uint32_t elem_bytes = (uint32_t)dtype_bytes(shard->dtype);
    const void *elems = shard->base + range->first_elem * elem_bytes;

    if (is_write) {
        probe_write(job_probe(model->job), PROBE_FLAT, range->unit, elems,
                    range->n_elems * elem_bytes);
    } else {
        probe_read(job_probe(model->job), PROBE_FLAT, range->unit, elems,
                   range->n_elems * elem_bytes);
    }
}

/* One run from a flat shard to the room, or back: in fp32 there, which holds 16-bit values as they
 * are. */
static int32_t range_move(struct hsdp_model *model, uint64_t run, const struct flat_shard *shard,
                          float *room, bool is_back, struct hsdp_error *reterr)
{
    const struct tied_range *range = &model->ties.ranges[run];
    struct space_cast cast = {.n_elems = range->n_elems};
    uint8_t *elems = shard->base + range->first_elem * dtype_bytes(shard->dtype);

    range_probe(model, range, shard, is_back);
    if (is_back) {
        cast.dst = elems;
        cast.dst_dtype = shard->dtype;
        cast.src = room;
        cast.src_dtype = DTYPE_FP32;
    } else {
        cast.dst = room;
        cast.dst_dtype = DTYPE_FP32;
        cast.src = elems;
        cast.src_dtype = shard->dtype;
        model->ties.runs[run].values = room;
    }
    return model->space->ops->convert(model->space, &cast, reterr);
}

/* All runs of one kind: those of the first holder are only read. */
static int32_t flat_move(struct hsdp_model *model, int32_t flat, float *room, bool is_back,
                         struct hsdp_error *reterr)
{
    struct flat_shard shard;
    int32_t status = HSDP_OK;

    for (uint64_t i = 0; i < model->ties.n_runs && status == HSDP_OK; i++) {
        const struct tied_range *range = &model->ties.ranges[i];

        model->ties.runs[i].values = NULL;
        if (flat != HSDP_FLAT_MASTER && range_is_frozen(model, range)) {
            continue;
        }
        status = model_flat_shard(model, range->unit, range->buffer, flat, &shard, reterr);
        if (status == HSDP_OK && (!is_back || model->ties.runs[i].own != 0)) {
            status = range_move(model, i, &shard, room, is_back, reterr);
        }
        room += range->n_elems;
    }
    return status;
}

static int32_t flat_sync(struct hsdp_model *model, int32_t flat, float *room,
                         struct hsdp_error *reterr)
{
    int32_t status = flat_move(model, flat, room, false, reterr);

    if (status == HSDP_OK) {
        status = ties_run(model, "model.sync", false, reterr);
    }
    if (status == HSDP_OK) { /* what the store has put there comes first */
        status = model->ops->settle(model->store, reterr);
    }
    return status == HSDP_OK ? flat_move(model, flat, room, true, reterr) : status;
}

int32_t ties_reserve(struct hsdp_model *model, struct ties_room *ret_room,
                     struct hsdp_error *reterr)
{
    uint64_t n_elems = 0;

    for (uint64_t i = 0; i < model->ties.n_runs; i++) {
        n_elems += model->ties.ranges[i].n_elems;
    }
    ret_room->n_bytes = n_elems * sizeof(float);
    return model->space->ops->alloc(model->space, ret_room->n_bytes, "parameters tied over ranks",
                                    &ret_room->values, reterr);
}

void ties_release(struct hsdp_model *model, struct ties_room *room)
{
    model->space->ops->free(model->space, room->values, room->n_bytes);
}

int32_t ties_sync(struct hsdp_model *model, const struct ties_room *room, struct hsdp_error *reterr)
{
    int32_t status;

    if (model->plan->n_ties == 0) {
        return HSDP_OK;
    }
    status = flat_sync(model, HSDP_FLAT_MASTER, room->values, reterr);
    for (uint32_t s = 0; s < model->n_states && status == HSDP_OK; s++) {
        status = flat_sync(model, HSDP_FLAT_STATE + (int32_t)s, room->values, reterr);
    }
    return status;
}
