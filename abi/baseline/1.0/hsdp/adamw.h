/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/adamw.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_ADAMW_H
#define HSDP_ADAMW_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
#define HSDP_ADAMW_EXTENSION "hsdp.adamw"
struct hsdp_adamw_spec {
    size_t struct_size;
    const double *learning_rate;
    const double *weight_decay;
    uint64_t step;
    double beta1;
    double beta2;
    double epsilon;
    void *stream;
    uint32_t n_hyper_groups;
    uint32_t reserved;
};
struct hsdp_adamw_ops {
    size_t struct_size;
    int32_t (*step)(hsdp_model *model, const struct hsdp_adamw_spec *spec, struct hsdp_error *reterr);
};
#ifdef __cplusplus
}
#endif
#define HSDP_ADAMW_SPEC_INIT HSDP_INIT_(hsdp_adamw_spec)
#endif
