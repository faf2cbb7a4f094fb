/* SPDX-License-Identifier: Apache-2.0 */
/* Moves: one parameter, or its gradient or a state of it, from or to a full tensor of the host. */
#include "shard/move.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/probe.h"
#include "device/space.h"
#include "shard/elems.h"
#include "shard/tensor.h"

/* Elements of a parameter that one rank holds. */
struct held_run {
    uint64_t param_offset;
    uint64_t shard_offset;
    uint64_t n_elems;
};

struct held {
    struct held_run *runs; /* owned */
    uint64_t n_runs;
};

/* One parameter's part of a flat shard, and the host's full tensor. */
struct transfer {
    struct hsdp_model *model;
    const char *call;
    const struct plan_param *param;
    uint32_t index; /* of the parameter */
    int32_t flat;
    struct elems shard;  /* this rank's */
    struct elems full;   /* base NULL: the host passes none here */
    struct held mine;    /* what this rank holds */
    struct held *theirs; /* of the ranks that are read, in an export */
    const uint32_t *owners;
    void *stream;
    int32_t status; /* of what could not be put where it belongs; err says why */
    struct hsdp_error err;
};

/* The space of a model that the host's thread cannot touch. */
static struct space *device_of(const struct hsdp_model *model)
{
    return model->space->ops->is_host ? NULL : model->space;
}

static int32_t transfer_init(struct transfer *ret, struct hsdp_model *model, const char *call,
                             uint32_t param, int32_t flat, struct hsdp_error *reterr)
{
    struct flat_shard shard;
    int32_t status;

    memset(ret, 0, sizeof(*ret));
    ret->model = model;
    ret->call = call;
    if (param >= model->plan->n_params) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: parameter %" PRIu32 " of %" PRIu32, call,
                         param, model->plan->n_params);
    }
    ret->index = model->plan->params[param].storage;
    ret->param = &model->plan->params[ret->index];
    ret->flat = flat;
    status = model_flat_shard(model, ret->param->unit, ret->param->buffer, flat, &shard, reterr);
    if (status == HSDP_OK) {
        ret->shard.base = shard.base;
        ret->shard.dtype = shard.dtype;
        ret->shard.space = device_of(model);
    }
    return status;
}

/* What the host has put on its stream comes first. */
static int32_t transfer_follow(struct transfer *transfer, void *stream, struct hsdp_error *reterr)
{
    if (stream != NULL && device_of(transfer->model) == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: stream %p; the only stream of a CPU is NULL", transfer->call, stream);
    }
    transfer->stream = stream;
    return model_follow(transfer->model, stream, reterr);
}

static int32_t transfer_full(struct transfer *transfer, const struct hsdp_tensor *full,
                             struct hsdp_error *reterr)
{
    struct tensor_wanted wanted = {transfer->call, transfer->param, transfer->model->space, true};
    int32_t status;

    if (full == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: \"%s\": this rank must pass a tensor",
                         transfer->call, transfer->param->name);
    }
    status = tensor_check(&wanted, full, &transfer->full.dtype, reterr);
    if (status == HSDP_OK) {
        transfer->full.base = tensor_base(full);
        transfer->full.space = tensor_is_host(full) ? NULL : transfer->model->space;
    }
    return status;
}

/* What `rank` holds of the parameter; ret->runs is freed by the caller. */
static int32_t held_init(struct held *ret, const struct transfer *transfer, uint32_t rank,
                         struct hsdp_error *reterr)
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
    ret->runs = runs;
    ret->n_runs = n;
    return HSDP_OK;
}

