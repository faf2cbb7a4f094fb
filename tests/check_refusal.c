/* SPDX-License-Identifier: Apache-2.0 */
/* A call of all ranks that one of them cannot make: the others hear why, and the job goes on. */
#include <check.h>
#include <stdio.h>
#include <sys/resource.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* A deadline is far away: who is in time has not waited for one. */
#define IN_TIME_MS 15000u

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

/* What rank 1 does wrong, where the others do it right. */
enum refused {
    CREATE_WITHOUT_PLAN,
    CREATE_UNFINISHED,
    CREATE_WITHOUT_MEMORY,
    SETTING_WITHOUT_KEY,
    EDIT_IN_USE,
    EDIT_ON_A_STREAM,
    SYNC_ON_A_STREAM,
    IMPORT_OF_NO_PARAMETER,
    IMPORT_OF_ANOTHER_SHAPE,
    IMPORT_FROM_A_STRANGER,
    IMPORT_ON_A_STREAM,
    EXPORT_OF_NO_STATE,
    EXPORT_WITHOUT_TENSOR,
    N_REFUSED,
};

struct case_of {
    int32_t status;
    const char *text;
};

static const struct case_of cases[N_REFUSED] = {
    [CREATE_WITHOUT_PLAN] = {HSDP_ERR_INVALID, "model.create: plan is NULL"},
    [CREATE_UNFINISHED] = {HSDP_ERR_STATE, "model.create: the plan is not finished"},
    [CREATE_WITHOUT_MEMORY] = {HSDP_ERR_NO_MEMORY, "cannot map"},
    [SETTING_WITHOUT_KEY] = {HSDP_ERR_INVALID, "job.setting_set: key is NULL"},
    [EDIT_IN_USE] = {HSDP_ERR_STATE, "unit \"a\" is still unsharded"},
    [EDIT_ON_A_STREAM] = {HSDP_ERR_INVALID, "model.edit_begin: stream "},
    [SYNC_ON_A_STREAM] = {HSDP_ERR_INVALID, "model.sync: stream "},
    [IMPORT_OF_NO_PARAMETER] = {HSDP_ERR_INVALID, "model.import_param: parameter 7 of 2"},
    [IMPORT_OF_ANOTHER_SHAPE] = {HSDP_ERR_INVALID, "model.import_param: "},
    [IMPORT_FROM_A_STRANGER] = {HSDP_ERR_INVALID, "source_rank 9 is not among the ranks"},
    [IMPORT_ON_A_STREAM] = {HSDP_ERR_INVALID, "model.import_param: stream "},
    [EXPORT_OF_NO_STATE] = {HSDP_ERR_INVALID, "flat 20 is none of"},
    [EXPORT_WITHOUT_TENSOR] = {HSDP_ERR_INVALID, "\"w\": this rank must pass a tensor"},
};

static bool is_in_edit(enum refused refused)
{
    return refused >= SYNC_ON_A_STREAM;
}

static int32_t create_wrong(struct host *host, enum refused refused, hsdp_model **ret_model)
{
    struct rlimit before;
    struct rlimit none;
    hsdp_plan *plan = NULL;
    int32_t status;

    if (refused == CREATE_WITHOUT_PLAN) {
        return host->api->model->create(host->job, NULL, ret_model, &host->err);
    }
    if (refused == CREATE_UNFINISHED) {
        struct hsdp_settings settings = {NULL, NULL, 0};

        host_must(host, host->api->plan->create(host->mesh, &settings, &plan, &host->err));
        status = host->api->model->create(host->job, plan, ret_model, &host->err);
        host->api->plan->destroy(plan);
        return status;
    }
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
    none = before;
    none.rlim_cur = 1; /* what is mapped already stays, and the heap has some room */
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
    status = host->api->model->create(host->job, host->plan, ret_model, &host->err);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
    return status;
}

