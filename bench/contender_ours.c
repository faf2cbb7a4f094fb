/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin as a contender: one unit of one parameter, through the public tables as any host. */
#include <math.h>

#include "contender.h"
#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

/*
 * unshard: a new epoch of parameters, then unit.unshard until its ticket is done. The two others:
 * unit.reduce of the whole gradient until its ticket is done, under fsdp and ddp: sums alone, which
 * is what peers do, and in the variant "norm" with the exact norm of the mean, which the engine
 * adds up in the last reduction of a window, and this one is it. It takes the power of the step
 * before: that of infinity, a maximum, is found in the step.
 */
#define NORM_VARIANT 1u

static struct {
    hsdp_plugin *plugin;
    const struct hsdp_api *api;
    hsdp_job *job;
    hsdp_model *model;
    struct row row;
    double norm_p;
    struct piece params; /* of the whole buffer, once unsharded */
    struct piece shard;  /* what this rank writes before an unshard */
    struct piece grads;  /* before a reduction */
    struct piece mean;   /* what comes out of it, in a step */
    uint64_t pass;
} ours;

static struct hsdp_error err = HSDP_ERROR_INIT;

static void must(int32_t status)
{
    if (status < 0) {
        fail("%s", err.message);
    }
}

static void ours_begin(const struct meeting *meeting, size_t max_bytes)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;

    (void)meeting; /* the launcher tells the plugin */
    (void)max_bytes;
    must(hsdp_plugin_load(NULL, &ours.plugin, &err));
    ours.api = hsdp_plugin_api(ours.plugin);
    must(ours.api->job->create(&spec, &ours.job, &err));
    must(ours.api->job->connect(ours.job, &err));
}

static void ours_end(void)
{
    must(ours.api->job->close(ours.job, &err));
    ours.api->job->destroy(ours.job);
    hsdp_plugin_unload(ours.plugin);
}

static const char *ours_variant(const struct row *row, uint32_t index)
{
    if (index == NORM_VARIANT && row->op != OP_UNSHARD) {
        return "norm";
    }
    return index == 0 ? "" : NULL;
}

/* -------------------------------------------------------------------------------------- a model */

static hsdp_mesh *mesh_make(void)
{
    const char *const dp[] = {"dp"};
    const int64_t all = -1;
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    hsdp_mesh *mesh;

    spec.dim_names = dp;
    spec.dim_sizes = &all;
    spec.n_dims = 1;
    spec.world_ranks = ours.row.n_ranks;
    spec.rank = ours.row.rank;
    must(ours.api->mesh->create(&spec, &mesh, &err));
    return mesh;
}

static hsdp_plan *plan_make(const hsdp_mesh *mesh)
{
    const char *const keys[] = {"sharding_strategy", "accumulation_scope", "param_dtype",
                                "reduce_dtype"};
    const char *dtype = dtype_name(ours.row.dtype);
    const char *const values[] = {ours.row.op == OP_ALL_REDUCE ? "ddp" : "fsdp", "full", dtype,
                                  dtype};
    const struct hsdp_settings settings = {keys, values, 4};
    const int64_t shape = (int64_t)ours.row.n_elems;
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct hsdp_param_spec param = HSDP_PARAM_SPEC_INIT;
    hsdp_plan *plan;

    must(ours.api->plan->create(mesh, &settings, &plan, &err));
    dense.name = "dense";
    must(ours.api->plan->add_class(plan, &dense, &(uint32_t){0}, &err));
    must(ours.api->plan->add_unit(plan, "unit", 0, &(uint32_t){0}, &err));
    param.name = "param";
    param.shape = &shape;
    param.n_dims = 1;
    must(ours.api->plan->add_param(plan, &param, &(uint32_t){0}, &err));
    must(ours.api->plan->finish(plan, &err));
    return plan;
}

/* Where in the whole buffer this rank's step shard begins. */
static size_t shard_first(const hsdp_plan *plan)
{
    struct hsdp_segment segment;
    uint64_t n = 0;

    must(ours.api->plan->segments(plan, 0, HSDP_SHARD_STEP, ours.row.rank, &segment,
                                  sizeof(segment), 1, &n, &err));
    if (n != 1 || segment.shard_offset_elems != 0) {
        fail("a shard is not one run of elements");
    }
    return segment.param_offset_elems;
}

