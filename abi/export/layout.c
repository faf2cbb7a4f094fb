/* SPDX-License-Identifier: Apache-2.0 */
/* The frozen layout: what each release promised, checked at compile time. Add to it, never edit. */
#include "layout.h"

#include <stddef.h>

#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

#define FIELD(name, field, offset, n_bytes)                                                        \
    _Static_assert(offsetof(struct name, field) == (offset) &&                                     \
                       sizeof(((struct name *)0)->field) == (n_bytes),                             \
                   "struct " #name ": " #field " has moved or changed its size")

/* The last field of a release ends where its size says: nothing is hidden in padding. */
#define ENDS(name, field, n_bytes)                                                                 \
    _Static_assert(offsetof(struct name, field) + sizeof(((struct name *)0)->field) == (n_bytes),  \
                   "struct " #name ": does not end with " #field)

#define SIZE(name, n_bytes)                                                                        \
    _Static_assert(sizeof(struct name) == (n_bytes), "struct " #name ": has another size")

#define VALUE(macro, value) _Static_assert((macro) == (value), #macro " has another value")

/* LP64, as on x86-64 and aarch64 Linux. */
_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8 && sizeof(double) == 8, "not LP64");

/* --------------------------------------------------------------------- ABI 1.0: frozen for ever */

/* What DLPack publishes as DLTensor. */
struct published_tensor {
    void *data;
    struct {
        int32_t device_type;
        int32_t device_id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code;
        uint8_t bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
};

#define SAME(ours, theirs)                                                                         \
    _Static_assert(offsetof(struct hsdp_tensor, ours) ==                                           \
                           offsetof(struct published_tensor, theirs) &&                            \
                       sizeof(((struct hsdp_tensor *)0)->ours) ==                                  \
                           sizeof(((struct published_tensor *)0)->theirs),                         \
                   "struct hsdp_tensor: " #ours " differs from DLTensor")

SAME(base, data);
SAME(device_type, device.device_type);
SAME(device_id, device.device_id);
SAME(n_dims, ndim);
SAME(dtype_code, dtype.code);
SAME(dtype_bits, dtype.bits);
SAME(dtype_lanes, dtype.lanes);
SAME(shape, shape);
SAME(strides, strides);
SAME(byte_offset, byte_offset);
_Static_assert(sizeof(struct hsdp_tensor) == sizeof(struct published_tensor), "not a DLTensor");

FIELD(hsdp_tensor, base, 0, 8);
FIELD(hsdp_tensor, device_type, 8, 4);
FIELD(hsdp_tensor, device_id, 12, 4);
FIELD(hsdp_tensor, n_dims, 16, 4);
FIELD(hsdp_tensor, dtype_code, 20, 1);
FIELD(hsdp_tensor, dtype_bits, 21, 1);
FIELD(hsdp_tensor, dtype_lanes, 22, 2);
FIELD(hsdp_tensor, shape, 24, 8);
FIELD(hsdp_tensor, strides, 32, 8);
FIELD(hsdp_tensor, byte_offset, 40, 8);
SIZE(hsdp_tensor, 48);

FIELD(hsdp_settings, keys, 0, 8);
FIELD(hsdp_settings, values, 8, 8);
FIELD(hsdp_settings, n_settings, 16, 8);
SIZE(hsdp_settings, 24);

/* ----------------------------------------------------------------------- ABI 1.0: what may grow */

FIELD(hsdp_error, struct_size, 0, 8);
FIELD(hsdp_error, status, 8, 4);
FIELD(hsdp_error, n_missing_ranks, 12, 4);
FIELD(hsdp_error, ticket, 16, 8);
FIELD(hsdp_error, sequence, 24, 8);
FIELD(hsdp_error, waited_ms, 32, 8);
FIELD(hsdp_error, missing_ranks, 40, 64);
FIELD(hsdp_error, operation, 104, 32);
FIELD(hsdp_error, group, 136, 64);
FIELD(hsdp_error, unit, 200, 64);
FIELD(hsdp_error, message, 264, 512);
ENDS(hsdp_error, message, LAYOUT_ERROR_1_0);

FIELD(hsdp_api, struct_size, 0, 8);
FIELD(hsdp_api, abi_major, 8, 4);
FIELD(hsdp_api, abi_minor, 12, 4);
FIELD(hsdp_api, plugin_name, 16, 8);
FIELD(hsdp_api, plugin_version, 24, 8);
FIELD(hsdp_api, mesh, 32, 8);
FIELD(hsdp_api, job, 40, 8);
FIELD(hsdp_api, group, 48, 8);
FIELD(hsdp_api, plan, 56, 8);
FIELD(hsdp_api, model, 64, 8);
FIELD(hsdp_api, unit, 72, 8);
FIELD(hsdp_api, step, 80, 8);
FIELD(hsdp_api, diag, 88, 8);
FIELD(hsdp_api, describe, 96, 8);
FIELD(hsdp_api, extension, 104, 8);
ENDS(hsdp_api, extension, LAYOUT_API_1_0);

FIELD(hsdp_mesh_spec, struct_size, 0, 8);
FIELD(hsdp_mesh_spec, dim_sizes, 8, 8);
FIELD(hsdp_mesh_spec, dim_names, 16, 8);
FIELD(hsdp_mesh_spec, data_dims, 24, 8);
FIELD(hsdp_mesh_spec, n_dims, 32, 4);
FIELD(hsdp_mesh_spec, world_ranks, 36, 4);
FIELD(hsdp_mesh_spec, rank, 40, 4);
FIELD(hsdp_mesh_spec, ranks_per_node, 44, 4);
ENDS(hsdp_mesh_spec, ranks_per_node, LAYOUT_MESH_SPEC_1_0);

FIELD(hsdp_mesh_info, struct_size, 0, 8);
FIELD(hsdp_mesh_info, n_dims, 8, 4);
FIELD(hsdp_mesh_info, world_ranks, 12, 4);
FIELD(hsdp_mesh_info, rank, 16, 4);
FIELD(hsdp_mesh_info, n_data_ranks, 20, 4);
FIELD(hsdp_mesh_info, ranks_per_node, 24, 4);
FIELD(hsdp_mesh_info, reserved, 28, 4);
ENDS(hsdp_mesh_info, reserved, LAYOUT_MESH_INFO_1_0);

FIELD(hsdp_mesh_ops, struct_size, 0, 8);
FIELD(hsdp_mesh_ops, create, 8, 8);
FIELD(hsdp_mesh_ops, info, 16, 8);
FIELD(hsdp_mesh_ops, dim, 24, 8);
FIELD(hsdp_mesh_ops, coords, 32, 8);
FIELD(hsdp_mesh_ops, members, 40, 8);
FIELD(hsdp_mesh_ops, destroy, 48, 8);
ENDS(hsdp_mesh_ops, destroy, LAYOUT_MESH_OPS_1_0);

FIELD(hsdp_job_spec, struct_size, 0, 8);
FIELD(hsdp_job_spec, name, 8, 8);
FIELD(hsdp_job_spec, settings, 16, 24);
FIELD(hsdp_job_spec, kv_put, 40, 8);
FIELD(hsdp_job_spec, kv_get, 48, 8);
FIELD(hsdp_job_spec, memory_alloc, 56, 8);
FIELD(hsdp_job_spec, memory_free, 64, 8);
FIELD(hsdp_job_spec, log, 72, 8);
FIELD(hsdp_job_spec, on_abort, 80, 8);
FIELD(hsdp_job_spec, user, 88, 8);
FIELD(hsdp_job_spec, device_type, 96, 4);
FIELD(hsdp_job_spec, device_id, 100, 4);
FIELD(hsdp_job_spec, rank, 104, 4);
FIELD(hsdp_job_spec, world_ranks, 108, 4);
FIELD(hsdp_job_spec, local_rank, 112, 4);
FIELD(hsdp_job_spec, local_ranks, 116, 4);
ENDS(hsdp_job_spec, local_ranks, LAYOUT_JOB_SPEC_1_0);

FIELD(hsdp_job_info, struct_size, 0, 8);
FIELD(hsdp_job_info, backend, 8, 8);
FIELD(hsdp_job_info, rank, 16, 4);
FIELD(hsdp_job_info, world_ranks, 20, 4);
FIELD(hsdp_job_info, local_rank, 24, 4);
FIELD(hsdp_job_info, local_ranks, 28, 4);
FIELD(hsdp_job_info, n_tickets_open, 32, 8);
FIELD(hsdp_job_info, timeout_ms, 40, 8);
FIELD(hsdp_job_info, is_connected, 48, 4);
FIELD(hsdp_job_info, reserved, 52, 4);
ENDS(hsdp_job_info, reserved, LAYOUT_JOB_INFO_1_0);

FIELD(hsdp_job_ops, struct_size, 0, 8);
FIELD(hsdp_job_ops, create, 8, 8);
FIELD(hsdp_job_ops, connect, 16, 8);
FIELD(hsdp_job_ops, close, 24, 8);
FIELD(hsdp_job_ops, destroy, 32, 8);
FIELD(hsdp_job_ops, abort, 40, 8);
FIELD(hsdp_job_ops, status, 48, 8);
FIELD(hsdp_job_ops, info, 56, 8);
FIELD(hsdp_job_ops, setting, 64, 8);
FIELD(hsdp_job_ops, setting_set, 72, 8);
FIELD(hsdp_job_ops, phase_push, 80, 8);
FIELD(hsdp_job_ops, phase_pop, 88, 8);
FIELD(hsdp_job_ops, ticket_wait, 96, 8);
FIELD(hsdp_job_ops, ticket_order, 104, 8);
ENDS(hsdp_job_ops, ticket_order, LAYOUT_JOB_OPS_1_0);

FIELD(hsdp_coll_spec, struct_size, 0, 8);
FIELD(hsdp_coll_spec, input, 8, 8);
FIELD(hsdp_coll_spec, output, 16, 8);
FIELD(hsdp_coll_spec, send_elems, 24, 8);
FIELD(hsdp_coll_spec, recv_elems, 32, 8);
FIELD(hsdp_coll_spec, timeout_ms, 40, 8);
FIELD(hsdp_coll_spec, kind, 48, 4);
FIELD(hsdp_coll_spec, reduce, 52, 4);
FIELD(hsdp_coll_spec, peer, 56, 4);
FIELD(hsdp_coll_spec, reserved, 60, 4);
ENDS(hsdp_coll_spec, reserved, LAYOUT_COLL_SPEC_1_0);

FIELD(hsdp_group_spec, struct_size, 0, 8);
FIELD(hsdp_group_spec, selector, 8, 8);
FIELD(hsdp_group_spec, timeout_ms, 16, 8);
ENDS(hsdp_group_spec, timeout_ms, LAYOUT_GROUP_SPEC_1_0);

FIELD(hsdp_group_info, struct_size, 0, 8);
FIELD(hsdp_group_info, name, 8, 8);
FIELD(hsdp_group_info, timeout_ms, 16, 8);
FIELD(hsdp_group_info, n_bytes_sent, 24, 8);
FIELD(hsdp_group_info, n_bytes_received, 32, 8);
FIELD(hsdp_group_info, n_ranks, 40, 4);
FIELD(hsdp_group_info, index, 44, 4);
FIELD(hsdp_group_info, is_connected, 48, 4);
FIELD(hsdp_group_info, reserved, 52, 4);
ENDS(hsdp_group_info, reserved, LAYOUT_GROUP_INFO_1_0);

FIELD(hsdp_group_ops, struct_size, 0, 8);
FIELD(hsdp_group_ops, create, 8, 8);
FIELD(hsdp_group_ops, connect, 16, 8);
FIELD(hsdp_group_ops, info, 24, 8);
FIELD(hsdp_group_ops, members, 32, 8);
FIELD(hsdp_group_ops, start, 40, 8);
FIELD(hsdp_group_ops, destroy, 48, 8);
ENDS(hsdp_group_ops, destroy, LAYOUT_GROUP_OPS_1_0);

FIELD(hsdp_class_spec, struct_size, 0, 8);
FIELD(hsdp_class_spec, name, 8, 8);
FIELD(hsdp_class_spec, replicated_over, 16, 8);
FIELD(hsdp_class_spec, reduced_over, 24, 8);
FIELD(hsdp_class_spec, settings, 32, 24);
ENDS(hsdp_class_spec, settings, LAYOUT_CLASS_SPEC_1_0);

FIELD(hsdp_param_spec, struct_size, 0, 8);
FIELD(hsdp_param_spec, name, 8, 8);
FIELD(hsdp_param_spec, shape, 16, 8);
FIELD(hsdp_param_spec, tied_to, 24, 8);
FIELD(hsdp_param_spec, tied_over, 32, 8);
FIELD(hsdp_param_spec, block_elems, 40, 8);
FIELD(hsdp_param_spec, n_dims, 48, 4);
FIELD(hsdp_param_spec, unit, 52, 4);
FIELD(hsdp_param_spec, hyper_group, 56, 4);
FIELD(hsdp_param_spec, flags, 60, 4);
ENDS(hsdp_param_spec, flags, LAYOUT_PARAM_SPEC_1_0);

FIELD(hsdp_plan_info, struct_size, 0, 8);
FIELD(hsdp_plan_info, param_bytes, 8, 8);
FIELD(hsdp_plan_info, master_bytes, 16, 8);
FIELD(hsdp_plan_info, grad_bytes, 24, 8);
FIELD(hsdp_plan_info, unsharded_bytes, 32, 8);
FIELD(hsdp_plan_info, grad_slot_bytes, 40, 8);
FIELD(hsdp_plan_info, n_state_elems, 48, 8);
FIELD(hsdp_plan_info, padding_bytes, 56, 8);
FIELD(hsdp_plan_info, peak_bytes, 64, 8);
FIELD(hsdp_plan_info, n_classes, 72, 4);
FIELD(hsdp_plan_info, n_units, 76, 4);
FIELD(hsdp_plan_info, n_params, 80, 4);
FIELD(hsdp_plan_info, n_notes, 84, 4);
ENDS(hsdp_plan_info, n_notes, LAYOUT_PLAN_INFO_1_0);

FIELD(hsdp_class_info, struct_size, 0, 8);
FIELD(hsdp_class_info, name, 8, 8);
FIELD(hsdp_class_info, strategy, 16, 8);
FIELD(hsdp_class_info, param_dims, 24, 8);
FIELD(hsdp_class_info, grad_dims, 32, 8);
FIELD(hsdp_class_info, step_dims, 40, 8);
FIELD(hsdp_class_info, reduce_dims, 48, 8);
FIELD(hsdp_class_info, replicated_dims, 56, 8);
FIELD(hsdp_class_info, divisor, 64, 4);
FIELD(hsdp_class_info, reserved, 68, 4);
ENDS(hsdp_class_info, reserved, LAYOUT_CLASS_INFO_1_0);

FIELD(hsdp_unit_info, struct_size, 0, 8);
FIELD(hsdp_unit_info, name, 8, 8);
FIELD(hsdp_unit_info, class_index, 16, 4);
FIELD(hsdp_unit_info, first_param, 20, 4);
FIELD(hsdp_unit_info, n_params, 24, 4);
FIELD(hsdp_unit_info, n_buffers, 28, 4);
FIELD(hsdp_unit_info, divisor, 32, 4);
FIELD(hsdp_unit_info, param_slot, 36, 4);
FIELD(hsdp_unit_info, grad_slot, 40, 4);
FIELD(hsdp_unit_info, reserved, 44, 4);
ENDS(hsdp_unit_info, reserved, LAYOUT_UNIT_INFO_1_0);

FIELD(hsdp_buffer_info, struct_size, 0, 8);
FIELD(hsdp_buffer_info, n_elems, 8, 8);
FIELD(hsdp_buffer_info, n_padding_elems, 16, 8);
FIELD(hsdp_buffer_info, param_shard_elems, 24, 8);
FIELD(hsdp_buffer_info, grad_shard_elems, 32, 8);
FIELD(hsdp_buffer_info, step_shard_elems, 40, 8);
FIELD(hsdp_buffer_info, is_frozen, 48, 4);
FIELD(hsdp_buffer_info, reserved, 52, 4);
ENDS(hsdp_buffer_info, reserved, LAYOUT_BUFFER_INFO_1_0);

FIELD(hsdp_param_info, struct_size, 0, 8);
FIELD(hsdp_param_info, name, 8, 8);
FIELD(hsdp_param_info, shape, 16, 8);
FIELD(hsdp_param_info, tied_over, 24, 8);
FIELD(hsdp_param_info, n_elems, 32, 8);
FIELD(hsdp_param_info, offset_elems, 40, 8);
FIELD(hsdp_param_info, block_elems, 48, 8);
FIELD(hsdp_param_info, n_dims, 56, 4);
FIELD(hsdp_param_info, unit, 60, 4);
FIELD(hsdp_param_info, buffer, 64, 4);
FIELD(hsdp_param_info, storage, 68, 4);
FIELD(hsdp_param_info, hyper_group, 72, 4);
FIELD(hsdp_param_info, flags, 76, 4);
ENDS(hsdp_param_info, flags, LAYOUT_PARAM_INFO_1_0);

FIELD(hsdp_segment, param, 0, 4);
FIELD(hsdp_segment, buffer, 4, 4);
FIELD(hsdp_segment, param_offset_elems, 8, 8);
FIELD(hsdp_segment, shard_offset_elems, 16, 8);
FIELD(hsdp_segment, n_elems, 24, 8);
ENDS(hsdp_segment, n_elems, LAYOUT_SEGMENT_1_0);

FIELD(hsdp_plan_ops, struct_size, 0, 8);
FIELD(hsdp_plan_ops, create, 8, 8);
FIELD(hsdp_plan_ops, add_class, 16, 8);
FIELD(hsdp_plan_ops, add_unit, 24, 8);
FIELD(hsdp_plan_ops, add_param, 32, 8);
FIELD(hsdp_plan_ops, finish, 40, 8);
FIELD(hsdp_plan_ops, info, 48, 8);
FIELD(hsdp_plan_ops, mesh, 56, 8);
FIELD(hsdp_plan_ops, setting, 64, 8);
FIELD(hsdp_plan_ops, class_setting, 72, 8);
FIELD(hsdp_plan_ops, class_info, 80, 8);
FIELD(hsdp_plan_ops, unit_info, 88, 8);
FIELD(hsdp_plan_ops, buffer_info, 96, 8);
FIELD(hsdp_plan_ops, param_info, 104, 8);
FIELD(hsdp_plan_ops, param_find, 112, 8);
FIELD(hsdp_plan_ops, segments, 120, 8);
FIELD(hsdp_plan_ops, writer, 128, 8);
FIELD(hsdp_plan_ops, report, 136, 8);
FIELD(hsdp_plan_ops, destroy, 144, 8);
ENDS(hsdp_plan_ops, destroy, LAYOUT_PLAN_OPS_1_0);

FIELD(hsdp_model_info, struct_size, 0, 8);
FIELD(hsdp_model_info, step, 8, 8);
FIELD(hsdp_model_info, param_bytes, 16, 8);
FIELD(hsdp_model_info, master_bytes, 24, 8);
FIELD(hsdp_model_info, grad_bytes, 32, 8);
FIELD(hsdp_model_info, grad_slot_bytes, 40, 8);
FIELD(hsdp_model_info, unsharded_bytes, 48, 8);
FIELD(hsdp_model_info, state_bytes, 56, 8);
FIELD(hsdp_model_info, n_states, 64, 4);
FIELD(hsdp_model_info, is_stepping, 68, 4);
FIELD(hsdp_model_info, is_editing, 72, 4);
FIELD(hsdp_model_info, reserved, 76, 4);
ENDS(hsdp_model_info, reserved, LAYOUT_MODEL_INFO_1_0);

FIELD(hsdp_model_ops, struct_size, 0, 8);
FIELD(hsdp_model_ops, create, 8, 8);
FIELD(hsdp_model_ops, info, 16, 8);
FIELD(hsdp_model_ops, param_view, 24, 8);
FIELD(hsdp_model_ops, flat_view, 32, 8);
FIELD(hsdp_model_ops, state_create, 40, 8);
FIELD(hsdp_model_ops, state_info, 48, 8);
FIELD(hsdp_model_ops, edit_begin, 56, 8);
FIELD(hsdp_model_ops, edit_end, 64, 8);
FIELD(hsdp_model_ops, import_param, 72, 8);
FIELD(hsdp_model_ops, export_param, 80, 8);
FIELD(hsdp_model_ops, sync, 88, 8);
FIELD(hsdp_model_ops, destroy, 96, 8);
ENDS(hsdp_model_ops, destroy, LAYOUT_MODEL_OPS_1_0);

FIELD(hsdp_unit_ops, struct_size, 0, 8);
FIELD(hsdp_unit_ops, unshard, 8, 8);
FIELD(hsdp_unit_ops, release, 16, 8);
FIELD(hsdp_unit_ops, grad_add, 24, 8);
FIELD(hsdp_unit_ops, backward_begin, 32, 8);
FIELD(hsdp_unit_ops, reduce, 40, 8);
FIELD(hsdp_unit_ops, skip, 48, 8);
FIELD(hsdp_unit_ops, backward_end, 56, 8);
ENDS(hsdp_unit_ops, backward_end, LAYOUT_UNIT_OPS_1_0);

FIELD(hsdp_step_spec, struct_size, 0, 8);
FIELD(hsdp_step_spec, max_norm, 8, 8);
FIELD(hsdp_step_spec, norm_p, 16, 8);
FIELD(hsdp_step_spec, gradient_scale, 24, 8);
FIELD(hsdp_step_spec, weight, 32, 8);
FIELD(hsdp_step_spec, stream, 40, 8);
FIELD(hsdp_step_spec, error_if_nonfinite, 48, 4);
FIELD(hsdp_step_spec, has_weight, 52, 4);
ENDS(hsdp_step_spec, has_weight, LAYOUT_STEP_SPEC_1_0);

FIELD(hsdp_step_info, struct_size, 0, 8);
FIELD(hsdp_step_info, norm, 8, 8);
FIELD(hsdp_step_info, clip, 16, 8);
FIELD(hsdp_step_info, factor, 24, 8);
FIELD(hsdp_step_info, weight, 32, 8);
FIELD(hsdp_step_info, step, 40, 8);
FIELD(hsdp_step_info, is_nonfinite, 48, 4);
FIELD(hsdp_step_info, reserved, 52, 4);
ENDS(hsdp_step_info, reserved, LAYOUT_STEP_RESULT_1_0);

FIELD(hsdp_step_ops, struct_size, 0, 8);
FIELD(hsdp_step_ops, begin, 8, 8);
FIELD(hsdp_step_ops, result, 16, 8);
FIELD(hsdp_step_ops, factor_view, 24, 8);
FIELD(hsdp_step_ops, end, 32, 8);
FIELD(hsdp_step_ops, discard, 40, 8);
ENDS(hsdp_step_ops, discard, LAYOUT_STEP_OPS_1_0);

FIELD(hsdp_diag_ops, struct_size, 0, 8);
FIELD(hsdp_diag_ops, report, 8, 8);
FIELD(hsdp_diag_ops, counter, 16, 8);
FIELD(hsdp_diag_ops, counter_name, 24, 8);
ENDS(hsdp_diag_ops, counter_name, LAYOUT_DIAG_OPS_1_0);

FIELD(hsdp_adamw_spec, struct_size, 0, 8);
FIELD(hsdp_adamw_spec, learning_rate, 8, 8);
FIELD(hsdp_adamw_spec, weight_decay, 16, 8);
FIELD(hsdp_adamw_spec, step, 24, 8);
FIELD(hsdp_adamw_spec, beta1, 32, 8);
FIELD(hsdp_adamw_spec, beta2, 40, 8);
FIELD(hsdp_adamw_spec, epsilon, 48, 8);
FIELD(hsdp_adamw_spec, stream, 56, 8);
FIELD(hsdp_adamw_spec, n_hyper_groups, 64, 4);
FIELD(hsdp_adamw_spec, reserved, 68, 4);
ENDS(hsdp_adamw_spec, reserved, LAYOUT_ADAMW_SPEC_1_0);

FIELD(hsdp_adamw_ops, struct_size, 0, 8);
FIELD(hsdp_adamw_ops, step, 8, 8);
ENDS(hsdp_adamw_ops, step, LAYOUT_ADAMW_OPS_1_0);

FIELD(hsdp_plugin_spec, struct_size, 0, 8);
FIELD(hsdp_plugin_spec, path, 8, 8);
FIELD(hsdp_plugin_spec, strategy, 16, 8);
ENDS(hsdp_plugin_spec, strategy, LAYOUT_PLUGIN_SPEC_1_0);

/* Nothing is appended without a new minor version. */
#if HSDP_ABI_MINOR == 0
SIZE(hsdp_error, LAYOUT_ERROR_1_0);
SIZE(hsdp_api, LAYOUT_API_1_0);
SIZE(hsdp_mesh_spec, LAYOUT_MESH_SPEC_1_0);
SIZE(hsdp_mesh_info, LAYOUT_MESH_INFO_1_0);
SIZE(hsdp_mesh_ops, LAYOUT_MESH_OPS_1_0);
SIZE(hsdp_job_spec, LAYOUT_JOB_SPEC_1_0);
SIZE(hsdp_job_info, LAYOUT_JOB_INFO_1_0);
SIZE(hsdp_job_ops, LAYOUT_JOB_OPS_1_0);
SIZE(hsdp_coll_spec, LAYOUT_COLL_SPEC_1_0);
SIZE(hsdp_group_spec, LAYOUT_GROUP_SPEC_1_0);
SIZE(hsdp_group_info, LAYOUT_GROUP_INFO_1_0);
SIZE(hsdp_group_ops, LAYOUT_GROUP_OPS_1_0);
SIZE(hsdp_class_spec, LAYOUT_CLASS_SPEC_1_0);
SIZE(hsdp_param_spec, LAYOUT_PARAM_SPEC_1_0);
SIZE(hsdp_plan_info, LAYOUT_PLAN_INFO_1_0);
SIZE(hsdp_class_info, LAYOUT_CLASS_INFO_1_0);
SIZE(hsdp_unit_info, LAYOUT_UNIT_INFO_1_0);
SIZE(hsdp_buffer_info, LAYOUT_BUFFER_INFO_1_0);
SIZE(hsdp_param_info, LAYOUT_PARAM_INFO_1_0);
SIZE(hsdp_segment, LAYOUT_SEGMENT_1_0);
SIZE(hsdp_plan_ops, LAYOUT_PLAN_OPS_1_0);
SIZE(hsdp_model_info, LAYOUT_MODEL_INFO_1_0);
SIZE(hsdp_model_ops, LAYOUT_MODEL_OPS_1_0);
SIZE(hsdp_unit_ops, LAYOUT_UNIT_OPS_1_0);
SIZE(hsdp_step_spec, LAYOUT_STEP_SPEC_1_0);
SIZE(hsdp_step_info, LAYOUT_STEP_RESULT_1_0);
SIZE(hsdp_step_ops, LAYOUT_STEP_OPS_1_0);
SIZE(hsdp_diag_ops, LAYOUT_DIAG_OPS_1_0);
SIZE(hsdp_adamw_spec, LAYOUT_ADAMW_SPEC_1_0);
SIZE(hsdp_adamw_ops, LAYOUT_ADAMW_OPS_1_0);
SIZE(hsdp_plugin_spec, LAYOUT_PLUGIN_SPEC_1_0);
#endif

/* ------------------------------------------------------------------------- ABI 1.0: the numbers */

VALUE(HSDP_ABI_MAJOR, 1u);
VALUE(HSDP_OK, 0);
VALUE(HSDP_PENDING, 1);
VALUE(HSDP_ERR_INVALID, -1);
VALUE(HSDP_ERR_VERSION, -2);
VALUE(HSDP_ERR_UNSUPPORTED, -3);
VALUE(HSDP_ERR_NO_MEMORY, -4);
VALUE(HSDP_ERR_TIMEOUT, -5);
VALUE(HSDP_ERR_PEER_LOST, -6);
VALUE(HSDP_ERR_MISMATCH, -7);
VALUE(HSDP_ERR_ABORTED, -8);
VALUE(HSDP_ERR_STATE, -9);
VALUE(HSDP_ERR_UNAVAILABLE, -10);
VALUE(HSDP_ERR_ADDRESS_IN_USE, -11);
VALUE(HSDP_ERR_DEVICE, -12);
VALUE(HSDP_ERR_FORKED, -13);
VALUE(HSDP_ERR_BUSY, -14);
VALUE(HSDP_ERR_NONFINITE, -15);
VALUE(HSDP_ERR_NOT_MEMBER, -16);
VALUE(HSDP_ERR_BUFFER_TOO_SMALL, -17);
VALUE(HSDP_ERR_DRIFT, -18);
VALUE(HSDP_ERR_DEFECT, -19);
VALUE(HSDP_ERROR_MAX_RANKS, 16u);
VALUE(HSDP_DEVICE_CPU, 1);
VALUE(HSDP_DEVICE_CUDA, 2);
VALUE(HSDP_DTYPE_INT, 0);
VALUE(HSDP_DTYPE_UINT, 1);
VALUE(HSDP_DTYPE_FLOAT, 2);
VALUE(HSDP_DTYPE_BFLOAT, 4);

VALUE(HSDP_MESH_MAX_DIMS, 8u);
VALUE(HSDP_DIM_NAME_MAX, 31u);

VALUE(HSDP_MEMORY_DEVICE, 0);
VALUE(HSDP_MEMORY_PINNED, 1);
VALUE(HSDP_LOG_ERROR, 0);
VALUE(HSDP_LOG_WARNING, 1);
VALUE(HSDP_LOG_INFO, 2);
VALUE(HSDP_LOG_DEBUG, 3);

VALUE(HSDP_COLL_BARRIER, 1);
VALUE(HSDP_COLL_ALL_REDUCE, 2);
VALUE(HSDP_COLL_ALL_GATHER, 3);
VALUE(HSDP_COLL_REDUCE_SCATTER, 4);
VALUE(HSDP_COLL_ALL_TO_ALL, 5);
VALUE(HSDP_COLL_BROADCAST, 6);
VALUE(HSDP_COLL_SEND, 7);
VALUE(HSDP_COLL_RECV, 8);
VALUE(HSDP_REDUCE_SUM, 0);
VALUE(HSDP_REDUCE_MEAN, 1);
VALUE(HSDP_REDUCE_MAX, 2);
VALUE(HSDP_REDUCE_MIN, 3);

VALUE(HSDP_PARAM_FROZEN, 1u);
VALUE(HSDP_PARAM_COPY, 2u);
VALUE(HSDP_PARAM_MAX_DIMS, 8u);
VALUE(HSDP_NO_SLOT, 0xffffffffu);
VALUE(HSDP_SHARD_PARAM, 0);
VALUE(HSDP_SHARD_GRAD, 1);
VALUE(HSDP_SHARD_STEP, 2);

VALUE(HSDP_VIEW_PARAM, 0);
VALUE(HSDP_VIEW_GRAD, 1);
VALUE(HSDP_FLAT_MASTER, 0);
VALUE(HSDP_FLAT_GRAD, 1);
VALUE(HSDP_FLAT_STATE, 16);
VALUE(HSDP_ALL_RANKS, 0xffffffffu);

VALUE(HSDP_USE_FORWARD, 0);
VALUE(HSDP_USE_BACKWARD, 1);
VALUE(HSDP_USE_BACKWARD_SET, 2);
VALUE(HSDP_SCOPE_NONE, 0);
VALUE(HSDP_SCOPE_INNER, 1);
VALUE(HSDP_SCOPE_FULL, 2);
