/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the ranks of a communicator share: seats, and a lane for each ordered pair. */
#ifndef DOUBLES_NCCL_WIRE_H
#define DOUBLES_NCCL_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/nccl.h"
#include "device/cuda.h"

/*
 * The memory has no name, so nothing is left of it when its processes have ended, however they
 * did. A bell is rung whenever something that its owner may wait for has changed.
 */

struct reduction;

#define WIRE_SLOTS      4u
#define WIRE_SLOT_BYTES 16384u

/* What a message is part of; both sides have the same, or never go on. */
struct wire_note {
    uint32_t kind;
    int32_t dtype;
    int32_t op;
    uint32_t root;
    uint64_t n_bytes;
    uint64_t sequence;
};

/* One rank's. */
struct wire_seat {
    _Atomic uint32_t bell;
    _Atomic uint32_t n_sleepers;
    _Atomic uint32_t has_come;
    _Atomic uint32_t has_left;
    struct cu_uuid device;
    _Atomic uint32_t n_splits; /* that it has come to, with these */
    int32_t color;
    int32_t key;
    _Atomic uint32_t n_ids; /* splits for which it has opened a meeting */
    struct nccl_unique_id id;
};

struct wire_slot {
    struct wire_note note;
    uint64_t n_bytes;
};

struct wire_lane {
    _Atomic uint64_t n_pushed;
    uint64_t reserved[7];
    _Atomic uint64_t n_popped;
    uint64_t reserved_too[7];
    struct wire_slot slots[WIRE_SLOTS];
    unsigned char data[WIRE_SLOTS][WIRE_SLOT_BYTES];
};

/* The mapping of one rank. */
struct wire {
    struct wire_seat *seats; /* NULL = not mapped */
    struct wire_lane *lanes; /* n_ranks x n_ranks, the sender's rows */
    uint64_t n_bytes;
    uint32_t n_ranks;
    uint32_t rank;
};

/** Makes the memory of so many ranks; -1 with errno. */
int wire_create(uint32_t n_ranks);
/** Maps it, and closes the descriptor; false with errno. */
bool wire_map(struct wire *ret, int fd, uint32_t n_ranks, uint32_t rank);
void wire_unmap(struct wire *wire);

/** Where the bell of this rank is; to be read before one looks for what one waits for. */
uint32_t wire_bell(const struct wire *wire);
/** Sleeps until the bell is elsewhere than where it was, or for a moment. */
void wire_sleep(const struct wire *wire, uint32_t bell);
void wire_ring(const struct wire *wire, uint32_t rank);
void wire_ring_all(const struct wire *wire);

/* A message, or a part of one: the bytes of one side, in slots of the lane. */
struct transfer {
    unsigned char *data;
    uint64_t n_bytes;
    uint64_t n_moved;
    uint32_t peer;
    bool is_send;
    bool is_odd;                       /* the peer does something else */
    const struct transfer *after;      /* of the same lane; NULL = it is the first */
    const struct reduction *reduction; /* of a receiver; NULL = what comes is the result */
    const unsigned char *own;          /* else what comes is combined with this */
    struct wire_note note;
};

/** Moves what can be moved at once; false = nothing. */
bool transfer_step(const struct wire *wire, struct transfer *transfer);

#endif /* DOUBLES_NCCL_WIRE_H */
