/* SPDX-License-Identifier: Apache-2.0 */
/* NULL for every argument that may not be NULL, in every function: a sentence that names it. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "abi_host.h"
#include "suite.h"

static struct abi_host host;
static const struct hsdp_api *api;
static struct hsdp_error err;

static void host_open(void)
{
    abi_host_init(&host);
    api = host.api;
    err = (struct hsdp_error)HSDP_ERROR_INIT;
}

static void host_close(void)
{
    abi_host_fini(&host);
}

/* Expects that a call has refused `argument`, for instance "mesh.create: spec". */
static void expect_null(int32_t status, const char *argument)
{
    char sentence[96];

    ck_assert_int_eq(status, HSDP_ERR_INVALID);
    ck_assert_int_eq(err.status, HSDP_ERR_INVALID);
    snprintf(sentence, sizeof(sentence), "%s is NULL", argument);
    ck_assert_str_eq(err.message, sentence);
    ck_assert_uint_eq(strlen(err.operation), strcspn(argument, ":")); /* the call, always */
    ck_assert_int_eq(strncmp(err.operation, argument, strlen(err.operation)), 0);
    memset(err.message, 0, sizeof(err.message));
}

START_TEST(mesh_null_arguments_are_named)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    hsdp_mesh *mesh;

    expect_null(api->mesh->create(NULL, &mesh, &err), "mesh.create: spec");
    expect_null(api->mesh->create(&spec, NULL, &err), "mesh.create: ret_mesh");
    expect_null(api->mesh->info(NULL, NULL, &err), "mesh.info: mesh");
}
END_TEST

START_TEST(mesh_query_null_arguments_are_named)
{
    const char *name;
    uint32_t n;
    uint64_t n_ranks;
    const struct hsdp_mesh_ops *ops = api->mesh;

    expect_null(ops->dim(NULL, 0, &name, &n, &err), "mesh.dim: mesh");
    expect_null(ops->dim(host.mesh, 0, NULL, &n, &err), "mesh.dim: ret_name");
    expect_null(ops->dim(host.mesh, 0, &name, NULL, &err), "mesh.dim: ret_ranks");
    expect_null(ops->coords(NULL, 0, &n, 1, &err), "mesh.coords: mesh");
    expect_null(ops->coords(host.mesh, 0, NULL, 1, &err), "mesh.coords: ret_coords");
    expect_null(ops->members(NULL, "dp", 0, &n, 1, &n_ranks, &err), "mesh.members: mesh");
    expect_null(ops->members(host.mesh, NULL, 0, &n, 1, &n_ranks, &err), "mesh.members: selector");
    expect_null(ops->members(host.mesh, "dp", 0, NULL, 1, &n_ranks, &err),
                "mesh.members: ret_ranks");
    expect_null(ops->members(host.mesh, "dp", 0, &n, 1, NULL, &err), "mesh.members: ret_n_ranks");
}
END_TEST

START_TEST(job_null_arguments_are_named)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    hsdp_job *job;

    expect_null(api->job->create(NULL, &job, &err), "job.create: spec");
    expect_null(api->job->create(&spec, NULL, &err), "job.create: ret_job");
    expect_null(api->job->connect(NULL, &err), "job.connect: job");
    expect_null(api->job->close(NULL, &err), "job.close: job");
    expect_null(api->job->abort(NULL, "why", &err), "job.abort: job");
    expect_null(api->job->status(NULL, &err), "job.status: job");
    expect_null(api->job->info(NULL, &info, &err), "job.info: job");
    expect_null(api->job->phase_push(NULL, "save", 1, &err), "job.phase_push: job");
    expect_null(api->job->phase_push(host.job, NULL, 1, &err), "job.phase_push: phase");
    expect_null(api->job->phase_pop(NULL, &err), "job.phase_pop: job");
    expect_null(api->job->ticket_wait(NULL, 0, 0, &err), "job.ticket_wait: job");
    expect_null(api->job->ticket_order(NULL, 0, NULL, &err), "job.ticket_order: job");
}
END_TEST

