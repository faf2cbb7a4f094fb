/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of the structs of ABI 1.0, in bytes: what every host and plugin has at least. */
#ifndef EXPORT_LAYOUT_H
#define EXPORT_LAYOUT_H

#define LAYOUT_ERROR_1_0       776u
#define LAYOUT_API_1_0         112u
#define LAYOUT_MESH_SPEC_1_0   48u
#define LAYOUT_MESH_INFO_1_0   32u
#define LAYOUT_MESH_OPS_1_0    56u
#define LAYOUT_JOB_SPEC_1_0    120u
#define LAYOUT_JOB_INFO_1_0    56u
#define LAYOUT_JOB_OPS_1_0     112u
#define LAYOUT_COLL_SPEC_1_0   64u
#define LAYOUT_GROUP_SPEC_1_0  24u
#define LAYOUT_GROUP_INFO_1_0  56u
#define LAYOUT_GROUP_OPS_1_0   56u
#define LAYOUT_CLASS_SPEC_1_0  56u
#define LAYOUT_PARAM_SPEC_1_0  64u
#define LAYOUT_PLAN_INFO_1_0   88u
#define LAYOUT_CLASS_INFO_1_0  72u
#define LAYOUT_UNIT_INFO_1_0   48u
#define LAYOUT_BUFFER_INFO_1_0 56u
#define LAYOUT_PARAM_INFO_1_0  80u
#define LAYOUT_SEGMENT_1_0     32u
#define LAYOUT_PLAN_OPS_1_0    152u
#define LAYOUT_MODEL_INFO_1_0  80u
#define LAYOUT_MODEL_OPS_1_0   104u
#define LAYOUT_UNIT_OPS_1_0    64u
#define LAYOUT_STEP_SPEC_1_0   56u
#define LAYOUT_STEP_RESULT_1_0 56u
#define LAYOUT_STEP_OPS_1_0    48u
#define LAYOUT_DIAG_OPS_1_0    32u
#define LAYOUT_ADAMW_SPEC_1_0  72u
#define LAYOUT_ADAMW_OPS_1_0   16u
#define LAYOUT_PLUGIN_SPEC_1_0 24u

#endif /* EXPORT_LAYOUT_H */
