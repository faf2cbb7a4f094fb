/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges: every rank says something and hears all, through the board of the control block. */
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/job_internal.h"
#include "comm/nodes.h"
#include "comm/probe.h"

/*
 * A rank fills its own mailbox and raises its counter; those of this node are read where they are.
 * With several nodes the leader's relay carries the mailboxes of the others here, and raises
 * n_boards when all of them are.
 *
 * Two mailboxes per rank are enough: who fills one for the exchange after next has seen all ranks
 * come to the next one, so all have read this one.
 */

/* A status that is no success, and its sentence, cut to what fits. */
struct opinion {
    int32_t status;
    char message[500];
};

/* A rank that cannot go on says so instead of whatever the others say. */
static bool is_refusal(const struct mailbox *mailbox)
{
    return mailbox->is_opinion != 0 && mailbox->n_bytes == sizeof(struct opinion);
}

static bool is_alike(const struct mailbox *one, const struct mailbox *other)
{
    return strncmp(one->operation, other->operation, sizeof(one->operation)) == 0 &&
           (is_refusal(one) || is_refusal(other) ||
            (one->is_opinion == other->is_opinion &&
             (one->is_opinion != 0 || one->n_bytes == other->n_bytes)));
}

/* All ranks see the same mailboxes, so all find the same difference. */
static int32_t mailboxes_compare(struct hsdp_job *job, struct control *control,
                                 struct hsdp_error *reterr)
{
    const struct mailbox *first = control_mailbox(control, job->n_exchanges, 0);

    probe_read(job->probe, PROBE_MAILBOX, PROBE_NO_UNIT, first, sizeof(*first));
    for (uint32_t rank = 1; rank < control->world_ranks; rank++) {
        const struct mailbox *other = control_mailbox(control, job->n_exchanges, rank);
        struct hsdp_error err;

        probe_read(job->probe, PROBE_MAILBOX, PROBE_NO_UNIT, other, sizeof(*other));
        if (is_alike(first, other)) {
            continue;
        }
        error_set(&err, HSDP_ERR_MISMATCH,
                  "job: rank 0 is in %.31s with %" PRIu32 " bytes, rank %" PRIu32
                  " in %.31s with %" PRIu32,
                  first->operation, first->n_bytes, rank, other->operation, other->n_bytes);
        error_where(&err, first->operation, NULL, NULL);
        failure_raise(job, &err);
        return failure_tell(job, reterr);
    }
    return HSDP_OK;
}

/* What another rank has refused, for one that has not: the same on all of these. */
static int32_t refusals_tell(struct hsdp_job *job, struct control *control,
                             struct hsdp_error *reterr)
{
    for (uint32_t rank = 0; rank < control->world_ranks; rank++) {
        const struct mailbox *mailbox = control_mailbox(control, job->n_exchanges, rank);
        struct opinion opinion;

        if (!is_refusal(mailbox)) {
            continue;
        }
        if (failure_first(job) != NULL) { /* what it could not do may have come of that */
            return failure_tell(job, reterr);
        }
        memcpy(&opinion, mailbox->bytes, sizeof(opinion));
        error_set(reterr, opinion.status, "%.31s: rank %" PRIu32 ": %.*s", mailbox->operation, rank,
                  (int)sizeof(opinion.message) - 1, opinion.message);
        error_where(reterr, mailbox->operation, NULL, NULL);
        return opinion.status;
    }
    return HSDP_OK;
}

static uint64_t exchange_record(struct hsdp_job *job, const struct mailbox *mine)
{
    struct wait what = {.operation = mine->operation, .n_bytes = mine->n_bytes};

    what.sequence = job->n_exchanges; /* of all kinds, in one order on all ranks */
    return job_record_begin(job, &what);
}

static int32_t mailboxes_await(struct hsdp_job *job, const struct mailbox *mine,
                               uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);
    struct wait_entry entries[LAUNCH_MAX_RANKS + 1];
    struct wait wait = {.entries = entries, .operation = mine->operation};
    uint32_t ranks[LAUNCH_MAX_RANKS];
    int32_t status;

    wait.deadline_ns = deadline_ns;
    wait.record = exchange_record(job, mine);
    for (uint32_t i = 0; i < control->n_ranks; i++) {
        ranks[i] = i;
        entries[i] = (struct wait_entry){.counter = &control->ranks[i].n_exchanges,
                                         .target = job->n_exchanges,
                                         .rank = i,
                                         .wait = PROBE_WAIT_EXCHANGE};
    }
    wait.n_entries = control->n_ranks;
    if (control->n_ranks < control->world_ranks) {
        entries[wait.n_entries++] = (struct wait_entry){
            .counter = &control->n_boards, .target = job->n_exchanges, .rank = WAIT_OTHER_NODES};
    }
    job_signal(job, &control->ranks[job->node_index].n_exchanges, job->n_exchanges, ranks,
               control->n_ranks);
    if (control->n_ranks < control->world_ranks) {
        nodes_kick(job);
    }
    probe_expect(job->probe, entries, control->n_ranks);
    status = job_wait(job, &wait, reterr);
    job_record_end(job, wait.record, status);
    return status;
}

