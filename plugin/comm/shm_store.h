/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: what lies where in the memory that the ranks of one host share. */
#ifndef COMM_SHM_STORE_H
#define COMM_SHM_STORE_H

#include "comm/offer_words.h"
#include "comm/probe.h"
#include "comm/shm_journal.h"
#include "comm/transport.h"

/*
 * Every rank has one region of a shared file, and maps those of its peers. Ranks that share units
 * have the same plan, so their regions have the same layout. Who writes what, and who reads it:
 *
 *   in a region     written by its rank                  read by peers
 *   header          epoch, step words                    every rank of the job
 *   tied elements   in a step or a sync                  after ties_arrived, until ties_consumed,
 *                                                        by the other stages that hold them
 *   counters        one struct shm_counters per unit     the unit's groups
 *   journals        in an unshard or backward_begin      at any time: see shm_journal.h
 *   parameters (*)  in a step or an edit                 between unshard and release
 *   slots           the host, from unshard(BACKWARD*)    after `arrived`, until `consumed`, where
 *                   to reduce                            scope inner or full is planned
 *   local sums      when a unit is handed over           likewise, where scope none is planned
 *   inner sums      once all of G have arrived           after outer_arrived, until outer_consumed,
 *                                                        where R spans more than G
 *   step sums (**)  when all contributions, or inner     never: what is shared is writing them
 *                   sums, are there
 *   late sums       when a unit is handed over, if any   likewise; untouched memory costs nothing
 *                   gradient came outside of the slot
 *   stage           in an offer, chunk by chunk          after offer_arrived, until offer_consumed
 *
 * (*) This rank's parameter shard, in the compute dtype. Where the optimizer is sharded further
 * than the parameters (zero1, zero2, hfsdp), the peers of S\P write it too: each its own step
 * slice, in publish, or before that in hsdp.adamw (publish_targets). An unsharded buffer is the
 * shards of its peers mapped back to back, read-only: nothing is copied. Masters that are not the
 * parameters themselves are private.
 *
 * (**) Reduced gradients. Where R spans more than S (ddp, hsdp) several ranks, the replicas, have
 * the same step shard. Each sums up one part of it (plan_step_part) and writes that into the step
 * sums of all of them. So an all-reduce reads each contribution once, and writes each rank's sums
 * once. Elsewhere step sums are private.
 *
 * A reduction goes through these stages; each wait keeps a writer from overtaking a reader:
 *
 *   QUEUED    for its turn in the pass: the same order on every rank
 *   SOURCE    for `consumed` of all who read contributions: peers still read the last one
 *             then contributes, and raises `arrived`
 *   INNER     for `arrived` of them: contributions are not all there
 *   RESTING   for outer_consumed: peers still read the last inner sum
 *             then sums over G into the inner sum, and raises `consumed`; done for scope inner
 *   OUTER     for outer_arrived of the outer group, then sums inner sums over R\G into the step
 *             sums, and raises outer_consumed
 *   SHARED    for outer_consumed of the replicas: their parts of this rank's step sums are missing
 *
 * Where R is G, and where G spans one rank and nothing rests in its inner sum, nothing lies between
 * contributions and step sums. Then all of R read contributions, behind INNER each sums them up
 * over R into the step sums and raises `consumed`, and SHARED is for that.
 *
 * A replica writes into step sums of this rank only behind INNER, or OUTER, for which this rank has
 * to arrive; and it arrives in a reduction that the host has handed over after all that it does
 * with the sums of the one before: they are done, SHARED included, before the same unit is handed
 * over again, and before a step, which reads, divides and zeroes them until it is closed. What
 * this rank reads in between, to accumulate, is its own part, and no other rank writes that.
 *
 * Besides, in the words of comm/probe.h:
 *
 *   SLOT        a slot is acquired only after what was in it has been read: by peers (`consumed`),
 *               and by this rank's own reduction, which goes on inside of any call. Before a unit
 *               is handed over again, and before a step, its own reduction is done
 *   STEP        parameters change only behind step_arrived of the whole job, since until then any
 *               rank may still read them
 *   EXCHANGE    in an edit they change behind the exchange of its begin, for the same reason
 *   PUBLISHED   they are read only behind the epoch of all who write them: the ranks of S, not
 *               only those of P
 *   OFFER       stage, tag and size are read after offer_arrived of their rank,
 *   OFFER_READ  and written again only after offer_consumed of all peers
 *   TIES        elements tied over stages are read after ties_arrived of all holders,
 *   TIES_READ   and written again only after their ties_consumed
 *
 * Step words and the mailboxes of exchanges are there twice instead: who writes one has seen that
 * all are done with it.
 *
 * tests/check_races.c shows that under these waits no two accesses race, and a race without each
 * of them; tests/check_delay.c the same with bits. Whoever adds an access or a wait tells the
 * probe.
 *
 * Counters are raised by their rank only, and all accesses to them are sequentially consistent
 * (comm/wait.c says why).
 */

