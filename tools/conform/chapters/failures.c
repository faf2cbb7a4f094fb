/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter failures: what fails a job is named on every rank, and other errors change nothing. */
#include "failures.h"

#include <signal.h>
#include <string.h>

static const struct scene_spec patient = {.settings = SCENE_PATIENT};

/* ------------------------------------------------------------------------------------- mismatch */

/* A collective in which rank 1 differs from the other two. */
struct coll {
    int32_t kind;
    int32_t reduce;
    int64_t n_elems;
    uint8_t bits;
};

static int32_t coll_run(struct scene *scene, const struct coll *coll)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    double values[16] = {0};
    double sums[48] = {0};
    int64_t shape[1] = {coll->n_elems};
    int64_t shapes[1] = {coll->n_elems * (coll->kind == HSDP_COLL_ALL_GATHER ? scene->n_ranks : 1)};
    struct hsdp_tensor input = {.base = values, .device_type = HSDP_DEVICE_CPU, .n_dims = 1};
    struct hsdp_tensor output;

    input.dtype_code = HSDP_DTYPE_FLOAT;
    input.dtype_bits = coll->bits;
    input.dtype_lanes = 1;
    input.shape = shape;
    output = input;
    output.base = sums;
    output.shape = shapes;
    spec.kind = coll->kind;
    spec.reduce = coll->reduce;
    spec.input = &input;
    spec.output = &output;
    return scene_run(scene, &spec);
}

static void differ_run(struct conform *conform, const struct coll *other, const char *first,
                       const char *second)
{
    static const struct coll usual = {HSDP_COLL_ALL_REDUCE, HSDP_REDUCE_SUM, 13, 32};
    uint64_t since_ms;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    scene_gather(&scene);
    conform_meet(conform);
    since_ms = conform_now_ms();
    scene_must_end(&scene, coll_run(&scene, conform->rank == 1 ? other : &usual),
                   HSDP_ERR_MISMATCH);
    scene_expect_soon(&scene, since_ms);
    scene_expect_text(&scene, first);
    scene_expect_text(&scene, second);
    scene_expect_over(&scene, HSDP_ERR_MISMATCH);
    conform_meet(conform);
    scene_drop(&scene);
}

static void differ_count_run(struct conform *conform)
{
    differ_run(conform, &(struct coll){HSDP_COLL_ALL_REDUCE, HSDP_REDUCE_SUM, 7, 32}, "13", "7");
}

static void differ_dtype_run(struct conform *conform)
{
    differ_run(conform, &(struct coll){HSDP_COLL_ALL_REDUCE, HSDP_REDUCE_SUM, 13, 64}, "32", "64");
}

static void differ_reduce_run(struct conform *conform)
{
    differ_run(conform, &(struct coll){HSDP_COLL_ALL_REDUCE, HSDP_REDUCE_MAX, 13, 32}, "sum",
               "max");
}

static void differ_kind_run(struct conform *conform)
{
    differ_run(conform, &(struct coll){HSDP_COLL_ALL_GATHER, HSDP_REDUCE_SUM, 13, 32}, "reduce",
               "gather");
}

static void differ_setting_run(struct conform *conform)
{
    const char *value = conform->rank == 1 ? "33" : "44";
    struct scene scene;

    scene_join(&scene, conform, &patient);
    conform_must_refuse(
        conform,
        scene.api->job->setting_set(scene.job, "nccl_timeout_seconds", value, &conform->err),
        HSDP_ERR_MISMATCH);
    scene_expect_text(&scene, "33");
    scene_expect_text(&scene, "44");
    scene_expect_over(&scene, HSDP_ERR_MISMATCH);
    conform_meet(conform);
    scene_drop(&scene);
}

static void differ_connect_run(struct conform *conform)
{
    struct scene_spec spec = {.settings = "nccl_timeout_seconds=51"};
    struct scene scene;

    if (conform->rank == 1) {
        spec.settings = "nccl_timeout_seconds=52";
    }
    scene_create(&scene, conform, &spec);
    conform_must_refuse(conform, scene.api->job->connect(scene.job, &conform->err),
                        HSDP_ERR_MISMATCH);
    scene_expect_text(&scene, "nccl_timeout_seconds");
    scene_expect_text(&scene, "51");
    scene_expect_text(&scene, "52");
    scene_expect_text(&scene, "rank 1");
    conform_meet(conform);
    scene_drop(&scene);
}

