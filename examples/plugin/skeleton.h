/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin to begin with: what its files share. docs/abi.md goes through it. */
#ifndef SKELETON_H
#define SKELETON_H

#include "hsdp/hsdp.h"

#define SKELETON_NAME    "skeleton"
#define SKELETON_VERSION "0.1"

/* The tables: entry.c, mesh.c, and in absent_*.c those that are not made yet. */
extern const struct hsdp_mesh_ops skeleton_mesh;
extern const struct hsdp_job_ops skeleton_job;
extern const struct hsdp_group_ops skeleton_group;
extern const struct hsdp_plan_ops skeleton_plan;
extern const struct hsdp_model_ops skeleton_model;
extern const struct hsdp_unit_ops skeleton_unit;
extern const struct hsdp_step_ops skeleton_step;
extern const struct hsdp_diag_ops skeleton_diag;

/** A function of the root table, in describe.c. */
int32_t skeleton_describe(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                          struct hsdp_error *reterr);

/** Fills the host's error, of whatever size it is, and returns the status. */
int32_t skeleton_fail(struct hsdp_error *reterr, const char *operation, int32_t status,
                      const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 4, 5)))
#endif
    ;

/** Says that a function is not made yet. */
int32_t skeleton_absent(struct hsdp_error *reterr, const char *operation);

/** A struct that crosses the border in one call. */
struct skeleton_struct {
    const char *operation; /* "mesh.create" */
    const char *argument;  /* "spec" */
    size_t n_bytes_1_0;    /* its size in ABI 1.0, for ever */
    size_t n_bytes;        /* its size in the headers that this plugin is compiled with */
};

/**
 * Takes a struct of a host in. A shorter one is zero-extended; a longer one is taken if what this
 * plugin does not know is zero.
 */
int32_t skeleton_take(const struct skeleton_struct *kind, const void *theirs, void *ret_own,
                      struct hsdp_error *reterr);

/** Asks whether a struct of a host can hold a result; then skeleton_give cannot fail. */
int32_t skeleton_can_give(const struct skeleton_struct *kind, const void *theirs,
                          struct hsdp_error *reterr);

/** Fills it as far as it goes, and zeros what this plugin does not know. */
void skeleton_give(const struct skeleton_struct *kind, const void *own, void *ret_theirs);

#endif /* SKELETON_H */
