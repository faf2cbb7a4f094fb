/* SPDX-License-Identifier: Apache-2.0 */
/* Slots: which units take turns in the same memory. */
#include <stdlib.h>

#include "base/error.h"
#include "plan/arith.h"
#include "plan/build.h"

/*
 * Units are reduced in the reverse of their order. The position of a unit is its place among those
 * that need a slot, counted in that order; its slot is position % K, so that K units in a row
 * never share one. A unit that other units have names for is live whenever one of those is, so it
 * has parameters of its own beside the slots.
 *
 * The memory of gradient slots: with K = 1 everything starts at 0. With K = 2 even positions start
 * at the front and odd ones end at the back, so that neighbours just fit: the memory is the
 * largest sum of two. With more slots each has the room of its largest unit, or less where
 * slot_fit.c finds it; the report says beside it what the largest sum is.
 */

/* Bytes of a unit's gradients in the slots; whole granules. */
static uint64_t grad_bytes(const struct hsdp_plan *plan, const struct plan_unit *unit)
{
    uint64_t n_bytes = plan_grad_elems(plan, (uint32_t)(unit - plan->units)) *
                       dtype_bytes(plan->classes[unit->class_index].gradient_dtype);

    return n_bytes + (PLAN_GRANULE_BYTES - n_bytes % PLAN_GRANULE_BYTES) % PLAN_GRANULE_BYTES;
}

static void slot_numbers_assign(struct hsdp_plan *plan)
{
    uint32_t param_position = 0;
    uint32_t grad_position = 0;

    for (uint32_t u = plan->n_units; u-- > 0;) {
        struct plan_unit *unit = &plan->units[u];
        const struct placement *place = &plan->classes[unit->class_index].place;

        unit->param_slot = HSDP_NO_SLOT; /* what is whole anyway is live at any time */
        unit->grad_slot = HSDP_NO_SLOT;
        if (placement_n_slices(place, plan->mesh, HSDP_SHARD_PARAM) > 1 && !unit->is_storage) {
            unit->param_slot = param_position++ % plan->n_slots;
        }
        if (plan_grad_elems(plan, u) != 0) {
            unit->grad_slot = grad_position++ % plan->n_slots;
        }
    }
}

uint64_t plan_least_slots_bytes(const struct hsdp_plan *plan)
{
    uint64_t most_bytes = 0;
    uint64_t row_bytes = 0;
    uint32_t first = plan->n_units; /* one behind the first unit of the row */
    uint32_t n_row = 0;

    for (uint32_t u = plan->n_units; u-- > 0;) {
        if (plan->units[u].grad_slot == HSDP_NO_SLOT) {
            continue;
        }
        row_bytes += grad_bytes(plan, &plan->units[u]);
        n_row++;
        while (n_row > plan->n_slots) { /* units without gradients are in no row */
            first--;
            n_row -= plan->units[first].grad_slot != HSDP_NO_SLOT;
            row_bytes -= grad_bytes(plan, &plan->units[first]);
        }
        most_bytes = row_bytes > most_bytes ? row_bytes : most_bytes;
    }
    return most_bytes;
}

static void ends_assign(struct hsdp_plan *plan)
{
    plan->grad_slots_bytes = plan_least_slots_bytes(plan);
    for (uint32_t u = 0; u < plan->n_units; u++) {
        struct plan_unit *unit = &plan->units[u];

        unit->grad_slot_offset_bytes =
            unit->grad_slot == 1 ? plan->grad_slots_bytes - grad_bytes(plan, unit) : 0;
    }
}

/* K > 2: each slot as large as its largest unit, one behind the other. */
static int32_t rooms_assign(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    uint64_t *rooms = calloc(plan->n_slots + 1, sizeof(*rooms)); /* [s + 1] = bytes of slot s */

    if (rooms == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for slots");
    }
    for (uint32_t u = 0; u < plan->n_units; u++) {
        const struct plan_unit *unit = &plan->units[u];

        if (unit->grad_slot != HSDP_NO_SLOT) {
            uint64_t n_bytes = grad_bytes(plan, unit);
            uint64_t *room = &rooms[unit->grad_slot + 1];

            *room = n_bytes > *room ? n_bytes : *room;
        }
    }
    for (uint32_t s = 1; s <= plan->n_slots; s++) {
        rooms[s] += rooms[s - 1];
    }
    for (uint32_t u = 0; u < plan->n_units; u++) {
        struct plan_unit *unit = &plan->units[u];

        unit->grad_slot_offset_bytes = unit->grad_slot == HSDP_NO_SLOT ? 0 : rooms[unit->grad_slot];
    }
    plan->grad_slots_bytes = rooms[plan->n_slots];
    free(rooms);
    return plan_fit_slots(plan, reterr);
}

int32_t plan_assign_slots(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    slot_numbers_assign(plan);
    if (plan->n_slots <= 2) {
        ends_assign(plan);
        return HSDP_OK;
    }
    return rooms_assign(plan, reterr);
}

uint64_t plan_grad_slot_bytes(const struct hsdp_plan *plan, uint32_t unit)
{
    return grad_bytes(plan, &plan->units[unit]);
}

bool plan_grads_overlap(const struct hsdp_plan *plan, uint32_t unit, uint32_t other)
{
    const struct plan_unit *a = &plan->units[unit];
    const struct plan_unit *b = &plan->units[other];

    if (a->grad_slot == HSDP_NO_SLOT || b->grad_slot == HSDP_NO_SLOT) {
        return false;
    }
    return a->grad_slot_offset_bytes < b->grad_slot_offset_bytes + grad_bytes(plan, b) &&
           b->grad_slot_offset_bytes < a->grad_slot_offset_bytes + grad_bytes(plan, a);
}
