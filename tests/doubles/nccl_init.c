/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: how communicators come about, by an id or as a part of another one. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "doubles/nccl_double.h"

/* What a communicator takes of the device: some for itself, some for each peer. */
#define OWN_BYTES      (UINT64_C(2) << 20)
#define PER_PEER_BYTES (UINT64_C(256) << 10)

enum { SEAT_EMPTY, SEAT_TAKEN, SEAT_LEFT };

/* ---------------------------------------------------------------------------- the device */

/* Which device a context is of can be asked of its memory only. */
static cu_result device_find(cu_address memory, struct cu_uuid *ret)
{
    int32_t ordinal;
    cu_device device;
    cu_result result = cuPointerGetAttribute(&ordinal, CU_POINTER_ORDINAL, memory);

    if (result == CU_OK) {
        result = cuDeviceGet(&device, ordinal);
    }
    return result == CU_OK ? cuDeviceGetUuid(ret, device) : result;
}

static nccl_result memory_take(struct ncclComm *comm)
{
    uint64_t n_bytes = OWN_BYTES + comm->n_ranks * PER_PEER_BYTES;
    cu_context former;
    cu_result result = cuCtxPushCurrent_v2(comm->context);

    if (result != CU_OK) {
        return nccl_fail(NCCL_CUDA_ERROR, "the context of a communicator is gone (%d)", result);
    }
    result = cuMemAlloc_v2(&comm->memory, n_bytes);
    if (result == CU_OK) {
        result = device_find(comm->memory, &comm->device);
    }
    cuCtxPopCurrent_v2(&former);
    return result == CU_OK ? NCCL_OK
                           : nccl_fail(NCCL_CUDA_ERROR, "no %llu bytes of the device (%d)",
                                       (unsigned long long)n_bytes, result);
}

/* ------------------------------------------------------------------------------ the seats */

/* Two ranks cannot share a device: each of them says so, and the others see them leave. */
static nccl_result devices_compare(const struct ncclComm *comm)
{
    const struct wire_seat *seats = comm->wire.seats;

    if (double_fault("duplicate_gpu", NULL)) {
        return nccl_fail(NCCL_BAD_USAGE, "Duplicate GPU detected : rank %u and rank %u", comm->rank,
                         (comm->rank + 1) % comm->n_ranks);
    }
    for (uint32_t rank = 0; rank < comm->n_ranks; rank++) {
        if (rank != comm->rank &&
            memcmp(&seats[rank].device, &comm->device, sizeof(comm->device)) == 0) {
            return nccl_fail(NCCL_BAD_USAGE, "Duplicate GPU detected : rank %u and rank %u",
                             comm->rank, rank);
        }
    }
    return NCCL_OK;
}

static nccl_result seats_await(const struct ncclComm *comm)
{
    uint32_t rank = 0;

    while (rank < comm->n_ranks) {
        uint32_t bell = wire_bell(&comm->wire);
        uint32_t has_come = atomic_load(&comm->wire.seats[rank].has_come);

        if (has_come == SEAT_LEFT) {
            return nccl_fail(NCCL_REMOTE_ERROR, "rank %u has left while ranks met", rank);
        }
        if (comm_is_stopped(comm)) {
            return nccl_fail(NCCL_INTERNAL_ERROR, "aborted while ranks met");
        }
        if (has_come == SEAT_TAKEN) {
            rank++;
        } else {
            wire_sleep(&comm->wire, bell);
        }
    }
    return NCCL_OK;
}

static nccl_result seats_take(struct ncclComm *comm)
{
    nccl_result result = devices_compare(comm);

    atomic_store(&comm->wire.seats[comm->rank].has_come,
                 result == NCCL_OK ? SEAT_TAKEN : SEAT_LEFT);
    wire_ring_all(&comm->wire);
    return result == NCCL_OK ? seats_await(comm) : result;
}

nccl_result init_run(struct ncclComm *comm, const struct nccl_unique_id *id)
{
    const struct timespec pause = {0, 1000000};
    struct meeting_guest guest = {.n_ranks = comm->n_ranks, .rank = comm->rank};
    nccl_result result;
    int fd = -1;

    while (double_fault("init_hangs", NULL) && !comm_is_stopped(comm)) {
        nanosleep(&pause, NULL);
    }
    result = memory_take(comm);
    if (result != NCCL_OK) {
        return result;
    }
    guest.device = comm->device;
    result = meeting_join(id, &guest, comm, &fd);
    if (result != NCCL_OK) {
        return result;
    }
    if (!wire_map(&comm->wire, fd, comm->n_ranks, comm->rank)) {
        return nccl_fail(NCCL_SYSTEM_ERROR, "the shared memory cannot be mapped");
    }
    atomic_store(&comm->is_mapped, true);
    return seats_take(comm);
}

