/* SPDX-License-Identifier: Apache-2.0 */
/* Ties over stages: one parameter, of which other ranks hold copies under the same name. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* The ranks that a selector picks, seen from another rank. */
static void ranks_of(const hsdp_model *model, const char *selector, uint32_t rank,
                     struct ranks *ret)
{
    uint64_t n = 0;

    reference_mesh.members(model->mesh, selector, rank, ret->ranks, MOST_RANKS, &n, NULL);
    ret->n = (uint32_t)n;
}

static const char *tie_of(const hsdp_model *model, uint32_t param)
{
    return model->params[param].is_storage ? plan_tied_over(model->plan, param) : NULL;
}

/* ---------------------------------------------------------------------------------------- sums */

/* All ranks whose gradients of a parameter are added: stage after stage. */
static void tie_members(const hsdp_model *model, uint32_t param, struct ranks *ret)
{
    const struct unit *unit = &model->units[model->params[param].info.unit];
    const char *reduced = strcmp(unit->group, "self") == 0 ? "" : unit->group;
    struct ranks holders, ranks;

    ret->n = 0;
    ranks_of(model, tie_of(model, param), model->job->launch.rank, &holders);
    for (uint32_t h = 0; h < holders.n; h++) {
        ranks_of(model, reduced, holders.ranks[h], &ranks);
        for (uint32_t i = 0; i < ranks.n && ret->n < MOST_RANKS; i++) {
            ret->ranks[ret->n++] = ranks.ranks[i];
        }
    }
}

static void tie_summed(void *context, struct packet *answer)
{
    struct param *param = context;
    size_t n_bytes;
    const void *sums = packet_get_blob(answer, &n_bytes);

    memcpy(param->tied_sum, sums, n_bytes);
}

static int32_t tie_reduce(const struct call *call, hsdp_model *model, uint32_t param,
                          uint64_t *ticket)
{
    struct param *p = &model->params[param];
    struct unit *unit = &model->units[p->info.unit];
    struct request request = {.operation = "tie", .group = "", .unit = unit->name, .sentence = ""};
    struct meeting_text text;
    struct ranks members;
    bool is_first = unit->reduced.ranks[0] == model->job->launch.rank;
    double *values = calloc(p->info.n_elems + 1, sizeof(*values));
    int32_t status;

    if (values == NULL) {
        return unit_refuse(call, model, p->info.unit, HSDP_ERR_NO_MEMORY,
                           "has no memory for a tie");
    }
    if (is_first && unit->has_sum) { /* the others of this stage have the same sum */
        memcpy(values, unit->sum + p->packed, p->info.n_elems * sizeof(*values));
    }
    tie_members(model, param, &members);
    p->tied_sum = unit->sum + p->packed;
    unit->has_sum = true;
    request.key = text.key;
    request.alike = p->info.name;
    request.members = members.ranks;
    request.n_members = members.n;
    request.combine = COMBINE_REDUCE;
    request.element = ELEMENT_FP64;
    request.sequence = model->n_steps + 1;
    request.timeout_ms = job_timeout_ms(model->job);
    request.payload = values;
    request.payload_bytes = p->info.n_elems * sizeof(*values);
    snprintf(text.key, sizeof(text.key), "model.%" PRIu64 ".tie.%" PRIu64 ".%.40s", model->number,
             request.sequence, p->info.name);
    status =
        job_request(call, model->job, &request, (struct follow_up){tie_summed, p, model}, ticket);
    free(values);
    return status;
}

int32_t ties_reduce(const struct call *call, hsdp_model *model)
{
    uint64_t ticket = 0;
    int32_t status = HSDP_OK;

    for (uint32_t p = 0; p < model->n_params && status == HSDP_OK; p++) {
        if (tie_of(model, p) != NULL && !model->params[p].is_frozen) {
            status = tie_reduce(call, model, p, &ticket);
        }
    }
    return status == HSDP_OK && ticket != 0 ? job_wait(call, model->job, ticket, UINT64_MAX)
                                            : status;
}

/* ---------------------------------------------------------------------------------------- sync */

/* Master and states of a parameter: -1 is the master. */
static bool array_find(const hsdp_model *model, uint32_t param, int32_t array, struct flat *ret)
{
    const struct hsdp_param_info *info = &model->params[param].info;

    return flat_find(model, info->unit, info->buffer,
                     array < 0 ? HSDP_FLAT_MASTER : HSDP_FLAT_STATE + array, ret);
}

