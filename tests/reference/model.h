/* SPDX-License-Identifier: Apache-2.0 */
/* Models inside: the memory of a rank, unit by unit, and what is under way. */
#ifndef REFERENCE_MODEL_H
#define REFERENCE_MODEL_H

#include "element.h"
#include "exact.h"
#include "job.h"
#include "plan.h"
#include "reference.h"

#define MOST_STATES 64

/* The ranks that share something, in the order of the selector. */
struct ranks {
    uint32_t ranks[MOST_RANKS];
    uint32_t n;
};

/* One of the flat buffers of a unit. */
struct buffer {
    struct hsdp_buffer_info info;
    int64_t step_shape[1];
    unsigned char *params; /* whole, to write; the host has a mapping of the same memory to read */
    unsigned char *params_read;
    size_t params_bytes;
    unsigned char *grads; /* whole; NULL = frozen */
    size_t grads_bytes;
    unsigned char *master; /* this rank's step shard, and so are the next two */
    float *step_grad;
    unsigned char *states[MOST_STATES];
};

/* What the answer to a request about a unit finds its way back with. */
struct publication {
    struct hsdp_model *model;
    uint32_t unit;
};

enum unit_phase { UNIT_FREE, UNIT_LISTED, UNIT_ACQUIRED, UNIT_HANDED, UNIT_DONE };

/*
 * A unit. Sums of gradients are held packed: the trainable parameters that it stores, one after the
 * other, without padding.
 */
struct unit {
    const char *name;
    uint32_t class_index;
    uint32_t n_buffers;
    bool is_trainable; /* some name of it has a gradient */
    enum dtype param_dtype;
    enum dtype master_dtype;
    enum dtype reduce_dtype;
    enum dtype gradient_dtype;
    uint32_t divisor;
    struct buffer buffers[2];
    struct ranks reduced; /* R */
    struct ranks resting; /* G */
    struct ranks stepped; /* S */
    const char *group;    /* the selector of R, "self" for "" */
    struct publication publication;
    uint64_t n_uses;
    uint64_t n_readers;      /* uses, and those of units with names for its parameters */
    uint64_t publish_ticket; /* under which its parameters become whole */

    uint64_t n_packed;
    float *local;  /* of passes of scope none */
    float *rest;   /* of passes of scope inner: this rank's slice, zeros elsewhere */
    float *extra;  /* of grad_add and names in other units, for the next hand-over */
    double *sum;   /* over all ranks, of the passes of scope full */
    float *handed; /* what is handed over in the open pass */
    bool has_local, has_rest, has_extra, has_sum;

    struct pass *pass;
    uint64_t position; /* in it */
    enum unit_phase phase;
    uint64_t n_reductions;
    uint64_t reduce_ticket;
    bool was_skipped;
};

struct param {
    struct hsdp_param_info info;
    const char *tied_over; /* info's; NULL where that is this rank alone */
    uint64_t packed;       /* of a storage: where it begins in its unit */
    bool is_storage;
    bool is_alias; /* of another unit's */
    bool is_frozen;
    unsigned char *alias_grads; /* of an alias: its gradient */
    double *tied_sum;           /* where the sum over stages goes */
    int64_t strides[HSDP_PARAM_MAX_DIMS];
};

struct pass {
    struct pass *next;
    uint64_t number;
    int32_t scope;
    uint32_t *units;
    uint64_t n_units;
    uint64_t turn; /* what is reduced next */
};

struct state {
    char name[64];
    enum dtype dtype;
};

/* What a rank adds to a step's collective. */
struct step_part {
    uint64_t n_inf;
    uint64_t n_nan;
    double largest;       /* |x| */
    struct exact sums[2]; /* of |x|^p; for other p than 1 and 2 see step.c */
    double weight;
};

struct step {
    bool is_open;
    bool is_known; /* the result */
    bool has_drifted;
    struct hsdp_error drift;
    bool has_updated;
    struct hsdp_step_spec spec;
    double norm_p;
    uint64_t ticket;
    struct hsdp_step_info info;
};

/* What the ranks of a class have to do alike. */
struct class_log {
    struct packet made_whole; /* names of units since the last step, a line each */
    struct ranks resting;     /* that share parameters: those of P */
    uint64_t n_passes;
    uint64_t n_compared;
};

