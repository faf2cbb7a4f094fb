/* SPDX-License-Identifier: Apache-2.0 */
/* A training host in short verbs, through the ABI only: read host.c to see what each one does. */
#ifndef CONFORM_HOST_H
#define CONFORM_HOST_H

#include <stdbool.h>
#include <string.h>

#include "device.h"
#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

#define HOST_MAX_DIMS    8
#define HOST_MAX_CLASSES 3
#define HOST_MAX_UNITS   12
#define HOST_MAX_PARAMS  24
#define HOST_NAME_BYTES  32

struct host_dim {
    char name[HOST_NAME_BYTES];
    uint32_t size;
    bool is_data;
};

struct host_class {
    char name[HOST_NAME_BYTES];
    char over[64];    /* selector: replicated over these */
    char reduced[64]; /* and reduced over these; mostly the same */
};

struct host_param {
    char name[HOST_NAME_BYTES];
    int64_t shape[HSDP_PARAM_MAX_DIMS];
    uint64_t n_elems;
    uint32_t n_dims;
    uint32_t unit;
    uint32_t storage; /* itself unless tied */
    uint32_t tied_to; /* the name that was given; itself unless tied */
    uint32_t hyper_group;
    uint64_t block_elems;
    char tied_over[HOST_NAME_BYTES];
    bool is_frozen;
};

struct host {
    const struct hsdp_api *api;
    hsdp_plugin *plugin;
    hsdp_job *job;
    hsdp_mesh *mesh;
    hsdp_plan *plan;
    hsdp_model *model;
    struct hsdp_error err; /* of the last call that failed */
    uint32_t rank;
    uint32_t n_ranks;
    struct host_dim dims[HOST_MAX_DIMS];
    struct host_class classes[HOST_MAX_CLASSES];
    struct host_param params[HOST_MAX_PARAMS];
    char units[HOST_MAX_UNITS][HOST_NAME_BYTES];
    uint32_t unit_classes[HOST_MAX_UNITS];
    uint32_t n_dims, n_classes, n_units, n_params;
    uint64_t pass;  /* the one that host_pass_begin has opened */
    float *scratch; /* what host_export has returned; owned */
};

/* Values of settings by number: the rows of the table, HSDP_SCOPE_*, and dtypes. */
#define HOST_N_STRATEGIES 7
#define HOST_N_SCOPES     3
#define HOST_N_DTYPES     3
extern const char *const host_strategies[HOST_N_STRATEGIES];
extern const char *const host_scopes[HOST_N_SCOPES];
extern const char *const host_dtypes[HOST_N_DTYPES];

/* What the ranks of a check run with: they inherit it. */
extern char host_settings[256];

/** Makes host_settings of a row and more settings, "key=value key=value". */
void host_settings_set(int strategy, const char *more);

/* What a program that uses this gives. */

/** Ends the check, which has failed. */
_Noreturn void host_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What the next calls need of a plugin, so that who knows what it claims can end the check. */
enum host_need {
    HOST_TRANSPORT,
    HOST_PLAN,      /* with these settings */
    HOST_PART,      /* of a plan: with these settings, or "tied_to" */
    HOST_EXTENSION, /* of this name */
};
void host_needs(enum host_need need, const char *text);
/** Ends the check: a call has answered HSDP_ERR_UNSUPPORTED. */
_Noreturn void host_unsupported(const char *call, const char *sentence);
/** A call of the plugin begins, or with "" has returned: for who asks where a rank hangs. */
void host_enter(const char *call);
/** The file of the plugin that host_join loads. */
const char *host_plugin_path(void);

/* A call succeeds; or it is refused with a status, and a sentence that contains `text`. */
#define host_must(host, call) host_succeeded((host), #call, (host_begin(#call), (call)))
/* An assertion for what is asked thousands of times. */
#define host_expect(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            host_fail("%s:%d: %s", __FILE__, __LINE__, #condition);                                \
        }                                                                                          \
    } while (0)
