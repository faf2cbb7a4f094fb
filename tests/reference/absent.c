/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that are not made yet. */
#include "reference.h"

const struct hsdp_job_ops reference_job = {.struct_size = sizeof(struct hsdp_job_ops)};
const struct hsdp_group_ops reference_group = {.struct_size = sizeof(struct hsdp_group_ops)};
const struct hsdp_model_ops reference_model = {.struct_size = sizeof(struct hsdp_model_ops)};
const struct hsdp_unit_ops reference_unit = {.struct_size = sizeof(struct hsdp_unit_ops)};
const struct hsdp_step_ops reference_step = {.struct_size = sizeof(struct hsdp_step_ops)};
const struct hsdp_diag_ops reference_diag = {.struct_size = sizeof(struct hsdp_diag_ops)};
const struct hsdp_adamw_ops reference_adamw = {.struct_size = sizeof(struct hsdp_adamw_ops)};
