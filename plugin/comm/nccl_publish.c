/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: masters go to where parameters rest, on this rank and on those of S\P. */
#include "base/error.h"
#include "comm/nccl_store.h"

bool nccl_is_published(const struct store *store, uint32_t unit)
{
    uint64_t state = atomic_load(&nccl_class_of(store, unit)->publish.task.state);

    return state != NCCL_TASK_QUEUED && state != NCCL_TASK_ISSUED;
}

/* ------------------------------------------------------------------------------- on the thread */

/* This rank's step slice of the resting shard. */
static uint8_t *own_slice(const struct store *store, uint32_t unit, uint32_t buffer)
{
    const struct nccl_unit *u = &store->units[unit];

    return u->resting[buffer] +
           u->step_offset[buffer] * dtype_bytes(nccl_plan_class(store, unit)->param_dtype);
}

static int32_t master_convert(struct store *store, uint32_t unit, uint32_t buffer,
                              struct hsdp_error *reterr)
{
    const struct plan_class *class = nccl_plan_class(store, unit);
    struct gpu_cast_args cast = {.dst = own_slice(store, unit, buffer)};

    cast.src = store->units[unit].master[buffer];
    cast.n_elems = store->plan->units[unit].buffers[buffer].shard_elems[HSDP_SHARD_STEP];
    cast.dst_dtype = (int32_t) class->param_dtype;
    cast.src_dtype = (int32_t) class->master_dtype;
    return gpu_launch(store->gpu, GPU_CAST, &cast, cast.n_elems, store->gpu->reduce_stream, reterr);
}

static int32_t slices_gather(struct store *store, uint32_t unit, uint32_t buffer,
                             struct hsdp_error *reterr)
{
    struct nccl_class *class = nccl_class_of(store, unit);
    const struct nccl_ranks *copies = &class->copies;
    uint64_t n_elems = store->plan->units[unit].buffers[buffer].shard_elems[HSDP_SHARD_STEP];

    if (copies->n_ranks == 1) {
        return HSDP_OK;
    }
    return nccl_all_gather(&class->publish.task, copies->group, own_slice(store, unit, buffer),
                           store->units[unit].resting[buffer], n_elems,
                           nccl_dtype(nccl_plan_class(store, unit)->param_dtype), reterr);
}

static bool is_published(const struct store *store, uint32_t unit, uint32_t buffer)
{
    return store->published == PUBLISHED_ALL || !store->plan->units[unit].buffers[buffer].is_frozen;
}

static int32_t unit_publish(struct store *store, uint32_t unit, struct hsdp_error *reterr)
{
    bool is_written = plan_steps_in_place(store->plan, unit) ||
                      (store->published == PUBLISHED_TRAINABLE && store->units[unit].is_written);
    int32_t status = HSDP_OK;

    for (uint32_t b = 0; b < store->plan->units[unit].n_buffers && status == HSDP_OK; b++) {
        if (!is_published(store, unit, b)) {
            continue;
        }
        if (!is_written) {
            status = master_convert(store, unit, b, reterr);
        }
        if (status == HSDP_OK) {
            status = slices_gather(store, unit, b, reterr);
        }
    }
    return status;
}

static int32_t publish_run(struct nccl_task *task, struct hsdp_error *reterr)
{
    struct nccl_publish *publish = (struct nccl_publish *)task;
    struct store *store = publish->store;
    int32_t status = gpu_stream_wait(store->gpu, store->gpu->reduce_stream, store->written, reterr);

    if (status == HSDP_OK) { /* also where it ends an edit, which no step has gone before */
        status = nccl_readers_follow(store, reterr);
    }
    for (uint32_t unit = 0; unit < store->plan->n_units && status == HSDP_OK; unit++) {
        if (store->plan->units[unit].class_index == publish->class_index) {
            status = unit_publish(store, unit, reterr);
        }
    }
    return status;
}

/* ----------------------------------------------------------------------------- the host's side */

/* The copies of other ranks are their own affair: they get this one's. */
uint32_t nccl_publish_targets(struct store *store, uint32_t unit, uint32_t buffer,
                              void *ret_addresses[STORE_MAX_TARGETS])
{
    if (plan_steps_in_place(store->plan, unit)) {
        return 0;
    }
    ret_addresses[0] = own_slice(store, unit, buffer);
    return 1;
}

void nccl_publish_skip(struct store *store, uint32_t unit, bool is_written)
{
    store->units[unit].is_written = is_written;
}

static void publish_count(struct store *store)
{
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        const struct plan_unit *row = &store->plan->units[unit];
        uint64_t elem_bytes = dtype_bytes(nccl_plan_class(store, unit)->param_dtype);

        for (uint32_t b = 0; b < row->n_buffers; b++) {
            if (is_published(store, unit, b)) {
                nccl_count(&nccl_class_of(store, unit)->copies,
                           row->buffers[b].shard_elems[HSDP_SHARD_STEP] * elem_bytes);
            }
        }
    }
}

static int32_t class_submit(struct store *store, uint32_t class_index, struct hsdp_error *reterr)
{
    struct nccl_class *class = &store->classes[class_index];
    struct nccl_task *task = &class->publish.task;

    class->publish.class_index = class_index;
    task->groups[0] = class->copies.group;
    task->n_groups = class->copies.n_ranks == 1 ? 0 : 1;
    task->stream = store->gpu->reduce_stream;
    task->run = publish_run;
    task->label.operation = "publish";
    task->label.group = class->copies.name;
    task->label.sequence = store->n_publishes + 1 - store->first_publish;
    return nccl_task_submit(task, NULL, reterr);
}

/* The tasks of the last one are done first: `written` is theirs. Those of this one are issued when
 * this returns: what is put on the stream next comes behind them. */
static int32_t classes_submit(struct store *store, cu_stream stream, struct hsdp_error *reterr)
{
    uint32_t n_classes = store->plan->n_classes;
    int32_t status = HSDP_OK;

    for (uint32_t c = 0; c < n_classes && status == HSDP_OK; c++) {
        status = nccl_task_await(&store->classes[c].publish.task, reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_event_record(store->gpu, store->written, stream, reterr);
    }
    for (uint32_t c = 0; c < n_classes && status == HSDP_OK; c++) {
        status = class_submit(store, c, reterr);
    }
    for (uint32_t c = 0; c < n_classes && status == HSDP_OK; c++) {
        status = nccl_task_await_issue(&store->classes[c].publish.task, reterr);
    }
    return status;
}

int32_t nccl_publish(struct store *store, enum published values, void *stream,
                     struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    store->published = values;
    if (values != PUBLISHED_NOTHING) {
        publish_count(store);
        status = classes_submit(store, (cu_stream)stream, reterr);
        store->has_published = true;
    }
    if (status != HSDP_OK) {
        return status;
    }
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        store->units[unit].is_written = false;
        store->units[unit].is_read = store->units[unit].is_read && values == PUBLISHED_NOTHING;
    }
    store->n_publishes++;
    return HSDP_OK;
}
