/* SPDX-License-Identifier: Apache-2.0 */
/* Models: creation, views, optimizer states, memory. */
#include <check.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static const char units[] = "unit a: w[5,3] k[3]!; unit b: x[1031] s[]; unit f: g[2]!";

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

/* ---------------------------------------------------------------------------------- create */

static int32_t model_create(struct host *host, hsdp_job *job, hsdp_plan *plan)
{
    hsdp_model *model = (hsdp_model *)(uintptr_t)7;
    int32_t status = host->api->model->create(job, plan, &model, &host->err);

    if (status == HSDP_OK) {
        host->api->model->destroy(model);
    } else {
        ck_assert_ptr_eq(model, (hsdp_model *)(uintptr_t)7); /* untouched */
    }
    return status;
}

static void create_early_rank(uint32_t rank, void *shared)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct host host;
    hsdp_plan *plan;
    hsdp_job *job;

    (void)shared;
    host_join(&host, rank, "dp=2", "");
    host_must(&host, host.api->plan->create(host.mesh, NULL, &plan, &host.err));
    host_must_refuse(&host, model_create(&host, host.job, plan), HSDP_ERR_STATE, "not finished");
    host.api->plan->destroy(plan);
    host_plan(&host, "", units);
    spec.name = "another";
    host_must(&host, host.api->job->create(&spec, &job, &host.err));
    host_must_refuse(&host, model_create(&host, job, host.plan), HSDP_ERR_STATE, "not connected");
    host.api->job->destroy(job);
    host_must(&host, model_create(&host, host.job, host.plan));
    host_close(&host);
}

START_TEST(create_before_plan_and_job_are_ready_is_refused)
{
    ranks_run(2, RANKS_LIMIT_MS, create_early_rank, NULL);
}
END_TEST

/* A plan made for another world, and for another rank. */
static void create_foreign_rank(uint32_t rank, void *shared)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    const uint32_t worlds[] = {3, 2};
    struct host host;

    (void)shared;
    host_join(&host, rank, "dp=2", "");
    for (int i = 0; i < 2; i++) {
        const int64_t sizes[] = {worlds[i]};
        const char *names[] = {"dp"};

        host.api->mesh->destroy(host.mesh);
        spec.dim_sizes = sizes;
        spec.dim_names = names;
        spec.n_dims = 1;
        spec.rank = i == 0 ? rank : 1 - rank;
        host_must(&host, host.api->mesh->create(&spec, &host.mesh, &host.err));
        host_plan(&host, "", "unit a: w[5]");
        host_must_refuse(&host, model_create(&host, host.job, host.plan), HSDP_ERR_INVALID,
                         "the plan is for rank");
        host.api->plan->destroy(host.plan);
        host.plan = NULL;
    }
    host_close(&host);
}

START_TEST(create_with_a_plan_of_another_rank_is_refused)
{
    ranks_run(2, RANKS_LIMIT_MS, create_foreign_rank, NULL);
}
END_TEST

static void two_models_rank(uint32_t rank, void *shared)
{
    struct host host;
    hsdp_model *first;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, units);
    first = host.model;
    host_model(&host);
    host_load(&host, one);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    host_expect_param(&host, "w", 1.0);
    host.api->model->destroy(host.model);
    host.model = first;
    host_expect_param(&host, "w", 0.0);
    ck_assert_double_eq(host_step(&host, 0.0).norm, 0.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(create_of_two_models_keeps_them_apart)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, two_models_rank, NULL);
}
END_TEST

static void destroy_rank(uint32_t rank, void *shared)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, units);
    host_load(&host, one);
    host.api->plan->destroy(host.plan);
    host.api->mesh->destroy(host.mesh);
    host.plan = NULL;
    host.mesh = NULL;
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    host_must(&host, host.api->job->close(host.job, &host.err));
    host.api->job->destroy(host.job);
    host.job = NULL;
    host.api->model->info(host.model, &info, &host.err);
    host.api->model->destroy(NULL);
    host_leave(&host);
}

START_TEST(destroy_of_plan_and_job_before_the_model_is_fine)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, destroy_rank, NULL);
}
END_TEST

