/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of groups, for plugin/comm only. */
#ifndef COMM_GROUP_INTERNAL_H
#define COMM_GROUP_INTERNAL_H

#include <stdalign.h>

#include "comm/group.h"
#include "comm/job_internal.h"
#include "comm/values.h"

#define GROUP_MAX_RANKS LAUNCH_MAX_RANKS

/*
 * Each member of a communicator owns one area of shared memory, writes it, and reads those of the
 * others. A collective goes in rounds: in each, every member posts a piece of what it gives, then
 * reads what it needs of the pieces of all. There are two pieces, of odd and even rounds. Sends go
 * over lanes, one per destination, chunk by chunk.
 */
#define ROUND_BYTES (128u * 1024u)
#define CHUNK_BYTES (32u * 1024u)

/* What a member says about its collective, compared before any of its data is touched. */
struct coll_header {
    int32_t kind;
    int32_t reduce;
    uint32_t root;
    struct element element;
    uint64_t n_elems;
    uint64_t send_elems[GROUP_MAX_RANKS]; /* of kinds that have them */
    uint64_t recv_elems[GROUP_MAX_RANKS];
};

struct chunk_header {
    struct element element;
    uint64_t n_elems; /* of the whole message */
};

/* One member's side of its traffic with one other. */
struct lane {
    alignas(64) _Atomic uint64_t n_sent;        /* chunks to the other */
    alignas(64) _Atomic uint64_t n_taken;       /* chunks from the other */
    alignas(64) struct chunk_header headers[2]; /* of odd and even chunks to the other */
};

struct area {
    alignas(64) _Atomic uint64_t n_posted; /* rounds */
    alignas(64) struct coll_header headers[2];
    alignas(64) uint8_t pieces[2][ROUND_BYTES];
    struct lane lanes[GROUP_MAX_RANKS]; /* by the other's index */
    uint8_t chunks[];                   /* [member][2][CHUNK_BYTES] */
};

/* What ranks have agreed to make: one for each name and set of members, and once more for each
 * time that a rank asks for it again. Every rank knows all of them. */
struct communicator {
    struct communicator *next; /* oldest first */
    uint64_t members;          /* mask of world ranks */
    uint64_t name_hash;
    uint64_t timeout_ms; /* 0 = the job's */
    uint32_t first_rank; /* the one that asked for it first */
    uint32_t instance;
    uint32_t n_ranks;
    bool is_taken;                       /* a group of this rank uses it, or has */
    struct area *areas[GROUP_MAX_RANKS]; /* mapped where this rank is a member; else NULL */
};

enum op_phase {
    OP_QUEUED, /* others of its kind go first */
    OP_POST,
    OP_READ,
    OP_DONE,
};

/* One collective, or one side of a send. */
struct op {
    struct op *next; /* in its queue */
    struct coll_start *start;
    struct coll_header header;
    const uint8_t *input;
    uint8_t *output;
    uint64_t timeout_ms;
    uint64_t round;    /* rounds or chunks behind it */
    uint64_t n_rounds; /* known once all headers are */
    uint64_t checked;  /* members whose header has been compared */
    enum op_phase phase;
    uint64_t record;
    struct wait wait;
    struct wait_entry entry; /* of a send or receive */
};

struct op_queue {
    struct op *first;
    struct op *last;
    uint64_t n_begun;  /* operations */
    uint64_t n_rounds; /* rounds or chunks behind it, of all its operations */
};

/* What one call of group_start has begun. */
struct coll_start {
    struct work work; /* first: the queue hands it back */
    struct coll_start *next;
    struct hsdp_group *group;
    uint32_t n_ops;
    uint32_t n_left;
    struct op ops[];
};

struct hsdp_group {
    struct hsdp_group *next; /* in the job's list */
    struct hsdp_job *job;
    struct communicator *communicator; /* NULL before connect */
    char *name;
    uint64_t members;
    uint64_t name_hash;
    uint64_t timeout_ms;
    uint32_t instance;
    uint32_t n_ranks;
    uint32_t index;
    uint32_t ranks[GROUP_MAX_RANKS];
    bool is_connected;
    struct coll_start *starts;
    struct nccl_group *nccl; /* of a job of a device: its communicator; NULL of a group of one */
    struct nccl_coll *colls; /* likewise: what it has started */
    struct op_queue collectives;
    struct op_queue sends[GROUP_MAX_RANKS];
    struct op_queue receives[GROUP_MAX_RANKS];
    struct wait_entry entries[GROUP_MAX_RANKS]; /* of the first collective */
    uint64_t n_bytes_sent;
    uint64_t n_bytes_received;
    _Atomic uint64_t *traffic;
    _Atomic uint64_t *n_operations;
};

/* group.c */
void group_free(struct hsdp_group *group);
void group_write_ledger(const struct hsdp_group *group, struct text *text);

/* communicator.c */
void communicators_free(struct hsdp_job *job);
/** Lets go of the areas of a communicator that this rank no longer uses. */
void communicator_unmap(struct communicator *communicator);

/* coll_check.c: takes in a caller's spec, or says what is wrong with it. */
int32_t op_init(struct op *op, const struct hsdp_group *group, const struct hsdp_coll_spec *spec,
                struct hsdp_error *reterr);
const char *coll_name(int32_t kind);
bool coll_is_send(int32_t kind);
bool coll_is_receive(int32_t kind);
bool coll_reduces(int32_t kind);

/* coll_match.c: compares another member's header with ours. */
int32_t header_match(const struct hsdp_group *group, const struct op *op, uint32_t member,
                     const struct coll_header *other, struct hsdp_error *reterr);
/** What all members of a group say alike of a collective, in words; they differ where it does. */
void header_text(const struct hsdp_group *group, const struct coll_header *header, char *ret_text,
                 size_t max_bytes);
int32_t message_match(const struct hsdp_group *group, const struct op *op, uint32_t member,
                      const struct chunk_header *other, struct hsdp_error *reterr);

/* coll_move.c: the pieces of a round. */
uint64_t op_n_rounds(const struct hsdp_group *group, const struct op *op, int slot);
void piece_post(struct hsdp_group *group, const struct op *op, uint8_t *piece);
void pieces_read(struct hsdp_group *group, const struct op *op, int slot);
/** A group of one: what goes in comes out. */
void op_copy_alone(const struct op *op);

/* coll.c, lane.c: go on as far as they can. */
int32_t collectives_progress(struct hsdp_group *group, struct hsdp_error *reterr);
int32_t lanes_progress(struct hsdp_group *group, struct hsdp_error *reterr);

/* coll.c */
void op_begin(struct hsdp_group *group, struct op_queue *queue, struct op *op);
void op_end(struct hsdp_group *group, struct op_queue *queue, struct op *op);
void traffic_count(struct hsdp_group *group, uint64_t n_sent, uint64_t n_received);

static inline struct area *group_area(const struct hsdp_group *group, uint32_t member)
{
    return group->communicator->areas[member];
}

#endif /* COMM_GROUP_INTERNAL_H */
