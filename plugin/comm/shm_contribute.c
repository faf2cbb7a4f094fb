/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: this rank's contribution to a unit's gradient, and where those of peers lie. */
#include <string.h>

#include "comm/shm_store.h"
#include "device/fpmode.h"
#include "device/kernels.h"

float *shm_late(const struct store *store, uint32_t rank, uint32_t unit)
{
    return (float *)(store->regions[rank] + store->units[unit].late_offset);
}

/* The whole contribution of a rank that has arrived, and its dtype; NULL = absent. */
const void *shm_source(const struct store *store, uint32_t rank, uint32_t unit,
                       enum dtype *ret_dtype)
{
    const struct shm_unit *u = &store->units[unit];
    const uint64_t *place = &shm_counters(store, rank, unit)->source;
    uint64_t source;

    probe_read(store->probe, PROBE_SOURCE, unit, place, sizeof(*place));
    source = *place;
    *ret_dtype = DTYPE_FP32;
    if (source == SHM_FROM_NOWHERE) {
        return NULL;
    }
    if (source == SHM_FROM_LATE) {
        return shm_late(store, rank, unit);
    }
    if (u->sums.local_elems != 0) {
        return store->regions[rank] + u->local_offset;
    }
    *ret_dtype = shm_plan_class(store, unit)->gradient_dtype;
    return shm_slot(store, rank, unit);
}

float *shm_inner_sum(const struct store *store, uint32_t rank, uint32_t unit)
{
    return (float *)(store->regions[rank] + store->units[unit].inner_offset);
}

bool shm_step_grads_are_shared(const struct store *store, uint32_t unit)
{
    return plan_is_trainable(store->plan, unit) && shm_class_of(store, unit)->replicas.n_ranks > 1;
}

float *shm_step_grads(const struct store *store, uint32_t rank, uint32_t unit)
{
    if (!shm_step_grads_are_shared(store, unit)) {
        return store->units[unit].step_grads; /* no other rank has them */
    }
    return (float *)(store->regions[rank] + store->units[unit].step_grads_offset);
}

/* The first contribution of a window is stored, not added. */
static void local_add(struct store *store, uint32_t unit, const void *values, enum dtype dtype)
{
    struct shm_unit *u = &store->units[unit];
    float *local = (float *)(store->regions[store->rank] + u->local_offset);
    uint64_t n_elems = u->sums.local_elems;
    const struct kernels *kernels = job_kernels(store->job);

    probe_read(store->probe, PROBE_CONTRIBUTION, unit, values, n_elems * dtype_bytes(dtype));
    probe_write(store->probe, PROBE_LOCAL, unit, local, n_elems * sizeof(float));
    if (u->has_local) {
        kernels->add(local, values, dtype, n_elems);
    } else {
        kernels->to_fp32(local, values, dtype, n_elems);
    }
    u->has_local = true;
}

/* What came late, and what lies in the slot, added up in fp32 where peers read it. */
static void late_complete(struct store *store, uint32_t unit, bool is_slot_empty)
{
    uint64_t n_elems = store->plan->units[unit].buffers[0].n_elems;
    float *late = shm_late(store, store->rank, unit);
    const float *taken = store->units[unit].taken;
    enum dtype dtype = shm_plan_class(store, unit)->gradient_dtype;

    probe_read(store->probe, PROBE_LATE_VALUES, unit, taken, n_elems * sizeof(float));
    probe_write(store->probe, PROBE_LATE, unit, late, n_elems * sizeof(float));
    memcpy(late, taken, n_elems * sizeof(float));
    if (!is_slot_empty) {
        const void *slot = shm_grads(store, unit);

        probe_read(store->probe, PROBE_SLOT, unit, slot, n_elems * dtype_bytes(dtype));
        job_kernels(store->job)->add(late, slot, dtype, n_elems);
    }
}

/* Brings slot and late contributions to where peers read, and notes where that is. */
void shm_contribute(struct store *store, uint32_t unit, struct shm_reduction *reduction)
{
    struct shm_unit *u = &store->units[unit];
    struct fp_mode mode = fp_mode_enter();

    reduction->source = reduction->is_absent ? SHM_FROM_NOWHERE : SHM_FROM_PLAN;
    if (u->sums.local_elems != 0) {
        if (!reduction->is_absent) {
            local_add(store, unit, shm_grads(store, unit),
                      shm_plan_class(store, unit)->gradient_dtype);
        }
        if (u->has_taken) {
            local_add(store, unit, u->taken, DTYPE_FP32);
        }
        reduction->source = u->has_local ? SHM_FROM_PLAN : SHM_FROM_NOWHERE;
    } else if (u->has_taken) {
        late_complete(store, unit, reduction->is_absent);
        reduction->source = SHM_FROM_LATE;
    }
    fp_mode_leave(mode);
    u->has_taken = false;
}
