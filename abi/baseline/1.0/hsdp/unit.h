/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/unit.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_UNIT_H
#define HSDP_UNIT_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
#define HSDP_USE_FORWARD 0
#define HSDP_USE_BACKWARD 1
#define HSDP_USE_BACKWARD_SET 2
#define HSDP_SCOPE_NONE 0
#define HSDP_SCOPE_INNER 1
#define HSDP_SCOPE_FULL 2
struct hsdp_unit_ops {
    size_t struct_size;
    int32_t (*unshard)(hsdp_model *model, uint32_t unit, int32_t use, void *stream, uint64_t *ret_ticket, struct hsdp_error *reterr);
    int32_t (*release)(hsdp_model *model, uint32_t unit, void *stream, struct hsdp_error *reterr);
    int32_t (*grad_add)(hsdp_model *model, uint32_t param, const struct hsdp_tensor *grad, void *stream, struct hsdp_error *reterr);
    int32_t (*backward_begin)(hsdp_model *model, const uint32_t *units, uint64_t n_units, int32_t scope, uint64_t *ret_pass, struct hsdp_error *reterr);
    int32_t (*reduce)(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream, uint64_t *ret_ticket, struct hsdp_error *reterr);
    int32_t (*skip)(hsdp_model *model, uint64_t pass, uint32_t unit, void *stream, uint64_t *ret_ticket, struct hsdp_error *reterr);
    int32_t (*backward_end)(hsdp_model *model, uint64_t pass, void *stream, uint64_t *ret_ticket, struct hsdp_error *reterr);
};
#ifdef __cplusplus
}
#endif
#endif
