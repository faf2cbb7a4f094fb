/* SPDX-License-Identifier: Apache-2.0 */
/* Transports: the small table behind which a model's data lies and moves. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/job.h"
#include "device/norm.h"
#include "hsdp/model.h"
#include "hsdp/unit.h"
#include "plan/plan.h"

/*
 * A store holds one model's flat buffers on one rank and knows how to unshard, reduce and publish
 * them. It knows units, buffers and slices; what a parameter is, and what a host may do when, is
 * the business of shard/. Addresses are fixed from open to close. Calls are made by one thread.
 *
 * Buffers lie in the space of the job (job_space, device/space.h). Streams are the host's; a CPU
 * has none. Where a device does the work a ticket is done when it has come to that, and whoever
 * goes on with the result there waits for the ticket on a stream: job_ticket_order.
 */
struct store;

/* The numbers of a step that are equal on all ranks, or the job fails with a mismatch. */
enum step_number {
    STEP_MAX_NORM,
    STEP_NORM_P,
    STEP_GRADIENT_SCALE,
    STEP_HAS_WEIGHT,
    STEP_ERROR_IF_NONFINITE,
    STEP_N_DISCARDED, /* steps so far that ended by discard */
    STEP_N_NUMBERS,
};

/*
 * What the optimizer was told since the model was made: equal on the ranks that share units, whose
 * replicas would drift apart else.
 */
#define STEP_MAX_HYPER_GROUPS 8u /* whose numbers are told apart; a hash has those of all */

enum optimizer_number {
    OPTIMIZER_N_UPDATES,
    OPTIMIZER_STEP,
    OPTIMIZER_BETA1,
    OPTIMIZER_BETA2,
    OPTIMIZER_EPSILON,
    OPTIMIZER_N_HYPER_GROUPS,
    OPTIMIZER_LEARNING_RATES,
    OPTIMIZER_WEIGHT_DECAYS = OPTIMIZER_LEARNING_RATES + STEP_MAX_HYPER_GROUPS,
    OPTIMIZER_N_NUMBERS = OPTIMIZER_WEIGHT_DECAYS + STEP_MAX_HYPER_GROUPS,
};

struct optimizer_words {
    double numbers[OPTIMIZER_N_NUMBERS];
    uint64_t hash; /* of all learning rates and weight decays */
};

/* One rank's part of the step's collective; `sum` is added up as integers. */
struct step_words {
    struct norm_sum sum;
    double weight;     /* added up over the data ranks, in order of rank */
    uint64_t max_bits; /* a fp32 pattern: maximum over all ranks */
    uint64_t checksum; /* added up modulo 2^64 */
    uint64_t step;     /* its number, for errors */
    double numbers[STEP_N_NUMBERS];
    struct optimizer_words optimizer;
};

/* What a rank hands over of a unit. */
struct store_gradient {
    uint32_t unit;
    bool is_absent;       /* nothing lies in the slot: +0 */
    int32_t scope;        /* HSDP_SCOPE_* */
    double norm_p;        /* adds up the norm of the step sums; 0 = not wanted */
    float norm_divisor;   /* what they are divided by in it */
    const uint64_t *turn; /* raised by shard/ in the order of the pass */
    uint64_t position;    /* the reduction begins once *turn has reached it */
    void *stream;         /* on which the host has written it */
};

/* What joins a rank's contribution of a unit from outside of its slot; added in fp32. */
struct store_addition {
    uint32_t unit;
    uint64_t offset_elems; /* in the trainable buffer */
    const void *values;    /* in the space */
    enum dtype dtype;
    uint64_t n_elems;
    bool joins_handed; /* what was handed over and waits for its turn; else the next */
    void *stream;      /* on which the host has written them, and may change them again */
};

/* What a rank lets others read, and what it wants to read of them. */
struct store_offer {
    const char *operation; /* for errors */
    const char *unit;
    const char *what; /* likewise: what is offered, in words */
    uint64_t tag;     /* the same as a number: equal on all ranks, or the job fails */
    uint32_t root;    /* whose bytes count, likewise equal on the ranks that differ in root_dims */
    uint32_t root_dims;
    /* Not HSDP_OK: this rank cannot, and says why instead; the call fails on all, and moves
     * nothing.
     */
    int32_t status;
    const char *message;
    const void *bytes; /* this rank's, n_bytes of them; may be NULL when that is 0 */
    uint64_t n_bytes;
    const uint32_t *readable; /* n_readable ranks whose bytes this rank wants */
    uint32_t n_readable;
    /* Called with the size of the i-th of them; the last chance to refuse. */
    int32_t (*prepare)(void *user, uint32_t i, uint64_t n_bytes, struct hsdp_error *reterr);
    /* Called with all its bytes, once every rank is prepared. */
    void (*read)(void *user, uint32_t i, const void *bytes, uint64_t n_bytes);
    void *user;
};

