/* SPDX-License-Identifier: Apache-2.0 */
/* Verdicts: who keeps an operation from going on, and what those ranks are doing. */
#ifndef COMM_VERDICT_H
#define COMM_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#include "comm/job.h"

/* Masks and indices are of the ranks of this node, by node index; sentences have world ranks. */

/** Writes: reduce of group "dp", unit "block.0", sequence 3 */
void verdict_operation(const struct wait *wait, char *ret_text, size_t max_bytes);

/**
 * Follows those who are missing to those who do not wait for others themselves, and tells the way:
 * "rank 1, which waits in step for rank 2, which is stopped". What does not fit is counted.
 * Returns the ranks at the end of the way; those of a circle are all missing still.
 */
uint64_t verdict_missing(const struct hsdp_job *job, uint64_t missing, char *ret_text,
                         size_t max_bytes);

/** "died", "left" or "stopped"; NULL for a rank that goes on. */
const char *verdict_state(const struct hsdp_job *job, uint32_t index);

/** What a rank that is gone did last: " in step.begin", or " outside of any call, since ...". */
void verdict_last(const struct hsdp_job *job, uint32_t index, char *ret_text, size_t max_bytes);

#endif /* COMM_VERDICT_H */