START_TEST(job_setting_null_arguments_are_named)
{
    const char *value;
    const char *source;
    const struct hsdp_job_ops *ops = api->job;

    expect_null(ops->setting(NULL, "backend", &value, &source, &err), "job.setting: job");
    expect_null(ops->setting(host.job, NULL, &value, &source, &err), "job.setting: key");
    expect_null(ops->setting(host.job, "backend", NULL, &source, &err), "job.setting: ret_value");
    expect_null(ops->setting(host.job, "backend", &value, NULL, &err), "job.setting: ret_source");
    expect_null(ops->setting_set(NULL, "backend", "shm", &err), "job.setting_set: job");
    expect_null(ops->setting_set(host.job, NULL, "shm", &err), "job.setting_set: key");
    expect_null(ops->setting_set(host.job, "backend", NULL, &err), "job.setting_set: value");
}
END_TEST

START_TEST(group_null_arguments_are_named)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    struct hsdp_coll_spec coll = HSDP_COLL_SPEC_INIT;
    const struct hsdp_group_ops *ops = api->group;
    hsdp_group *group;
    uint32_t rank;

    expect_null(ops->create(NULL, host.mesh, &spec, &group, &err), "group.create: job");
    expect_null(ops->create(host.job, NULL, &spec, &group, &err), "group.create: mesh");
    expect_null(ops->create(host.job, host.mesh, NULL, &group, &err), "group.create: spec");
    expect_null(ops->create(host.job, host.mesh, &spec, NULL, &err), "group.create: ret_group");
    expect_null(ops->connect(NULL, &err), "group.connect: job");
    expect_null(ops->info(NULL, &info, &err), "group.info: group");
    expect_null(ops->members(NULL, &rank, 1, &err), "group.members: group");
    expect_null(ops->members(host.group, NULL, 1, &err), "group.members: ret_ranks");
    expect_null(ops->start(NULL, &coll, sizeof(coll), 1, NULL, NULL, &err), "group.start: group");
    expect_null(ops->start(host.group, NULL, 64, 1, NULL, NULL, &err), "group.start: specs");
}
END_TEST

START_TEST(plan_building_null_arguments_are_named)
{
    struct hsdp_class_spec class_spec = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param_spec = HSDP_PARAM_SPEC_INIT;
    const struct hsdp_plan_ops *ops = api->plan;
    hsdp_plan *plan;
    uint32_t n;

    expect_null(ops->create(NULL, NULL, &plan, &err), "plan.create: mesh");
    expect_null(ops->create(host.mesh, NULL, NULL, &err), "plan.create: ret_plan");
    expect_null(ops->add_class(NULL, &class_spec, &n, &err), "plan.add_class: plan");
    expect_null(ops->add_class(host.plan, NULL, &n, &err), "plan.add_class: spec");
    expect_null(ops->add_class(host.plan, &class_spec, NULL, &err), "plan.add_class: ret_class");
    expect_null(ops->add_unit(NULL, "u", 0, &n, &err), "plan.add_unit: plan");
    expect_null(ops->add_unit(host.plan, NULL, 0, &n, &err), "plan.add_unit: name");
    expect_null(ops->add_unit(host.plan, "u", 0, NULL, &err), "plan.add_unit: ret_unit");
    expect_null(ops->add_param(NULL, &param_spec, &n, &err), "plan.add_param: plan");
    expect_null(ops->add_param(host.plan, NULL, &n, &err), "plan.add_param: spec");
    expect_null(ops->add_param(host.plan, &param_spec, NULL, &err), "plan.add_param: ret_param");
    expect_null(ops->finish(NULL, &err), "plan.finish: plan");
}
END_TEST