/* Elements that one rank of each stage holds which has a copy of some parameter. */
struct store_tied_run {
    float *values; /* this rank's; NULL = no part of this call */
    uint64_t n_elems;
    const uint32_t *ranks;     /* n_holders, in the order of the tie */
    const uint64_t *places;    /* where the run begins in what each of them shares, in elements */
    const uint32_t *dim_sizes; /* n_dims sizes: the tree of their sum */
    uint32_t n_holders;
    uint32_t n_dims;
    uint32_t own; /* which of them is this rank */
};

/* All that this rank has of parameters tied over stages; holders have matching runs. */
struct store_ties {
    const char *operation; /* for errors */
    const char *group;
    const char *unit;
    struct store_tied_run *runs;
    uint64_t n_runs;
    const uint32_t *ranks; /* of all runs, without this one */
    uint32_t n_ranks;
    bool is_sum; /* values become the sum of all holders', in order; else those of the first */
};

#define STORE_MAX_TARGETS 64u /* as many as there are ranks */

/* Which masters have changed. */
enum published {
    PUBLISHED_NOTHING,   /* a discarded step: the epoch opens all the same */
    PUBLISHED_TRAINABLE, /* a step */
    PUBLISHED_ALL,       /* an edit */
};

struct transport_ops {
    const char *name;

    /* Collective over the job. The store takes references to job and plan. */
    int32_t (*open)(struct hsdp_job *job, const struct hsdp_plan *plan, struct store **ret_store,
                    struct hsdp_error *reterr);
    void (*close)(struct store *store); /* local; NULL is accepted */

    /* Addresses. Buffers are counted as in the plan; gradients are of the trainable buffer 0. */
    const void *(*params)(struct store *store, uint32_t unit, uint32_t buffer); /* unsharded */
    void *(*grads)(struct store *store, uint32_t unit);                         /* unsharded */
    void *(*master)(struct store *store, uint32_t unit, uint32_t buffer);       /* step shard */
    float *(*step_grads)(struct store *store, uint32_t unit); /* step shard, of undivided sums */

    /*
     * This rank's parameter shard of a buffer as it rests, for reading, once all who write it have
     * published. Waits for them, bounded: they do not wait for this rank.
     */
    int32_t (*resting)(struct store *store, uint32_t unit, uint32_t buffer, const void **ret_shard,
                       struct hsdp_error *reterr);

    /*
     * Makes the unsharded parameters readable; *ret_ticket 0 when they are at once. Those of one
     * class become so in order of issue: who has waited for one has waited for all before it.
     */
    int32_t (*unshard)(struct store *store, uint32_t unit, void *stream, uint64_t *ret_ticket,
                       struct hsdp_error *reterr);
    /* The last use has ended, or ends with what is on the stream. */
    void (*reshard)(struct store *store, uint32_t unit, void *stream);

    /*
     * Waits until no rank still reads what lies in the unit's gradient slot; maybe zeroes it. On a
     * device the stream waits, on which the host will write.
     * Behind the trainable buffer the slot has room for the gradients of aliases, which no rank
     * reduces.
     */
    int32_t (*grads_acquire)(struct store *store, uint32_t unit, bool is_zeroed, void *stream,
                             struct hsdp_error *reterr);

    /* Adds to this rank's contribution of a unit, outside of the slot. Cannot fail for units whose
     * late sums are planned. */
    int32_t (*grads_add)(struct store *store, const struct store_addition *addition,
                         struct hsdp_error *reterr);

    /* Declares the units of a pass, in the order of their reductions, before any of these. Fails
     * the job where peers have declared something else. */
    int32_t (*pass_begin)(struct store *store, const uint32_t *units, uint64_t n_units,
                          int32_t scope, struct hsdp_error *reterr);

    /* The host unshards a unit of an open pass next, as all ranks do: before that. May refuse one
     * that is too far ahead of another, which was not handed over. */
    int32_t (*pass_reach)(struct store *store, uint32_t unit, struct hsdp_error *reterr);
    /* All units of a pass have been handed over, and the host has closed it. */
    int32_t (*pass_end)(struct store *store, const uint32_t *units, uint64_t n_units,
                        struct hsdp_error *reterr);

