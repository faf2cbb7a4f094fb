/* SPDX-License-Identifier: Apache-2.0 */
/* A job, a group and a small model, in the order in which hosts make them. */
#include "scene.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SETTINGS 12

/* ------------------------------------------------------------------------------------- settings */

struct text_settings {
    struct hsdp_settings settings;
    const char *keys[MAX_SETTINGS];
    const char *values[MAX_SETTINGS];
    char text[512];
};

static void settings_read(struct text_settings *ret, const char *text)
{
    char *next = NULL;

    memset(ret, 0, sizeof(*ret));
    snprintf(ret->text, sizeof(ret->text), "%s", text == NULL ? "" : text);
    for (char *key = strtok_r(ret->text, " ", &next); key != NULL;
         key = strtok_r(NULL, " ", &next)) {
        char *value = strchr(key, '=');

        *value = '\0';
        ret->keys[ret->settings.n_settings] = key;
        ret->values[ret->settings.n_settings] = value + 1;
        ret->settings.n_settings++;
    }
    ret->settings.keys = ret->keys;
    ret->settings.values = ret->values;
}

/* ------------------------------------------------------------------------------------- the job */

void scene_create(struct scene *scene, struct conform *conform, const struct scene_spec *spec)
{
    struct hsdp_job_spec job = HSDP_JOB_SPEC_INIT;
    struct text_settings settings;

    memset(scene, 0, sizeof(*scene));
    scene->conform = conform;
    scene->api = conform->api;
    scene->rank = spec->n_ranks == 0 ? conform->rank : spec->rank;
    scene->n_ranks = spec->n_ranks == 0 ? conform->n_ranks : spec->n_ranks;
    settings_read(&settings, spec->settings);
    job.name = spec->name;
    job.settings = settings.settings;
    job.rank = spec->rank;
    job.world_ranks = spec->n_ranks;
    job.local_rank = spec->rank;
    job.on_abort = spec->on_abort;
    job.user = spec->user;
    device_place(&job);
    conform_needs_transport(conform);
    conform_must(conform, scene->api->job->create(&job, &scene->job, &conform->err));
}

void scene_join(struct scene *scene, struct conform *conform, const struct scene_spec *spec)
{
    scene_create(scene, conform, spec);
    conform_must(conform, scene->api->job->connect(scene->job, &conform->err));
}

uint32_t scene_join_pair(struct scene *scene, struct conform *conform, const char *settings)
{
    struct scene_spec spec = {.settings = settings, .rank = conform->rank % 2, .n_ranks = 2};
    char name[32];

    snprintf(name, sizeof(name), "pair-%u", (unsigned)(conform->rank / 2));
    spec.name = name;
    scene_join(scene, conform, &spec);
    return conform->rank / 2;
}

void scene_arrange(struct scene *scene, const char *dims)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    const char *names[SCENE_MAX_DIMS];
    int64_t sizes[SCENE_MAX_DIMS];
    char text[64];
    char *next = NULL;

    snprintf(text, sizeof(text), "%s", dims);
    for (char *name = strtok_r(text, ",", &next); name != NULL; name = strtok_r(NULL, ",", &next)) {
        char *size = strchr(name, '=');

        *size = '\0';
        names[spec.n_dims] = name;
        sizes[spec.n_dims] = strtol(size + 1, NULL, 10);
        spec.n_dims++;
    }
    spec.dim_names = names;
    spec.dim_sizes = sizes;
    spec.world_ranks = scene->n_ranks;
    spec.rank = scene->rank;
    conform_must(scene->conform,
                 scene->api->mesh->create(&spec, &scene->mesh, &scene->conform->err));
}

hsdp_group *scene_group(struct scene *scene, const char *selector, uint64_t timeout_ms)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct conform *conform = scene->conform;
    hsdp_group *group = NULL;

    spec.selector = selector;
    spec.timeout_ms = timeout_ms;
    conform_must(conform,
                 scene->api->group->create(scene->job, scene->mesh, &spec, &group, &conform->err));
    conform_must(conform, scene->api->group->connect(scene->job, &conform->err));
    return group;
}

void scene_gather(struct scene *scene)
{
    if (scene->mesh == NULL) {
        scene_arrange(scene, "dp=-1");
    }
    scene->group = scene_group(scene, "dp", 0);
}

/* ----------------------------------------------------------------------------------- the model */

