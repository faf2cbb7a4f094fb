/* SPDX-License-Identifier: Apache-2.0 */
/* A whole host: two linear layers, one step of gradient descent over all ranks, checked. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

/*
 *     minimal [STRATEGY]                  trains on one rank
 *     hsdp-run -n 4 minimal [STRATEGY]    trains on four
 *
 * y = W2 W1 x, the loss is |y|^2 / 2. Every element of W1 is A, of W2 is B, and rank r has the
 * input (s, s, ...), s = r + 1. With a = A * N and b = B * N every element of h = W1 x is a * s, of
 * y = W2 h is b * a * s, and the gradients are (W2^T y) x^T = b^2 a s^2 and y h^T = b a^2 s^2.
 * Their mean over R ranks has (R + 1)(2 R + 1) / 6 in the place of s^2.
 */
#define N             4
#define A             0.5f
#define B             0.25f
#define LEARNING_RATE 0.01f

static struct layer {
    const char *name;
    float first;          /* what every element is at first */
    uint32_t unit, param; /* its numbers in the plan */
    float *weight;        /* N * N, whole between unshard and release */
    float *grad;
} layers[] = {{.name = "layer1", .first = A}, {.name = "layer2", .first = B}};

static const struct hsdp_api *api;
static struct hsdp_error err = HSDP_ERROR_INIT;

/* Every call answers with a status and, if it fails, a sentence. */
static void must(int32_t status)
{
    if (status < 0) {
        fprintf(stderr, "minimal: %s\n", err.message);
        exit(2);
    }
}

static float *floats(const struct hsdp_tensor *view)
{
    return (float *)((char *)view->base + view->byte_offset);
}

/* Says what is sharded how: one dimension of ranks, one class, each layer a unit of one parameter.
 */
static hsdp_plan *plan_make(const struct hsdp_job_info *who, const char *strategy)
{
    const int64_t sizes[] = {who->world_ranks}, shape[] = {N, N};
    const char *names[] = {"dp"}, *keys[] = {"sharding_strategy"}, *values[] = {strategy};
    struct hsdp_settings settings = {keys, values, 1};
    struct hsdp_mesh_spec ranks = HSDP_MESH_SPEC_INIT;
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param = HSDP_PARAM_SPEC_INIT;
    hsdp_mesh *mesh;
    hsdp_plan *plan;
    uint32_t class_index;

    ranks.dim_sizes = sizes;
    ranks.dim_names = names;
    ranks.n_dims = 1;
    ranks.rank = who->rank;
    must(api->mesh->create(&ranks, &mesh, &err));
    must(api->plan->create(mesh, &settings, &plan, &err));
    api->mesh->destroy(mesh);
    dense.name = "dense";
    must(api->plan->add_class(plan, &dense, &class_index, &err));
    for (struct layer *l = layers; l < layers + 2; l++) {
        must(api->plan->add_unit(plan, l->name, class_index, &l->unit, &err));
        param.name = l->name;
        param.shape = shape;
        param.n_dims = 2;
        param.unit = l->unit;
        must(api->plan->add_param(plan, &param, &l->param, &err));
    }
    must(api->plan->finish(plan, &err));
    return plan;
}

/* Fills in the weights, equal on all ranks, and asks for addresses, which never change. */
static void layers_fill(hsdp_model *model)
{
    float values[N * N];
    int64_t shape[] = {N, N};
    struct hsdp_tensor full = {.base = values, .device_type = HSDP_DEVICE_CPU, .n_dims = 2};
    struct hsdp_tensor view;

    full.dtype_code = HSDP_DTYPE_FLOAT;
    full.dtype_bits = 32;
    full.dtype_lanes = 1;
    full.shape = shape;
    must(api->model->edit_begin(model, NULL, &err));
    for (struct layer *l = layers; l < layers + 2; l++) {
        for (int i = 0; i < N * N; i++) {
            values[i] = l->first;
        }
        must(api->model->import_param(model, l->param, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS,
                                      NULL, &err));
        must(api->model->param_view(model, l->param, HSDP_VIEW_PARAM, &view, &err));
        l->weight = floats(&view);
        must(api->model->param_view(model, l->param, HSDP_VIEW_GRAD, &view, &err));
        l->grad = floats(&view);
    }
    must(api->model->edit_end(model, NULL, &err));
}