START_TEST(plan_query_null_arguments_are_named)
{
    struct hsdp_plan_info info = HSDP_PLAN_INFO_INIT;
    struct hsdp_class_info class_info = HSDP_CLASS_INFO_INIT;
    struct hsdp_unit_info unit_info = HSDP_UNIT_INFO_INIT;
    struct hsdp_buffer_info buffer_info = HSDP_BUFFER_INFO_INIT;
    struct hsdp_param_info param_info = HSDP_PARAM_INFO_INIT;
    const struct hsdp_plan_ops *ops = api->plan;
    const hsdp_mesh *mesh;
    uint32_t n;

    expect_null(ops->info(NULL, &info, &err), "plan.info: plan");
    expect_null(ops->mesh(NULL, &mesh, &err), "plan.mesh: plan");
    expect_null(ops->mesh(host.plan, NULL, &err), "plan.mesh: ret_mesh");
    expect_null(ops->class_info(NULL, 0, &class_info, &err), "plan.class_info: plan");
    expect_null(ops->unit_info(NULL, 0, &unit_info, &err), "plan.unit_info: plan");
    expect_null(ops->buffer_info(NULL, 0, 0, &buffer_info, &err), "plan.buffer_info: plan");
    expect_null(ops->param_info(NULL, 0, &param_info, &err), "plan.param_info: plan");
    expect_null(ops->param_find(NULL, "p", &n, &err), "plan.param_find: plan");
    expect_null(ops->param_find(host.plan, NULL, &n, &err), "plan.param_find: name");
    expect_null(ops->param_find(host.plan, "p", NULL, &err), "plan.param_find: ret_param");
}
END_TEST

START_TEST(plan_setting_null_arguments_are_named)
{
    const char *v;
    const char *s;
    const struct hsdp_plan_ops *ops = api->plan;

    expect_null(ops->setting(NULL, "slots", &v, &s, &err), "plan.setting: plan");
    expect_null(ops->setting(host.plan, NULL, &v, &s, &err), "plan.setting: key");
    expect_null(ops->setting(host.plan, "slots", NULL, &s, &err), "plan.setting: ret_value");
    expect_null(ops->setting(host.plan, "slots", &v, NULL, &err), "plan.setting: ret_source");
    expect_null(ops->class_setting(NULL, 0, "slots", &v, &s, &err), "plan.class_setting: plan");
    expect_null(ops->class_setting(host.plan, 0, NULL, &v, &s, &err), "plan.class_setting: key");
    expect_null(ops->class_setting(host.plan, 0, "slots", NULL, &s, &err),
                "plan.class_setting: ret_value");
    expect_null(ops->class_setting(host.plan, 0, "slots", &v, NULL, &err),
                "plan.class_setting: ret_source");
}
END_TEST

START_TEST(plan_list_null_arguments_are_named)
{
    struct hsdp_segment seg;
    const struct hsdp_plan_ops *ops = api->plan;
    uint64_t n;
    uint32_t rank;
    char text[8];

    expect_null(ops->segments(NULL, 0, 0, 0, &seg, 32, 1, &n, &err), "plan.segments: plan");
    expect_null(ops->segments(host.plan, 0, 0, 0, NULL, 32, 1, &n, &err),
                "plan.segments: ret_segments");
    expect_null(ops->segments(host.plan, 0, 0, 0, &seg, 32, 1, NULL, &err),
                "plan.segments: ret_n_segments");
    expect_null(ops->writer(NULL, 0, 0, 0, &rank, &err), "plan.writer: plan");
    expect_null(ops->writer(host.plan, 0, 0, 0, NULL, &err), "plan.writer: ret_writer_rank");
    expect_null(ops->report(NULL, text, 8, &n, &err), "plan.report: plan");
    expect_null(ops->report(host.plan, NULL, 8, &n, &err), "plan.report: ret_text");
    expect_null(ops->report(host.plan, text, 8, NULL, &err), "plan.report: ret_bytes");
}
END_TEST

