/* SPDX-License-Identifier: Apache-2.0 */
/* The structs that cross the border: their size now, in ABI 1.0, and what of an input is reserved.
 */
#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"
#include "intake.h"
#include "layout.h"

#define IN_OUT(name, first)                                                                        \
    {                                                                                              \
        sizeof(struct name), (first), 0                                                            \
    }
#define IN_WITH_RESERVED(name, first)                                                              \
    {                                                                                              \
        sizeof(struct name), (first), offsetof(struct name, reserved)                              \
    }

const struct intake_kind intake_error = IN_OUT(hsdp_error, LAYOUT_ERROR_1_0);
const struct intake_kind intake_mesh_spec = IN_OUT(hsdp_mesh_spec, LAYOUT_MESH_SPEC_1_0);
const struct intake_kind intake_mesh_info = IN_OUT(hsdp_mesh_info, LAYOUT_MESH_INFO_1_0);
const struct intake_kind intake_job_spec = IN_OUT(hsdp_job_spec, LAYOUT_JOB_SPEC_1_0);
const struct intake_kind intake_job_info = IN_OUT(hsdp_job_info, LAYOUT_JOB_INFO_1_0);
const struct intake_kind intake_coll_spec = IN_WITH_RESERVED(hsdp_coll_spec, LAYOUT_COLL_SPEC_1_0);
const struct intake_kind intake_group_spec = IN_OUT(hsdp_group_spec, LAYOUT_GROUP_SPEC_1_0);
const struct intake_kind intake_group_info = IN_OUT(hsdp_group_info, LAYOUT_GROUP_INFO_1_0);
const struct intake_kind intake_class_spec = IN_OUT(hsdp_class_spec, LAYOUT_CLASS_SPEC_1_0);
const struct intake_kind intake_param_spec = IN_OUT(hsdp_param_spec, LAYOUT_PARAM_SPEC_1_0);
const struct intake_kind intake_plan_info = IN_OUT(hsdp_plan_info, LAYOUT_PLAN_INFO_1_0);
const struct intake_kind intake_class_info = IN_OUT(hsdp_class_info, LAYOUT_CLASS_INFO_1_0);
const struct intake_kind intake_unit_info = IN_OUT(hsdp_unit_info, LAYOUT_UNIT_INFO_1_0);
const struct intake_kind intake_buffer_info = IN_OUT(hsdp_buffer_info, LAYOUT_BUFFER_INFO_1_0);
const struct intake_kind intake_param_info = IN_OUT(hsdp_param_info, LAYOUT_PARAM_INFO_1_0);
const struct intake_kind intake_model_info = IN_OUT(hsdp_model_info, LAYOUT_MODEL_INFO_1_0);
const struct intake_kind intake_step_spec = IN_OUT(hsdp_step_spec, LAYOUT_STEP_SPEC_1_0);
const struct intake_kind intake_step_info = IN_OUT(hsdp_step_info, LAYOUT_STEP_RESULT_1_0);
const struct intake_kind intake_adamw_spec =
    IN_WITH_RESERVED(hsdp_adamw_spec, LAYOUT_ADAMW_SPEC_1_0);
