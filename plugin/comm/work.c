/* SPDX-License-Identifier: Apache-2.0 */
/* Open work: the queue of what goes on inside of later calls, and the tickets. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job_internal.h"

static void work_append(struct hsdp_job *job, struct work *work)
{
    work->next = NULL;
    if (job->last_work == NULL) {
        job->first_work = work;
    } else {
        job->last_work->next = work;
    }
    job->last_work = work;
    atomic_fetch_add(&job->n_open, 1u);
}

/* False when it is not in the queue. */
static bool work_unlink(struct hsdp_job *job, struct work *work)
{
    struct work *previous = NULL;

    for (struct work *w = job->first_work; w != NULL && w != work; w = w->next) {
        previous = w;
    }
    if (previous == NULL ? job->first_work != work : previous->next != work) {
        return false;
    }
    if (previous == NULL) {
        job->first_work = work->next;
    } else {
        previous->next = work->next;
    }
    if (job->last_work == work) {
        job->last_work = previous;
    }
    if (job->next_work == work) {
        job->next_work = work->next;
    }
    work->next = NULL;
    atomic_fetch_sub(&job->n_open, 1u);
    return true;
}

static void work_end(struct hsdp_job *job, struct work *work, int32_t status)
{
    job_record_end(job, work->record, status);
    work->finish(work, status);
}

/* HSDP_OK when it is done and gone, HSDP_PENDING, or what it failed with. */
static int32_t work_try(struct hsdp_job *job, struct work *work, struct hsdp_error *reterr)
{
    int32_t status = work->progress(work, reterr);

    if (status == HSDP_PENDING) {
        if (work->clock_ns == 0 && work->blocker(work) != NULL) {
            work->clock_ns = clock_now_ns();
            work->away_ns = job->away_ns;
        }
    } else if (status == HSDP_OK) {
        work_unlink(job, work);
        work_end(job, work, HSDP_OK);
    }
    return status;
}

/* Tries from next_work on. The queue may lose any of its work meanwhile. */
static int32_t queue_try(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct hsdp_error err;
    int32_t status = HSDP_OK;

    if (job->is_progressing) {
        return HSDP_OK; /* work that waits inside of work goes on by itself */
    }
    job->is_progressing = true;
    while (job->next_work != NULL && status >= 0) {
        struct work *work = job->next_work;

        job->next_work = work->next;
        status = work_try(job, work, &err);
    }
    job->next_work = NULL;
    job->is_progressing = false;
    if (status >= 0) {
        return HSDP_OK;
    }
    failure_raise(job, &err);
    return failure_tell(job, reterr);
}

int32_t job_progress(struct hsdp_job *job, struct hsdp_error *reterr)
{
    if (failure_first(job) != NULL) {
        return failure_tell(job, reterr);
    }
    job->next_work = job->first_work;
    return queue_try(job, reterr);
}

int32_t job_work_settle(struct hsdp_job *job, struct work *work, struct hsdp_error *reterr)
{
    struct hsdp_error err;
    int32_t status = work_try(job, work, &err);

    if (status >= 0) {
        return status;
    }
    failure_raise(job, &err);
    return failure_tell(job, reterr);
}

static uint64_t work_record(struct hsdp_job *job, const struct work *work)
{
    struct wait what;

    if (work->label == NULL) {
        return 0;
    }
    if (work->is_queued) {
        return job_record_issue(job, work->label, work->ticket);
    }
    what = *work->label;
    what.ticket = work->ticket;
    return job_record_begin(job, &what);
}

int32_t job_work_start(struct hsdp_job *job, struct work *work, uint64_t *ret_ticket,
                       struct hsdp_error *reterr)
{
    uint64_t ticket = ++job->last_ticket;

    work->ticket = ticket;
    work->clock_ns = 0;
    work->away_ns = 0;
    work->record = work_record(job, work);
    work_append(job, work);
    if (ret_ticket != NULL) {
        *ret_ticket = ticket;
    }
    if (job->is_progressing) {
        return HSDP_OK; /* started by other work: its turn comes in the same round */
    }
    job->next_work = work;
    return queue_try(job, reterr);
}

