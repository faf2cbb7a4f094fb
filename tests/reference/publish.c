/* SPDX-License-Identifier: Apache-2.0 */
/* Publishing: masters become parameters, on all ranks that have parts of the same ones. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

/* A rank's masters of a unit, rounded to the dtype of parameters, segment after segment. */
static void masters_write(const hsdp_model *model, uint32_t unit, struct packet *packet)
{
    const struct unit *u = &model->units[unit];
    const struct hsdp_segment *segment;
    struct walk walk;

    walk_begin(model, unit, HSDP_SHARD_STEP, model->job->launch.rank, &walk);
    while ((segment = walk_next(&walk)) != NULL) {
        const unsigned char *master = u->buffers[segment->buffer].master;
        void *room = packet_put_room(packet, segment->n_elems * dtype_bytes(u->param_dtype));

        for (uint64_t i = 0; room != NULL && i < segment->n_elems; i++) {
            element_write(room, u->param_dtype, i,
                          element_read(master, u->master_dtype, segment->shard_offset_elems + i));
        }
    }
}

/* The other end: what one rank has written goes to its place in the whole buffers. */
static void masters_read(hsdp_model *model, uint32_t unit, uint32_t rank, struct packet *packet)
{
    struct unit *u = &model->units[unit];
    const struct hsdp_segment *segment;
    struct walk walk;

    walk_begin(model, unit, HSDP_SHARD_STEP, rank, &walk);
    while ((segment = walk_next(&walk)) != NULL) {
        size_t n_bytes;
        const void *values = packet_get_blob(packet, &n_bytes);

        memcpy(u->buffers[segment->buffer].params +
                   segment_whole(model, segment) * dtype_bytes(u->param_dtype),
               values, n_bytes);
    }
}

static void unit_published(void *context, struct packet *answer)
{
    struct publication *publication = context;
    hsdp_model *model = publication->model;
    struct unit *u = &model->units[publication->unit];

    for (uint32_t i = 0; i < u->stepped.n; i++) {
        struct packet part = packet_get_part(answer);

        masters_read(model, publication->unit, u->stepped.ranks[i], &part);
    }
}

static int32_t unit_publish(const struct call *call, hsdp_model *model, uint32_t unit,
                            uint64_t *ticket)
{
    struct unit *u = &model->units[unit];
    struct packet payload = {0};
    struct meeting_text text;
    struct request request = {.operation = "publish", .sentence = "", .unit = u->name};
    int32_t status;

    request.key = text.key;
    request.members = u->stepped.ranks;
    request.n_members = u->stepped.n;
    request.alike = u->name;
    request.group = u->group;
    request.sequence = model->n_publishes;
    request.timeout_ms = job_timeout_ms(model->job);
    snprintf(text.key, sizeof(text.key), "model.%" PRIu64 ".publish.%" PRIu64 ".%" PRIu32,
             model->number, model->n_publishes, unit);
    masters_write(model, unit, &payload);
    if (payload.is_bad) {
        packet_free(&payload);
        return unit_refuse(call, model, unit, HSDP_ERR_NO_MEMORY, "has no memory to publish it");
    }
    request_carry(&request, &payload);
    status = job_request(call, model->job, &request,
                         (struct follow_up){unit_published, &u->publication, model}, ticket);
    u->publish_ticket = *ticket;
    packet_free(&payload);
    return status;
}

int32_t model_publish(const struct call *call, hsdp_model *model, uint64_t *ticket)
{
    int32_t status = HSDP_OK;

    model->n_publishes++;
    for (uint32_t u = 0; u < model->n_units && status == HSDP_OK; u++) {
        status = unit_publish(call, model, u, ticket);
    }
    return status;
}
