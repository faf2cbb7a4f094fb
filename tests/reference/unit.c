/* SPDX-License-Identifier: Apache-2.0 */
/* Units: unshard, release, and gradients from elsewhere. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model.h"
#include "text.h"

/* --------------------------------------------------------------------------- what the host sees */

void params_show(const hsdp_model *model, const struct unit *unit, bool is_shown)
{
    for (uint32_t b = 0; b < unit->n_buffers && model->verifies_access; b++) {
        mprotect(unit->buffers[b].params_read, unit->buffers[b].params_bytes,
                 is_shown ? PROT_READ : PROT_NONE);
    }
}

void grads_show(const hsdp_model *model, uint32_t unit, bool is_shown)
{
    const struct unit *u = &model->units[unit];
    int protection = is_shown ? PROT_READ | PROT_WRITE : PROT_READ;

    if (!model->verifies_access) {
        return;
    }
    for (uint32_t b = 0; b < u->n_buffers; b++) {
        if (u->buffers[b].grads != NULL) {
            mprotect(u->buffers[b].grads, u->buffers[b].grads_bytes, protection);
        }
    }
    for (uint32_t p = 0; p < model->n_params; p++) {
        if (model->params[p].info.unit == unit && model->params[p].alias_grads != NULL) {
            mprotect(model->params[p].alias_grads,
                     page_round(model->params[p].info.n_elems * dtype_bytes(u->gradient_dtype)),
                     protection);
        }
    }
}

/* The units whose parameters a unit uses: itself, and those of its aliases. One at a time. */
static struct unit *storage_next(hsdp_model *model, uint32_t unit, uint32_t *param)
{
    while (*param < model->n_params) {
        const struct param *p = &model->params[(*param)++];

        if (p->is_alias && p->info.unit == unit) {
            return &model->units[model->params[p->info.storage].info.unit];
        }
    }
    return NULL;
}

static void reader_add(const hsdp_model *model, struct unit *unit)
{
    if (unit->n_readers++ == 0) {
        params_show(model, unit, true);
    }
}

static void reader_remove(const hsdp_model *model, struct unit *unit)
{
    if (--unit->n_readers == 0) {
        params_show(model, unit, false);
    }
}

/* -------------------------------------------------------------------------------------- unshard */

static void grads_zero(hsdp_model *model, uint32_t unit)
{
    struct unit *u = &model->units[unit];

    for (uint32_t b = 0; b < u->n_buffers; b++) {
        if (u->buffers[b].grads != NULL) {
            memset(u->buffers[b].grads, 0, u->buffers[b].grads_bytes);
        }
    }
    for (uint32_t p = 0; p < model->n_params; p++) {
        if (model->params[p].info.unit == unit && model->params[p].alias_grads != NULL) {
            memset(model->params[p].alias_grads, 0,
                   model->params[p].info.n_elems * dtype_bytes(u->gradient_dtype));
        }
    }
}

/* Whether the gradient buffer may be acquired. */
static int32_t acquire_check(const struct call *call, const hsdp_model *model, uint32_t unit)
{
    const struct unit *u = &model->units[unit];

    if (u->pass == NULL) {
        return unit_refuse(call, model, unit, HSDP_ERR_STATE,
                           "is in no open backward pass; unit.backward_begin was expected");
    }
    if (u->phase != UNIT_LISTED) {
        return unit_refuse(
            call, model, unit, HSDP_ERR_STATE, "%s in this pass already; unit.%s was expected",
            u->phase == UNIT_ACQUIRED ? "has acquired its gradient buffer" : "was handed over",
            u->phase == UNIT_ACQUIRED ? "reduce" : "backward_end");
    }
    if (u->is_trainable && u->position >= u->pass->turn + model->n_slots) {
        return unit_refuse(call, model, unit, HSDP_ERR_STATE,
                           "is %" PRIu64 " units ahead of \"%s\", which was not handed over; "
                           "the plan has slots=%" PRIu64,
                           u->position - u->pass->turn,
                           model->units[u->pass->units[u->pass->turn]].name, model->n_slots);
    }
    return HSDP_OK;
}

