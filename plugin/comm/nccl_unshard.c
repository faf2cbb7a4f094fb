/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: gathering parameters into slots, and giving the slots back. */
#include "base/error.h"
#include "comm/nccl_store.h"

/* ------------------------------------------------------------------------------- on the thread */

static int32_t gather_waits(struct nccl_gather *gather, struct hsdp_error *reterr)
{
    struct store *store = gather->store;
    cu_stream stream = store->gpu->unshard_stream;
    int32_t status = HSDP_OK;

    if (gather->after != NULL) {
        status = gpu_stream_wait(store->gpu, stream, gather->after, reterr);
    }
    if (status == HSDP_OK && gather->has_published) {
        status = gpu_stream_wait(store->gpu, stream,
                                 nccl_class_of(store, gather->unit)->publish.task.done, reterr);
    }
    return status;
}

static int32_t gather_run(struct nccl_task *task, struct hsdp_error *reterr)
{
    struct nccl_gather *gather = (struct nccl_gather *)task;
    struct store *store = gather->store;
    const struct plan_unit *row = &store->plan->units[gather->unit];
    const struct nccl_unit *u = &store->units[gather->unit];
    int32_t dtype = nccl_dtype(nccl_plan_class(store, gather->unit)->param_dtype);
    int32_t status = gather_waits(gather, reterr);

    for (uint32_t b = 0; b < row->n_buffers && status == HSDP_OK; b++) {
        status = nccl_all_gather(task, task->groups[0], u->resting[b], u->params[b],
                                 row->buffers[b].shard_elems[HSDP_SHARD_PARAM], dtype, reterr);
    }
    return status;
}

/* ------------------------------------------------------------------------------- the host's side
 */

static uint64_t unshard_count(struct store *store, uint32_t unit)
{
    const struct plan_unit *row = &store->plan->units[unit];
    uint64_t n_elems = 0;
    uint64_t n_bytes;

    for (uint32_t b = 0; b < row->n_buffers; b++) {
        n_elems += row->buffers[b].shard_elems[HSDP_SHARD_PARAM];
    }
    n_bytes = n_elems * dtype_bytes(nccl_plan_class(store, unit)->param_dtype);
    nccl_count(&nccl_class_of(store, unit)->gather, n_bytes);
    if (store->n_unshards != NULL) {
        atomic_fetch_add_explicit(store->n_unshards, 1, memory_order_relaxed);
    }
    return n_bytes;
}

/* The event behind which a unit's slot may be written; NULL when nobody has had it. */
static cu_event slot_take(struct store *store, uint32_t unit)
{
    uint32_t slot = store->plan->units[unit].param_slot;
    uint32_t last = slot == HSDP_NO_SLOT ? unit : store->slot_users[slot];

    if (slot != HSDP_NO_SLOT) {
        store->slot_users[slot] = unit;
    }
    return last == HSDP_NO_SLOT || !store->units[last].is_released ? NULL
                                                                   : store->units[last].released;
}

int32_t nccl_unshard(struct store *store, uint32_t unit, void *stream, uint64_t *ret_ticket,
                     struct hsdp_error *reterr)
{
    struct nccl_unit *u = &store->units[unit];
    struct nccl_gather *gather = &u->gathers[u->next_gather];
    uint64_t n_bytes;
    int32_t status;

    (void)stream; /* what the host has put there so far has nothing to do with the slot */
    if (nccl_class_of(store, unit)->gather.n_ranks == 1) { /* what rests is whole */
        unshard_count(store, unit);
        u->is_read = true;
        *ret_ticket = nccl_is_published(store, unit)
                          ? 0
                          : nccl_class_of(store, unit)->publish.task.work.ticket;
        return HSDP_OK;
    }
    status = nccl_task_await(&gather->task, reterr); /* of the use before the last one */
    if (status != HSDP_OK) {
        return status;
    }
    n_bytes = unshard_count(store, unit);
    gather->after = slot_take(store, unit);
    gather->has_published = store->has_published;
    gather->task.label.operation = "unshard";
    gather->task.label.group = nccl_class_of(store, unit)->gather.name;
    gather->task.label.unit = store->plan->units[unit].name;
    gather->task.label.sequence = store->n_publishes - store->first_publish;
    gather->task.label.n_bytes = n_bytes;
    gather->task.stream = store->gpu->unshard_stream;
    gather->task.run = gather_run;
    gather->task.groups[0] = nccl_class_of(store, unit)->gather.group;
    gather->task.n_groups = 1;
    status = nccl_task_submit(&gather->task, ret_ticket, reterr);
    if (status == HSDP_OK) {
        store->last_gather = gather;
        u->next_gather = 1 - u->next_gather;
    }
    return status;
}

static int32_t release_record(struct store *store, uint32_t unit, cu_stream stream,
                              struct hsdp_error *reterr)
{
    struct nccl_unit *u = &store->units[unit];
    struct nccl_gather *gather = &u->gathers[1 - u->next_gather];
    int32_t status = HSDP_OK;

    if (nccl_class_of(store, unit)->gather.n_ranks > 1) {
        /* Who waits for the last `released` has been issued before the gather. And what the host
         * does next is behind the gather, whether it has waited for that or not. */
        status = nccl_task_order(&gather->task, stream, reterr);
    } else if (u->is_released) { /* uses on other streams stand behind the one event too */
        status = gpu_stream_wait(store->gpu, stream, u->released, reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_event_record(store->gpu, u->released, stream, reterr);
    }
    u->is_released = status == HSDP_OK;
    return status;
}

void nccl_reshard(struct store *store, uint32_t unit, void *stream)
{
    struct hsdp_error err;

    if (release_record(store, unit, (cu_stream)stream, &err) != HSDP_OK) {
        job_fail(store->job, &err);
    }
}

int32_t nccl_readers_follow(struct store *store, struct hsdp_error *reterr)
{
    cu_stream stream = store->gpu->reduce_stream;
    int32_t status = HSDP_OK;

    if (store->last_gather != NULL) { /* behind all of them: they are on one stream */
        status = gpu_stream_wait(store->gpu, stream, store->last_gather->task.done, reterr);
    }
    for (uint32_t unit = 0; unit < store->plan->n_units && status == HSDP_OK; unit++) {
        struct nccl_unit *u = &store->units[unit];

        if (u->is_read && u->is_released) {
            status = gpu_stream_wait(store->gpu, stream, u->released, reterr);
        }
    }
    return status;
}
