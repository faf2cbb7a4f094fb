/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter deadlines: every wait ends in time, and names who did not come. */
#include "deadlines.h"

#include <signal.h>
#include <string.h>

/* What is prepared takes as long as it takes. */
static void prepare_begin(struct scene *scene)
{
    conform_must(scene->conform,
                 scene->api->job->phase_push(scene->job, "prepare", 60000, &scene->conform->err));
}

static void prepare_end(struct scene *scene)
{
    conform_must(scene->conform, scene->api->job->phase_pop(scene->job, &scene->conform->err));
    conform_meet(scene->conform);
}

/* Joins with a group that spans all ranks. */
void deadlines_join(struct scene *scene, struct conform *conform, const char *settings)
{
    struct scene_spec spec = {.settings = settings};

    scene_join(scene, conform, &spec);
    prepare_begin(scene);
    scene_gather(scene);
    prepare_end(scene);
}

/* -------------------------------------------------------------------------------------- connect */

/* Of three ranks the last or the first does not come. */
static void connect_run(struct conform *conform, uint32_t missing)
{
    struct scene_spec spec = {.settings = "nccl_timeout_seconds=1"};
    struct scene_end end = {.operation = "connect", .timeout_ms = DEADLINES_T_MS};
    struct scene scene;

    scene_create(&scene, conform, &spec);
    conform_meet(conform);
    if (conform->rank != missing) {
        end.missing = missing;
        end.since_ms = scene_since(&scene);
        conform_must_refuse(conform, scene.api->job->connect(scene.job, &conform->err),
                            HSDP_ERR_TIMEOUT);
        scene_expect_end(&scene, &end);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

static void connect_last_run(struct conform *conform)
{
    connect_run(conform, 2);
}

static void connect_first_run(struct conform *conform)
{
    connect_run(conform, 0);
}

/* --------------------------------------------------------------------------------------- groups */

/* Ranks 0 to 3 are (dp, ep), and rank 3 stays away from one group. */
static void away_run(struct conform *conform, const char *selector, uint32_t waits)
{
    struct scene_spec spec = {.settings = DEADLINES_SECOND};
    struct scene_end end = {.operation = "barrier", .group = selector, .missing = 3};
    struct scene scene;
    uint64_t ticket;

    scene_join(&scene, conform, &spec);
    prepare_begin(&scene);
    scene_arrange(&scene, "dp=2,ep=2");
    scene.group = scene_group(&scene, selector, 0);
    prepare_end(&scene);
    if ((waits >> conform->rank & 1u) != 0) {
        end.since_ms = scene_since(&scene);
        end.timeout_ms = DEADLINES_T_MS;
        ticket = scene_barrier(&scene, 0);
        conform_must_refuse(conform, scene_wait(&scene, ticket), HSDP_ERR_TIMEOUT);
        scene_expect_end(&scene, &end);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

static void away_outer_run(struct conform *conform)
{
    away_run(conform, "dp", 1u << 1);
}

static void away_inner_run(struct conform *conform)
{
    away_run(conform, "ep", 1u << 2);
}

static void away_derived_run(struct conform *conform)
{
    away_run(conform, "dp,ep", 7u);
}

/* -------------------------------------------------------------------------------- other waits */

/* Rank 1 stays away from what rank 0 does; each pair of ranks does something else. */
static void wait_reduce(struct scene *scene)
{
    uint64_t ticket = 0;

    scene_pass_begin(scene);
    scene_acquire(scene, SCENE_BACK, 1.0f);
    conform_must(scene->conform, scene->api->unit->reduce(scene->model, scene->pass, SCENE_BACK,
                                                          NULL, &ticket, &scene->conform->err));
    conform_must_refuse(scene->conform, scene_wait(scene, ticket), HSDP_ERR_TIMEOUT);
}

static void wait_step(struct scene *scene)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;

    conform_must(scene->conform,
                 scene->api->step->begin(scene->model, &spec, NULL, &scene->conform->err));
    conform_must_refuse(scene->conform,
                        scene->api->step->result(scene->model, &info, &scene->conform->err),
                        HSDP_ERR_TIMEOUT);
}

static void wait_close(struct scene *scene)
{
    conform_must_refuse(scene->conform, scene->api->job->close(scene->job, &scene->conform->err),
                        HSDP_ERR_TIMEOUT);
}

static void wait_close_open(struct scene *scene)
{
    scene_barrier(scene, 0);
    wait_close(scene);
}

static void wait_create(struct scene *scene)
{
    hsdp_model *model = NULL;

    conform_must_refuse(
        scene->conform,
        scene->api->model->create(scene->job, scene->plan, &model, &scene->conform->err),
        HSDP_ERR_TIMEOUT);
    conform_expect(scene->conform, model == NULL, "a model was handed out beside a failure");
}

static void wait_edit(struct scene *scene)
{
    conform_must_refuse(scene->conform,
                        scene->api->model->edit_begin(scene->model, NULL, &scene->conform->err),
                        HSDP_ERR_TIMEOUT);
}

static void wait_group(struct scene *scene)
{
    conform_must_refuse(scene->conform,
                        scene->api->group->connect(scene->job, &scene->conform->err),
                        HSDP_ERR_TIMEOUT);
}

static void wait_setting(struct scene *scene)
{
    conform_must_refuse(
        scene->conform,
        scene->api->job->setting_set(scene->job, "nccl_timeout_seconds", "9", &scene->conform->err),
        HSDP_ERR_TIMEOUT);
}

static void wait_export(struct scene *scene)
{
    float values[1031];
    struct hsdp_tensor full = scene_tensor(SCENE_X, values);

    conform_must_refuse(scene->conform,
                        scene->api->model->export_param(scene->model, SCENE_X, HSDP_FLAT_MASTER,
                                                        &full, HSDP_ALL_RANKS, NULL,
                                                        &scene->conform->err),
                        HSDP_ERR_TIMEOUT);
}

static void alone_run(struct conform *conform, const char *operation,
                      void (*wait)(struct scene *scene))
{
    struct scene_spec spec = {.settings = DEADLINES_SECOND};
    struct scene_end end = {.operation = operation, .missing = 1, .timeout_ms = DEADLINES_T_MS};
    struct scene scene;

    scene_join(&scene, conform, &spec);
    prepare_begin(&scene);
    scene_model(&scene, "sharding_strategy=ddp"); /* to unshard needs no peer */
    scene_gather(&scene);
    prepare_end(&scene);
    if (scene.rank == 0) {
        end.since_ms = scene_since(&scene);
        wait(&scene);
        scene_expect_end(&scene, &end);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

static void alone_reduce_run(struct conform *conform)
{
    alone_run(conform, "reduce", wait_reduce);
}

static void alone_step_run(struct conform *conform)
{
    alone_run(conform, "step", wait_step);
}

static void alone_close_run(struct conform *conform)
{
    alone_run(conform, "close", wait_close);
}

static void alone_close_open_run(struct conform *conform)
{
    alone_run(conform, "", wait_close_open); /* the barrier, or close itself */
}

static void alone_create_run(struct conform *conform)
{
    alone_run(conform, "create", wait_create);
}

static void alone_edit_run(struct conform *conform)
{
    alone_run(conform, "edit_begin", wait_edit);
}

static void alone_group_run(struct conform *conform)
{
    alone_run(conform, "connect", wait_group);
}

static void alone_setting_run(struct conform *conform)
{
    alone_run(conform, "setting_set", wait_setting);
}

static void alone_export_run(struct conform *conform)
{
    alone_run(conform, "export", wait_export);
}

/* --------------------------------------------------------------------------- hosts that stand */

static void heartbeat_run(struct conform *conform)
{
    struct scene scene;

    deadlines_join(&scene, conform,
                   "nccl_timeout_seconds=60 heartbeat_timeout_seconds=2 init_timeout_seconds=60");
    if (scene.rank == 0) {
        uint64_t ticket = scene_barrier(&scene, 0);

        conform_must_refuse(conform, scene_wait(&scene, ticket), HSDP_ERR_TIMEOUT);
        scene_expect_missing(&scene, 1);
        conform_expect(conform, strcmp(conform->err.operation, "heartbeat") == 0,
                       "the operation is \"%s\", not \"heartbeat\"", conform->err.operation);
    }
    conform_meet(conform);
    scene_drop(&scene);
}

/* In a phase a host may be silent for longer. */
static void heartbeat_phase_run(struct conform *conform)
{
    struct scene scene;

    deadlines_join(&scene, conform,
                   "nccl_timeout_seconds=60 heartbeat_timeout_seconds=1 init_timeout_seconds=60");
    conform_must(conform, scene.api->job->phase_push(scene.job, "save", 40000, &conform->err));
    conform_sleep_ms(2500);
    conform_must(conform, scene.api->job->phase_pop(scene.job, &conform->err));
    conform_must(conform, scene_wait(&scene, scene_barrier(&scene, 0)));
    scene_drop(&scene);
}

static void stopped_run(struct conform *conform)
{
    struct scene_end end = {.operation = "barrier", .group = "dp", .missing = 1};
    struct scene scene;

    deadlines_join(&scene, conform, DEADLINES_SECOND);
    if (scene.rank == 1) {
        conform_expect_signal(conform, SIGKILL);
        conform_meet(conform);
        for (;;) {
            conform_sleep_ms(1000);
        }
    }
    conform_meet(conform);
    kill(conform_process(conform, 1), SIGSTOP);
    end.since_ms = scene_since(&scene);
    end.timeout_ms = DEADLINES_T_MS;
    conform_must_refuse(conform, scene_wait(&scene, scene_barrier(&scene, 0)), HSDP_ERR_TIMEOUT);
    scene_expect_end(&scene, &end);
    kill(conform_process(conform, 1), SIGKILL);
    scene_drop(&scene);
}

#define WAIT(title, function, ranks)                                                               \
    {                                                                                              \
        .name = (title), .promise = "abi.h: HSDP_ERR_TIMEOUT", .run = (function),                  \
        .n_ranks = (ranks)                                                                         \
    }

static const struct conform_check checks[] = {
    WAIT("connect without the last rank ends in time and names it", connect_last_run, 3),
    WAIT("connect without rank 0 ends in time and names it", connect_first_run, 3),
    WAIT("a group over the outer dimension ends in time", away_outer_run, 4),
    WAIT("a group over the inner dimension ends in time", away_inner_run, 4),
    WAIT("a group over both dimensions ends in time", away_derived_run, 4),
    WAIT("reduce without a peer ends in time", alone_reduce_run, 2),
    WAIT("a step without a peer ends in time", alone_step_run, 2),
    WAIT("close without a peer ends in time", alone_close_run, 2),
    WAIT("close with an operation left open ends in time", alone_close_open_run, 2),
    WAIT("model.create without a peer ends in time", alone_create_run, 2),
    WAIT("edit_begin without a peer ends in time", alone_edit_run, 2),
    WAIT("group.connect without a peer ends in time", alone_group_run, 2),
    WAIT("setting_set without a peer ends in time", alone_setting_run, 2),
    WAIT("export_param without a peer ends in time", alone_export_run, 2),
    WAIT("a stopped rank is named when the time is over", stopped_run, 2),
    {"a group's own timeout counts", "group.h: hsdp_group_spec", deadlines_group_timeout, 2, 0, 0},
    {"a timeout of one call counts", "group.h: hsdp_coll_spec", deadlines_call_timeout, 2, 0, 0},
    {"the innermost phase's timeout counts", "job.h: phase_push", deadlines_phase_timeout, 2, 0, 0},
    {"a timeout that is set later counts", "job.h: setting_set", deadlines_set_timeout, 2, 0, 0},
    {"a phase lets a wait last longer", "job.h: phase_push", deadlines_longer_phase, 2, 0, 0},
    {"a call's timeout lets it last longer", "group.h: hsdp_coll_spec", deadlines_longer_call, 2, 0,
     0},
    {"timeouts are told as they are now", "job.h: hsdp_job_info", deadlines_told, 2, 0, 0},
    {"the ledger tells of groups and timeouts", "diag.h: report", deadlines_ledger, 2, 0, 0},
    {"ticket_wait ends when its time is over", "job.h: ticket_wait", deadlines_ticket, 2, 0, 0},
    {"a ticket of a group that is gone is refused", "job.h: ticket_wait", deadlines_gone, 2, 0, 0},
    {"a host that makes no call is named", "job.h: heartbeat", heartbeat_run, 2, 0, 0},
    {"a phase lets a host be silent longer", "job.h: heartbeat", heartbeat_phase_run, 2, 0, 0},
    {"timeouts are read back with their source", "job.h: setting", deadlines_read_back, 1, 0, 0},
};

const struct conform_chapter conform_deadlines = {
    .name = "deadlines",
    .title = "waits end in time",
    .checks = checks,
    .n_checks = sizeof(checks) / sizeof(checks[0]),
};