static int32_t unshard_check(const struct call *call, const hsdp_model *model, uint32_t unit,
                             int32_t use, const void *stream)
{
    int32_t status = unit_check(call, model, unit);

    if (status != HSDP_OK) {
        return status;
    }
    if (use < HSDP_USE_FORWARD || use > HSDP_USE_BACKWARD_SET) {
        return unit_refuse(
            call, model, unit, HSDP_ERR_INVALID,
            "was to be used as %" PRId32 "; 0 (forward), 1 and 2 (backward) are allowed", use);
    }
    status = stream_check(call, stream);
    if (status != HSDP_OK) {
        return status;
    }
    if (model->step.is_open || model->is_editing) {
        return unit_refuse(call, model, unit, HSDP_ERR_STATE,
                           "is to be used while %s is open; %s was expected",
                           model->step.is_open ? "a step" : "an edit",
                           model->step.is_open ? "step.end" : "model.edit_end");
    }
    return use == HSDP_USE_FORWARD ? HSDP_OK : acquire_check(call, model, unit);
}

/* Counts the use; notes it where the unit was released before, as its peers do. */
static void use_add(hsdp_model *model, uint32_t unit)
{
    struct unit *u = &model->units[unit];
    struct unit *storage;
    uint32_t param = 0;

    if (u->n_uses++ == 0) {
        packet_put_text(&model->logs[u->class_index].made_whole, u->name);
        model->job->counts[COUNT_UNSHARDS]++;
    }
    reader_add(model, u);
    while ((storage = storage_next(model, unit, &param)) != NULL) {
        reader_add(model, storage);
    }
}

static int32_t table_unshard(hsdp_model *model, uint32_t unit, int32_t use, void *stream,
                             uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    const struct call call = {"unit.unshard", reterr};
    int32_t status = model_enter(&call, model);
    struct unit *u;

    if (status != HSDP_OK) {
        return status;
    }
    status = unshard_check(&call, model, unit, use, stream);
    if (status != HSDP_OK) {
        return job_leave(model->job, status);
    }
    u = &model->units[unit];
    if (ret_ticket == NULL) { /* all units were published under one ticket */
        status = job_wait(&call, model->job, u->publish_ticket, UINT64_MAX);
    }
    if (status != HSDP_OK) {
        return job_leave(model->job, status);
    }
    use_add(model, unit);
    if (use != HSDP_USE_FORWARD) {
        u->phase = UNIT_ACQUIRED;
        grads_show(model, unit, true);
    }
    if (use == HSDP_USE_BACKWARD) {
        grads_zero(model, unit);
    }
    if (ret_ticket != NULL) {
        *ret_ticket = u->publish_ticket;
    }
    return job_leave(model->job, HSDP_OK);
}

static int32_t table_release(hsdp_model *model, uint32_t unit, void *stream,
                             struct hsdp_error *reterr)
{
    const struct call call = {"unit.release", reterr};
    int32_t status = model_enter(&call, model);
    struct unit *storage;
    uint32_t param = 0;

    if (status != HSDP_OK) {
        return status;
    }
    status = unit_check(&call, model, unit);
    if (status == HSDP_OK) {
        status = stream_check(&call, stream);
    }
    if (status == HSDP_OK && model->units[unit].n_uses == 0) {
        status = unit_refuse(&call, model, unit, HSDP_ERR_STATE,
                             "is not unsharded; unit.unshard was expected");
    } else if (status == HSDP_OK && model->units[unit].n_uses == 1 &&
               model->units[unit].phase == UNIT_ACQUIRED) {
        status = unit_refuse(&call, model, unit, HSDP_ERR_STATE,
                             "holds a gradient that was not handed over; unit.reduce was "
                             "expected");
    }
    if (status == HSDP_OK) {
        model->units[unit].n_uses--;
        reader_remove(model, &model->units[unit]);
        while ((storage = storage_next(model, unit, &param)) != NULL) {
            reader_remove(model, storage);
        }
    }
    return job_leave(model->job, status);
}