static struct piece piece_of(const struct hsdp_tensor *view, size_t first)
{
    struct piece piece = {.base = (char *)view->base + view->byte_offset, .first = first};

    piece.n_elems = (size_t)view->shape[0];
    piece.dtype = view->dtype_code == HSDP_DTYPE_BFLOAT ? DTYPE_BF16 : DTYPE_FP32;
    piece.divisor = 1;
    return piece;
}

static void pieces_find(size_t first)
{
    const struct hsdp_model_ops *ops = ours.api->model;
    struct hsdp_tensor view;

    must(ops->param_view(ours.model, 0, HSDP_VIEW_PARAM, &view, &err));
    ours.params = piece_of(&view, 0);
    must(ops->param_view(ours.model, 0, HSDP_VIEW_GRAD, &view, &err));
    ours.grads = piece_of(&view, 0);
    must(ops->flat_view(ours.model, 0, 0, HSDP_FLAT_MASTER, &view, &err));
    ours.shard = piece_of(&view, first);
    must(ops->flat_view(ours.model, 0, 0, HSDP_FLAT_GRAD, &view, &err));
    ours.mean = piece_of(&view, first);
    ours.mean.divisor = (float)ours.row.n_ranks;
}

static void ours_row_begin(const struct row *row, uint32_t variant)
{
    hsdp_mesh *mesh;
    hsdp_plan *plan;

    ours.row = *row;
    ours.norm_p = variant == NORM_VARIANT ? 2.0 : INFINITY;
    mesh = mesh_make();
    plan = plan_make(mesh);
    must(ours.api->model->create(ours.job, plan, &ours.model, &err));
    pieces_find(shard_first(plan));
    ours.api->plan->destroy(plan);
    ours.api->mesh->destroy(mesh);
}

static void ours_row_end(void)
{
    ours.api->model->destroy(ours.model);
}

/* --------------------------------------------------------------------------------------- a turn */

static struct piece ours_open(void)
{
    const uint32_t unit = 0;

    if (ours.row.op == OP_UNSHARD) {
        must(ours.api->model->edit_begin(ours.model, NULL, &err));
        return ours.shard;
    }
    must(ours.api->unit->backward_begin(ours.model, &unit, 1, HSDP_SCOPE_FULL, &ours.pass, &err));
    must(ours.api->unit->unshard(ours.model, 0, HSDP_USE_BACKWARD_SET, NULL, NULL, &err));
    return ours.grads;
}

static void ours_ready(void)
{
    if (ours.row.op == OP_UNSHARD) {
        must(ours.api->model->edit_end(ours.model, NULL, &err));
    }
}

static void ours_run(void)
{
    uint64_t ticket;

    if (ours.row.op == OP_UNSHARD) {
        must(ours.api->unit->unshard(ours.model, 0, HSDP_USE_FORWARD, NULL, &ticket, &err));
    } else {
        must(ours.api->unit->reduce(ours.model, ours.pass, 0, NULL, &ticket, &err));
    }
    must(ours.api->job->ticket_wait(ours.job, ticket, UINT64_MAX, &err));
}

static struct piece ours_result(void)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;

    if (ours.row.op == OP_UNSHARD) {
        return ours.params;
    }
    must(ours.api->unit->release(ours.model, 0, NULL, &err));
    must(ours.api->unit->backward_end(ours.model, ours.pass, NULL, NULL, &err));
    spec.norm_p = ours.norm_p;
    must(ours.api->step->begin(ours.model, &spec, NULL, &err));
    must(ours.api->step->result(ours.model, &info, &err));
    return ours.mean;
}

static void ours_settle(void)
{
    if (ours.row.op == OP_UNSHARD) {
        must(ours.api->unit->release(ours.model, 0, NULL, &err));
    } else {
        must(ours.api->step->discard(ours.model, NULL, &err));
    }
}

const struct contender contender = {
    .name = "ours",
    .variant = ours_variant,
    .begin = ours_begin,
    .row_begin = ours_row_begin,
    .open = ours_open,
    .ready = ours_ready,
    .run = ours_run,
    .result = ours_result,
    .settle = ours_settle,
    .row_end = ours_row_end,
    .end = ours_end,
};
