/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: opening, closing, and the table of the transport. */
#include "comm/shm_store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* A reduction waits for at most two groups at a time, an unshard or a step for one. */
#define ENTRIES_PER_UNIT (3u * SHM_MAX_RANKS)

static int32_t entries_allocate(struct store *store, struct hsdp_error *reterr)
{
    uint64_t n_entries = (uint64_t)store->plan->n_units * ENTRIES_PER_UNIT + SHM_MAX_RANKS;
    struct wait_entry *next = calloc(n_entries, sizeof(*next));

    store->entries = next;
    store->occupants = calloc(store->plan->n_units + UINT64_C(1), sizeof(*store->occupants));
    if (next == NULL || store->occupants == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "shm: no memory for %" PRIu64 " conditions",
                         n_entries);
    }
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        struct shm_unit *u = &store->units[unit];

        u->reduction.store = store;
        u->reduction.unit = unit;
        u->reduction.entries = next;
        u->unshard.store = store;
        u->unshard.entries = next + 2 * SHM_MAX_RANKS;
        next += ENTRIES_PER_UNIT;
    }
    store->step_entries = next;
    return HSDP_OK;
}

/* What this rank has allocated, for the accounting. */
static void memory_count(struct store *store)
{
    struct hsdp_model_info *bytes = &store->allocated;

    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        const struct plan_unit *plan_unit = &store->plan->units[unit];
        const struct plan_accumulators *sums = &store->units[unit].sums;
        uint64_t param_bytes = dtype_bytes(shm_plan_class(store, unit)->param_dtype);
        uint64_t master_bytes = dtype_bytes(shm_plan_class(store, unit)->master_dtype);

        for (uint32_t b = 0; b < plan_unit->n_buffers; b++) {
            const uint64_t *shards = plan_unit->buffers[b].shard_elems;

            bytes->param_bytes += shards[HSDP_SHARD_PARAM] * param_bytes;
            if (!plan_steps_in_place(store->plan, unit)) {
                bytes->master_bytes += shards[HSDP_SHARD_STEP] * master_bytes;
            }
        }
        bytes->grad_bytes += plan_accumulator_elems(sums) * sizeof(float);
    }
    bytes->grad_bytes += plan_ties_bytes(store->plan);
    bytes->grad_slot_bytes = store->plan->grad_slots_bytes;
    bytes->unsharded_bytes = 0; /* views are mappings of what rests */
}

static void store_close(struct store *store)
{
    if (store == NULL) {
        return;
    }
    for (uint32_t unit = 0; store->entries != NULL && unit < store->plan->n_units; unit++) {
        struct shm_unit *u = &store->units[unit];

        if (u->reduction.stage != SHM_IDLE) {
            job_work_cancel(store->job, &u->reduction.work);
        }
        if (u->unshard.is_active) {
            job_work_cancel(store->job, &u->unshard.work);
        }
        free(u->late);
        free(u->taken);
    }
    shm_unmap(store);
    shared_memory_fini(&store->memory);
    free(store->entries);
    free(store->occupants);
    free(store->units);
    free(store->norms);
    shm_journals_free(store);
    free(store->classes);
    plan_destroy(store->plan);
    job_unref(store->job);
    free(store);
}

static int32_t store_create(struct hsdp_job *job, const struct hsdp_plan *plan,
                            struct store **ret_store, struct hsdp_error *reterr)
{
    struct store *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "shm: no memory for a store");
    }
    store->memory.fd = -1;
    store->rank = job_rank(job);
    store->n_world = job_world_ranks(job);
    for (uint32_t rank = 0; rank < store->n_world; rank++) {
        store->world[rank] = rank;
    }
    store->job = job;
    job_ref(job);
    store->probe = job_probe(job);
    store->plan = plan_share(plan);
    store->is_access_checked = plan->verify.is_access;
    store->n_unshards = job_counter_register(job, "unshards");
    store->n_reductions = job_counter_register(job, "reductions");
    *ret_store = store;
    return HSDP_OK;
}

static int32_t store_open(struct hsdp_job *job, const struct hsdp_plan *plan,
                          struct store **ret_store, struct hsdp_error *reterr)
{
    struct store *store = NULL;
    int32_t status;

