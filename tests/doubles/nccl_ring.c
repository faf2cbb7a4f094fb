/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: collectives, as rings on the lanes between ranks. */
#include <stdlib.h>
#include <string.h>

#include "doubles/nccl_double.h"

/* One collective of one rank, with its buffers where the host can touch them. */
struct ring {
    const struct operation *operation;
    const struct wire *wire;
    const unsigned char *send;
    unsigned char *recv;
    unsigned char *scratch[2]; /* each for the greatest block */
    unsigned char *scaled;     /* a copy of what is sent, times the factor; NULL = none */
    uint64_t elem_bytes;
    uint32_t n;
    uint32_t rank;
};

/* Where block `index` lies, in bytes: blocks are as equal as they can be. */
struct block {
    uint64_t begin;
    uint64_t n_bytes;
};

static uint64_t operation_bytes(const struct operation *operation)
{
    return operation->n_elems * dtype_size(operation->reduction.dtype);
}

/* Moves all transfers at once, whichever can go on; false if the communicator was stopped. */
static bool transfers_run(const struct ncclComm *comm, struct transfer *transfers, uint32_t n)
{
    const struct wire *wire = &comm->wire;

    for (;;) {
        uint32_t bell = wire_bell(wire);
        uint32_t n_done = 0;
        bool has_moved = false;

        if (comm_is_stopped(comm)) {
            return false;
        }
        for (uint32_t i = 0; i < n; i++) {
            has_moved = transfer_step(wire, &transfers[i]) || has_moved;
            n_done += transfers[i].n_moved == transfers[i].n_bytes;
        }
        if (n_done == n) {
            return true;
        }
        if (!has_moved) {
            wire_sleep(wire, bell);
        }
    }
}

static struct wire_note operation_note(const struct operation *operation)
{
    return (struct wire_note){
        .kind = operation->kind,
        .dtype = operation->reduction.dtype,
        .op = operation->reduction.op,
        .root = operation->root,
        .n_bytes = operation_bytes(operation),
        .sequence = operation->sequence,
    };
}

/* ------------------------------------------------------------------------ steps of a ring */

static struct block ring_block(const struct ring *ring, uint64_t n_elems, uint32_t index)
{
    uint64_t begin = n_elems * index / ring->n;
    uint64_t end = n_elems * (index + 1) / ring->n;

    return (struct block){begin * ring->elem_bytes, (end - begin) * ring->elem_bytes};
}

static struct transfer ring_send(const struct ring *ring, const unsigned char *data,
                                 uint64_t n_bytes)
{
    return (struct transfer){
        .data = (unsigned char *)data,
        .n_bytes = n_bytes,
        .peer = (ring->rank + 1) % ring->n,
        .is_send = true,
        .note = operation_note(ring->operation),
    };
}

/* own = NULL: what comes is taken as it is. */
static struct transfer ring_recv(const struct ring *ring, unsigned char *data, uint64_t n_bytes,
                                 const unsigned char *own)
{
    return (struct transfer){
        .data = data,
        .n_bytes = n_bytes,
        .peer = (ring->rank + ring->n - 1) % ring->n,
        .reduction = own != NULL ? &ring->operation->reduction : NULL,
        .own = own,
        .note = operation_note(ring->operation),
    };
}

static bool ring_step(const struct ring *ring, const struct transfer *send,
                      const struct transfer *recv)
{
    struct transfer both[2] = {*send, *recv};

    return transfers_run(ring->operation->comm, both, 2);
}

/* n_elems in all; this rank's block goes to ret. */
static bool ring_reduce_scatter(const struct ring *ring, uint64_t n_elems, unsigned char *ret)
{
    const unsigned char *partial = NULL;

    for (uint32_t k = 0; k + 1 < ring->n; k++) {
        struct block out = ring_block(ring, n_elems, (ring->rank + 2 * ring->n - 1 - k) % ring->n);
        struct block in = ring_block(ring, n_elems, (ring->rank + 2 * ring->n - 2 - k) % ring->n);
        unsigned char *place = k + 2 < ring->n ? ring->scratch[k % 2] : ret;
        struct transfer send =
            ring_send(ring, partial != NULL ? partial : ring->send + out.begin, out.n_bytes);
        struct transfer recv = ring_recv(ring, place, in.n_bytes, ring->send + in.begin);

        if (!ring_step(ring, &send, &recv)) {
            return false;
        }
        partial = place;
    }
    if (ring->n == 1) {
        memmove(ret, ring->send, n_elems * ring->elem_bytes);
    }
    return true;
}

