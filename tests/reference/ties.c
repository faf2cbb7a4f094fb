/* SPDX-License-Identifier: Apache-2.0 */
/* Ties over stages: one parameter, of which other ranks hold copies under the same name. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "text.h"

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
    return model->params[param].is_storage ? model->params[param].tied_over : NULL;
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

/* -------------------------------------------------------------------------------------- compare */

/* What is equal on all stages; units and places are not. */
static void tie_line_write(const hsdp_model *model, uint32_t param, FILE *file)
{
    const struct hsdp_param_info *p = &model->params[param].info;
    uint32_t class_index = model->units[p->unit].class_index;
    struct hsdp_class_info klass = HSDP_CLASS_INFO_INIT;
    const char *value, *source;

    reference_plan.class_info(model->plan, class_index, &klass, NULL);
    fprintf(file, "shape [");
    for (uint32_t d = 0; d < p->n_dims; d++) {
        fprintf(file, "%s%" PRId64, d == 0 ? "" : ",", p->shape[d]);
    }
    fprintf(file, "] block_elems %" PRIu64 " hyper_group %" PRIu32 " frozen %" PRIu32,
            p->block_elems, p->hyper_group, p->flags & HSDP_PARAM_FROZEN);
    fprintf(file, " divisor %" PRIu32 " replicated %s reduced %s", klass.divisor,
            klass.replicated_dims, klass.reduce_dims);
    for (int k = 0; k < N_KEYS; k++) {
        if (reference_plan.class_setting(model->plan, class_index, keys[k].name, &value, &source,
                                         NULL) == HSDP_OK) {
            fprintf(file, " %s %s", keys[k].name, value);
        }
    }
}

void ties_write(const hsdp_model *model, struct packet *packet)
{
    for (uint32_t p = 0; p < model->n_params; p++) {
        struct ranks members;

        if (tie_of(model, p) != NULL) {
            struct text text;
            char *line;

            if (text_open(&text)) {
                tie_line_write(model, p, text.file);
            }
            line = text_take(&text);
            packet->is_bad = packet->is_bad || line == NULL;
            tie_members(model, p, &members);
            packet_put_text(packet, model->params[p].info.name);
            packet_put_blob(packet, members.ranks, members.n * sizeof(uint32_t));
            packet_put_text(packet, line != NULL ? line : "");
            free(line);
        }
    }
}

struct tie {
    const char *name;
    const uint32_t *members;
    size_t n_bytes; /* of them */
    const char *line;
};

/* What a rank says of the tie of a name; false if nothing. NULL = the next one. */
static bool tie_find(struct packet *part, const char *name, struct tie *ret)
{
    while (part->at < part->n_bytes && !part->is_bad) {
        ret->name = packet_get_text(part);
        ret->members = packet_get_blob(part, &ret->n_bytes);
        ret->line = packet_get_text(part);
        if (name == NULL || strcmp(name, ret->name) == 0) {
            return true;
        }
    }
    return false;
}

static struct packet blob_at(struct packet answer, uint32_t index)
{
    struct packet part = packet_get_part(&answer);

    for (uint32_t i = 0; i < index; i++) {
        part = packet_get_part(&answer);
    }
    return part;
}

static int32_t tie_compare(const struct call *call, const hsdp_model *model, struct packet answer,
                           uint32_t rank, const struct tie *tie)
{
    for (size_t m = 0; m < tie->n_bytes / sizeof(uint32_t); m++) {
        struct packet part = blob_at(answer, tie->members[m]);
        struct hsdp_error error = HSDP_ERROR_INIT;
        struct tie other = {.line = "no such tie"};
        bool is_there = tie_find(&part, tie->name, &other);

        if (is_there && strcmp(tie->line, other.line) == 0 && tie->n_bytes == other.n_bytes &&
            memcmp(tie->members, other.members, tie->n_bytes) == 0) {
            continue;
        }
        error.status = HSDP_ERR_MISMATCH;
        snprintf(error.operation, sizeof(error.operation), "%s", call->name);
        snprintf(error.message, sizeof(error.message),
                 "%s: parameter \"%.60s\" is tied over %zu ranks: rank %" PRIu32
                 " has %.120s, rank %" PRIu32 " has %.120s",
                 call->name, tie->name, tie->n_bytes / sizeof(uint32_t), rank, tie->line,
                 tie->members[m], is_there ? other.line : "no such tie");
        job_fail(model->job, &error);
        return error_pass(call, &error);
    }
    return HSDP_OK;
}

