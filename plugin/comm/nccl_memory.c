/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: everything that a model has on the device, and where in it each piece lies. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/nccl_store.h"

/* Pieces of one allocation are handed out one after another; once to add up, once to have them. */
struct room {
    uint8_t *base; /* NULL while sizes are added up */
    uint64_t n_bytes;
};

/* What kernels want, and more than what shards of whole lines leave over. */
#define PIECE_ALIGN_BYTES 64u

static void *room_take(struct room *room, uint64_t n_bytes)
{
    uint8_t *piece = room->base == NULL ? NULL : room->base + room->n_bytes;

    room->n_bytes += (n_bytes + PIECE_ALIGN_BYTES - 1) / PIECE_ALIGN_BYTES * PIECE_ALIGN_BYTES;
    return piece;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ------------------------------------------------------------------------------------ of a unit */

static void params_place(struct store *store, uint32_t unit, struct room *rooms)
{
    const struct plan_unit *row = &store->plan->units[unit];
    const struct plan_class *class = nccl_plan_class(store, unit);
    uint64_t param_bytes = dtype_bytes(class->param_dtype);
    struct nccl_unit *u = &store->units[unit];

    for (uint32_t b = 0; b < row->n_buffers; b++) {
        const uint64_t *shards = row->buffers[b].shard_elems;

        u->step_offset[b] = plan_slice_offset(store->plan, unit, b, HSDP_SHARD_STEP, store->rank) -
                            plan_slice_offset(store->plan, unit, b, HSDP_SHARD_PARAM, store->rank);
        u->resting[b] =
            room_take(&rooms[NCCL_MEMORY_PARAMS], shards[HSDP_SHARD_PARAM] * param_bytes);
        u->master[b] = u->resting[b] + u->step_offset[b] * param_bytes;
        if (!plan_steps_in_place(store->plan, unit)) {
            u->master[b] = room_take(&rooms[NCCL_MEMORY_MASTERS],
                                     shards[HSDP_SHARD_STEP] * dtype_bytes(class->master_dtype));
        }
        u->params[b] = u->resting[b]; /* where P spans one rank */
    }
}

static void sums_place(struct store *store, uint32_t unit, struct room *rooms)
{
    const struct plan_unit *row = &store->plan->units[unit];
    struct nccl_unit *u = &store->units[unit];
    struct room *sums = &rooms[NCCL_MEMORY_SUMS];

    if (!plan_is_trainable(store->plan, unit)) {
        return;
    }
    u->sums = plan_accumulators(store->plan, unit);
    u->local = room_take(sums, u->sums.local_elems * sizeof(float));
    u->inner = room_take(sums, u->sums.inner_elems * sizeof(float));
    u->step_grads = room_take(sums, u->sums.step_elems * sizeof(float));
    for (int i = 0; i < 2 && u->sums.late_elems != 0; i++) {
        u->late[i].memory.base = room_take(sums, row->buffers[0].n_elems * sizeof(float));
    }
}

/* ------------------------------------------------------------------------- slots and staging */

/* All buffers of a unit, one behind the other. */
static void unsharded_place(struct store *store, uint32_t unit, struct room *room)
{
    const struct plan_unit *row = &store->plan->units[unit];
    uint64_t param_bytes = dtype_bytes(nccl_plan_class(store, unit)->param_dtype);

    for (uint32_t b = 0; b < row->n_buffers; b++) {
        store->units[unit].params[b] = room_take(room, row->buffers[b].n_elems * param_bytes);
    }
}

/*
 * Any unit of each slot may be live beside any of the others, so each slot has the room of its
 * largest one. A unit that others have names for is in no slot, and has room of its own.
 */
static void slots_place(struct store *store, struct room *rooms)
{
    struct room *all = &rooms[NCCL_MEMORY_UNSHARDED];

    for (uint32_t slot = 0; slot < store->plan->n_slots; slot++) {
        uint64_t most_bytes = 0;

        for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
            struct room room = {all->base == NULL ? NULL : all->base + all->n_bytes, 0};

            if (store->plan->units[unit].param_slot == slot) {
                unsharded_place(store, unit, &room);
            }
            most_bytes = larger(most_bytes, room.n_bytes);
        }
        room_take(all, most_bytes);
    }
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        if (store->plan->units[unit].param_slot == HSDP_NO_SLOT &&
            nccl_class_of(store, unit)->gather.n_ranks > 1) {
            unsharded_place(store, unit, all);
        }
    }
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        store->units[unit].grads =
            rooms[NCCL_MEMORY_SLOTS].base + store->plan->units[unit].grad_slot_offset_bytes;
    }
    room_take(&rooms[NCCL_MEMORY_SLOTS], store->plan->grad_slots_bytes);
}