struct hsdp_model {
    hsdp_model *next; /* of the job's */
    hsdp_job *job;
    hsdp_plan *plan;
    const hsdp_mesh *mesh; /* the plan's */
    uint64_t number;       /* among the models of the job */
    struct ranks shared;   /* the ranks of one plan */
    uint64_t n_shared_meetings;
    uint32_t n_units;
    uint32_t n_params;
    struct unit *units;
    struct param *params;
    struct state states[MOST_STATES];
    uint32_t n_states;
    struct pass *passes; /* open */
    uint64_t n_passes;
    uint64_t n_publishes;
    uint64_t n_steps;
    struct step step;
    bool is_editing;
    bool verifies_access;
    bool verifies_wrap;
    uint64_t verifies_steps; /* every so many; 0 = none */
    int32_t scope;           /* accumulation_scope */
    uint64_t n_slots;
    float factors[2]; /* of factor_view */
    int64_t factors_shape[1];
    int64_t flat_strides[1];
    uint64_t adamw_step;
    char *adamw_text;       /* what was updated with, for comparison; NULL = nothing yet */
    struct class_log *logs; /* of each class */
    uint32_t n_classes;
};

/* ------------------------------------------------------------------------------------ model.c */

/** What a model is, without a look at the job. */
void model_describe(const hsdp_model *model, struct hsdp_model_info *ret);
/** Enters the job of a model. */
int32_t model_enter(const struct call *call, hsdp_model *model);
/** Fails a call about a unit. */
int32_t unit_refuse(const struct call *call, const hsdp_model *model, uint32_t unit, int32_t status,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));
/** HSDP_ERR_INVALID for an index past the last one. */
int32_t unit_check(const struct call *call, const hsdp_model *model, uint32_t unit);
int32_t param_check(const struct call *call, const hsdp_model *model, uint32_t param);
/** Checks that a tensor of the host has the shape of a parameter, and a dtype of the three. */
int32_t tensor_check(const struct call *call, const hsdp_model *model, uint32_t param,
                     const struct hsdp_tensor *tensor, enum dtype *ret_dtype);
const void *tensor_at(const struct hsdp_tensor *tensor);
/** A request of the ranks of one plan. */
void request_of_model(const struct call *call, hsdp_model *model, struct meeting_text *text,
                      struct request *ret);

/** Creates a state, or finds it. */
int32_t state_create(const struct call *call, hsdp_model *model, const char *name,
                     const char *dtype_text, uint32_t *ret_state);

/* ----------------------------------------------------------------------------- model_memory.c */

int32_t unit_allocate(const struct call *call, hsdp_model *model, uint32_t unit);
int32_t param_allocate(const struct call *call, hsdp_model *model, uint32_t param);
int32_t state_allocate(const struct call *call, hsdp_model *model, uint32_t state);
void unit_free(const hsdp_model *model, struct unit *unit);
void param_free(const hsdp_model *model, struct param *param);
size_t page_round(size_t n_bytes);

/* ----------------------------------------------------------------------------------- segment.c */

/* The segments of a unit in the shard of some rank, one after the other. It needs no memory, so
 * that what is on its way to other ranks cannot fail here. */
struct walk {
    struct plan_walk at;
    struct hsdp_segment segment; /* the last one */
};

void walk_begin(const hsdp_model *model, uint32_t unit, int32_t cut, uint32_t rank,
                struct walk *ret);
/** Good until the next one; NULL behind the last. */
const struct hsdp_segment *walk_next(struct walk *walk);
/** Where a segment begins in the whole buffer, and among the packed. */
uint64_t segment_whole(const hsdp_model *model, const struct hsdp_segment *segment);
uint64_t segment_packed(const hsdp_model *model, const struct hsdp_segment *segment);

/* A flat array of this rank's step shard. */
struct flat {
    unsigned char *base;
    enum dtype dtype;
};
/** False for a gradient or state of a frozen buffer, and an unknown state. */
bool flat_find(const hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
               struct flat *ret);

/* ----------------------------------------------------------------------------------- publish.c */

/** Sends this rank's shards of all units to those that have parts of the same ones. */
int32_t model_publish(const struct call *call, hsdp_model *model, uint64_t *ticket);

/* ---------------------------------------- model_views.c, edit.c, move.c: functions of the table */