static uint64_t held_elems(const struct held *held)
{
    uint64_t n_elems = 0;

    for (uint64_t i = 0; i < held->n_runs; i++) {
        n_elems += held->runs[i].n_elems;
    }
    return n_elems;
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

/* An offer of a transfer that is collective; where *err says what is wrong, of nothing. */
static struct store_offer transfer_offer(struct transfer *transfer, enum move move,
                                         char ret_what[MOVE_TEXT_BYTES], int32_t status,
                                         const struct hsdp_error *err)
{
    struct store_offer offer = {.operation = transfer->call, .user = transfer};

    offer.status = status;
    offer.message = err->message;
    if (transfer->param == NULL) {
        return offer; /* there is none */
    }
    if (transfer->flat == HSDP_FLAT_MASTER || transfer->flat == HSDP_FLAT_GRAD) {
        snprintf(ret_what, MOVE_TEXT_BYTES, "\"%.60s\" (%s)", transfer->param->name,
                 transfer->flat == HSDP_FLAT_MASTER ? "master" : "gradient");
    } else {
        snprintf(ret_what, MOVE_TEXT_BYTES, "\"%.60s\" (state %" PRId32 ")", transfer->param->name,
                 transfer->flat - HSDP_FLAT_STATE);
    }
    offer.what = ret_what;
    offer.unit = transfer->model->plan->units[transfer->param->unit].name;
    offer.tag = move_tag(move, transfer->index, transfer->flat);
    return offer;
}

/* Takes this rank's runs out of the whole parameter. */
static int32_t import_runs(struct transfer *transfer, struct elems full, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (uint64_t i = 0; status == HSDP_OK && i < transfer->mine.n_runs; i++) {
        const struct held_run *run = &transfer->mine.runs[i];

        run_probe(transfer, run, true);
        status = elems_copy(transfer->shard, run->shard_offset, full, run->param_offset,
                            run->n_elems, reterr);
    }
    return status;
}

static int32_t import_prepare(void *user, uint32_t i, uint64_t n_bytes, struct hsdp_error *reterr)
{
    const struct transfer *transfer = user;

    (void)i;
    (void)reterr;
    assert(n_bytes == transfer->param->n_elems * sizeof(float)); /* tags and plans are equal */
    return HSDP_OK;
}

static void import_read(void *user, uint32_t i, const void *bytes, uint64_t n_bytes)
{
    struct elems full = {.base = (void *)(uintptr_t)bytes, .dtype = DTYPE_FP32};
    struct transfer *transfer = user;

    (void)i;
    (void)n_bytes;
    transfer->status = import_runs(transfer, full, &transfer->err);
}

/* The offer is made; what the host puts on its stream afterwards comes behind it. */
static int32_t transfer_pass(struct transfer *transfer, const struct store_offer *offer,
                             struct hsdp_error *reterr)
{
    struct hsdp_model *model = transfer->model;
    int32_t status = model->ops->offer(model->store, offer, reterr);

    if (status == HSDP_OK && transfer->status != HSDP_OK) {
        if (reterr != NULL) {
            *reterr = transfer->err;
        }
        return transfer->status;
    }
    return status == HSDP_OK ? model_precede(model, transfer->stream, reterr) : status;
}

/* The source's tensor as it travels; freed by the caller. */
static int32_t import_pack(struct transfer *transfer, float **ret_values, struct hsdp_error *reterr)
{
    struct elems packed = {.dtype = DTYPE_FP32};
    int32_t status;

    packed.base = malloc(transfer->param->n_elems * sizeof(float) + 1);
    if (packed.base == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "%s: no memory for \"%s\"", transfer->call,
                         transfer->param->name);
    }
    status = elems_copy(packed, 0, transfer->full, 0, transfer->param->n_elems, reterr);
    if (status != HSDP_OK) {
        free(packed.base);
        return status;
    }
    *ret_values = packed.base;
    return HSDP_OK;
}

/* What is wrong on this rank goes to the others, who wait for it. */
static int32_t import_from(struct transfer *transfer, uint32_t source_rank, int32_t status,
                           struct hsdp_error *err, struct hsdp_error *reterr)
{
    struct hsdp_model *model = transfer->model;
    char what[MOVE_TEXT_BYTES];
    struct store_offer offer;
    float *values = NULL;

