/* SPDX-License-Identifier: Apache-2.0 */
/* Edits: opening and closing them, and making replicas equal. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* Enters a model on which an edit is open. */
static int32_t edit_enter(const struct call *call, hsdp_model *model)
{
    int32_t status = model_enter(call, model);

    if (status == HSDP_OK && !model->is_editing) {
        return job_leave(model->job, error_raise(call, HSDP_ERR_STATE,
                                                 "%s: no edit is open; model.edit_begin was "
                                                 "expected",
                                                 call->name));
    }
    return status;
}

int32_t edit_begin(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    const struct call call = {"model.edit_begin", reterr};
    const struct call quiet = {"model.edit_begin", &error};
    int32_t status = model_enter(&call, model);
    struct packet answer = {0};
    struct meeting_text text;
    struct request request;

    if (status != HSDP_OK) {
        return status;
    }
    if (model->is_editing || model->step.is_open) {
        return job_leave(model->job,
                         error_raise(&call, HSDP_ERR_STATE,
                                     "model.edit_begin: %s is open; %s was "
                                     "expected",
                                     model->is_editing ? "an edit" : "a step",
                                     model->is_editing ? "model.edit_end" : "step.end"));
    }
    request_of_job(&call, model->job, &text, &request);
    request.refusal = units_rest_check(&quiet, model);
    if (request.refusal == HSDP_OK) {
        request.refusal = stream_check(&quiet, stream);
    }
    request.unit = error.unit;
    request.sentence = error.message;
    status = job_meet(&call, model->job, &request, &answer);
    packet_free(&answer);
    model->is_editing = status == HSDP_OK;
    return job_leave(model->job, status);
}

int32_t edit_end(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    const struct call call = {"model.edit_end", reterr};
    int32_t status = edit_enter(&call, model);
    struct meeting_text text;
    struct request request;
    uint64_t ticket = 0;

    if (status != HSDP_OK) {
        return status;
    }
    status = stream_check(&call, stream);
    if (status == HSDP_OK) {
        request_of_job(&call, model->job, &text, &request);
        status = job_request(&call, model->job, &request, (struct follow_up){NULL, NULL, model},
                             &ticket);
    }
    if (status == HSDP_OK) {
        status = model_publish(&call, model, &ticket);
    }
    if (status == HSDP_OK) {
        model->is_editing = false;
    }
    return job_leave(model->job, status);
}

/* ---------------------------------------------------------------------------------------- sync */

/* Masters and states of one buffer, as one run of arrays. */
static void buffer_write(const hsdp_model *model, uint32_t unit, uint32_t buffer,
                         struct packet *packet)
{
    uint64_t n = model->units[unit].buffers[buffer].info.step_shard_elems;
    struct flat flat;

    for (int32_t f = -1; f < (int32_t)model->n_states; f++) {
        int32_t which = f < 0 ? HSDP_FLAT_MASTER : HSDP_FLAT_STATE + f;

        if (flat_find(model, unit, buffer, which, &flat)) {
            packet_put_blob(packet, flat.base, n * dtype_bytes(flat.dtype));
        }
    }
}

static void buffer_read(const hsdp_model *model, uint32_t unit, uint32_t buffer,
                        struct packet *packet)
{
    struct flat flat;

    for (int32_t f = -1; f < (int32_t)model->n_states; f++) {
        int32_t which = f < 0 ? HSDP_FLAT_MASTER : HSDP_FLAT_STATE + f;

        if (flat_find(model, unit, buffer, which, &flat)) {
            size_t n_bytes;
            const void *values = packet_get_blob(packet, &n_bytes);

            memcpy(flat.base, values, n_bytes);
        }
    }
}

static void states_list(const hsdp_model *model, struct packet *packet)
{
    char text[64 * 80] = "";

    for (uint32_t s = 0; s < model->n_states; s++) {
        size_t n = strlen(text);

        snprintf(text + n, sizeof(text) - n, "%s%s %s", s == 0 ? "" : ", ", model->states[s].name,
                 dtype_name(model->states[s].dtype));
    }
    packet_put_text(packet, text);
}

/* All ranks say what states they have; in `answer` every one finds the same. */
static int32_t states_compare(const struct call *call, const hsdp_model *model,
                              struct packet answer)
{
    const char *first = NULL;

    for (uint32_t r = 0; r < model->job->launch.world_ranks; r++) {
        struct packet part = packet_get_part(&answer);
        const char *text = packet_get_text(&part);

        if (first != NULL && strcmp(first, text) != 0) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "%s: states are \"%.150s\" on rank 0, \"%.150s\" on rank %" PRIu32,
                               call->name, first, text, r);
        }
        first = first != NULL ? first : text;
    }
    return HSDP_OK;
}

/* Takes one unit of what another rank has written. */
static void unit_take(const hsdp_model *model, uint32_t unit, struct packet part)
{
    size_t n_skipped;

    packet_get_text(&part); /* the states */
    for (uint32_t before = 0; before < unit; before++) {
        for (uint64_t n = packet_get_number(&part); n > 0; n--) {
            packet_get_blob(&part, &n_skipped);
        }
    }
    packet_get_number(&part);
    for (uint32_t b = 0; b < model->units[unit].n_buffers; b++) {
        buffer_read(model, unit, b, &part);
    }
}

/* Gives every unit the values of the rank that saves this rank's shard of it. */
static void replicas_take(const hsdp_model *model, struct packet answer)
{
    for (uint32_t r = 0; r < model->job->launch.world_ranks; r++) {
        struct packet part = packet_get_part(&answer);

        for (uint32_t u = 0; u < model->n_units; u++) {
            uint32_t writer = UINT32_MAX;

            reference_plan.writer(model->plan, u, HSDP_SHARD_STEP, model->job->launch.rank, &writer,
                                  NULL);
            if (writer == r) {
                unit_take(model, u, part);
            }
        }
    }
}

static void shards_write(const hsdp_model *model, struct packet *packet)
{
    states_list(model, packet);
    for (uint32_t u = 0; u < model->n_units; u++) {
        uint32_t n_blobs = 0;

        for (uint32_t b = 0; b < model->units[u].n_buffers; b++) {
            n_blobs += model->units[u].buffers[b].info.is_frozen != 0 ? 1 : 1 + model->n_states;
        }
        packet_put_number(packet, n_blobs);
        for (uint32_t b = 0; b < model->units[u].n_buffers; b++) {
            buffer_write(model, u, b, packet);
        }
    }
}

static int32_t shards_exchange(const struct call *call, hsdp_model *model, const void *stream,
                               struct packet *payload, struct packet *ret_answer)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    const struct call quiet = {call->name, &error};
    struct meeting_text text;
    struct request request;

    request_of_job(call, model->job, &text, &request);
    request.refusal = stream_check(&quiet, stream);
    request.sentence = error.message;
    request_carry(&request, payload);
    return job_meet(call, model->job, &request, ret_answer);
}

int32_t edit_sync(hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    const struct call call = {"model.sync", reterr};
    int32_t status = edit_enter(&call, model);
    struct packet payload = {0}, answer = {0};

    if (status != HSDP_OK) {
        return status;
    }
    shards_write(model, &payload);
    status = shards_exchange(&call, model, stream, &payload, &answer);
    if (status == HSDP_OK) {
        status = states_compare(&call, model, answer);
    }
    if (status == HSDP_OK) {
        replicas_take(model, answer);
    }
    packet_free(&payload);
    packet_free(&answer);
    if (status == HSDP_OK) {
        status = ties_sync(&call, model);
    }
    return job_leave(model->job, status);
}
