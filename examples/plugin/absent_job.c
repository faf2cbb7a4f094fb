/* SPDX-License-Identifier: Apache-2.0 */
/* Not made yet: jobs, groups and diagnostics. Every function is there, and says so. */
#include "skeleton.h"

/* ------------------------------------------------------------------------------------------ job */

static int32_t job_create(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                          struct hsdp_error *reterr)
{
    (void)spec;
    (void)ret_job;
    return skeleton_absent(reterr, "job.create");
}

static int32_t job_connect(hsdp_job *job, struct hsdp_error *reterr)
{
    (void)job;
    return skeleton_absent(reterr, "job.connect");
}

static int32_t job_close(hsdp_job *job, struct hsdp_error *reterr)
{
    (void)job;
    return skeleton_absent(reterr, "job.close");
}

static void job_destroy(hsdp_job *job)
{
    (void)job;
}

static int32_t job_abort(hsdp_job *job, const char *reason, struct hsdp_error *reterr)
{
    (void)job;
    (void)reason;
    return skeleton_absent(reterr, "job.abort");
}

static int32_t job_status(const hsdp_job *job, struct hsdp_error *reterr)
{
    (void)job;
    return skeleton_absent(reterr, "job.status");
}

static int32_t job_info(const hsdp_job *job, struct hsdp_job_info *ret_info,
                        struct hsdp_error *reterr)
{
    (void)job;
    (void)ret_info;
    return skeleton_absent(reterr, "job.info");
}

static int32_t job_setting(const hsdp_job *job, const char *key, const char **ret_value,
                           const char **ret_source, struct hsdp_error *reterr)
{
    (void)job;
    (void)key;
    (void)ret_value;
    (void)ret_source;
    return skeleton_absent(reterr, "job.setting");
}

static int32_t job_setting_set(hsdp_job *job, const char *key, const char *value,
                               struct hsdp_error *reterr)
{
    (void)job;
    (void)key;
    (void)value;
    return skeleton_absent(reterr, "job.setting_set");
}

static int32_t job_phase_push(hsdp_job *job, const char *phase, uint64_t timeout_ms,
                              struct hsdp_error *reterr)
{
    (void)job;
    (void)phase;
    (void)timeout_ms;
    return skeleton_absent(reterr, "job.phase_push");
}

static int32_t job_phase_pop(hsdp_job *job, struct hsdp_error *reterr)
{
    (void)job;
    return skeleton_absent(reterr, "job.phase_pop");
}

static int32_t job_ticket_wait(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                               struct hsdp_error *reterr)
{
    (void)job;
    (void)ticket;
    (void)wait_ms;
    return skeleton_absent(reterr, "job.ticket_wait");
}

static int32_t job_ticket_order(hsdp_job *job, uint64_t ticket, void *stream,
                                struct hsdp_error *reterr)
{
    (void)job;
    (void)ticket;
    (void)stream;
    return skeleton_absent(reterr, "job.ticket_order");
}

const struct hsdp_job_ops skeleton_job = {
    .struct_size = sizeof(struct hsdp_job_ops),
    .create = job_create,
    .connect = job_connect,
    .close = job_close,
    .destroy = job_destroy,
    .abort = job_abort,
    .status = job_status,
    .info = job_info,
    .setting = job_setting,
    .setting_set = job_setting_set,
    .phase_push = job_phase_push,
    .phase_pop = job_phase_pop,
    .ticket_wait = job_ticket_wait,
    .ticket_order = job_ticket_order,
};

/* ---------------------------------------------------------------------------------------- group */

static int32_t group_create(hsdp_job *job, const hsdp_mesh *mesh,
                            const struct hsdp_group_spec *spec, hsdp_group **ret_group,
                            struct hsdp_error *reterr)
{
    (void)job;
    (void)mesh;
    (void)spec;
    (void)ret_group;
    return skeleton_absent(reterr, "group.create");
}

static int32_t group_connect(hsdp_job *job, struct hsdp_error *reterr)
{
    (void)job;
    return skeleton_absent(reterr, "group.connect");
}

static int32_t group_info(const hsdp_group *group, struct hsdp_group_info *ret_info,
                          struct hsdp_error *reterr)
{
    (void)group;
    (void)ret_info;
    return skeleton_absent(reterr, "group.info");
}

static int32_t group_members(const hsdp_group *group, uint32_t *ret_ranks, uint64_t max_ranks,
                             struct hsdp_error *reterr)
{
    (void)group;
    (void)ret_ranks;
    (void)max_ranks;
    return skeleton_absent(reterr, "group.members");
}

static int32_t group_start(hsdp_group *group, const struct hsdp_coll_spec *specs,
                           uint64_t spec_bytes, uint64_t n_specs, void *stream,
                           uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    (void)group;
    (void)specs;
    (void)spec_bytes;
    (void)n_specs;
    (void)stream;
    (void)ret_ticket;
    return skeleton_absent(reterr, "group.start");
}

static void group_destroy(hsdp_group *group)
{
    (void)group;
}

const struct hsdp_group_ops skeleton_group = {
    .struct_size = sizeof(struct hsdp_group_ops),
    .create = group_create,
    .connect = group_connect,
    .info = group_info,
    .members = group_members,
    .start = group_start,
    .destroy = group_destroy,
};

/* ----------------------------------------------------------------------------------------- diag */

static int32_t diag_report(const hsdp_job *job, const char *what, char *ret_text,
                           uint64_t max_bytes, uint64_t *ret_bytes, struct hsdp_error *reterr)
{
    (void)job;
    (void)what;
    (void)ret_text;
    (void)max_bytes;
    (void)ret_bytes;
    return skeleton_absent(reterr, "diag.report");
}

static int32_t diag_counter(const hsdp_job *job, const char *name, uint64_t *ret_value,
                            struct hsdp_error *reterr)
{
    (void)job;
    (void)name;
    (void)ret_value;
    return skeleton_absent(reterr, "diag.counter");
}

static int32_t diag_counter_name(const hsdp_job *job, uint64_t index, const char **ret_name,
                                 struct hsdp_error *reterr)
{
    (void)job;
    (void)index;
    (void)ret_name;
    return skeleton_absent(reterr, "diag.counter_name");
}

const struct hsdp_diag_ops skeleton_diag = {
    .struct_size = sizeof(struct hsdp_diag_ops),
    .report = diag_report,
    .counter = diag_counter,
    .counter_name = diag_counter_name,
};