START_TEST(model_null_arguments_are_named)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct hsdp_tensor view;
    const struct hsdp_model_ops *ops = api->model;
    hsdp_model *model;

    expect_null(ops->create(NULL, host.plan, &model, &err), "model.create: job");
    expect_null(ops->create(host.job, NULL, &model, &err), "model.create: plan");
    expect_null(ops->create(host.job, host.plan, NULL, &err), "model.create: ret_model");
    expect_null(ops->info(NULL, &info, &err), "model.info: model");
    expect_null(ops->param_view(NULL, 0, 0, &view, &err), "model.param_view: model");
    expect_null(ops->param_view(host.model, 0, 0, NULL, &err), "model.param_view: ret_view");
    expect_null(ops->flat_view(NULL, 0, 0, 0, &view, &err), "model.flat_view: model");
    expect_null(ops->flat_view(host.model, 0, 0, 0, NULL, &err), "model.flat_view: ret_view");
    expect_null(ops->edit_begin(NULL, NULL, &err), "model.edit_begin: model");
    expect_null(ops->edit_end(NULL, NULL, &err), "model.edit_end: model");
    expect_null(ops->import_param(NULL, 0, 0, &view, 0, NULL, &err), "model.import_param: model");
    expect_null(ops->export_param(NULL, 0, 0, &view, 0, NULL, &err), "model.export_param: model");
    expect_null(ops->sync(NULL, NULL, &err), "model.sync: model");
}
END_TEST

START_TEST(model_state_null_arguments_are_named)
{
    const struct hsdp_model_ops *ops = api->model;
    const char *name;
    const char *dtype;
    uint32_t n;

    expect_null(ops->state_create(NULL, "m", "fp32", &n, &err), "model.state_create: model");
    expect_null(ops->state_create(host.model, NULL, "fp32", &n, &err), "model.state_create: name");
    expect_null(ops->state_create(host.model, "m", NULL, &n, &err), "model.state_create: dtype");
    expect_null(ops->state_create(host.model, "m", "fp32", NULL, &err),
                "model.state_create: ret_state");
    expect_null(ops->state_info(NULL, 0, &name, &dtype, &err), "model.state_info: model");
    expect_null(ops->state_info(host.model, 0, NULL, &dtype, &err), "model.state_info: ret_name");
    expect_null(ops->state_info(host.model, 0, &name, NULL, &err), "model.state_info: ret_dtype");
}
END_TEST

START_TEST(unit_null_arguments_are_named)
{
    struct hsdp_tensor grad = {0};
    const struct hsdp_unit_ops *ops = api->unit;
    const uint32_t units[] = {0};
    uint64_t pass;

    expect_null(ops->unshard(NULL, 0, 0, NULL, NULL, &err), "unit.unshard: model");
    expect_null(ops->release(NULL, 0, NULL, &err), "unit.release: model");
    expect_null(ops->grad_add(NULL, 0, &grad, NULL, &err), "unit.grad_add: model");
    expect_null(ops->grad_add(host.model, 0, NULL, NULL, &err), "unit.grad_add: grad");
    expect_null(ops->backward_begin(NULL, units, 1, 2, &pass, &err), "unit.backward_begin: model");
    expect_null(ops->backward_begin(host.model, NULL, 1, 2, &pass, &err),
                "unit.backward_begin: units");
    expect_null(ops->backward_begin(host.model, units, 1, 2, NULL, &err),
                "unit.backward_begin: ret_pass");
    expect_null(ops->reduce(NULL, 0, 0, NULL, NULL, &err), "unit.reduce: model");
    expect_null(ops->skip(NULL, 0, 0, NULL, NULL, &err), "unit.skip: model");
    expect_null(ops->backward_end(NULL, 0, NULL, NULL, &err), "unit.backward_end: model");
}
END_TEST