/*
 * What comes in for one unit at a time: slices of all contributions in a wire dtype narrower than
 * fp32 (in an all-reduce parts of whole lines, which together may be longer than the slice); or a
 * finished sum in fp32, before it is added to what is there.
 */
static uint64_t received_bytes(const struct store *store, uint32_t unit)
{
    const struct plan_accumulators *sums = &store->units[unit].sums;
    uint64_t n_elems = store->plan->units[unit].buffers[0].n_elems;
    uint64_t n_bytes = larger(sums->inner_elems, sums->step_elems) * sizeof(float);
    enum dtype wire = nccl_plan_class(store, unit)->reduce_dtype;

    if (wire != DTYPE_FP32) {
        n_elems += (uint64_t)nccl_class_of(store, unit)->replicas.n_ranks * PLAN_ALIGN_ELEMS;
        n_bytes = larger(n_bytes, n_elems * dtype_bytes(wire));
    }
    return n_bytes;
}

static void staging_place(struct store *store, struct room *rooms)
{
    uint64_t contribution_bytes = 0;
    uint64_t n_bytes = 0;

    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        uint64_t wire_bytes = dtype_bytes(nccl_plan_class(store, unit)->reduce_dtype);

        if (plan_is_trainable(store->plan, unit)) {
            contribution_bytes = larger(contribution_bytes,
                                        store->plan->units[unit].buffers[0].n_elems * wire_bytes);
            n_bytes = larger(n_bytes, received_bytes(store, unit));
        }
    }
    room_take(&rooms[NCCL_MEMORY_CONTRIBUTION], contribution_bytes);
    room_take(&rooms[NCCL_MEMORY_RECEIVED], n_bytes);
    room_take(&rooms[NCCL_MEMORY_TIES], nccl_ties_bytes(store));
}

/* ------------------------------------------------------------------------------- steps and offers
 */

static void small_place(struct store *store, struct room *rooms)
{
    uint64_t n_records = store->n_world + UINT64_C(1);
    uint64_t n_chunks = store->shared.n_ranks + UINT64_C(1);
    struct room *device = &rooms[NCCL_MEMORY_SMALL];
    struct room *host = &rooms[NCCL_MEMORY_PINNED];

    store->step.device = room_take(device, n_records * sizeof(struct nccl_step_record));
    store->step.host = room_take(host, n_records * sizeof(struct nccl_step_record));
    store->step.args.weighed =
        room_take(device, store->plan->mesh->n_data_ranks * sizeof(uint32_t));
    store->factor = room_take(device, 2 * sizeof(float));
    store->device_stage = room_take(device, n_chunks * NCCL_CHUNK_BYTES);
    store->host_stage = room_take(host, n_chunks * NCCL_CHUNK_BYTES);
}

static void all_place(struct store *store, struct room *rooms)
{
    for (uint32_t unit = 0; unit < store->plan->n_units; unit++) {
        params_place(store, unit, rooms);
        sums_place(store, unit, rooms);
    }
    slots_place(store, rooms);
    staging_place(store, rooms);
    small_place(store, rooms);
}

/* --------------------------------------------------------------------------------- allocation */

