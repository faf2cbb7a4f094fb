/* SPDX-License-Identifier: Apache-2.0 */
/* A whole host: two linear layers, one step of gradient descent over all ranks, checked. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

/*
 *     minimal [STRATEGY]                  on one rank
 *     hsdp-run -n 4 minimal [STRATEGY]    on four
 *
 * y = sum of w[1][e] * w[0][e] * x, loss = y^2 / 2. All w[0] start as 1/2, all w[1] as 1/4, and
 * rank r has x = r + 1. The gradient of w[i][e] is y * w[1 - i][e] * x: it grows with x^2, whose
 * mean over R ranks is (R + 1) * (2 * R + 1) / 6.
 */
enum { N = 8 };
static const float first[2] = {0.5f, 0.25f}, rate = 1.0f / 64;
static const int64_t shape[1] = {N};
static const uint32_t backward[2] = {1, 0}; /* units in the order of their gradients */
static struct hsdp_error err = HSDP_ERROR_INIT;
static const struct hsdp_api *api;

static void must(int32_t status)
{
    if (status < 0) {
        fprintf(stderr, "minimal: %s\n", err.message); /* a sentence that names the culprit */
        exit(2);
    }
}

static float *floats(const struct hsdp_tensor *view)
{
    return (float *)((char *)view->base + view->byte_offset);
}

/* What is sharded how: ranks in one dimension, one class, and each layer a unit of one parameter.
 */
static hsdp_model *layers_wrap(hsdp_job *job, const struct hsdp_job_info *who, const char *strategy)
{
    const char *const keys[] = {"sharding_strategy"}, *const dp[] = {"dp"};
    const struct hsdp_settings settings = {keys, &strategy, 1};
    const int64_t all = -1; /* as many as there are ranks */
    struct hsdp_mesh_spec dims = HSDP_MESH_SPEC_INIT;
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec weights = HSDP_PARAM_SPEC_INIT;
    hsdp_mesh *mesh;
    hsdp_plan *plan;
    hsdp_model *model;

    dims.dim_names = dp; /* data parallel */
    dims.dim_sizes = &all;
    dims.n_dims = 1;
    dims.world_ranks = who->world_ranks;
    dims.rank = who->rank;
    must(api->mesh->create(&dims, &mesh, &err));
    must(api->plan->create(mesh, &settings, &plan, &err));
    dense.name = "dense";
    must(api->plan->add_class(plan, &dense, &(uint32_t){0}, &err));
    for (uint32_t i = 0; i < 2; i++) { /* classes, units and parameters count from 0 */
        weights.name = i == 0 ? "layer0" : "layer1";
        weights.shape = shape;
        weights.n_dims = 1;
        weights.unit = i;
        must(api->plan->add_unit(plan, weights.name, 0, &(uint32_t){0}, &err));
        must(api->plan->add_param(plan, &weights, &(uint32_t){0}, &err));
    }
    must(api->plan->finish(plan, &err));
    must(api->model->create(job, plan, &model, &err));
    api->plan->destroy(plan);
    api->mesh->destroy(mesh);
    return model;
}

/* Every rank has the same values here, so nothing is sent. Addresses never change: ask once. */
static void layers_fill(hsdp_model *model, float *w[2], float *grad[2])
{
    float values[N];
    struct hsdp_tensor view, full = {.base = values, .device_type = HSDP_DEVICE_CPU, .n_dims = 1};

    full.dtype_code = HSDP_DTYPE_FLOAT;
    full.dtype_bits = 32;
    full.dtype_lanes = 1;
    full.shape = (int64_t *)shape;
    must(api->model->edit_begin(model, NULL, &err));
    for (uint32_t i = 0; i < 2; i++) {
        for (int e = 0; e < N; e++) {
            values[e] = first[i];
        }
        must(api->model->import_param(model, i, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS, NULL,
                                      &err));
        must(api->model->param_view(model, i, HSDP_VIEW_PARAM, &view, &err));
        w[i] = floats(&view);
        must(api->model->param_view(model, i, HSDP_VIEW_GRAD, &view, &err));
        grad[i] = floats(&view);
    }
    must(api->model->edit_end(model, NULL, &err));
}

