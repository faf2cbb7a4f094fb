/* SPDX-License-Identifier: Apache-2.0 */
/* Failure: reporting the first one, and repeating it. */
#include "comm/failure.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/flight_file.h"
#include "comm/job_internal.h"
#include "comm/nccl_engine.h"
#include "comm/watchdog.h"

enum {
    FAILURE_NONE,
    FAILURE_CLAIMED, /* being written */
    FAILURE_SET,
};

/* How long a failure may take to be written; its writer may have been killed meanwhile. */
#define CLAIM_LIMIT_MS 100u

static bool failure_is_set(const struct failure *failure)
{
    return atomic_load(&failure->state) == FAILURE_SET;
}

const struct failure *failure_first(const struct hsdp_job *job)
{
    const struct control *control = atomic_load(&job->control);

    if (control != NULL && failure_is_set(&control->failure)) {
        return &control->failure;
    }
    return failure_is_set(&job->failure) ? &job->failure : NULL;
}

/* True when this call has written the failure, false when there was one already. */
static bool failure_write(struct failure *failure, uint32_t rank, const struct hsdp_error *err)
{
    uint64_t limit_ns = clock_deadline_ns(CLAIM_LIMIT_MS);
    uint32_t expected = FAILURE_NONE;

    if (atomic_compare_exchange_strong(&failure->state, &expected, FAILURE_CLAIMED)) {
        failure->rank = rank;
        failure->error = *err;
        atomic_store(&failure->state, FAILURE_SET);
        return true;
    }
    while (!failure_is_set(failure) && clock_now_ns() < limit_ns) {
        usleep(100);
    }
    return false;
}

void failure_alert(struct hsdp_job *job)
{
    const struct failure *first = failure_first(job);

    if (first == NULL) {
        return;
    }
    flight_files_write(job); /* before the host may end over it */
    if (atomic_exchange(&job->is_noticed, 1u) == 0 && job->host.on_abort != NULL) {
        job->host.on_abort(job->host.user, &first->error);
    }
}

/* Tells this process's host, once; on a thread of the host. */
static void failure_notice(struct hsdp_job *job)
{
    const struct failure *first = failure_first(job);

    if (first != NULL && atomic_exchange(&job->is_logged, 1u) == 0) {
        job_log(job, HSDP_LOG_ERROR, "job \"%s\" has failed: %s", job->name, first->error.message);
    }
    failure_alert(job);
    flight_files_tell(job);
}

void failure_share(struct hsdp_job *job)
{
    struct control *control = atomic_load(&job->control);

    if (control != NULL && failure_is_set(&job->failure) &&
        failure_write(&control->failure, job->failure.rank, &job->failure.error)) {
        control_ring_all(control);
    }
}

int32_t failure_record(struct hsdp_job *job, uint32_t reporter, struct hsdp_error *err)
{
    struct control *control = atomic_load(&job->control);
    const struct failure *first;

    err->struct_size = sizeof(*err);
    if (control == NULL) {
        failure_write(&job->failure, reporter, err);
        failure_share(job); /* connect may have got there meanwhile */
    } else if (failure_write(&control->failure, reporter, err)) {
        control_ring_all(control);
    }
    watchdog_wake(job);
    nccl_engine_wake(job);
    first = failure_first(job);
    if (first != NULL) {
        *err = first->error;
    } else { /* whoever claimed it has died over it: then this rank says what it knows itself */
        failure_write(&job->failure, reporter, err);
    }
    return err->status;
}

int32_t failure_raise_for(struct hsdp_job *job, uint32_t reporter, struct hsdp_error *err)
{
    failure_record(job, reporter, err);
    failure_notice(job);
    return err->status;
}

int32_t failure_raise(struct hsdp_job *job, struct hsdp_error *err)
{
    return failure_raise_for(job, job->launch.rank, err);
}

int32_t job_fail(struct hsdp_job *job, const struct hsdp_error *err)
{
    struct hsdp_error own = *err;

    failure_raise(job, &own);
    job->is_told = true; /* open work ends with the next call: this one may be part of it */
    return err->status;
}

int32_t failure_tell(struct hsdp_job *job, struct hsdp_error *reterr)
{
    const struct failure *first = failure_first(job);

    failure_notice(job);
    job->is_told = true;
    work_fail_all(job, first->error.status);
    if (first->error.status == HSDP_ERR_ABORTED && first->rank != job->launch.rank) {
        return error_set(reterr, HSDP_ERR_ABORTED, "rank %" PRIu32 " has aborted: %.400s",
                         first->rank, first->error.message);
    }
    if (reterr != NULL) {
        *reterr = first->error;
    }
    return first->error.status;
}

int32_t failure_refuse(struct hsdp_job *job, struct hsdp_error *reterr)
{
    const struct failure *first = failure_first(job);

    failure_notice(job);
    work_fail_all(job, first->error.status);
    return error_set(reterr, HSDP_ERR_ABORTED, "aborted: rank %" PRIu32 " reported: %s",
                     first->rank, first->error.message);
}

int32_t job_abort(struct hsdp_job *job, const char *reason, struct hsdp_error *reterr)
{
    struct hsdp_error err;
    int32_t status;

    if (job == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "job.abort: the job is NULL");
    }
    status = job_check_process(job, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (atomic_load(&job->state) == JOB_CLOSED) {
        return HSDP_OK; /* nothing is left that could fail */
    }
    job_ref(job); /* another thread may destroy it meanwhile */
    error_set(&err, HSDP_ERR_ABORTED, "%s", reason == NULL ? "abort called by the host" : reason);
    error_where(&err, "job.abort", NULL, NULL);
    failure_raise(job, &err);
    job_unref(job);
    return HSDP_OK;
}

int32_t job_status(const struct hsdp_job *job, struct hsdp_error *reterr)
{
    const struct failure *first;
    int32_t status = job_check_process(job, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    first = failure_first(job);
    if (first == NULL) {
        return HSDP_OK;
    }
    if (reterr != NULL) {
        *reterr = first->error;
    }
    return first->error.status;
}

void error_missing_one(struct hsdp_error *err, uint32_t rank)
{
    err->n_missing_ranks = 1;
    err->missing_ranks[0] = rank;
}

void error_missing(const struct hsdp_job *job, struct hsdp_error *err, uint64_t mask)
{
    const struct control *control = atomic_load(&job->control);

    err->n_missing_ranks = 0;
    for (uint32_t i = 0; i < control->n_ranks; i++) {
        if ((mask >> i & 1u) == 0) {
            continue;
        }
        if (err->n_missing_ranks < HSDP_ERROR_MAX_RANKS) {
            err->missing_ranks[err->n_missing_ranks] = control->ranks[i].rank;
        }
        err->n_missing_ranks++;
    }
}

void ranks_text(const struct hsdp_job *job, uint64_t mask, char *ret_text, uint64_t max_bytes)
{
    const struct control *control = atomic_load(&job->control);
    bool is_one = (mask & (mask - 1)) == 0;
    const char *before = " ";
    uint64_t n_bytes = (uint64_t)snprintf(ret_text, max_bytes, is_one ? "rank" : "ranks");

    for (uint32_t i = 0; i < control->n_ranks && n_bytes + 16 < max_bytes; i++) {
        if ((mask >> i & 1u) != 0) {
            n_bytes += (uint64_t)snprintf(ret_text + n_bytes, max_bytes - n_bytes, "%s%" PRIu32,
                                          before, control->ranks[i].rank);
            before = ", ";
        }
    }
}