static const char *const names[NCCL_N_MEMORIES] = {
    [NCCL_MEMORY_PARAMS] = "parameter shards",
    [NCCL_MEMORY_MASTERS] = "master parameters",
    [NCCL_MEMORY_UNSHARDED] = "slots of unsharded parameters",
    [NCCL_MEMORY_SLOTS] = "gradient slots",
    [NCCL_MEMORY_SUMS] = "sums of gradients",
    [NCCL_MEMORY_CONTRIBUTION] = "staging of gradients",
    [NCCL_MEMORY_RECEIVED] = "staging of received gradients",
    [NCCL_MEMORY_TIES] = "tied parameters",
    [NCCL_MEMORY_SMALL] = "the numbers of steps",
    [NCCL_MEMORY_PINNED] = "the numbers of steps on the host",
};

static int32_t memory_make(struct store *store, enum nccl_memory_kind kind, uint64_t n_bytes,
                           struct hsdp_error *reterr)
{
    struct gpu_memory *memory = &store->memories[kind];
    int32_t where = kind == NCCL_MEMORY_PINNED ? HSDP_MEMORY_PINNED : HSDP_MEMORY_DEVICE;
    int32_t status = gpu_alloc(store->gpu, n_bytes, where, names[kind], memory, reterr);

    if (status != HSDP_OK || n_bytes == 0) {
        return status;
    }
    if (kind == NCCL_MEMORY_PINNED) {
        memset(memory->base, 0, n_bytes);
        return HSDP_OK;
    }
    return gpu_fill(store->gpu, memory->base, 0, n_bytes, store->gpu->reduce_stream, reterr);
}

/* On the reduce stream: whose weights are added up, in order. Pageable memory is read at once. */
static int32_t weighed_write(struct store *store, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = store->plan->mesh;
    uint32_t ranks[NCCL_STORE_MAX_RANKS];

    for (uint32_t i = 0; i < mesh->n_data_ranks; i++) {
        ranks[i] = mesh_peer(mesh, mesh->data_dims, store->rank, i);
    }
    store->step.args.n_weighed = mesh->n_data_ranks;
    return gpu_copy(store->gpu, (void *)store->step.args.weighed, ranks,
                    mesh->n_data_ranks * sizeof(*ranks), store->gpu->reduce_stream, reterr);
}

int32_t nccl_memory_make(struct store *store, struct hsdp_error *reterr)
{
    struct room rooms[NCCL_N_MEMORIES] = {{NULL, 0}};
    int32_t status = HSDP_OK;

    all_place(store, rooms); /* adds up */
    for (int kind = 0; kind < NCCL_N_MEMORIES && status == HSDP_OK; kind++) {
        status = memory_make(store, (enum nccl_memory_kind)kind, rooms[kind].n_bytes, reterr);
        rooms[kind] = (struct room){store->memories[kind].base, 0};
    }
    if (status != HSDP_OK) {
        return status;
    }
    all_place(store, rooms);
    return weighed_write(store, reterr);
}

void nccl_memory_free(struct store *store)
{
    for (int kind = 0; kind < NCCL_N_MEMORIES; kind++) {
        gpu_free(store->gpu, &store->memories[kind]);
    }
}

void nccl_memory_count(const struct store *store, struct hsdp_model_info *ret_bytes)
{
    const struct gpu_memory *memories = store->memories;

    ret_bytes->param_bytes = memories[NCCL_MEMORY_PARAMS].n_bytes;
    ret_bytes->master_bytes = memories[NCCL_MEMORY_MASTERS].n_bytes;
    ret_bytes->unsharded_bytes = memories[NCCL_MEMORY_UNSHARDED].n_bytes;
    ret_bytes->grad_slot_bytes = memories[NCCL_MEMORY_SLOTS].n_bytes;
    ret_bytes->grad_bytes =
        memories[NCCL_MEMORY_SUMS].n_bytes + memories[NCCL_MEMORY_CONTRIBUTION].n_bytes +
        memories[NCCL_MEMORY_RECEIVED].n_bytes + memories[NCCL_MEMORY_TIES].n_bytes;
}