int32_t exchange_run(struct hsdp_job *job, const struct mailbox *mine, uint64_t deadline_ns,
                     struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);
    struct mailbox *own = control_mailbox(control, ++job->n_exchanges, job->launch.rank);
    int32_t status;

    probe_write(job->probe, PROBE_MAILBOX, PROBE_NO_UNIT, own, sizeof(*own));
    memcpy(own, mine, offsetof(struct mailbox, bytes) + mine->n_bytes);
    if (job->collective.call != NULL) { /* whatever its parts are called */
        snprintf(own->operation, sizeof(own->operation), "%s", job->collective.call);
    }
    status = mailboxes_await(job, own, deadline_ns, reterr);
    if (status == HSDP_OK) {
        status = mailboxes_compare(job, control, reterr);
    }
    if (status == HSDP_OK && !is_refusal(own)) {
        status = refusals_tell(job, control, reterr);
    }
    job->collective.is_told |= status != HSDP_OK || is_refusal(own);
    return status;
}

int32_t exchange_all(struct hsdp_job *job, const struct exchange *what, void *ret_all,
                     struct hsdp_error *reterr)
{
    struct mailbox mailbox = {.n_bytes = (uint32_t)what->n_bytes};
    uint64_t n_bytes = what->n_bytes;
    int32_t status;

    assert(n_bytes <= JOB_EXCHANGE_MAX_BYTES);
    snprintf(mailbox.operation, sizeof(mailbox.operation), "%s", what->operation);
    if (n_bytes > 0) {
        memcpy(mailbox.bytes, what->mine, n_bytes);
    }
    status = exchange_run(job, &mailbox, what->deadline_ns, reterr);
    for (uint32_t rank = 0; status == HSDP_OK && n_bytes > 0 && rank < job->launch.world_ranks;
         rank++) {
        memcpy((uint8_t *)ret_all + rank * n_bytes,
               control_mailbox(atomic_load(&job->control), job->n_exchanges, rank)->bytes, n_bytes);
    }
    return status;
}

int32_t job_exchange(struct hsdp_job *job, const char *operation, const void *mine,
                     uint64_t n_bytes, void *ret_all, struct hsdp_error *reterr)
{
    struct exchange what = {.operation = operation, .mine = mine, .n_bytes = n_bytes};

    return exchange_all(job, &what, ret_all, reterr);
}

int32_t exchange_agree_by(struct hsdp_job *job, const char *operation, int32_t status,
                          uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct opinion mine = {.status = status};
    struct mailbox mailbox = {.is_opinion = 1};
    int32_t exchanged;

    if (status != HSDP_OK && failure_first(job) != NULL) {
        return status; /* all hear of that failure itself */
    }
    if (status != HSDP_OK) {
        snprintf(mine.message, sizeof(mine.message), "%.*s", (int)sizeof(mine.message) - 1,
                 reterr == NULL ? "" : reterr->message);
        mailbox.n_bytes = sizeof(mine);
        memcpy(mailbox.bytes, &mine, sizeof(mine));
    }
    snprintf(mailbox.operation, sizeof(mailbox.operation), "%s", operation);
    exchanged = exchange_run(job, &mailbox, deadline_ns, reterr);
    return exchanged != HSDP_OK ? exchanged : status;
}

int32_t exchange_agree(struct hsdp_job *job, const char *operation, int32_t status,
                       struct hsdp_error *reterr)
{
    return exchange_agree_by(job, operation, status, 0, reterr);
}

/* -------------------------------------------------------------------------- calls of the host */

void job_collective_begin(struct hsdp_job *job, const char *call)
{
    job->collective.call = job_is_connected(job) ? call : NULL;
    job->collective.is_told = false;
}

void job_collective_alone(struct hsdp_job *job)
{
    job->collective.is_told = true;
}

int32_t job_collective_end(struct hsdp_job *job, int32_t status, struct hsdp_error *reterr)
{
    const char *call = job->collective.call;

    if (call != NULL && status < 0 && !job->collective.is_told && failure_first(job) == NULL) {
        status = exchange_agree(job, call, status, reterr);
    }
    job->collective.call = NULL;
    return status;
}