/* Every rank's block is in recv, at its place. */
static bool ring_all_gather(const struct ring *ring, uint64_t n_elems)
{
    for (uint32_t k = 0; k + 1 < ring->n; k++) {
        struct block out = ring_block(ring, n_elems, (ring->rank + ring->n - k) % ring->n);
        struct block in = ring_block(ring, n_elems, (ring->rank + 2 * ring->n - 1 - k) % ring->n);
        struct transfer send = ring_send(ring, ring->recv + out.begin, out.n_bytes);
        struct transfer recv = ring_recv(ring, ring->recv + in.begin, in.n_bytes, NULL);

        if (!ring_step(ring, &send, &recv)) {
            return false;
        }
    }
    return true;
}

/* From the root on, in the order of ranks. */
static bool ring_broadcast(const struct ring *ring, uint64_t n_bytes)
{
    uint32_t place = (ring->rank + ring->n - ring->operation->root) % ring->n;
    const struct ncclComm *comm = ring->operation->comm;

    if (place == 0) {
        memmove(ring->recv, ring->send, n_bytes);
    } else {
        struct transfer recv = ring_recv(ring, ring->recv, n_bytes, NULL);

        if (!transfers_run(comm, &recv, 1)) {
            return false;
        }
    }
    if (place + 1 < ring->n) {
        struct transfer send = ring_send(ring, ring->recv, n_bytes);

        return transfers_run(comm, &send, 1);
    }
    return true;
}

/* From the rank behind the root on, so that the root is the last. */
static bool ring_reduce(const struct ring *ring, uint64_t n_bytes)
{
    uint32_t place = (ring->rank + 2 * ring->n - ring->operation->root - 1) % ring->n;
    const struct ncclComm *comm = ring->operation->comm;
    bool is_root = ring->rank == ring->operation->root;
    const unsigned char *partial = ring->send;

    if (place > 0) {
        unsigned char *result = is_root ? ring->recv : ring->scratch[0];
        struct transfer recv = ring_recv(ring, result, n_bytes, ring->send);

        if (!transfers_run(comm, &recv, 1)) {
            return false;
        }
        partial = result;
    } else if (is_root) {
        memmove(ring->recv, ring->send, n_bytes);
    }
    if (!is_root) {
        struct transfer send = ring_send(ring, partial, n_bytes);

        return transfers_run(comm, &send, 1);
    }
    return true;
}

/* --------------------------------------------------------------------------- a collective */

/* What a rank sends, and what it gets, in elements. */
static uint64_t send_elems(const struct operation *operation)
{
    uint64_t n = operation->kind == OPERATION_REDUCE_SCATTER ? operation->comm->n_ranks : 1;

    return operation->n_elems * n;
}

static uint64_t recv_elems(const struct operation *operation)
{
    uint64_t n = operation->kind == OPERATION_ALL_GATHER ? operation->comm->n_ranks : 1;

    return operation->n_elems * n;
}

static void *bytes_alloc(uint64_t n_bytes)
{
    void *memory = malloc(n_bytes > 0 ? n_bytes : 1);

    if (memory == NULL) {
        nccl_die("no memory for %llu bytes of a collective", (unsigned long long)n_bytes);
    }
    return memory;
}

static void ring_init(struct ring *ret, const struct operation *operation)
{
    uint64_t elem_bytes = dtype_size(operation->reduction.dtype);
    bool is_reducing = operation->kind == OPERATION_ALL_REDUCE ||
                       operation->kind == OPERATION_REDUCE_SCATTER ||
                       operation->kind == OPERATION_REDUCE;
    bool sends = operation->kind != OPERATION_BROADCAST || operation->comm->rank == operation->root;
    bool receives = operation->kind != OPERATION_REDUCE || operation->comm->rank == operation->root;

    *ret = (struct ring){
        .operation = operation,
        .wire = &operation->comm->wire,
        .elem_bytes = elem_bytes,
        .n = operation->comm->n_ranks,
        .rank = operation->comm->rank,
    };
    if (sends) {
        ret->send = double_shadow(operation->send, send_elems(operation) * elem_bytes);
    }
    if (receives) {
        ret->recv = double_shadow(operation->recv, recv_elems(operation) * elem_bytes);
    }
    if (is_reducing) {
        ret->scratch[0] = bytes_alloc(operation->n_elems * elem_bytes);
        ret->scratch[1] = bytes_alloc(operation->n_elems * elem_bytes);
    }
    if (is_reducing && operation->reduction.is_scaled) {
        ret->scaled = bytes_alloc(send_elems(operation) * elem_bytes);
        reduction_scale(&operation->reduction, ret->scaled, ret->send, send_elems(operation));
        ret->send = ret->scaled;
    }
}

