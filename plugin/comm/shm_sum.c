/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: what a reduction sums up, from where, and to where. */
#include <string.h>

#include "comm/shm_store.h"
#include "device/fpmode.h"
#include "device/kernels.h"

/* Where the ranks of a group have what is summed. */
struct sources {
    const void *values[SHM_MAX_RANKS];
    enum dtype dtypes[SHM_MAX_RANKS];
};

/* Elements of their contributions, counted in the unsharded buffer. */
static void contributions_find(const struct store *store, uint32_t unit,
                               const struct shm_ranks *ranks, struct plan_part elems,
                               struct sources *ret)
{
    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        const uint8_t *values = shm_source(store, ranks->ranks[i], unit, &ret->dtypes[i]);
        uint64_t elem_bytes = dtype_bytes(ret->dtypes[i]);

        ret->values[i] = values == NULL ? NULL : values + elems.first_elem * elem_bytes;
        probe_read(store->probe, PROBE_CONTRIBUTION, unit, ret->values[i],
                   values == NULL ? 0 : elems.n_elems * elem_bytes);
    }
}

/* The same of their inner sums, which begin with the gradient slice. */
static void inner_sums_find(const struct store *store, uint32_t unit, const struct shm_ranks *ranks,
                            struct plan_part elems, struct sources *ret)
{
    uint64_t first = elems.first_elem - store->units[unit].slice_offset[HSDP_SHARD_GRAD];

    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        ret->values[i] = shm_inner_sum(store, ranks->ranks[i], unit) + first;
        ret->dtypes[i] = DTYPE_FP32;
        probe_read(store->probe, PROBE_INNER, unit, ret->values[i], elems.n_elems * sizeof(float));
    }
}

/* The other ranks of the host write as much at about the same time. */
static void tree_run(const struct store *store, struct reduce_spec *spec)
{
    uint64_t n_bytes = (1 + (uint64_t)spec->n_copies) * spec->n_elems * sizeof(float);
    struct fp_mode mode = fp_mode_enter();

    spec->is_streamed = reduce_streams(store->n_world * n_bytes);
    job_kernels(store->job)->tree(spec);
    fp_mode_leave(mode);
}

void shm_sum_inner(struct store *store, uint32_t unit)
{
    struct shm_unit *u = &store->units[unit];
    const struct shm_ranks *ranks = &shm_class_of(store, unit)->inner;
    struct plan_part elems = {.first_elem = u->slice_offset[HSDP_SHARD_GRAD]};
    struct reduce_spec spec = {.dim_sizes = ranks->dim_sizes, .n_dims = ranks->n_dims};
    struct sources sources;

    elems.n_elems = store->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_GRAD];
    contributions_find(store, unit, ranks, elems, &sources);
    spec.sources = sources.values;
    spec.source_dtypes = sources.dtypes;
    spec.wire_dtype = shm_plan_class(store, unit)->reduce_dtype;
    spec.n_elems = elems.n_elems;
    spec.dst = shm_inner_sum(store, store->rank, unit);
    spec.accumulate = u->has_inner;
    probe_write(store->probe, PROBE_INNER, unit, spec.dst, spec.n_elems * sizeof(float));
    tree_run(store, &spec);
    shm_count(ranks, spec.n_elems * dtype_bytes(spec.wire_dtype));
    u->has_inner = true;
}

/* Where the other replicas keep what this rank's part of the step shard becomes. */
static uint32_t copies_find(const struct store *store, uint32_t unit, float **ret_copies)
{
    const struct shm_unit *u = &store->units[unit];
    const struct shm_ranks *replicas = &shm_class_of(store, unit)->replicas;
    uint32_t n_copies = 0;

    for (uint32_t i = 0; i < replicas->n_ranks; i++) {
        float *grads = shm_step_grads(store, replicas->ranks[i], unit) + u->part.first_elem;

        probe_write(store->probe, PROBE_GRADS, unit, grads, u->part.n_elems * sizeof(float));
        if (replicas->ranks[i] != store->rank) {
            ret_copies[n_copies++] = grads;
        }
    }
    return n_copies;
}

/* An empty norm of what is summed next; NULL if none is wanted. */
static const struct reduce_norm *norm_begin(const struct shm_reduction *reduction,
                                            struct reduce_norm *ret)
{
    struct shm_norm *norm = &reduction->store->norms[reduction->unit];

    norm->p = reduction->norm_p;
    if (norm->p == 0.0) {
        return NULL;
    }
    memset(&norm->sum, 0, sizeof(norm->sum));
    *ret = (struct reduce_norm){&norm->sum, norm->p, reduction->norm_divisor};
    return ret;
}

bool shm_step_norm(const struct store *store, uint32_t unit, double p, struct norm_sum *sum)
{
    if (store->norms[unit].p != p) {
        return false;
    }
    norm_sum_merge(sum, &store->norms[unit].sum);
    return true;
}

void shm_sum_step(const struct shm_reduction *reduction)
{
    struct store *store = reduction->store;
    uint32_t unit = reduction->unit;
    struct shm_unit *u = &store->units[unit];
    const struct shm_class *class = shm_class_of(store, unit);
    const struct shm_ranks *ranks = reduction->is_staged ? &class->outer : class->readers;
    struct plan_part elems = {.n_elems = u->part.n_elems};
    struct reduce_spec spec = {.dim_sizes = ranks->dim_sizes, .n_dims = ranks->n_dims};
    float *copies[SHM_MAX_RANKS];
    struct sources sources;
    struct reduce_norm norm;

    elems.first_elem = u->slice_offset[HSDP_SHARD_STEP] + u->part.first_elem;
    if (reduction->is_staged) { /* a partial sum is not rounded again */
        inner_sums_find(store, unit, ranks, elems, &sources);
        spec.wire_dtype = DTYPE_FP32;
    } else {
        contributions_find(store, unit, ranks, elems, &sources);
        spec.wire_dtype = shm_plan_class(store, unit)->reduce_dtype;
    }
    spec.sources = sources.values;
    spec.source_dtypes = sources.dtypes;
    spec.n_elems = elems.n_elems;
    spec.dst = u->step_grads + u->part.first_elem;
    spec.accumulate = u->has_step;
    spec.copies = copies;
    spec.n_copies = copies_find(store, unit, copies);
    spec.norm = norm_begin(reduction, &norm);
    tree_run(store, &spec);
    shm_count(ranks, spec.n_elems * dtype_bytes(spec.wire_dtype));
    shm_count_bytes(ranks, (u->sums.step_elems - spec.n_elems) * sizeof(float)); /* other parts */
    u->has_step = true;
    u->has_inner = false;
}