    /* Enqueues the reduction of what lies in the unit's slot, which the host gives back. Of a unit
     * of aliases alone nothing is reduced, and the ticket is 0. */
    int32_t (*reduce)(struct store *store, const struct store_gradient *gradient,
                      uint64_t *ret_ticket, struct hsdp_error *reterr);

    /*
     * Brings what shard/ does next in the space behind all that this store has begun there, and
     * behind all reading of what rests: on a device it waits, bounded, until that is issued. On a
     * CPU, where calls have done what they say, there is nothing to do.
     */
    int32_t (*settle)(struct store *store, struct hsdp_error *reterr);

    /* True when this rank holds contributions of a unit that no full reduction has taken up. */
    bool (*has_leftover)(const struct store *store, uint32_t unit);
    /* What an open reduction of the unit waits for; NULL when none is open. */
    const struct wait *(*reduce_blocker)(const struct store *store, uint32_t unit);
    /* Waits for this rank's open reductions. */
    int32_t (*drain)(struct store *store, struct hsdp_error *reterr);
    /* True when a full reduction of the unit has arrived in step_grads since they were dropped. */
    bool (*has_step_grads)(const struct store *store, uint32_t unit);

    /*
     * Adds the sum of |g / norm_divisor|^p to *sum, of the elements of the step sums that this rank
     * has summed up (plan_step_part). False where the last reduction was not told to add that up.
     */
    bool (*step_norm)(const struct store *store, uint32_t unit, double p, struct norm_sum *sum);

    /* The step's collective over the whole job: also the barrier that lets parameters change. */
    int32_t (*step_start)(struct store *store, const struct step_words *mine,
                          struct hsdp_error *reterr);
    /* What it waits for; NULL when it is done. */
    const struct wait *(*step_blocker)(const struct store *store);
    /* Once it is done: the same words on every rank. */
    int32_t (*step_words)(struct store *store, struct step_words *ret_all,
                          struct hsdp_error *reterr);

    /* Counts operations from 1 again: those so far were none of the host's. */
    void (*renumber)(struct store *store);

    /* Drops the reduced gradients: the step is over. */
    void (*step_grads_drop)(struct store *store);

    /*
     * Where publishing copies the master of a buffer to: how many places, as long as the step shard
     * each, in the compute dtype. None where the master is all there is. Behind the step's
     * collective nobody reads them until the epoch is published, so who updates a master may write
     * them as well, and tells so with publish_skip.
     */
    uint32_t (*publish_targets)(struct store *store, uint32_t unit, uint32_t buffer,
                                void *ret_addresses[STORE_MAX_TARGETS]);
    /* What lies at the targets of a unit's trainable buffer is the master: the next publish of a
     * step does not copy it; false takes that back. */
    void (*publish_skip)(struct store *store, uint32_t unit, bool is_written);

    /*
     * Opens a new epoch: copies masters to wherever their parameters rest, unless they are there
     * (publish_skip), and lets the unshards of all ranks go on. On a device behind what the host
     * has put on the stream.
     */
    int32_t (*publish)(struct store *store, enum published values, void *stream,
                       struct hsdp_error *reterr);

    /*
     * Sums up or copies what lies on several stages; the same bits on all of them. Waits until the
     * holders have come to it: each makes the same calls, also when none of its runs takes part. A
     * rank shares plan->ties_elems elements, of which it writes its own runs.
     */
    int32_t (*ties_run)(struct store *store, const struct store_ties *ties,
                        struct hsdp_error *reterr);

    /* Lets ranks read each other's bytes once, on cold paths. Collective over plan_shared_dims. */
    int32_t (*offer)(struct store *store, const struct store_offer *offer,
                     struct hsdp_error *reterr);

    /* Where a device keeps norm and factor of a step, two fp32; NULL where the host does. */
    float *(*factor)(struct store *store);

    /* Bytes allocated on this rank, by kind. */
    void (*memory)(const struct store *store, struct hsdp_model_info *ret_bytes);
};

extern const struct transport_ops shm_transport;
extern const struct transport_ops nccl_transport;

/** HSDP_ERR_STATE: the gradient slot of `next` is that of a unit which waits for its turn. */
int32_t transport_slot_refuse(const struct hsdp_plan *plan, uint32_t unit, uint32_t next,
                              struct hsdp_error *reterr);

/** The transport of a connected job. */
const struct transport_ops *transport_of(const struct hsdp_job *job);

#endif /* COMM_TRANSPORT_H */
