/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: who owns which elements. Everything else that needs to know asks here. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "plan/build.h"

uint64_t plan_slice_offset(const struct hsdp_plan *plan, uint32_t unit, uint32_t buffer, int cut,
                           uint32_t rank)
{
    const struct plan_unit *row = &plan->units[unit];
    const struct placement *place = &plan->classes[row->class_index].place;

    return placement_slice(place, plan->mesh, cut, rank) * row->buffers[buffer].shard_elems[cut];
}

uint64_t plan_walk_segments(const struct segment_walk *walk,
                            void (*visit)(void *user, const struct hsdp_segment *segment),
                            void *user)
{
    const struct hsdp_plan *plan = walk->plan;
    const struct plan_unit *unit = &plan->units[walk->unit];
    uint64_t first = plan_slice_offset(plan, walk->unit, walk->buffer, walk->cut, walk->rank);
    uint64_t end = first + unit->buffers[walk->buffer].shard_elems[walk->cut];
    uint64_t n_segments = 0;

    for (uint32_t i = 0; i < unit->n_params; i++) {
        const struct plan_param *param = &plan->params[unit->params[i]];
        uint64_t param_end = param->offset_elems + param->n_elems;
        uint64_t from = param->offset_elems > first ? param->offset_elems : first;
        uint64_t to = param_end < end ? param_end : end;
        struct hsdp_segment segment;

        if (param->buffer != walk->buffer || param->storage != unit->params[i] || from >= to) {
            continue;
        }
        segment = (struct hsdp_segment){
            .param = unit->params[i],
            .buffer = walk->buffer,
            .param_offset_elems = from - param->offset_elems,
            .shard_offset_elems = from - first,
            .n_elems = to - from,
        };
        visit(user, &segment);
        n_segments++;
    }
    return n_segments;
}

/* Where the segments go: an array with a caller's stride, whose struct may be older or newer. */
struct segment_sink {
    char *next;
    uint64_t segment_bytes;
};

static void segment_ignore(void *user, const struct hsdp_segment *segment)
{
    (void)user;
    (void)segment;
}

static void segment_write(void *user, const struct hsdp_segment *segment)
{
    struct segment_sink *sink = user;
    uint64_t n_known =
        sink->segment_bytes < sizeof(*segment) ? sink->segment_bytes : sizeof(*segment);

    memcpy(sink->next, segment, n_known);
    memset(sink->next + n_known, 0, sink->segment_bytes - n_known);
    sink->next += sink->segment_bytes;
}

static int32_t shard_check(const struct hsdp_plan *plan, uint32_t unit, int32_t shard,
                           uint32_t rank, struct hsdp_error *reterr)
{
    int32_t status;

    status = plan_check_state(plan, true, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (unit >= plan->n_units) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: unit %" PRIu32 " is outside of the %" PRIu32 " units", unit,
                         plan->n_units);
    }
    if (shard < HSDP_SHARD_PARAM || shard > HSDP_SHARD_STEP) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: shard %" PRId32 " is none of HSDP_SHARD_PARAM (%d), _GRAD (%d), "
                         "_STEP (%d)",
                         shard, HSDP_SHARD_PARAM, HSDP_SHARD_GRAD, HSDP_SHARD_STEP);
    }
    if (rank >= plan->mesh->world_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: rank %" PRIu32 " is outside of the world of %" PRIu32 " ranks",
                         rank, plan->mesh->world_ranks);
    }
    return HSDP_OK;
}

int32_t plan_segments(const struct hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                      struct hsdp_segment *ret_segments, uint64_t segment_bytes,
                      uint64_t max_segments, uint64_t *ret_n_segments, struct hsdp_error *reterr)
{
    struct segment_sink sink = {(char *)ret_segments, segment_bytes};
    struct segment_walk walk = {plan, unit, 0, shard, rank};
    uint64_t n_segments = 0;
    int32_t status;

    if (plan == NULL || ret_n_segments == NULL || (ret_segments == NULL && max_segments > 0)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: segments needs a plan, a ret_n_segments, and a ret_segments "
                         "unless max_segments is 0");
    }
    status = shard_check(plan, unit, shard, rank, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    for (walk.buffer = 0; walk.buffer < plan->units[unit].n_buffers; walk.buffer++) {
        n_segments += plan_walk_segments(&walk, segment_ignore, NULL);
    }
    *ret_n_segments = n_segments;
    if (n_segments > max_segments) {
        return error_set(reterr, HSDP_ERR_BUFFER_TOO_SMALL,
                         "plan: unit %s has %" PRIu64 " segments there, max_segments is %" PRIu64,
                         plan->units[unit].name, n_segments, max_segments);
    }
    for (walk.buffer = 0; walk.buffer < plan->units[unit].n_buffers; walk.buffer++) {
        plan_walk_segments(&walk, segment_write, &sink);
    }
    return HSDP_OK;
}

int32_t plan_writer(const struct hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                    uint32_t *ret_writer_rank, struct hsdp_error *reterr)
{
    int32_t status;

    if (plan == NULL || ret_writer_rank == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: writer needs a plan and a ret_writer_rank");
    }
    status = shard_check(plan, unit, shard, rank, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    *ret_writer_rank = placement_writer(&plan->classes[plan->units[unit].class_index].place,
                                        plan->mesh, shard, rank);
    return HSDP_OK;
}
