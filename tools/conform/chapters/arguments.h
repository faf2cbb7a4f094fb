/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of chapter arguments, and the host that they share: one rank with one of everything. */
#ifndef CONFORM_ARGUMENTS_H
#define CONFORM_ARGUMENTS_H

#include "conform.h"
#include "hsdp/adamw.h"
#include "training/device.h"

/* Any negative status: the headers say that a call is refused, but not with which. */
#define ARGUMENTS_ANY_REFUSAL INT32_MIN

/* Every place to which a call may write. What a refused call has written there is seen. */
struct outputs {
    hsdp_mesh *mesh;
    hsdp_job *job;
    hsdp_group *group;
    hsdp_plan *plan;
    hsdp_model *model;
    const hsdp_mesh *plan_mesh;
    const char *texts[2];
    uint64_t longs[4];
    uint32_t numbers[8];
    struct hsdp_tensor view;
    struct hsdp_segment segments[2];
    struct hsdp_mesh_info mesh_info;
    struct hsdp_job_info job_info;
    struct hsdp_group_info group_info;
    struct hsdp_plan_info plan_info;
    struct hsdp_class_info class_info;
    struct hsdp_unit_info unit_info;
    struct hsdp_buffer_info buffer_info;
    struct hsdp_param_info param_info;
    struct hsdp_model_info model_info;
    struct hsdp_step_info step_info;
    char text[64];
};

/* Of arguments_open(): class "dense"; unit 0 "u" with parameters 0 "p" [2,3] and 1 "f" [4], which
 * is frozen; unit 1 "v" with parameter 2 "q" [5]. All fp32. */
struct arguments {
    struct conform *conform;
    const struct hsdp_api *api;
    const struct hsdp_adamw_ops *adamw; /* NULL = the plugin does not have it */
    hsdp_mesh *mesh;                    /* dp = 1 */
    hsdp_job *job;                      /* connected */
    hsdp_group *group;                  /* "dp", connected */
    hsdp_plan *plan;                    /* finished */
    hsdp_model *model;
    struct hsdp_error *err; /* what calls pass as reterr: each of the kinds below in turn */
    struct hsdp_error *short_err;
    char said[sizeof(((struct hsdp_error *)0)->message)]; /* the last refusal's message */
    struct outputs out;
};

enum arguments_error { ARGUMENTS_FULL, ARGUMENTS_NONE, ARGUMENTS_SHORT };

/** Each fails the check if a step of it fails. */
void arguments_init(struct arguments *ret, struct conform *conform); /* no object yet */
void arguments_open(struct arguments *ret, struct conform *conform); /* one of everything */
void arguments_close(struct arguments *arguments);

/* Parts of it, which the caller gives back. */
hsdp_mesh *arguments_mesh(struct arguments *arguments);
hsdp_job *arguments_job(struct arguments *arguments); /* not connected */
/** One class "dense"; not finished, no unit. */
hsdp_plan *arguments_plan(struct arguments *arguments, const hsdp_mesh *mesh);
/** The units and parameters above; finished. */
void arguments_plan_fill(struct arguments *arguments, hsdp_plan *plan);

/** A tensor of parameter "p", or a gradient of it: [2,3] zeros of fp32, in memory of the host. */
struct arguments_tensor {
    float values[6];
    int64_t shape[2];
    struct hsdp_tensor tensor;
};

void arguments_tensor_init(struct arguments_tensor *ret);

/** Opens a step; end or discard closes it. */
void arguments_step(struct arguments *arguments);

