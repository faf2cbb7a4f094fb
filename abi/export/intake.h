/* SPDX-License-Identifier: Apache-2.0 */
/* Intake: structs of a host of any version become the engine's, and back. */
#ifndef EXPORT_INTAKE_H
#define EXPORT_INTAKE_H

#include "hsdp/abi.h"

/** A struct that crosses the border and begins with its size. */
struct intake_kind {
    size_t n_bytes;     /* of this plugin's struct */
    size_t n_bytes_1_0; /* of ABI 1.0's, which every caller has at least */
    size_t
        reserved_offset; /* of a uint32_t that must be zero, for it may become a field; 0 = none */
};

/* No struct of any version is longer, so a size beyond is garbage and not a host of the future. */
#define INTAKE_MAX_BYTES 65536u

extern const struct intake_kind intake_error;
extern const struct intake_kind intake_mesh_spec;
extern const struct intake_kind intake_mesh_info;
extern const struct intake_kind intake_job_spec;
extern const struct intake_kind intake_job_info;
extern const struct intake_kind intake_coll_spec;
extern const struct intake_kind intake_group_spec;
extern const struct intake_kind intake_group_info;
extern const struct intake_kind intake_class_spec;
extern const struct intake_kind intake_param_spec;
extern const struct intake_kind intake_plan_info;
extern const struct intake_kind intake_class_info;
extern const struct intake_kind intake_unit_info;
extern const struct intake_kind intake_buffer_info;
extern const struct intake_kind intake_param_info;
extern const struct intake_kind intake_model_info;
extern const struct intake_kind intake_step_spec;
extern const struct intake_kind intake_step_info;
extern const struct intake_kind intake_adamw_spec;

/** Who hands a struct over, for the sentence of an error: "mesh.create: spec". */
struct intake_source {
    const char *call; /* "mesh.create" */
    const char *name; /* "spec" */
};

/**
 * Checks the struct_size of a caller's struct and reads nothing else.
 *
 * Errors: HSDP_ERR_INVALID for NULL; HSDP_ERR_VERSION for a size below ABI 1.0's or beyond
 * INTAKE_MAX_BYTES.
 */
int32_t intake_check(const struct intake_kind *kind, struct intake_source source,
                     const void *theirs, struct hsdp_error *reterr);

/**
 * Copies a caller's struct into *ret_ours, which has its full size afterwards: what an older host
 * does not have is zero. No byte past the declared size is read.
 *
 * Errors: those of intake_check; HSDP_ERR_UNSUPPORTED when a byte that this plugin does not know,
 * or a reserved field, is not zero.
 */
int32_t intake(const struct intake_kind *kind, struct intake_source source, const void *theirs,
               void *ret_ours, struct hsdp_error *reterr);

/**
 * Copies a result to a caller's struct that intake_check has accepted: as far as it reaches, and
 * zeros behind what this plugin knows. Its struct_size stays.
 */
void outtake(const struct intake_kind *kind, const void *ours, void *ret_theirs);

#endif /* EXPORT_INTAKE_H */
