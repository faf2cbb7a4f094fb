/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: where things lie in a region, and who the peers of each class are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/shm_store.h"

#define LINE_BYTES 64u

static uint64_t bytes_align(uint64_t n_bytes, uint64_t align)
{
    return (n_bytes + align - 1) / align * align;
}

void shm_count_bytes(const struct shm_ranks *ranks, uint64_t n_bytes)
{
    if (ranks->traffic != NULL) {
        atomic_fetch_add_explicit(ranks->traffic, n_bytes, memory_order_relaxed);
    }
}

void shm_count(const struct shm_ranks *ranks, uint64_t bytes_per_peer)
{
    if (ranks->traffic != NULL && ranks->operations != NULL) {
        atomic_fetch_add_explicit(ranks->operations, 1, memory_order_relaxed);
        shm_count_bytes(ranks, (ranks->n_ranks - 1) * bytes_per_peer);
    }
}

/* The ranks that differ from `own` in `dims`, in mesh order. */
static void ranks_list(struct shm_ranks *ret, const struct hsdp_mesh *mesh, uint32_t own,
                       uint32_t dims)
{
    ret->n_ranks = mesh_span(mesh, dims);
    for (uint32_t i = 0; i < ret->n_ranks; i++) {
        ret->ranks[i] = mesh_peer(mesh, dims, own, i);
    }
}

/* The same with the sizes, the name and the counters of a group. */
static void ranks_init(struct shm_ranks *ret, struct store *store, uint32_t dims)
{
    const struct hsdp_mesh *mesh = store->plan->mesh;
    char counter[96];

    ranks_list(ret, mesh, store->rank, dims);
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if ((dims >> d & 1u) != 0) {
            ret->dim_sizes[ret->n_dims++] = mesh->sizes[d];
        }
    }
    mesh_dims_text(mesh, dims, ret->name, sizeof(ret->name));
    if (ret->n_ranks > 1) {
        snprintf(counter, sizeof(counter), "traffic.%s", ret->name);
        ret->traffic = job_counter_register(store->job, counter);
        snprintf(counter, sizeof(counter), "operations.%s", ret->name);
        ret->operations = job_counter_register(store->job, counter);
    }
}

static void class_init(struct shm_class *ret, struct store *store, const struct placement *place)
{
    const uint32_t *cuts = place->cuts;

    ranks_list(&ret->reduced, store->plan->mesh, store->rank, place->reduced);
    ranks_list(&ret->replicas, store->plan->mesh, store->rank,
               place->reduced & ~cuts[HSDP_SHARD_STEP]);
    ranks_init(&ret->gather, store, cuts[HSDP_SHARD_PARAM]);
    ranks_init(&ret->inner, store, cuts[HSDP_SHARD_GRAD]);
    ranks_init(&ret->outer, store, place->reduced & ~cuts[HSDP_SHARD_GRAD]);
    ret->readers = ret->inner.n_ranks == 1 ? &ret->outer : &ret->inner;
    ranks_init(&ret->steps, store, cuts[HSDP_SHARD_STEP]);
    ranks_init(&ret->copies, store, cuts[HSDP_SHARD_STEP] & ~cuts[HSDP_SHARD_PARAM]);
    mesh_dims_text(store->plan->mesh, place->reduced, ret->reduce_name, sizeof(ret->reduce_name));
}

/* Gives a unit its places in the region, from *offset on. */
static void unit_layout(struct store *store, uint32_t unit, uint64_t *offset)
{
    const struct plan_unit *plan_unit = &store->plan->units[unit];
    uint64_t param_bytes = dtype_bytes(shm_plan_class(store, unit)->param_dtype);
    struct shm_unit *u = &store->units[unit];

    for (uint32_t b = 0; b < plan_unit->n_buffers; b++) {
        u->step_offset[b] = plan_slice_offset(store->plan, unit, b, HSDP_SHARD_STEP, store->rank) -
                            plan_slice_offset(store->plan, unit, b, HSDP_SHARD_PARAM, store->rank);
        u->params_offset[b] = *offset;
        *offset += plan_unit->buffers[b].shard_elems[HSDP_SHARD_PARAM] * param_bytes;
        *offset = bytes_align(*offset, PLAN_GRANULE_BYTES);
    }
    if (!plan_is_trainable(store->plan, unit)) {
        return;
    }
    u->sums = plan_accumulators(store->plan, unit);
    u->part = plan_step_part(store->plan, unit);
    for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
        u->slice_offset[cut] = plan_slice_offset(store->plan, unit, 0, cut, store->rank);
    }
    u->local_offset = *offset;
    *offset = bytes_align(*offset + u->sums.local_elems * sizeof(float), LINE_BYTES);
    u->inner_offset = *offset;
    *offset = bytes_align(*offset + u->sums.inner_elems * sizeof(float), LINE_BYTES);
    u->step_grads_offset = *offset;
    *offset += shm_step_grads_are_shared(store, unit) ? u->sums.step_elems * sizeof(float) : 0;
    *offset = bytes_align(*offset, PLAN_GRANULE_BYTES);
    u->late_offset = *offset;
    *offset += plan_unit->buffers[0].n_elems * sizeof(float);
    *offset = bytes_align(*offset, PLAN_GRANULE_BYTES);
}

int32_t shm_layout(struct store *store, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = store->plan;
    long page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t offset;

    if (page_bytes <= 0 || PLAN_GRANULE_BYTES % (uint64_t)page_bytes != 0) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "shm: shards are laid out for pages of %u bytes, this system has %ld",
                         PLAN_GRANULE_BYTES, page_bytes);
    }
    store->classes = calloc(plan->n_classes == 0 ? 1 : plan->n_classes, sizeof(*store->classes));
    store->units = calloc(plan->n_units == 0 ? 1 : plan->n_units, sizeof(*store->units));
    store->norms = calloc(plan->n_units == 0 ? 1 : plan->n_units, sizeof(*store->norms));
    if (store->classes == NULL || store->units == NULL || store->norms == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "shm: no memory for %" PRIu32 " units",
                         plan->n_units);
    }
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        class_init(&store->classes[c], store, &plan->classes[c].place);
    }
    store->counters_offset = shm_ties_offset() + plan->ties_elems * sizeof(float);
    offset = store->counters_offset + plan->n_units * sizeof(struct shm_counters);
    if (shm_journals_layout(store, &offset, reterr) != HSDP_OK) {
        return HSDP_ERR_NO_MEMORY;
    }
    store->slots_offset = bytes_align(offset, PLAN_GRANULE_BYTES);
    store->stage_offset =
        bytes_align(store->slots_offset + plan->grad_slots_bytes, PLAN_GRANULE_BYTES);
    offset = store->stage_offset + SHM_STAGE_BYTES;
    for (uint32_t u = 0; u < plan->n_units; u++) {
        unit_layout(store, u, &offset);
    }
    store->region_bytes = offset;
    return HSDP_OK;
}
