/* SPDX-License-Identifier: Apache-2.0 */
/* Drift between stages: copies of a parameter that lie at other places, and are sliced otherwise.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/probe.h"
#include "device/checksum.h"
#include "shard/drift_internal.h"

/*
 * Elements are hashed with the parameter's name and their place in it, so that the slices of one
 * stage add up to the same number as those of another. One replica of each slice is counted: the
 * others are compared with it. Once the sums of all stages do not cancel, every rank shows what it
 * has of each tied thing, and every holder adds up what the ranks of each stage have shown.
 */

#define SHOWN_PER_EXCHANGE (JOB_EXCHANGE_MAX_BYTES / sizeof(struct tied_hash))

/* Parameters, masters, states. */
static uint64_t things_per_tie(const struct hsdp_model *model)
{
    return 2u + model->n_states;
}

static struct item thing_item(const struct hsdp_model *model, uint64_t index)
{
    const struct hsdp_plan *plan = model->plan;
    const struct plan_tie *tie = &plan->ties[index / things_per_tie(model)];
    uint32_t number = (uint32_t)(index % things_per_tie(model));
    struct item item = {.kind = number < 2 ? (enum item_kind)number : ITEM_STATE};

    item.unit = plan->params[tie->param].unit;
    item.buffer = plan->params[tie->param].buffer;
    item.state = number < 2 ? 0 : number - 2;
    drift_item_place(model, &item);
    return item;
}

static uint64_t thing_salt(const struct hsdp_model *model, uint64_t index)
{
    const struct plan_tie *tie = &model->plan->ties[index / things_per_tie(model)];
    uint64_t salt = checksum_mix(index % things_per_tie(model));

    for (const char *c = model->plan->params[tie->param].name; *c != '\0'; c++) {
        salt = checksum_mix(salt ^ (uint8_t)*c);
    }
    return salt == 0 ? 1 : salt; /* 0 = nothing is shown */
}

/* A frozen parameter has no states. */
static bool thing_exists(const struct hsdp_model *model, const struct item *item)
{
    bool is_frozen = model->plan->units[item->unit].buffers[item->buffer].is_frozen;

    return drift_item_exists(model, item) && (item->kind != ITEM_STATE || !is_frozen);
}

static int32_t thing_hash(struct hsdp_model *model, uint64_t index, const struct item *item,
                          uint64_t *ret_hash, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    const struct hsdp_segment *segments = model->drift->segments;
    uint32_t param = plan->ties[index / things_per_tie(model)].param;
    struct flat_shard shard;
    uint64_t n_segments = 0;
    int32_t status;

    status = drift_item_shard(model, item, &shard, reterr);
    if (status == HSDP_OK) {
        probe_read(job_probe(model->job), item->kind == ITEM_PARAM ? PROBE_PARAMS : PROBE_FLAT,
                   item->unit, shard.base, shard.n_elems * dtype_bytes(shard.dtype));
        status =
            plan_segments(plan, item->unit, item->cut, plan->mesh->rank, model->drift->segments,
                          sizeof(*segments), plan->units[item->unit].n_params, &n_segments, reterr);
    }
    for (uint64_t i = 0; status == HSDP_OK && i < n_segments; i++) {
        struct digested elems = {&shard, segments[i].shard_offset_elems, segments[i].n_elems,
                                 thing_salt(model, index), segments[i].param_offset_elems};

        if (segments[i].param == param) {
            status = drift_digest(model, &elems, ret_hash, reterr);
        }
    }
    return status;
}

static int32_t room_reserve(struct hsdp_model *model, struct hsdp_error *reterr)
{
    struct drift *drift = model->drift;
    uint64_t n_tied = model->plan->n_ties * things_per_tie(model);
    struct tied_hash *hashes;

    if (n_tied == drift->n_tied) {
        return HSDP_OK;
    }
    hashes = realloc(drift->tied_hashes, n_tied * sizeof(*hashes));
    if (hashes == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "step.begin: no memory for %" PRIu64 " checksums of ties", n_tied);
    }
    drift->tied_hashes = hashes;
    drift->n_tied = n_tied;
    return HSDP_OK;
}

