/* SPDX-License-Identifier: Apache-2.0 */
/* Models: a finished plan on a connected job, and what the host is doing with it. */
#ifndef SHARD_MODEL_H
#define SHARD_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/job.h"
#include "comm/transport.h"
#include "hsdp/model.h"
#include "hsdp/step.h"
#include "plan/plan.h"
#include "shard/tie.h"

struct adamw;
struct drift;
struct pass;
struct space;

#define MODEL_MAX_STATES     64u
#define MODEL_STATE_NAME_MAX 63u

/* One optimizer state: the step shards of all trainable buffers, one after another. */
struct model_state {
    char *name;
    enum dtype dtype;
    void *base; /* in the space; zero-filled at first; owned */
    uint64_t n_bytes;
};

/* What the host is doing with a unit. */
struct model_unit {
    uint32_t n_uses;  /* unshards without their release */
    uint32_t n_holds; /* names for its parameters of other units in use; no uses of the host */
    bool is_acquired; /* the host owns the gradient slot: between unshard(BACKWARD*) and reduce */
    bool is_handed;   /* in the open pass */
    bool is_skipped;  /* and that by skip */
    bool is_unclosed; /* its last pass of the window was not of scope full */
    bool is_viewed;   /* the host has the address of its masters */
    bool are_grads_viewed;       /* and of its reduced gradients */
    float grads_divisor;         /* of these, in an open step: grads.h */
    struct pass *pass;           /* the open one that holds it; NULL = none */
    uint64_t position;           /* in that pass, from 1 */
    uint64_t ticket;             /* of the last unshard */
    uint64_t reduction;          /* ticket of the last one */
    uint64_t n_full;             /* hand-overs of scope full since the last step */
    uint64_t n_full_before;      /* in the last window that had any; 0 = none had */
    uint64_t state_offset_elems; /* of its shard within each state */
};

/* A step between begin and end or discard; on a device it may end before its result is known. */
struct model_step {
    struct work work;  /* waits for the collective, then computes the result */
    struct wait label; /* how it is recorded */
    uint64_t ticket;
    struct hsdp_step_spec spec;
    struct hsdp_step_info result;
    bool is_open;
    bool is_under_way; /* the work is */
    bool is_known;     /* result is filled */
    bool is_updated;   /* adamw has been here */
    bool is_drifted;   /* replicas differ: drift.h */
};

struct hsdp_model {
    struct hsdp_job *job;
    uint64_t number; /* among the job's models */
    struct hsdp_plan *plan;
    struct space *space; /* the job's: where all buffers lie */
    const struct transport_ops *ops;
    struct store *store;
    struct reporter reporter;
    struct model_unit *units;
    uint32_t *param_slots; /* per slot: the unit that occupies it, or HSDP_NO_SLOT */
    uint32_t *acquired;    /* n_acquired units whose gradient slots the host has; few */
    uint32_t n_acquired;
    struct model_ties ties; /* over stages */
    struct pass *passes;    /* open and closed ones, reused */
    uint64_t n_passes;      /* begun so far: numbers them */
    struct model_state states[MODEL_MAX_STATES];
    _Atomic uint32_t n_states; /* counted up once a state is complete: reports read it any time */
    uint64_t state_elems;      /* of one state */
    struct model_step step;
    struct drift *drift; /* NULL unless verify has step:N */
    uint64_t n_steps;
    uint64_t n_discarded;             /* of those steps */
    double norm_p;                    /* of the last step; 2 before the first */
    uint64_t n_updates;               /* of adamw: the step of its last bias correction */
    uint64_t n_hyper_groups;          /* one more than the largest of a trainable parameter */
    struct adamw *adamw;              /* NULL until its first step */
    struct optimizer_words optimizer; /* what it was told last */
    float factor[2];                  /* norm, factor: what factor_view shows */
    int64_t factor_shape[1];
    int64_t unit_stride[1]; /* strides of every one-dimensional view */
    int64_t *flat_shapes;   /* one per unit and buffer */
    int64_t *strides;       /* HSDP_PARAM_MAX_DIMS per parameter */
    bool is_editing;
};

/* The functions of the public table; see hsdp/model.h. */
int32_t model_create(struct hsdp_job *job, const struct hsdp_plan *plan,
                     struct hsdp_model **ret_model, struct hsdp_error *reterr);
int32_t model_info(const struct hsdp_model *model, struct hsdp_model_info *ret_info,
                   struct hsdp_error *reterr);
int32_t model_param_view(struct hsdp_model *model, uint32_t param, int32_t view,
                         struct hsdp_tensor *ret_view, struct hsdp_error *reterr);
