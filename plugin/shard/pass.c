/* SPDX-License-Identifier: Apache-2.0 */
/* Backward passes: declared units, handing over in any order, reducing in one. */
#include "shard/pass.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/probe.h"
#include "shard/alias.h"
#include "shard/grads.h"
#include "shard/tensor.h"
#include "shard/unit.h"

static const char *const scope_names[] = {"none", "inner", "full"};

/* ----------------------------------------------------------------------------- begin */

static int32_t units_check(struct hsdp_model *model, const uint32_t *units, uint64_t n_units,
                           struct hsdp_error *reterr)
{
    for (uint64_t i = 0; i < n_units; i++) {
        int32_t status = model_unit_check(model, "unit.backward_begin", units[i], reterr);

        if (status != HSDP_OK) {
            return status;
        }
        if (model->units[units[i]].pass != NULL) {
            status =
                error_set(reterr, HSDP_ERR_STATE,
                          "unit.backward_begin: unit \"%s\" is in pass %" PRIu64
                          ", which is open; unit.backward_end was expected",
                          model->plan->units[units[i]].name, model->units[units[i]].pass->number);
        } else if (model->units[units[i]].is_handed) { /* a mark of this check */
            status = error_set(reterr, HSDP_ERR_INVALID,
                               "unit.backward_begin: unit \"%s\" is listed twice; each unit once "
                               "was expected",
                               model->plan->units[units[i]].name);
        }
        if (status != HSDP_OK) {
            error_where(reterr, "unit.backward_begin", NULL, model->plan->units[units[i]].name);
            return status;
        }
        status = alias_order_check(model, units[i], reterr);
        if (status != HSDP_OK) {
            return status;
        }
        model->units[units[i]].is_handed = true;
    }
    return HSDP_OK;
}

static void marks_clear(struct hsdp_model *model, const uint32_t *units, uint64_t n_units)
{
    for (uint64_t i = 0; i < n_units; i++) {
        if (units[i] < model->plan->n_units && model->units[units[i]].pass == NULL) {
            model->units[units[i]].is_handed = false;
        }
    }
}

static int32_t scope_check(const struct hsdp_model *model, int32_t scope, struct hsdp_error *reterr)
{
    if (scope < HSDP_SCOPE_NONE || scope > HSDP_SCOPE_FULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "unit.backward_begin: scope %" PRId32
                         " is none of 0 (none), 1 (inner), 2 (full)",
                         scope);
    }
    if (scope != HSDP_SCOPE_FULL && scope != model->plan->scope) {
        return error_set(reterr, HSDP_ERR_STATE,
                         "unit.backward_begin: a pass of scope %s, but memory is planned for "
                         "accumulation_scope = %s; that scope or full was expected",
                         scope_names[scope], scope_names[model->plan->scope]);
    }
    return HSDP_OK;
}

static void pass_free(struct pass *pass)
{
    if (pass != NULL) {
        free(pass->units);
        free(pass->reductions);
        free(pass);
    }
}

/* One more, with room for all units. */
static int32_t pass_add(struct hsdp_model *model, struct hsdp_error *reterr)
{
    uint64_t max_units = model->plan->n_units + UINT64_C(1);
    struct pass *pass = calloc(1, sizeof(*pass));

    if (pass != NULL) {
        pass->units = calloc(max_units, sizeof(*pass->units));
        pass->reductions = calloc(max_units, sizeof(*pass->reductions));
    }
    if (pass == NULL || pass->units == NULL || pass->reductions == NULL) {
        pass_free(pass);
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "unit.backward_begin: no memory for a pass over %" PRIu32 " units",
                         model->plan->n_units);
    }
    pass->model = model;
    pass->next = model->passes;
    model->passes = pass;
    return HSDP_OK;
}

/* One that is closed, and has ended; NULL = there is none. */
static struct pass *pass_idle(const struct hsdp_model *model)
{
    struct pass *pass = model->passes;

    while (pass != NULL && (pass->number != 0 || pass->is_ending)) {
        pass = pass->next;
    }
    return pass;
}

/*
 * Where one is made, one more is made: whether a pass has ended by the time that the next one
 * begins is up to the peers, and what is behind the first ones allocates nothing.
 */
static int32_t pass_take(struct hsdp_model *model, struct pass **ret_pass,
                         struct hsdp_error *reterr)
{
    bool is_short;
    int32_t status = HSDP_OK;

