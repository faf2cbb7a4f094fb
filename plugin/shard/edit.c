/* SPDX-License-Identifier: Apache-2.0 */
/* Edits: loading, saving and synchronising masters and optimizer states. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/probe.h"
#include "device/cast.h"
#include "device/fpmode.h"
#include "shard/model.h"
#include "shard/tensor.h"

#define BLOCK_ELEMS 1024u

/* -------------------------------------------------------------------------- begin and end */

/* A barrier: nobody reads what is about to be written, if all mean the same model. */
static int32_t edit_agree(struct hsdp_model *model, struct hsdp_error *reterr)
{
    uint32_t n_ranks = job_world_ranks(model->job);
    uint64_t *numbers = calloc(n_ranks, sizeof(*numbers));
    struct hsdp_error err;
    int32_t status;

    if (numbers == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.edit_begin: no memory");
    }
    status = job_exchange(model->job, "model.edit_begin", &model->number, sizeof(*numbers), numbers,
                          reterr);
    for (uint32_t rank = 1; status == HSDP_OK && rank < n_ranks; rank++) {
        if (numbers[rank] == numbers[0]) {
            continue;
        }
        error_set(&err, HSDP_ERR_MISMATCH,
                  "model.edit_begin: rank 0 edits model %" PRIu64 " of the job, rank %" PRIu32
                  " model %" PRIu64,
                  numbers[0], rank, numbers[rank]);
        error_where(&err, "model.edit_begin", NULL, NULL);
        status = job_fail(model->job, &err);
        if (reterr != NULL) {
            *reterr = err;
        }
    }
    free(numbers);
    return status;
}

int32_t model_edit_begin(struct hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    int32_t status;

    (void)stream;
    status = model_idle_check(model, "model.edit_begin", reterr);
    if (status == HSDP_OK) {
        status = model_rest_check(model, "model.edit_begin", reterr);
    }
    if (status == HSDP_OK) {
        status = edit_agree(model, reterr);
    }
    if (status == HSDP_OK) {
        model->is_editing = true;
    }
    return status;
}

static int32_t edit_check(const struct hsdp_model *model, const char *call,
                          struct hsdp_error *reterr)
{
    if (!model->is_editing) {
        return error_set(reterr, HSDP_ERR_STATE,
                         "%s: no edit is open; model.edit_begin was expected", call);
    }
    return HSDP_OK;
}

int32_t model_edit_end(struct hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    int32_t status = edit_check(model, "model.edit_end", reterr);

    (void)stream;
    if (status == HSDP_OK) {
        status = model->ops->publish(model->store, PUBLISHED_ALL, reterr);
    }
    if (status == HSDP_OK) {
        model->is_editing = false;
    }
    return status;
}

/* ------------------------------------------------------------- copying between two dtypes */

struct run { /* elements of one dtype */
    void *base;
    enum dtype dtype;
};

static void run_copy(struct run dst, uint64_t dst_at, struct run src, uint64_t src_at,
                     uint64_t n_elems)
{
    uint8_t *to = (uint8_t *)dst.base + dst_at * dtype_bytes(dst.dtype);
    const uint8_t *from = (const uint8_t *)src.base + src_at * dtype_bytes(src.dtype);
    struct fp_mode mode = fp_mode_enter();
    float block[BLOCK_ELEMS];

    for (uint64_t at = 0; at < n_elems; at += BLOCK_ELEMS) {
        uint64_t n = n_elems - at < BLOCK_ELEMS ? n_elems - at : BLOCK_ELEMS;

        cast_to_fp32(block, from + at * dtype_bytes(src.dtype), src.dtype, n);
        cast_from_fp32(to + at * dtype_bytes(dst.dtype), dst.dtype, block, n);
    }
    fp_mode_leave(mode);
}

/* One parameter's part of a flat shard, and the host's full tensor. */
struct transfer {
    struct hsdp_model *model;
    const char *call;
    const struct plan_param *param;
    uint32_t index; /* of the parameter */
    int32_t flat;
    struct run shard; /* this rank's */
    struct run full;  /* base NULL: the host passes none here */
};

