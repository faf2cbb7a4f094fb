/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: what a rank contributes to a reduction, rounded to the wire dtype once. */
#include "base/error.h"
#include "comm/nccl_store.h"

/*
 * A contribution is the local sums, the slot and what came late, in this order, and of these what
 * there is: added in fp32, then rounded. The additions are those of the shm store, in its order.
 */
struct terms {
    const float *local;
    const void *slot;
    enum dtype slot_dtype;
    const float *late;
};

static struct terms terms_find(const struct nccl_reduction *reduction)
{
    const struct store *store = reduction->store;
    const struct nccl_unit *u = &store->units[reduction->unit];
    struct terms terms = {.slot_dtype = nccl_plan_class(store, reduction->unit)->gradient_dtype};

    terms.local = reduction->has_local ? u->local : NULL;
    terms.slot = reduction->is_absent ? NULL : u->grads;
    terms.late = reduction->taken == NULL ? NULL : reduction->taken->memory.base;
    return terms;
}

/* Behind the host's writing of what is read. */
static int32_t writers_follow(const struct nccl_reduction *reduction, struct hsdp_error *reterr)
{
    struct store *store = reduction->store;
    const struct nccl_unit *u = &store->units[reduction->unit];
    cu_stream stream = store->gpu->reduce_stream;
    int32_t status = HSDP_OK;

    if (!reduction->is_absent) {
        status = gpu_stream_wait(store->gpu, stream, u->handed, reterr);
    }
    if (status == HSDP_OK && reduction->taken != NULL) {
        status = gpu_stream_wait(store->gpu, stream, reduction->taken->written, reterr);
    }
    return status;
}

/* The first contribution of a window is stored, not added. */
static int32_t local_add(struct nccl_reduction *reduction, const void *values, enum dtype dtype,
                         struct hsdp_error *reterr)
{
    struct store *store = reduction->store;
    const struct nccl_unit *u = &store->units[reduction->unit];
    struct gpu_add_args add = {u->local, values, u->sums.local_elems, (int32_t)dtype, 0};
    struct gpu_cast_args cast = {.dst = u->local, .src = values, .dst_dtype = DTYPE_FP32};
    cu_stream stream = store->gpu->reduce_stream;

    if (values == NULL) {
        return HSDP_OK;
    }
    if (reduction->has_local) {
        return gpu_launch(store->gpu, GPU_ADD, &add, add.n_elems, stream, reterr);
    }
    reduction->has_local = true;
    cast.n_elems = add.n_elems;
    cast.src_dtype = add.src_dtype;
    return gpu_launch(store->gpu, GPU_CAST, &cast, cast.n_elems, stream, reterr);
}

/* Adds up slot and late gradients where local sums are. */
static int32_t local_complete(struct nccl_reduction *reduction, struct terms *terms,
                              struct hsdp_error *reterr)
{
    int32_t status = local_add(reduction, terms->slot, terms->slot_dtype, reterr);

    if (status == HSDP_OK) {
        status = local_add(reduction, terms->late, DTYPE_FP32, reterr);
    }
    terms->local = reduction->has_local ? reduction->store->units[reduction->unit].local : NULL;
    terms->slot = NULL;
    terms->late = NULL;
    return status;
}

/* At most two terms are left, of which one is fp32: rounds their sum into the staging. */
static int32_t terms_combine(struct nccl_reduction *reduction, const struct terms *terms,
                             struct nccl_values *ret, struct hsdp_error *reterr)
{
    struct store *store = reduction->store;
    struct gpu_combine_args combine = {.dst = store->memories[NCCL_MEMORY_CONTRIBUTION].base};
    bool is_late_first = terms->local == NULL;

    combine.first = is_late_first ? terms->late : terms->local;
    combine.second = terms->slot;
    combine.second_dtype = (int32_t)terms->slot_dtype;
    if (terms->slot == NULL) {
        combine.second = is_late_first ? NULL : terms->late;
        combine.second_dtype = DTYPE_FP32;
    }
    if (combine.first == NULL && combine.second != NULL && terms->slot_dtype == ret->dtype) {
        ret->base = combine.second; /* as it is */
        return HSDP_OK;
    }
    if (combine.first != NULL && combine.second == NULL && ret->dtype == DTYPE_FP32) {
        ret->base = combine.first;
        return HSDP_OK;
    }
    combine.n_elems = ret->n_elems;
    combine.dst_dtype = (int32_t)ret->dtype;
    ret->base = combine.dst;
    return gpu_launch(store->gpu, GPU_COMBINE, &combine, combine.n_elems, store->gpu->reduce_stream,
                      reterr);
}

int32_t nccl_contribute(struct nccl_reduction *reduction, struct nccl_values *ret,
                        struct hsdp_error *reterr)
{
    struct store *store = reduction->store;
    struct terms terms = terms_find(reduction);
    int32_t status = writers_follow(reduction, reterr);

    ret->n_elems = store->plan->units[reduction->unit].buffers[0].n_elems;
    ret->dtype = nccl_plan_class(store, reduction->unit)->reduce_dtype;
    ret->base = NULL;
    if (status == HSDP_OK && (reduction->scope == HSDP_SCOPE_NONE ||
                              (terms.local != NULL && terms.slot != NULL && terms.late != NULL))) {
        status = local_complete(reduction, &terms, reterr);
    }
    if (status != HSDP_OK || reduction->scope == HSDP_SCOPE_NONE) {
        return status;
    }
    return terms_combine(reduction, &terms, ret, reterr);
}
