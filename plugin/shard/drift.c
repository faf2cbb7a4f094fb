/* SPDX-License-Identifier: Apache-2.0 */
/* Drift: hashing what replicas hold in common, and naming the one that differs. */
#include "shard/drift.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/probe.h"
#include "device/checksum.h"
#include "device/space.h"
#include "shard/drift_internal.h"

/* Hashes that one exchange carries of each rank. */
#define HASHES_PER_EXCHANGE (JOB_EXCHANGE_MAX_BYTES / sizeof(uint64_t))

/* ------------------------------------------------------------------------------------ items */

/*
 * Everything that may have replicas, numbered: two parameter shards and two masters a unit, then
 * the states, one after another, of all units. Ranks of one plan number them alike; a rank that has
 * made more states only numbers on.
 */
#define ITEMS_PER_UNIT (2u * PLAN_MAX_BUFFERS)

static uint64_t items_count(const struct hsdp_model *model)
{
    return (uint64_t)model->plan->n_units * (ITEMS_PER_UNIT + model->n_states);
}

bool drift_item_exists(const struct hsdp_model *model, const struct item *item)
{
    const struct plan_unit *unit = &model->plan->units[item->unit];

    switch (item->kind) {
    case ITEM_PARAM:
        return item->buffer < unit->n_buffers;
    case ITEM_MASTER:
        return item->buffer < unit->n_buffers && !plan_steps_in_place(model->plan, item->unit);
    default:
        return plan_is_trainable(model->plan, item->unit);
    }
}

void drift_item_place(const struct hsdp_model *model, struct item *item)
{
    const struct plan_unit *unit = &model->plan->units[item->unit];
    const struct placement *place = &model->plan->classes[unit->class_index].place;

    item->cut = item->kind == ITEM_PARAM ? HSDP_SHARD_PARAM : HSDP_SHARD_STEP;
    item->replica_dims = place->replicated & ~place->cuts[item->cut];
}

/* False where there is no such thing, or nobody else holds it. */
static bool item_find(const struct hsdp_model *model, uint64_t index, struct item *ret)
{
    uint64_t n_fixed = (uint64_t)model->plan->n_units * ITEMS_PER_UNIT;
    uint32_t n_units = model->plan->n_units;

    memset(ret, 0, sizeof(*ret));
    if (index < n_fixed) {
        ret->unit = (uint32_t)(index / ITEMS_PER_UNIT);
        ret->kind = index % ITEMS_PER_UNIT < PLAN_MAX_BUFFERS ? ITEM_PARAM : ITEM_MASTER;
        ret->buffer = (uint32_t)(index % PLAN_MAX_BUFFERS);
    } else {
        ret->unit = (uint32_t)((index - n_fixed) % n_units);
        ret->kind = ITEM_STATE;
        ret->state = (uint32_t)((index - n_fixed) / n_units);
    }
    drift_item_place(model, ret);
    return drift_item_exists(model, ret) && mesh_span(model->plan->mesh, ret->replica_dims) > 1;
}

int32_t drift_item_shard(struct hsdp_model *model, const struct item *item,
                         struct flat_shard *ret_shard, struct hsdp_error *reterr)
{
    const struct plan_unit *unit = &model->plan->units[item->unit];
    const void *resting;
    int32_t status;

    if (item->kind != ITEM_PARAM) {
        int32_t flat =
            item->kind == ITEM_MASTER ? HSDP_FLAT_MASTER : HSDP_FLAT_STATE + (int32_t)item->state;

        return model_flat_shard(model, item->unit, item->buffer, flat, ret_shard, reterr);
    }
    status = model->ops->resting(model->store, item->unit, item->buffer, &resting, reterr);
    if (status == HSDP_OK) {
        ret_shard->base = (uint8_t *)(uintptr_t)resting; /* read only */
        ret_shard->dtype = model->plan->classes[unit->class_index].param_dtype;
        ret_shard->n_elems = unit->buffers[item->buffer].shard_elems[HSDP_SHARD_PARAM];
    }
    return status;
}