/* One microbatch: layers are whole while they are used; gradients are handed over layer by layer.
 */
static void microbatch_run(hsdp_model *model, float *const w[2], float *const grad[2], float x)
{
    uint64_t pass;
    float y = 0;

    must(api->unit->unshard(model, 0, HSDP_USE_FORWARD, NULL, NULL, &err));
    must(api->unit->unshard(model, 1, HSDP_USE_FORWARD, NULL, NULL, &err));
    for (int e = 0; e < N; e++) {
        y += w[1][e] * w[0][e] * x;
    }
    must(api->unit->backward_begin(model, backward, 2, HSDP_SCOPE_FULL, &pass, &err));
    for (int k = 0; k < 2; k++) {
        uint32_t i = backward[k];

        must(api->unit->unshard(model, i, HSDP_USE_BACKWARD_SET, NULL, NULL, &err));
        for (int e = 0; e < N; e++) {
            grad[i][e] = y * w[1 - i][e] * x;
        }
        must(api->unit->reduce(model, pass, i, NULL, NULL, &err));
        must(api->unit->release(model, i, NULL, &err)); /* the backward use */
    }
    must(api->unit->backward_end(model, pass, NULL, NULL, &err));
    must(api->unit->release(model, 0, NULL, &err)); /* the forward uses */
    must(api->unit->release(model, 1, NULL, &err));
}

/* Each rank moves its own shards against the mean gradient. */
static void step_run(hsdp_model *model)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct hsdp_tensor shard, mean;

    must(api->step->begin(model, &spec, NULL, &err));
    must(api->step->result(model, &result, &err));
    for (uint32_t i = 0; i < 2; i++) {
        must(api->model->flat_view(model, i, 0, HSDP_FLAT_MASTER, &shard, &err));
        must(api->model->flat_view(model, i, 0, HSDP_FLAT_GRAD, &mean, &err));
        for (int64_t e = 0; e < shard.shape[0]; e++) {
            floats(&shard)[e] -= rate * (float)result.factor * floats(&mean)[e];
        }
    }
    must(api->step->end(model, NULL, NULL, &err));
}

/* The closed form holds for every element, on every rank. */
static void layers_check(hsdp_model *model, float *const w[2], float n_ranks)
{
    float squares = (n_ranks + 1) * (2 * n_ranks + 1) / 6;

    for (uint32_t i = 0; i < 2; i++) {
        float wanted = first[i] - rate * N * first[0] * first[1] * first[1 - i] * squares;

        must(api->unit->unshard(model, i, HSDP_USE_FORWARD, NULL, NULL, &err));
        for (int e = 0; e < N; e++) {
            if (!(fabsf(w[i][e] - wanted) <= 1e-6f)) {
                fprintf(stderr, "minimal: w[%u][%d] is %.9g, not %.9g\n", (unsigned)i, e,
                        (double)w[i][e], (double)wanted);
                exit(1);
            }
        }
        must(api->unit->release(model, i, NULL, &err));
    }
}

int main(int argc, char **argv)
{
    const char *strategy = argc > 1 ? argv[1] : "fsdp";
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT; /* hsdp-run, torchrun, ... say who we are */
    struct hsdp_job_info who = HSDP_JOB_INFO_INIT;
    float *w[2], *grad[2];
    hsdp_plugin *plugin;
    hsdp_model *model;
    hsdp_job *job;

    must(hsdp_plugin_load(NULL, &plugin, &err));
    api = hsdp_plugin_api(plugin);
    must(api->job->create(&spec, &job, &err));
    must(api->job->connect(job, &err));
    must(api->job->info(job, &who, &err));
    model = layers_wrap(job, &who, strategy);
    layers_fill(model, w, grad);
    microbatch_run(model, w, grad, (float)(who.rank + 1));
    step_run(model);
    layers_check(model, w, (float)who.world_ranks);
    must(api->job->close(job, &err));
    if (who.rank == 0) {
        printf("ok: %u ranks, %s\n", (unsigned)who.world_ranks, strategy);
    }
    api->model->destroy(model);
    api->job->destroy(job);
    hsdp_plugin_unload(plugin);
    return 0;
}
