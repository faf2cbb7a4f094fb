/* SPDX-License-Identifier: Apache-2.0 */
/* A job, a group and a small model: where the chapters about life and death play. */
#ifndef CONFORM_SCENE_H
#define CONFORM_SCENE_H

#include <stdbool.h>

#include "conform.h"
#include "training/device.h"

#define SCENE_MAX_DIMS 4

/* How long a rank may take longer than promised: the machine may be busy. */
#define SCENE_LATE_MS 6000u

/* Long enough for all that is not meant to end by itself. */
#define SCENE_PATIENT "nccl_timeout_seconds=60 heartbeat_timeout_seconds=60 init_timeout_seconds=60"

struct scene_spec {
    const char *name;     /* of the job; NULL = the default */
    const char *settings; /* of the job, "key=value key=value" */
    uint32_t rank;        /* in the job; used where n_ranks is not 0 */
    uint32_t n_ranks;     /* 0 = as the launcher says: all of the check */
    void (*on_abort)(void *user, const struct hsdp_error *reason);
    void *user;
};

struct scene {
    struct conform *conform;
    const struct hsdp_api *api;
    hsdp_job *job;
    hsdp_mesh *mesh;
    hsdp_group *group;
    hsdp_plan *plan;
    hsdp_model *model;
    uint32_t rank;
    uint32_t n_ranks;
    uint64_t pass;
    char name[64];
};

/* The model: unit 0 holds w and k, unit 1 holds x and s. */
enum { SCENE_W, SCENE_K, SCENE_X, SCENE_S, SCENE_N_PARAMS };
enum { SCENE_FRONT, SCENE_BACK, SCENE_N_UNITS };
extern const uint64_t scene_n_elems[SCENE_N_PARAMS];

/** Makes the job; local. */
void scene_create(struct scene *scene, struct conform *conform, const struct scene_spec *spec);
/** The same, and connects it. */
void scene_join(struct scene *scene, struct conform *conform, const struct scene_spec *spec);
/** One of many jobs of two ranks, side by side; returns which. */
uint32_t scene_join_pair(struct scene *scene, struct conform *conform, const char *settings);

/** Arranges the ranks: "dp=2,ep=2". */
void scene_arrange(struct scene *scene, const char *dims);
/** Asks for a group and connects it. Collective. */
hsdp_group *scene_group(struct scene *scene, const char *selector, uint64_t timeout_ms);
/** A mesh of one dimension, dp, and its group. */
void scene_gather(struct scene *scene);
/** A plan with these settings, and its model. The mesh is made if there is none. */
void scene_model(struct scene *scene, const char *settings);
/** The plan alone. */
void scene_plan(struct scene *scene, const char *settings);
/** Gives everything back, without farewell. */
void scene_drop(struct scene *scene);
/** Says farewell first. */
void scene_close(struct scene *scene);

/** Starts a barrier of the scene's group. */
uint64_t scene_barrier(struct scene *scene, uint64_t timeout_ms);
/** Waits for a ticket until its own deadline. */
int32_t scene_wait(struct scene *scene, uint64_t ticket);

/** Starts a collective, or a barrier, and waits for it. */
int32_t scene_run(struct scene *scene, const struct hsdp_coll_spec *spec);
int32_t scene_run_barrier(struct scene *scene);

/** A tensor of the host's memory with the shape of a parameter. */
struct hsdp_tensor scene_tensor(uint32_t param, float *values);
/** Where a view lies; it is not for looking, which a device may forbid. */
void *scene_address(const struct hsdp_tensor *view);
/** An element of a view of fp32 or bf16. */
float scene_read(const struct hsdp_tensor *view, uint64_t elem);
/** Writes an element of a view of fp32. */
void scene_write(const struct hsdp_tensor *view, uint64_t elem, float value);
struct hsdp_tensor scene_param(struct scene *scene, uint32_t param, int32_t view);
struct hsdp_tensor scene_flat(struct scene *scene, uint32_t unit, uint32_t buffer, int32_t flat);

/** The trainable buffer of a unit. */
uint32_t scene_buffer(struct scene *scene, uint32_t unit);

/** Fills all parameters with one number, in an edit. */
void scene_load(struct scene *scene, float value);
void scene_pass_begin(struct scene *scene);
/** Fills the gradients of a unit, which is acquired. */
void scene_fill(struct scene *scene, uint32_t unit, float gradient);
/** Acquires the gradients of a unit and fills them. */
void scene_acquire(struct scene *scene, uint32_t unit, float gradient);
void scene_hand_over(struct scene *scene, uint32_t unit);
/** A whole pass in which every gradient is this number. */
void scene_backward(struct scene *scene, float gradient);
/** A whole step: each element becomes less by its gradient. */
void scene_step(struct scene *scene);
/** Every element of a parameter is this number, unsharded. */
void scene_expect_param(struct scene *scene, uint32_t param, float value);

/** What a wait must end with. */
struct scene_end {
    const char *operation; /* a part of its name */
    const char *group;     /* NULL = any */
    uint32_t missing;      /* the one rank that is missing */
    uint64_t since_ms;     /* what scene_since has told just before */
    uint64_t timeout_ms;
};

/** Milliseconds now, when this rank begins to wait; it notes who is the first. */
uint64_t scene_since(struct scene *scene);

/** A wait that was refused with HSDP_ERR_TIMEOUT has ended at its deadline, and says so. */
void scene_expect_end(struct scene *scene, const struct scene_end *end);

/**
 * A call ends with the failure of the job. One that began after it, which nobody can tell from
 * outside, is told that the job was aborted; then the job's own status is this one.
 */
#define scene_must_end(scene, call, status)                                                        \
    scene_check_end((scene), #call, (conform_enter((scene)->conform, #call), (call)), (status))
void scene_check_end(struct scene *scene, const char *call, int32_t found, int32_t status);

/** A failure was known soon enough; it began at since_ms. */
void scene_expect_soon(struct scene *scene, uint64_t since_ms);

/** Does nothing until the job has failed, soon, and with this status. */
void scene_await_failure(struct scene *scene, int32_t status);

/** The last error names this rank, and no other. */
void scene_expect_missing(struct scene *scene, uint32_t rank);

/** The last error's sentence holds a text. */
void scene_expect_text(struct scene *scene, const char *text);

/** The job is over: later calls repeat its first reason, and what only tells still answers. */
void scene_expect_over(struct scene *scene, int32_t status);

#endif /* CONFORM_SCENE_H */
