/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives in rounds: post a piece, read those of all; the next one when all have. */
#include "comm/group_internal.h"

#include "base/clock.h"
#include "base/error.h"

void traffic_count(struct hsdp_group *group, uint64_t n_sent, uint64_t n_received)
{
    group->n_bytes_sent += n_sent;
    group->n_bytes_received += n_received;
    if (group->traffic != NULL) {
        atomic_fetch_add(group->traffic, n_sent + n_received);
    }
}

/* Its clock starts now, when all before it are done. */
void op_begin(struct hsdp_group *group, struct op_queue *queue, struct op *op)
{
    uint64_t timeout_ms = op->timeout_ms != 0 ? op->timeout_ms : group->timeout_ms;

    op->phase = OP_POST;
    op->wait.operation = coll_name(op->header.kind);
    op->wait.group = group->name;
    op->wait.sequence = ++queue->n_begun;
    op->wait.ticket = op->start->work.ticket;
    op->wait.deadline_ns = timeout_ms == 0 ? 0 : clock_deadline_ns(timeout_ms);
    job_record_start(group->job, op->record, op->wait.sequence);
    if (group->n_operations != NULL) {
        atomic_fetch_add(group->n_operations, 1u);
    }
}

void op_end(struct hsdp_group *group, struct op_queue *queue, struct op *op)
{
    job_record_end(group->job, op->record, HSDP_OK);
    op->record = 0;
    queue->first = op->next;
    if (queue->first == NULL) {
        queue->last = NULL;
    }
    op->next = NULL;
    op->phase = OP_DONE;
    op->start->n_left--;
}

/* -------------------------------------------------------------------------------------- steps */

/*
 * A piece is written again two rounds later. By then it has been read: a member posts a round only
 * after it has read the one before, and this member has seen the posts of all.
 */
static void round_post(struct hsdp_group *group, struct op *op, uint64_t round)
{
    struct area *own = group_area(group, group->index);

    if (op->round == 0) {
        own->headers[round % 2] = op->header;
    }
    piece_post(group, op, own->pieces[round % 2]);
    job_signal(group->job, &own->n_posted, round, group->ranks, group->n_ranks);
    for (uint32_t i = 0; i < group->n_ranks; i++) {
        group->entries[i].counter = &group_area(group, i)->n_posted;
        group->entries[i].target = round;
        group->entries[i].rank = group->ranks[i];
    }
    op->wait.entries = group->entries;
    op->wait.n_entries = group->n_ranks;
    op->phase = OP_READ;
}

/* Each header is looked at as soon as it is there, whoever else may be missing. */
static int32_t headers_check(struct hsdp_group *group, struct op *op, uint64_t round,
                             struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (uint32_t i = 0; i < group->n_ranks && status == HSDP_OK; i++) {
        const struct area *area = group_area(group, i);

        if ((op->checked >> i & 1u) != 0 || atomic_load(&area->n_posted) < round) {
            continue;
        }
        op->checked |= UINT64_C(1) << i;
        if (i != group->index) {
            status = header_match(group, op, i, &area->headers[round % 2], reterr);
        }
    }
    return status;
}

static void round_read(struct hsdp_group *group, struct op *op, uint64_t round)
{
    if (op->round == 0) {
        op->n_rounds = op_n_rounds(group, op, (int)(round % 2));
    }
    pieces_read(group, op, (int)(round % 2));
    group->collectives.n_rounds = round;
    op->round++;
    op->phase = op->round == op->n_rounds ? OP_DONE : OP_POST;
}

/* One collective, until it is done or somebody is missing. */
static int32_t coll_progress(struct hsdp_group *group, struct op *op, struct hsdp_error *reterr)
{
    while (op->phase != OP_DONE) {
        uint64_t round = group->collectives.n_rounds + 1;
        int32_t status = HSDP_OK;
        bool is_met;

        if (op->phase == OP_POST) {
            round_post(group, op, round);
        }
        is_met = wait_is_met(&op->wait); /* before the headers, so that all of them are checked */
        if (op->round == 0) {
            status = headers_check(group, op, round, reterr);
        }
        if (status != HSDP_OK || !is_met) {
            return status != HSDP_OK ? status : HSDP_PENDING;
        }
        round_read(group, op, round);
    }
    return HSDP_OK;
}

int32_t collectives_progress(struct hsdp_group *group, struct hsdp_error *reterr)
{
    struct op_queue *queue = &group->collectives;

    while (queue->first != NULL) {
        struct op *op = queue->first;
        int32_t status = HSDP_OK;

        if (op->phase == OP_QUEUED) {
            op_begin(group, queue, op);
        }
        if (group->n_ranks == 1) {
            op_copy_alone(op);
        } else {
            status = coll_progress(group, op, reterr);
        }
        if (status != HSDP_OK) {
            return status == HSDP_PENDING ? HSDP_OK : status;
        }
        op_end(group, queue, op);
    }
    return HSDP_OK;
}
