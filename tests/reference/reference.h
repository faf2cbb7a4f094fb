/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the reference plugin, one per public header, each made by the file of its name. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"

#define REFERENCE_NAME    "reference"
#define REFERENCE_VERSION "1"

extern const struct hsdp_mesh_ops reference_mesh;
extern const struct hsdp_job_ops reference_job;
extern const struct hsdp_group_ops reference_group;
extern const struct hsdp_plan_ops reference_plan;
extern const struct hsdp_model_ops reference_model;
extern const struct hsdp_unit_ops reference_unit;
extern const struct hsdp_step_ops reference_step;
extern const struct hsdp_diag_ops reference_diag;
extern const struct hsdp_adamw_ops reference_adamw;

/* describe.c: api->describe. */
int32_t reference_describe(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                           struct hsdp_error *reterr);

#endif /* REFERENCE_H */
