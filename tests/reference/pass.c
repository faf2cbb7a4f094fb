/* SPDX-License-Identifier: Apache-2.0 */
/* Backward passes: what is handed over, and when it is added up over which ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "text.h"

static const char *const scope_names[] = {"none", "inner", "full"};

/* ---------------------------------------------------------------------------------------- begin */

/* A unit with a name for a parameter of another one comes before that. */
static int32_t alias_check(const struct call *call, const hsdp_model *model, const uint32_t *units,
                           uint64_t index)
{
    for (uint32_t p = 0; p < model->n_params; p++) {
        const struct param *param = &model->params[p];
        uint32_t storage = model->params[param->info.storage].info.unit;

        if (!param->is_alias || param->is_frozen || param->info.unit != units[index]) {
            continue;
        }
        for (uint64_t before = 0; before < index; before++) {
            if (units[before] == storage) {
                return unit_refuse(call, model, units[index], HSDP_ERR_INVALID,
                                   "has the name \"%s\" for a parameter of unit \"%s\", which "
                                   "is listed before it",
                                   param->info.name, model->units[storage].name);
            }
        }
    }
    return HSDP_OK;
}

static int32_t units_check(const struct call *call, const hsdp_model *model, const uint32_t *units,
                           uint64_t n_units)
{
    int32_t status = HSDP_OK;

    for (uint64_t i = 0; i < n_units && status == HSDP_OK; i++) {
        status = unit_check(call, model, units[i]);
        if (status == HSDP_OK && model->units[units[i]].pass != NULL) {
            status =
                unit_refuse(call, model, units[i], HSDP_ERR_STATE,
                            "is in pass %" PRIu64 ", which is open; unit.backward_end was expected",
                            model->units[units[i]].pass->number);
        }
        for (uint64_t before = 0; before < i && status == HSDP_OK; before++) {
            if (units[before] == units[i]) {
                status = unit_refuse(call, model, units[i], HSDP_ERR_INVALID, "is listed twice");
            }
        }
        if (status == HSDP_OK) {
            status = alias_check(call, model, units, i);
        }
    }
    return status;
}

static int32_t begin_check(const struct call *call, const hsdp_model *model, const uint32_t *units,
                           uint64_t n_units, int32_t scope)
{
    if (scope < HSDP_SCOPE_NONE || scope > HSDP_SCOPE_FULL) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: scope %" PRId32 "; 0 (none), 1 (inner) and 2 (full) are allowed",
                           call->name, scope);
    }
    if (model->step.is_open || model->is_editing) {
        return error_raise(call, HSDP_ERR_STATE, "%s: %s is open; %s was expected", call->name,
                           model->step.is_open ? "a step" : "an edit",
                           model->step.is_open ? "step.end" : "model.edit_end");
    }
    if (scope != HSDP_SCOPE_FULL && scope != model->scope) {
        return error_raise(call, HSDP_ERR_STATE,
                           "%s: scope %s, but memory is planned for accumulation_scope=%s; that or "
                           "full was expected",
                           call->name, scope_names[scope], scope_names[model->scope]);
    }
    return units_check(call, model, units, n_units);
}

/* What a pass has of a class, a line each unit; NULL if there is no memory. */
static char *lines_make(const hsdp_model *model, const struct pass *pass, uint32_t class_index)
{
    struct text lines;

    if (!text_open(&lines)) {
        return NULL;
    }
    fprintf(lines.file, "scope %s\n", scope_names[pass->scope]);
    for (uint64_t i = 0; i < pass->n_units; i++) {
        const struct unit *unit = &model->units[pass->units[i]];

        if (unit->class_index == class_index) {
            fprintf(lines.file, "unit \"%s\"\n", unit->name);
        }
    }
    return text_take(&lines);
}