const uint64_t scene_n_elems[SCENE_N_PARAMS] = {15, 3, 1031, 1};
static const int64_t shapes[SCENE_N_PARAMS][2] = {{5, 3}, {3, 0}, {1031, 0}, {0, 0}};
static const uint32_t n_dims[SCENE_N_PARAMS] = {2, 1, 1, 0};

void scene_plan(struct scene *scene, const char *settings)
{
    static const char *const names[SCENE_N_PARAMS] = {"w", "k", "x", "s"};
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct conform *conform = scene->conform;
    const struct hsdp_plan_ops *plan = scene->api->plan;
    struct text_settings own;
    uint32_t index = 0;

    settings_read(&own, settings);
    dense.name = "dense";
    if (scene->mesh == NULL) {
        scene_arrange(scene, "dp=-1");
    }
    conform_needs_plan(conform, settings == NULL ? "" : settings);
    conform_must(conform, plan->create(scene->mesh, &own.settings, &scene->plan, &conform->err));
    conform_must(conform, plan->add_class(scene->plan, &dense, &index, &conform->err));
    conform_must(conform, plan->add_unit(scene->plan, "front", 0, &index, &conform->err));
    conform_must(conform, plan->add_unit(scene->plan, "back", 0, &index, &conform->err));
    for (uint32_t param = 0; param < SCENE_N_PARAMS; param++) {
        struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;

        spec.name = names[param];
        spec.shape = shapes[param];
        spec.n_dims = n_dims[param];
        spec.unit = param / 2;
        spec.flags = param == SCENE_K ? HSDP_PARAM_FROZEN : 0;
        conform_must(conform, plan->add_param(scene->plan, &spec, &index, &conform->err));
    }
    conform_must(conform, plan->finish(scene->plan, &conform->err));
}

void scene_model(struct scene *scene, const char *settings)
{
    struct conform *conform = scene->conform;

    scene_plan(scene, settings);
    conform_must(conform,
                 scene->api->model->create(scene->job, scene->plan, &scene->model, &conform->err));
}

void scene_drop(struct scene *scene)
{
    scene->api->model->destroy(scene->model);
    scene->api->plan->destroy(scene->plan);
    scene->api->group->destroy(scene->group);
    scene->api->mesh->destroy(scene->mesh);
    scene->api->job->destroy(scene->job);
}

void scene_close(struct scene *scene)
{
    conform_must(scene->conform, scene->api->job->close(scene->job, &scene->conform->err));
    scene_drop(scene);
}

/* ---------------------------------------------------------------------------------- operations */

uint64_t scene_barrier(struct scene *scene, uint64_t timeout_ms)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct conform *conform = scene->conform;
    uint64_t ticket = 0;

    spec.kind = HSDP_COLL_BARRIER;
    spec.timeout_ms = timeout_ms;
    conform_must(conform, scene->api->group->start(scene->group, &spec, sizeof(spec), 1, NULL,
                                                   &ticket, &conform->err));
    return ticket;
}

int32_t scene_wait(struct scene *scene, uint64_t ticket)
{
    return scene->api->job->ticket_wait(scene->job, ticket, UINT64_MAX, &scene->conform->err);
}

int32_t scene_run(struct scene *scene, const struct hsdp_coll_spec *spec)
{
    uint64_t ticket = 0;
    const struct hsdp_coll_spec *own = device_specs(spec, sizeof(*spec), 1);
    int32_t status = scene->api->group->start(scene->group, own, sizeof(*own), 1, NULL, &ticket,
                                              &scene->conform->err);

    if (status == HSDP_OK) {
        status = scene_wait(scene, ticket);
    }
    if (status == HSDP_OK) {
        device_land();
    }
    return status;
}

int32_t scene_run_barrier(struct scene *scene)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    spec.kind = HSDP_COLL_BARRIER;
    return scene_run(scene, &spec);
}

struct hsdp_tensor scene_tensor(uint32_t param, float *values)
{
    struct hsdp_tensor tensor = {.base = values, .device_type = HSDP_DEVICE_CPU};

    tensor.dtype_code = HSDP_DTYPE_FLOAT;
    tensor.dtype_bits = 32;
    tensor.dtype_lanes = 1;
    tensor.n_dims = (int32_t)n_dims[param];
    tensor.shape = (int64_t *)shapes[param]; /* only read */
    return tensor;
}

void *scene_address(const struct hsdp_tensor *view)
{
    return (char *)view->base + view->byte_offset;
}

