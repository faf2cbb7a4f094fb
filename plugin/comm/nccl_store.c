/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: opening, closing, and the table of the transport. */
#include "comm/nccl_store.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "comm/job_internal.h"

int32_t nccl_dtype(enum dtype dtype)
{
    static const int32_t numbers[] = {
        [DTYPE_FP32] = NCCL_FLOAT32, [DTYPE_BF16] = NCCL_BFLOAT16, [DTYPE_FP16] = NCCL_FLOAT16};

    return numbers[dtype];
}

/* -------------------------------------------------------------------------------------- opening */

static int32_t unit_open(struct store *store, uint32_t unit, struct hsdp_error *reterr)
{
    struct nccl_unit *u = &store->units[unit];
    cu_event *events[] = {&u->released, &u->handed, &u->consumed, &u->late[0].written,
                          &u->late[1].written};
    struct nccl_task *tasks[] = {&u->gathers[0].task, &u->gathers[1].task, &u->reduction.task};
    int32_t status = HSDP_OK;

    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && status == HSDP_OK; i++) {
        status = gpu_event_create(store->gpu, events[i], reterr);
    }
    for (size_t i = 0; i < sizeof(tasks) / sizeof(tasks[0]) && status == HSDP_OK; i++) {
        status = nccl_task_init(store->job, tasks[i], reterr);
    }
    for (int i = 0; i < 2; i++) {
        u->gathers[i].store = store;
        u->gathers[i].unit = unit;
    }
    u->reduction.store = store;
    u->reduction.unit = unit;
    return status;
}

static int32_t tasks_open(struct store *store, struct hsdp_error *reterr)
{
    int32_t status = nccl_task_init(store->job, &store->step.task, reterr);

    store->step.store = store->cold.store = store;
    for (uint32_t c = 0; c < store->plan->n_classes && status == HSDP_OK; c++) {
        store->classes[c].publish.store = store;
        status = nccl_task_init(store->job, &store->classes[c].publish.task, reterr);
    }
    if (status == HSDP_OK) {
        status = nccl_task_init(store->job, &store->cold.task, reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_event_create(store->gpu, &store->written, reterr);
    }
    for (uint32_t unit = 0; unit < store->plan->n_units && status == HSDP_OK; unit++) {
        status = unit_open(store, unit, reterr);
    }
    return status;
}

static int32_t arrays_allocate(struct store *store, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = store->plan;

    store->units = calloc(plan->n_units + UINT64_C(1), sizeof(*store->units));
    store->occupants = calloc(plan->n_units + UINT64_C(1), sizeof(*store->occupants));
    store->slot_users = calloc(plan->n_slots + UINT64_C(1), sizeof(*store->slot_users));
    store->step.words = calloc(store->n_world, sizeof(*store->step.words));
    if (store->units == NULL || store->occupants == NULL || store->slot_users == NULL ||
        store->step.words == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: no memory for %" PRIu32 " units",
                         plan->n_units);
    }
    for (uint32_t slot = 0; slot < plan->n_slots; slot++) {
        store->slot_users[slot] = HSDP_NO_SLOT;
    }
    return HSDP_OK;
}

static int32_t store_create(struct hsdp_job *job, const struct hsdp_plan *plan,
                            struct store **ret_store, struct hsdp_error *reterr)
{
    struct store *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: no memory for a store");
    }
    store->rank = job_rank(job);
    store->n_world = job_world_ranks(job);
    store->job = job;
    job_ref(job);
    store->gpu = job_gpu(job);
    store->engine = job_nccl(job);
    store->plan = plan_share(plan);
    store->n_unshards = job_counter_register(job, "unshards");
    store->n_reductions = job_counter_register(job, "reductions");
    *ret_store = store;
    return arrays_allocate(store, reterr);
}

/* For who waits for all that is on the stream. */
static int32_t nothing_run(struct nccl_task *task, struct hsdp_error *reterr)
{
    (void)task;
    (void)reterr;
    return HSDP_OK;
}

static int32_t zeros_await(struct store *store, struct hsdp_error *reterr)
{
    struct nccl_task *task = &store->cold.task;
    int32_t status;

    task->stream = store->gpu->reduce_stream;
    task->run = nothing_run;
    task->label.operation = "model.create";
    task->n_groups = 0;
    status = nccl_task_submit(task, NULL, reterr);
    return status == HSDP_OK ? nccl_task_await(task, reterr) : status;
}

/* -------------------------------------------------------------------------------------- closing */

static void unit_close(struct store *store, struct nccl_unit *u)
{
    if (u->reduction.is_waiting) {
        job_work_cancel(store->job, &u->reduction.waiting);
    }
    nccl_task_fini(&u->gathers[0].task);
    nccl_task_fini(&u->gathers[1].task);
    nccl_task_fini(&u->reduction.task);
}

static void unit_events_destroy(struct store *store, struct nccl_unit *u)
{
    gpu_event_destroy(store->gpu, u->released);
    gpu_event_destroy(store->gpu, u->handed);
    gpu_event_destroy(store->gpu, u->consumed);
    for (int i = 0; i < 2; i++) {
        gpu_event_destroy(store->gpu, u->late[i].written);
        if (u->sums.late_elems == 0) { /* else it is part of the sums */
            gpu_free(store->gpu, &u->late[i].memory);
        }
    }
}

