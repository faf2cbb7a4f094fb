/* SPDX-License-Identifier: Apache-2.0 */
/* Aliases: names for parameters of other units, and room for their gradients. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "plan/arith.h"
#include "plan/build.h"

bool plan_param_is_alias(const struct hsdp_plan *plan, uint32_t param)
{
    const struct plan_param *row = &plan->params[param];

    return plan->params[row->storage].unit != row->unit;
}

void plan_storages_mark(struct hsdp_plan *plan)
{
    for (uint32_t u = 0; u < plan->n_units; u++) { /* of a finish that failed */
        plan->units[u].is_storage = false;
        plan->units[u].is_grad_storage = false;
    }
    for (uint32_t p = 0; p < plan->n_params; p++) {
        struct plan_unit *unit = &plan->units[plan->params[plan->params[p].storage].unit];

        if (plan_param_is_alias(plan, p)) {
            unit->is_storage = true;
            unit->is_grad_storage =
                unit->is_grad_storage || (plan->params[p].flags & HSDP_PARAM_FROZEN) == 0;
        }
    }
}

int32_t plan_aliases_place(struct hsdp_plan *plan, struct plan_unit *unit,
                           struct hsdp_error *reterr)
{
    const struct plan_buffer *buffer = plan_trainable(unit);
    uint64_t begin = buffer == NULL ? 0 : buffer->n_elems;
    uint64_t end = begin;

    unit->n_aliases = 0;
    for (uint32_t i = 0; i < unit->n_params; i++) {
        struct plan_param *param = &plan->params[unit->params[i]];

        if (!plan_param_is_alias(plan, unit->params[i])) {
            continue;
        }
        unit->n_aliases++;
        param->alias_offset_elems = end;
        if ((param->flags & HSDP_PARAM_FROZEN) != 0) {
            continue; /* it has no gradient */
        }
        /* Room for one at least, so that a unit of empty parameters is a unit like any other. */
        if (!arith_add(end, param->n_elems == 0 ? 1 : param->n_elems, &end) ||
            !arith_round_up(end, PLAN_ALIGN_ELEMS, &end) || end - begin > PLAN_MAX_BYTES / 4) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "plan: the gradients of unit %s's names for parameters of other units "
                             "are larger than 2^60 bytes",
                             unit->name);
        }
    }
    unit->n_alias_elems = end - begin;
    return HSDP_OK;
}

/* Gradients of a unit's trainable aliases, taken off what their storages' units wait for. */
static void aliases_hand_over(const struct hsdp_plan *plan, uint32_t unit, uint32_t *n_awaited)
{
    const struct plan_unit *row = &plan->units[unit];

    for (uint32_t i = 0; i < row->n_params; i++) {
        uint32_t storage = plan->params[row->params[i]].storage;

        if (plan_param_is_alias(plan, row->params[i]) &&
            (plan->params[storage].flags & HSDP_PARAM_FROZEN) == 0) {
            n_awaited[plan->params[storage].unit]--;
        }
    }
}

/* Goes over all units until none is left, or each of those left waits for another: *ret_unit. */
static bool order_find(const struct hsdp_plan *plan, uint32_t *n_awaited, uint32_t *ret_units,
                       uint32_t *ret_unit)
{
    uint32_t n_listed = 0;
    uint32_t n_before;

    do {
        n_before = n_listed;
        for (uint32_t u = plan->n_units; u-- > 0;) {
            if (n_awaited[u] == 0) {
                n_awaited[u] = UINT32_MAX; /* listed: nothing can be added to it any more */
                ret_units[n_listed++] = u;
                aliases_hand_over(plan, u, n_awaited);
            } else if (n_awaited[u] != UINT32_MAX) {
                *ret_unit = u;
            }
        }
    } while (n_listed > n_before && n_listed < plan->n_units);
    return n_listed == plan->n_units;
}

int32_t plan_pass_order(const struct hsdp_plan *plan, uint32_t *ret_units,
                        struct hsdp_error *reterr)
{
    uint32_t *n_awaited = calloc(plan->n_units + 1u, sizeof(*n_awaited));
    uint32_t unit = 0;
    int32_t status = HSDP_OK;

    if (n_awaited == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for an order of units");
    }
    for (uint32_t p = 0; p < plan->n_params; p++) {
        if (plan_param_is_alias(plan, p) && (plan->params[p].flags & HSDP_PARAM_FROZEN) == 0) {
            n_awaited[plan->params[plan->params[p].storage].unit]++;
        }
    }
    if (!order_find(plan, n_awaited, ret_units, &unit)) {
        status =
            error_set(reterr, HSDP_ERR_INVALID,
                      "plan: unit %s stores names of units that store names of it; no backward "
                      "pass has each before its storage",
                      plan->units[unit].name);
    }
    free(n_awaited);
    return status;
}