#define STAGED_BYTES (UINT64_C(1) << 20)

int32_t drift_digest(struct hsdp_model *model, const struct digested *elems, uint64_t *hash,
                     struct hsdp_error *reterr)
{
    struct space *space = model->space;
    enum dtype dtype = elems->shard->dtype;
    uint64_t elem_bytes = dtype_bytes(dtype);
    const uint8_t *values = elems->shard->base + elems->shard_offset_elems * elem_bytes;
    uint64_t max_elems = space->ops->is_host ? elems->n_elems : STAGED_BYTES / elem_bytes;
    int32_t status = HSDP_OK;

    for (uint64_t at = 0; status == HSDP_OK && at < elems->n_elems; at += max_elems) {
        uint64_t n = elems->n_elems - at < max_elems ? elems->n_elems - at : max_elems;
        const uint8_t *piece = values + at * elem_bytes;

        if (!space->ops->is_host) {
            status = space->ops->read(space, model->drift->staged, piece, n * elem_bytes, reterr);
            piece = model->drift->staged;
        }
        if (status == HSDP_OK) {
            *hash += checksum_sum(elems->salt, elems->first_elem + at, piece, dtype, n);
        }
    }
    return status;
}

/* Hashes the elements of parameters; padding is nobody's. */
static int32_t item_hash(struct hsdp_model *model, uint64_t index, const struct item *item,
                         uint64_t *ret_hash, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    const struct hsdp_segment *segments = model->drift->segments;
    struct flat_shard shard;
    uint64_t n_segments = 0;
    int32_t status;

    *ret_hash = 0;
    status = drift_item_shard(model, item, &shard, reterr);
    if (status == HSDP_OK) {
        probe_read(job_probe(model->job), item->kind == ITEM_PARAM ? PROBE_PARAMS : PROBE_FLAT,
                   item->unit, shard.base, shard.n_elems * dtype_bytes(shard.dtype));
        status =
            plan_segments(plan, item->unit, item->cut, plan->mesh->rank, model->drift->segments,
                          sizeof(*segments), plan->units[item->unit].n_params, &n_segments, reterr);
    }
    for (uint64_t i = 0; status == HSDP_OK && i < n_segments; i++) {
        const struct hsdp_segment *segment = &segments[i];

        struct digested elems = {&shard, segment->shard_offset_elems, segment->n_elems, index, 0};

        elems.first_elem = plan->params[segment->param].offset_elems + segment->param_offset_elems;
        if (segment->buffer == item->buffer) {
            status = drift_digest(model, &elems, ret_hash, reterr);
        }
    }
    return status;
}

/* ---------------------------------------------------------------------------------- measure */

int32_t drift_create(struct hsdp_model *model, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = model->plan;
    uint64_t n_params = 1;
    struct drift *drift;

    if (plan->verify.n_steps == 0) {
        return HSDP_OK;
    }
    for (uint32_t unit = 0; unit < plan->n_units; unit++) {
        n_params = plan->units[unit].n_params > n_params ? plan->units[unit].n_params : n_params;
    }
    drift = calloc(1, sizeof(*drift));
    model->drift = drift;
    if (drift != NULL) {
        drift->segments = calloc(n_params, sizeof(*drift->segments));
        drift->replicas = calloc(plan->mesh->world_ranks, sizeof(*drift->replicas));
        drift->counts = calloc(plan->mesh->world_ranks, sizeof(*drift->counts));
        drift->received = malloc((size_t)plan->mesh->world_ranks * JOB_EXCHANGE_MAX_BYTES);
        drift->staged = model->space->ops->is_host ? NULL : malloc(STAGED_BYTES);
    }
    if (drift == NULL || (drift->staged == NULL && !model->space->ops->is_host) ||
        drift->segments == NULL || drift->replicas == NULL || drift->counts == NULL ||
        drift->received == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "model.create: no memory for verify=step:%" PRIu32, plan->verify.n_steps);
    }
    return HSDP_OK;
}