static bool tie_write(const hsdp_model *model, uint32_t param, struct packet *packet)
{
    const struct hsdp_segment *segment;
    struct walk walk;
    struct flat flat;

    if (!walk_begin(model, model->params[param].info.unit, HSDP_SHARD_STEP, model->job->launch.rank,
                    &walk)) {
        walk_end(&walk);
        return false;
    }
    while ((segment = walk_next(&walk)) != NULL) {
        for (int32_t a = -1; a < (int32_t)model->n_states; a++) {
            if (segment->param != param || !array_find(model, param, a, &flat)) {
                continue;
            }
            packet_put_text(packet, model->params[param].info.name);
            packet_put_number(packet, (uint64_t)(a + 1));
            packet_put_number(packet, segment->param_offset_elems);
            packet_put_blob(packet,
                            flat.base + segment->shard_offset_elems * dtype_bytes(flat.dtype),
                            segment->n_elems * dtype_bytes(flat.dtype));
        }
    }
    walk_end(&walk);
    return true;
}

/* One run of values of the first holder: what of it is in this rank's shard is taken. */
static void run_take(const hsdp_model *model, uint32_t param, int32_t array, uint64_t offset,
                     const unsigned char *values, size_t n_bytes)
{
    const struct hsdp_segment *s;
    struct walk walk;
    struct flat flat;

    if (!array_find(model, param, array, &flat) ||
        !walk_begin(model, model->params[param].info.unit, HSDP_SHARD_STEP, model->job->launch.rank,
                    &walk)) {
        return;
    }
    while ((s = walk_next(&walk)) != NULL) {
        uint64_t end = offset + n_bytes / dtype_bytes(flat.dtype);
        uint64_t from = s->param_offset_elems > offset ? s->param_offset_elems : offset;
        uint64_t to =
            s->param_offset_elems + s->n_elems < end ? s->param_offset_elems + s->n_elems : end;

        if (s->param == param && from < to) {
            memcpy(flat.base + (s->shard_offset_elems + from - s->param_offset_elems) *
                                   dtype_bytes(flat.dtype),
                   values + (from - offset) * dtype_bytes(flat.dtype),
                   (to - from) * dtype_bytes(flat.dtype));
        }
    }
    walk_end(&walk);
}

/* Reads what one rank has written, and takes the runs of one parameter. */
static void tie_read(const hsdp_model *model, uint32_t param, struct packet part)
{
    while (part.at < part.n_bytes && !part.is_bad) {
        const char *name = packet_get_text(&part);
        int32_t array = (int32_t)packet_get_number(&part) - 1;
        uint64_t offset = packet_get_number(&part);
        size_t n_bytes;
        const unsigned char *values = packet_get_blob(&part, &n_bytes);

        if (strcmp(name, model->params[param].info.name) == 0) {
            run_take(model, param, array, offset, values, n_bytes);
        }
    }
}

/* The ranks that hold the shards of a parameter's first holder. */
static void first_holders(const hsdp_model *model, uint32_t param, struct ranks *ret)
{
    const struct unit *unit = &model->units[model->params[param].info.unit];
    struct hsdp_class_info klass = HSDP_CLASS_INFO_INIT;
    struct ranks holders;

    reference_plan.class_info(model->plan, unit->class_index, &klass, NULL);
    ranks_of(model, tie_of(model, param), model->job->launch.rank, &holders);
    ranks_of(model, klass.step_dims, holders.ranks[0], ret);
}

static void ties_take(const hsdp_model *model, struct packet answer)
{
    for (uint32_t r = 0; r < model->job->launch.world_ranks; r++) {
        size_t n_bytes;
        const void *blob = packet_get_blob(&answer, &n_bytes);
        struct packet part = {.bytes = (unsigned char *)blob, .n_bytes = n_bytes};

        for (uint32_t p = 0; p < model->n_params; p++) {
            struct ranks first;

            if (tie_of(model, p) == NULL) {
                continue;
            }
            first_holders(model, p, &first);
            for (uint32_t i = 0; i < first.n; i++) {
                if (first.ranks[i] == r) {
                    tie_read(model, p, part);
                }
            }
        }
    }
}

int32_t ties_sync(const struct call *call, hsdp_model *model)
{
    struct packet payload = {0}, answer = {0};
    struct meeting_text text;
    struct request request;
    int32_t status;

    for (uint32_t p = 0; p < model->n_params; p++) {
        if (tie_of(model, p) != NULL && !tie_write(model, p, &payload)) {
            payload.is_bad = true;
        }
    }
    request_of_job(call, model->job, &text, &request);
    request.payload = payload.bytes != NULL ? payload.bytes : (unsigned char *)"";
    request.payload_bytes = payload.n_bytes;
    request.refusal = payload.is_bad ? HSDP_ERR_NO_MEMORY : HSDP_OK;
    request.sentence = "no memory";
    status = job_meet(call, model->job, &request, &answer);
    if (status == HSDP_OK) {
        ties_take(model, answer);
    }
    packet_free(&payload);
    packet_free(&answer);
    return status;
}
