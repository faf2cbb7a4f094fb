/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the plugin, one per public header. */
#ifndef EXPORT_TABLES_H
#define EXPORT_TABLES_H

#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"

extern const struct hsdp_api export_api;
extern const struct hsdp_mesh_ops export_mesh;
extern const struct hsdp_job_ops export_job;
extern const struct hsdp_group_ops export_group;
extern const struct hsdp_plan_ops export_plan;
extern const struct hsdp_model_ops export_model;
extern const struct hsdp_unit_ops export_unit;
extern const struct hsdp_step_ops export_step;
extern const struct hsdp_diag_ops export_diag;
extern const struct hsdp_adamw_ops export_adamw;

/* The functions of the root table. */
int32_t export_describe(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                        struct hsdp_error *reterr);
int32_t export_extension(const char *name, const void **ret_ops, struct hsdp_error *reterr);

/** An optional table. */
struct extension {
    const char *name;
    const void *ops;
};

#define EXTENSION_COUNT 1
extern const struct extension export_extensions[EXTENSION_COUNT];

#endif /* EXPORT_TABLES_H */
