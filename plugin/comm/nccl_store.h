/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: what lies where on a device, and what is ordered behind what. */
#ifndef COMM_NCCL_STORE_H
#define COMM_NCCL_STORE_H

#include "comm/nccl_engine.h"
#include "comm/offer_words.h"
#include "comm/transport.h"
#include "device/space.h"

/*
 * Every rank has on its device
 *
 *   resting      its parameter shards, in the compute dtype
 *   masters      its step shards, where they are not part of those
 *   unsharded    slots for whole buffers, where P spans more ranks than one; else the resting
 *                buffer is the whole one
 *   slots        whole gradients, where the plan has them
 *   sums         fp32: local ones, inner ones, those of the step; and late ones
 *   staging      a contribution in the wire dtype; and what comes in for it
 *
 * The device does things in the order of two streams, gathers of parameters on the one, everything
 * else on the other. Events order these with each other and with the host's:
 *
 *   a gather       behind the last publish, and behind the last reading of its slot (`released`)
 *   the host       reads unsharded parameters behind the ticket of the gather, which it orders;
 *                  writes into a slot behind the last reduction that has read it (`consumed`)
 *   a reduction    behind the host's writing into the slot (`handed`)
 *   a step         behind all gathers, and behind all reading of whole buffers that rest: from then
 *   and a publish  on resting parameters may be written
 *
 * An event is recorded again only when what has waited for it is issued: a stream waits for what an
 * event stood for when the wait was issued, and tasks are issued by another thread.
 *
 * Host-side marks (has_step and so on) say what will lie there once all tasks so far are through;
 * a task takes with it what they said when it was submitted.
 */

#define NCCL_STORE_MAX_RANKS OFFER_MAX_RANKS

/* The ranks of a group of a class, in slice order: comm index i holds slice i. */
struct nccl_ranks {
    uint32_t ranks[NCCL_STORE_MAX_RANKS];
    uint32_t n_ranks;
    uint32_t index;                         /* of this one */
    uint32_t places[NCCL_STORE_MAX_RANKS];  /* of each in the order of sums: the mesh's */
    uint32_t dim_sizes[HSDP_MESH_MAX_DIMS]; /* for the reduction tree, outermost first */
    uint32_t n_dims;
    char name[64];
    struct nccl_group *group;  /* NULL for one rank */
    _Atomic uint64_t *traffic; /* counters: payload bytes and operations; NULL for one rank */
    _Atomic uint64_t *operations;
};

/* One for each class: what units of one publish, no gather of another waits for. */
struct nccl_publish {
    struct nccl_task task; /* first */
    struct store *store;
    uint32_t class_index;
};

struct nccl_class {
    struct nccl_ranks gather;   /* P: unshard */
    struct nccl_ranks inner;    /* G */
    struct nccl_ranks later;    /* S\G */
    struct nccl_ranks replicas; /* R\S */
    struct nccl_ranks copies;   /* S\P: publish */
    struct nccl_ranks outer;    /* R\G, for counting: there is no communicator */
    struct nccl_publish publish;
    char reduce_name[64];  /* R, for errors */
    uint64_t n_reductions; /* submitted, in the same order on every rank: numbers them */
};

/* One all-gather of a unit. A unit has two, so that the use before need not be over yet. */
struct nccl_gather {
    struct nccl_task task; /* first */
    struct store *store;
    uint32_t unit;
    cu_event after;     /* the last reader of its slot; NULL = none */
    bool has_published; /* values that a publish has put there */
};

/* Gradients that came outside of the slot. */
struct nccl_late {
    struct gpu_memory memory; /* NULL until needed, unless it is planned */
    cu_event written;         /* by the last addition */
    bool has;
};

enum nccl_reduction_state {
    NCCL_REDUCTION_IDLE,
    NCCL_REDUCTION_QUEUED,    /* for its turn, and for its place among the gathers */
    NCCL_REDUCTION_SUBMITTED, /* the task tells */
};

/* One reduction; there is at most one per unit. */
struct nccl_reduction {
    struct nccl_task task; /* first */
    struct work waiting;   /* the ticket of one that is queued when it is handed over */
    struct store *store;
    struct nccl_reduction *next; /* in the queue */
    const uint64_t *turn;
    uint64_t position;
    uint64_t pass; /* the last one that the unit was handed over in */
    uint32_t unit;
    int32_t scope;
    enum nccl_reduction_state state;
    bool is_waiting; /* `waiting` is in the job's queue */
    bool is_absent;  /* nothing lies in the slot */
    /* Set when it is submitted: what lies there, */
    bool has_local;
    bool has_inner;
    bool has_step;
    bool is_staged;          /* by way of the inner sum */
    struct nccl_late *taken; /* and what has come late; NULL = nothing */
};