int32_t ties_compare(const struct call *call, const hsdp_model *model, struct packet answer)
{
    int32_t status = HSDP_OK;

    for (uint32_t r = 0; r < model->job->launch.world_ranks && status == HSDP_OK; r++) {
        struct packet part = blob_at(answer, r);
        struct tie tie;

        while (status == HSDP_OK && tie_find(&part, NULL, &tie)) {
            status = tie_compare(call, model, answer, r, &tie);
        }
    }
    return status;
}

uint64_t names_count(const hsdp_model *model, uint32_t param)
{
    uint64_t n = 0;

    for (uint32_t p = 0; p < model->n_params; p++) { /* names within a unit share one view */
        n += p == param || (model->params[p].info.storage == param && model->params[p].is_alias);
    }
    return n;
}

/* Adds what one rank says to the parameters that it shares. */
static void names_add(const hsdp_model *model, struct packet part, uint32_t rank,
                      uint64_t *ret_n_names)
{
    while (part.at < part.n_bytes && !part.is_bad) {
        const char *name = packet_get_text(&part);
        uint64_t n = packet_get_number(&part);

        for (uint32_t p = 0; p < model->n_params; p++) {
            struct ranks members = {.n = 0};

            if (tie_of(model, p) != NULL && strcmp(model->params[p].info.name, name) == 0) {
                tie_members(model, p, &members);
            }
            for (uint32_t m = 0; m < members.n; m++) {
                ret_n_names[p] += members.ranks[m] == rank ? n : 0;
            }
        }
    }
}

int32_t ties_count(const struct call *call, hsdp_model *model, uint64_t *ret_n_names)
{
    struct packet payload = {0}, answer = {0};
    struct meeting_text text;
    struct request request;
    int32_t status;

    for (uint32_t p = 0; p < model->n_params; p++) {
        if (tie_of(model, p) != NULL) {
            packet_put_text(&payload, model->params[p].info.name);
            packet_put_number(&payload, names_count(model, p));
        }
    }
    request_of_job(call, model->job, &text, &request);
    request_carry(&request, &payload);
    status = job_meet(call, model->job, &request, &answer);
    for (uint32_t r = 0; r < model->job->launch.world_ranks && status == HSDP_OK; r++) {
        names_add(model, blob_at(answer, r), r, ret_n_names);
    }
    packet_free(&payload);
    packet_free(&answer);
    return status;
}

/* ---------------------------------------------------------------------------------------- sync */

/* Master and states of a parameter: -1 is the master. */
static bool array_find(const hsdp_model *model, uint32_t param, int32_t array, struct flat *ret)
{
    const struct hsdp_param_info *info = &model->params[param].info;

    return flat_find(model, info->unit, info->buffer,
                     array < 0 ? HSDP_FLAT_MASTER : HSDP_FLAT_STATE + array, ret);
}

static void tie_write(const hsdp_model *model, uint32_t param, struct packet *packet)
{
    const struct hsdp_segment *segment;
    struct walk walk;
    struct flat flat;

    walk_begin(model, model->params[param].info.unit, HSDP_SHARD_STEP, model->job->launch.rank,
               &walk);
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
}

/* One run of values of the first holder: what of it is in this rank's shard is taken. */
static void run_take(const hsdp_model *model, uint32_t param, int32_t array, uint64_t offset,
                     const unsigned char *values, size_t n_bytes)
{
    const struct hsdp_segment *s;
    struct walk walk;
    struct flat flat;

    if (!array_find(model, param, array, &flat)) {
        return;
    }
    walk_begin(model, model->params[param].info.unit, HSDP_SHARD_STEP, model->job->launch.rank,
               &walk);
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
    for (uint32_t p = 0; p < model->n_params; p++) {
        struct ranks first = {.n = 0};

        if (tie_of(model, p) != NULL) {
            first_holders(model, p, &first);
        }
        for (uint32_t i = 0; i < first.n; i++) {
            tie_read(model, p, blob_at(answer, first.ranks[i]));
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
        if (tie_of(model, p) != NULL) {
            tie_write(model, p, &payload);
        }
    }
    request_of_job(call, model->job, &text, &request);
    request_carry(&request, &payload);
    status = job_meet(call, model->job, &request, &answer);
    if (status == HSDP_OK) {
        ties_take(model, answer);
    }
    packet_free(&payload);
    packet_free(&answer);
    return status;
}
