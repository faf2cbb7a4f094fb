/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: parameters tied over stages are exchanged among their holders. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/nccl_store.h"

/*
 * All elements of a run come from all of its holders into the room for ties, where the tree adds
 * them in the order of the tie: the same bits on every holder. Of a copy only those of the first
 * travel. A run lies elsewhere on each of its holders, and among others; what is the same for all
 * is where it lies on the first. So between two ranks runs travel in the order of that.
 *
 * Holders of different ties are different ranks. Each such set has a communicator, and each call of
 * this one exchange in each of them: also when nothing of it takes part.
 */
struct tie_item {
    const struct store_tied_run *run;
    uint32_t group;
    uint8_t *sources;      /* n_holders of them, stride_bytes apart; then the sum */
    uint64_t stride_bytes; /* of whole 16 bytes */
};

struct tie_call {
    struct store *store;
    const struct store_ties *ties;
    struct tie_item *items; /* in the order of messages */
    uint64_t n_items;
    struct nccl_message *messages; /* of one group at a time */
};

#define ALIGN_BYTES 16u

static uint64_t stride_of(uint64_t n_elems)
{
    return (n_elems * sizeof(float) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Own elements of a tie are cut where a slice begins on any holder, and where segments do. */
uint64_t nccl_ties_bytes(const struct store *store)
{
    const struct hsdp_plan *plan = store->plan;
    uint64_t n_bytes = 0;

    for (uint32_t t = 0; t < plan->n_ties; t++) {
        const struct plan_tie *tie = &plan->ties[t];
        uint32_t unit = plan->params[tie->param].unit;
        const struct placement *place = &plan->classes[plan->units[unit].class_index].place;
        uint64_t n_slices = placement_n_slices(place, plan->mesh, HSDP_SHARD_STEP);
        uint64_t n_segments = 0;
        uint64_t n_elems = plan_tie_elems(plan, t);
        uint64_t n_runs;

        plan_segments(plan, unit, HSDP_SHARD_STEP, store->rank, NULL, sizeof(struct hsdp_segment),
                      0, &n_segments, NULL);
        n_runs = n_segments + tie->n_holders * n_slices;
        n_bytes += (tie->n_holders + 1) * (n_elems * sizeof(float) + n_runs * ALIGN_BYTES);
    }
    return n_bytes;
}

/* ----------------------------------------------------------------------------------- the call */

static bool group_has(const struct nccl_tie_group *group, uint32_t rank)
{
    uint32_t i = 0;

    while (i < group->n_ranks && group->ranks[i] != rank) {
        i++;
    }
    return i < group->n_ranks;
}

/* The first that has all holders of a run: all of them find the same, as all of them have it. */
static uint32_t group_find(const struct store *store, const struct store_tied_run *run)
{
    uint32_t g = 0;

    for (uint32_t h = 0; h < run->n_holders;) {
        if (group_has(&store->tie_groups[g], run->ranks[h])) {
            h++;
        } else {
            g++;
            h = 0;
            assert(g < store->n_tie_groups);
        }
    }
    return g;
}

static int items_compare(const void *left, const void *right)
{
    const struct tie_item *a = left;
    const struct tie_item *b = right;

    if (a->group != b->group) {
        return a->group < b->group ? -1 : 1;
    }
    if (a->run->ranks[0] != b->run->ranks[0]) {
        return a->run->ranks[0] < b->run->ranks[0] ? -1 : 1;
    }
    return a->run->places[0] < b->run->places[0] ? -1 : a->run->places[0] > b->run->places[0];
}

/* Those runs that take part, each with its room. */
static void items_fill(struct tie_call *call)
{
    struct store *store = call->store;
    uint8_t *room = store->memories[NCCL_MEMORY_TIES].base;

    for (uint64_t i = 0; i < call->ties->n_runs; i++) {
        const struct store_tied_run *run = &call->ties->runs[i];
        struct tie_item *item = &call->items[call->n_items];

        if (run->values == NULL || run->n_elems == 0) {
            continue;
        }
        *item = (struct tie_item){run, group_find(store, run), room, stride_of(run->n_elems)};
        room += (run->n_holders + UINT64_C(1)) * item->stride_bytes;
        call->n_items++;
    }
    qsort(call->items, call->n_items, sizeof(*call->items), items_compare);
    assert(room <= (uint8_t *)store->memories[NCCL_MEMORY_TIES].base +
                       store->memories[NCCL_MEMORY_TIES].n_bytes);
}

static uint32_t index_in(const struct nccl_tie_group *group, uint32_t rank)
{
    uint32_t i = 0;

    while (group->ranks[i] != rank) {
        i++;
    }
    return i;
}

/* A sum takes everyone's elements to everyone; a copy the first one's to the others. */
static uint32_t item_messages(const struct tie_call *call, const struct tie_item *item,
                              struct nccl_message *ret)
{
    const struct nccl_tie_group *ranks = &call->store->tie_groups[item->group];
    const struct store_tied_run *run = item->run;
    uint64_t n_bytes = run->n_elems * sizeof(float);
    uint32_t n = 0;

    for (uint32_t h = 0; h < run->n_holders; h++) {
        uint8_t *place = item->sources + h * item->stride_bytes;
        uint32_t peer = index_in(ranks, run->ranks[h]);

        if (h != run->own && (call->ties->is_sum || run->own == 0)) {
            ret[n++] = (struct nccl_message){run->values, n_bytes, peer, .is_send = true};
        }
        if (h != run->own && (call->ties->is_sum || h == 0)) {
            ret[n++] = (struct nccl_message){place, n_bytes, peer, false};
        }
    }
    return n;
}

static uint32_t messages_fill(const struct tie_call *call, uint32_t group)
{
    uint32_t n = 0;

    for (uint64_t i = 0; i < call->n_items; i++) {
        if (call->items[i].group == group) {
            n += item_messages(call, &call->items[i], call->messages + n);
        }
    }
    return n;
}

/* ------------------------------------------------------------------------------- on the thread */

static int32_t item_sum(struct store *store, const struct tie_item *item, struct hsdp_error *reterr)
{
    const struct store_tied_run *run = item->run;
    uint64_t n_bytes = run->n_elems * sizeof(float);
    struct gpu_tree_args tree = {.sources = item->sources, .source_dtype = DTYPE_FP32};
    cu_stream stream = store->gpu->reduce_stream;
    uint8_t *sum = item->sources + run->n_holders * item->stride_bytes;
    int32_t status = gpu_copy(store->gpu, item->sources + run->own * item->stride_bytes,
                              run->values, n_bytes, stream, reterr);

    tree.dst = (float *)(void *)sum;
    tree.stride_bytes = item->stride_bytes;
    tree.n_elems = run->n_elems;
    tree.n_dims = run->n_dims;
    memcpy(tree.dim_sizes, run->dim_sizes, run->n_dims * sizeof(*run->dim_sizes));
    if (status == HSDP_OK) {
        status = gpu_launch(store->gpu, GPU_TREE, &tree, tree.n_elems, stream, reterr);
    }
    return status == HSDP_OK ? gpu_copy(store->gpu, run->values, sum, n_bytes, stream, reterr)
                             : status;
}

static int32_t item_finish(const struct tie_call *call, const struct tie_item *item,
                           struct hsdp_error *reterr)
{
    struct store *store = call->store;

    if (call->ties->is_sum) {
        return item_sum(store, item, reterr);
    }
    return item->run->own == 0
               ? HSDP_OK
               : gpu_copy(store->gpu, item->run->values, item->sources,
                          item->run->n_elems * sizeof(float), store->gpu->reduce_stream, reterr);
}

static int32_t ties_exchange(struct nccl_task *task, struct hsdp_error *reterr)
{
    const struct tie_call *call = ((struct nccl_cold *)task)->call;
    int32_t status = HSDP_OK;

    for (uint32_t i = 0; i < task->n_groups && status == HSDP_OK; i++) {
        uint32_t group = 0;

        while (call->store->tie_groups[group].group != task->groups[i]) {
            group++;
        }
        status = nccl_exchange(task, task->groups[i], call->messages, messages_fill(call, group),
                               reterr);
    }
    return status;
}

static int32_t ties_finish(struct nccl_task *task, struct hsdp_error *reterr)
{
    const struct tie_call *call = ((struct nccl_cold *)task)->call;
    int32_t status = HSDP_OK;

    for (uint64_t i = 0; i < call->n_items && status == HSDP_OK; i++) {
        status = item_finish(call, &call->items[i], reterr);
    }
    return status;
}

/* --------------------------------------------------------------------------- the host's side */

static int32_t ties_task(struct tie_call *call, struct hsdp_error *reterr)
{
    struct store *store = call->store;
    struct nccl_task *task = &store->cold.task;
    int32_t status = nccl_task_submit(task, NULL, reterr);

    return status == HSDP_OK ? nccl_task_await(task, reterr) : status;
}

/* As many groups at a time as a task may have. */
static int32_t call_run(struct tie_call *call, struct hsdp_error *reterr)
{
    struct store *store = call->store;
    struct nccl_task *task = &store->cold.task;
    int32_t status = HSDP_OK;

    store->cold.call = call;
    task->stream = store->gpu->reduce_stream;
    task->label.operation = call->ties->operation;
    task->label.group = call->ties->group;
    task->label.unit = NULL; /* each stage has its own */
    task->label.sequence = store->n_ties_runs - store->first_ties_run;
    task->run = ties_exchange;
    for (uint32_t g = 0; g < store->n_tie_groups && status == HSDP_OK;) {
        for (task->n_groups = 0; g < store->n_tie_groups && task->n_groups < NCCL_TASK_MAX_GROUPS;
             g++) {
            if (store->tie_groups[g].n_ranks > 1) {
                task->groups[task->n_groups++] = store->tie_groups[g].group;
            }
        }
        status = ties_task(call, reterr);
    }
    task->n_groups = 0;
    task->run = ties_finish;
    return status == HSDP_OK ? ties_task(call, reterr) : status;
}

int32_t nccl_ties_run(struct store *store, const struct store_ties *ties, struct hsdp_error *reterr)
{
    struct tie_call call = {.store = store, .ties = ties};
    uint64_t n_messages = 1;
    int32_t status;

    store->n_ties_runs++;
    for (uint64_t i = 0; i < ties->n_runs; i++) {
        n_messages += 2 * (uint64_t)ties->runs[i].n_holders;
    }
    call.items = calloc(ties->n_runs + 1, sizeof(*call.items));
    call.messages = calloc(n_messages, sizeof(*call.messages));
    if (call.items == NULL || call.messages == NULL) {
        status = error_set(reterr, HSDP_ERR_NO_MEMORY, "%s: no memory for tied parameters",
                           ties->operation);
    } else {
        items_fill(&call);
        status = call_run(&call, reterr);
    }
    free(call.items);
    free(call.messages);
    return status;
}