/* In the middle of everything: reductions are open, a unit is acquired, a step has begun. */
static void destroy_open_rank(uint32_t rank, void *what)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;
    uint64_t ticket;

    host_open(&host, rank, "dp=2", host_settings, units);
    if (*(int *)what == 0) {
        host_must(&host, host.api->step->begin(host.model, &spec, &ticket, &host.err));
    } else {
        host_pass_begin(&host, HSDP_SCOPE_FULL);
        host_acquire(&host, host_unit(&host, "b"));
        host_hand_over(&host, host_unit(&host, "b"));
        host_acquire(&host, host_unit(&host, "a"));
    }
    host_leave(&host);
}

START_TEST(destroy_of_a_busy_model_frees_it)
{
    int what = _i % 2;

    host_settings_set(_i / 2, "");
    ranks_run(2, RANKS_LIMIT_MS, destroy_open_rank, &what);
}
END_TEST

/* ----------------------------------------------------------------------------------- views */

static int32_t flat_view(struct host *host, uint32_t unit, uint32_t buffer, int32_t flat)
{
    struct hsdp_tensor view;

    return host->api->model->flat_view(host->model, unit, buffer, flat, &view, &host->err);
}

static int32_t param_view(struct host *host, uint32_t param, int32_t kind)
{
    struct hsdp_tensor view;

    return host->api->model->param_view(host->model, param, kind, &view, &host->err);
}

static void views_wrong_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, units);
    host_must_refuse(&host, param_view(&host, 99, 0), HSDP_ERR_INVALID, "parameter 99 of 5");
    host_must_refuse(&host, param_view(&host, 0, 7), HSDP_ERR_INVALID, "view 7");
    host_must_refuse(&host, param_view(&host, 1, HSDP_VIEW_GRAD), HSDP_ERR_INVALID, "\"k\"");
    host_must_refuse(&host, flat_view(&host, 9, 0, 0), HSDP_ERR_INVALID, "unit 9 of 3");
    host_must_refuse(&host, flat_view(&host, 0, 2, 0), HSDP_ERR_INVALID, "buffer 2 of unit \"a\"");
    host_must_refuse(&host, flat_view(&host, 0, 0, 5), HSDP_ERR_INVALID, "flat 5");
    host_must_refuse(&host, flat_view(&host, 0, 0, HSDP_FLAT_STATE), HSDP_ERR_INVALID, "flat 16");
    host_must_refuse(&host, flat_view(&host, 0, 1, HSDP_FLAT_GRAD), HSDP_ERR_INVALID, "frozen");
    host_must_refuse(&host, flat_view(&host, 2, 0, HSDP_FLAT_GRAD), HSDP_ERR_INVALID, "frozen");
    host_must(&host, flat_view(&host, 0, 1, HSDP_FLAT_MASTER));
    host_close(&host);
}

START_TEST(view_of_what_is_not_there_is_refused)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, views_wrong_rank, NULL);
}
END_TEST

struct addresses {
    const void *views[16];
};

static struct addresses addresses_take(struct host *host)
{
    struct addresses at;
    struct hsdp_tensor view;
    int n = 0;

    memset(&at, 0, sizeof(at));
    for (uint32_t param = 0; param < host->n_params; param++) {
        view = host_view(host, param, HSDP_VIEW_PARAM);
        at.views[n++] = (char *)view.base + view.byte_offset;
        if (!host->params[param].is_frozen) {
            view = host_view(host, param, HSDP_VIEW_GRAD);
            at.views[n++] = (char *)view.base + view.byte_offset;
        }
    }
    for (int flat = HSDP_FLAT_MASTER; flat <= HSDP_FLAT_GRAD; flat++) {
        host_must(host, host->api->model->flat_view(host->model, 1, 0, flat, &view, &host->err));
        at.views[n++] = view.base;
    }
    host_must(host, host->api->step->factor_view(host->model, &view, &host->err));
    at.views[n] = view.base;
    return at;
}

static void views_fixed_rank(uint32_t rank, void *shared)
{
    struct addresses before;
    struct addresses after;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, units);
    before = addresses_take(&host);
    host_load(&host, one);
    for (uint32_t step = 0; step < 3; step++) {
        host_forward(&host);
        host_backward(&host, HSDP_SCOPE_FULL, step, one);
        host_step(&host, 0.0);
        host_must(&host, host_adamw(&host, 0.1, 0.1));
        host_step_end(&host);
    }
    after = addresses_take(&host);
    ck_assert_mem_eq(&before, &after, sizeof(before));
    host_close(&host);
}