/* One waits in a step, the other in close: nobody has to wait for the deadline. */
static void elsewhere_run(struct conform *conform)
{
    uint64_t since_ms;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    scene_model(&scene, "");
    conform_meet(conform);
    since_ms = conform_now_ms();
    if (conform->rank == 0) {
        conform_must_refuse(conform, scene.api->model->edit_begin(scene.model, NULL, &conform->err),
                            HSDP_ERR_MISMATCH);
    } else {
        conform_must_refuse(conform, scene.api->job->close(scene.job, &conform->err),
                            HSDP_ERR_MISMATCH);
    }
    scene_expect_soon(&scene, since_ms);
    scene_expect_over(&scene, HSDP_ERR_MISMATCH);
    conform_meet(conform);
    scene_drop(&scene);
}

/* ---------------------------------------------------------------------------------------- death */

/* Rank 1 of three dies; the others wait, or compute. */
static void die(struct conform *conform)
{
    if (conform->rank == 1) {
        conform_expect_signal(conform, SIGKILL);
    }
    conform_meet(conform);
    if (conform->rank == 1) {
        raise(SIGKILL);
    }
}

static void killed_waited_run(struct conform *conform)
{
    uint64_t since_ms;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    scene_gather(&scene);
    die(conform);
    since_ms = conform_now_ms();
    scene_must_end(&scene, scene_run_barrier(&scene), HSDP_ERR_PEER_LOST);
    scene_expect_soon(&scene, since_ms);
    scene_expect_missing(&scene, 1);
    scene_expect_over(&scene, HSDP_ERR_PEER_LOST);
    conform_meet(conform);
    scene_drop(&scene);
}

static void killed_computing_run(struct conform *conform)
{
    struct scene scene;

    scene_join(&scene, conform, &patient);
    die(conform);
    scene_await_failure(&scene, HSDP_ERR_PEER_LOST);
    scene_expect_missing(&scene, 1);
    scene_expect_over(&scene, HSDP_ERR_PEER_LOST);
    conform_meet(conform);
    scene_drop(&scene);
}

static int32_t step_run(struct scene *scene)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    struct hsdp_error *err = &scene->conform->err;
    int32_t status = scene->api->step->begin(scene->model, &spec, NULL, err);

    return status == HSDP_OK ? scene->api->step->result(scene->model, &info, err) : status;
}

static void killed_in_step_run(struct conform *conform)
{
    uint64_t since_ms;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    scene_model(&scene, "");
    scene_load(&scene, 1.0f);
    scene_backward(&scene, 1.0f);
    die(conform);
    since_ms = conform_now_ms();
    scene_must_end(&scene, step_run(&scene), HSDP_ERR_PEER_LOST);
    scene_expect_soon(&scene, since_ms);
    scene_expect_missing(&scene, 1);
    scene_expect_over(&scene, HSDP_ERR_PEER_LOST);
    conform_meet(conform);
    scene_drop(&scene);
}

/* To leave without farewell is to be lost, for those that wait. */
static void left_run(struct conform *conform)
{
    struct scene scene;

    scene_join(&scene, conform, &patient);
    scene_gather(&scene);
    if (conform->rank == 1) {
        scene_drop(&scene);
        conform_meet(conform);
        return;
    }
    scene_must_end(&scene, scene_run_barrier(&scene), HSDP_ERR_PEER_LOST);
    scene_expect_missing(&scene, 1);
    conform_meet(conform);
    scene_drop(&scene);
}

/* --------------------------------------------------------------------- errors that fail nothing */