/* One microbatch. A layer is whole only while it is used, and its gradients go at once. */
static void microbatch_run(hsdp_model *model, float input)
{
    float x[3][N] = {{0}}; /* input, hidden, output */
    float d[3][N] = {{0}}; /* the gradients of the loss by them */
    const uint32_t backward[] = {layers[1].unit, layers[0].unit};
    uint64_t pass;

    for (int i = 0; i < N; i++) {
        x[0][i] = input;
    }
    for (int l = 0; l < 2; l++) {
        must(api->unit->unshard(model, layers[l].unit, HSDP_USE_FORWARD, NULL, NULL, &err));
        for (int i = 0; i < N * N; i++) {
            x[l + 1][i / N] += layers[l].weight[i] * x[l][i % N];
        }
        must(api->unit->release(model, layers[l].unit, NULL, &err));
    }
    for (int i = 0; i < N; i++) {
        d[2][i] = x[2][i]; /* of |y|^2 / 2 */
    }
    must(api->unit->backward_begin(model, backward, 2, HSDP_SCOPE_FULL, &pass, &err));
    for (int l = 1; l >= 0; l--) {
        must(api->unit->unshard(model, layers[l].unit, HSDP_USE_BACKWARD_SET, NULL, NULL, &err));
        for (int i = 0; i < N * N; i++) {
            layers[l].grad[i] = d[l + 1][i / N] * x[l][i % N];
            d[l][i % N] += layers[l].weight[i] * d[l + 1][i / N];
        }
        must(api->unit->reduce(model, pass, layers[l].unit, NULL, NULL, &err));
        must(api->unit->release(model, layers[l].unit, NULL, &err));
    }
    must(api->unit->backward_end(model, pass, NULL, NULL, &err));
}

/* One step of gradient descent, each rank on its own shard of each layer. */
static void step_run(hsdp_model *model)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_result result = HSDP_STEP_RESULT_INIT;

    must(api->step->begin(model, &spec, NULL, &err));
    must(api->step->result(model, &result, &err));
    for (struct layer *l = layers; l < layers + 2; l++) {
        struct hsdp_tensor master, grad;

        must(api->model->flat_view(model, l->unit, 0, HSDP_FLAT_MASTER, &master, &err));
        must(api->model->flat_view(model, l->unit, 0, HSDP_FLAT_GRAD, &grad, &err));
        for (int64_t i = 0; i < master.shape[0]; i++) {
            floats(&master)[i] -= LEARNING_RATE * floats(&grad)[i];
        }
    }
    must(api->step->end(model, NULL, NULL, &err));
}

static void layer_check(hsdp_model *model, const struct layer *layer, float gradient)
{
    float wanted = layer->first - LEARNING_RATE * gradient;

    must(api->unit->unshard(model, layer->unit, HSDP_USE_FORWARD, NULL, NULL, &err));
    for (int i = 0; i < N * N; i++) {
        if (!(fabsf(layer->weight[i] - wanted) <= 1e-5f * fabsf(wanted))) {
            fprintf(stderr, "minimal: element %d of %s is %.9g, not %.9g\n", i, layer->name,
                    (double)layer->weight[i], (double)wanted);
            exit(1);
        }
    }
    must(api->unit->release(model, layer->unit, NULL, &err));
}

int main(int argc, char **argv)
{
    const char *strategy = argc > 1 ? argv[1] : "fsdp";
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT; /* who we are, hsdp-run or torchrun tell */
    struct hsdp_job_info who = HSDP_JOB_INFO_INIT;
    hsdp_plugin *plugin;
    hsdp_job *job;
    hsdp_plan *plan;
    hsdp_model *model;
    float a = A * N, b = B * N, mean_square;

    must(hsdp_plugin_load(NULL, &plugin, &err));
    api = hsdp_plugin_api(plugin);
    must(api->job->create(&spec, &job, &err));
    must(api->job->connect(job, &err));
    must(api->job->info(job, &who, &err));
    plan = plan_make(&who, strategy);
    must(api->model->create(job, plan, &model, &err));
    layers_fill(model);

    microbatch_run(model, (float)(who.rank + 1));
    step_run(model);

    mean_square = (float)((who.world_ranks + 1) * (2 * who.world_ranks + 1)) / 6;
    layer_check(model, &layers[0], b * b * a * mean_square);
    layer_check(model, &layers[1], b * a * a * mean_square);
    must(api->job->close(job, &err)); /* nobody leaves before all have come here */
    if (who.rank == 0) {
        printf("ok: %u ranks, %s\n", (unsigned)who.world_ranks, strategy);
    }
    api->model->destroy(model);
    api->plan->destroy(plan);
    api->job->destroy(job);
    hsdp_plugin_unload(plugin);
    return 0;
}
