/* SPDX-License-Identifier: Apache-2.0 */
/* Standstill: ranks that wait for each other in different calls, found before any deadline. */
#ifndef COMM_STANDSTILL_H
#define COMM_STANDSTILL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hsdp/abi.h"

struct hsdp_job;
struct waiting; /* job_internal.h */

/*
 * A rank inside of a call that waits without limit can raise a counter only when what the call
 * waits for has come, or what one of its open operations waits for. Each of these is a condition on
 * some missing ranks. A set of ranks of which each lacks, for every one of its conditions, some
 * rank of the set, never goes on: one is in model.sync, the other has come to close.
 *
 * Each rank shows its conditions in the control block at every look. They may be out of date by the
 * time that another reads them, so a verdict needs two readings: between them each rank of the set
 * has stayed in the same call with the same conditions, has raised no counter, and has looked twice
 * more, the second time begun behind the first reading. The first of them that raised a counter
 * after that look would need another to have done so before.
 */

#define STANDSTILL_MAX_CONDITIONS 8u
#define STANDSTILL_TEXT_BYTES     192u
#define STANDSTILL_NAME_BYTES     32u

/* What a rank shows. Conditions that find no room are merged, which only makes a verdict rarer. */
struct stand {
    uint64_t serial; /* of the wait; 0 = the rank is in none, or in one that gives up by itself */
    uint64_t n_looks;
    uint64_t n_signals; /* counters raised so far */
    uint64_t n_conditions;
    uint64_t missing[STANDSTILL_MAX_CONDITIONS]; /* ranks; of the call itself first */
    char operation[STANDSTILL_NAME_BYTES];
    char text[STANDSTILL_TEXT_BYTES]; /* the call's condition in words */
};

#define STANDSTILL_N_WORDS (sizeof(struct stand) / sizeof(uint64_t))

/* The same in shared memory: words that are read while they are written, and a version. */
struct standstill_board {
    _Atomic uint64_t version; /* odd while it is written */
    _Atomic uint64_t words[STANDSTILL_N_WORDS];
};

/* What a rank remembers of its last reading. */
struct standstill {
    uint64_t n_waits;
    uint64_t n_looks;
    uint64_t n_signals;
    bool is_shown;
    uint64_t suspects;    /* ranks that stood still at the first reading; 0 = none did */
    struct stand *stands; /* as they were then, one a rank, and as many as they are now; owned */
};

/** Once the ranks of the node are known, and before any of them is waited for. */
int32_t standstill_init(struct hsdp_job *job, struct hsdp_error *reterr);

/**
 * Shows what this rank waits for, and reads what the others do. Called at each look.
 *
 * Errors: HSDP_ERR_MISMATCH, the job has failed: a standstill, with who is in what.
 */
int32_t standstill_look(struct hsdp_job *job, const struct waiting *waiting,
                        struct hsdp_error *reterr);

/** The wait is over. */
void standstill_leave(struct hsdp_job *job);

void standstill_fini(struct hsdp_job *job);

#endif /* COMM_STANDSTILL_H */