static int32_t transfer_init(struct transfer *ret, struct hsdp_model *model, const char *call,
                             uint32_t param, int32_t flat, struct hsdp_error *reterr)
{
    struct flat_shard shard;
    int32_t status;

    memset(ret, 0, sizeof(*ret));
    if (param >= model->plan->n_params) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: parameter %" PRIu32 " of %" PRIu32, call,
                         param, model->plan->n_params);
    }
    ret->model = model;
    ret->call = call;
    ret->index = model->plan->params[param].storage;
    ret->param = &model->plan->params[ret->index];
    ret->flat = flat;
    status = model_flat_shard(model, ret->param->unit, ret->param->buffer, flat, &shard, reterr);
    if (status == HSDP_OK) {
        ret->shard.base = shard.base;
        ret->shard.dtype = shard.dtype;
    }
    return status;
}

static int32_t transfer_full(struct transfer *transfer, const struct hsdp_tensor *full,
                             struct hsdp_error *reterr)
{
    int32_t status;

    if (full == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: \"%s\": this rank must pass a tensor",
                         transfer->call, transfer->param->name);
    }
    status = tensor_check(transfer->call, full, transfer->param, &transfer->full.dtype, reterr);
    if (status == HSDP_OK) {
        transfer->full.base = tensor_base(full);
    }
    return status;
}

/* Walks over what `rank` holds of the parameter. */
struct held_run {
    uint64_t param_offset;
    uint64_t shard_offset;
    uint64_t n_elems;
};

static int32_t held_runs(const struct transfer *transfer, uint32_t rank, struct held_run **ret,
                         uint64_t *ret_n, struct hsdp_error *reterr)
{
    struct hsdp_segment *segments;
    struct held_run *runs;
    uint64_t n_segments;
    uint64_t n = 0;
    int32_t status;

    status = model_step_segments(transfer->model, transfer->param->unit, rank, &segments,
                                 &n_segments, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    runs = calloc(n_segments + 1, sizeof(*runs));
    for (uint64_t i = 0; runs != NULL && i < n_segments; i++) {
        if (segments[i].param == transfer->index) {
            runs[n].param_offset = segments[i].param_offset_elems;
            runs[n].shard_offset = segments[i].shard_offset_elems;
            runs[n++].n_elems = segments[i].n_elems;
        }
    }
    free(segments);
    if (runs == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "%s: no memory for segments", transfer->call);
    }
    *ret = runs;
    *ret_n = n;
    return HSDP_OK;
}

static void run_probe(const struct transfer *transfer, const struct held_run *run, bool is_write)
{
    struct probe *probe = job_probe(transfer->model->job);
    uint64_t elem_bytes = dtype_bytes(transfer->shard.dtype);
    const uint8_t *base = (const uint8_t *)transfer->shard.base + run->shard_offset * elem_bytes;

    if (is_write) {
        probe_write(probe, PROBE_FLAT, transfer->param->unit, base, run->n_elems * elem_bytes);
    } else {
        probe_read(probe, PROBE_FLAT, transfer->param->unit, base, run->n_elems * elem_bytes);
    }
}

static const struct plan_class *transfer_class(const struct transfer *transfer)
{
    const struct hsdp_plan *plan = transfer->model->plan;

    return &plan->classes[plan->units[transfer->param->unit].class_index];
}

static const struct placement *transfer_place(const struct transfer *transfer)
{
    return &transfer_class(transfer)->place;
}

/* Whether `rank` is one of those that sum this parameter's gradients with this rank. */
static int32_t peer_check(const struct transfer *transfer, const char *what, uint32_t rank,
                          struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = transfer->model->plan->mesh;
    uint32_t dims = transfer_place(transfer)->reduced;

    if (rank >= mesh->world_ranks ||
        mesh_peer(mesh, dims, mesh->rank, mesh_index(mesh, dims, rank)) != rank) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: \"%s\": %s %" PRIu32
                         " is not among the ranks that share the parameter with rank %" PRIu32
                         ", those along its reduced_over, \"%s\"",
                         transfer->call, transfer->param->name, what, rank, mesh->rank,
                         transfer_class(transfer)->reduce_dims);
    }
    return HSDP_OK;
}

/* -------------------------------------------------------------------------------- import */

/* What is moved, and how, as one number: ranks that name something else are told. */
enum movement { MOVE_IMPORT, MOVE_EXPORT, MOVE_SYNC };

static uint64_t movement_tag(enum movement movement, uint32_t index, int32_t flat)
{
    return (uint64_t)index << 32 | (uint32_t)movement << 24 | (uint32_t)flat;
}

