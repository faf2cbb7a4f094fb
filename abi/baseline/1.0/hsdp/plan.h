/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/plan.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_PLAN_H
#define HSDP_PLAN_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
struct hsdp_class_spec {
    size_t struct_size;
    const char *name;
    const char *replicated_over;
    const char *reduced_over;
    struct hsdp_settings settings;
};
#define HSDP_PARAM_FROZEN 1u
#define HSDP_PARAM_COPY 2u
struct hsdp_param_spec {
    size_t struct_size;
    const char *name;
    const int64_t *shape;
    const char *tied_to;
    const char *tied_over;
    uint64_t block_elems;
    uint32_t n_dims;
    uint32_t unit;
    uint32_t hyper_group;
    uint32_t flags;
};
#define HSDP_PARAM_MAX_DIMS 8u
struct hsdp_plan_info {
    size_t struct_size;
    uint64_t param_bytes;
    uint64_t master_bytes;
    uint64_t grad_bytes;
    uint64_t unsharded_bytes;
    uint64_t grad_slot_bytes;
    uint64_t n_state_elems;
    uint64_t padding_bytes;
    uint64_t peak_bytes;
    uint32_t n_classes;
    uint32_t n_units;
    uint32_t n_params;
    uint32_t n_notes;
};
struct hsdp_class_info {
    size_t struct_size;
    const char *name;
    const char *strategy;
    const char *param_dims;
    const char *grad_dims;
    const char *step_dims;
    const char *reduce_dims;
    const char *replicated_dims;
    uint32_t divisor;
    uint32_t reserved;
};
#define HSDP_NO_SLOT 0xffffffffu
struct hsdp_unit_info {
    size_t struct_size;
    const char *name;
    uint32_t class_index;
    uint32_t first_param;
    uint32_t n_params;
    uint32_t n_buffers;
    uint32_t divisor;
    uint32_t param_slot;
    uint32_t grad_slot;
    uint32_t reserved;
};
struct hsdp_buffer_info {
    size_t struct_size;
    uint64_t n_elems;
    uint64_t n_padding_elems;
    uint64_t param_shard_elems;
    uint64_t grad_shard_elems;
    uint64_t step_shard_elems;
    uint32_t is_frozen;
    uint32_t reserved;
};
struct hsdp_param_info {
    size_t struct_size;
    const char *name;
    const int64_t *shape;
    const char *tied_over;
    uint64_t n_elems;
    uint64_t offset_elems;
    uint64_t block_elems;
    uint32_t n_dims;
    uint32_t unit;
    uint32_t buffer;
    uint32_t storage;
    uint32_t hyper_group;
    uint32_t flags;
};
#define HSDP_SHARD_PARAM 0
#define HSDP_SHARD_GRAD 1
#define HSDP_SHARD_STEP 2
struct hsdp_segment {
    uint32_t param;
    uint32_t buffer;
    uint64_t param_offset_elems;
    uint64_t shard_offset_elems;
    uint64_t n_elems;
};
struct hsdp_plan_ops {
    size_t struct_size;
    int32_t (*create)(const hsdp_mesh *mesh, const struct hsdp_settings *settings, hsdp_plan **ret_plan, struct hsdp_error *reterr);
    int32_t (*add_class)(hsdp_plan *plan, const struct hsdp_class_spec *spec, uint32_t *ret_class, struct hsdp_error *reterr);
    int32_t (*add_unit)(hsdp_plan *plan, const char *name, uint32_t class_index, uint32_t *ret_unit, struct hsdp_error *reterr);
    int32_t (*add_param)(hsdp_plan *plan, const struct hsdp_param_spec *spec, uint32_t *ret_param, struct hsdp_error *reterr);
    int32_t (*finish)(hsdp_plan *plan, struct hsdp_error *reterr);
    int32_t (*info)(const hsdp_plan *plan, struct hsdp_plan_info *ret_info, struct hsdp_error *reterr);
    int32_t (*mesh)(const hsdp_plan *plan, const hsdp_mesh **ret_mesh, struct hsdp_error *reterr);
    int32_t (*setting)(const hsdp_plan *plan, const char *key, const char **ret_value, const char **ret_source, struct hsdp_error *reterr);
    int32_t (*class_setting)(const hsdp_plan *plan, uint32_t class_index, const char *key, const char **ret_value, const char **ret_source, struct hsdp_error *reterr);
    int32_t (*class_info)(const hsdp_plan *plan, uint32_t class_index, struct hsdp_class_info *ret_info, struct hsdp_error *reterr);
    int32_t (*unit_info)(const hsdp_plan *plan, uint32_t unit, struct hsdp_unit_info *ret_info, struct hsdp_error *reterr);
    int32_t (*buffer_info)(const hsdp_plan *plan, uint32_t unit, uint32_t buffer, struct hsdp_buffer_info *ret_info, struct hsdp_error *reterr);
    int32_t (*param_info)(const hsdp_plan *plan, uint32_t param, struct hsdp_param_info *ret_info, struct hsdp_error *reterr);
    int32_t (*param_find)(const hsdp_plan *plan, const char *name, uint32_t *ret_param, struct hsdp_error *reterr);
    int32_t (*segments)(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank, struct hsdp_segment *ret_segments, uint64_t segment_bytes, uint64_t max_segments, uint64_t *ret_n_segments, struct hsdp_error *reterr);
    int32_t (*writer)(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank, uint32_t *ret_writer_rank, struct hsdp_error *reterr);
    int32_t (*report)(const hsdp_plan *plan, char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes, struct hsdp_error *reterr);
    void (*destroy)(hsdp_plan *plan);
};
#ifdef __cplusplus
}
#endif
#define HSDP_CLASS_SPEC_INIT HSDP_INIT_(hsdp_class_spec)
#define HSDP_PARAM_SPEC_INIT HSDP_INIT_(hsdp_param_spec)
#define HSDP_PLAN_INFO_INIT HSDP_INIT_(hsdp_plan_info)
#define HSDP_CLASS_INFO_INIT HSDP_INIT_(hsdp_class_info)
#define HSDP_UNIT_INFO_INIT HSDP_INIT_(hsdp_unit_info)
#define HSDP_BUFFER_INFO_INIT HSDP_INIT_(hsdp_buffer_info)
#define HSDP_PARAM_INFO_INIT HSDP_INIT_(hsdp_param_info)
#endif
