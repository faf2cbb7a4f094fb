/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that hsdp-gpt holds of the plugin: from loading it to a model with its first weights.
 */
#ifndef GPT_SESSION_H
#define GPT_SESSION_H

#include "config.h"
#include "device.h"
#include "fault.h"
#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"
#include "hsdp/loader.h"
#include "laps.h"
#include "model.h"

#define SESSION_STAGE_BYTES (4u << 20)

/* One unit as the plugin knows it. Parameters are in the order of model_unit_params. */
struct session_unit {
    uint32_t n_params;
    uint32_t n_buffers;
    uint32_t param_slot; /* HSDP_NO_SLOT: may be live beside any other */
    uint32_t grad_slot;
    uint32_t params[MODEL_MAX_PARAMS]; /* indices in the plan */
    struct model_param table[MODEL_MAX_PARAMS];
    struct hsdp_tensor values[MODEL_MAX_PARAMS]; /* addresses are fixed for life */
    struct hsdp_tensor grads[MODEL_MAX_PARAMS];
};

struct session {
    const struct config *config; /* borrowed */
    hsdp_plugin *plugin;
    const struct hsdp_api *api;
    const struct hsdp_adamw_ops *adamw;
    struct device *device; /* NULL: the model lies in the memory of the host */
    void *stream;          /* of the device; NULL on a CPU */
    void *stage;           /* SESSION_STAGE_BYTES that both reach; NULL on a CPU */
    void *sums;            /* of the device: what session_sum adds up */
    hsdp_job *job;
    hsdp_mesh *mesh; /* one dimension, "dp" */
    hsdp_plan *plan;
    hsdp_group *group; /* all ranks: for losses */
    hsdp_model *model;
    struct session_unit *units;
    uint32_t n_units;
    uint32_t rank;
    uint32_t world_ranks;
    uint32_t n_microbatches; /* of a step, on each rank */
    int32_t early_scope;     /* HSDP_SCOPE_* of all microbatches of a step but the last */
    int is_set_up;           /* the trainer's: 1 from the first step on, where no fault is the
                                configuration's any more */
    struct model_shape shape;
    struct laps laps; /* of the step under way, on this rank */
};

/*
 * Joins the run. session_check is local and finds what is wrong with the configuration;
 * session_connect meets the other ranks and writes the first weights. Both leave what they made in
 * the session, for session_close.
 */
int session_check(struct session *session, const struct config *config, struct fault *ret_fault);
int session_connect(struct session *session, struct fault *ret_fault);
/* After success: says farewell to the other ranks, which may fail. */
int session_farewell(struct session *session, struct fault *ret_fault);
/* After a failure of this rank's own: tells the other ranks the reason. */
void session_abort(struct session *session, const struct fault *fault);
/* Gives everything back; a session of zeros is accepted. */
void session_close(struct session *session);

/* The sentence and the exit status of a call of the plugin that failed. */
int session_fault(const struct session *session, const struct hsdp_error *error,
                  struct fault *ret_fault);
/* Sums up to SESSION_MAX_SUMS fp64 numbers over all ranks, in place; the same bits on each. */
#define SESSION_MAX_SUMS 8
int session_sum(struct session *session, double *values, int64_t n_values, struct fault *ret_fault);
/* The digest of all parameters, in the order of the model, on rank 0; collective. Equal numbers
 * mean equal bits, however they are sharded. */
int session_digest(struct session *session, uint64_t *ret_digest, struct fault *ret_fault);
/* Opens the device that the configuration asks for, if any; part of session_check. */
int session_device(struct session *session, struct fault *ret_fault);
/* Makes the plan of an open job and mesh, and reads what it has decided; part of session_check. */
int session_plan(struct session *session, struct fault *ret_fault);
/* Writes this rank's part of the first weights, inside an edit of its own; part of
 * session_connect. */
int session_fill(struct session *session, struct fault *ret_fault);

#endif