int32_t model_flat_view(struct hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                        struct hsdp_tensor *ret_view, struct hsdp_error *reterr);
int32_t model_state_create(struct hsdp_model *model, const char *name, const char *dtype,
                           uint32_t *ret_state, struct hsdp_error *reterr);
int32_t model_state_info(const struct hsdp_model *model, uint32_t state, const char **ret_name,
                         const char **ret_dtype, struct hsdp_error *reterr);
int32_t model_edit_begin(struct hsdp_model *model, void *stream, struct hsdp_error *reterr);
int32_t model_edit_end(struct hsdp_model *model, void *stream, struct hsdp_error *reterr);
int32_t model_import_param(struct hsdp_model *model, uint32_t param, int32_t flat,
                           const struct hsdp_tensor *full, uint32_t source_rank, void *stream,
                           struct hsdp_error *reterr);
int32_t model_export_param(struct hsdp_model *model, uint32_t param, int32_t flat,
                           const struct hsdp_tensor *full, uint32_t target_rank, void *stream,
                           struct hsdp_error *reterr);
int32_t model_sync(struct hsdp_model *model, void *stream, struct hsdp_error *reterr);
void model_destroy(struct hsdp_model *model);

struct hsdp_job *model_job(const struct hsdp_model *model);

/* ------------------------------------------------------------------------------ within shard/ */

/** HSDP_ERR_INVALID when there is no such unit. */
int32_t model_unit_check(const struct hsdp_model *model, const char *call, uint32_t unit,
                         struct hsdp_error *reterr);

/** HSDP_ERR_STATE while a step or an edit is open. `call` begins the sentence. */
int32_t model_idle_check(const struct hsdp_model *model, const char *call,
                         struct hsdp_error *reterr);

/** HSDP_ERR_STATE, naming the unit, while one is unsharded or in an open pass. */
int32_t model_rest_check(const struct hsdp_model *model, const char *call,
                         struct hsdp_error *reterr);

/**
 * Around what a call does to the model's buffers: it comes behind what the store has begun and what
 * the host has put on the stream; and before what the host will put there.
 */
int32_t model_follow(struct hsdp_model *model, void *stream, struct hsdp_error *reterr);
int32_t model_precede(struct hsdp_model *model, void *stream, struct hsdp_error *reterr);

/** The stream comes behind all that store and model have begun. */
int32_t model_order(struct hsdp_model *model, void *stream, struct hsdp_error *reterr);

/** This rank's step shard of a buffer in one of HSDP_FLAT_*: address, dtype and length. */
struct flat_shard {
    uint8_t *base;
    enum dtype dtype;
    uint64_t n_elems;
};
int32_t model_flat_shard(struct hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                         struct flat_shard *ret, struct hsdp_error *reterr);

/** Runs of elements that a rank holds of a unit's step shards; *ret is freed by the caller. */
int32_t model_step_segments(const struct hsdp_model *model, uint32_t unit, uint32_t rank,
                            struct hsdp_segment **ret, uint64_t *ret_n, struct hsdp_error *reterr);

/** model_agree.c: compares job and plan across ranks. Collective over the job. */
int32_t model_agree(struct hsdp_job *job, const struct hsdp_plan *plan, struct hsdp_error *reterr);

/** model_report.c */
void model_report_write(struct reporter *reporter, const char *what, struct text *text);
/** Adds this model's bytes to the job's memory counters, or takes them away. */
void model_memory_count(struct hsdp_model *model, bool is_added);
/** Adds a new state's bytes to them. */
void model_state_count(struct hsdp_model *model, uint64_t n_bytes);

/** pass.c */
void passes_free(struct hsdp_model *model);

/** step.c: waits for the result of an open step. */
int32_t step_await(struct hsdp_model *model, const char *call, struct hsdp_error *reterr);
/**
 * Goes on with an open step: waits for its result unless a device has that and nobody needs it on
 * the host.
 */
int32_t step_proceed(struct hsdp_model *model, const char *call, struct hsdp_error *reterr);
/** Norm and factor of a step, in the space. */
const float *step_factor(struct hsdp_model *model);
/**
 * Whether a host may go on with the open step, which step_proceed or step_await has seen.
 *
 * Errors: HSDP_ERR_DRIFT; HSDP_ERR_NONFINITE when the host asked for it.
 */
int32_t step_result_check(const struct hsdp_model *model, const char *call,
                          struct hsdp_error *reterr);

#endif /* SHARD_MODEL_H */
