/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: the stages of a reduction, as they are put on the reduce stream. */
#include "base/error.h"
#include "comm/nccl_store.h"

/*
 * NCCL adds what travels in fp32. A narrower wire would be rounded at each of its additions: such
 * contributions are exchanged slice by slice, and added up in fp32 here, in the order of the CPU's
 * sums. What has been added up once is fp32, so only the first stage of a reduction is of this
 * kind.
 */

/* Where the result of a stage goes. */
struct sink {
    float *values;
    bool is_added; /* to what lies there; else stored */
};

static int32_t sum_add(struct nccl_task *task, const struct sink *sink, const void *values,
                       uint64_t n_elems, struct hsdp_error *reterr)
{
    struct gpu *gpu = ((struct nccl_reduction *)task)->store->gpu;
    struct gpu_add_args add = {sink->values, values, n_elems, DTYPE_FP32, 0};

    return gpu_launch(gpu, GPU_ADD, &add, n_elems, gpu->reduce_stream, reterr);
}

/* Of one rank: what it has is the sum. */
static int32_t alone_store(struct nccl_task *task, const struct nccl_values *from,
                           const struct sink *sink, struct hsdp_error *reterr)
{
    struct gpu *gpu = ((struct nccl_reduction *)task)->store->gpu;
    struct gpu_add_args add = {sink->values, from->base, from->n_elems, (int32_t)from->dtype, 0};
    struct gpu_cast_args cast = {.dst = sink->values, .src = from->base, .n_elems = from->n_elems};

    if (sink->is_added) {
        return gpu_launch(gpu, GPU_ADD, &add, add.n_elems, gpu->reduce_stream, reterr);
    }
    cast.dst_dtype = DTYPE_FP32;
    cast.src_dtype = (int32_t)from->dtype;
    return gpu_launch(gpu, GPU_CAST, &cast, cast.n_elems, gpu->reduce_stream, reterr);
}

/* -------------------------------------------------------------------------- sums of a narrow wire
 */

/* What the ranks of a group have exchanged lies here, in the order of sums. */
static void tree_fill(struct gpu_tree_args *tree, const struct nccl_ranks *ranks,
                      const struct nccl_values *from)
{
    tree->n_dims = ranks->n_dims;
    for (uint32_t d = 0; d < ranks->n_dims; d++) {
        tree->dim_sizes[d] = ranks->dim_sizes[d];
    }
    tree->source_dtype = (int32_t)from->dtype;
}

/* A run of elements that one rank of a group sums up for all of it. */
struct share {
    uint64_t first_elem;
    uint64_t n_elems;
};

static struct share slice_of(uint64_t n_elems, uint32_t n_ranks, uint32_t i)
{
    return (struct share){i * (n_elems / n_ranks), n_elems / n_ranks};
}

/* Whole lines, so that the last ones may have less, or nothing: as in plan_step_part. */
static struct share part_of(uint64_t n_elems, uint32_t n_ranks, uint32_t i)
{
    uint64_t n_lines = n_elems / PLAN_ALIGN_ELEMS;
    uint64_t part_elems = (n_lines + n_ranks - 1) / n_ranks * PLAN_ALIGN_ELEMS;
    struct share share = {i * part_elems < n_elems ? i * part_elems : n_elems, 0};

    share.n_elems =
        n_elems - share.first_elem < part_elems ? n_elems - share.first_elem : part_elems;
    return share;
}

typedef struct share (*share_function)(uint64_t n_elems, uint32_t n_ranks, uint32_t i);

/* Every rank gets its share of all contributions, and sums it up. */
static int32_t shares_sum(struct nccl_task *task, const struct nccl_ranks *ranks,
                          const struct nccl_values *from, const struct sink *sink,
                          share_function share_of, struct hsdp_error *reterr)
{
    struct store *store = ((struct nccl_reduction *)task)->store;
    struct nccl_message messages[2 * NCCL_STORE_MAX_RANKS];
    struct share own = share_of(from->n_elems, ranks->n_ranks, ranks->index);
    struct gpu_tree_args tree = {.dst = sink->values, .is_added = sink->is_added};
    uint64_t elem_bytes = dtype_bytes(from->dtype);
    uint8_t *received = store->memories[NCCL_MEMORY_RECEIVED].base;
    uint32_t n = 0;
    int32_t status;

    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        struct share theirs = share_of(from->n_elems, ranks->n_ranks, i);
        uint8_t *values = (uint8_t *)from->base + theirs.first_elem * elem_bytes;
        uint8_t *place = received + ranks->places[i] * own.n_elems * elem_bytes;

        if (theirs.n_elems != 0) {
            messages[n++] =
                (struct nccl_message){values, theirs.n_elems * elem_bytes, i, .is_send = true};
        }
        if (own.n_elems != 0) {
            messages[n++] = (struct nccl_message){place, own.n_elems * elem_bytes, i, false};
        }
    }
    status = nccl_exchange(task, ranks->group, messages, n, reterr);
    if (status != HSDP_OK || own.n_elems == 0) {
        return status;
    }
    tree_fill(&tree, ranks, from);
    tree.sources = received;
    tree.stride_bytes = own.n_elems * elem_bytes;
    tree.n_elems = own.n_elems;
    return gpu_launch(store->gpu, GPU_TREE, &tree, tree.n_elems, store->gpu->reduce_stream, reterr);
}