static int32_t edit_wrong(struct host *host, enum refused refused)
{
    const struct hsdp_model_ops *ops = host->api->model;
    int64_t shape[] = {4};
    float values[5] = {0};
    struct hsdp_tensor full = host_tensor(host, 0, values, "fp32");

    switch (refused) {
    case EDIT_ON_A_STREAM:
        return ops->edit_begin(host->model, values, &host->err);
    case SYNC_ON_A_STREAM:
        return ops->sync(host->model, values, &host->err);
    case IMPORT_OF_NO_PARAMETER:
        return ops->import_param(host->model, 7, HSDP_FLAT_MASTER, &full, 1, NULL, &host->err);
    case IMPORT_OF_ANOTHER_SHAPE:
        full.shape = shape;
        return ops->import_param(host->model, 0, HSDP_FLAT_MASTER, &full, 1, NULL, &host->err);
    case IMPORT_FROM_A_STRANGER:
        return ops->import_param(host->model, 0, HSDP_FLAT_MASTER, &full, 9, NULL, &host->err);
    case IMPORT_ON_A_STREAM:
        return ops->import_param(host->model, 0, HSDP_FLAT_MASTER, &full, 1, values, &host->err);
    case EXPORT_OF_NO_STATE:
        return ops->export_param(host->model, 0, 20, &full, HSDP_ALL_RANKS, NULL, &host->err);
    default:
        return ops->export_param(host->model, 0, HSDP_FLAT_MASTER, NULL, HSDP_ALL_RANKS, NULL,
                                 &host->err);
    }
}

static int32_t call_wrong(struct host *host, enum refused refused, hsdp_model **ret_model)
{
    int32_t status;

    if (refused <= CREATE_WITHOUT_MEMORY) {
        return create_wrong(host, refused, ret_model);
    }
    if (refused == SETTING_WITHOUT_KEY) {
        return host->api->job->setting_set(host->job, NULL, "50", &host->err);
    }
    if (refused != EDIT_IN_USE) {
        return edit_wrong(host, refused);
    }
    host_must(host, host_unshard(host, 0, HSDP_USE_FORWARD));
    status = host->api->model->edit_begin(host->model, NULL, &host->err);
    host_must(host, host_release(host, 0));
    return status;
}

static int32_t call_right(struct host *host, enum refused refused, hsdp_model **ret_model)
{
    const struct hsdp_model_ops *ops = host->api->model;
    float values[5] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    struct hsdp_tensor full = host_tensor(host, 0, values, "fp32");

    if (refused <= CREATE_WITHOUT_MEMORY) {
        return ops->create(host->job, host->plan, ret_model, &host->err);
    }
    switch (refused) {
    case SETTING_WITHOUT_KEY:
        return host->api->job->setting_set(host->job, "nccl_timeout_seconds", "50", &host->err);
    case EDIT_IN_USE:
    case EDIT_ON_A_STREAM:
        return ops->edit_begin(host->model, NULL, &host->err);
    case SYNC_ON_A_STREAM:
        return ops->sync(host->model, NULL, &host->err);
    case EXPORT_OF_NO_STATE:
    case EXPORT_WITHOUT_TENSOR:
        return ops->export_param(host->model, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS, NULL,
                                 &host->err);
    default:
        return ops->import_param(host->model, 0, HSDP_FLAT_MASTER, &full, 1, NULL, &host->err);
    }
}

/* What every rank has loaded is still there, and it trains. */
static void job_goes_on(struct host *host, enum refused refused)
{
    if (refused >= EDIT_IN_USE) {
        host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
    }
    if (refused != EDIT_IN_USE) { /* there a unit was unsharded on one rank only */
        host_forward(host);
        host_backward(host, HSDP_SCOPE_FULL, 0, one);
        host_step(host, 0.0);
        host_step_end(host);
    }
    host_close(host);
}