/* ------------------------------------------------------------------------------------- grad_add */

static int32_t grad_add_check(const struct call *call, const hsdp_model *model, uint32_t param,
                              const struct hsdp_tensor *grad, enum dtype *ret_dtype)
{
    int32_t status = param_check(call, model, param);

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(call, "grad", grad)) {
        return HSDP_ERR_INVALID;
    }
    if (model->params[param].is_frozen) {
        return error_raise(call, HSDP_ERR_INVALID, "%s: \"%s\" is frozen and has no gradient",
                           call->name, model->params[param].info.name);
    }
    if (model->step.is_open) {
        return error_raise(call, HSDP_ERR_STATE, "%s: a step is open; step.end was expected",
                           call->name);
    }
    return tensor_check(call, model, param, grad, ret_dtype);
}

static int32_t table_grad_add(hsdp_model *model, uint32_t param, const struct hsdp_tensor *grad,
                              void *stream, struct hsdp_error *reterr)
{
    const struct call call = {"unit.grad_add", reterr};
    int32_t status = model_enter(&call, model);
    const struct param *storage;
    struct unit *unit;
    enum dtype dtype;

    if (status != HSDP_OK) {
        return status;
    }
    status = stream_check(&call, stream);
    if (status == HSDP_OK) {
        status = grad_add_check(&call, model, param, grad, &dtype);
    }
    if (status != HSDP_OK) {
        return job_leave(model->job, status);
    }
    storage = &model->params[model->params[param].info.storage];
    unit = &model->units[storage->info.unit];
    for (uint64_t i = 0; i < storage->info.n_elems; i++) {
        unit->extra[storage->packed + i] += element_read(tensor_at(grad), dtype, i);
    }
    unit->has_extra = true;
    return job_leave(model->job, HSDP_OK);
}

/* -------------------------------------------------------------------------------------- compare */

/* The units made whole, a line each; NULL if there is no memory. */
static char *lines_take(struct packet *made_whole)
{
    struct text lines;
    char *chars;
    bool is_open = text_open(&lines);

    while (is_open && made_whole->at < made_whole->n_bytes && !made_whole->is_bad) {
        fprintf(lines.file, "unit \"%s\"\n", packet_get_text(made_whole));
    }
    chars = text_take(&lines);
    if (made_whole->is_bad) {
        free(chars);
        chars = NULL;
    }
    packet_free(made_whole);
    return chars;
}

static int32_t class_compare(const struct call *call, hsdp_model *model, uint32_t class_index)
{
    struct class_log *log = &model->logs[class_index];
    struct request request = {
        .operation = "unit.unshard", .group = "", .unit = "", .sentence = "", .payload = ""};
    struct meeting_text text;
    char *lines = lines_take(&log->made_whole);
    uint64_t ticket = 0;
    int32_t status;

    if (lines == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    if (log->resting.n == 1) {
        free(lines);
        return HSDP_OK;
    }
    request.key = text.key;
    request.members = log->resting.ranks;
    request.n_members = log->resting.n;
    request.alike = lines;
    request.sequence = ++log->n_compared;
    request.timeout_ms = job_timeout_ms(model->job);
    snprintf(text.key, sizeof(text.key), "model.%" PRIu64 ".uses.%" PRIu32 ".%" PRIu64,
             model->number, class_index, request.sequence);
    status =
        job_request(call, model->job, &request, (struct follow_up){NULL, NULL, model}, &ticket);
    free(lines);
    return status;
}

int32_t uses_compare(const struct call *call, hsdp_model *model)
{
    int32_t status = HSDP_OK;

    for (uint32_t c = 0; c < model->n_classes && status == HSDP_OK; c++) {
        status = class_compare(call, model, c);
    }
    return status;
}

const struct hsdp_unit_ops reference_unit = {
    .struct_size = sizeof(struct hsdp_unit_ops),
    .unshard = table_unshard,
    .release = table_release,
    .grad_add = table_grad_add,
    .backward_begin = pass_begin,
    .reduce = pass_reduce,
    .skip = pass_skip,
    .backward_end = pass_end,
};