/* One rank's argument is wrong: all that make the call together are told whose, and go on. */
static void shared_error_run(struct conform *conform)
{
    float values[1031] = {0};
    struct hsdp_tensor full;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    scene_model(&scene, "");
    scene_load(&scene, 3.0f);
    full = scene_tensor(conform->rank == 1 ? SCENE_W : SCENE_X, values);
    conform_must(conform, scene.api->model->edit_begin(scene.model, NULL, &conform->err));
    conform_must_refuse(conform,
                        scene.api->model->import_param(scene.model, SCENE_X, HSDP_FLAT_MASTER,
                                                       &full, 1, NULL, &conform->err),
                        HSDP_ERR_INVALID);
    if (conform->rank != 1) {
        scene_expect_text(&scene, "rank 1");
    }
    conform_must(conform, scene.api->model->edit_end(scene.model, NULL, &conform->err));
    scene_expect_param(&scene, SCENE_X, 3.0f);
    conform_must(conform, scene.api->job->status(scene.job, &conform->err));
    scene_close(&scene);
}

/* Calls at the wrong moment and with wrong arguments, between those of a whole step. */
static void refused_between_run(struct conform *conform)
{
    const struct hsdp_unit_ops *unit = conform->api->unit;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    scene_model(&scene, "");
    scene_load(&scene, 5.0f);
    conform_must_refuse(conform, unit->release(scene.model, SCENE_BACK, NULL, &conform->err),
                        HSDP_ERR_STATE);
    scene_pass_begin(&scene);
    conform_must_refuse(
        conform, unit->reduce(scene.model, scene.pass, SCENE_BACK, NULL, NULL, &conform->err),
        HSDP_ERR_STATE);
    scene_acquire(&scene, SCENE_BACK, 2.0f);
    conform_must_refuse(conform, unit->release(scene.model, SCENE_BACK, NULL, &conform->err),
                        HSDP_ERR_STATE);
    conform_must_refuse(conform,
                        unit->skip(scene.model, scene.pass, SCENE_BACK, NULL, NULL, &conform->err),
                        HSDP_ERR_STATE);
    scene_hand_over(&scene, SCENE_BACK);
    scene_acquire(&scene, SCENE_FRONT, 2.0f);
    conform_must_refuse(conform,
                        unit->backward_end(scene.model, scene.pass, NULL, NULL, &conform->err),
                        HSDP_ERR_STATE);
    scene_hand_over(&scene, SCENE_FRONT);
    conform_must(conform, unit->backward_end(scene.model, scene.pass, NULL, NULL, &conform->err));
    conform_must_refuse(conform, scene.api->step->result(scene.model, &info, &conform->err),
                        HSDP_ERR_STATE);
    conform_must_refuse(conform, scene.api->step->end(scene.model, NULL, NULL, &conform->err),
                        HSDP_ERR_STATE);
    scene_step(&scene);
    scene_expect_param(&scene, SCENE_W, 3.0f);
    scene_expect_param(&scene, SCENE_X, 3.0f);
    scene_close(&scene);
}

/* What is handed out beside a failure stays as it was. */
static void outputs_run(struct conform *conform)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_tensor view;
    struct hsdp_tensor before;
    hsdp_group *const nobody = (hsdp_group *)&spec;
    hsdp_group *group = nobody;
    uint64_t ticket = 77;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    scene_model(&scene, "");
    memset(&view, 0x5a, sizeof(view));
    before = view;
    conform_must_refuse(
        conform,
        scene.api->model->param_view(scene.model, SCENE_K, HSDP_VIEW_GRAD, &view, &conform->err),
        HSDP_ERR_INVALID);
    conform_expect(conform, memcmp(&view, &before, sizeof(view)) == 0,
                   "param_view failed and wrote a view");
    conform_must_refuse(
        conform, scene.api->unit->unshard(scene.model, SCENE_BACK, 9, NULL, &ticket, &conform->err),
        HSDP_ERR_INVALID);
    conform_expect(conform, ticket == 77, "unshard failed and wrote a ticket");
    spec.selector = "nowhere";
    conform_must_refuse(
        conform, scene.api->group->create(scene.job, scene.mesh, &spec, &group, &conform->err),
        HSDP_ERR_INVALID);
    conform_expect(conform, group == nobody, "group.create failed and wrote a group");
    scene_close(&scene);
}

/* -------------------------------------------------------------------------------------- the end */