/* Without memory for one more range the last one grows, and takes what is between along. */
static void cancelled_add(struct hsdp_job *job, uint64_t ticket)
{
    struct cancelled *last = job->n_cancelled == 0 ? NULL : &job->cancelled[job->n_cancelled - 1];
    struct cancelled *more = NULL;

    if (last == NULL || (ticket + 1 != last->first && ticket != last->last + 1)) {
        more = realloc(job->cancelled, (job->n_cancelled + 1) * sizeof(*more));
    }
    if (more != NULL) {
        more[job->n_cancelled++] = (struct cancelled){ticket, ticket};
        job->cancelled = more;
    } else if (last != NULL) {
        last->first = ticket < last->first ? ticket : last->first;
        last->last = ticket > last->last ? ticket : last->last;
    }
}

static bool is_cancelled(const struct hsdp_job *job, uint64_t ticket)
{
    for (uint64_t i = 0; i < job->n_cancelled; i++) {
        if (ticket >= job->cancelled[i].first && ticket <= job->cancelled[i].last) {
            return true;
        }
    }
    return false;
}

void job_work_cancel(struct hsdp_job *job, struct work *work)
{
    if (work_unlink(job, work)) {
        cancelled_add(job, work->ticket);
        job_record_end(job, work->record, HSDP_ERR_ABORTED);
    }
}

void work_fail_all(struct hsdp_job *job, int32_t status)
{
    if (job->is_progressing) {
        return; /* inside of its own work: the next call does it */
    }
    while (job->first_work != NULL) {
        struct work *work = job->first_work;

        if (work->ticket < job->failed_ticket) {
            job->failed_ticket = work->ticket;
        }
        work_unlink(job, work);
        work_end(job, work, status);
    }
}

struct work *work_find(const struct hsdp_job *job, uint64_t ticket)
{
    for (struct work *work = job->first_work; work != NULL; work = work->next) {
        if (work->ticket == ticket) {
            return work;
        }
    }
    return NULL;
}

int32_t job_ticket_wait(struct hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                        struct hsdp_error *reterr)
{
    struct waiting waiting = {.ticket = ticket};
    struct work *work;

    if (ticket == 0) {
        return HSDP_OK;
    }
    if (ticket > job->last_ticket) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: ticket %" PRIu64 " was never handed out; the last one is %" PRIu64,
                         ticket, job->last_ticket);
    }
    if (failure_first(job) != NULL) {
        work_fail_all(job, failure_first(job)->error.status);
        return !job->is_told && ticket >= job->failed_ticket ? failure_tell(job, reterr)
                                                             : failure_refuse(job, reterr);
    }
    if (is_cancelled(job, ticket)) {
        return error_set(reterr, HSDP_ERR_STATE,
                         "job: ticket %" PRIu64 " was given up: its model or group was destroyed "
                         "before the operation had finished",
                         ticket);
    }
    work = work_find(job, ticket);
    if (work == NULL) {
        position_go(job->position); /* it may have asked before */
        return HSDP_OK;
    }
    if (work->hurry != NULL) {
        work->hurry(work);
    }
    waiting.give_up_ns = wait_ms == 0 ? 0 : clock_deadline_ns(wait_ms);
    return wait_run(job, &waiting, reterr);
}

int32_t job_ticket_order(struct hsdp_job *job, uint64_t ticket, void *stream,
                         struct hsdp_error *reterr)
{
    struct work *work;
    int32_t status;

    if (job->space.ops->is_host && stream != NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: stream %p; the only stream of a CPU is NULL", stream);
    }
    status = job_ticket_wait(job, ticket, job->space.ops->is_host ? UINT64_MAX : 0, reterr);
    if (status != HSDP_PENDING) {
        return status;
    }
    work = work_find(job, ticket);
    return work->order != NULL ? work->order(work, stream, reterr)
                               : job_ticket_wait(job, ticket, UINT64_MAX, reterr);
}