void drift_destroy(struct drift *drift)
{
    if (drift == NULL) {
        return;
    }
    free(drift->hashes);
    free(drift->tied_hashes);
    free(drift->segments);
    free(drift->replicas);
    free(drift->counts);
    free(drift->received);
    free(drift->staged);
    free(drift);
}

/* Makes room for the hashes of all items; states may have come since the last step. */
static int32_t hashes_reserve(struct hsdp_model *model, struct hsdp_error *reterr)
{
    struct drift *drift = model->drift;
    uint64_t n_items = items_count(model);
    uint64_t *hashes;

    if (n_items == drift->n_items) {
        return HSDP_OK;
    }
    hashes = realloc(drift->hashes, n_items * sizeof(*hashes));
    if (hashes == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "step.begin: no memory for %" PRIu64 " checksums", n_items);
    }
    drift->hashes = hashes;
    drift->n_items = n_items;
    return HSDP_OK;
}

/*
 * The index-th of n numbers that add up to zero. All but the first are odd and without pattern, so
 * that differences of several replicas do not cancel.
 */
uint64_t drift_weight(uint32_t index, uint32_t n_replicas)
{
    uint64_t others = 0;

    if (index != 0) {
        return checksum_mix(index) | 1;
    }
    for (uint32_t i = 1; i < n_replicas; i++) {
        others += drift_weight(i, n_replicas);
    }
    return 0 - others;
}

bool drift_is_measured(const struct hsdp_model *model)
{
    return model->drift != NULL && (model->n_steps + 1) % model->plan->verify.n_steps == 0;
}

int32_t drift_measure(struct hsdp_model *model, uint64_t *ret_checksum, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = model->plan->mesh;
    struct drift *drift = model->drift;
    uint64_t checksum = 0;
    int32_t status;

    if (!drift_is_measured(model)) {
        *ret_checksum = 0;
        return HSDP_OK;
    }
    status = hashes_reserve(model, reterr);
    if (status == HSDP_OK) {
        status = model->ops->settle(model->store, reterr);
    }
    drift->is_named = false;
    for (uint64_t index = 0; status == HSDP_OK && index < drift->n_items; index++) {
        struct item item;

        drift->hashes[index] = 0;
        if (item_find(model, index, &item)) {
            status = item_hash(model, index, &item, &drift->hashes[index], reterr);
            checksum +=
                drift->hashes[index] * drift_weight(mesh_index(mesh, item.replica_dims, mesh->rank),
                                                    mesh_span(mesh, item.replica_dims));
        }
    }
    if (status == HSDP_OK) {
        status = drift_ties_measure(model, &checksum, reterr);
    }
    *ret_checksum = checksum;
    return status;
}

/* ------------------------------------------------------------------------------------- name */

void drift_item_text(const struct hsdp_model *model, const struct item *item, char *ret_text,
                     size_t max_bytes)
{
    const struct plan_unit *unit = &model->plan->units[item->unit];
    const char *frozen = unit->buffers[item->buffer].is_frozen ? "frozen " : "";

    if (item->kind == ITEM_STATE) {
        snprintf(ret_text, max_bytes, "values of state \"%s\"", model->states[item->state].name);
    } else {
        snprintf(ret_text, max_bytes, "%s%s", frozen,
                 item->kind == ITEM_PARAM ? "parameters" : "masters");
    }
}

/* How many of the replicas have this hash. */
static uint32_t hash_count(const uint64_t *hashes, uint32_t n_replicas, uint64_t hash)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_replicas; i++) {
        n += hashes[i] == hash;
    }
    return n;
}

/* Differs from the majority where there is one, else from the first replica. */
struct odd_one drift_odd_one(const uint64_t *hashes, uint32_t n_replicas)
{
    struct odd_one found = {0, 0, "which of them is right is not known"};
    uint32_t n_good;