#define SHM_MAX_RANKS 64u

/* Where a rank's contribution lies. */
enum shm_source_kind {
    SHM_FROM_PLAN,    /* in the local sums where scope none is planned, else in the slot */
    SHM_FROM_NOWHERE, /* absent: +0 */
    SHM_FROM_LATE,    /* in the late sums, fp32, which have taken in the slot */
};

struct shm_counters {
    _Atomic uint64_t arrived;
    _Atomic uint64_t consumed;
    _Atomic uint64_t outer_arrived;
    _Atomic uint64_t outer_consumed;
    uint64_t source; /* enum shm_source_kind: where the contribution lies; written before arrived */
    uint64_t reserved[3];
};

_Static_assert(STORE_MAX_TARGETS == SHM_MAX_RANKS, "a copy of a step slice on each rank");
_Static_assert(OFFER_MAX_RANKS == SHM_MAX_RANKS, "words of each rank");
_Static_assert(sizeof(struct shm_counters) == 64, "a line each: ranks do not share them");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counters in shared memory take no lock");

struct shm_header {
    _Atomic uint64_t epoch;
    _Atomic uint64_t n_discards[2]; /* steps discarded by even and odd epochs; written before */
    uint64_t reserved_epoch[5];
    _Atomic uint64_t step_arrived;
    uint64_t reserved_step[7];
    struct step_words words[2]; /* of even and odd steps: a slow reader of one is a step behind */
    _Atomic uint64_t offer_arrived;  /* chunks laid out in the stage */
    _Atomic uint64_t offer_consumed; /* chunks of all peers read */
    _Atomic uint64_t ties_arrived;   /* calls in which this rank's tied elements lie there */
    _Atomic uint64_t ties_consumed;  /* calls in which it has read those of the other holders */
    struct offer_words offer;        /* written before an arrival, like the stage */
};

/* Where an offer passes through, chunk by chunk. */
#define SHM_STAGE_BYTES (256u * 1024u)

/* The ranks and names of a class's groups, as seen from this rank. */
struct shm_ranks {
    uint32_t ranks[SHM_MAX_RANKS];
    uint32_t n_ranks;
    uint32_t dim_sizes[HSDP_MESH_MAX_DIMS]; /* for the reduction tree, outermost first */
    uint32_t n_dims;
    char name[64];
    _Atomic uint64_t *traffic;    /* counters: payload bytes and operations; */
    _Atomic uint64_t *operations; /* NULL for a group of one */
};

struct shm_class {
    struct shm_ranks gather;      /* P: unshard */
    struct shm_ranks inner;       /* G */
    struct shm_ranks outer;       /* R\G */
    struct shm_ranks replicas;    /* R\S: the ranks with the same step shard */
    struct shm_ranks *readers;    /* of contributions: inner, or outer where that is one rank */
    struct shm_ranks steps;       /* S: whose epoch an unshard awaits */
    struct shm_ranks copies;      /* S\P: whose parameters this rank's step slice goes to */
    struct shm_ranks reduced;     /* R */
    struct shm_journal *unshards; /* of P; NULL = it is this rank alone */
    struct shm_journal *passes;   /* of R; likewise, and where nothing is trained */
    char reduce_name[64];         /* R, for errors */
    uint64_t n_reductions;        /* begun, in the same order on every rank: numbers them */
};

enum shm_stage {
    SHM_IDLE,
    SHM_QUEUED,  /* an earlier unit of the pass has not been handed over */
    SHM_SOURCE,  /* peers may still read the last contribution */
    SHM_INNER,   /* contributions of the others are awaited */
    SHM_RESTING, /* peers may still read the last inner sum */
    SHM_OUTER,   /* inner sums of the outer group are awaited */
    SHM_SHARED,  /* the replicas' parts of the step sums are awaited */
};

/* One reduction in flight; there is at most one per unit. */
struct shm_reduction {
    struct work work; /* first: the queue hands it back */
    struct store *store;
    const uint64_t *turn;
    uint64_t position;
    struct wait wait;
    struct wait_entry *entries; /* 2 * SHM_MAX_RANKS at most */
    uint32_t unit;
    int32_t scope;
    double norm_p; /* as in struct store_gradient */
    float norm_divisor;
    enum shm_stage stage;
    bool is_absent;                       /* nothing lies in the slot */
    bool is_staged;                       /* by way of the inner sum */
    const struct shm_ranks *contributors; /* who read each other's contributions: the inner group if
                                             it is staged, else the readers; set in its turn */
    enum shm_source_kind source;
};

