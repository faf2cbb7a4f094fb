/* SPDX-License-Identifier: Apache-2.0 */
/* Ties across stages at work: who holds which elements of a parameter, and what they exchange. */
#ifndef SHARD_TIE_H
#define SHARD_TIE_H

#include "comm/transport.h"
#include "plan/plan.h"

struct hsdp_model;

/* How one holder of a tie lays out the parameter in its own unit. */
struct tie_layout {
    uint64_t offset_elems; /* in its buffer */
    uint64_t shard_elems;  /* of the buffer's step shards */
    uint64_t place_elems;  /* in what it shares */
    bool is_known;
};

/* Elements of this rank's step shard that are tied, and lie on one rank of every other holder. */
struct tied_range {
    uint32_t tie;
    uint32_t unit;
    uint32_t buffer;
    uint64_t first_elem; /* in the step shard */
    uint64_t n_elems;
};

struct model_ties {
    struct tie_layout *layouts;  /* of all holders of all ties, one after another */
    struct tied_range *ranges;   /* in order of tie and element */
    struct store_tied_run *runs; /* one for each range */
    uint32_t *run_ranks;         /* what the runs point to, like the next */
    uint64_t *run_places;
    uint64_t n_runs;
    uint64_t n_pointed; /* entries of the two */
    uint32_t *ranks;    /* that this one exchanges with */
    uint32_t n_ranks;
    struct text group; /* for errors: the selector of the first tie */
};

/**
 * Compares the ties with those of the other holders, and finds out who holds what. Collective over
 * the job.
 *
 * Errors: HSDP_ERR_MISMATCH, on all ranks, names the first difference and both ranks.
 */
int32_t ties_create(struct hsdp_model *model, struct hsdp_error *reterr);
void ties_free(struct hsdp_model *model);

/** tie_agree.c: fills `layouts`. Collective over the job; errors as above. */
int32_t ties_agree(struct hsdp_job *job, const struct hsdp_plan *plan, struct tie_layout *layouts,
                   struct hsdp_error *reterr);

/** Adds up the undivided step gradients of all holders. Without ties nothing is done. */
int32_t ties_sum(struct hsdp_model *model, struct hsdp_error *reterr);

/** Room, in the space, for what ties_sync moves. */
struct ties_room {
    void *values; /* fp32 */
    uint64_t n_bytes;
};
int32_t ties_reserve(struct hsdp_model *model, struct ties_room *ret_room,
                     struct hsdp_error *reterr);
void ties_release(struct hsdp_model *model, struct ties_room *room);
/** Gives masters and states of the first holder to the others. Without ties nothing is done. */
int32_t ties_sync(struct hsdp_model *model, const struct ties_room *room,
                  struct hsdp_error *reterr);

/** Whether a unit's trainable buffer has tied elements on this rank. */
bool ties_has_unit(const struct hsdp_model *model, uint32_t unit);

/**
 * The next elements of a unit's step gradient, at or behind one of them, that another stage counts
 * in the norm; n_elems is 0 where there are none.
 */
struct tied_range ties_next_copy(const struct hsdp_model *model, uint32_t unit, uint64_t from_elem);

#endif /* SHARD_TIE_H */