    if (pass_idle(model) == NULL) {
        status = job_progress(model->job, reterr); /* one may have nothing left to wait for */
    }
    is_short = pass_idle(model) == NULL;
    for (int i = 0; status == HSDP_OK && is_short && i < 2; i++) {
        status = pass_add(model, reterr);
    }
    if (status == HSDP_OK) {
        *ret_pass = pass_idle(model);
    }
    return status;
}

/* Raises the turn over everything in a row that has been handed over, or has nothing to reduce. */
static void turn_raise(struct hsdp_model *model, struct pass *pass)
{
    while (pass->turn < pass->n_units &&
           (model->units[pass->units[pass->turn]].is_handed ||
            plan_grad_elems(model->plan, pass->units[pass->turn]) == 0)) {
        probe_reduction(job_probe(model->job), pass->units[pass->turn], PROBE_AWAITED_TURN);
        pass->turn++;
    }
}

int32_t unit_backward_begin(struct hsdp_model *model, const uint32_t *units, uint64_t n_units,
                            int32_t scope, uint64_t *ret_pass, struct hsdp_error *reterr)
{
    struct pass *pass = NULL;
    int32_t status;

    status = model_idle_check(model, "unit.backward_begin", reterr);
    if (status == HSDP_OK) {
        status = scope_check(model, scope, reterr);
    }
    if (status == HSDP_OK) {
        status = units_check(model, units, n_units, reterr);
        marks_clear(model, units, n_units);
    }
    if (status == HSDP_OK) {
        status = pass_take(model, &pass, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    status = model->ops->pass_begin(model->store, units, n_units, scope, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    for (uint64_t i = 0; i < n_units; i++) {
        pass->units[i] = units[i];
        model->units[units[i]].pass = pass;
        model->units[units[i]].position = i + 1;
        model->units[units[i]].is_skipped = false;
    }
    pass->n_units = n_units;
    pass->scope = scope;
    pass->turn = 0;
    turn_raise(model, pass);
    pass->number = ++model->n_passes;
    *ret_pass = pass->number;
    return HSDP_OK;
}

/* ---------------------------------------------------------------------------- reduce */

static int32_t pass_find(const struct hsdp_model *model, const char *call, uint64_t number,
                         struct pass **ret_pass, struct hsdp_error *reterr)
{
    struct pass *pass = model->passes;

    while (pass != NULL && (pass->number != number || number == 0)) {
        pass = pass->next;
    }
    if (pass == NULL) {
        return error_set(
            reterr, number == 0 || number > model->n_passes ? HSDP_ERR_INVALID : HSDP_ERR_STATE,
            "%s: pass %" PRIu64 " is not open; the number of an open one was expected, from "
            "unit.backward_begin",
            call, number);
    }
    *ret_pass = pass;
    return HSDP_OK;
}

/* Whether a unit may be handed over, or skipped, in a pass. */
static int32_t due_check(const struct hsdp_model *model, bool is_skip, const struct pass *pass,
                         uint32_t unit, struct hsdp_error *reterr)
{
    const char *call = is_skip ? "unit.skip" : "unit.reduce";
    const struct model_unit *u = &model->units[unit];
    const char *name = model->plan->units[unit].name;

    if (u->pass != pass) {
        error_set(reterr, HSDP_ERR_STATE,
                  "%s: unit \"%s\" is not in pass %" PRIu64 "; a unit of unit.backward_begin's "
                  "list was expected",
                  call, name, pass->number);
    } else if (u->is_handed) {
        error_set(reterr, HSDP_ERR_STATE,
                  "%s: unit \"%s\" was %s already in pass %" PRIu64
                  "; unit.backward_end was expected, or unit.grad_add for the next pass",
                  call, name, u->is_skipped ? "skipped" : "handed over", pass->number);
    } else if (is_skip && u->is_acquired) {
        error_set(reterr, HSDP_ERR_STATE,
                  "%s: unit \"%s\" has acquired its gradient buffer; unit.reduce was expected",
                  call, name);
    } else if (!is_skip && !u->is_acquired) {
        error_set(reterr, HSDP_ERR_STATE,
                  "%s: unit \"%s\" has no gradient buffer; unit.unshard for a backward use was "
                  "expected, or unit.skip",
                  call, name);
    } else {
        return HSDP_OK;
    }
    error_where(reterr, call, NULL, name);
    return HSDP_ERR_STATE;
}

static struct store_gradient gradient_make(struct hsdp_model *model, const struct pass *pass,
                                           uint32_t unit, bool is_absent, void *stream)
{
    const struct plan_unit *plan_unit = &model->plan->units[unit];
    struct store_gradient gradient = {.unit = unit, .is_absent = is_absent};

    gradient.scope = pass->scope;
    gradient.norm_p = grads_norm_p(model, unit, pass->scope);
    gradient.norm_divisor = (float)model->plan->classes[plan_unit->class_index].divisor;
    gradient.turn = &pass->turn;
    gradient.position = model->units[unit].position;
    gradient.stream = stream;
    return gradient;
}

/* Both ways of handing over: a gradient, or that there is none. */
struct handing {
    uint64_t pass;
    uint32_t unit;
    bool is_skip;
    void *stream;
};

static int32_t unit_hand_over(struct hsdp_model *model, const struct handing *handing,
                              struct pass *pass, uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    uint32_t unit = handing->unit;
    struct model_unit *u = &model->units[unit];
    struct store_gradient gradient;
    int32_t status;

    status = due_check(model, handing->is_skip, pass, unit, reterr);
    if (status == HSDP_OK && !handing->is_skip) {
        status = alias_grads_add(model, unit, handing->stream, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    u->is_handed = true;
    u->is_skipped = handing->is_skip;
    unit_give_back(model, unit);
    turn_raise(model, pass);
    gradient = gradient_make(model, pass, unit, handing->is_skip, handing->stream);
    status = model->ops->reduce(model->store, &gradient, &u->reduction, reterr);
    *ret_ticket = u->reduction;
    if (status == HSDP_OK && pass->turn > u->position) {
        status = job_progress(model->job, reterr); /* those that waited for this one */
    }
    return status;
}

static int32_t unit_give(struct hsdp_model *model, const struct handing *handing,
                         uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    const char *call = handing->is_skip ? "unit.skip" : "unit.reduce";
    uint32_t unit = handing->unit;
    struct pass *pass = NULL;
    uint64_t ticket = 0;
    int32_t status;

    status = model_unit_check(model, call, unit, reterr);
    if (status == HSDP_OK) {
        status = pass_find(model, call, handing->pass, &pass, reterr);
    }
    if (status == HSDP_OK && plan_grad_elems(model->plan, unit) != 0) { /* else nothing to reduce */
        status = unit_hand_over(model, handing, pass, &ticket, reterr);
    }
    if (status == HSDP_OK && ret_ticket != NULL) {
        *ret_ticket = ticket;
    }
    return status;
}

int32_t unit_reduce(struct hsdp_model *model, uint64_t number, uint32_t unit, void *stream,
                    uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct handing handing = {.pass = number, .unit = unit, .stream = stream};

    return unit_give(model, &handing, ret_ticket, reterr);
}

int32_t unit_skip(struct hsdp_model *model, uint64_t number, uint32_t unit, void *stream,
                  uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct handing handing = {.pass = number, .unit = unit, .is_skip = true, .stream = stream};

    return unit_give(model, &handing, ret_ticket, reterr);
}

/* ------------------------------------------------------------------------------- end */

/* What the pass's own reductions wait for; a unit may be in its next one already. Those found done
 * are not looked at again. */
static const struct wait *ending_blocker(struct work *work)
{
    struct pass *pass = (struct pass *)work;
    const struct hsdp_model *model = pass->model;
    const struct wait *wait = NULL;

    while (pass->n_done < pass->n_units) {
        uint32_t unit = pass->units[pass->n_done];

        if (model->units[unit].reduction == pass->reductions[pass->n_done]) {
            wait = model->ops->reduce_blocker(model->store, unit);
        }
        if (wait != NULL) {
            break;
        }
        pass->n_done++;
    }
    return wait;
}

static int32_t ending_progress(struct work *work, struct hsdp_error *reterr)
{
    (void)reterr;
    return ending_blocker(work) == NULL ? HSDP_OK : HSDP_PENDING;
}

/* A device does reductions in order: the stream waits for all so far. */
static int32_t ending_order(struct work *work, void *stream, struct hsdp_error *reterr)
{
    return model_order(((struct pass *)work)->model, stream, reterr);
}

static void ending_finish(struct work *work, int32_t status)
{
    (void)status;
    ((struct pass *)work)->is_ending = false;
}

static int32_t end_check(const struct hsdp_model *model, const struct pass *pass,
                         struct hsdp_error *reterr)
{
    for (uint64_t i = 0; i < pass->n_units; i++) {
        const char *name = model->plan->units[pass->units[i]].name;

        if (model->units[pass->units[i]].is_acquired) {
            error_set(reterr, HSDP_ERR_STATE,
                      "unit.backward_end: unit \"%s\" holds a gradient that was not handed over; "
                      "unit.reduce was expected",
                      name);
            error_where(reterr, "unit.backward_end", NULL, name);
            return HSDP_ERR_STATE;
        }
    }
    return HSDP_OK;
}

/* What never came counts as zeros, in its place of the order. */
static int32_t absent_reduce(struct hsdp_model *model, struct pass *pass, void *stream,
                             struct hsdp_error *reterr)
{
    for (uint64_t i = 0; i < pass->n_units; i++) {
        struct model_unit *u = &model->units[pass->units[i]];
        struct store_gradient gradient;
        int32_t status;

        if (u->is_handed) {
            continue;
        }
        u->is_handed = true;
        turn_raise(model, pass);
        if (plan_grad_elems(model->plan, pass->units[i]) == 0) {
            continue;
        }
        gradient = gradient_make(model, pass, pass->units[i], true, stream);
        status = model->ops->reduce(model->store, &gradient, &u->reduction, reterr);
        if (status == HSDP_OK) { /* those that waited for this one leave their slots */
            status = job_progress(model->job, reterr);
        }
        if (status != HSDP_OK) {
            return status;
        }
    }
    return job_progress(model->job, reterr);
}

int32_t unit_backward_end(struct hsdp_model *model, uint64_t number, void *stream,
                          uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct pass *pass = NULL;
    int32_t status;

    status = pass_find(model, "unit.backward_end", number, &pass, reterr);
    if (status == HSDP_OK) {
        status = end_check(model, pass, reterr);
    }
    if (status == HSDP_OK) {
        status = absent_reduce(model, pass, stream, reterr);
    }
    if (status == HSDP_OK) {
        status = model->ops->pass_end(model->store, pass->units, pass->n_units, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    for (uint64_t i = 0; i < pass->n_units; i++) {
        struct model_unit *u = &model->units[pass->units[i]];

        u->pass = NULL;
        u->is_handed = false;
        u->is_unclosed = pass->scope != HSDP_SCOPE_FULL;
        pass->reductions[i] = u->reduction;
    }
    pass->number = 0;
    pass->n_done = 0;
    if (ret_ticket == NULL) {
        return HSDP_OK;
    }
    pass->work.progress = ending_progress;
    pass->work.blocker = ending_blocker;
    pass->work.order = ending_order;
    pass->work.finish = ending_finish;
    pass->is_ending = true;
    return job_work_start(model->job, &pass->work, ret_ticket, reterr);
}

void passes_free(struct hsdp_model *model)
{
    while (model->passes != NULL) {
        struct pass *pass = model->passes;

        model->passes = pass->next;
        if (pass->is_ending) {
            job_work_cancel(model->job, &pass->work);
        }
        pass_free(pass);
    }
}

/* --------------------------------------------------------------- gradients from elsewhere */

int32_t unit_grad_add(struct hsdp_model *model, uint32_t param, const struct hsdp_tensor *grad,
                      void *stream, struct hsdp_error *reterr)
{
    struct contribution contribution = {.joins_handed = false, .stream = stream};
    struct tensor_wanted wanted = {.call = "unit.grad_add", .space = model->space};
    const struct plan_param *p;
    int32_t status;

    if (param >= model->plan->n_params) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "unit.grad_add: parameter %" PRIu32 " of %" PRIu32, param,
                         model->plan->n_params);
    }
    contribution.param = model->plan->params[param].storage;
    p = &model->plan->params[contribution.param];
    wanted.param = p;
    status = model_idle_check(model, "unit.grad_add", reterr);
    if (status == HSDP_OK) {
        status = tensor_check(&wanted, grad, &contribution.dtype, reterr);
    }
    if (status == HSDP_OK && (p->flags & HSDP_PARAM_FROZEN) != 0) {
        status = error_set(reterr, HSDP_ERR_INVALID,
                           "unit.grad_add: \"%s\" is frozen and has no gradient", p->name);
    }
    if (status != HSDP_OK) {
        return status;
    }
    contribution.values = tensor_base(grad);
    return contribution_add(model, &contribution, reterr);
}
