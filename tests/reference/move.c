/* SPDX-License-Identifier: Apache-2.0 */
/* Import and export of one parameter, its gradient or a state of it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* What is moved: the storage of a name, in one flat array. */
struct move {
    hsdp_model *model;
    uint32_t param;
    uint32_t unit;
    int32_t flat;
    struct flat array;
    const struct hsdp_tensor *full;
    enum dtype full_dtype;
    uint32_t rank;   /* the source or the target; HSDP_ALL_RANKS = none */
    bool has_tensor; /* this rank needs one */
    const void *stream;
};

static bool ranks_have(const struct ranks *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        if (ranks->ranks[i] == rank) {
            return true;
        }
    }
    return false;
}

static int32_t move_read(const struct call *call, struct move *move)
{
    const struct param *param;
    int32_t status = stream_check(call, move->stream);

    if (status == HSDP_OK) {
        status = param_check(call, move->model, move->param);
    }
    if (status != HSDP_OK) {
        return status;
    }
    move->param = move->model->params[move->param].info.storage;
    param = &move->model->params[move->param];
    move->unit = param->info.unit;
    if (!flat_find(move->model, move->unit, param->info.buffer, move->flat, &move->array)) {
        return error_raise(call, HSDP_ERR_INVALID, "%s: \"%s\" has no flat %" PRId32, call->name,
                           param->info.name, move->flat);
    }
    if (move->rank != HSDP_ALL_RANKS &&
        !ranks_have(&move->model->units[move->unit].reduced, move->rank)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: \"%s\": rank %" PRIu32 " does not share the parameter", call->name,
                           param->info.name, move->rank);
    }
    if (!move->has_tensor) {
        return HSDP_OK;
    }
    if (move->full == NULL) {
        return error_raise(call, HSDP_ERR_INVALID, "%s: \"%s\": this rank has to pass a tensor",
                           call->name, param->info.name);
    }
    return tensor_check(call, move->model, move->param, move->full, &move->full_dtype);
}

/* The blob of one rank of the plan, behind the number of its source or target. */
static struct packet blob_of(const struct move *move, struct packet answer, uint32_t rank,
                             uint32_t *ret_rank)
{
    const struct ranks *shared = &move->model->shared;
    struct packet part = {.bytes = NULL};

    for (uint32_t i = 0; i < shared->n; i++) {
        struct packet next = packet_get_part(&answer);

        if (shared->ranks[i] == rank) {
            part = next;
            *ret_rank = (uint32_t)packet_get_number(&part);
        }
    }
    return part;
}

/* Ranks that share the parameter have named the same source or target. */
static int32_t ranks_compare(const struct call *call, const struct move *move, struct packet answer)
{
    const struct ranks *reduced = &move->model->units[move->unit].reduced;
    struct hsdp_error error = HSDP_ERROR_INIT;
    uint32_t first = 0, other = 0;

    blob_of(move, answer, reduced->ranks[0], &first);
    for (uint32_t i = 1; i < reduced->n; i++) {
        blob_of(move, answer, reduced->ranks[i], &other);
        if (other != first) {
            error.status = HSDP_ERR_MISMATCH;
            snprintf(error.operation, sizeof(error.operation), "%s", call->name);
            snprintf(error.message, sizeof(error.message),
                     "%s: \"%s\": rank %" PRIu32 " names rank %" PRId32 ", rank %" PRIu32
                     " names rank %" PRId32,
                     call->name, move->model->params[move->param].info.name, reduced->ranks[0],
                     (int32_t)first, reduced->ranks[i], (int32_t)other);
            job_fail(move->model->job, &error);
            return error_pass(call, &error);
        }
    }
    return HSDP_OK;
}

/* One meeting of the ranks of a plan, with what this one has to say. */
static int32_t move_meet(const struct call *call, const struct move *move, int32_t refusal,
                         const char *sentence, struct packet *payload, struct packet *ret_answer)
{
    struct meeting_text text;
    struct request request;
    char alike[160];
    int32_t status;

    snprintf(alike, sizeof(alike), "%s of parameter %" PRIu32 ", flat %" PRId32, call->name,
             move->param, move->flat);
    request_of_model(call, move->model, &text, &request);
    request.alike = alike;
    request.refusal = refusal;
    request.sentence = sentence;
    request_carry(&request, payload);
    status = job_meet(call, move->model->job, &request, ret_answer);
    return status == HSDP_OK ? ranks_compare(call, move, *ret_answer) : status;
}

/* -------------------------------------------------------------------------------------- import */

/* Takes this rank's segments of a whole parameter. */
static void whole_take(const struct move *move, const void *whole, enum dtype dtype)
{
    const struct hsdp_segment *segment;
    struct walk walk;

    walk_begin(move->model, move->unit, HSDP_SHARD_STEP, move->model->job->launch.rank, &walk);
    while ((segment = walk_next(&walk)) != NULL) {
        for (uint64_t i = 0; segment->param == move->param && i < segment->n_elems; i++) {
            element_write(move->array.base, move->array.dtype, segment->shard_offset_elems + i,
                          element_read(whole, dtype, segment->param_offset_elems + i));
        }
    }
}