    for (uint32_t i = 0; i < n_replicas; i++) {
        if (2 * hash_count(hashes, n_replicas, hashes[i]) > n_replicas) {
            found.good = i;
            break;
        }
    }
    while (hashes[found.odd] == hashes[found.good]) {
        found.odd++;
    }
    n_good = hash_count(hashes, n_replicas, hashes[found.good]);
    if (2 * n_good > n_replicas) {
        snprintf(found.why, sizeof(found.why),
                 "%" PRIu32 " of %" PRIu32 " replicas are as the latter", n_good, n_replicas);
    }
    return found;
}

/* Says who differs. */
static void difference_write(const struct hsdp_model *model, const struct item *item,
                             const uint64_t *hashes, uint32_t n_replicas, struct finding *ret)
{
    const struct hsdp_mesh *mesh = model->plan->mesh;
    struct odd_one found = drift_odd_one(hashes, n_replicas);
    char what[96];

    drift_item_text(model, item, what, sizeof(what));
    snprintf(ret->unit, sizeof(ret->unit), "%s", model->plan->units[item->unit].name);
    snprintf(ret->text, sizeof(ret->text),
             "%s differ between rank %" PRIu32 " and rank %" PRIu32 "; %s", what,
             mesh_peer(mesh, item->replica_dims, mesh->rank, found.odd),
             mesh_peer(mesh, item->replica_dims, mesh->rank, found.good), found.why);
    ret->is_found = FOUND_REPLICAS;
}

/* A replica that has never created the state has no hash of it: the first such rank, else none. */
static bool absence_write(const struct hsdp_model *model, const struct item *item, uint64_t index,
                          struct finding *ret)
{
    const struct hsdp_mesh *mesh = model->plan->mesh;

    for (uint32_t i = 0; i < mesh_span(mesh, item->replica_dims); i++) {
        uint32_t rank = mesh_peer(mesh, item->replica_dims, mesh->rank, i);

        if (index < model->drift->counts[rank]) {
            continue;
        }
        snprintf(ret->unit, sizeof(ret->unit), "%s", model->plan->units[item->unit].name);
        snprintf(ret->text, sizeof(ret->text),
                 "state \"%s\" was created on rank %" PRIu32 ", not on rank %" PRIu32,
                 model->states[item->state].name, mesh->rank, rank);
        ret->is_found = FOUND_REPLICAS;
        return true;
    }
    return false;
}

/* Compares one item of this rank with its replicas; every rank's hashes begin with the first-th. */
static void item_compare(const struct hsdp_model *model, uint64_t index, uint64_t first,
                         struct finding *ret)
{
    const struct hsdp_mesh *mesh = model->plan->mesh;
    uint64_t *hashes = model->drift->replicas;
    struct item item;
    uint32_t n_replicas;

    if (!item_find(model, index, &item) || absence_write(model, &item, index, ret)) {
        return;
    }
    n_replicas = mesh_span(mesh, item.replica_dims);
    for (uint32_t i = 0; i < n_replicas; i++) {
        uint32_t rank = mesh_peer(mesh, item.replica_dims, mesh->rank, i);
        uint64_t at = rank * HASHES_PER_EXCHANGE + index - first;

        memcpy(&hashes[i], model->drift->received + at * sizeof(*hashes), sizeof(*hashes));
    }
    if (hash_count(hashes, n_replicas, hashes[0]) != n_replicas) {
        difference_write(model, &item, hashes, n_replicas, ret);
    }
}

int32_t drift_largest(struct hsdp_model *model, uint64_t number, uint64_t *ret_largest,
                      struct hsdp_error *reterr)
{
    uint64_t *numbers = model->drift->replicas;
    int32_t status;

    status = job_exchange(model->job, "drift", &number, sizeof(number), numbers, reterr);
    *ret_largest = 0;
    for (uint32_t rank = 0; status == HSDP_OK && rank < model->plan->mesh->world_ranks; rank++) {
        *ret_largest = numbers[rank] > *ret_largest ? numbers[rank] : *ret_largest;
    }
    return status;
}

