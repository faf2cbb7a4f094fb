/* SPDX-License-Identifier: Apache-2.0 */
/* Uses of a unit: counted unshard and release, and who may occupy a slot. */
#include <inttypes.h>

#include "base/error.h"
#include "shard/alias.h"
#include "shard/pass.h"
#include "shard/tensor.h"
#include "shard/unit.h"

static int32_t param_slot_check(const struct hsdp_model *model, uint32_t unit,
                                struct hsdp_error *reterr)
{
    const struct plan_unit *units = model->plan->units;
    uint32_t slot = units[unit].param_slot;

    if (slot == HSDP_NO_SLOT || model->param_slots[slot] == HSDP_NO_SLOT ||
        model->param_slots[slot] == unit) {
        return HSDP_OK;
    }
    error_set(reterr, HSDP_ERR_STATE,
              "unit.unshard: parameter slot %" PRIu32 " of unit \"%s\" is occupied by unit \"%s\"; "
              "its release was expected first (the plan has slots=%" PRIu32 ")",
              slot, units[unit].name, units[model->param_slots[slot]].name, model->plan->n_slots);
    error_where(reterr, "unit.unshard", NULL, units[unit].name);
    return HSDP_ERR_STATE;
}

/* Whether another unit holds gradients where those of this one go. */
static int32_t grad_slot_check(const struct hsdp_model *model, uint32_t unit,
                               struct hsdp_error *reterr)
{
    const struct plan_unit *units = model->plan->units;

    for (uint32_t i = 0; i < model->n_acquired; i++) {
        uint32_t other = model->acquired[i];

        if (!plan_grads_overlap(model->plan, unit, other)) {
            continue;
        }
        error_set(reterr, HSDP_ERR_STATE,
                  "unit.unshard: gradient slot %" PRIu32 " of unit \"%s\" is occupied by unit "
                  "\"%s\"; its reduce was expected first (the plan has slots=%" PRIu32 ")",
                  units[unit].grad_slot, units[unit].name, units[other].name, model->plan->n_slots);
        error_where(reterr, "unit.unshard", NULL, units[unit].name);
        return HSDP_ERR_STATE;
    }
    return HSDP_OK;
}

/*
 * A unit that is `slots` or more ahead of one that was not handed over could not be reduced before
 * that one, whose slot it may hold: better refused here, while the host can still turn back.
 */
static int32_t ahead_check(const struct hsdp_model *model, uint32_t unit, struct hsdp_error *reterr)
{
    const struct model_unit *u = &model->units[unit];
    const struct pass *pass = u->pass;
    const char *name = model->plan->units[unit].name;

    if (u->position - pass->turn <= model->plan->n_slots) {
        return HSDP_OK;
    }
    error_set(reterr, HSDP_ERR_STATE,
              "unit.unshard: unit \"%s\" is %" PRIu64
              " units ahead of \"%s\", which was not handed over; its reduce or skip was expected "
              "first (the plan has slots=%" PRIu32 ")",
              name, u->position - pass->turn - 1, model->plan->units[pass->units[pass->turn]].name,
              model->plan->n_slots);
    error_where(reterr, "unit.unshard", NULL, name);
    return HSDP_ERR_STATE;
}

/* Whether a unit's gradient buffer may be acquired now. */
static int32_t acquire_check(const struct hsdp_model *model, uint32_t unit,
                             struct hsdp_error *reterr)
{
    const struct model_unit *u = &model->units[unit];
    const char *name = model->plan->units[unit].name;
    const char *expected = NULL;
    int32_t status;

    if (u->pass == NULL) {
        expected = "no open backward pass holds it; unit.backward_begin was expected";
    } else if (u->is_acquired) {
        expected = "its gradient buffer is acquired already; unit.reduce was expected";
    } else if (u->is_handed) {
        expected = u->is_skipped
                       ? "it was skipped in this pass; unit.backward_end was expected"
                       : "it has been reduced in this pass; unit.backward_end was expected";
    }
    if (expected != NULL) {
        error_set(reterr, HSDP_ERR_STATE, "unit.unshard: unit \"%s\": %s", name, expected);
        error_where(reterr, "unit.unshard", NULL, name);
        return HSDP_ERR_STATE;
    }
    status = ahead_check(model, unit, reterr);
    return status == HSDP_OK ? grad_slot_check(model, unit, reterr) : status;
}

