/* SPDX-License-Identifier: Apache-2.0 */
/* Edits: opening and closing them, and synchronising masters and optimizer states. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/probe.h"
#include "device/space.h"
#include "shard/model.h"
#include "shard/move.h"

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

    status = model_idle_check(model, "model.edit_begin", reterr);
    if (status != HSDP_OK) {
        job_collective_alone(model->job); /* a step or an edit is open on all */
    }
    if (status == HSDP_OK) {
        status = model_rest_check(model, "model.edit_begin", reterr);
    }
    if (status == HSDP_OK) {
        status = edit_agree(model, reterr);
    }
    if (status == HSDP_OK) {
        model->is_editing = true;
        status = model_follow(model, stream, reterr);
    }
    if (status == HSDP_OK) {
        status = model_precede(model, stream, reterr); /* on which the host will write */
    }
    return status;
}

int32_t edit_check(const struct hsdp_model *model, const char *call, struct hsdp_error *reterr)
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

    if (status == HSDP_OK) {
        status = model->ops->publish(model->store, PUBLISHED_ALL, stream, reterr);
    }
    if (status == HSDP_OK) {
        model->is_editing = false;
    }
    return status;
}

/* ---------------------------------------------------------------------------------- sync */

/* A step shard that gets the values of the first replica, or that is the first. */
struct syncing {
    struct space *space;
    struct flat_shard shard;
    void *staged;   /* the first one's bytes, where the host can read them; owned */
    int32_t status; /* of what could not be written; err says why */
    struct hsdp_error err;
};

static uint64_t shard_bytes(const struct flat_shard *shard)
{
    return shard->n_elems * dtype_bytes(shard->dtype);
}

static int32_t sync_prepare(void *user, uint32_t i, uint64_t n_bytes, struct hsdp_error *reterr)
{
    const struct syncing *syncing = user;

    (void)i;
    (void)reterr;
    (void)n_bytes;
    (void)syncing;
    assert(n_bytes == shard_bytes(&syncing->shard)); /* tags and plans are equal */
    return HSDP_OK;
}

static void sync_read(void *user, uint32_t i, const void *bytes, uint64_t n_bytes)
{
    struct syncing *syncing = user;
    struct space *space = syncing->space;

    (void)i;
    syncing->status = space->ops->write(space, syncing->shard.base, bytes, n_bytes, &syncing->err);
}

/* What the first replica offers. */
static int32_t sync_stage(struct syncing *syncing, const void **ret_bytes,
                          struct hsdp_error *reterr)
{
    uint64_t n_bytes = shard_bytes(&syncing->shard);
    struct space *space = syncing->space;

    if (space->ops->is_host) {
        *ret_bytes = syncing->shard.base;
        return HSDP_OK;
    }
    syncing->staged = malloc(n_bytes + 1);
    if (syncing->staged == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.sync: no memory for %" PRIu64 " bytes",
                         n_bytes);
    }
    *ret_bytes = syncing->staged;
    return space->ops->read(space, syncing->staged, syncing->shard.base, n_bytes, reterr);
}

/* A rank that could not read, or write, says so after the others have had theirs. */
static int32_t sync_pass(struct hsdp_model *model, struct syncing *syncing,
                         const struct store_offer *offer, struct hsdp_error *reterr)
{
    int32_t status = model->ops->offer(model->store, offer, reterr);

    free(syncing->staged);
    if (status == HSDP_OK && syncing->status != HSDP_OK) {
        if (reterr != NULL) {
            *reterr = syncing->err;
        }
        return syncing->status;
    }
    return status;
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
    struct syncing syncing = {.space = model->space, .err = HSDP_ERROR_INIT};
    char what[MOVE_TEXT_BYTES];
    int32_t status;

    status = model_flat_shard(model, unit, buffer, flat, &syncing.shard, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    offer.unit = model->plan->units[unit].name;
    snprintf(what, sizeof(what), "unit \"%.60s\"", offer.unit);
    offer.what = what;
    offer.tag = move_tag(MOVE_SYNC, unit * PLAN_MAX_BUFFERS + buffer, flat);
    offer.user = &syncing;
    offer.prepare = sync_prepare;
    if (first == mesh->rank) {
        offer.status = sync_stage(&syncing, &offer.bytes, &syncing.err);
        offer.message = syncing.err.message;
        offer.n_bytes = shard_bytes(&syncing.shard);
    } else {
        offer.readable = &first;
        offer.n_readable = 1;
        probe_write(job_probe(model->job), PROBE_FLAT, unit, syncing.shard.base,
                    shard_bytes(&syncing.shard));
    }
    return sync_pass(model, &syncing, &offer, reterr);
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
    struct ties_room tied = {NULL, 0};

    if (status != HSDP_OK) {
        job_collective_alone(model->job); /* an edit is open on all, or on none */
        return status;
    }
    status = ties_reserve(model, &tied, reterr);
    if (status == HSDP_OK) {
        status = states_agree(model, reterr);
    }
    if (status == HSDP_OK) {
        status = model_follow(model, stream, reterr);
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
    /* A rank that could not is of one plan; the stages that are tied to it hear of that here. */
    if (status == HSDP_OK) {
        status = job_exchange(model->job, "model.sync", NULL, 0, NULL, reterr);
    }
    if (status == HSDP_OK) {
        status = ties_sync(model, &tied, reterr);
    }
    if (status == HSDP_OK) {
        status = model_precede(model, stream, reterr);
    }
    ties_release(model, &tied);
    return status;
}