/* The ranks of a class compare what they have declared of it. */
static int32_t pass_declare(const struct call *call, hsdp_model *model, const struct pass *pass,
                            uint32_t class_index)
{
    struct request request = {
        .operation = call->name, .group = "", .unit = "", .sentence = "", .payload = ""};
    const struct unit *first = NULL;
    struct meeting_text text;
    char *lines;
    uint64_t ticket = 0;
    int32_t status;

    for (uint64_t i = 0; i < pass->n_units && first == NULL; i++) {
        const struct unit *unit = &model->units[pass->units[i]];

        first = unit->class_index == class_index ? unit : NULL;
    }
    if (first == NULL || first->reduced.n == 1) {
        return HSDP_OK;
    }
    lines = lines_make(model, pass, class_index);
    if (lines == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    request.key = text.key;
    request.members = first->reduced.ranks;
    request.n_members = first->reduced.n;
    request.alike = lines;
    request.sequence = ++model->logs[class_index].n_passes;
    request.timeout_ms = job_timeout_ms(model->job);
    snprintf(text.key, sizeof(text.key), "model.%" PRIu64 ".pass.%" PRIu32 ".%" PRIu64,
             model->number, class_index, request.sequence);
    status =
        job_request(call, model->job, &request, (struct follow_up){NULL, NULL, model}, &ticket);
    free(lines);
    return status;
}

static struct pass *pass_make(hsdp_model *model, const uint32_t *units, uint64_t n_units,
                              int32_t scope)
{
    struct pass *pass = calloc(1, sizeof(*pass));

    if (pass == NULL) {
        return NULL;
    }
    pass->units = calloc((size_t)n_units + 1, sizeof(*pass->units));
    if (pass->units == NULL) {
        free(pass);
        return NULL;
    }
    pass->number = ++model->n_passes;
    pass->scope = scope;
    pass->n_units = n_units;
    for (uint64_t i = 0; i < n_units; i++) {
        pass->units[i] = units[i];
        model->units[units[i]].pass = pass;
        model->units[units[i]].position = i;
        model->units[units[i]].phase = UNIT_LISTED;
        model->units[units[i]].was_skipped = false;
    }
    pass->next = model->passes;
    model->passes = pass;
    return pass;
}

void pass_free(hsdp_model *model, struct pass *pass)
{
    struct pass **at = &model->passes;

    while (*at != pass) {
        at = &(*at)->next;
    }
    *at = pass->next;
    for (uint64_t i = 0; i < pass->n_units; i++) {
        model->units[pass->units[i]].pass = NULL;
        model->units[pass->units[i]].phase = UNIT_FREE;
    }
    free(pass->units);
    free(pass);
}

static int32_t pass_go_on(const struct call *call, hsdp_model *model, struct pass *pass);

int32_t pass_begin(hsdp_model *model, const uint32_t *units, uint64_t n_units, int32_t scope,
                   uint64_t *ret_pass, struct hsdp_error *reterr)
{
    const struct call call = {"unit.backward_begin", reterr};
    int32_t status = model_enter(&call, model);
    struct pass *pass;

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has_array(&call, "units", units, n_units) || !call_has(&call, "ret_pass", ret_pass)) {
        return job_leave(model->job, HSDP_ERR_INVALID);
    }
    status = begin_check(&call, model, units, n_units, scope);
    if (status != HSDP_OK) {
        return job_leave(model->job, status);
    }
    pass = pass_make(model, units, n_units, scope);
    if (pass == NULL) {
        return job_leave(model->job,
                         error_raise(&call, HSDP_ERR_NO_MEMORY, "%s: no memory", call.name));
    }
    for (uint32_t c = 0; c < model->n_classes && status == HSDP_OK; c++) {
        status = pass_declare(&call, model, pass, c);
    }
    if (status == HSDP_OK) {
        status = pass_go_on(&call, model, pass); /* frozen units in front hold up nobody */
    }
    if (status == HSDP_OK) {
        *ret_pass = pass->number;
    }
    return job_leave(model->job, status);
}

/* ------------------------------------------------------------------------------------ hand over */