/* Every rank sends its share of the sum to all others. */
static int32_t shares_spread(struct nccl_task *task, const struct nccl_ranks *ranks, float *values,
                             uint64_t n_elems, struct hsdp_error *reterr)
{
    struct nccl_message messages[2 * NCCL_STORE_MAX_RANKS];
    struct share own = part_of(n_elems, ranks->n_ranks, ranks->index);
    uint32_t n = 0;

    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        struct share theirs = part_of(n_elems, ranks->n_ranks, i);

        if (i != ranks->index && own.n_elems != 0) {
            messages[n++] = (struct nccl_message){values + own.first_elem,
                                                  own.n_elems * sizeof(float), i, .is_send = true};
        }
        if (i != ranks->index && theirs.n_elems != 0) {
            messages[n++] = (struct nccl_message){values + theirs.first_elem,
                                                  theirs.n_elems * sizeof(float), i, false};
        }
    }
    return nccl_exchange(task, ranks->group, messages, n, reterr);
}

/* ------------------------------------------------------------------------------------ the stages
 */

/* The reduce-scatter: of n elements the n / n_ranks of this rank's slice. */
static int32_t scatter(struct nccl_task *task, const struct nccl_ranks *ranks,
                       const struct nccl_values *from, const struct sink *sink,
                       struct hsdp_error *reterr)
{
    struct store *store = ((struct nccl_reduction *)task)->store;
    uint64_t n_elems = from->n_elems / ranks->n_ranks;
    float *sum = sink->is_added ? store->memories[NCCL_MEMORY_RECEIVED].base : sink->values;
    int32_t status;

    if (ranks->n_ranks == 1) {
        return alone_store(task, from, sink, reterr);
    }
    if (from->dtype != DTYPE_FP32) {
        return shares_sum(task, ranks, from, sink, slice_of, reterr);
    }
    status =
        nccl_reduce_scatter(task, ranks->group, from->base, sum, n_elems, NCCL_FLOAT32, reterr);
    return status == HSDP_OK && sink->is_added ? sum_add(task, sink, sum, n_elems, reterr) : status;
}

static int32_t all_reduce(struct nccl_task *task, const struct nccl_ranks *ranks,
                          const struct nccl_values *from, const struct sink *sink,
                          struct hsdp_error *reterr)
{
    struct store *store = ((struct nccl_reduction *)task)->store;
    float *sum = sink->is_added ? store->memories[NCCL_MEMORY_RECEIVED].base : sink->values;
    struct share own = part_of(from->n_elems, ranks->n_ranks, ranks->index);
    struct sink part = {sink->values + own.first_elem, sink->is_added};
    int32_t status;

    if (ranks->n_ranks == 1) {
        return alone_store(task, from, sink, reterr);
    }
    if (from->dtype != DTYPE_FP32) {
        status = shares_sum(task, ranks, from, &part, part_of, reterr);
        return status == HSDP_OK ? shares_spread(task, ranks, sink->values, from->n_elems, reterr)
                                 : status;
    }
    status = nccl_all_reduce(task, ranks->group, from->base, sum, from->n_elems, NCCL_FLOAT32,
                             NCCL_SUM, reterr);
    return status == HSDP_OK && sink->is_added ? sum_add(task, sink, sum, from->n_elems, reterr)
                                               : status;
}

/* Over R\G, of which only S\G or R\S spans more ranks than one. */
static int32_t outer_run(struct nccl_task *task, const struct nccl_class *class,
                         const struct nccl_values *from, const struct sink *sink,
                         struct hsdp_error *reterr)
{
    return class->later.n_ranks > 1 ? scatter(task, &class->later, from, sink, reterr)
                                    : all_reduce(task, &class->replicas, from, sink, reterr);
}

/* Peers are not asked: what this rank's next gradient may overwrite has been read here. */
static int32_t slot_give_back(struct nccl_reduction *reduction, struct hsdp_error *reterr)
{
    struct store *store = reduction->store;

    return reduction->is_absent
               ? HSDP_OK
               : gpu_event_record(store->gpu, store->units[reduction->unit].consumed,
                                  store->gpu->reduce_stream, reterr);
}

/* The stage that reads contributions: over G, or where that is one rank over the rest of R. */
static int32_t first_run(struct nccl_task *task, const struct nccl_values *from,
                         struct hsdp_error *reterr)
{
    struct nccl_reduction *reduction = (struct nccl_reduction *)task;
    const struct nccl_class *class = nccl_class_of(reduction->store, reduction->unit);
    const struct nccl_unit *u = &reduction->store->units[reduction->unit];
    const struct sink inner = {u->inner, reduction->has_inner};
    const struct sink step = {u->step_grads, reduction->has_step};

    if (reduction->is_staged) {
        return scatter(task, &class->inner, from, &inner, reterr);
    }
    return class->inner.n_ranks > 1 ? scatter(task, &class->inner, from, &step, reterr)
                                    : outer_run(task, class, from, &step, reterr);
}

int32_t nccl_reduction_run(struct nccl_task *task, struct hsdp_error *reterr)
{
    struct nccl_reduction *reduction = (struct nccl_reduction *)task;
    struct store *store = reduction->store;
    const struct nccl_unit *u = &store->units[reduction->unit];
    const struct sink step = {u->step_grads, reduction->has_step};
    const struct nccl_values inner = {u->inner, DTYPE_FP32, u->sums.inner_elems};
    struct nccl_values contribution;
    int32_t status = nccl_contribute(reduction, &contribution, reterr);

    if (status == HSDP_OK && reduction->scope != HSDP_SCOPE_NONE) {
        status = first_run(task, &contribution, reterr);
    }
    if (status == HSDP_OK) {
        status = slot_give_back(reduction, reterr);
    }
    if (status == HSDP_OK && reduction->is_staged && reduction->scope == HSDP_SCOPE_FULL) {
        status = outer_run(task, nccl_class_of(store, reduction->unit), &inner, &step, reterr);
    }
    return status;
}
