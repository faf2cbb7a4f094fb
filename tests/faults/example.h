/* SPDX-License-Identifier: Apache-2.0 */
/* Examples of records: what survivors write down who keep every promise, for the judge's tests. */
#ifndef FAULTS_EXAMPLE_H
#define FAULTS_EXAMPLE_H

#include "faults/record.h"
#include "faults/trial.h"

#define EXAMPLE_MS       UINT64_C(1000000)
#define EXAMPLE_FAULT_NS (UINT64_C(1000) * EXAMPLE_MS)
#define EXAMPLE_RANKS    3u
#define EXAMPLE_VICTIM   1u
#define EXAMPLE_T_MS     1000u

/** A trial in which rank 1 fails while all are in step.result. */
void example_fill(struct trial *trial, struct record *record, enum fault_kind kind, int32_t status,
                  uint64_t end_ms);

/** One more call of a rank, which has succeeded. */
struct call_record *example_call(struct record *record, uint32_t rank, enum call_kind kind,
                                 const char *name, uint64_t start_ms, uint64_t end_ms);

/** The first failing call of a rank, its reason, and a later call that repeats it. */
void example_failure(struct record *record, uint32_t rank, int32_t status, uint64_t end_ms,
                     uint32_t missing);

void example_error(struct hsdp_error *err, int32_t status, const char *message, uint32_t missing);

#endif /* FAULTS_EXAMPLE_H */