/* The norm of a part of step sums, which the reduction that made them has added up. */
struct shm_norm {
    struct norm_sum sum;
    double p; /* 0 = it was not told to */
};

/* An unshard in flight. */
struct shm_awaiting {
    struct work work; /* first: the queue hands it back */
    struct store *store;
    struct wait wait;
    struct wait_entry *entries;
    const struct shm_ranks *writers;
    uint64_t epoch;
    bool is_active;
};

struct shm_unit {
    uint64_t params_offset[PLAN_MAX_BUFFERS]; /* bytes, within a region */
    uint64_t local_offset;
    uint64_t inner_offset;
    uint64_t late_offset;
    uint64_t step_grads_offset;              /* where they are shared */
    uint64_t slice_offset[PLACEMENT_N_CUTS]; /* of the trainable buffer, elements */
    uint64_t step_offset[PLAN_MAX_BUFFERS]; /* of the step slice in the parameter shard, elements */
    void *view[PLAN_MAX_BUFFERS];           /* read-only mapping */
    uint64_t view_bytes[PLAN_MAX_BUFFERS];
    void *master[PLAN_MAX_BUFFERS];
    struct plan_part part; /* what this rank sums up */
    float *step_grads;
    float *late;  /* what came outside of the slot since the last hand-over; NULL until needed,
                     unless it is planned */
    float *taken; /* what had come by then, and goes into that reduction */
    struct plan_accumulators sums;
    struct shm_counters *counters; /* this rank's */
    uint64_t sequence;             /* contributions that peers were told of */
    uint64_t slot_sequence;        /* the last of them that peers read from the slot */
    uint64_t outer_sequence;
    bool has_local;
    bool has_inner;
    bool has_step;
    bool has_late;
    bool has_taken;
    bool is_populated; /* what its reductions write is there */
    bool is_written;   /* the master lies where publishing would copy it to */
    struct shm_reduction reduction;
    struct shm_awaiting unshard;
};

struct store {
    struct hsdp_job *job;
    struct probe *probe; /* the job's; NULL outside of tests */
    struct hsdp_plan *plan;
    struct shared_memory memory;
    uint8_t *regions[SHM_MAX_RANKS]; /* NULL = not mapped */
    uint64_t mapped_bytes[SHM_MAX_RANKS];
    uint64_t region_bytes;
    uint64_t counters_offset;
    uint64_t slots_offset;
    uint64_t stage_offset;
    uint8_t *private_memory;
    uint64_t private_bytes;
    struct shm_class *classes;
    struct shm_journal *journals;
    uint32_t n_journals;
    struct shm_unit *units;
    struct shm_norm *norms;     /* of the units: of what this rank has summed up */
    struct wait_entry *entries; /* of all reductions and unshards */
    uint32_t *occupants;        /* n_occupants units: what was in their slots may be unread */
    uint32_t n_occupants;
    uint32_t world[SHM_MAX_RANKS];
    uint32_t n_world;
    uint32_t rank;
    uint64_t n_discards; /* steps */
    uint64_t epoch;
    uint64_t step;
    uint64_t n_chunks; /* offered so far */
    uint64_t n_offers;
    uint64_t n_ties_runs;
    uint64_t first_step; /* of the host's: all numbers in errors are counted from here */
    uint64_t first_epoch;
    uint64_t first_ties_run;
    uint64_t ties_record;
    struct wait step_wait; /* for the step's collective */
    struct wait_entry *step_entries;
    bool is_access_checked; /* verify=access */
    _Atomic uint64_t *n_unshards;
    _Atomic uint64_t *n_reductions;
    struct hsdp_model_info allocated;
};

static inline struct shm_header *shm_header(const struct store *store, uint32_t rank)
{
    return (struct shm_header *)store->regions[rank];
}

/* Where tied elements lie in a region: equal on all ranks, whatever their plans. */
static inline uint64_t shm_ties_offset(void)
{
    return (sizeof(struct shm_header) + PLAN_GRANULE_BYTES - 1) / PLAN_GRANULE_BYTES *
           PLAN_GRANULE_BYTES;
}

static inline struct shm_counters *shm_counters(const struct store *store, uint32_t rank,
                                                uint32_t unit)
{
    return (struct shm_counters *)(store->regions[rank] + store->counters_offset) + unit;
}

static inline uint8_t *shm_slot(const struct store *store, uint32_t rank, uint32_t unit)
{
    return store->regions[rank] + store->slots_offset +
           store->plan->units[unit].grad_slot_offset_bytes;
}

static inline struct shm_class *shm_class_of(const struct store *store, uint32_t unit)
{
    return &store->classes[store->plan->units[unit].class_index];
}