static void refusal_rank(uint32_t rank, void *shared)
{
    enum refused refused = *(enum refused *)shared;
    hsdp_model *model = NULL;
    uint64_t start_ms;
    struct host host;
    int32_t status;

    host_open(&host, rank, "dp=3", host_settings, "unit a: w[5]; unit b: x[7]");
    host_load(&host, one);
    if (is_in_edit(refused)) {
        host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    }
    start_ms = ranks_now_ms();
    status = rank == 1 ? call_wrong(&host, refused, &model) : call_right(&host, refused, &model);
    ck_assert_uint_le(ranks_now_ms() - start_ms, IN_TIME_MS);
    host_must_refuse(&host, status, cases[refused].status, cases[refused].text);
    ck_assert_int_eq(strstr(host.err.message, ": rank 1: ") != NULL, rank != 1);
    ck_assert_int_eq(host.api->job->status(host.job, &host.err), HSDP_OK);
    ck_assert_ptr_null(model);
    host_must(&host, call_right(&host, refused, &model));
    if (model != NULL) { /* it is the same one to all ranks */
        host_must(&host, host.api->model->edit_begin(model, NULL, &host.err));
        host_must(&host, host.api->model->edit_end(model, NULL, &host.err));
    }
    host.api->model->destroy(model);
    job_goes_on(&host, refused);
}

START_TEST(call_that_one_rank_cannot_make_fails_on_all_and_the_job_goes_on)
{
    enum refused *refused = ranks_memory(sizeof(*refused));

    *refused = (enum refused)(_i / 2);
    host_settings_set(_i % 2 == 0 ? 1 + _i / 2 % 3 : 3 + _i / 2 % 4, "nccl_timeout_seconds=60");
    ranks_run(3, RANKS_LIMIT_MS, refusal_rank, refused);
}
END_TEST

/* What each rank refuses for itself it says itself. */
static void both_rank(uint32_t rank, void *shared)
{
    struct host host;
    char text[32];

    (void)shared;
    host_open(&host, rank, "dp=2", "nccl_timeout_seconds=60", "unit a: w[5]");
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    snprintf(text, sizeof(text), "parameter %u of 1", 5 + rank);
    host_must_refuse(&host,
                     host.api->model->import_param(host.model, 5 + rank, HSDP_FLAT_MASTER, NULL, 0,
                                                   NULL, &host.err),
                     HSDP_ERR_INVALID, text);
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    host_must_refuse(&host,
                     host.api->job->setting_set(host.job, rank == 0 ? NULL : "", NULL, &host.err),
                     HSDP_ERR_INVALID, rank == 0 ? "key is NULL" : "value is NULL");
    host_close(&host);
}

START_TEST(call_that_no_rank_can_make_tells_each_its_own_reason)
{
    ranks_run(2, RANKS_LIMIT_MS, both_rank, NULL);
}
END_TEST

/* What all ranks know alike is refused by each for itself: here only one makes the call. */
static void alone_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", "nccl_timeout_seconds=60", "unit a: w[5]");
    if (rank == 1) {
        host_must_refuse(&host, host.api->model->sync(host.model, NULL, &host.err), HSDP_ERR_STATE,
                         "no edit is open");
    }
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    if (rank == 1) {
        host_must_refuse(&host, host.api->model->edit_begin(host.model, NULL, &host.err),
                         HSDP_ERR_STATE, "an edit is open");
    }
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    host_close(&host);
}

START_TEST(call_at_the_wrong_moment_is_refused_without_the_others)
{
    ranks_run(2, RANKS_LIMIT_MS, alone_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("refusal");
    TCase *tcase = tcase_create("refusal");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, call_that_one_rank_cannot_make_fails_on_all_and_the_job_goes_on, 0,
                        2 * N_REFUSED);
    tcase_add_test(tcase, call_that_no_rank_can_make_tells_each_its_own_reason);
    tcase_add_test(tcase, call_at_the_wrong_moment_is_refused_without_the_others);
    suite_add_tcase(suite, tcase);
    return suite;
}
