/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: arguments, entering a job, and errors of the host's size. */
#include "call.h"

#include "base/error.h"
#include "device/space.h"
#include "shard/model.h"

void call_begin(struct call *call, const char *name, struct hsdp_error *reterr)
{
    call->name = name;
    call->reterr = reterr;
    call->job = NULL;
    call->is_collective = false;
    call->status = HSDP_OK;
    call->err.status = HSDP_OK;
}

void call_needs(struct call *call, const char *argument, const void *pointer)
{
    if (call_is_ok(call) && pointer == NULL) {
        call->status =
            error_set(&call->err, HSDP_ERR_INVALID, "%s: %s is NULL", call->name, argument);
    }
}

void call_needs_array(struct call *call, const char *argument, const void *array, uint64_t n)
{
    if (n > 0) {
        call_needs(call, argument, array);
    }
}

void call_takes(struct call *call, const char *argument, const struct intake_kind *kind,
                const void *theirs, void *ret_ours)
{
    if (call_is_ok(call)) {
        struct intake_source source = {call->name, argument};

        call->status = intake(kind, source, theirs, ret_ours, &call->err);
    }
}

void call_needs_struct(struct call *call, const char *argument, const struct intake_kind *kind,
                       const void *theirs)
{
    if (call_is_ok(call)) {
        struct intake_source source = {call->name, argument};

        call->status = intake_check(kind, source, theirs, &call->err);
    }
}

void call_gives(struct call *call, const struct intake_kind *kind, const void *ours,
                void *ret_theirs)
{
    if (call_is_ok(call)) {
        outtake(kind, ours, ret_theirs);
    }
}

void call_gives_size(struct call *call, uint64_t size, uint64_t *ret_size)
{
    if (call_is_ok(call) || call->status == HSDP_ERR_BUFFER_TOO_SMALL) {
        *ret_size = size;
    }
}

void call_gives_ticket(struct call *call, uint64_t ticket, uint64_t *ret_ticket)
{
    if (call_is_ok(call) && ret_ticket != NULL) {
        *ret_ticket = ticket;
    }
}

static void call_entered(struct call *call, struct hsdp_job *job)
{
    if (call_is_ok(call)) {
        call->job = job;
        job_call(job, call->name);
    }
}

void call_enters(struct call *call, struct hsdp_job *job)
{
    if (call_is_ok(call)) {
        call->status = job_enter(job, &call->err);
        call_entered(call, job);
    }
    if (call_is_ok(call) && job_is_closed(job)) {
        call->status = error_set(&call->err, HSDP_ERR_STATE, "%s: the job is closed", call->name);
    }
}

void call_enters_failed(struct call *call, struct hsdp_job *job)
{
    if (call_is_ok(call)) {
        call->status = job_enter_failed(job, &call->err);
        call_entered(call, job);
    }
}

void call_enters_model(struct call *call, const struct hsdp_model *model)
{
    if (call_is_ok(call)) {
        call_enters(call, model_job(model));
    }
}

/* A host's struct that is too short even for ABI 1.0 is left alone: nothing can be told there. */
static void error_give(struct call *call)
{
    struct intake_source source = {call->name, "reterr"};

    if (intake_check(&intake_error, source, call->reterr, NULL) != HSDP_OK) {
        return;
    }
    if (call->err.status == HSDP_OK) {
        error_set(&call->err, call->status, "%s: failed without a reason", call->name);
    }
    if (call->err.operation[0] == '\0') {
        error_where(&call->err, call->name, NULL, NULL);
    }
    call->err.status = call->status;
    outtake(&intake_error, &call->err, call->reterr);
}

void call_is_collective(struct call *call)
{
    if (call_is_ok(call)) {
        job_collective_begin(call->job, call->name);
        call->is_collective = true;
    }
}

void call_needs_stream(struct call *call, const void *stream)
{
    if (call_is_ok(call) && stream != NULL && job_space(call->job)->ops->is_host) {
        call->status =
            error_set(&call->err, HSDP_ERR_INVALID,
                      "%s: stream %p; the only stream of a CPU is NULL", call->name, stream);
    }
}

int32_t call_end(struct call *call)
{
    if (call->is_collective) {
        call->status = job_collective_end(call->job, call->status, &call->err);
    }
    if (call->job != NULL) {
        if (call->status == HSDP_ERR_DEVICE) {
            job_fail(call->job, &call->err); /* what is on its streams cannot be taken back */
        }
        job_leave(call->job);
    }
    if (call->status < 0) {
        error_give(call);
    }
    return call->status;
}
