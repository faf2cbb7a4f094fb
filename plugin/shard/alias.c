/* SPDX-License-Identifier: Apache-2.0 */
/* Aliases at work: holding the units that store them, and adding their gradients up there. */
#include "shard/alias.h"

#include "base/error.h"
#include "comm/probe.h"

int32_t contribution_add(struct hsdp_model *model, const struct contribution *contribution,
                         struct hsdp_error *reterr)
{
    const struct plan_param *param = &model->plan->params[contribution->param];
    struct store_addition addition = {.unit = param->unit, .values = contribution->values};

    if (param->n_elems == 0) {
        return HSDP_OK;
    }
    addition.offset_elems = param->offset_elems;
    addition.dtype = contribution->dtype;
    addition.n_elems = param->n_elems;
    addition.joins_handed = contribution->joins_handed;
    addition.stream = contribution->stream;
    return model->ops->grads_add(model->store, &addition, reterr);
}

/* The i-th of a unit's names for parameters of other units: they are the last of its list. */
static uint32_t unit_alias(const struct plan_unit *unit, uint32_t i)
{
    return unit->params[unit->n_params - unit->n_aliases + i];
}

int32_t alias_order_check(const struct hsdp_model *model, uint32_t unit, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    const struct plan_unit *row = &plan->units[unit];

    for (uint32_t i = 0; i < row->n_aliases; i++) {
        const struct plan_param *param = &plan->params[unit_alias(row, i)];
        uint32_t other = plan->params[param->storage].unit;

        if (!model->units[other].is_handed || model->units[other].pass != NULL ||
            (param->flags & HSDP_PARAM_FROZEN) != 0) {
            continue;
        }
        error_set(reterr, HSDP_ERR_INVALID,
                  "unit.backward_begin: unit \"%s\" is listed before unit \"%s\", whose \"%.64s\" "
                  "adds gradients to its \"%.64s\"; \"%s\" before \"%s\" was expected",
                  plan->units[other].name, row->name, param->name,
                  plan->params[param->storage].name, row->name, plan->units[other].name);
        error_where(reterr, "unit.backward_begin", NULL, row->name);
        return HSDP_ERR_INVALID;
    }
    return HSDP_OK;
}

/* Lets go of what the first n aliases of a unit hold. */
static void aliases_release(struct hsdp_model *model, uint32_t unit, uint32_t n_aliases,
                            void *stream)
{
    const struct hsdp_plan *plan = model->plan;

    for (uint32_t i = 0; i < n_aliases; i++) {
        uint32_t other = plan->params[plan->params[unit_alias(&plan->units[unit], i)].storage].unit;
        struct model_unit *u = &model->units[other];

        u->n_holds--;
        if (u->n_uses + u->n_holds == 0) {
            model->ops->reshard(model->store, other, stream);
        }
    }
}

int32_t alias_hold(struct hsdp_model *model, uint32_t unit, void *stream, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    const struct plan_unit *row = &plan->units[unit];

    for (uint32_t i = 0; i < row->n_aliases; i++) {
        uint32_t other = plan->params[plan->params[unit_alias(row, i)].storage].unit;
        struct model_unit *u = &model->units[other];
        uint64_t ticket = u->ticket;
        int32_t status = HSDP_OK;

        if (u->n_uses + u->n_holds == 0) {
            status = model->ops->unshard(model->store, other, stream, &ticket, reterr);
        }
        if (status != HSDP_OK) {
            aliases_release(model, unit, i, stream);
            return status;
        }
        u->ticket = ticket;
        u->n_holds++;
    }
    return HSDP_OK;
}

void alias_release(struct hsdp_model *model, uint32_t unit, void *stream)
{
    aliases_release(model, unit, model->plan->units[unit].n_aliases, stream);
}

int32_t alias_grads_add(struct hsdp_model *model, uint32_t unit, void *stream,
                        struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    const struct plan_unit *row = &plan->units[unit];
    struct contribution contribution = {.dtype = plan->classes[row->class_index].gradient_dtype};
    int32_t status = HSDP_OK;

    contribution.stream = stream;
    for (uint32_t i = 0; status == HSDP_OK && i < row->n_aliases; i++) {
        const struct plan_param *param = &plan->params[unit_alias(row, i)];
        const struct model_unit *u = &model->units[plan->params[param->storage].unit];
        const uint8_t *slot = model->ops->grads(model->store, unit);

        if ((param->flags & HSDP_PARAM_FROZEN) != 0) {
            continue;
        }
        /* Within the slots the storage may have been handed over first: it waits for this unit. */
        contribution.joins_handed = u->pass == model->units[unit].pass && u->is_handed;
        contribution.param = param->storage;
        contribution.values = slot + param->alias_offset_elems * dtype_bytes(contribution.dtype);
        probe_read(job_probe(model->job), PROBE_SLOT, unit, contribution.values,
                   param->n_elems * dtype_bytes(contribution.dtype));
        status = contribution_add(model, &contribution, reterr);
    }
    return status;
}