static void ring_fini(struct ring *ring)
{
    free(ring->scratch[0]);
    free(ring->scratch[1]);
    free(ring->scaled);
}

static bool ring_all_reduce(const struct ring *ring)
{
    uint64_t n_elems = ring->operation->n_elems;
    struct block own = ring_block(ring, n_elems, ring->rank);

    return ring_reduce_scatter(ring, n_elems, ring->recv + own.begin) &&
           ring_all_gather(ring, n_elems);
}

static bool ring_gather(const struct ring *ring)
{
    uint64_t n_bytes = operation_bytes(ring->operation);

    memmove(ring->recv + ring->rank * n_bytes, ring->send, n_bytes);
    return ring_all_gather(ring, recv_elems(ring->operation));
}

bool ring_run(const struct operation *operation)
{
    uint64_t n_bytes = operation_bytes(operation);
    struct ring ring;
    bool is_done;

    ring_init(&ring, operation);
    switch (operation->kind) {
    case OPERATION_ALL_REDUCE:
        is_done = ring_all_reduce(&ring);
        break;
    case OPERATION_ALL_GATHER:
        is_done = ring_gather(&ring);
        break;
    case OPERATION_REDUCE_SCATTER:
        is_done = ring_reduce_scatter(&ring, send_elems(operation), ring.recv);
        break;
    case OPERATION_BROADCAST:
        is_done = ring_broadcast(&ring, n_bytes);
        break;
    default:
        is_done = ring_reduce(&ring, n_bytes);
        break;
    }
    if (is_done && operation->reduction.is_mean && ring.recv != NULL) {
        reduction_divide(&operation->reduction, ring.recv, recv_elems(operation), ring.n);
    }
    ring_fini(&ring);
    return is_done;
}

/* --------------------------------------------------------------- sends, and receives, at once */

/* To oneself: the messages of both sides in the order of the calls. */
static void exchange_own(const struct operation *operations)
{
    const struct operation *recv = operations;

    for (const struct operation *send = operations; send != NULL; send = send->next) {
        if (send->kind != OPERATION_SEND || send->root != send->comm->rank) {
            continue;
        }
        while (recv->kind != OPERATION_RECV || recv->root != send->comm->rank) {
            recv = recv->next;
        }
        memmove(double_shadow(recv->recv, operation_bytes(recv)),
                double_shadow(send->send, operation_bytes(send)), operation_bytes(send));
        recv = recv->next;
    }
}

static struct transfer exchange_transfer(const struct operation *operation)
{
    bool is_send = operation->kind == OPERATION_SEND;
    uint64_t n_bytes = operation_bytes(operation);

    return (struct transfer){
        .data = double_shadow(is_send ? operation->send : operation->recv, n_bytes),
        .n_bytes = n_bytes,
        .peer = operation->root,
        .is_send = is_send,
        .note = {.kind = OPERATION_SEND, .n_bytes = n_bytes},
    };
}

bool exchange_run(const struct operation *operations)
{
    uint32_t n_max = 0;
    uint32_t n = 0;
    struct transfer *transfers;
    bool is_done;

    for (const struct operation *each = operations; each != NULL; each = each->next) {
        n_max++;
    }
    transfers = bytes_alloc(n_max * sizeof(*transfers));
    for (const struct operation *each = operations; each != NULL; each = each->next) {
        if (each->root == each->comm->rank) {
            continue;
        }
        transfers[n] = exchange_transfer(each);
        for (uint32_t i = n; i > 0 && transfers[n].after == NULL; i--) {
            if (transfers[i - 1].peer == transfers[n].peer &&
                transfers[i - 1].is_send == transfers[n].is_send) {
                transfers[n].after = &transfers[i - 1];
            }
        }
        n++;
    }
    exchange_own(operations);
    is_done = transfers_run(operations->comm, transfers, n);
    free(transfers);
    return is_done;
}
