/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/step.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_STEP_H
#define HSDP_STEP_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
struct hsdp_step_spec {
    size_t struct_size;
    double max_norm;
    double norm_p;
    double gradient_scale;
    double weight;
    void *stream;
    uint32_t error_if_nonfinite;
    uint32_t has_weight;
};
struct hsdp_step_info {
    size_t struct_size;
    double norm;
    double clip;
    double factor;
    double weight;
    uint64_t step;
    uint32_t is_nonfinite;
    uint32_t reserved;
};
struct hsdp_step_ops {
    size_t struct_size;
    int32_t (*begin)(hsdp_model *model, const struct hsdp_step_spec *spec, uint64_t *ret_ticket, struct hsdp_error *reterr);
    int32_t (*result)(hsdp_model *model, struct hsdp_step_info *ret_result, struct hsdp_error *reterr);
    int32_t (*factor_view)(hsdp_model *model, struct hsdp_tensor *ret_view, struct hsdp_error *reterr);
    int32_t (*end)(hsdp_model *model, void *stream, uint64_t *ret_ticket, struct hsdp_error *reterr);
    int32_t (*discard)(hsdp_model *model, void *stream, struct hsdp_error *reterr);
};
#ifdef __cplusplus
}
#endif
#define HSDP_STEP_SPEC_INIT HSDP_INIT_(hsdp_step_spec)
#define HSDP_STEP_INFO_INIT HSDP_INIT_(hsdp_step_info)
#endif