void scene_write(const struct hsdp_tensor *view, uint64_t elem, float value)
{
    ((float *)device_window(view, true))[elem] = value;
}

float scene_read(const struct hsdp_tensor *view, uint64_t elem)
{
    uint32_t bits;
    float value;

    if (view->dtype_bits == 32) {
        return ((float *)device_window(view, false))[elem];
    }
    bits = (uint32_t)((uint16_t *)device_window(view, false))[elem] << 16;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

struct hsdp_tensor scene_param(struct scene *scene, uint32_t param, int32_t view)
{
    struct hsdp_tensor tensor = {.base = NULL};

    conform_must(scene->conform, scene->api->model->param_view(scene->model, param, view, &tensor,
                                                               &scene->conform->err));
    return tensor;
}

struct hsdp_tensor scene_flat(struct scene *scene, uint32_t unit, uint32_t buffer, int32_t flat)
{
    struct hsdp_tensor tensor = {.base = NULL};

    conform_must(scene->conform, scene->api->model->flat_view(scene->model, unit, buffer, flat,
                                                              &tensor, &scene->conform->err));
    return tensor;
}

void scene_load(struct scene *scene, float value)
{
    const struct hsdp_model_ops *model = scene->api->model;
    struct conform *conform = scene->conform;
    float values[1031];

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        values[i] = value;
    }
    conform_must(conform, model->edit_begin(scene->model, NULL, &conform->err));
    for (uint32_t param = 0; param < SCENE_N_PARAMS; param++) {
        struct hsdp_tensor full = scene_tensor(param, values);

        conform_must(conform, model->import_param(scene->model, param, HSDP_FLAT_MASTER, &full,
                                                  HSDP_ALL_RANKS, NULL, &conform->err));
    }
    conform_must(conform, model->edit_end(scene->model, NULL, &conform->err));
}

/* ------------------------------------------------------------------------------- microbatches */

void scene_pass_begin(struct scene *scene)
{
    static const uint32_t order[SCENE_N_UNITS] = {SCENE_BACK, SCENE_FRONT};

    conform_must(scene->conform, scene->api->unit->backward_begin(
                                     scene->model, order, SCENE_N_UNITS, HSDP_SCOPE_FULL,
                                     &scene->pass, &scene->conform->err));
}

void scene_fill(struct scene *scene, uint32_t unit, float gradient)
{
    for (uint32_t param = 2 * unit; param < 2 * unit + 2; param++) {
        struct hsdp_tensor view;

        if (param == SCENE_K) {
            continue;
        }
        view = scene_param(scene, param, HSDP_VIEW_GRAD);
        for (uint64_t elem = 0; elem < scene_n_elems[param]; elem++) {
            scene_write(&view, elem, gradient);
        }
    }
}

void scene_acquire(struct scene *scene, uint32_t unit, float gradient)
{
    conform_must(scene->conform, scene->api->unit->unshard(scene->model, unit, HSDP_USE_BACKWARD,
                                                           NULL, NULL, &scene->conform->err));
    scene_fill(scene, unit, gradient);
}

void scene_hand_over(struct scene *scene, uint32_t unit)
{
    const struct hsdp_unit_ops *ops = scene->api->unit;
    struct conform *conform = scene->conform;

    conform_must(conform, ops->reduce(scene->model, scene->pass, unit, NULL, NULL, &conform->err));
    conform_must(conform, ops->release(scene->model, unit, NULL, &conform->err));
}

void scene_backward(struct scene *scene, float gradient)
{
    scene_pass_begin(scene);
    scene_acquire(scene, SCENE_BACK, gradient);
    scene_hand_over(scene, SCENE_BACK);
    scene_acquire(scene, SCENE_FRONT, gradient);
    scene_hand_over(scene, SCENE_FRONT);
    conform_must(scene->conform, scene->api->unit->backward_end(scene->model, scene->pass, NULL,
                                                                NULL, &scene->conform->err));
}

uint32_t scene_buffer(struct scene *scene, uint32_t unit)
{
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;
    uint32_t buffer = 0;

    conform_must(scene->conform,
                 scene->api->plan->buffer_info(scene->plan, unit, 0, &info, &scene->conform->err));
    if (info.is_frozen != 0) {
        buffer = 1;
    }
    return buffer;
}