/* In a child of the process there is no device. */
static void device_leave(struct store *store)
{
    if (job_check_process(store->job, NULL) != HSDP_OK) {
        return;
    }
    for (uint32_t unit = 0; store->units != NULL && unit < store->plan->n_units; unit++) {
        unit_events_destroy(store, &store->units[unit]);
    }
    gpu_event_destroy(store->gpu, store->written);
    nccl_memory_free(store);
}

static void store_close(struct store *store)
{
    if (store == NULL) {
        return;
    }
    for (uint32_t unit = 0; store->units != NULL && unit < store->plan->n_units; unit++) {
        unit_close(store, &store->units[unit]);
    }
    nccl_task_fini(&store->step.task);
    for (uint32_t c = 0; store->classes != NULL && c < store->plan->n_classes; c++) {
        nccl_task_fini(&store->classes[c].publish.task);
    }
    nccl_task_fini(&store->cold.task);
    device_leave(store);
    free(store->step.words);
    free(store->units);
    free(store->occupants);
    free(store->slot_users);
    free(store->classes);
    free(store->tie_groups);
    plan_destroy(store->plan);
    job_unref(store->job);
    free(store);
}

static int32_t store_open(struct hsdp_job *job, const struct hsdp_plan *plan,
                          struct store **ret_store, struct hsdp_error *reterr)
{
    struct store *store = NULL;
    int32_t status;

    status = store_create(job, plan, &store, reterr);
    if (status == HSDP_OK) {
        status = nccl_ranks_make(store, reterr);
    }
    if (status == HSDP_OK) {
        status = tasks_open(store, reterr);
    }
    if (status == HSDP_OK) {
        status = nccl_memory_make(store, reterr);
    }
    if (status == HSDP_OK) {
        status = zeros_await(store, reterr);
    }
    if (status == HSDP_OK) {
        /* One rank without memory must not leave the others with a model that it has not. */
        status = job_exchange(job, "model.create", NULL, 0, NULL, reterr);
    }
    if (status == HSDP_OK) {
        *ret_store = store;
        store = NULL; /* handed over */
    }
    store_close(store);
    return status;
}

/* ------------------------------------------------------------------------------------ the table */

static void store_renumber(struct store *store)
{
    store->first_step = store->n_steps;
    store->first_publish = store->n_publishes;
    store->first_ties_run = store->n_ties_runs;
    for (uint32_t c = 0; c < store->plan->n_classes; c++) {
        store->classes[c].n_reductions = 0;
    }
}

static const void *store_params(struct store *store, uint32_t unit, uint32_t buffer)
{
    return store->units[unit].params[buffer];
}

static void *store_grads(struct store *store, uint32_t unit)
{
    return store->units[unit].grads;
}

static void *store_master(struct store *store, uint32_t unit, uint32_t buffer)
{
    return store->units[unit].master[buffer];
}

static float *store_step_grads(struct store *store, uint32_t unit)
{
    return store->units[unit].step_grads;
}

/* Publishing is issued when it returns, and what reads in the space comes behind it. */
static int32_t store_resting(struct store *store, uint32_t unit, uint32_t buffer,
                             const void **ret_shard, struct hsdp_error *reterr)
{
    (void)reterr;
    *ret_shard = store->units[unit].resting[buffer];
    return HSDP_OK;
}

static int32_t store_settle(struct store *store, struct hsdp_error *reterr)
{
    int32_t status = nccl_drain(store, reterr);

    if (status == HSDP_OK && store->last_gather != NULL) {
        status = nccl_task_await_issue(&store->last_gather->task, reterr);
    }
    return status == HSDP_OK ? nccl_readers_follow(store, reterr) : status;
}

static bool store_has_leftover(const struct store *store, uint32_t unit)
{
    const struct nccl_unit *u = &store->units[unit];

    return u->has_local || u->has_inner || u->late[0].has || u->late[1].has;
}

static bool store_has_step_grads(const struct store *store, uint32_t unit)
{
    return store->units[unit].has_step;
}

/* Norms are added up on the device, of everything in one go. */
static bool store_step_norm(const struct store *store, uint32_t unit, double p,
                            struct norm_sum *sum)
{
    (void)store;
    (void)unit;
    (void)p;
    (void)sum;
    return false;
}

static void store_step_grads_drop(struct store *store)
{
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        store->units[unit].has_step = false;
    }
}

static float *store_factor(struct store *store)
{
    return store->factor;
}

const struct transport_ops nccl_transport = {
    .name = "nccl",
    .open = store_open,
    .close = store_close,
    .params = store_params,
    .grads = store_grads,
    .master = store_master,
    .step_grads = store_step_grads,
    .resting = store_resting,
    .unshard = nccl_unshard,
    .reshard = nccl_reshard,
    .grads_acquire = nccl_grads_acquire,
    .grads_add = nccl_grads_add,
    .pass_begin = nccl_pass_begin,
    .pass_reach = nccl_pass_reach,
    .pass_end = nccl_pass_end,
    .reduce = nccl_reduce,
    .has_leftover = store_has_leftover,
    .reduce_blocker = nccl_reduce_blocker,
    .drain = nccl_drain,
    .settle = store_settle,
    .has_step_grads = store_has_step_grads,
    .step_norm = store_step_norm,
    .step_start = nccl_step_start,
    .factor = store_factor,
    .step_blocker = nccl_step_blocker,
    .step_words = nccl_step_words,
    .renumber = store_renumber,
    .step_grads_drop = store_step_grads_drop,
    .publish_targets = nccl_publish_targets,
    .publish_skip = nccl_publish_skip,
    .publish = nccl_publish,
    .ties_run = nccl_ties_run,
    .offer = nccl_offer,
    .memory = nccl_memory_count,
};
