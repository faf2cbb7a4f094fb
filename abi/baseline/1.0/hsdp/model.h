/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/model.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_MODEL_H
#define HSDP_MODEL_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
#define HSDP_VIEW_PARAM 0
#define HSDP_VIEW_GRAD 1
#define HSDP_FLAT_MASTER 0
#define HSDP_FLAT_GRAD 1
#define HSDP_FLAT_STATE 16
#define HSDP_ALL_RANKS 0xffffffffu
struct hsdp_model_info {
    size_t struct_size;
    uint64_t step;
    uint64_t param_bytes;
    uint64_t master_bytes;
    uint64_t grad_bytes;
    uint64_t grad_slot_bytes;
    uint64_t unsharded_bytes;
    uint64_t state_bytes;
    uint32_t n_states;
    uint32_t is_stepping;
    uint32_t is_editing;
    uint32_t reserved;
};
struct hsdp_model_ops {
    size_t struct_size;
    int32_t (*create)(hsdp_job *job, const hsdp_plan *plan, hsdp_model **ret_model, struct hsdp_error *reterr);
    int32_t (*info)(const hsdp_model *model, struct hsdp_model_info *ret_info, struct hsdp_error *reterr);
    int32_t (*param_view)(hsdp_model *model, uint32_t param, int32_t view, struct hsdp_tensor *ret_view, struct hsdp_error *reterr);
    int32_t (*flat_view)(hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat, struct hsdp_tensor *ret_view, struct hsdp_error *reterr);
    int32_t (*state_create)(hsdp_model *model, const char *name, const char *dtype, uint32_t *ret_state, struct hsdp_error *reterr);
    int32_t (*state_info)(const hsdp_model *model, uint32_t state, const char **ret_name, const char **ret_dtype, struct hsdp_error *reterr);
    int32_t (*edit_begin)(hsdp_model *model, void *stream, struct hsdp_error *reterr);
    int32_t (*edit_end)(hsdp_model *model, void *stream, struct hsdp_error *reterr);
    int32_t (*import_param)(hsdp_model *model, uint32_t param, int32_t flat, const struct hsdp_tensor *full, uint32_t source_rank, void *stream, struct hsdp_error *reterr);
    int32_t (*export_param)(hsdp_model *model, uint32_t param, int32_t flat, const struct hsdp_tensor *full, uint32_t target_rank, void *stream, struct hsdp_error *reterr);
    int32_t (*sync)(hsdp_model *model, void *stream, struct hsdp_error *reterr);
    void (*destroy)(hsdp_model *model);
};
#ifdef __cplusplus
}
#endif
#define HSDP_MODEL_INFO_INIT HSDP_INIT_(hsdp_model_info)
#endif