    status = store_create(job, plan, &store, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    status = shm_layout(store, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    status = entries_allocate(store, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    status = job_share_memory(job, store->region_bytes, &store->memory, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    status = shm_map(store, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    /* One rank without memory must not leave the others with a model that it has not. */
    status = job_exchange(job, "model.create", NULL, 0, NULL, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    memory_count(store);
    *ret_store = store;
    store = NULL; /* handed over */

out:
    store_close(store);
    return status;
}

static int32_t store_settle(struct store *store, struct hsdp_error *reterr)
{
    (void)store;
    (void)reterr;
    return HSDP_OK;
}

static int32_t store_pass_begin(struct store *store, const uint32_t *units, uint64_t n_units,
                                int32_t scope, struct hsdp_error *reterr)
{
    struct hsdp_error err;
    int32_t status = shm_journal_pass(store, units, n_units, scope, &err);

    if (status != HSDP_OK) {
        status = job_fail(store->job, &err);
        if (reterr != NULL) {
            *reterr = err;
        }
    }
    return status;
}

/* Units of peers are unsharded and reduced in any order of the two. */
static int32_t store_pass_reach(struct store *store, uint32_t unit, struct hsdp_error *reterr)
{
    (void)store;
    (void)unit;
    (void)reterr;
    return HSDP_OK;
}

static int32_t store_pass_end(struct store *store, const uint32_t *units, uint64_t n_units,
                              struct hsdp_error *reterr)
{
    (void)store;
    (void)units;
    (void)n_units;
    (void)reterr;
    return HSDP_OK;
}

static void store_renumber(struct store *store)
{
    store->first_step = store->step;
    store->first_epoch = store->epoch;
    store->first_ties_run = store->n_ties_runs;
    for (uint32_t c = 0; c < store->plan->n_classes; c++) {
        store->classes[c].n_reductions = 0;
    }
    shm_journals_renumber(store);
}

static const void *store_params(struct store *store, uint32_t unit, uint32_t buffer)
{
    return store->units[unit].view[buffer];
}

static void *store_master(struct store *store, uint32_t unit, uint32_t buffer)
{
    return store->units[unit].master[buffer];
}

static float *store_step_grads(struct store *store, uint32_t unit)
{
    return store->units[unit].step_grads;
}

static bool store_has_leftover(const struct store *store, uint32_t unit)
{
    const struct shm_unit *u = &store->units[unit];

    return u->has_local || u->has_inner || u->has_late || u->has_taken;
}

static bool store_has_step_grads(const struct store *store, uint32_t unit)
{
    return store->units[unit].has_step;
}

static void store_memory(const struct store *store, struct hsdp_model_info *ret_bytes)
{
    ret_bytes->param_bytes = store->allocated.param_bytes;
    ret_bytes->master_bytes = store->allocated.master_bytes;
    ret_bytes->grad_bytes = store->allocated.grad_bytes;
    ret_bytes->grad_slot_bytes = store->allocated.grad_slot_bytes;
    ret_bytes->unsharded_bytes = store->allocated.unsharded_bytes;
}

/* The host keeps it. */
static float *shm_factor(struct store *store)
{
    (void)store;
    return NULL;
}

const struct transport_ops shm_transport = {
    .name = "shm",
    .open = store_open,
    .close = store_close,
    .params = store_params,
    .grads = shm_grads,
    .master = store_master,
    .step_grads = store_step_grads,
    .resting = shm_resting,
    .unshard = shm_unshard,
    .reshard = shm_reshard,
    .grads_acquire = shm_grads_acquire,
    .grads_add = shm_grads_add,
    .pass_begin = store_pass_begin,
    .pass_reach = store_pass_reach,
    .pass_end = store_pass_end,
    .reduce = shm_reduce,
    .settle = store_settle,
    .has_leftover = store_has_leftover,
    .reduce_blocker = shm_reduce_blocker,
    .drain = shm_drain,
    .has_step_grads = store_has_step_grads,
    .step_norm = shm_step_norm,
    .step_start = shm_step_start,
    .factor = shm_factor,
    .step_blocker = shm_step_blocker,
    .step_words = shm_step_words,
    .renumber = store_renumber,
    .step_grads_drop = shm_step_grads_drop,
    .publish_targets = shm_publish_targets,
    .publish_skip = shm_publish_skip,
    .publish = shm_publish,
    .ties_run = shm_ties_run,
    .offer = shm_offer,
    .memory = store_memory,
};
