/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the leaders of nodes: what they hold, and reading them without trusting them. */
#ifndef COMM_NODES_MESSAGE_H
#define COMM_NODES_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/control.h"
#include "comm/launch.h"
#include "comm/wire.h"

/*
 * Carried by net/: authenticated, whole, in order; of the root (rank 0) and one other leader.
 *
 *     leader  JOIN       once: who it is, and what all ranks must agree on
 *     leader  RANKS      whenever more ranks of its node have come
 *     both    FAILED     how the meeting, or later the job, has failed
 *     leader  EXPIRED    a deadline has passed on its node: whose fault is it?
 *     root    WELCOME    all ranks of the world have come
 *     both    BOARD      the mailboxes of an exchange: of one node, and of the whole world
 *     leader  DONE       it has the board of the farewell
 *     root    PROBE      what are your ranks doing that have not come to this exchange?
 *     leader  POSITIONS  the answer
 *
 * Numbers are little endian, as on every machine that this is built for.
 */
enum nodes_kind {
    NODES_JOIN = 1,
    NODES_RANKS,
    NODES_FAILED,
    NODES_EXPIRED,
    NODES_WELCOME,
    NODES_BOARD,
    NODES_DONE,
    NODES_PROBE,
    NODES_POSITIONS,
};

#define NODES_HOST_BYTES 64u

struct nodes_join {
    struct wire_hello hello; /* of the leader */
    char host[NODES_HOST_BYTES];
};

/* RANKS: an array of them. */
struct nodes_rank {
    uint32_t rank;
    uint32_t pid;
};

struct nodes_failed {
    uint32_t reporter;
    uint32_t reserved;
    struct hsdp_error error;
};

/* EXPIRED, PROBE; an exchange of 0 is the meeting. */
struct nodes_expired {
    uint64_t exchange;
    uint64_t waited_ns;
    uint32_t rank;
    uint32_t reserved;
    char operation[32];
};

#define NODES_TEXT_BYTES 320u

/* POSITIONS: of the ranks that have not come, or of those whom they wait for in turn. */
struct nodes_positions {
    uint32_t n_ranks;
    uint32_t ranks[LAUNCH_MAX_RANKS];
    char text[NODES_TEXT_BYTES]; /* "rank 5, which is stopped" */
};

/* BOARD: its number, then runs of ranks that say the same. */
struct nodes_run {
    uint32_t first;
    uint32_t n_ranks;
    uint32_t n_bytes; /* that follow */
    uint32_t is_opinion;
    char operation[32];
};

/** The bytes of an array of whole elements; false when they are none. */
bool nodes_array(uint64_t n_bytes, uint64_t element_bytes, uint64_t *ret_n);

/** Takes a FAILED in; texts end then. False when it is none. */
bool nodes_failed_read(const uint8_t *bytes, uint64_t n_bytes, struct nodes_failed *ret);

/** The most that a message of a world holds. */
uint64_t nodes_max_bytes(uint32_t world_ranks);

/* A message that is being made. */
struct nodes_buffer {
    uint8_t *bytes; /* owned */
    uint64_t n_bytes;
    uint64_t capacity_bytes;
    bool is_failed; /* no memory */
};
void nodes_buffer_add(struct nodes_buffer *buffer, const void *bytes, uint64_t n_bytes);
void nodes_buffer_fini(struct nodes_buffer *buffer);

/** Adds the mailboxes of n ranks, ascending, of an exchange. */
void board_write(struct nodes_buffer *buffer, struct control *control, uint64_t exchange,
                 const uint32_t *ranks, uint32_t n);

/**
 * Puts the mailboxes of a BOARD onto the board, those of ranks of which may_write says yes; false
 * when the message is not whole, or tells of a rank beyond the world. *ret_n counts ranks.
 */
bool board_read(struct control *control, const uint8_t *bytes, uint64_t n_bytes,
                bool (*may_write)(void *user, uint32_t rank), void *user, uint32_t *ret_n);

#endif /* COMM_NODES_MESSAGE_H */
