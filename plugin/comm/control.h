/* SPDX-License-Identifier: Apache-2.0 */
/* The control block: what the ranks of a node share besides data. */
#ifndef COMM_CONTROL_H
#define COMM_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/failure.h"
#include "comm/flight.h"
#include "comm/job.h"
#include "comm/position.h"
#include "comm/standstill.h"

#define CONTROL_LINE_BYTES 64

/* What a rank says in an exchange. */
struct mailbox {
    char operation[32];
    uint32_t n_bytes;
    uint32_t is_opinion; /* how something went: no bytes where it went well, so ranks may differ */
    uint8_t bytes[JOB_EXCHANGE_MAX_BYTES];
};

/*
 * One rank's part: but for the bell, written by that rank alone. The ranks of a node stand in the
 * order of their world ranks, and have an index there; on one host that is the world rank itself.
 */
struct control_rank {
    _Alignas(CONTROL_LINE_BYTES) _Atomic uint32_t bell; /* raised to wake the rank; a futex */
    _Atomic uint64_t sleeps_for; /* ranks of this node whose signals are to wake it */
    _Alignas(CONTROL_LINE_BYTES) _Atomic uint64_t n_exchanges; /* mailboxes filled */
    _Atomic uint32_t has_closed;                               /* 1 = its close has succeeded */
    _Atomic uint32_t has_left;                                 /* 1 = it destroyed its job */
    uint32_t pid;
    uint32_t rank;                /* its world rank */
    _Atomic uint32_t has_written; /* 1 = its flight file is there */
    _Atomic uint64_t beat;        /* of its watchdog: goes up all the time */
    struct position position;
    _Atomic uint64_t expired_exchange; /* it waits for other nodes, and its deadline has passed */
    _Atomic uint64_t expired_after_ns; /* written before */
    struct standstill_board stand;     /* what it waits for */
};

/* The same numbers from every rank. */
struct control_size {
    uint32_t n_ranks; /* of this node */
    uint32_t world_ranks;
    uint64_t n_records; /* of the flight recorder of each rank */
};

/* Behind it lie the mailboxes of the whole world, and then the flight recorders of the node. */
struct control {
    uint32_t n_ranks; /* this and the next two: struct control_size */
    uint32_t world_ranks;
    uint64_t n_records;
    struct failure failure;
    _Atomic uint64_t n_boards;   /* exchanges for which all other nodes' mailboxes are filled */
    struct control_rank ranks[]; /* n_ranks */
};

uint64_t control_bytes(const struct control_size *size);

/** Maps a control block from its file; fd -1 = one that nobody shares. */
int32_t control_map(int fd, const struct control_size *size, struct control **ret_control,
                    struct hsdp_error *reterr);
void control_unmap(struct control *control);

/** A world rank's mailbox of an exchange. Odd and even ones: a slow reader is one behind. */
struct mailbox *control_mailbox(struct control *control, uint64_t exchange, uint32_t rank);

/** The flight recorder of a rank of this node, by its index. */
struct flight control_flight(struct control *control, uint32_t index);

/** Wakes a rank of this node, by its index, whether it sleeps or is about to. */
void control_ring(struct control *control, uint32_t index);
void control_ring_all(struct control *control);

/** Sleeps until the bell is no longer `seen`, at most ms. */
void control_sleep(struct control *control, uint32_t index, uint32_t seen, int ms);

#endif /* COMM_CONTROL_H */
