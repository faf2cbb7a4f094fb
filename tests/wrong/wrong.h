/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that passes every call on to a good one, but for one fault, to see that the kit finds
 * it. */
#ifndef TESTS_WRONG_WRONG_H
#define TESTS_WRONG_WRONG_H

#include <stdint.h>

#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"

/* The variables that say which plugin is the good one, and what is wrong. None: nothing is. */
#define WRONG_PLUGIN "WRONG_PLUGIN"
#define WRONG_FAULT  "WRONG_FAULT"

struct wrong_fault {
    const char *name;
    const char *chapter; /* of the kit, and the check that finds it */
    const char *check;
    const char *what;     /* is wrong */
    void (*commit)(void); /* changes a table below */
};

struct wrong_faults {
    const struct wrong_fault *faults;
    uint32_t n_faults;
};

#define WRONG_N_LISTS 8
extern const struct wrong_faults *const wrong_lists[WRONG_N_LISTS];

extern const struct wrong_faults wrong_border;
extern const struct wrong_faults wrong_waits;
extern const struct wrong_faults wrong_failures;
extern const struct wrong_faults wrong_views;
extern const struct wrong_faults wrong_process;
extern const struct wrong_faults wrong_numbers;
extern const struct wrong_faults wrong_collectives;
extern const struct wrong_faults wrong_steps;

#define WRONG_FAULTS(list)                                                                         \
    {                                                                                              \
        (list), sizeof(list) / sizeof((list)[0])                                                   \
    }

/* The good plugin, and tables of our own, which are copies of its until a fault changes them. */
struct wrong {
    const struct hsdp_api *real;
    int32_t (*real_entry)(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                          struct hsdp_error *reterr);
    uint32_t accepted_major; /* beside the right one */
    struct hsdp_api api;
    struct hsdp_mesh_ops mesh;
    struct hsdp_job_ops job;
    struct hsdp_group_ops group;
    struct hsdp_plan_ops plan;
    struct hsdp_model_ops model;
    struct hsdp_unit_ops unit;
    struct hsdp_step_ops step;
    struct hsdp_diag_ops diag;
};

extern struct wrong wrong;

/** Changes each collective that starts alone. */
void wrong_start(void (*change)(struct hsdp_coll_spec *spec, uint32_t n_ranks));

#endif /* TESTS_WRONG_WRONG_H */