    if (status == HSDP_OK && source_rank == model->plan->mesh->rank) {
        status = import_pack(transfer, &values, err);
    }
    offer = transfer_offer(transfer, MOVE_IMPORT, what, status, err);
    if (status == HSDP_OK) {
        offer.root = source_rank;
        offer.root_dims = transfer_place(transfer)->reduced;
        offer.prepare = import_prepare;
        offer.read = import_read;
        offer.readable = &source_rank;
        offer.n_readable = 1;
        offer.bytes = values;
        offer.n_bytes = values == NULL ? 0 : transfer->param->n_elems * sizeof(float);
    }
    status = transfer_pass(transfer, &offer, reterr);
    free(values);
    return status;
}

int32_t model_import_param(struct hsdp_model *model, uint32_t param, int32_t flat,
                           const struct hsdp_tensor *full, uint32_t source_rank, void *stream,
                           struct hsdp_error *reterr)
{
    struct transfer transfer;
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status;

    status = edit_check(model, "model.import_param", reterr); /* the same on all ranks */
    if (status != HSDP_OK) {
        return status;
    }
    status = transfer_init(&transfer, model, "model.import_param", param, flat, &err);
    if (status == HSDP_OK && flat == HSDP_FLAT_GRAD) {
        status = error_set(&err, HSDP_ERR_INVALID,
                           "model.import_param: gradients are added with unit.grad_add");
    }
    if (status == HSDP_OK) {
        status = transfer_follow(&transfer, stream, &err);
    }
    if (status == HSDP_OK && source_rank != HSDP_ALL_RANKS) {
        status = peer_check(&transfer, "source_rank", source_rank, &err);
    }
    if (status == HSDP_OK &&
        (source_rank == HSDP_ALL_RANKS || source_rank == model->plan->mesh->rank)) {
        status = transfer_full(&transfer, full, &err);
    }
    if (status == HSDP_OK) {
        status = held_init(&transfer.mine, &transfer, model->plan->mesh->rank, &err);
    }
    if (source_rank != HSDP_ALL_RANKS) {
        status = import_from(&transfer, source_rank, status, &err, reterr);
    } else if (status == HSDP_OK) {
        status = import_runs(&transfer, transfer.full, reterr);
        if (status == HSDP_OK) {
            status = model_precede(model, stream, reterr);
        }
    } else if (reterr != NULL) {
        *reterr = err;
    }
    free(transfer.mine.runs);
    return status;
}

/* -------------------------------------------------------------------------------- export */

static int32_t export_prepare(void *user, uint32_t i, uint64_t n_bytes, struct hsdp_error *reterr)
{
    struct transfer *transfer = user;
    int32_t status = held_init(&transfer->theirs[i], transfer, transfer->owners[i], reterr);

    (void)n_bytes;
    assert(status != HSDP_OK || n_bytes == held_elems(&transfer->theirs[i]) * sizeof(float));
    return status;
}

/* Puts what a rank has packed into its places in the whole parameter. */
static void export_read(void *user, uint32_t i, const void *bytes, uint64_t n_bytes)
{
    struct transfer *transfer = user;
    struct elems packed = {.base = (void *)(uintptr_t)bytes, .dtype = DTYPE_FP32};
    const struct held *held = &transfer->theirs[i];
    uint64_t at = 0;

    (void)n_bytes;
    for (uint64_t r = 0; transfer->status == HSDP_OK && r < held->n_runs; r++) {
        transfer->status = elems_copy(transfer->full, held->runs[r].param_offset, packed, at,
                                      held->runs[r].n_elems, &transfer->err);
        at += held->runs[r].n_elems;
    }
}

/* This rank's runs of the parameter, one after another, in fp32; freed by the caller. */
static int32_t export_pack(struct transfer *transfer, float **ret_values, struct hsdp_error *reterr)
{
    struct elems packed = {.dtype = DTYPE_FP32};
    int32_t status = HSDP_OK;
    uint64_t at = 0;

    packed.base = malloc(held_elems(&transfer->mine) * sizeof(float) + 1);
    if (packed.base == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "%s: no memory for \"%s\"", transfer->call,
                         transfer->param->name);
    }
    for (uint64_t i = 0; status == HSDP_OK && i < transfer->mine.n_runs; i++) {
        const struct held_run *run = &transfer->mine.runs[i];

        run_probe(transfer, run, false);
        status = elems_copy(packed, at, transfer->shard, run->shard_offset, run->n_elems, reterr);
        at += run->n_elems;
    }
    if (status != HSDP_OK) {
        free(packed.base);
        return status;
    }
    *ret_values = packed.base;
    return HSDP_OK;
}