/* Takes this rank's runs out of the whole parameter. */
static int32_t import_runs(struct transfer *transfer, struct run full, struct hsdp_error *reterr)
{
    struct held_run *runs;
    uint64_t n_runs;
    int32_t status;

    status = held_runs(transfer, transfer->model->plan->mesh->rank, &runs, &n_runs, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    for (uint64_t i = 0; i < n_runs; i++) {
        run_probe(transfer, &runs[i], true);
        run_copy(transfer->shard, runs[i].shard_offset, full, runs[i].param_offset,
                 runs[i].n_elems);
    }
    free(runs);
    return HSDP_OK;
}

static int32_t import_read(void *user, uint32_t rank, const void *bytes, uint64_t n_bytes,
                           struct hsdp_error *reterr)
{
    struct transfer *transfer = user;
    struct run full = {.base = (void *)(uintptr_t)bytes, .dtype = DTYPE_FP32};

    if (n_bytes != transfer->param->n_elems * sizeof(float)) {
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "%s: \"%s\": rank %" PRIu32 " sent %" PRIu64
                         " bytes; do all ranks import the same parameter from the same rank?",
                         transfer->call, transfer->param->name, rank, n_bytes);
    }
    return import_runs(transfer, full, reterr);
}

static int32_t import_from(struct transfer *transfer, uint32_t source_rank,
                           struct hsdp_error *reterr)
{
    struct hsdp_model *model = transfer->model;
    struct store_offer offer = {.operation = transfer->call, .read = import_read};
    float *values = NULL;
    int32_t status;

    offer.unit = model->plan->units[transfer->param->unit].name;
    offer.tag = movement_tag(MOVE_IMPORT, transfer->index, transfer->flat);
    offer.root = source_rank;
    offer.root_dims = transfer_place(transfer)->reduced;
    offer.user = transfer;
    offer.readable = &source_rank;
    offer.n_readable = 1;
    if (source_rank == model->plan->mesh->rank) {
        struct run packed;

        offer.n_bytes = transfer->param->n_elems * sizeof(float);
        values = malloc(offer.n_bytes + 1);
        if (values == NULL) {
            return error_set(reterr, HSDP_ERR_NO_MEMORY, "%s: no memory for \"%s\"", transfer->call,
                             transfer->param->name);
        }
        packed.base = values;
        packed.dtype = DTYPE_FP32;
        run_copy(packed, 0, transfer->full, 0, transfer->param->n_elems);
        offer.bytes = values;
    }
    status = model->ops->offer(model->store, &offer, reterr);
    free(values);
    return status;
}

int32_t model_import_param(struct hsdp_model *model, uint32_t param, int32_t flat,
                           const struct hsdp_tensor *full, uint32_t source_rank, void *stream,
                           struct hsdp_error *reterr)
{
    struct transfer transfer;
    int32_t status;

