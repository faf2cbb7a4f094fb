/* SPDX-License-Identifier: Apache-2.0 */
/* Every function of the ABI that takes a job or what is made from it, with fair arguments. */
#include "every_call.h"

static int32_t job_call(struct every_call *on, uint64_t index)
{
    const struct hsdp_job_ops *ops = on->host.api->job;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct hsdp_error *err = &on->host.err;
    hsdp_job *job = on->host.job;
    const char *value;
    const char *source;

    switch (index) {
    case 0:
        return ops->connect(job, err);
    case 1:
        return ops->close(job, err);
    case 2:
        return ops->abort(job, "by a child", err);
    case 3:
        return ops->status(job, err);
    case 4:
        return ops->info(job, &info, err);
    case 5:
        return ops->setting(job, "backend", &value, &source, err);
    case 6:
        return ops->setting_set(job, "nccl_timeout_seconds", "7", err);
    case 7:
        return ops->phase_push(job, "save", 1000, err);
    case 8:
        return ops->phase_pop(job, err);
    case 9:
        return ops->ticket_wait(job, 0, 0, err);
    case 10:
        return ops->ticket_order(job, 0, NULL, err);
    default:
        return EVERY_CALL_MADE;
    }
}

static int32_t group_call(struct every_call *on, uint64_t index)
{
    const struct hsdp_group_ops *ops = on->host.api->group;
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    struct hsdp_coll_spec coll = HSDP_COLL_SPEC_INIT;
    struct hsdp_error *err = &on->host.err;
    uint32_t members[2];
    hsdp_group *group;

    spec.selector = "dp";
    coll.kind = HSDP_COLL_BARRIER;
    switch (index) {
    case 0:
        return ops->create(on->host.job, on->host.mesh, &spec, &group, err);
    case 1:
        return ops->connect(on->host.job, err);
    case 2:
        return ops->info(on->group, &info, err);
    case 3:
        return ops->members(on->group, members, 2, err);
    case 4:
        return ops->start(on->group, &coll, sizeof(coll), 1, NULL, NULL, err);
    default:
        return EVERY_CALL_MADE;
    }
}

static int32_t model_call(struct every_call *on, uint64_t index)
{
    const struct hsdp_model_ops *ops = on->host.api->model;
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct hsdp_error *err = &on->host.err;
    hsdp_model *model = on->host.model;
    float values[64] = {0};
    struct hsdp_tensor full = host_tensor(&on->host, 0, values, "fp32");
    struct hsdp_tensor view;
    const char *name;
    const char *dtype;
    uint32_t state;

    switch (index) {
    case 0:
        return ops->create(on->host.job, on->host.plan, &model, err);
    case 1:
        return ops->info(model, &info, err);
    case 2:
        return ops->param_view(model, 0, HSDP_VIEW_PARAM, &view, err);
    case 3:
        return ops->flat_view(model, 0, 0, HSDP_FLAT_MASTER, &view, err);
    case 4:
        return ops->state_create(model, "m", "fp32", &state, err);
    case 5:
        return ops->state_info(model, 0, &name, &dtype, err);
    case 6:
        return ops->edit_begin(model, NULL, err);
    case 7:
        return ops->edit_end(model, NULL, err);
    case 8:
        return ops->import_param(model, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS, NULL, err);
    case 9:
        return ops->export_param(model, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS, NULL, err);
    case 10:
        return ops->sync(model, NULL, err);
    default:
        return EVERY_CALL_MADE;
    }
}

static int32_t unit_call(struct every_call *on, uint64_t index)
{
    const struct hsdp_unit_ops *ops = on->host.api->unit;
    struct hsdp_error *err = &on->host.err;
    hsdp_model *model = on->host.model;
    uint64_t pass = on->host.pass;
    float values[64] = {0};
    struct hsdp_tensor grad = host_tensor(&on->host, 0, values, "fp32");
    const uint32_t units[] = {0};

    switch (index) {
    case 0:
        return ops->unshard(model, 0, HSDP_USE_FORWARD, NULL, NULL, err);
    case 1:
        return ops->release(model, 0, NULL, err);
    case 2:
        return ops->grad_add(model, 0, &grad, NULL, err);
    case 3:
        return ops->backward_begin(model, units, 1, HSDP_SCOPE_FULL, &pass, err);
    case 4:
        return ops->reduce(model, pass, 0, NULL, NULL, err);
    case 5:
        return ops->skip(model, pass, 0, NULL, NULL, err);
    case 6:
        return ops->backward_end(model, pass, NULL, NULL, err);
    default:
        return EVERY_CALL_MADE;
    }
}

static int32_t step_call(struct every_call *on, uint64_t index)
{
    const struct hsdp_step_ops *ops = on->host.api->step;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    struct hsdp_error *err = &on->host.err;
    hsdp_model *model = on->host.model;
    struct hsdp_tensor view;

    switch (index) {
    case 0:
        return ops->begin(model, &spec, NULL, err);
    case 1:
        return ops->result(model, &info, err);
    case 2:
        return ops->factor_view(model, &view, err);
    case 3:
        return ops->end(model, NULL, NULL, err);
    case 4:
        return ops->discard(model, NULL, err);
    default:
        return EVERY_CALL_MADE;
    }
}

static int32_t diag_call(struct every_call *on, uint64_t index)
{
    const struct hsdp_diag_ops *ops = on->host.api->diag;
    struct hsdp_error *err = &on->host.err;
    hsdp_job *job = on->host.job;
    const char *name;
    uint64_t n;

    switch (index) {
    case 0:
        return ops->report(job, "error", NULL, 0, &n, err);
    case 1:
        return ops->counter(job, "steps", &n, err);
    case 2:
        return ops->counter_name(job, 0, &name, err);
    default:
        return EVERY_CALL_MADE;
    }
}

static int32_t adamw_call(struct every_call *on, uint64_t index)
{
    return index == 0 ? host_adamw(&on->host, 0.5, 0.0) : EVERY_CALL_MADE;
}

const struct every_call_table every_call_tables[EVERY_CALL_N_TABLES] = {
    {"job", job_call, 2, sizeof(struct hsdp_job_ops)},
    {"group", group_call, 1, sizeof(struct hsdp_group_ops)},
    {"model", model_call, 1, sizeof(struct hsdp_model_ops)},
    {"unit", unit_call, 0, sizeof(struct hsdp_unit_ops)},
    {"step", step_call, 0, sizeof(struct hsdp_step_ops)},
    {"diag", diag_call, 0, sizeof(struct hsdp_diag_ops)},
    {"adamw", adamw_call, 0, sizeof(struct hsdp_adamw_ops)},
};

uint64_t every_call_n(const struct every_call_table *table)
{
    return table->n_bytes / sizeof(void *) - 1 - table->n_left_out;
}