START_TEST(views_keep_their_addresses_over_steps)
{
    host_settings_set(_i / 3, _i % 3 == 0   ? ""
                              : _i % 3 == 1 ? "param_dtype=bf16"
                                            : "accumulation_scope=inner");
    ranks_run(2, RANKS_LIMIT_MS, views_fixed_rank, NULL);
}
END_TEST

static void view_expect(const struct hsdp_tensor *view, const char *dtype)
{
    bool is_bf16 = strcmp(dtype, "bf16") == 0;

    ck_assert_uint_eq(view->dtype_code, is_bf16 ? HSDP_DTYPE_BFLOAT : HSDP_DTYPE_FLOAT);
    ck_assert_uint_eq(view->dtype_bits, strcmp(dtype, "fp32") == 0 ? 32 : 16);
    ck_assert_uint_eq(view->dtype_lanes, 1);
    ck_assert_int_eq(view->device_type, HSDP_DEVICE_CPU);
    ck_assert_uint_eq(((uintptr_t)view->base + view->byte_offset) % 64, 0);
}

static void views_shape_rank(uint32_t rank, void *shared)
{
    const int *index = shared;
    struct hsdp_tensor view;
    struct host host;

    host_open(&host, rank, "dp=2", host_settings, units);
    view = host_view(&host, 0, HSDP_VIEW_PARAM);
    view_expect(&view, host_dtypes[*index % 3]);
    ck_assert_int_eq(view.n_dims, 2);
    ck_assert_int_eq(view.shape[0] * 10 + view.shape[1], 53);
    ck_assert_int_eq(view.strides[0] * 10 + view.strides[1], 31);
    view = host_view(&host, 2, HSDP_VIEW_GRAD);
    view_expect(&view, host_dtypes[*index / 3]);
    ck_assert_int_eq(view.shape[0], 1031);
    view = host_view(&host, 3, HSDP_VIEW_PARAM);
    ck_assert_int_eq(view.n_dims, 0);
    ck_assert_ptr_null(view.strides);
    host_must(&host,
              host.api->model->flat_view(host.model, 1, 0, HSDP_FLAT_MASTER, &view, &host.err));
    view_expect(&view, "fp32");
    host_close(&host);
}

START_TEST(views_have_the_dtype_and_shape_of_the_plan)
{
    char more[64];

    snprintf(more, sizeof(more), "param_dtype=%s gradient_dtype=%s", host_dtypes[_i % 3],
             host_dtypes[_i / 3]);
    host_settings_set(_i % HOST_N_STRATEGIES, more);
    ranks_run(2, RANKS_LIMIT_MS, views_shape_rank, &_i);
}
END_TEST

/* --------------------------------------------------------------------------------- forking */

static void forked_rank(uint32_t rank, void *shared)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct host host;
    int status;
    pid_t pid;

    (void)shared;
    host_open(&host, rank, "dp=2", "", units);
    pid = fork();
    if (pid == 0) {
        int32_t found = host.api->model->info(host.model, &info, &host.err);

        host.api->model->destroy(host.model);
        _exit(found == HSDP_ERR_FORKED ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    host_load(&host, one); /* the parent's goes on */
    host_expect_param(&host, "w", 1.0);
    host_close(&host);
}

START_TEST(model_in_a_forked_child_is_refused)
{
    ranks_run(2, RANKS_LIMIT_MS, forked_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("model");
    TCase *tcase = tcase_create("model");

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, create_before_plan_and_job_are_ready_is_refused);
    tcase_add_test(tcase, create_with_a_plan_of_another_rank_is_refused);
    tcase_add_loop_test(tcase, create_of_two_models_keeps_them_apart, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, destroy_of_plan_and_job_before_the_model_is_fine, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, destroy_of_a_busy_model_frees_it, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, view_of_what_is_not_there_is_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, views_keep_their_addresses_over_steps, 0, 3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, views_have_the_dtype_and_shape_of_the_plan, 0, 9);
    tcase_add_test(tcase, model_in_a_forked_child_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