    (void)stream;
    status = edit_check(model, "model.import_param", reterr);
    if (status == HSDP_OK && flat == HSDP_FLAT_GRAD) {
        status = error_set(reterr, HSDP_ERR_INVALID,
                           "model.import_param: gradients are added with unit.grad_add");
    }
    if (status == HSDP_OK) {
        status = transfer_init(&transfer, model, "model.import_param", param, flat, reterr);
    }
    if (status == HSDP_OK && source_rank != HSDP_ALL_RANKS) {
        status = peer_check(&transfer, "source_rank", source_rank, reterr);
    }
    if (status == HSDP_OK &&
        (source_rank == HSDP_ALL_RANKS || source_rank == model->plan->mesh->rank)) {
        status = transfer_full(&transfer, full, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (source_rank == HSDP_ALL_RANKS) {
        return import_runs(&transfer, transfer.full, reterr);
    }
    return import_from(&transfer, source_rank, reterr);
}

/* -------------------------------------------------------------------------------- export */

/* Puts what a rank has packed into its places in the whole parameter. */
static int32_t export_read(void *user, uint32_t rank, const void *bytes, uint64_t n_bytes,
                           struct hsdp_error *reterr)
{
    struct transfer *transfer = user;
    struct run packed = {.base = (void *)(uintptr_t)bytes, .dtype = DTYPE_FP32};
    struct held_run *runs;
    uint64_t n_runs;
    uint64_t at = 0;
    int32_t status;

    status = held_runs(transfer, rank, &runs, &n_runs, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    for (uint64_t i = 0; i < n_runs && (at + runs[i].n_elems) * sizeof(float) <= n_bytes; i++) {
        run_copy(transfer->full, runs[i].param_offset, packed, at, runs[i].n_elems);
        at += runs[i].n_elems;
    }
    free(runs);
    if (at * sizeof(float) != n_bytes) {
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "%s: \"%s\": rank %" PRIu32 " sent %" PRIu64
                         " bytes; do all ranks export the same parameter?",
                         transfer->call, transfer->param->name, rank, n_bytes);
    }
    return HSDP_OK;
}

/* This rank's runs of the parameter, one after another, in fp32; freed by the caller. */
static int32_t export_pack(struct transfer *transfer, float **ret_values, uint64_t *ret_bytes,
                           struct hsdp_error *reterr)
{
    struct run packed = {.dtype = DTYPE_FP32};
    struct held_run *runs;
    uint64_t n_runs;
    uint64_t n_elems = 0;
    int32_t status;

    status = held_runs(transfer, transfer->model->plan->mesh->rank, &runs, &n_runs, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    for (uint64_t i = 0; i < n_runs; i++) {
        n_elems += runs[i].n_elems;
    }
    packed.base = malloc(n_elems * sizeof(float) + 1);
    if (packed.base == NULL) {
        free(runs);
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "%s: no memory for \"%s\"", transfer->call,
                         transfer->param->name);
    }
    *ret_values = packed.base;
    *ret_bytes = n_elems * sizeof(float);
    n_elems = 0;
    for (uint64_t i = 0; i < n_runs; i++) {
        run_probe(transfer, &runs[i], false);
        run_copy(packed, n_elems, transfer->shard, runs[i].shard_offset, runs[i].n_elems);
        n_elems += runs[i].n_elems;
    }
    free(runs);
    return HSDP_OK;
}

static int32_t export_to(struct transfer *transfer, bool is_target, struct hsdp_error *reterr)
{
    struct hsdp_model *model = transfer->model;
    const struct hsdp_mesh *mesh = model->plan->mesh;
    const struct placement *place = transfer_place(transfer);
    uint32_t n_slices = placement_n_slices(place, mesh, HSDP_SHARD_STEP);
    struct store_offer offer = {.operation = transfer->call, .read = export_read};
    uint32_t *owners = calloc(n_slices, sizeof(*owners));
    float *values = NULL;
    int32_t status;

    if (owners == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "%s: no memory", transfer->call);
    }
    status = export_pack(transfer, &values, &offer.n_bytes, reterr);
    if (status == HSDP_OK) {
        for (uint32_t slice = 0; is_target && slice < n_slices; slice++) {
            owners[slice] = placement_owner(place, mesh, HSDP_SHARD_STEP, mesh->rank, slice);
        }
        offer.unit = model->plan->units[transfer->param->unit].name;
        offer.tag = movement_tag(MOVE_EXPORT, transfer->index, transfer->flat);
        offer.user = transfer;
        offer.bytes = values;
        offer.readable = owners;
        offer.n_readable = is_target ? n_slices : 0;
        status = model->ops->offer(model->store, &offer, reterr);
    }
    free(values);
    free(owners);
    return status;
}

int32_t model_export_param(struct hsdp_model *model, uint32_t param, int32_t flat,
                           const struct hsdp_tensor *full, uint32_t target_rank, void *stream,
                           struct hsdp_error *reterr)
{
    bool is_target = target_rank == HSDP_ALL_RANKS || target_rank == model->plan->mesh->rank;
    struct transfer transfer;
    int32_t status;