static void destroy_order_run(struct conform *conform)
{
    struct scene scene;
    const struct hsdp_api *api = conform->api;

    for (int order = 0; order < 3; order++) {
        scene_join(&scene, conform, &patient);
        scene_gather(&scene);
        scene_model(&scene, "");
        scene_load(&scene, 1.0f);
        conform_must(conform, api->job->close(scene.job, &conform->err));
        if (order == 0) {
            api->job->destroy(scene.job);
            api->mesh->destroy(scene.mesh);
            api->plan->destroy(scene.plan);
            api->group->destroy(scene.group);
            api->model->destroy(scene.model);
        } else if (order == 1) {
            api->plan->destroy(scene.plan);
            api->mesh->destroy(scene.mesh);
            api->model->destroy(scene.model);
            api->job->destroy(scene.job);
            api->group->destroy(scene.group);
        } else {
            scene_drop(&scene);
        }
        conform_meet(conform);
    }
}

/* A new job, by another name, in the processes of one that has failed. */
static void again_run(struct conform *conform)
{
    struct scene_spec spec = patient;
    struct scene scene;

    scene_join(&scene, conform, &patient);
    conform_must(conform, scene.api->job->abort(scene.job, NULL, &conform->err));
    conform_meet(conform);
    scene_drop(&scene);
    conform_meet(conform);
    spec.name = "again";
    scene_join(&scene, conform, &spec);
    scene_gather(&scene);
    conform_must(conform, scene_wait(&scene, scene_barrier(&scene, 0)));
    scene_close(&scene);
}

#define FAILURE "abi.h: Failure"

static const struct conform_check checks[] = {
    {"a count that differs is named on all", "group.h: start", differ_count_run, 3, 0, 0},
    {"a dtype that differs is named on all", "group.h: start", differ_dtype_run, 3, 0, 0},
    {"a reduction that differs is named on all", "group.h: start", differ_reduce_run, 3, 0, 0},
    {"a kind that differs is named on all", "group.h: start", differ_kind_run, 3, 0, 0},
    {"a setting set otherwise is named on all", "job.h: setting_set", differ_setting_run, 2, 0, 0},
    {"a setting that differs ends connect", "job.h: connect", differ_connect_run, 2, 0, 0},
    {"ranks in different calls need not wait", "abi.h: Collective", elsewhere_run, 2, 0, 0},
    {"a killed rank is named where it is awaited", FAILURE, killed_waited_run, 3, 0, 0},
    {"a killed rank is named while hosts compute", "job.h: thread", killed_computing_run, 3, 0, 0},
    {"a killed rank is named in a step", FAILURE, killed_in_step_run, 3, 0, 0},
    {"a rank that left is named", "job.h: destroy", left_run, 3, 0, 0},
    {"abort ends connect", "job.h: abort", failures_abort_connect, 2, 0, 0},
    {"abort ends the waits of all ranks", "job.h: abort", failures_abort_wait, 3, 0, 0},
    {"a second abort changes nothing", "job.h: abort", failures_abort_twice, 2, 0, 0},
    {"abort without a reason has one", "job.h: abort", failures_abort_unsaid, 1, 0, 0},
    {"abort after close changes nothing", "job.h: abort", failures_abort_closed, 2, 0, 0},
    {"on_abort is told once, and why", "job.h: on_abort", failures_told_once, 3, 0, 0},
    {"on_abort is not told of a good end", "job.h: on_abort", failures_never_told, 2, 0, 0},
    {"a callback that fails ends the job", "job.h: kv_put", failures_callback, 2, 0, 0},
    {"an error of one rank is told to all", "abi.h: Collective", shared_error_run, 2, 0, 0},
    {"calls that are refused change nothing", FAILURE, refused_between_run, 2, 0, 0},
    {"outputs stay as they were on failure", "abi.h: Errors", outputs_run, 2, 0, 0},
    {"objects are destroyed in any order", "abi.h: Ownership", destroy_order_run, 2, 0, 0},
    {"a new job follows one that has failed", FAILURE, again_run, 2, 0, 0},
};

const struct conform_chapter conform_failures = {
    .name = "failures",
    .title = "failures are named on every rank",
    .checks = checks,
    .n_checks = sizeof(checks) / sizeof(checks[0]),
};
