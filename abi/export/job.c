/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_job_ops. */
#include "comm/job.h"

#include "call.h"
#include "tables.h"

static int32_t entry_create(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                            struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_job_spec own;
    struct hsdp_job *job = NULL;

    call_begin(&call, "job.create", reterr);
    call_needs(&call, "ret_job", ret_job);
    call_takes(&call, "spec", &intake_job_spec, spec, &own);
    if (call_is_ok(&call)) {
        call.status = job_create(&own, &job, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_job = job;
    }
    return call_end(&call);
}

static int32_t entry_connect(hsdp_job *job, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "job.connect", reterr);
    call_needs(&call, "job", job);
    call_enters(&call, job);
    if (call_is_ok(&call)) {
        call.status = job_connect(job, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_close(hsdp_job *job, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "job.close", reterr);
    call_needs(&call, "job", job);
    call_enters_failed(&call, job);
    if (call_is_ok(&call)) {
        call.status = job_close(job, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_abort(hsdp_job *job, const char *reason, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "job.abort", reterr);
    call_needs(&call, "job", job);
    if (call_is_ok(&call)) { /* not entered: another thread may be inside */
        call.status = job_abort(job, reason, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_status(const hsdp_job *job, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "job.status", reterr);
    call_needs(&call, "job", job);
    if (call_is_ok(&call)) {
        call.status = job_status(job, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_info(const hsdp_job *job, struct hsdp_job_info *ret_info,
                          struct hsdp_error *reterr)
{
    struct call call;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;

    call_begin(&call, "job.info", reterr);
    call_needs(&call, "job", job);
    call_needs_struct(&call, "ret_info", &intake_job_info, ret_info);
    call_enters_failed(&call, (struct hsdp_job *)job); /* the claim is not part of what it is */
    if (call_is_ok(&call)) {
        call.status = job_info(job, &info, &call.err);
    }
    call_gives(&call, &intake_job_info, &info, ret_info);
    return call_end(&call);
}

static int32_t entry_setting(const hsdp_job *job, const char *key, const char **ret_value,
                             const char **ret_source, struct hsdp_error *reterr)
{
    struct call call;
    const char *value = NULL;
    const char *source = NULL;

    call_begin(&call, "job.setting", reterr);
    call_needs(&call, "job", job);
    call_needs(&call, "key", key);
    call_needs(&call, "ret_value", ret_value);
    call_needs(&call, "ret_source", ret_source);
    call_enters_failed(&call, (struct hsdp_job *)job);
    if (call_is_ok(&call)) {
        call.status = job_setting(job, key, &value, &source, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_value = value;
        *ret_source = source;
    }
    return call_end(&call);
}

static int32_t entry_setting_set(hsdp_job *job, const char *key, const char *value,
                                 struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "job.setting_set", reterr);
    call_needs(&call, "job", job);
    call_enters(&call, job);
    call_is_collective(&call);
    call_needs(&call, "key", key);
    call_needs(&call, "value", value);
    if (call_is_ok(&call)) {
        call.status = job_setting_set(job, key, value, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_phase_push(hsdp_job *job, const char *phase, uint64_t timeout_ms,
                                struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "job.phase_push", reterr);
    call_needs(&call, "job", job);
    call_needs(&call, "phase", phase);
    call_enters(&call, job);
    if (call_is_ok(&call)) {
        call.status = job_phase_push(job, phase, timeout_ms, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_phase_pop(hsdp_job *job, struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "job.phase_pop", reterr);
    call_needs(&call, "job", job);
    call_enters(&call, job);
    if (call_is_ok(&call)) {
        call.status = job_phase_pop(job, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_ticket_wait(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                                 struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "job.ticket_wait", reterr);
    call_needs(&call, "job", job);
    call_enters_failed(&call, job); /* it tells how the operation ended */
    if (call_is_ok(&call)) {
        call.status = job_ticket_wait(job, ticket, wait_ms, &call.err);
    }
    return call_end(&call);
}

static int32_t entry_ticket_order(hsdp_job *job, uint64_t ticket, void *stream,
                                  struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, "job.ticket_order", reterr);
    call_needs(&call, "job", job);
    call_enters_failed(&call, job);
    call_needs_stream(&call, stream);
    if (call_is_ok(&call)) {
        call.status = job_ticket_order(job, ticket, stream, &call.err);
    }
    return call_end(&call);
}

const struct hsdp_job_ops export_job = {
    .struct_size = sizeof(struct hsdp_job_ops),
    .create = entry_create,
    .connect = entry_connect,
    .close = entry_close,
    .destroy = job_destroy,
    .abort = entry_abort,
    .status = entry_status,
    .info = entry_info,
    .setting = entry_setting,
    .setting_set = entry_setting_set,
    .phase_push = entry_phase_push,
    .phase_pop = entry_phase_pop,
    .ticket_wait = entry_ticket_wait,
    .ticket_order = entry_ticket_order,
};