/* Gathers what this rank contributes: the gradient views, and what grad_add has brought. */
static void unit_collect(const hsdp_model *model, uint32_t unit)
{
    struct unit *u = &model->units[unit];

    memset(u->handed, 0, u->n_packed * sizeof(float));
    for (uint32_t p = 0; p < model->n_params && !u->was_skipped; p++) {
        const struct param *param = &model->params[p];
        const struct buffer *buffer = &u->buffers[param->info.buffer];

        if (param->info.unit != unit || !param->is_storage || param->is_frozen) {
            continue;
        }
        for (uint64_t i = 0; i < param->info.n_elems; i++) {
            u->handed[param->packed + i] =
                element_read(buffer->grads, u->gradient_dtype, param->info.offset_elems + i);
        }
    }
    for (uint64_t i = 0; i < u->n_packed && u->has_extra; i++) {
        u->handed[i] += u->extra[i];
        u->extra[i] = 0.0f;
    }
    u->has_extra = false;
}

/* Gradients of names for parameters of other units join those. */
static void aliases_add(hsdp_model *model, uint32_t unit)
{
    const struct unit *u = &model->units[unit];

    for (uint32_t p = 0; p < model->n_params; p++) {
        const struct param *param = &model->params[p];
        const struct param *storage = &model->params[param->info.storage];
        struct unit *other = &model->units[storage->info.unit];
        bool is_handed = other->pass == u->pass && other->phase == UNIT_HANDED;

        if (!param->is_alias || param->is_frozen || param->info.unit != unit || u->was_skipped) {
            continue;
        }
        for (uint64_t i = 0; i < param->info.n_elems; i++) {
            float value = element_read(param->alias_grads, u->gradient_dtype, i);

            (is_handed ? other->handed : other->extra)[storage->packed + i] += value;
        }
        other->has_extra = other->has_extra || !is_handed;
    }
}

/* --------------------------------------------------------------------------------------- reduce */

static void unit_summed(void *context, struct packet *answer)
{
    struct publication *about = context;
    struct unit *u = &about->model->units[about->unit];
    size_t n_bytes;
    const double *sums = packet_get_blob(answer, &n_bytes);

    for (uint64_t i = 0; i < u->n_packed; i++) {
        u->sum[i] += sums[i];
    }
    u->has_sum = true;
}

/* The sum over the inner ranks: this rank keeps its slice. */
static void unit_rested(void *context, struct packet *answer)
{
    struct publication *about = context;
    struct unit *u = &about->model->units[about->unit];
    const struct hsdp_segment *segment;
    size_t n_bytes;
    const double *sums = packet_get_blob(answer, &n_bytes);
    struct walk walk;

    walk_begin(about->model, about->unit, HSDP_SHARD_GRAD, about->model->job->launch.rank, &walk);
    while ((segment = walk_next(&walk)) != NULL) {
        uint64_t at = segment_packed(about->model, segment);

        for (uint64_t i = 0;
             !about->model->params[segment->param].is_frozen && i < segment->n_elems; i++) {
            u->rest[at + i] = (float)(u->rest[at + i] + sums[at + i]);
        }
    }
}

/* What goes out: rounded once, but what is a sum already is not. */
static void values_fill(struct unit *u, int32_t scope, double *values)
{
    for (uint64_t i = 0; i < u->n_packed; i++) {
        float own = u->has_local ? u->local[i] + u->handed[i] : u->handed[i];

        values[i] = (double)element_round(own, u->reduce_dtype);
        if (scope == HSDP_SCOPE_FULL) {
            values[i] += (double)u->rest[i];
            u->local[i] = u->rest[i] = 0.0f;
        }
    }
    if (scope == HSDP_SCOPE_FULL) {
        u->has_local = u->has_rest = false;
    } else {
        u->has_rest = true;
    }
}

static int32_t unit_send(const struct call *call, hsdp_model *model, uint32_t unit)
{
    struct unit *u = &model->units[unit];
    bool is_full = u->pass->scope == HSDP_SCOPE_FULL;
    struct request request = {.operation = "reduce",
                              .group = u->group,
                              .unit = u->name,
                              .sentence = "",
                              .combine = COMBINE_REDUCE,
                              .element = ELEMENT_FP64};
    double *values = calloc(u->n_packed + 1, sizeof(*values));
    struct meeting_text text;
    int32_t status;

    if (values == NULL) {
        return unit_refuse(call, model, unit, HSDP_ERR_NO_MEMORY, "has no memory to reduce it");
    }
    values_fill(u, u->pass->scope, values);
    request.key = text.key;
    request.members = is_full ? u->reduced.ranks : u->resting.ranks;
    request.n_members = is_full ? u->reduced.n : u->resting.n;
    request.alike = scope_names[u->pass->scope];
    request.sequence = ++u->n_reductions;
    request.timeout_ms = job_timeout_ms(model->job);
    request.payload = values;
    request.payload_bytes = u->n_packed * sizeof(*values);
    snprintf(text.key, sizeof(text.key), "model.%" PRIu64 ".reduce.%" PRIu32 ".%" PRIu64,
             model->number, unit, request.sequence);
    status =
        job_request(call, model->job, &request,
                    (struct follow_up){is_full ? unit_summed : unit_rested, &u->publication, model},
                    &u->reduce_ticket);
    free(values);
    return status;
}