    (void)stream;
    status = transfer_init(&transfer, model, "model.export_param", param, flat, reterr);
    if (status == HSDP_OK && flat == HSDP_FLAT_GRAD) {
        status = step_await(model, "model.export_param",
                            reterr); /* gradients are whole within a step only */
    }
    if (status == HSDP_OK && target_rank != HSDP_ALL_RANKS) {
        status = peer_check(&transfer, "target_rank", target_rank, reterr);
    }
    if (status == HSDP_OK && is_target) {
        status = transfer_full(&transfer, full, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    return export_to(&transfer, is_target, reterr);
}

/* ---------------------------------------------------------------------------------- sync */

static int32_t sync_read(void *user, uint32_t rank, const void *bytes, uint64_t n_bytes,
                         struct hsdp_error *reterr)
{
    const struct flat_shard *shard = user;

    if (n_bytes != shard->n_elems * dtype_bytes(shard->dtype)) {
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "model.sync: rank %" PRIu32 " holds %" PRIu64 " bytes, this rank %" PRIu64,
                         rank, n_bytes, shard->n_elems * dtype_bytes(shard->dtype));
    }
    memcpy(shard->base, bytes, n_bytes);
    return HSDP_OK;
}

static int32_t flat_sync(struct hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                         struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = model->plan->mesh;
    const struct placement *place =
        &model->plan->classes[model->plan->units[unit].class_index].place;
    uint32_t replica_dims = place->replicated & ~place->cuts[HSDP_SHARD_STEP];
    uint32_t first = mesh_peer(mesh, replica_dims, mesh->rank, 0);
    struct store_offer offer = {.operation = "model.sync", .read = sync_read};
    struct flat_shard shard;
    int32_t status;

    status = model_flat_shard(model, unit, buffer, flat, &shard, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    offer.unit = model->plan->units[unit].name;
    offer.tag = movement_tag(MOVE_SYNC, unit * PLAN_MAX_BUFFERS + buffer, flat);
    offer.user = &shard;
    if (first == mesh->rank) {
        offer.bytes = shard.base;
        offer.n_bytes = shard.n_elems * dtype_bytes(shard.dtype);
    } else {
        offer.readable = &first;
        offer.n_readable = 1;
        probe_write(job_probe(model->job), PROBE_FLAT, unit, shard.base,
                    shard.n_elems * dtype_bytes(shard.dtype));
    }
    return model->ops->offer(model->store, &offer, reterr);
}

/* States are told apart by number, so ranks must have made the same ones in the same order. */
static int32_t states_agree(struct hsdp_model *model, struct hsdp_error *reterr)
{
    char mine[JOB_EXCHANGE_MAX_BYTES] = "";
    uint32_t n_ranks = job_world_ranks(model->job);
    char *all = calloc(n_ranks, sizeof(mine));
    size_t n_bytes = 0;
    int32_t status;

    if (all == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.sync: no memory for %zu bytes",
                         n_ranks * sizeof(mine));
    }
    for (uint32_t s = 0; s < model->n_states && n_bytes < sizeof(mine); s++) {
        n_bytes += (size_t)snprintf(mine + n_bytes, sizeof(mine) - n_bytes, "%s%.40s %s",
                                    s == 0 ? "" : ", ", model->states[s].name,
                                    dtype_name(model->states[s].dtype));
    }
    status = job_exchange(model->job, "model.sync", mine, sizeof(mine), all, reterr);
    for (uint32_t rank = 1; status == HSDP_OK && rank < n_ranks; rank++) {
        const char *theirs = all + rank * sizeof(mine);

        if (strncmp(theirs, all, sizeof(mine)) != 0) { /* the same on every rank: nobody waits */
            status = error_set(reterr, HSDP_ERR_INVALID,
                               "model.sync: states are \"%.180s\" on rank 0, \"%.180s\" on rank "
                               "%" PRIu32 "; make the same ones in the same order",
                               all, theirs, rank);
        }
    }
    free(all);
    return status;
}

int32_t model_sync(struct hsdp_model *model, void *stream, struct hsdp_error *reterr)
{
    int32_t status = edit_check(model, "model.sync", reterr);

    (void)stream;
    if (status == HSDP_OK) {
        status = states_agree(model, reterr);
    }
    for (uint32_t unit = 0; status == HSDP_OK && unit < model->plan->n_units; unit++) {
        const struct plan_unit *plan_unit = &model->plan->units[unit];

        for (uint32_t b = 0; status == HSDP_OK && b < plan_unit->n_buffers; b++) {
            status = flat_sync(model, unit, b, HSDP_FLAT_MASTER, reterr);
        }
        for (uint32_t s = 0;
             plan_is_trainable(model->plan, unit) && status == HSDP_OK && s < model->n_states;
             s++) {
            status = flat_sync(model, unit, 0, HSDP_FLAT_STATE + (int32_t)s, reterr);
        }
    }
    if (status == HSDP_OK) {
        status = ties_sync(model, reterr);
    }
    return status;
}
