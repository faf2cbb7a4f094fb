/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/diag.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_DIAG_H
#define HSDP_DIAG_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
struct hsdp_diag_ops {
    size_t struct_size;
    int32_t (*report)(const hsdp_job *job, const char *what, char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes, struct hsdp_error *reterr);
    int32_t (*counter)(const hsdp_job *job, const char *name, uint64_t *ret_value, struct hsdp_error *reterr);
    int32_t (*counter_name)(const hsdp_job *job, uint64_t index, const char **ret_name, struct hsdp_error *reterr);
};
#ifdef __cplusplus
}
#endif
#endif