static int32_t unit_reduce(const struct call *call, hsdp_model *model, uint32_t unit)
{
    struct unit *u = &model->units[unit];

    aliases_add(model, unit);
    u->phase = UNIT_DONE;
    if (u->pass->scope != HSDP_SCOPE_NONE) {
        model->job->counts[COUNT_REDUCTIONS]++;
        return unit_send(call, model, unit);
    }
    for (uint64_t i = 0; i < u->n_packed; i++) {
        u->local[i] = u->has_local ? u->local[i] + u->handed[i] : u->handed[i];
    }
    u->has_local = true;
    job_settle(model->job, u->reduce_ticket);
    return HSDP_OK;
}

/* Reduces what is due, in the order of the pass. */
static int32_t pass_go_on(const struct call *call, hsdp_model *model, struct pass *pass)
{
    int32_t status = HSDP_OK;

    while (status == HSDP_OK && pass->turn < pass->n_units) {
        const struct unit *next = &model->units[pass->units[pass->turn]];

        if (next->is_trainable && next->phase != UNIT_HANDED) {
            break;
        }
        if (next->is_trainable) { /* nobody waits for the others */
            status = unit_reduce(call, model, pass->units[pass->turn]);
        }
        pass->turn++;
    }
    return status;
}

static int32_t unit_hand_over(const struct call *call, hsdp_model *model, uint32_t unit,
                              bool is_skip)
{
    struct unit *u = &model->units[unit];
    int32_t status = job_wait(call, model->job, u->reduce_ticket, UINT64_MAX); /* the pass before */

    if (status == HSDP_OK) {
        status = job_reserve(call, model->job, model, u->name, &u->reduce_ticket);
    }
    if (status == HSDP_OK) {
        u->was_skipped = is_skip;
        unit_collect(model, unit);
        grads_show(model, unit, false);
        u->phase = UNIT_HANDED;
        if (!u->is_trainable) {
            job_settle(model->job, u->reduce_ticket);
        }
    }
    return status;
}

/* ---------------------------------------------------------------------------------------- table */

static int32_t pass_find(const struct call *call, const hsdp_model *model, uint64_t number,
                         struct pass **ret)
{
    struct pass *pass = model->passes;

    while (pass != NULL && pass->number != number) {
        pass = pass->next;
    }
    if (pass == NULL) {
        return error_raise(
            call, number == 0 || number > model->n_passes ? HSDP_ERR_INVALID : HSDP_ERR_STATE,
            "%s: pass %" PRIu64 " is not open", call->name, number);
    }
    *ret = pass;
    return HSDP_OK;
}

static int32_t due_check(const struct call *call, const hsdp_model *model, const struct pass *pass,
                         uint32_t unit, bool is_skip)
{
    const struct unit *u = &model->units[unit];

    if (u->pass != pass) {
        return unit_refuse(call, model, unit, HSDP_ERR_STATE,
                           "is not in pass %" PRIu64
                           "; a unit of unit.backward_begin's list was expected",
                           pass->number);
    }
    if (u->phase > UNIT_ACQUIRED) {
        return unit_refuse(call, model, unit, HSDP_ERR_STATE,
                           "was %s already in pass %" PRIu64
                           "; unit.backward_end was expected, or unit.grad_add for the next pass",
                           u->was_skipped ? "skipped" : "handed over", pass->number);
    }
    if (is_skip && u->phase == UNIT_ACQUIRED) {
        return unit_refuse(call, model, unit, HSDP_ERR_STATE,
                           "has acquired its gradient buffer; unit.reduce was expected");
    }
    if (!is_skip && u->phase != UNIT_ACQUIRED) {
        return unit_refuse(call, model, unit, HSDP_ERR_STATE,
                           "has no gradient buffer; unit.unshard for a backward use was "
                           "expected, or unit.skip");
    }
    return HSDP_OK;
}

