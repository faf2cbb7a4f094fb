/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_diag_ops: looking from any thread, so none of it enters the job. */
#include "call.h"
#include "tables.h"

/* Not entered, but no child may look: a lock that it would take may never be given back there. */
static void call_looks(struct call *call, const hsdp_job *job)
{
    if (call_is_ok(call) && job_status(job, &call->err) == HSDP_ERR_FORKED) {
        call->status = HSDP_ERR_FORKED;
    }
}

static int32_t entry_report(const hsdp_job *job, const char *what, char *ret_text,
                            uint64_t max_bytes, uint64_t *ret_bytes, struct hsdp_error *reterr)
{
    struct call call;
    uint64_t n_bytes = 0;

    call_begin(&call, "diag.report", reterr);
    call_needs(&call, "job", job);
    call_needs(&call, "what", what);
    call_needs_array(&call, "ret_text", ret_text, max_bytes);
    call_needs(&call, "ret_bytes", ret_bytes);
    call_looks(&call, job);
    if (call_is_ok(&call)) {
        call.status = job_report(job, what, ret_text, max_bytes, &n_bytes, &call.err);
        call_gives_size(&call, n_bytes, ret_bytes);
    }
    return call_end(&call);
}

static int32_t entry_counter(const hsdp_job *job, const char *name, uint64_t *ret_value,
                             struct hsdp_error *reterr)
{
    struct call call;
    uint64_t value = 0;

    call_begin(&call, "diag.counter", reterr);
    call_needs(&call, "job", job);
    call_needs(&call, "name", name);
    call_needs(&call, "ret_value", ret_value);
    call_looks(&call, job);
    if (call_is_ok(&call)) {
        call.status = job_counter(job, name, &value, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_value = value;
    }
    return call_end(&call);
}

static int32_t entry_counter_name(const hsdp_job *job, uint64_t index, const char **ret_name,
                                  struct hsdp_error *reterr)
{
    struct call call;
    const char *name = NULL;

    call_begin(&call, "diag.counter_name", reterr);
    call_needs(&call, "job", job);
    call_needs(&call, "ret_name", ret_name);
    call_looks(&call, job);
    if (call_is_ok(&call)) {
        call.status = job_counter_name(job, index, &name, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_name = name;
    }
    return call_end(&call);
}

const struct hsdp_diag_ops export_diag = {
    .struct_size = sizeof(struct hsdp_diag_ops),
    .report = entry_report,
    .counter = entry_counter,
    .counter_name = entry_counter_name,
};