struct nccl_unit {
    uint8_t *resting[PLAN_MAX_BUFFERS];
    void *params[PLAN_MAX_BUFFERS]; /* unsharded */
    void *master[PLAN_MAX_BUFFERS];
    uint64_t step_offset[PLAN_MAX_BUFFERS]; /* of the step slice in the parameter shard, elements */
    uint8_t *grads;
    struct plan_accumulators sums;
    float *local;
    float *inner;
    float *step_grads;
    struct nccl_late late[2]; /* the next reduction's, and the one's that is handed over */
    uint32_t next_late;       /* which of them is the next's */
    struct nccl_gather gathers[2];
    uint32_t next_gather;
    struct nccl_reduction reduction;
    cu_event released; /* the last use has ended */
    cu_event handed;   /* the host has written the slot */
    cu_event consumed; /* the slot has been read */
    uint64_t pass;     /* the open one that holds it, from 1; 0 = none */
    uint64_t position; /* in it, from 1 */
    bool is_released;  /* `released` stands for something */
    bool is_read;      /* a whole buffer that rests has been, since it was published */
    bool has_local;
    bool has_inner;
    bool has_step;
    bool is_written; /* the master lies where publishing would copy it to */
};

/* What a rank brings to a step, and what all have brought: on the device and in pinned memory. */
struct nccl_step_record {
    struct gpu_step_part part;
    struct step_words words;
};

struct nccl_step {
    struct nccl_task task; /* first */
    struct store *store;
    struct gpu_step_args args;
    struct nccl_step_record *device; /* n_world records, then this rank's */
    struct nccl_step_record *host;   /* likewise, pinned */
    struct step_words *words;        /* n_world: as the ranks have brought them, with their norms */
};

/* A task of calls that wait for it: offers and ties. */
struct nccl_cold {
    struct nccl_task task; /* first */
    struct store *store;
    void *call; /* whose it is */
};

/* Ranks that hold copies of the same parameters on several stages. */
struct nccl_tie_group {
    uint32_t ranks[NCCL_STORE_MAX_RANKS];
    uint32_t n_ranks;
    struct nccl_group *group;
};

enum nccl_memory_kind {
    NCCL_MEMORY_PARAMS,
    NCCL_MEMORY_MASTERS,
    NCCL_MEMORY_UNSHARDED,
    NCCL_MEMORY_SLOTS,
    NCCL_MEMORY_SUMS,
    NCCL_MEMORY_CONTRIBUTION, /* staging */
    NCCL_MEMORY_RECEIVED,     /* likewise */
    NCCL_MEMORY_TIES,
    NCCL_MEMORY_SMALL,  /* records of the step, norm, factor, stages of offers */
    NCCL_MEMORY_PINNED, /* in the host's memory */
    NCCL_N_MEMORIES,
};

struct store {
    struct hsdp_job *job;
    struct hsdp_plan *plan;
    struct gpu *gpu;
    struct nccl_engine *engine;
    struct gpu_memory memories[NCCL_N_MEMORIES];
    struct nccl_class *classes;
    struct nccl_unit *units;
    uint32_t *slot_users; /* of parameter slots: the last unit, or HSDP_NO_SLOT */
    uint32_t *occupants;  /* n_occupants units: what was in their slots may be unread */
    uint32_t n_occupants;
    struct nccl_reduction *queue; /* handed over before their turn */
    struct nccl_gather *last_gather;
    struct nccl_step step;
    enum published published; /* what the publish under way takes along */
    cu_event written;         /* masters, by the host, before it */
    struct nccl_cold cold;
    struct nccl_ranks shared; /* plan_shared_dims */
    struct nccl_tie_group *tie_groups;
    uint32_t n_tie_groups;
    uint8_t *device_stage; /* of offers, and its pinned side */
    uint8_t *host_stage;
    float *factor;
    uint32_t rank;
    uint32_t n_world;
    bool has_published;
    bool has_gathers; /* some class has, among which reductions have their places */
    uint64_t n_passes;
    uint64_t n_steps; /* this and the rest: so far, and before the host's first */
    uint64_t n_publishes;
    uint64_t n_offers;
    uint64_t n_ties_runs;
    uint64_t first_step;
    uint64_t first_publish;
    uint64_t first_ties_run;
    _Atomic uint64_t *n_unshards;
    _Atomic uint64_t *n_reductions;
};

/* An offer goes through the device in chunks: one that is sent, and one of each rank that is read.
 */
#define NCCL_CHUNK_BYTES (256u * 1024u)

