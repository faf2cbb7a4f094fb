/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter views: where parameters, gradients and shards lie, and what they hold. */
#include <signal.h>
#include <stdlib.h>

#include "scene.h"

static const struct scene_spec patient = {.settings = SCENE_PATIENT};

/* A model whose ranks hold parts of everything, and whose units share slots where they copy. */
static void open_model(struct scene *scene, struct conform *conform, const char *settings)
{
    scene_join(scene, conform, &patient);
    scene_model(scene, settings);
}

static void unshard(struct scene *scene, uint32_t unit, int32_t use)
{
    conform_must(scene->conform, scene->api->unit->unshard(scene->model, unit, use, NULL, NULL,
                                                           &scene->conform->err));
}

static void release(struct scene *scene, uint32_t unit)
{
    conform_must(scene->conform,
                 scene->api->unit->release(scene->model, unit, NULL, &scene->conform->err));
}

/* -------------------------------------------------------------------------------------- shapes */

static void view_expect(struct scene *scene, const struct hsdp_tensor *view, int32_t n_dims,
                        const int64_t *shape, uint8_t code, uint8_t bits)
{
    struct conform *conform = scene->conform;
    int32_t device_type = device_is_used() ? HSDP_DEVICE_CUDA : HSDP_DEVICE_CPU;
    int64_t stride = 1;

    conform_expect(conform, view->base != NULL, "a view has no base");
    conform_expect(conform, view->device_type == device_type, "a view's device_type is %d",
                   (int)view->device_type);
    conform_expect(conform, view->n_dims == n_dims, "a view's n_dims is %d, not %d",
                   (int)view->n_dims, (int)n_dims);
    conform_expect(conform,
                   view->dtype_code == code && view->dtype_bits == bits && view->dtype_lanes == 1,
                   "a view's dtype is %u, %u bits, %u lanes", (unsigned)view->dtype_code,
                   (unsigned)view->dtype_bits, (unsigned)view->dtype_lanes);
    conform_expect(conform, n_dims == 0 || (view->shape != NULL && view->strides != NULL),
                   "a view of %d dimensions has no shape, or no strides", (int)n_dims);
    for (int32_t dim = n_dims; dim-- > 0;) {
        conform_expect(conform, view->shape[dim] == shape[dim], "dimension %d is %lld, not %lld",
                       (int)dim, (long long)view->shape[dim], (long long)shape[dim]);
        conform_expect(conform, view->strides[dim] == stride, "the stride of dimension %d is %lld",
                       (int)dim, (long long)view->strides[dim]);
        stride *= shape[dim];
    }
}

static const int64_t shape_of_w[] = {5, 3};
static const int64_t shape_of_x[] = {1031};

static void shapes_run(struct conform *conform)
{
    struct hsdp_tensor view;
    struct scene scene;

    open_model(&scene, conform, "param_dtype=bf16 gradient_dtype=fp16");
    view = scene_param(&scene, SCENE_W, HSDP_VIEW_PARAM);
    view_expect(&scene, &view, 2, shape_of_w, HSDP_DTYPE_BFLOAT, 16);
    view = scene_param(&scene, SCENE_W, HSDP_VIEW_GRAD);
    view_expect(&scene, &view, 2, shape_of_w, HSDP_DTYPE_FLOAT, 16);
    view = scene_param(&scene, SCENE_X, HSDP_VIEW_PARAM);
    view_expect(&scene, &view, 1, shape_of_x, HSDP_DTYPE_BFLOAT, 16);
    view = scene_param(&scene, SCENE_S, HSDP_VIEW_PARAM);
    view_expect(&scene, &view, 0, NULL, HSDP_DTYPE_BFLOAT, 16);
    scene_close(&scene);
}

static void flat_shapes_run(struct conform *conform)
{
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;
    struct hsdp_tensor view;
    int64_t n_elems;
    uint32_t state = 99;
    struct scene scene;

    open_model(&scene, conform, "param_dtype=bf16");
    conform_must(conform,
                 scene.api->plan->buffer_info(scene.plan, SCENE_BACK, 0, &info, &conform->err));
    conform_must(conform, scene.api->model->state_create(scene.model, "momentum", "bf16", &state,
                                                         &conform->err));
    n_elems = (int64_t)info.step_shard_elems;
    view = scene_flat(&scene, SCENE_BACK, 0, HSDP_FLAT_MASTER);
    view_expect(&scene, &view, 1, &n_elems, HSDP_DTYPE_FLOAT, 32);
    view = scene_flat(&scene, SCENE_BACK, 0, HSDP_FLAT_GRAD);
    view_expect(&scene, &view, 1, &n_elems, HSDP_DTYPE_FLOAT, 32);
    view = scene_flat(&scene, SCENE_BACK, 0, HSDP_FLAT_STATE + (int32_t)state);
    view_expect(&scene, &view, 1, &n_elems, HSDP_DTYPE_BFLOAT, 16);
    scene_close(&scene);
}