#define host_must_refuse(host, call, expected, text)                                               \
    do {                                                                                           \
        host_refused((host), #call, (host_begin(#call), (call)), (expected), (text));              \
    } while (0)

void host_begin(const char *call);
void host_succeeded(const struct host *host, const char *call, int32_t found);
void host_refused(const struct host *host, const char *call, int32_t found, int32_t expected,
                  const char *text);

/* ------------------------------------------------------------------------------- to a model */

/**
 * Joins the run, plans, and creates the model; every rank calls it with its number.
 *
 *   dims      "dp=2,ep=2": sizes from the outermost; dp, cp and ep see different data, or what is
 *             listed behind them: "dp=2,ep=2 data=dp"
 *   settings  "sharding_strategy=hsdp slots=2": of the plan, or of the job
 *   units     "unit a: w[4,2] b[4]!; class expert(dp) reduce_dtype=bf16; unit e: x[8]"
 *             statements are separated by ';'. A unit belongs to the class before it; the first
 *             class, "dense", over all data dimensions, need not be written. "class ln(dp,tp)(dp)"
 *             is replicated over dp and tp, but reduced over dp only. Behind a parameter may
 *             stand: ! frozen, =NAME tied to it, @N its hyper group, /N its block_elems, and at
 *             the end ~pp[0,-1] the stages that it is tied over.
 */
void host_open(struct host *host, uint32_t rank, const char *dims, const char *settings,
               const char *units);

/* The same in three steps. */
void host_join(struct host *host, uint32_t rank, const char *dims, const char *settings);
/** Joins a job of this name; who this is comes from the host, and not from the environment. */
void host_join_as(struct host *host, uint32_t rank, const char *dims, const char *settings,
                  const char *job_name);
/** Joins no job: for plans alone, of any rank. */
void host_arrange(struct host *host, uint32_t rank, const char *dims);
void host_plan(struct host *host, const char *settings, const char *units);
void host_model(struct host *host);

/** Says farewell to the other ranks and gives everything back. */
void host_close(struct host *host);
/** Gives everything back: after a failure, when there is no farewell. */
void host_leave(struct host *host);

/** The number of a unit, or of a parameter. */
uint32_t host_unit(const struct host *host, const char *name);
uint32_t host_param(const struct host *host, const char *name);
bool host_is_trainable(const struct host *host, uint32_t unit);
/** Whether it stores a trainable parameter itself: else there is no step shard. */
bool host_is_stepped(const struct host *host, uint32_t unit);
/** Whether a parameter is a name for one of another unit. */
bool host_is_alias(const struct host *host, uint32_t param);

/** The first of the ranks that hold the same values of a parameter as `rank` does. */
uint32_t host_holder(const struct host *host, uint32_t param, uint32_t rank);
/** The first of those whose gradients of it are summed with this rank's. */
uint32_t host_reducer(const struct host *host, uint32_t param, uint32_t rank);

/* ------------------------------------------------------------------------- values of weights */

/* Which element of which parameter, and whose: for a weight, the first rank that has it. */
struct host_at {
    uint32_t rank;
    uint32_t microbatch;
    uint32_t param;
    uint64_t elem;
};

/** A gradient, or an initial weight, as a function of where it is. */
typedef double (*host_value)(struct host_at at);

/** Fills all parameters in an edit: each rank passes the values of its own. */
void host_load(struct host *host, host_value weight);

/** A whole parameter, or gradient or state of it, in fp32; collective; until the next call. */
const float *host_export(struct host *host, uint32_t param, int32_t flat);

/** A view of a parameter or its gradient, HSDP_VIEW_*. */
struct hsdp_tensor host_view(struct host *host, uint32_t param, int32_t view);

/** A tensor of the host's memory with the shape of a parameter. */
struct hsdp_tensor host_tensor(struct host *host, uint32_t param, void *base, const char *dtype);

/** One element of a view, as a number; writing rounds to the view's dtype. See device.h. */
double host_read(const struct hsdp_tensor *view, uint64_t elem);
void host_write(const struct hsdp_tensor *view, uint64_t elem, double value);

/** A number rounded to "fp32", "bf16" or "fp16". */
double host_round(double value, const char *dtype);

/* ------------------------------------------------------------------------------- microbatches */

/** Unshards and releases every unit in order. */
void host_forward(struct host *host);

/** A backward pass over all trainable units: fills their gradients and hands them over. */
void host_backward(struct host *host, int32_t scope, uint32_t microbatch, host_value gradient);

/* The same in steps; host->pass is the pass. */
void host_pass_begin(struct host *host, int32_t scope);
void host_acquire(struct host *host, uint32_t unit);
void host_fill(struct host *host, uint32_t unit, uint32_t microbatch, host_value gradient);
void host_hand_over(struct host *host, uint32_t unit);
/** Unshards a unit and releases it, on a rank that has no gradient of it: as its peers do. */
void host_attend(struct host *host, uint32_t unit);
void host_pass_end(struct host *host);

/* The calls themselves, for those that are refused. */
int32_t host_unshard(struct host *host, uint32_t unit, int32_t use);
int32_t host_release(struct host *host, uint32_t unit);
int32_t host_reduce(struct host *host, uint32_t unit);
int32_t host_skip(struct host *host, uint32_t unit);
int32_t host_backward_begin(struct host *host, const uint32_t *units, uint64_t n_units,
                            int32_t scope, uint64_t *ret_pass);
int32_t host_backward_end(struct host *host, uint64_t pass);

/** A foreign gradient of one parameter: every element has this value. */
void host_grad_add(struct host *host, const char *param, double value, const char *dtype);

/* -------------------------------------------------------------------------------------- steps */

/** Begins a step and waits for its result. */
struct hsdp_step_info host_step(struct host *host, double max_norm);

/** Gradient descent on this rank's shards: master -= rate * factor * gradient. */
void host_descend(struct host *host, double rate, double factor);

/** The plugin's own optimizer; every parameter has hyper group 0 or 1. */
int32_t host_adamw(struct host *host, double rate, double decay);

void host_step_end(struct host *host);

/* ------------------------------------------------------------------------------------ checking */

/** An element of something is this number; NaN is NaN. Fast where it holds. */
void host_expect_number(const struct host *host, const char *name, uint64_t elem, double found,
                        double expected);

/** Every element of a parameter, unsharded, is this number. */
void host_expect_param(struct host *host, const char *param, double value);
/** Every element of the reduced gradient; within a step, collective. */
void host_expect_grad(struct host *host, const char *param, double value);

#endif /* CONFORM_HOST_H */