/* Who owns each slice, and room for what they hold. */
static int32_t owners_find(struct transfer *transfer, uint32_t n_slices, uint32_t **ret_owners,
                           struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = transfer->model->plan->mesh;
    uint32_t *owners = calloc(n_slices, sizeof(*owners));

    transfer->theirs = calloc(n_slices, sizeof(*transfer->theirs));
    if (owners == NULL || transfer->theirs == NULL) {
        free(owners);
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "%s: no memory for %" PRIu32 " slices",
                         transfer->call, n_slices);
    }
    for (uint32_t slice = 0; slice < n_slices; slice++) {
        owners[slice] =
            placement_owner(transfer_place(transfer), mesh, HSDP_SHARD_STEP, mesh->rank, slice);
    }
    transfer->owners = owners;
    *ret_owners = owners;
    return HSDP_OK;
}

/* What is wrong on this rank goes to the others, who wait for it. */
static int32_t export_to(struct transfer *transfer, bool is_target, int32_t status,
                         struct hsdp_error *err, struct hsdp_error *reterr)
{
    struct hsdp_model *model = transfer->model;
    uint32_t *owners = NULL;
    uint32_t n_slices = 0;
    float *values = NULL;
    char what[MOVE_TEXT_BYTES];
    struct store_offer offer;

    if (status == HSDP_OK) {
        status = export_pack(transfer, &values, err);
    }
    if (status == HSDP_OK && is_target) {
        n_slices = placement_n_slices(transfer_place(transfer), model->plan->mesh, HSDP_SHARD_STEP);
        status = owners_find(transfer, n_slices, &owners, err);
    }
    offer = transfer_offer(transfer, MOVE_EXPORT, what, status, err);
    if (status == HSDP_OK) {
        offer.bytes = values;
        offer.n_bytes = held_elems(&transfer->mine) * sizeof(float);
        offer.prepare = export_prepare;
        offer.read = export_read;
        offer.readable = owners;
        offer.n_readable = n_slices;
    }
    status = transfer_pass(transfer, &offer, reterr);
    for (uint32_t slice = 0; transfer->theirs != NULL && slice < n_slices; slice++) {
        free(transfer->theirs[slice].runs);
    }
    free(transfer->theirs);
    free(owners);
    free(values);
    return status;
}

int32_t model_export_param(struct hsdp_model *model, uint32_t param, int32_t flat,
                           const struct hsdp_tensor *full, uint32_t target_rank, void *stream,
                           struct hsdp_error *reterr)
{
    bool is_target = target_rank == HSDP_ALL_RANKS || target_rank == model->plan->mesh->rank;
    struct transfer transfer;
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status;

    if (flat == HSDP_FLAT_GRAD) { /* gradients are whole within a step only */
        status = step_await(model, "model.export_param", reterr);
        if (status != HSDP_OK) {
            return status; /* the same on all ranks */
        }
    }
    status = transfer_init(&transfer, model, "model.export_param", param, flat, &err);
    if (status == HSDP_OK) {
        status = transfer_follow(&transfer, stream, &err);
    }
    if (status == HSDP_OK && target_rank != HSDP_ALL_RANKS) {
        status = peer_check(&transfer, "target_rank", target_rank, &err);
    }
    if (status == HSDP_OK && is_target) {
        status = transfer_full(&transfer, full, &err);
    }
    if (status == HSDP_OK) {
        status = held_init(&transfer.mine, &transfer, model->plan->mesh->rank, &err);
    }
    status = export_to(&transfer, is_target, status, &err, reterr);
    free(transfer.mine.runs);
    return status;
}
