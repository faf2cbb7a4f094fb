/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: sends and receives between two members, chunk by chunk, with two chunks in flight. */
#include <string.h>

#include "comm/group_internal.h"

#define N_CHUNKS_IN_FLIGHT 2u

static uint64_t message_bytes(const struct op *op)
{
    return op->header.n_elems * element_bytes(op->header.element);
}

/* An empty message is one empty chunk. */
static uint64_t message_chunks(const struct op *op)
{
    uint64_t n = (message_bytes(op) + CHUNK_BYTES - 1) / CHUNK_BYTES;

    return n == 0 ? 1 : n;
}

/* Bytes of the chunk that comes next. */
static uint64_t chunk_bytes(const struct op *op)
{
    uint64_t n_left = message_bytes(op) - op->round * CHUNK_BYTES;

    return n_left < CHUNK_BYTES ? n_left : CHUNK_BYTES;
}

static uint8_t *chunk_at(struct area *area, uint32_t to, uint64_t number)
{
    return area->chunks +
           ((uint64_t)to * N_CHUNKS_IN_FLIGHT + number % N_CHUNKS_IN_FLIGHT) * CHUNK_BYTES;
}

static bool entry_await(struct hsdp_group *group, struct op *op, const _Atomic uint64_t *counter,
                        uint64_t target)
{
    op->entry.counter = counter;
    op->entry.target = target;
    op->entry.rank = group->ranks[op->header.root];
    op->wait.entries = &op->entry;
    op->wait.n_entries = 1;
    return wait_is_met(&op->wait);
}

/* True when the message is out. */
static bool send_progress(struct hsdp_group *group, struct op *op)
{
    uint32_t to = op->header.root;
    struct op_queue *queue = &group->sends[to];
    struct area *own = group_area(group, group->index);
    struct lane *theirs = &group_area(group, to)->lanes[group->index];

    while (op->round < message_chunks(op)) {
        uint64_t number = queue->n_rounds;
        uint64_t n_bytes = chunk_bytes(op);

        if (!entry_await(group, op, &theirs->n_taken,
                         number >= N_CHUNKS_IN_FLIGHT ? number - N_CHUNKS_IN_FLIGHT + 1 : 0)) {
            return false;
        }
        own->lanes[to].headers[number % 2].element = op->header.element;
        own->lanes[to].headers[number % 2].n_elems = op->header.n_elems;
        if (n_bytes > 0) {
            memcpy(chunk_at(own, to, number), op->input + op->round * CHUNK_BYTES, n_bytes);
        }
        traffic_count(group, to == group->index ? 0 : n_bytes, 0);
        job_signal(group->job, &own->lanes[to].n_sent, number + 1, &group->ranks[to], 1);
        queue->n_rounds++;
        op->round++;
    }
    return true;
}

/* HSDP_OK when all of the message is in. */
static int32_t receive_progress(struct hsdp_group *group, struct op *op, struct hsdp_error *reterr)
{
    uint32_t from = op->header.root;
    struct op_queue *queue = &group->receives[from];
    struct area *own = group_area(group, group->index);
    struct area *theirs = group_area(group, from);

    while (op->round < message_chunks(op)) {
        struct lane *lane = &theirs->lanes[group->index];
        uint64_t number = queue->n_rounds;
        uint64_t n_bytes = chunk_bytes(op);
        int32_t status = HSDP_OK;

        if (!entry_await(group, op, &lane->n_sent, number + 1)) {
            return HSDP_PENDING;
        }
        if (op->round == 0) {
            status = message_match(group, op, from, &lane->headers[number % 2], reterr);
        }
        if (status != HSDP_OK) {
            return status;
        }
        if (n_bytes > 0) {
            memcpy(op->output + op->round * CHUNK_BYTES, chunk_at(theirs, group->index, number),
                   n_bytes);
        }
        traffic_count(group, 0, from == group->index ? 0 : n_bytes);
        queue->n_rounds++;
        op->round++;
        job_signal(group->job, &own->lanes[from].n_taken, number + 1, &group->ranks[from], 1);
    }
    return HSDP_OK;
}

static bool sends_progress(struct hsdp_group *group, uint32_t to)
{
    struct op_queue *queue = &group->sends[to];
    uint64_t n_before = queue->n_rounds;

    while (queue->first != NULL) {
        if (queue->first->phase == OP_QUEUED) {
            op_begin(group, queue, queue->first);
        }
        if (!send_progress(group, queue->first)) {
            break;
        }
        op_end(group, queue, queue->first);
    }
    return queue->n_rounds != n_before;
}

static int32_t receives_progress(struct hsdp_group *group, uint32_t from, bool *ret_moved,
                                 struct hsdp_error *reterr)
{
    struct op_queue *queue = &group->receives[from];
    uint64_t n_before = queue->n_rounds;
    int32_t status = HSDP_OK;

    while (queue->first != NULL && status == HSDP_OK) {
        if (queue->first->phase == OP_QUEUED) {
            op_begin(group, queue, queue->first);
        }
        status = receive_progress(group, queue->first, reterr);
        if (status == HSDP_OK) {
            op_end(group, queue, queue->first);
        }
    }
    *ret_moved |= queue->n_rounds != n_before;
    return status == HSDP_PENDING ? HSDP_OK : status;
}

/* Until nothing moves: what a rank sends to itself makes its own receives go on, and so on. */
int32_t lanes_progress(struct hsdp_group *group, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;
    bool has_moved = true;

    while (has_moved && status == HSDP_OK) {
        has_moved = false;
        for (uint32_t i = 0; i < group->n_ranks && status == HSDP_OK; i++) {
            has_moved |= sends_progress(group, i);
            status = receives_progress(group, i, &has_moved, reterr);
        }
    }
    return status;
}