START_TEST(step_null_arguments_are_named)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct hsdp_adamw_spec adamw = HSDP_ADAMW_SPEC_INIT;
    struct hsdp_tensor view;
    const struct hsdp_step_ops *ops = api->step;

    expect_null(ops->begin(NULL, &spec, NULL, &err), "step.begin: model");
    expect_null(ops->begin(host.model, NULL, NULL, &err), "step.begin: spec");
    expect_null(ops->result(NULL, &result, &err), "step.result: model");
    expect_null(ops->factor_view(NULL, &view, &err), "step.factor_view: model");
    expect_null(ops->factor_view(host.model, NULL, &err), "step.factor_view: ret_view");
    expect_null(ops->end(NULL, NULL, NULL, &err), "step.end: model");
    expect_null(ops->discard(NULL, NULL, &err), "step.discard: model");
    expect_null(abi_adamw(api)->step(NULL, &adamw, &err), "adamw.step: model");
    expect_null(abi_adamw(api)->step(host.model, NULL, &err), "adamw.step: spec");
}
END_TEST

START_TEST(diag_null_arguments_are_named)
{
    const struct hsdp_diag_ops *ops = api->diag;
    const char *name;
    uint64_t n;
    char text[8];

    expect_null(ops->report(NULL, "error", text, 8, &n, &err), "diag.report: job");
    expect_null(ops->report(host.job, NULL, text, 8, &n, &err), "diag.report: what");
    expect_null(ops->report(host.job, "error", NULL, 8, &n, &err), "diag.report: ret_text");
    expect_null(ops->report(host.job, "error", text, 8, NULL, &err), "diag.report: ret_bytes");
    expect_null(ops->counter(NULL, "steps", &n, &err), "diag.counter: job");
    expect_null(ops->counter(host.job, NULL, &n, &err), "diag.counter: name");
    expect_null(ops->counter(host.job, "steps", NULL, &err), "diag.counter: ret_value");
    expect_null(ops->counter_name(NULL, 0, &name, &err), "diag.counter_name: job");
    expect_null(ops->counter_name(host.job, 0, NULL, &err), "diag.counter_name: ret_name");
}
END_TEST

/* What is nowhere required: a place for the error. */
START_TEST(error_null_is_accepted_everywhere)
{
    ck_assert_int_eq(api->mesh->create(NULL, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(api->job->connect(NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(api->group->connect(NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(api->plan->finish(NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(api->model->sync(NULL, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(api->unit->release(NULL, 0, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(api->step->discard(NULL, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(api->diag->counter(NULL, NULL, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(api->job->status(host.job, NULL), HSDP_OK);
}
END_TEST

START_TEST(destroy_null_is_accepted)
{
    api->mesh->destroy(NULL);
    api->job->destroy(NULL);
    api->group->destroy(NULL);
    api->plan->destroy(NULL);
    api->model->destroy(NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_null");
    TCase *all = tcase_create("null");

    tcase_add_checked_fixture(all, host_open, host_close);
    tcase_add_test(all, mesh_null_arguments_are_named);
    tcase_add_test(all, mesh_query_null_arguments_are_named);
    tcase_add_test(all, job_null_arguments_are_named);
    tcase_add_test(all, job_setting_null_arguments_are_named);
    tcase_add_test(all, group_null_arguments_are_named);
    tcase_add_test(all, plan_building_null_arguments_are_named);
    tcase_add_test(all, plan_query_null_arguments_are_named);
    tcase_add_test(all, plan_setting_null_arguments_are_named);
    tcase_add_test(all, plan_list_null_arguments_are_named);
    tcase_add_test(all, model_null_arguments_are_named);
    tcase_add_test(all, model_state_null_arguments_are_named);
    tcase_add_test(all, unit_null_arguments_are_named);
    tcase_add_test(all, step_null_arguments_are_named);
    tcase_add_test(all, diag_null_arguments_are_named);
    tcase_add_test(all, error_null_is_accepted_everywhere);
    tcase_add_test(all, destroy_null_is_accepted);
    suite_add_tcase(suite, all);
    return suite;
}
