/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges: every rank says something and hears all, through the control block. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/job_internal.h"
#include "comm/probe.h"

/* All ranks see the same mailboxes, so all find the same difference. */
static int32_t mailboxes_compare(struct hsdp_job *job, const struct control *control, int slot,
                                 struct hsdp_error *reterr)
{
    const struct mailbox *first = &control->ranks[0].mailboxes[slot];

    probe_read(job->probe, PROBE_MAILBOX, PROBE_NO_UNIT, first, sizeof(*first));
    for (uint32_t rank = 1; rank < job->launch.world_ranks; rank++) {
        const struct mailbox *other = &control->ranks[rank].mailboxes[slot];
        struct hsdp_error err;

        probe_read(job->probe, PROBE_MAILBOX, PROBE_NO_UNIT, other, sizeof(*other));
        if (strncmp(first->operation, other->operation, sizeof(first->operation)) == 0 &&
            first->n_bytes == other->n_bytes) {
            continue;
        }
        error_set(&err, HSDP_ERR_MISMATCH,
                  "job: rank 0 is in %.31s with %" PRIu64 " bytes, rank %" PRIu32
                  " in %.31s with %" PRIu64,
                  first->operation, first->n_bytes, rank, other->operation, other->n_bytes);
        error_where(&err, first->operation, NULL, NULL);
        failure_raise(job, &err);
        return failure_tell(job, reterr);
    }
    return HSDP_OK;
}

static int32_t mailboxes_await(struct hsdp_job *job, const struct mailbox *mine,
                               uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);
    struct wait_entry entries[LAUNCH_MAX_RANKS];
    struct wait wait = {.entries = entries, .operation = mine->operation};
    uint32_t ranks[LAUNCH_MAX_RANKS];

    wait.n_entries = job->launch.world_ranks;
    wait.deadline_ns = deadline_ns;
    for (uint32_t rank = 0; rank < job->launch.world_ranks; rank++) {
        ranks[rank] = rank;
        entries[rank].counter = &control->ranks[rank].n_exchanges;
        entries[rank].target = job->n_exchanges;
        entries[rank].rank = rank;
        entries[rank].wait = PROBE_WAIT_EXCHANGE;
    }
    job_signal(job, &control->ranks[job->launch.rank].n_exchanges, job->n_exchanges, ranks,
               job->launch.world_ranks);
    probe_expect(job->probe, entries, wait.n_entries);
    return job_wait(job, &wait, reterr);
}

/*
 * Two mailboxes per rank are enough: who fills one for the exchange after next has seen all ranks
 * come to the next one, so all have read this one.
 */
int32_t exchange_run(struct hsdp_job *job, const struct mailbox *mine, uint64_t deadline_ns,
                     void *ret_all, struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);
    int slot = (int)(++job->n_exchanges % 2);
    struct mailbox *own = &control->ranks[job->launch.rank].mailboxes[slot];
    int32_t status;

    probe_write(job->probe, PROBE_MAILBOX, PROBE_NO_UNIT, own, sizeof(*own));
    memcpy(own->operation, mine->operation, sizeof(own->operation));
    own->n_bytes = mine->n_bytes;
    memcpy(own->bytes, mine->bytes, mine->n_bytes);
    status = mailboxes_await(job, mine, deadline_ns, reterr);
    if (status == HSDP_OK) {
        status = mailboxes_compare(job, control, slot, reterr);
    }
    for (uint32_t rank = 0;
         status == HSDP_OK && mine->n_bytes > 0 && rank < job->launch.world_ranks; rank++) {
        memcpy((uint8_t *)ret_all + rank * mine->n_bytes,
               control->ranks[rank].mailboxes[slot].bytes, mine->n_bytes);
    }
    return status;
}

int32_t job_exchange(struct hsdp_job *job, const char *operation, const void *mine,
                     uint64_t n_bytes, void *ret_all, struct hsdp_error *reterr)
{
    struct mailbox mailbox = {.n_bytes = n_bytes};

    assert(n_bytes <= JOB_EXCHANGE_MAX_BYTES);
    snprintf(mailbox.operation, sizeof(mailbox.operation), "%s", operation);
    if (n_bytes > 0) {
        memcpy(mailbox.bytes, mine, n_bytes);
    }
    return exchange_run(job, &mailbox, 0, ret_all, reterr);
}

/* A status and its sentence, cut to what fits. */
struct opinion {
    int32_t status;
    char message[500];
};

int32_t exchange_agree_by(struct hsdp_job *job, const char *operation, int32_t status,
                          uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct opinion mine = {.status = status};
    struct opinion all[LAUNCH_MAX_RANKS];
    struct mailbox mailbox = {.n_bytes = sizeof(mine)};
    int32_t exchanged;

    if (status != HSDP_OK && reterr != NULL) {
        snprintf(mine.message, sizeof(mine.message), "%.*s", (int)sizeof(mine.message) - 1,
                 reterr->message);
    }
    snprintf(mailbox.operation, sizeof(mailbox.operation), "%s", operation);
    memcpy(mailbox.bytes, &mine, sizeof(mine));
    exchanged = exchange_run(job, &mailbox, deadline_ns, all, reterr);
    if (exchanged != HSDP_OK) {
        return exchanged;
    }
    for (uint32_t rank = 0; rank < job->launch.world_ranks; rank++) {
        if (all[rank].status != HSDP_OK && status == HSDP_OK) {
            return error_set(reterr, all[rank].status, "%s: rank %" PRIu32 ": %s", operation, rank,
                             all[rank].message);
        }
    }
    return status;
}

int32_t exchange_agree(struct hsdp_job *job, const char *operation, int32_t status,
                       struct hsdp_error *reterr)
{
    return exchange_agree_by(job, operation, status, 0, reterr);
}