/* How many items each rank has, and the largest of these numbers. */
static int32_t counts_learn(struct hsdp_model *model, uint64_t *ret_largest,
                            struct hsdp_error *reterr)
{
    struct drift *drift = model->drift;
    int32_t status = job_exchange(model->job, "drift", &drift->n_items, sizeof(drift->n_items),
                                  drift->counts, reterr);

    *ret_largest = 0;
    for (uint32_t rank = 0; status == HSDP_OK && rank < model->plan->mesh->world_ranks; rank++) {
        *ret_largest = drift->counts[rank] > *ret_largest ? drift->counts[rank] : *ret_largest;
    }
    return status;
}

/* This rank's first item that differs from its replicas, if any does. */
static int32_t difference_find(struct hsdp_model *model, struct finding *ret,
                               struct hsdp_error *reterr)
{
    struct drift *drift = model->drift;
    uint64_t mine[HASHES_PER_EXCHANGE];
    uint64_t n_items;
    int32_t status;

    status = counts_learn(model, &n_items, reterr); /* all take part in as many */
    for (uint64_t first = 0; status == HSDP_OK && first < n_items; first += HASHES_PER_EXCHANGE) {
        memset(mine, 0, sizeof(mine));
        for (uint64_t i = 0; i < HASHES_PER_EXCHANGE && first + i < drift->n_items; i++) {
            mine[i] = drift->hashes[first + i];
        }
        status = job_exchange(model->job, "drift", mine, sizeof(mine), drift->received, reterr);
        for (uint64_t i = 0; status == HSDP_OK && ret->is_found == FOUND_NOTHING &&
                             i < HASHES_PER_EXCHANGE && first + i < drift->n_items;
             i++) {
            item_compare(model, first + i, first, ret);
        }
    }
    return status;
}

int32_t drift_name(struct hsdp_model *model, struct hsdp_error *reterr)
{
    struct drift *drift = model->drift;
    struct finding finding;
    int32_t status;

    if (!model->step.is_drifted || drift->is_named) {
        return HSDP_OK;
    }
    memset(&finding, 0, sizeof(finding));
    status = difference_find(model, &finding, reterr);
    if (status == HSDP_OK) {
        status = drift_ties_find(model, &finding, reterr);
    }
    if (status == HSDP_OK) {
        status =
            job_exchange(model->job, "drift", &finding, sizeof(finding), drift->received, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    for (uint32_t rank = model->plan->mesh->world_ranks; rank-- > 0;) {
        struct finding theirs;

        memcpy(&theirs, drift->received + rank * sizeof(theirs), sizeof(theirs));
        if (theirs.is_found != FOUND_NOTHING && theirs.is_found >= finding.is_found) {
            finding = theirs; /* the lowest rank's, at last */
        }
    }
    drift->finding = finding;
    drift->is_named = true;
    return HSDP_OK;
}

int32_t drift_check(const struct hsdp_model *model, const char *call, struct hsdp_error *reterr)
{
    const struct finding *finding;

    if (!model->step.is_drifted) {
        return HSDP_OK;
    }
    finding = &model->drift->finding;
    if (finding->is_found ==
        FOUND_NOTHING) { /* a checksum itself was damaged: values cannot do that */
        return error_set(reterr, HSDP_ERR_DRIFT,
                         "%s: step %" PRIu64 ": the checksums of the replicas do not add up to "
                         "zero, but no two differ",
                         call, model->n_steps + 1);
    }
    error_set(reterr, HSDP_ERR_DRIFT,
              "%s: step %" PRIu64 ": replicas have drifted apart: unit \"%s\": %s", call,
              model->n_steps + 1, finding->unit, finding->text);
    error_where(reterr, call, NULL, finding->unit);
    return HSDP_ERR_DRIFT;
}
