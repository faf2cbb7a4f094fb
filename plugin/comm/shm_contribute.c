/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: this rank's contribution to a unit's gradient, and where those of peers lie. */
#include <string.h>

#include "comm/shm_store.h"
#include "device/cast.h"
#include "device/fpmode.h"
#include "device/reduce.h"

#define BLOCK_ELEMS 1024u

void *shm_grads(struct store *store, uint32_t unit)
{
    return store->regions[store->rank] + store->slots_offset +
           store->plan->units[unit].grad_slot_offset_bytes;
}

/* Where scope none is planned, contributions are the local sums; else what lies in the slots. */
const void *shm_source(const struct store *store, uint32_t rank, uint32_t unit)
{
    const struct shm_unit *u = &store->units[unit];

    if (u->sums.local_elems != 0) {
        return store->regions[rank] + u->local_offset;
    }
    return store->regions[rank] + store->slots_offset +
           store->plan->units[unit].grad_slot_offset_bytes;
}

float *shm_inner_sum(const struct store *store, uint32_t rank, uint32_t unit)
{
    const struct shm_unit *u = &store->units[unit];

    if (shm_inner_is_local(store, unit)) {
        return (float *)(store->regions[rank] + u->local_offset);
    }
    return (float *)(store->regions[rank] + u->inner_offset);
}

/* The first contribution of a window is stored, not added. */
static void local_add(struct store *store, uint32_t unit, const void *values, enum dtype dtype)
{
    struct shm_unit *u = &store->units[unit];
    float *local = (float *)(store->regions[store->rank] + u->local_offset);
    uint64_t n_elems = u->sums.local_elems;

    if (u->has_local) {
        reduce_add(local, values, dtype, n_elems);
    } else {
        cast_to_fp32(local, values, dtype, n_elems);
    }
    u->has_local = true;
}

/* Adds what came outside of the slot to what lies in it, in fp32, rounded to the slot once. */
static void slot_add(struct store *store, uint32_t unit, bool is_empty)
{
    enum dtype dtype = shm_plan_class(store, unit)->gradient_dtype;
    uint64_t n_elems = store->plan->units[unit].buffers[0].n_elems;
    uint8_t *slot = shm_grads(store, unit);
    const float *late = store->units[unit].late;
    float sum[BLOCK_ELEMS];

    for (uint64_t at = 0; at < n_elems; at += BLOCK_ELEMS) {
        uint64_t n = n_elems - at < BLOCK_ELEMS ? n_elems - at : BLOCK_ELEMS;
        uint8_t *part = slot + at * dtype_bytes(dtype);

        if (is_empty) {
            memcpy(sum, late + at, n * sizeof(float));
        } else {
            cast_to_fp32(sum, part, dtype, n);
            reduce_add(sum, late + at, DTYPE_FP32, n);
        }
        cast_from_fp32(part, dtype, sum, n);
    }
}

/* Brings slot and late contributions to where peers read; sets whether there is anything. */
void shm_contribute(struct store *store, uint32_t unit, struct shm_reduction *reduction)
{
    struct shm_unit *u = &store->units[unit];
    struct fp_mode mode = fp_mode_enter();

    if (u->sums.local_elems != 0) {
        if (!reduction->is_absent) {
            local_add(store, unit, shm_grads(store, unit),
                      shm_plan_class(store, unit)->gradient_dtype);
        }
        if (u->has_late) {
            local_add(store, unit, u->late, DTYPE_FP32);
        }
        reduction->is_absent = !u->has_local;
    } else if (u->has_late) {
        slot_add(store, unit, reduction->is_absent);
        reduction->is_absent = false;
    }
    fp_mode_leave(mode);
    u->has_late = false;
}