/* ------------------------------------------------------------------------------------ addresses */

#define N_FLAT      3
#define N_ADDRESSES (2 * SCENE_N_PARAMS + SCENE_N_UNITS * N_FLAT)

static void addresses_ask(struct scene *scene, uint32_t state, const void *ret[N_ADDRESSES])
{
    const int32_t flats[N_FLAT] = {HSDP_FLAT_MASTER, HSDP_FLAT_GRAD,
                                   HSDP_FLAT_STATE + (int32_t)state};
    struct hsdp_tensor view;
    uint32_t n = 0;

    for (uint32_t param = 0; param < SCENE_N_PARAMS; param++) {
        view = scene_param(scene, param, HSDP_VIEW_PARAM);
        ret[n++] = scene_address(&view);
        if (param != SCENE_K) {
            view = scene_param(scene, param, HSDP_VIEW_GRAD);
        }
        ret[n++] = scene_address(&view);
    }
    for (uint32_t unit = 0; unit < SCENE_N_UNITS; unit++) {
        for (int i = 0; i < N_FLAT; i++) {
            view = scene_flat(scene, unit, scene_buffer(scene, unit), flats[i]);
            ret[n++] = scene_address(&view);
        }
    }
}

static void addresses_expect(struct scene *scene, uint32_t state,
                             const void *const first[N_ADDRESSES], const char *when)
{
    const void *now[N_ADDRESSES];

    addresses_ask(scene, state, now);
    for (uint32_t i = 0; i < N_ADDRESSES; i++) {
        conform_expect(scene->conform, now[i] == first[i], "view %u is at %p %s, and was at %p",
                       (unsigned)i, now[i], when, first[i]);
    }
}

static void addresses_run(struct conform *conform)
{
    const void *first[N_ADDRESSES];
    uint32_t state = 0;
    uint32_t other = 0;
    struct scene scene;

    open_model(&scene, conform, "slots=1");
    conform_must(conform, scene.api->model->state_create(scene.model, "momentum", "fp32", &state,
                                                         &conform->err));
    addresses_ask(&scene, state, first);
    scene_load(&scene, 1.0f);
    addresses_expect(&scene, state, first, "after an edit");
    unshard(&scene, SCENE_BACK, HSDP_USE_FORWARD);
    addresses_expect(&scene, state, first, "after unshard");
    release(&scene, SCENE_BACK);
    addresses_expect(&scene, state, first, "after release");
    for (int step = 0; step < 2; step++) {
        scene_backward(&scene, 1.0f);
        scene_step(&scene);
        addresses_expect(&scene, state, first, "after a step");
    }
    conform_must(conform, scene.api->model->state_create(scene.model, "more", "fp32", &other,
                                                         &conform->err));
    addresses_expect(&scene, state, first, "after another state");
    scene_close(&scene);
}

/* Steps of a model, seen through a view that was asked for once. */
static void steps_show(struct scene *scene, const char *settings)
{
    struct conform *conform = scene->conform;
    struct hsdp_tensor view;

    scene_model(scene, settings);
    view = scene_param(scene, SCENE_X, HSDP_VIEW_PARAM);
    scene_load(scene, 8.0f);
    for (int step = 1; step <= 3; step++) {
        scene_backward(scene, 2.0f);
        scene_step(scene);
        unshard(scene, SCENE_BACK, HSDP_USE_FORWARD);
        for (uint64_t elem = 0; elem < scene_n_elems[SCENE_X]; elem++) {
            float found = scene_read(&view, elem);

            conform_expect(conform, found == 8.0f - 2.0f * (float)step,
                           "%s: after step %d element %u reads %g, not %g", settings, step,
                           (unsigned)elem, (double)found, (double)(8.0f - 2.0f * (float)step));
        }
        release(scene, SCENE_BACK);
    }
    scene_expect_param(scene, SCENE_W, 2.0f);
    scene_expect_param(scene, SCENE_K, 8.0f);
    scene_expect_param(scene, SCENE_S, 2.0f);
    scene->api->model->destroy(scene->model);
    scene->api->plan->destroy(scene->plan);
    scene->model = NULL;
    scene->plan = NULL;
}

