/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: gradient slots, written behind those who read them last, and late gradients. */
#include <assert.h>
#include <inttypes.h>

#include "base/error.h"
#include "comm/nccl_store.h"

/* ---------------------------------------------------------------------------------------- slots */

/* The stream goes on behind the last reading of a unit's slot, which `next` is about to use. */
static int32_t readers_order(struct store *store, uint32_t unit, uint32_t next, cu_stream stream,
                             struct hsdp_error *reterr)
{
    struct nccl_unit *u = &store->units[unit];
    int32_t status;

    if (u->reduction.state == NCCL_REDUCTION_QUEUED && !u->reduction.is_absent) {
        return transport_slot_refuse(store->plan, unit, next, reterr);
    }
    status = nccl_task_await_issue(&u->reduction.task, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    return gpu_stream_wait(store->gpu, stream, u->consumed, reterr);
}

/* Behind the readers of everyone who has had these bytes; as in the shm store, few are in the list.
 */
static int32_t occupants_order(struct store *store, uint32_t unit, cu_stream stream,
                               struct hsdp_error *reterr)
{
    for (uint32_t i = store->n_occupants; i-- > 0;) {
        uint32_t other = store->occupants[i];
        int32_t status;

        if (!plan_grads_overlap(store->plan, unit, other)) {
            continue;
        }
        status = readers_order(store, other, unit, stream, reterr);
        if (status != HSDP_OK) {
            return status;
        }
        store->occupants[i] = store->occupants[--store->n_occupants];
    }
    store->occupants[store->n_occupants++] = unit; /* it overlaps with itself: not there twice */
    return HSDP_OK;
}

/* Where elements are zeroed. */
struct zeroing {
    struct store *store;
    uint8_t *slot;
    uint64_t elem_bytes;
    cu_stream stream;
};

static int32_t elems_zero(const struct zeroing *zeroing, uint64_t first, uint64_t end,
                          struct hsdp_error *reterr)
{
    return first == end ? HSDP_OK
                        : gpu_fill(zeroing->store->gpu, zeroing->slot + first * zeroing->elem_bytes,
                                   0, (end - first) * zeroing->elem_bytes, zeroing->stream, reterr);
}

/* Zeroes what lies between parameters: a host that sets its gradients does not write it. */
static int32_t padding_zero(const struct zeroing *zeroing, uint32_t unit, struct hsdp_error *reterr)
{
    const struct hsdp_plan *plan = zeroing->store->plan;
    const struct plan_unit *row = &plan->units[unit];
    uint64_t end = 0;
    int32_t status = HSDP_OK;

    for (uint32_t i = 0; i < row->n_params && status == HSDP_OK; i++) { /* in order of offset */
        const struct plan_param *param = &plan->params[row->params[i]];

        if (param->buffer == 0 && param->storage == row->params[i]) {
            status = elems_zero(zeroing, end, param->offset_elems, reterr);
            end = param->offset_elems + param->n_elems;
        }
    }
    return status == HSDP_OK ? elems_zero(zeroing, end, row->buffers[0].n_elems, reterr) : status;
}

int32_t nccl_grads_acquire(struct store *store, uint32_t unit, bool is_zeroed, void *stream,
                           struct hsdp_error *reterr)
{
    const struct zeroing zeroing = {store, store->units[unit].grads,
                                    dtype_bytes(nccl_plan_class(store, unit)->gradient_dtype),
                                    (cu_stream)stream};
    int32_t status = occupants_order(store, unit, (cu_stream)stream, reterr);

    if (status == HSDP_OK && is_zeroed) {
        status = elems_zero(&zeroing, 0, plan_grad_elems(store->plan, unit), reterr);
    } else if (status == HSDP_OK && plan_is_trainable(store->plan, unit)) {
        status = padding_zero(&zeroing, unit, reterr); /* that of aliases is never read */
    }
    return status;
}

/* ------------------------------------------------------------------------------- late gradients */

int32_t nccl_late_allocate(struct store *store, uint32_t unit, struct nccl_late *late,
                           struct hsdp_error *reterr)
{
    uint64_t n_bytes = store->plan->units[unit].buffers[0].n_elems * sizeof(float);

    if (late->memory.base != NULL) {
        return HSDP_OK;
    }
    return gpu_alloc(store->gpu, n_bytes, HSDP_MEMORY_DEVICE, "late gradients", &late->memory,
                     reterr);
}

/* All on the stream on which the values come: they may be written again there afterwards. */
static int32_t late_add(struct store *store, struct nccl_late *late,
                        const struct store_addition *addition, struct hsdp_error *reterr)
{
    uint64_t n_bytes = store->plan->units[addition->unit].buffers[0].n_elems * sizeof(float);
    struct gpu_add_args add = {.src = addition->values, .n_elems = addition->n_elems};
    cu_stream stream = (cu_stream)addition->stream;
    int32_t status;

    add.dst = (float *)late->memory.base + addition->offset_elems;
    add.src_dtype = (int32_t)addition->dtype;
    if (late->has) {
        status = gpu_stream_wait(store->gpu, stream, late->written, reterr);
    } else {
        status = gpu_fill(store->gpu, late->memory.base, 0, n_bytes, stream, reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_launch(store->gpu, GPU_ADD, &add, addition->n_elems, stream, reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_event_record(store->gpu, late->written, stream, reterr);
    }
    late->has = late->has || status == HSDP_OK;
    return status;
}

int32_t nccl_grads_add(struct store *store, const struct store_addition *addition,
                       struct hsdp_error *reterr)
{
    struct nccl_unit *u = &store->units[addition->unit];
    uint32_t which = addition->joins_handed ? 1 - u->next_late : u->next_late;
    int32_t status = nccl_late_allocate(store, addition->unit, &u->late[which], reterr);

    if (status != HSDP_OK) {
        return status;
    }
    /* Nothing of it is submitted yet. And the reduction that had the next one's buffer is done:
     * that was awaited when the last one was handed over. */
    assert(!addition->joins_handed || u->reduction.state == NCCL_REDUCTION_QUEUED);
    return late_add(store, &u->late[which], addition, reterr);
}