void scene_step(struct scene *scene)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    const struct hsdp_step_ops *step = scene->api->step;
    struct conform *conform = scene->conform;

    conform_must(conform, step->begin(scene->model, &spec, NULL, &conform->err));
    conform_must(conform, step->result(scene->model, &info, &conform->err));
    for (uint32_t unit = 0; unit < SCENE_N_UNITS; unit++) {
        uint32_t buffer = scene_buffer(scene, unit);
        struct hsdp_tensor master = scene_flat(scene, unit, buffer, HSDP_FLAT_MASTER);
        struct hsdp_tensor gradient = scene_flat(scene, unit, buffer, HSDP_FLAT_GRAD);

        for (int64_t elem = 0; elem < master.shape[0]; elem++) {
            float change = (float)info.factor * scene_read(&gradient, (uint64_t)elem);

            scene_write(&master, (uint64_t)elem, scene_read(&master, (uint64_t)elem) - change);
        }
    }
    conform_must(conform, step->end(scene->model, NULL, NULL, &conform->err));
}

void scene_expect_param(struct scene *scene, uint32_t param, float value)
{
    const struct hsdp_unit_ops *ops = scene->api->unit;
    struct conform *conform = scene->conform;
    struct hsdp_tensor view = scene_param(scene, param, HSDP_VIEW_PARAM);

    conform_must(conform, ops->unshard(scene->model, param / 2, HSDP_USE_FORWARD, NULL, NULL,
                                       &conform->err));
    for (uint64_t elem = 0; elem < scene_n_elems[param]; elem++) {
        conform_expect(conform, scene_read(&view, elem) == value,
                       "element %u of parameter %u is %g, not %g", (unsigned)elem, (unsigned)param,
                       (double)scene_read(&view, elem), (double)value);
    }
    conform_must(conform, ops->release(scene->model, param / 2, NULL, &conform->err));
}

/* -------------------------------------------------------------------------------------- failure */

void scene_expect_missing(struct scene *scene, uint32_t rank)
{
    struct conform *conform = scene->conform;

    conform_expect(conform, conform->err.n_missing_ranks == 1,
                   "%u ranks are named as missing, not rank %u alone: %s",
                   (unsigned)conform->err.n_missing_ranks, (unsigned)rank, conform->err.message);
    conform_expect(conform, conform->err.missing_ranks[0] == rank,
                   "rank %u is named as missing, not rank %u: %s",
                   (unsigned)conform->err.missing_ranks[0], (unsigned)rank, conform->err.message);
}

void scene_expect_text(struct scene *scene, const char *text)
{
    conform_expect(scene->conform, strstr(scene->conform->err.message, text) != NULL,
                   "\"%s\" does not say \"%s\"", scene->conform->err.message, text);
}

uint64_t scene_since(struct scene *scene)
{
    _Atomic uint64_t *first_ms = scene->conform->shared;
    uint64_t now_ms = conform_now_ms();
    uint64_t known_ms = 0;

    while (!atomic_compare_exchange_weak(first_ms, &known_ms, now_ms) &&
           (known_ms == 0 || known_ms > now_ms)) {
    }
    return now_ms;
}

/* Of several that wait the first tells the others, who have waited less by what they came later. */
static void times_expect(struct scene *scene, const struct scene_end *end)
{
    _Atomic uint64_t *first_ms = scene->conform->shared;
    uint64_t ms = conform_now_ms() - end->since_ms;
    uint64_t early_ms = 100 + end->since_ms - atomic_load(first_ms);
    struct conform *conform = scene->conform;
    const struct hsdp_error *err = &conform->err;

    conform_expect(conform, ms + early_ms >= end->timeout_ms,
                   "%s ended after %u ms, before its timeout of %u ms", end->operation,
                   (unsigned)ms, (unsigned)end->timeout_ms);
    conform_expect(conform, ms <= end->timeout_ms + SCENE_LATE_MS,
                   "%s ended after %u ms, long after its timeout of %u ms", end->operation,
                   (unsigned)ms, (unsigned)end->timeout_ms);
    conform_expect(
        conform, err->waited_ms + early_ms >= end->timeout_ms && err->waited_ms <= ms + early_ms,
        "waited_ms is %llu, after %u ms", (unsigned long long)err->waited_ms, (unsigned)ms);
}