static void published_run(struct conform *conform)
{
    static const char *const settings[] = {
        "sharding_strategy=fsdp",
        "sharding_strategy=ddp",
        "sharding_strategy=zero1",
        "sharding_strategy=zero2",
        "sharding_strategy=hsdp shard_size=1",
        "sharding_strategy=hfsdp shard_size=1",
        "sharding_strategy=fsdp param_dtype=bf16",
        "sharding_strategy=hfsdp shard_size=1 param_dtype=bf16",
    };
    struct scene scene;

    scene_join(&scene, conform, &patient);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        steps_show(&scene, settings[i]);
    }
    scene_close(&scene);
}

/* Mesh and plan may be gone, and so may the handle of the job. */
static void outlive_run(struct conform *conform)
{
    struct scene scene;

    open_model(&scene, conform, "");
    scene.api->plan->destroy(scene.plan);
    scene.api->mesh->destroy(scene.mesh);
    scene.plan = NULL;
    scene.mesh = NULL;
    scene_load(&scene, 6.0f);
    scene_backward(&scene, 1.0f);
    scene_expect_param(&scene, SCENE_W, 6.0f);
    scene_expect_param(&scene, SCENE_X, 6.0f);
    scene_close(&scene);
}

/* -------------------------------------------------------------------------------------- content */

static void gradient_expect_zero(struct scene *scene, uint32_t param, int pass)
{
    struct hsdp_tensor view = scene_param(scene, param, HSDP_VIEW_GRAD);

    for (uint64_t elem = 0; elem < scene_n_elems[param]; elem++) {
        conform_expect(scene->conform, scene_read(&view, (uint64_t)elem) == 0.0f,
                       "pass %d: element %u of gradient %u is %g when it is acquired", pass,
                       (unsigned)elem, (unsigned)param, (double)scene_read(&view, (uint64_t)elem));
    }
}

/* In one slot, where another unit has written before. */
static void gradient_zero_run(struct conform *conform)
{
    struct scene scene;

    open_model(&scene, conform, "slots=1");
    scene_load(&scene, 1.0f);
    for (int pass = 0; pass < 3; pass++) {
        scene_pass_begin(&scene);
        for (uint32_t unit = SCENE_N_UNITS; unit-- > 0;) {
            unshard(&scene, unit, HSDP_USE_BACKWARD);
            gradient_expect_zero(&scene, 2 * unit + (unit == SCENE_BACK), pass);
            gradient_expect_zero(&scene, 2 * unit, pass);
            scene_fill(&scene, unit, 7.0f);
            scene_hand_over(&scene, unit);
        }
        conform_must(conform, scene.api->unit->backward_end(scene.model, scene.pass, NULL, NULL,
                                                            &conform->err));
    }
    scene_close(&scene);
}

/* Marks what the segments of this rank's step shard cover. */
static void covered_mark(struct scene *scene, uint32_t unit, uint32_t buffer, bool *covered)
{
    struct hsdp_segment segments[8];
    struct conform *conform = scene->conform;
    uint64_t n_segments = 0;

    conform_must(conform, scene->api->plan->segments(scene->plan, unit, HSDP_SHARD_STEP,
                                                     scene->rank, segments, sizeof(segments[0]), 8,
                                                     &n_segments, &conform->err));
    for (uint64_t i = 0; i < n_segments; i++) {
        for (uint64_t elem = 0; segments[i].buffer == buffer && elem < segments[i].n_elems;
             elem++) {
            covered[segments[i].shard_offset_elems + elem] = true;
        }
    }
}

static void padding_expect(struct scene *scene, int32_t flat, float value, const char *what)
{
    struct conform *conform = scene->conform;

    for (uint32_t unit = 0; unit < SCENE_N_UNITS; unit++) {
        uint32_t buffer = scene_buffer(scene, unit);
        struct hsdp_tensor view = scene_flat(scene, unit, buffer, flat);
        bool *covered = calloc((size_t)view.shape[0] + 1, sizeof(*covered));

        conform_expect(conform, covered != NULL, "the kit has no memory");
        covered_mark(scene, unit, buffer, covered);
        for (int64_t elem = 0; elem < view.shape[0]; elem++) {
            float found = scene_read(&view, (uint64_t)elem);

            conform_expect(conform, found == (covered[elem] ? value : 0.0f),
                           "unit %u: element %lld of %s, which is %s, is %g", (unsigned)unit,
                           (long long)elem, what, covered[elem] ? "a parameter's" : "padding",
                           (double)found);
        }
        free(covered);
    }
}