/** A call succeeds. It passes arguments->err. */
#define arguments_accept(arguments, call)                                                          \
    conform_check_ok((arguments)->conform, #call,                                                  \
                     (arguments_enter((arguments), #call, ARGUMENTS_FULL), (call)))

/**
 * A call is refused with a status: the error is filled, if there is one that is long enough, and
 * arguments->out is as before. It is made three times, with another error each; so it passes
 * arguments->err, and has to leave everything as it was.
 */
#define arguments_refuse(arguments, call, status)                                                  \
    arguments_refuse_as((arguments), #call, (call), (status))

/* The same for a call whose text says too little: `what` says more, as "mesh: a size of 0". */
#define arguments_refuse_as(arguments, what, call, status)                                         \
    do {                                                                                           \
        arguments_enter((arguments), (what), ARGUMENTS_FULL);                                      \
        arguments_refused((arguments), (what), (call), (status));                                  \
        arguments_enter((arguments), (what), ARGUMENTS_NONE);                                      \
        arguments_refused((arguments), (what), (call), (status));                                  \
        arguments_enter((arguments), (what), ARGUMENTS_SHORT);                                     \
        arguments_refused((arguments), (what), (call), (status));                                  \
    } while (0)

/* The same for a stream that is not the default one, where the job is on a CPU, which has no other.
 */
#define arguments_refuse_stream(arguments, what, call)                                             \
    do {                                                                                           \
        if (!device_is_used()) {                                                                   \
            arguments_refuse_as((arguments), (what), (call), HSDP_ERR_INVALID);                    \
        }                                                                                          \
    } while (0)

void arguments_enter(struct arguments *arguments, const char *call, enum arguments_error kind);
void arguments_refused(struct arguments *arguments, const char *call, int32_t found,
                       int32_t expected);

/** The message of the last refusal has this text in it: a name, or one of what is allowed. */
void arguments_expect_said(const struct arguments *arguments, const char *call, const char *text);

/* ------------------------------------------------------------------------------------- checks */

void mesh_nulls(struct conform *conform);
void mesh_specs(struct conform *conform);
void mesh_queries(struct conform *conform);
void mesh_selectors(struct conform *conform);

void job_nulls(struct conform *conform);
void job_specs(struct conform *conform);
void job_values(struct conform *conform);
void job_before_connect(struct conform *conform);
void job_running(struct conform *conform);
void job_phases(struct conform *conform);
void job_after_close(struct conform *conform);
void job_after_abort(struct conform *conform);

void group_nulls(struct conform *conform);
void group_specs(struct conform *conform);
void group_starts(struct conform *conform);
void group_tensors(struct conform *conform);
void group_before_connect(struct conform *conform);

void plan_nulls(struct conform *conform);
void plan_values(struct conform *conform);
void plan_settings(struct conform *conform);
void plan_classes(struct conform *conform);
void plan_units_and_params(struct conform *conform);
void plan_ties(struct conform *conform);
void plan_unfinished(struct conform *conform);
void plan_finished(struct conform *conform);
void plan_read_nulls(struct conform *conform);
void plan_read_indices(struct conform *conform);

void model_nulls(struct conform *conform);
void model_indices(struct conform *conform);
void model_states(struct conform *conform);
void model_edits(struct conform *conform);
void model_moments(struct conform *conform);
void model_creation(struct conform *conform);

void unit_nulls(struct conform *conform);
void unit_indices(struct conform *conform);
void unit_moments(struct conform *conform);
void unit_passes(struct conform *conform);

void step_nulls(struct conform *conform);
void step_numbers(struct conform *conform);
void step_moments(struct conform *conform);
void adamw_arguments(struct conform *conform);

void diag_nulls(struct conform *conform);
void diag_names(struct conform *conform);

void inputs_of_any_size(struct conform *conform);
void inputs_too_short(struct conform *conform);
void inputs_longer(struct conform *conform);
void inputs_reserved(struct conform *conform);
void outputs_of_any_size(struct conform *conform);
void outputs_too_short(struct conform *conform);
void arrays_of_strides(struct conform *conform);
void texts_of_any_size(struct conform *conform);

void objects_null(struct conform *conform);
void objects_any_order(struct conform *conform);
void objects_borrowed(struct conform *conform);
void objects_parents_gone(struct conform *conform);

#endif /* CONFORM_ARGUMENTS_H */