int32_t drift_ties_measure(struct hsdp_model *model, uint64_t *checksum, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = model->plan->mesh;
    struct drift *drift = model->drift;
    int32_t status = room_reserve(model, reterr);

    for (uint64_t index = 0; status == HSDP_OK && index < drift->n_tied; index++) {
        const struct plan_tie *tie = &model->plan->ties[index / things_per_tie(model)];
        struct item item = thing_item(model, index);
        struct tied_hash *mine = &drift->tied_hashes[index];

        mine->salt = thing_salt(model, index);
        mine->hash = 0;
        if (thing_exists(model, &item) && mesh_index(mesh, item.replica_dims, mesh->rank) == 0) {
            status = thing_hash(model, index, &item, &mine->hash, reterr);
            *checksum += mine->hash * drift_weight(tie->own, tie->n_holders);
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------------- name */

/* Which holder of this rank's tie another rank is of; -1 = of none, or of other values. */
static int64_t holder_of(const struct hsdp_model *model, const struct plan_tie *tie, uint32_t rank)
{
    const struct hsdp_plan *plan = model->plan;
    const struct hsdp_mesh *mesh = plan->mesh;
    const struct plan_unit *unit = &plan->units[plan->params[tie->param].unit];
    uint32_t dims = tie->selector.dims | plan->classes[unit->class_index].place.replicated;

    return mesh_peer(mesh, dims, mesh->rank, mesh_index(mesh, dims, rank)) == rank
               ? selector_index(mesh, &tie->selector, rank)
               : -1;
}

/* Adds what all ranks have shown to what each holder has of this rank's ties. */
static void shown_add(const struct hsdp_model *model, uint64_t *sums)
{
    const struct hsdp_plan *plan = model->plan;
    const struct drift *drift = model->drift;
    uint32_t n_ranks = plan->mesh->world_ranks;

    for (uint64_t i = 0; i < n_ranks * SHOWN_PER_EXCHANGE; i++) {
        uint32_t rank = (uint32_t)(i / SHOWN_PER_EXCHANGE);
        struct tied_hash shown;

        memcpy(&shown, drift->received + i * sizeof(shown), sizeof(shown));
        for (uint64_t index = 0; shown.salt != 0 && index < drift->n_tied; index++) {
            const struct plan_tie *tie = &plan->ties[index / things_per_tie(model)];
            int64_t holder = holder_of(model, tie, rank);

            if (holder >= 0 && drift->tied_hashes[index].salt == shown.salt) {
                sums[index * n_ranks + (uint64_t)holder] += shown.hash;
            }
        }
    }
}

static int32_t sums_collect(struct hsdp_model *model, uint64_t n_tied, uint64_t *sums,
                            struct hsdp_error *reterr)
{
    struct drift *drift = model->drift;
    int32_t status = HSDP_OK;

    for (uint64_t first = 0; status == HSDP_OK && first < n_tied; first += SHOWN_PER_EXCHANGE) {
        struct tied_hash mine[SHOWN_PER_EXCHANGE];

        memset(mine, 0, sizeof(mine));
        for (uint64_t i = 0; i < SHOWN_PER_EXCHANGE && first + i < drift->n_tied; i++) {
            mine[i] = drift->tied_hashes[first + i];
        }
        status = job_exchange(model->job, "drift", mine, sizeof(mine), drift->received, reterr);
        if (status == HSDP_OK && sums != NULL) {
            shown_add(model, sums);
        }
    }
    return status;
}

static void thing_compare(const struct hsdp_model *model, uint64_t index, const uint64_t *sums,
                          struct finding *ret)
{
    const struct hsdp_mesh *mesh = model->plan->mesh;
    const struct plan_tie *tie = &model->plan->ties[index / things_per_tie(model)];
    struct item item = thing_item(model, index);
    struct odd_one found;
    bool is_same = true;
    char what[96];

    for (uint32_t h = 1; h < tie->n_holders; h++) {
        is_same = is_same && sums[h] == sums[0];
    }
    if (is_same) {
        return;
    }
    found = drift_odd_one(sums, tie->n_holders);
    drift_item_text(model, &item, what, sizeof(what));
    snprintf(ret->unit, sizeof(ret->unit), "%s", model->plan->units[item.unit].name);
    snprintf(ret->text, sizeof(ret->text),
             "%s of tied \"%.64s\" differ between the stage of rank %" PRIu32
             " and that of rank %" PRIu32 "; %s",
             what, model->plan->params[tie->param].name,
             selector_rank(mesh, &tie->selector, mesh->rank, found.odd),
             selector_rank(mesh, &tie->selector, mesh->rank, found.good), found.why);
    ret->is_found = FOUND_STAGES;
}

/* A rank without memory still takes part, so that its peers need not wait; another one names it. */
int32_t drift_ties_find(struct hsdp_model *model, struct finding *ret, struct hsdp_error *reterr)
{
    struct drift *drift = model->drift;
    uint64_t n_ranks = model->plan->mesh->world_ranks;
    uint64_t n_tied;
    uint64_t *sums;
    int32_t status = drift_largest(model, drift->n_tied, &n_tied, reterr);

    if (status != HSDP_OK || n_tied == 0) {
        return status;
    }
    sums = calloc(drift->n_tied * n_ranks + 1, sizeof(*sums));
    status = sums_collect(model, n_tied, sums, reterr);
    for (uint64_t index = 0; sums != NULL && status == HSDP_OK && ret->is_found == FOUND_NOTHING &&
                             index < drift->n_tied;
         index++) {
        thing_compare(model, index, sums + index * n_ranks, ret);
    }
    free(sums);
    return status;
}
