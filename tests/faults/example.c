/* SPDX-License-Identifier: Apache-2.0 */
/* Examples of records. */
#include "faults/example.h"

#include <stdio.h>
#include <string.h>

struct call_record *example_call(struct record *record, uint32_t rank, enum call_kind kind,
                                 const char *name, uint64_t start_ms, uint64_t end_ms)
{
    struct rank_record *own = &record->ranks[rank];
    struct call_record *call = &own->calls[own->n_calls++];

    call->name = name;
    call->kind = kind;
    call->start_ns = start_ms * EXAMPLE_MS;
    call->end_ns = end_ms * EXAMPLE_MS;
    call->timeout_ms = EXAMPLE_T_MS;
    return call;
}

void example_error(struct hsdp_error *err, int32_t status, const char *message, uint32_t missing)
{
    *err = (struct hsdp_error)HSDP_ERROR_INIT;
    err->status = status;
    err->waited_ms = EXAMPLE_T_MS;
    err->n_missing_ranks = 1;
    err->missing_ranks[0] = missing;
    snprintf(err->message, sizeof(err->message), "%s", message);
}

void example_failure(struct record *record, uint32_t rank, int32_t status, uint64_t end_ms,
                     uint32_t missing)
{
    struct rank_record *own = &record->ranks[rank];
    struct call_record *call = example_call(record, rank, CALL_STEP, "step.result", 990, end_ms);

    call->status = status;
    example_error(&call->error, status, "the reason", missing);
    own->first = call->error;
    own->first_status = status;
    own->n_told[0] = 1;
    call = example_call(record, rank, CALL_LATER, "job.close", end_ms, end_ms);
    call->status = HSDP_ERR_ABORTED;
    example_error(&call->error, HSDP_ERR_ABORTED, "aborted: rank 0 reported: the reason", 0);
}

void example_fill(struct trial *trial, struct record *record, enum fault_kind kind, int32_t status,
                  uint64_t end_ms)
{
    memset(trial, 0, sizeof(*trial));
    memset(record, 0, sizeof(*record));
    trial->n_ranks = EXAMPLE_RANKS;
    trial->ep = 1;
    trial->timeout_ms = EXAMPLE_T_MS;
    trial->init_ms = EXAMPLE_T_MS;
    trial->kind = kind;
    trial->victim = EXAMPLE_VICTIM;
    record->ranks[EXAMPLE_VICTIM].fault_ns = EXAMPLE_FAULT_NS;
    for (uint32_t rank = 0; rank < EXAMPLE_RANKS; rank++) {
        struct rank_record *own = &record->ranks[rank];

        example_call(record, rank, CALL_CONNECT, "job.connect", 100, 110);
        own->has_finished = true;
        own->has_measured = true;
        own->before = own->after = (struct holdings){.n_descriptors = 6, .n_threads = 1};
        if (rank != EXAMPLE_VICTIM) {
            example_failure(record, rank, status, end_ms, EXAMPLE_VICTIM);
        }
    }
    example_call(record, EXAMPLE_VICTIM, CALL_STEP, "step.result", 995, 0);
}