static inline struct nccl_class *nccl_class_of(const struct store *store, uint32_t unit)
{
    return &store->classes[store->plan->units[unit].class_index];
}

static inline const struct plan_class *nccl_plan_class(const struct store *store, uint32_t unit)
{
    return &store->plan->classes[store->plan->units[unit].class_index];
}

/** The number that NCCL has for a dtype. */
int32_t nccl_dtype(enum dtype dtype);

/** Counts one operation of a group, and what this rank gets of each of its peers. */
void nccl_count(const struct nccl_ranks *ranks, uint64_t bytes_per_peer);
/** What else they bring, all together. */
void nccl_count_bytes(const struct nccl_ranks *ranks, uint64_t n_bytes);

/* nccl_ranks.c: the ranks of classes and ties; communicators. Collective over the job. */
int32_t nccl_ranks_make(struct store *store, struct hsdp_error *reterr);

/* nccl_memory.c: everything that a model has on the device, zeroed. */
int32_t nccl_memory_make(struct store *store, struct hsdp_error *reterr);
void nccl_memory_free(struct store *store);
void nccl_memory_count(const struct store *store, struct hsdp_model_info *ret_bytes);

/* nccl_unshard.c */
int32_t nccl_unshard(struct store *store, uint32_t unit, void *stream, uint64_t *ret_ticket,
                     struct hsdp_error *reterr);
void nccl_reshard(struct store *store, uint32_t unit, void *stream);
/** On a task's thread: makes the reduce stream wait for all that reads what rests. */
int32_t nccl_readers_follow(struct store *store, struct hsdp_error *reterr);

/* nccl_slots.c */
int32_t nccl_grads_acquire(struct store *store, uint32_t unit, bool is_zeroed, void *stream,
                           struct hsdp_error *reterr);
int32_t nccl_grads_add(struct store *store, const struct store_addition *addition,
                       struct hsdp_error *reterr);
/** Allocates a buffer of late gradients, if it is not there yet. */
int32_t nccl_late_allocate(struct store *store, uint32_t unit, struct nccl_late *late,
                           struct hsdp_error *reterr);

/* nccl_reduce.c: when; nccl_contribute.c and nccl_sum.c: what. */
int32_t nccl_reduce(struct store *store, const struct store_gradient *gradient,
                    uint64_t *ret_ticket, struct hsdp_error *reterr);
int32_t nccl_pass_begin(struct store *store, const uint32_t *units, uint64_t n_units, int32_t scope,
                        struct hsdp_error *reterr);
int32_t nccl_pass_reach(struct store *store, uint32_t unit, struct hsdp_error *reterr);
int32_t nccl_pass_end(struct store *store, const uint32_t *units, uint64_t n_units,
                      struct hsdp_error *reterr);
const struct wait *nccl_reduce_blocker(const struct store *store, uint32_t unit);
int32_t nccl_drain(struct store *store, struct hsdp_error *reterr);
int32_t nccl_reduction_run(struct nccl_task *task, struct hsdp_error *reterr);

/** Values on the device, while a reduction runs. */
struct nccl_values {
    const void *base;
    enum dtype dtype;
    uint64_t n_elems;
};
/** On the thread: this rank's contribution in the wire dtype; or, of scope none, adds it up. */
int32_t nccl_contribute(struct nccl_reduction *reduction, struct nccl_values *ret,
                        struct hsdp_error *reterr);

/* nccl_step.c */
int32_t nccl_step_run(struct nccl_task *task, struct hsdp_error *reterr);
int32_t nccl_step_start(struct store *store, const struct step_words *mine,
                        struct hsdp_error *reterr);
const struct wait *nccl_step_blocker(const struct store *store);
int32_t nccl_step_words(struct store *store, struct step_words *ret_all, struct hsdp_error *reterr);

/* nccl_publish.c */
uint32_t nccl_publish_targets(struct store *store, uint32_t unit, uint32_t buffer,
                              void *ret_addresses[STORE_MAX_TARGETS]);
void nccl_publish_skip(struct store *store, uint32_t unit, bool is_written);
int32_t nccl_publish(struct store *store, enum published values, void *stream,
                     struct hsdp_error *reterr);
/** True when the device is behind the last publish of a unit's class. */
bool nccl_is_published(const struct store *store, uint32_t unit);

/* nccl_offer.c, nccl_tie.c */
int32_t nccl_offer(struct store *store, const struct store_offer *offer, struct hsdp_error *reterr);
int32_t nccl_ties_run(struct store *store, const struct store_ties *ties,
                      struct hsdp_error *reterr);
/** Bytes that the exchanges of ties take on the device. */
uint64_t nccl_ties_bytes(const struct store *store);

#endif /* COMM_NCCL_STORE_H */