static void padding_run(struct conform *conform)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    uint32_t state = 0;
    struct scene scene;

    open_model(&scene, conform, "gradient_op=sum");
    scene_load(&scene, 9.0f);
    conform_must(conform, scene.api->model->state_create(scene.model, "momentum", "fp32", &state,
                                                         &conform->err));
    scene_backward(&scene, 4.0f);
    conform_must(conform, scene.api->step->begin(scene.model, &spec, NULL, &conform->err));
    conform_must(conform, scene.api->step->result(scene.model, &info, &conform->err));
    padding_expect(&scene, HSDP_FLAT_GRAD, 4.0f * (float)scene.n_ranks, "the gradient");
    padding_expect(&scene, HSDP_FLAT_MASTER, 9.0f, "the master");
    padding_expect(&scene, HSDP_FLAT_STATE + (int32_t)state, 0.0f, "a new state");
    conform_must(conform, scene.api->step->discard(scene.model, NULL, &conform->err));
    scene_close(&scene);
}

/* Two units at a time, and one of them twice. */
static void uses_run(struct conform *conform)
{
    struct hsdp_tensor w;
    struct hsdp_tensor x;
    struct scene scene;

    open_model(&scene, conform, "");
    scene_load(&scene, 4.0f);
    w = scene_param(&scene, SCENE_W, HSDP_VIEW_PARAM);
    x = scene_param(&scene, SCENE_X, HSDP_VIEW_PARAM);
    unshard(&scene, SCENE_FRONT, HSDP_USE_FORWARD);
    unshard(&scene, SCENE_BACK, HSDP_USE_FORWARD);
    unshard(&scene, SCENE_FRONT, HSDP_USE_FORWARD);
    release(&scene, SCENE_FRONT);
    for (uint64_t elem = 0; elem < scene_n_elems[SCENE_X]; elem++) {
        conform_expect(conform, scene_read(&x, (uint64_t)elem) == 4.0f,
                       "x[%u] is %g beside another unit", (unsigned)elem,
                       (double)scene_read(&x, (uint64_t)elem));
    }
    for (uint64_t elem = 0; elem < scene_n_elems[SCENE_W]; elem++) {
        conform_expect(conform, scene_read(&w, (uint64_t)elem) == 4.0f,
                       "w[%u] is %g while one of two uses is left", (unsigned)elem,
                       (double)scene_read(&w, (uint64_t)elem));
    }
    release(&scene, SCENE_BACK);
    release(&scene, SCENE_FRONT);
    conform_must_refuse(conform,
                        scene.api->unit->release(scene.model, SCENE_FRONT, NULL, &conform->err),
                        HSDP_ERR_STATE);
    scene_close(&scene);
}

/* With one slot a unit has to be handed over before the next one is acquired. */
static void ahead_run(struct conform *conform)
{
    struct scene scene;

    open_model(&scene, conform, "slots=1");
    scene_load(&scene, 1.0f);
    scene_pass_begin(&scene);
    conform_must_refuse(conform,
                        scene.api->unit->unshard(scene.model, SCENE_FRONT, HSDP_USE_BACKWARD, NULL,
                                                 NULL, &conform->err),
                        HSDP_ERR_STATE);
    scene_expect_text(&scene, "front");
    scene_expect_text(&scene, "back");
    scene_acquire(&scene, SCENE_BACK, 1.0f);
    scene_hand_over(&scene, SCENE_BACK);
    scene_acquire(&scene, SCENE_FRONT, 1.0f);
    scene_hand_over(&scene, SCENE_FRONT);
    conform_must(conform,
                 scene.api->unit->backward_end(scene.model, scene.pass, NULL, NULL, &conform->err));
    scene_close(&scene);
}

/* Sums of one rank take more memory than those of a resting shard. */
static void unplanned_run(struct conform *conform)
{
    static const uint32_t order[SCENE_N_UNITS] = {SCENE_BACK, SCENE_FRONT};
    struct scene scene;

    open_model(&scene, conform, "sharding_strategy=fsdp accumulation_scope=full");
    conform_must_refuse(conform,
                        scene.api->unit->backward_begin(scene.model, order, SCENE_N_UNITS,
                                                        HSDP_SCOPE_NONE, &scene.pass,
                                                        &conform->err),
                        HSDP_ERR_STATE);
    scene_backward(&scene, 1.0f);
    scene_close(&scene);
}