int32_t model_param_view(hsdp_model *model, uint32_t param, int32_t view,
                         struct hsdp_tensor *ret_view, struct hsdp_error *reterr);
int32_t model_flat_view(hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
                        struct hsdp_tensor *ret_view, struct hsdp_error *reterr);
int32_t model_state_create(hsdp_model *model, const char *name, const char *dtype,
                           uint32_t *ret_state, struct hsdp_error *reterr);
int32_t model_state_info(const hsdp_model *model, uint32_t state, const char **ret_name,
                         const char **ret_dtype, struct hsdp_error *reterr);

int32_t edit_begin(hsdp_model *model, void *stream, struct hsdp_error *reterr);
int32_t edit_end(hsdp_model *model, void *stream, struct hsdp_error *reterr);
int32_t edit_sync(hsdp_model *model, void *stream, struct hsdp_error *reterr);
int32_t edit_import(hsdp_model *model, uint32_t param, int32_t flat, const struct hsdp_tensor *full,
                    uint32_t source_rank, void *stream, struct hsdp_error *reterr);
int32_t edit_export(hsdp_model *model, uint32_t param, int32_t flat, const struct hsdp_tensor *full,
                    uint32_t target_rank, void *stream, struct hsdp_error *reterr);

/* --------------------------------------------------------------------------------------- ties.c */

/** Adds the sums of parameters that several stages hold; waits for the others. */
int32_t ties_reduce(const struct call *call, hsdp_model *model);
/** Gives copies on other stages the masters and states of the first holder. */
int32_t ties_sync(const struct call *call, hsdp_model *model);

/** What ranks that share a parameter over stages have said of it: all have to say the same. */
void ties_write(const hsdp_model *model, struct packet *packet);
int32_t ties_compare(const struct call *call, const hsdp_model *model, struct packet answer);
/** How many names with gradients of their own a storage has, here; and over all stages. */
uint64_t names_count(const hsdp_model *model, uint32_t param);
int32_t ties_count(const struct call *call, hsdp_model *model, uint64_t *ret_n_names);

/* ------------------------------------------------------------------------------------- window.c */

/** Forgets the gradients of a window. */
void window_clear(hsdp_model *model);
/** HSDP_ERR_STATE names what forbids a step or an edit. */
int32_t units_rest_check(const struct call *call, const hsdp_model *model);
int32_t window_check(const struct call *call, const hsdp_model *model);

/* --------------------------------------------------------------------------------------- pass.c */

void pass_free(hsdp_model *model, struct pass *pass);

/* -------------------------------------------------------------------------------------- proof.c */

/** verify=wrap: proves a new model, on all ranks; HSDP_ERR_DEFECT. */
int32_t model_prove(const struct call *call, hsdp_model *model);

/* ------------------------------------------------------------------------------------- verify.c */

/** Writes checksums of what replicas hold in common behind a step's part. */
bool drift_write(const hsdp_model *model, struct packet *packet);
/** Compares those of all ranks: true, and the error, where some differ. */
bool drift_find(const hsdp_model *model, struct packet answer, struct hsdp_error *ret_error);

/* --------------------------------------------------------------------------------------- unit.c */

/** Lets the host read or write, or not, where access is verified. */
void params_show(const hsdp_model *model, const struct unit *unit, bool is_shown);
void grads_show(const hsdp_model *model, uint32_t unit, bool is_shown);
/** Compares the units made whole since the last step among the ranks that share parameters. */
int32_t uses_compare(const struct call *call, hsdp_model *model);

/* pass.c: functions of the table. */
int32_t pass_begin(hsdp_model *model, const uint32_t *units, uint64_t n_units, int32_t scope,
                   uint64_t *ret_pass, struct hsdp_error *reterr);
int32_t pass_reduce(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                    uint64_t *ret_ticket, struct hsdp_error *reterr);
int32_t pass_skip(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream,
                  uint64_t *ret_ticket, struct hsdp_error *reterr);
int32_t pass_end(hsdp_model *model, uint64_t pass, void *stream, uint64_t *ret_ticket,
                 struct hsdp_error *reterr);

/* --------------------------------------------------------------------------------------- step.c */

/** Waits for the result of the open step. */
int32_t step_await(const struct call *call, hsdp_model *model);

#endif /* REFERENCE_MODEL_H */