/* ------------------------------------------------------------------------------ splitting */

/* The places of the new communicator: ranks of the parent, in its order. */
struct part {
    uint32_t *ranks;
    uint32_t n_ranks;
    uint32_t rank; /* of this process */
};

/* Waits for all ranks of the parent to come to a split, and then has copied what they said. */
static nccl_result split_meet(struct ncclComm *parent, uint32_t n_splits)
{
    const struct wire *wire = &parent->wire;
    uint32_t rank = 0;

    while (rank < parent->n_ranks) {
        uint32_t bell = wire_bell(wire);

        if (comm_is_stopped(parent) && !parent->is_revoked) {
            return nccl_fail(NCCL_INTERNAL_ERROR, "aborted while ranks met for a split");
        }
        if (atomic_load(&wire->seats[rank].n_splits) >= n_splits) {
            rank++;
        } else {
            wire_sleep(wire, bell);
        }
    }
    return NCCL_OK;
}

static void split_say(struct ncclComm *parent, const int32_t color_key[2])
{
    struct wire_seat *seat = &parent->wire.seats[parent->rank];

    seat->color = color_key[0];
    seat->key = color_key[1];
    atomic_fetch_add(&seat->n_splits, 1);
    wire_ring_all(&parent->wire);
}

/* Sorted by key, and by rank where keys are equal. */
static void part_find(const struct ncclComm *parent, int32_t color, struct part *ret)
{
    const struct wire_seat *seats = parent->wire.seats;

    *ret = (struct part){calloc(parent->n_ranks, sizeof(uint32_t)), 0, 0};
    if (ret->ranks == NULL) {
        nccl_die("no memory for a split");
    }
    for (uint32_t rank = 0; rank < parent->n_ranks; rank++) {
        uint32_t place = ret->n_ranks;

        if (seats[rank].color != color) {
            continue;
        }
        while (place > 0 && seats[ret->ranks[place - 1]].key > seats[rank].key) {
            ret->ranks[place] = ret->ranks[place - 1];
            place--;
        }
        ret->ranks[place] = rank;
        ret->n_ranks++;
    }
    while (ret->n_ranks > 0 && ret->ranks[ret->rank] != parent->rank) {
        ret->rank++;
    }
}

/* The first of a part opens a meeting for it. */
static nccl_result part_id(struct ncclComm *parent, const struct part *part, uint32_t n_splits,
                           struct nccl_unique_id *ret_id)
{
    struct wire_seat *leader = &parent->wire.seats[part->ranks[0]];

    if (part->rank == 0) {
        nccl_result result = meeting_open(&leader->id);

        if (result != NCCL_OK) {
            return result;
        }
        atomic_store(&leader->n_ids, n_splits);
        wire_ring_all(&parent->wire);
    }
    for (;;) {
        uint32_t bell = wire_bell(&parent->wire);

        if (atomic_load(&leader->n_ids) >= n_splits) {
            break;
        }
        if (comm_is_stopped(parent) && !parent->is_revoked) {
            return nccl_fail(NCCL_INTERNAL_ERROR, "aborted while ranks met for a split");
        }
        wire_sleep(&parent->wire, bell);
    }
    *ret_id = leader->id;
    return NCCL_OK;
}

static nccl_result part_open(struct ncclComm *parent, struct ncclComm *child,
                             const struct part *part, uint32_t n_splits)
{
    struct nccl_unique_id id;
    nccl_result result = part_id(parent, part, n_splits, &id);

    if (result != NCCL_OK) {
        return result;
    }
    child->n_ranks = part->n_ranks;
    child->rank = part->rank;
    return init_run(child, &id);
}

nccl_result init_run_split(struct ncclComm *child, const int32_t color_key[2],
                           struct ncclComm **ret_comm)
{
    struct ncclComm *parent = child->parent;
    uint32_t n_said = 2 * parent->n_splits + 1;
    struct part part;
    nccl_result result;

    parent->n_splits++;
    split_say(parent, color_key);
    result = split_meet(parent, n_said);
    if (result != NCCL_OK) {
        return result;
    }
    part_find(parent, color_key[0], &part);
    /* Once all have read what all have said, all may say something else. */
    atomic_fetch_add(&parent->wire.seats[parent->rank].n_splits, 1);
    wire_ring_all(&parent->wire);
    result = split_meet(parent, n_said + 1);
    if (result == NCCL_OK && color_key[0] != NCCL_SPLIT_NO_COLOR) {
        result = part_open(parent, child, &part, parent->n_splits);
    }
    free(part.ranks);
    if (result == NCCL_OK && color_key[0] != NCCL_SPLIT_NO_COLOR) {
        child->parent = NULL;
        atomic_store(&child->state, NCCL_OK);
        *ret_comm = child;
    }
    return result;
}