static int32_t import_from(const struct call *call, struct move *move)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    const struct call quiet = {call->name, &error};
    int32_t refusal = move_read(&quiet, move);
    struct packet payload = {0}, answer = {0}, part;
    uint32_t source;
    int32_t status;

    packet_put_number(&payload, move->rank);
    if (refusal == HSDP_OK && move->has_tensor) {
        uint64_t n = move->model->params[move->param].info.n_elems;
        float *values = packet_put_room(&payload, n * sizeof(float));

        for (uint64_t i = 0; values != NULL && i < n; i++) {
            values[i] = element_read(tensor_at(move->full), move->full_dtype, i);
        }
    }
    status = move_meet(call, move, refusal, error.message, &payload, &answer);
    if (status == HSDP_OK) {
        size_t n_bytes;

        part = blob_of(move, answer, move->rank, &source);
        whole_take(move, packet_get_blob(&part, &n_bytes), DTYPE_FP32);
    }
    packet_free(&payload);
    packet_free(&answer);
    return status;
}

int32_t edit_import(hsdp_model *model, uint32_t param, int32_t flat, const struct hsdp_tensor *full,
                    uint32_t source_rank, void *stream, struct hsdp_error *reterr)
{
    const struct call call = {"model.import_param", reterr};
    int32_t status = model_enter(&call, model);
    struct move move = {.model = model, .param = param, .flat = flat, .full = full};

    if (status != HSDP_OK) {
        return status;
    }
    move.rank = source_rank;
    move.stream = stream;
    move.has_tensor = source_rank == HSDP_ALL_RANKS || source_rank == model->job->launch.rank;
    if (!model->is_editing) {
        status = error_raise(&call, HSDP_ERR_STATE,
                             "%s: no edit is open; model.edit_begin was expected", call.name);
    } else if (flat == HSDP_FLAT_GRAD) {
        status = error_raise(&call, HSDP_ERR_INVALID, "%s: gradients are added with unit.grad_add",
                             call.name);
    } else if (source_rank != HSDP_ALL_RANKS) {
        status = import_from(&call, &move);
    } else {
        status = move_read(&call, &move);
        if (status == HSDP_OK) {
            whole_take(&move, tensor_at(full), move.full_dtype);
        }
    }
    return job_leave(model->job, status);
}

/* -------------------------------------------------------------------------------------- export */

static void segments_write(const struct move *move, struct packet *payload)
{
    const struct hsdp_segment *segment;
    struct walk walk;

    walk_begin(move->model, move->unit, HSDP_SHARD_STEP, move->model->job->launch.rank, &walk);
    while ((segment = walk_next(&walk)) != NULL) {
        float *values;

        if (segment->param != move->param) {
            continue;
        }
        values = packet_put_room(payload, segment->n_elems * sizeof(float));
        for (uint64_t i = 0; values != NULL && i < segment->n_elems; i++) {
            values[i] =
                element_read(move->array.base, move->array.dtype, segment->shard_offset_elems + i);
        }
    }
}

/* Puts together what the ranks of the step's cut have sent, in the tensor of the host. */
static void segments_read(const struct move *move, struct packet answer)
{
    const struct ranks *stepped = &move->model->units[move->unit].stepped;

    for (uint32_t i = 0; i < stepped->n; i++) {
        const struct hsdp_segment *segment;
        uint32_t target;
        struct packet part = blob_of(move, answer, stepped->ranks[i], &target);
        struct walk walk;

        walk_begin(move->model, move->unit, HSDP_SHARD_STEP, stepped->ranks[i], &walk);
        while ((segment = walk_next(&walk)) != NULL) {
            size_t n_bytes;
            const float *values;

            if (segment->param != move->param) {
                continue;
            }
            values = packet_get_blob(&part, &n_bytes);
            for (uint64_t e = 0; e < segment->n_elems; e++) {
                element_write((void *)tensor_at(move->full), move->full_dtype,
                              segment->param_offset_elems + e, values[e]);
            }
        }
    }
}

int32_t edit_export(hsdp_model *model, uint32_t param, int32_t flat, const struct hsdp_tensor *full,
                    uint32_t target_rank, void *stream, struct hsdp_error *reterr)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    const struct call call = {"model.export_param", reterr};
    const struct call quiet = {call.name, &error};
    int32_t status = model_enter(&call, model);
    struct move move = {.model = model, .param = param, .flat = flat, .full = full};

    struct packet payload = {0}, answer = {0};
    int32_t refusal;

    if (status != HSDP_OK) {
        return status;
    }
    if (flat == HSDP_FLAT_GRAD && !model->step.is_open) {
        return job_leave(model->job,
                         error_raise(&call, HSDP_ERR_STATE,
                                     "%s: a gradient is there in a step; step.begin was expected",
                                     call.name));
    }
    move.rank = target_rank;
    move.stream = stream;
    move.has_tensor = target_rank == HSDP_ALL_RANKS || target_rank == model->job->launch.rank;
    refusal = move_read(&quiet, &move);
    packet_put_number(&payload, target_rank);
    if (refusal == HSDP_OK) {
        segments_write(&move, &payload);
    }
    status = move_meet(&call, &move, refusal, error.message, &payload, &answer);
    if (status == HSDP_OK && move.has_tensor) {
        segments_read(&move, answer);
    }
    packet_free(&payload);
    packet_free(&answer);
    return job_leave(model->job, status);
}