/* --------------------------------------------------------------------------------------- faults */

#define NO_FAULTS "on its memory nothing faults at the line that touches it"

/* This rank has to end by a fault when it touches a byte. */
static void touch_expect_fault(struct scene *scene, const struct hsdp_tensor *view, bool is_write,
                               const char *what)
{
    volatile char *byte = (volatile char *)scene_address(view);

    conform_meet(scene->conform);
    conform_expect_signal(scene->conform, SIGSEGV);
    if (is_write) {
        *byte = *byte;
    } else {
        (void)*byte;
    }
    conform_fail(scene->conform, "%s does not fault", what);
}

static void read_only_run(struct conform *conform)
{
    struct hsdp_tensor view;
    struct scene scene;

    conform_needs_cpu(conform, NO_FAULTS);
    open_model(&scene, conform, "");
    scene_load(&scene, 1.0f);
    view = scene_param(&scene, SCENE_X, HSDP_VIEW_PARAM);
    unshard(&scene, SCENE_BACK, HSDP_USE_FORWARD);
    touch_expect_fault(&scene, &view, true, "writing to an unsharded parameter");
}

/* A model with verify=access, where the plugin has that. */
static void open_verified(struct scene *scene, struct conform *conform)
{
    conform_needs_cpu(conform, NO_FAULTS);
    scene_join(scene, conform, &patient);
    scene_plan(scene, "verify=access");
    if (scene->api->model->create(scene->job, scene->plan, &scene->model, NULL) ==
        HSDP_ERR_UNSUPPORTED) {
        conform_skip(conform, "the plugin does not verify access");
    }
    conform_expect(conform, scene->model != NULL, "model.create fails with verify=access");
    scene_load(scene, 1.0f);
}

static void released_run(struct conform *conform)
{
    struct hsdp_tensor view;
    struct scene scene;

    open_verified(&scene, conform);
    view = scene_param(&scene, SCENE_X, HSDP_VIEW_PARAM);
    scene_expect_param(&scene, SCENE_X, 1.0f);
    touch_expect_fault(&scene, &view, false, "verify=access: reading a released parameter");
}

static void reduced_run(struct conform *conform)
{
    struct hsdp_tensor view;
    struct scene scene;

    open_verified(&scene, conform);
    view = scene_param(&scene, SCENE_X, HSDP_VIEW_GRAD);
    scene_pass_begin(&scene);
    scene_acquire(&scene, SCENE_BACK, 1.0f);
    scene_hand_over(&scene, SCENE_BACK);
    touch_expect_fault(&scene, &view, true, "verify=access: writing a gradient handed over");
}

#define VIEWS "model.h: views"

static const struct conform_check checks[] = {
    {"views have the parameters' shapes", "abi.h: hsdp_tensor", shapes_run, 2, 0, 0},
    {"flat views have the step shard's shape", "model.h: flat_view", flat_shapes_run, 2, 0, 0},
    {"addresses never change", VIEWS, addresses_run, 2, 0, 0},
    {"a view shows what was published last", VIEWS, published_run, 2, 0, 0},
    {"a model outlives its plan and its mesh", "model.h: create", outlive_run, 2, 0, 0},
    {"a gradient is zero when it is acquired", "unit.h: USE_BACKWARD", gradient_zero_run, 2, 0, 0},
    {"padding is zero", "plan.h: buffers", padding_run, 2, 0, 0},
    {"uses are counted", "unit.h: unshard", uses_run, 2, 0, 0},
    {"a unit too far ahead is refused", "unit.h: unshard", ahead_run, 2, 0, 0},
    {"a scope without memory is refused", "unit.h: backward_begin", unplanned_run, 2, 0, 0},
    {"writing to a parameter faults", VIEWS, read_only_run, 2, 0, 0},
    {"reading after release faults on request", "plan.h: verify", released_run, 2, 0, 0},
    {"writing after reduce faults on request", "plan.h: verify", reduced_run, 2, 0, 0},
};

const struct conform_chapter conform_views = {
    .name = "views",
    .title = "addresses, shapes and contents",
    .checks = checks,
    .n_checks = sizeof(checks) / sizeof(checks[0]),
};