static int32_t hand_over(const struct call *call, hsdp_model *model, uint64_t number, uint32_t unit,
                         bool is_skip, uint64_t *ret_ticket)
{
    int32_t status = model_enter(call, model);
    struct pass *pass = NULL;

    if (status != HSDP_OK) {
        return status;
    }
    status = pass_find(call, model, number, &pass);
    if (status == HSDP_OK) {
        status = unit_check(call, model, unit);
    }
    if (status == HSDP_OK) {
        status = due_check(call, model, pass, unit, is_skip);
    }
    if (status == HSDP_OK) {
        status = unit_hand_over(call, model, unit, is_skip);
    }
    if (status == HSDP_OK) {
        status = pass_go_on(call, model, pass);
    }
    if (status == HSDP_OK && ret_ticket != NULL) {
        *ret_ticket = model->units[unit].reduce_ticket;
    }
    return job_leave(model->job, status);
}

int32_t pass_reduce(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                    uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    const struct call call = {"unit.reduce", reterr};
    int32_t status = stream_check(&call, stream);

    return status == HSDP_OK ? hand_over(&call, model, pass, unit, false, ret_ticket) : status;
}

int32_t pass_skip(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                  uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    const struct call call = {"unit.skip", reterr};
    int32_t status = stream_check(&call, stream);

    return status == HSDP_OK ? hand_over(&call, model, pass, unit, true, ret_ticket) : status;
}

/* Skips what is left; then all of the pass has one ticket. */
static int32_t pass_finish(const struct call *call, hsdp_model *model, struct pass *pass,
                           uint64_t *ret_ticket)
{
    uint64_t *tickets;
    int32_t status = HSDP_OK;

    for (uint64_t i = 0; i < pass->n_units && status == HSDP_OK; i++) {
        if (model->units[pass->units[i]].phase == UNIT_LISTED) {
            status = unit_hand_over(call, model, pass->units[i], true);
        }
    }
    if (status == HSDP_OK) {
        status = pass_go_on(call, model, pass);
    }
    tickets = calloc((size_t)pass->n_units + 1, sizeof(*tickets));
    if (status == HSDP_OK && tickets == NULL) {
        status = error_raise(call, HSDP_ERR_NO_MEMORY, "%s: no memory", call->name);
    }
    if (status == HSDP_OK) {
        for (uint64_t i = 0; i < pass->n_units; i++) {
            tickets[i] = model->units[pass->units[i]].reduce_ticket;
        }
        *ret_ticket = job_join(model->job, tickets, pass->n_units);
        pass_free(model, pass);
    }
    free(tickets);
    return status;
}

int32_t pass_end(hsdp_model *model, uint64_t number, void *stream, uint64_t *ret_ticket,
                 struct hsdp_error *reterr)
{
    const struct call call = {"unit.backward_end", reterr};
    int32_t status = model_enter(&call, model);
    struct pass *pass = NULL;
    uint64_t ticket = 0;

    if (status != HSDP_OK) {
        return status;
    }
    status = stream_check(&call, stream);
    if (status == HSDP_OK) {
        status = pass_find(&call, model, number, &pass);
    }
    for (uint64_t i = 0; status == HSDP_OK && i < pass->n_units; i++) {
        if (model->units[pass->units[i]].phase == UNIT_ACQUIRED) {
            status = unit_refuse(&call, model, pass->units[i], HSDP_ERR_STATE,
                                 "holds a gradient that was not handed over; unit.reduce was "
                                 "expected");
        }
    }
    if (status == HSDP_OK) {
        status = pass_finish(&call, model, pass, &ticket);
    }
    if (status == HSDP_OK && ret_ticket != NULL) {
        *ret_ticket = ticket;
    }
    return job_leave(model->job, status);
}
