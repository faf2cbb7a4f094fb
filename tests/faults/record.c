/* SPDX-License-Identifier: Apache-2.0 */
/* Records: reading them. */
#include "faults/record.h"

bool record_has_failed(const struct call_record *call)
{
    return call->end_ns != 0 && call->status < 0 && call->status != call->wanted && !call->is_local;
}

uint64_t record_fault_ns(const struct record *record)
{
    for (uint32_t r = 0; r < TRIAL_MAX_RANKS; r++) {
        uint64_t at_ns = atomic_load(&record->ranks[r].fault_ns);

        if (at_ns != 0) {
            return at_ns;
        }
    }
    return 0;
}

uint32_t record_n_calls(const struct rank_record *rank)
{
    uint32_t n_calls = atomic_load(&rank->n_calls);

    return n_calls < RECORD_MAX_CALLS ? n_calls : RECORD_MAX_CALLS;
}

bool record_moment(const struct record *record, const struct trial *trial, enum call_kind *ret_kind,
                   bool *ret_is_inside)
{
    const struct rank_record *victim = &record->ranks[trial->victim];
    uint64_t at_ns = record_fault_ns(record);
    uint32_t n_calls = record_n_calls(victim);

    if (at_ns == 0) {
        return false;
    }
    for (uint32_t i = 0; i < n_calls; i++) {
        const struct call_record *call = &victim->calls[i];

        if (call->kind < CALL_N_KINDS && (call->end_ns == 0 || call->end_ns >= at_ns)) {
            *ret_kind = call->kind;
            *ret_is_inside = call->start_ns <= at_ns;
            return true;
        }
    }
    *ret_kind = n_calls == 0 ? CALL_CONNECT : trial->at_call;
    *ret_is_inside = false;
    return trial->moment == MOMENT_BEFORE || n_calls == 0;
}
