/* SPDX-License-Identifier: Apache-2.0 */
/* Failure: the first one of any rank is the job's, and every rank tells the same. */
#ifndef COMM_FAILURE_H
#define COMM_FAILURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hsdp/job.h"

struct failure {
    _Atomic uint32_t state; /* private to failure.c */
    uint32_t rank;          /* who reported it */
    struct hsdp_error error;
};

/** The job's first failure; NULL while there is none. Any thread. */
const struct failure *failure_first(const struct hsdp_job *job);

/**
 * Reports *err (status and message filled) as the job's failure and wakes all ranks. An earlier
 * failure, of whatever rank, wins: then *err becomes that one. Returns err->status. Any thread.
 */
int32_t failure_raise(struct hsdp_job *job, struct hsdp_error *err);

/** Likewise, for what another rank has reported over a connection. */
int32_t failure_raise_for(struct hsdp_job *job, uint32_t reporter, struct hsdp_error *err);

/**
 * Likewise, but this process's host is not told here: for the watchdog's thread, which calls
 * failure_alert a moment later, if no call has come to it meanwhile.
 */
int32_t failure_record(struct hsdp_job *job, uint32_t reporter, struct hsdp_error *err);

/** Calls on_abort, once for a job that has failed, on whatever thread. */
void failure_alert(struct hsdp_job *job);

/**
 * For a call that was inside when the job failed: fills *reterr with the first failure itself and
 * ends all open work. Only on the thread that is inside; the job must have failed.
 */
int32_t failure_tell(struct hsdp_job *job, struct hsdp_error *reterr);

/** For a call that comes later: HSDP_ERR_ABORTED, repeating the first reason. Likewise. */
int32_t failure_refuse(struct hsdp_job *job, struct hsdp_error *reterr);

/** After the control block appeared: what was reported before goes to all. */
void failure_share(struct hsdp_job *job);

/* Masks are of the ranks of this node, by node index; errors and sentences have world ranks. */

/** Fills the missing ranks of an error. */
void error_missing(const struct hsdp_job *job, struct hsdp_error *err, uint64_t mask);
void error_missing_one(struct hsdp_error *err, uint32_t rank);
/** Writes "rank 1", "ranks 1, 3". */
void ranks_text(const struct hsdp_job *job, uint64_t mask, char *ret_text, uint64_t max_bytes);

#endif /* COMM_FAILURE_H */