static inline const struct plan_class *shm_plan_class(const struct store *store, uint32_t unit)
{
    return &store->plan->classes[store->plan->units[unit].class_index];
}

/** Counts one operation of a group, and what this rank reads of each of its peers. */
void shm_count(const struct shm_ranks *ranks, uint64_t bytes_per_peer);
/** What else they bring, all together. */
void shm_count_bytes(const struct shm_ranks *ranks, uint64_t n_bytes);

/* shm_layout.c: offsets; classes and their ranks. */
int32_t shm_layout(struct store *store, struct hsdp_error *reterr);

/* shm_map.c: regions, views, private memory. */
int32_t shm_map(struct store *store, struct hsdp_error *reterr);
void shm_unmap(struct store *store);

/* shm_reduce.c */
int32_t shm_reduce(struct store *store, const struct store_gradient *gradient, uint64_t *ret_ticket,
                   struct hsdp_error *reterr);
const struct wait *shm_reduce_blocker(const struct store *store, uint32_t unit);
int32_t shm_drain(struct store *store, struct hsdp_error *reterr);

/* shm_slots.c */
void *shm_grads(struct store *store, uint32_t unit);
/** Takes a slot out of the host's hands: under verify=access a write to it faults from here on. */
void shm_slot_close(struct store *store, uint32_t unit);
int32_t shm_grads_acquire(struct store *store, uint32_t unit, bool is_zeroed, void *stream,
                          struct hsdp_error *reterr);
int32_t shm_grads_add(struct store *store, const struct store_addition *addition,
                      struct hsdp_error *reterr);
/** Allocates both late buffers of a unit where they are planned. */
int32_t shm_late_allocate(struct store *store, uint32_t unit, struct hsdp_error *reterr);
void shm_late_take(struct store *store, uint32_t unit);

/* shm_contribute.c: this rank's contribution of a unit; where a rank's source lies. */
float *shm_late(const struct store *store, uint32_t rank, uint32_t unit);
void shm_contribute(struct store *store, uint32_t unit, struct shm_reduction *reduction);
const void *shm_source(const struct store *store, uint32_t rank, uint32_t unit,
                       enum dtype *ret_dtype);
float *shm_inner_sum(const struct store *store, uint32_t rank, uint32_t unit);
/** Whether other ranks write this rank's step sums. */
bool shm_step_grads_are_shared(const struct store *store, uint32_t unit);
/** Those of this rank, or of a replica. */
float *shm_step_grads(const struct store *store, uint32_t rank, uint32_t unit);

/* shm_sum.c */
/** The reduce-scatter over G: this rank's gradient slice of all contributions, into its inner sum.
 */
void shm_sum_inner(struct store *store, uint32_t unit);
/**
 * Over R\G: this rank's part of the step slice, of all inner sums if it is staged, else of all
 * contributions, into the step sums of all replicas. The norm of the part is added up on the way
 * or, if that is not wanted, forgotten.
 */
void shm_sum_step(const struct shm_reduction *reduction);
bool shm_step_norm(const struct store *store, uint32_t unit, double p, struct norm_sum *sum);

/* shm_step.c */
int32_t shm_unshard(struct store *store, uint32_t unit, void *stream, uint64_t *ret_ticket,
                    struct hsdp_error *reterr);
void shm_reshard(struct store *store, uint32_t unit, void *stream);
int32_t shm_step_start(struct store *store, const struct step_words *mine,
                       struct hsdp_error *reterr);
const struct wait *shm_step_blocker(const struct store *store);
int32_t shm_step_words(struct store *store, struct step_words *ret_all, struct hsdp_error *reterr);
void shm_step_grads_drop(struct store *store);
/**
 * Ranks that have all published the epoch that this one is in: has each of them ended what this one
 * has ended, and discarded what it has? Else the job fails: what they hold does not fit together.
 */
int32_t shm_published_compare(struct store *store, const struct shm_ranks *ranks,
                              const char *operation, struct hsdp_error *reterr);
uint32_t shm_publish_targets(struct store *store, uint32_t unit, uint32_t buffer,
                             void *ret_addresses[STORE_MAX_TARGETS]);
void shm_publish_skip(struct store *store, uint32_t unit, bool is_written);
int32_t shm_publish(struct store *store, enum published values, void *stream,
                    struct hsdp_error *reterr);

/* shm_tie.c */
int32_t shm_ties_run(struct store *store, const struct store_ties *ties, struct hsdp_error *reterr);

/* shm_resting.c */
int32_t shm_resting(struct store *store, uint32_t unit, uint32_t buffer, const void **ret_shard,
                    struct hsdp_error *reterr);

/* shm_offer.c */
int32_t shm_offer(struct store *store, const struct store_offer *offer, struct hsdp_error *reterr);

#endif /* COMM_SHM_STORE_H */