void scene_expect_end(struct scene *scene, const struct scene_end *end)
{
    struct conform *conform = scene->conform;
    const struct hsdp_error *err = &conform->err;

    times_expect(scene, end);
    scene_expect_missing(scene, end->missing);
    conform_expect(conform, strstr(err->operation, end->operation) != NULL,
                   "the operation is \"%s\", not \"%s\"", err->operation, end->operation);
    conform_expect(conform, end->group == NULL || strcmp(err->group, end->group) == 0,
                   "the group is \"%s\", not \"%s\"", err->group, end->group);
}

/* The first reason is in the sentence of a later call; a long one may be cut. */
static void reason_expect(struct scene *scene, const char *call, const char *reason)
{
    char beginning[256];

    snprintf(beginning, sizeof(beginning), "%s", reason);
    conform_expect(scene->conform, strstr(scene->conform->err.message, beginning) != NULL,
                   "%s does not repeat the first reason, \"%s\", but says \"%s\"", call, reason,
                   scene->conform->err.message);
}

/* What only tells still answers. */
static void telling_expect(struct scene *scene)
{
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct conform *conform = scene->conform;
    const struct hsdp_job_ops *job = scene->api->job;
    const char *value = NULL;
    const char *source = NULL;
    uint64_t n_bytes = 0;
    uint64_t steps = 0;
    char text[16384];

    conform_must(conform, job->info(scene->job, &info, &conform->err));
    conform_expect(conform, info.rank == scene->rank && info.world_ranks == scene->n_ranks,
                   "info of a failed job tells of rank %u of %u", (unsigned)info.rank,
                   (unsigned)info.world_ranks);
    conform_must(conform,
                 job->setting(scene->job, "nccl_timeout_seconds", &value, &source, &conform->err));
    conform_must(conform, scene->api->diag->counter(scene->job, "steps", &steps, &conform->err));
    conform_must(conform, scene->api->diag->report(scene->job, "error", text, sizeof(text),
                                                   &n_bytes, &conform->err));
}

void scene_expect_over(struct scene *scene, int32_t status)
{
    struct conform *conform = scene->conform;
    const struct hsdp_job_ops *job = scene->api->job;
    struct hsdp_error *err = &conform->err;
    char reason[sizeof(err->message)];

    conform_must_refuse(conform, job->status(scene->job, err), status);
    memcpy(reason, err->message, sizeof(reason));
    conform_must_refuse(conform, job->phase_push(scene->job, "late", 1000, err), HSDP_ERR_ABORTED);
    reason_expect(scene, "phase_push", reason);
    conform_must_refuse(conform, job->setting_set(scene->job, "nccl_timeout_seconds", "5", err),
                        HSDP_ERR_ABORTED);
    reason_expect(scene, "setting_set", reason);
    conform_must_refuse(conform, scene->api->group->connect(scene->job, err), HSDP_ERR_ABORTED);
    reason_expect(scene, "group.connect", reason);
    conform_must_refuse(conform, job->close(scene->job, err), HSDP_ERR_ABORTED);
    reason_expect(scene, "close", reason);
    telling_expect(scene);
    conform_must_refuse(conform, job->status(scene->job, err), status);
    conform_expect(conform, strcmp(reason, err->message) == 0,
                   "the first reason was \"%s\", and then \"%s\"", reason, err->message);
}

/* How long a failure may take to be known: a second, and what a busy machine adds. */
#define SOON_MS (1000u + SCENE_LATE_MS)

void scene_expect_soon(struct scene *scene, uint64_t since_ms)
{
    uint64_t ms = conform_now_ms() - since_ms;

    conform_expect(scene->conform, ms <= SOON_MS, "the failure was known after %u ms",
                   (unsigned)ms);
}

void scene_check_end(struct scene *scene, const char *call, int32_t found, int32_t status)
{
    struct conform *conform = scene->conform;

    if (found == HSDP_ERR_ABORTED && status != HSDP_ERR_ABORTED) {
        conform_must_refuse(conform, scene->api->job->status(scene->job, &conform->err), status);
    } else {
        conform_check_refused(conform, call, found, status);
    }
}

void scene_await_failure(struct scene *scene, int32_t status)
{
    struct conform *conform = scene->conform;
    uint64_t since_ms = conform_now_ms();

    while (scene->api->job->status(scene->job, NULL) == HSDP_OK) {
        scene_expect_soon(scene, since_ms);
        conform_sleep_ms(10);
    }
    conform_must_refuse(conform, scene->api->job->status(scene->job, &conform->err), status);
}