static int32_t unshard_check(const struct hsdp_model *model, uint32_t unit, int32_t use,
                             struct hsdp_error *reterr)
{
    int32_t status;

    if (use < HSDP_USE_FORWARD || use > HSDP_USE_BACKWARD_SET) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "unit.unshard: use %" PRId32
                         " is none of 0 (forward), 1 (backward), 2 (backward, set)",
                         use);
    }
    status = model_unit_check(model, "unit.unshard", unit, reterr);
    if (status == HSDP_OK) {
        status = model_idle_check(model, "unit.unshard", reterr);
        if (status != HSDP_OK) {
            error_where(reterr, "unit.unshard", NULL, model->plan->units[unit].name);
        }
    }
    if (status == HSDP_OK) {
        status = param_slot_check(model, unit, reterr);
    }
    if (status == HSDP_OK && use != HSDP_USE_FORWARD && plan_grad_elems(model->plan, unit) != 0) {
        status = acquire_check(model, unit, reterr);
    }
    return status;
}

static void unit_acquire(struct hsdp_model *model, uint32_t unit)
{
    model->units[unit].is_acquired = true;
    model->acquired[model->n_acquired++] = unit;
}

void unit_give_back(struct hsdp_model *model, uint32_t unit)
{
    uint32_t i = 0;

    if (!model->units[unit].is_acquired) {
        return; /* skipped */
    }
    while (model->acquired[i] != unit) {
        i++;
    }
    model->acquired[i] = model->acquired[--model->n_acquired];
    model->units[unit].is_acquired = false;
}

int32_t unit_unshard(struct hsdp_model *model, uint32_t unit, int32_t use, void *stream,
                     uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    bool is_backward = use != HSDP_USE_FORWARD;
    struct model_unit *u;
    uint64_t ticket;
    int32_t status;

    status = unshard_check(model, unit, use, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    u = &model->units[unit];
    if (u->pass != NULL) {
        status = model->ops->pass_reach(model->store, unit, reterr);
        if (status != HSDP_OK) {
            return status;
        }
    }
    if (is_backward && plan_grad_elems(model->plan, unit) != 0) {
        status =
            model->ops->grads_acquire(model->store, unit, use == HSDP_USE_BACKWARD, stream, reterr);
        if (status != HSDP_OK) {
            return status;
        }
    }
    ticket = u->ticket;
    if (u->n_uses == 0) {
        status = alias_hold(model, unit, stream, reterr);
        if (status != HSDP_OK) {
            return status;
        }
        if (u->n_holds == 0) {
            status = model->ops->unshard(model->store, unit, stream, &ticket, reterr);
        }
        if (status != HSDP_OK) {
            alias_release(model, unit, stream);
            return status;
        }
    }
    u->ticket = ticket;
    u->n_uses++;
    if (model->plan->units[unit].param_slot != HSDP_NO_SLOT) {
        model->param_slots[model->plan->units[unit].param_slot] = unit;
    }
    if (is_backward && plan_grad_elems(model->plan, unit) != 0) {
        unit_acquire(model, unit);
    }
    *ret_ticket = ticket;
    return HSDP_OK;
}

int32_t unit_release(struct hsdp_model *model, uint32_t unit, void *stream,
                     struct hsdp_error *reterr)
{
    struct model_unit *u;
    int32_t status;

    status = model_unit_check(model, "unit.release", unit, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    u = &model->units[unit];
    if (u->n_uses == 0) {
        status = error_set(reterr, HSDP_ERR_STATE,
                           "unit.release: unit \"%s\" is not unsharded; unit.unshard was expected",
                           model->plan->units[unit].name);
    } else if (u->n_uses == 1 && u->is_acquired) {
        status = error_set(reterr, HSDP_ERR_STATE,
                           "unit.release: unit \"%s\" holds a gradient that was not handed over; "
                           "unit.reduce was expected",
                           model->plan->units[unit].name);
    }
    if (status != HSDP_OK) {
        error_where(reterr, "unit.release", NULL, model->plan->units[unit].name);
        return status;
    }
    u->n_uses--;
    if (u->n_uses == 0) {
        alias_release(model, unit, stream);
        if (u->n_holds == 0) {
            model->ops->reshard(model->store, unit, stream);
        }
        if (model->plan->units[unit].param_slot != HSDP_NO_SLOT) {
            model->param_slots[model->plan->units[unit].param_slot] = HSDP_NO_SLOT;
        }
    }
    return HSDP_OK;
}
