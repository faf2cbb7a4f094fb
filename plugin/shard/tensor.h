/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors at the border: filling the views that are handed out, checking those that come in. */
#ifndef SHARD_TENSOR_H
#define SHARD_TENSOR_H

#include "base/dtype.h"
#include "hsdp/abi.h"
#include "plan/plan.h"

/** Fills a view of host memory; shape and strides are borrowed. */
void tensor_fill(struct hsdp_tensor *ret, const void *base, enum dtype dtype, const int64_t *shape,
                 const int64_t *strides, uint32_t n_dims);

/**
 * Checks that a tensor of the host has a parameter's shape, lies contiguously on the CPU, and is
 * fp32, bf16 or fp16. `call` begins the sentence.
 */
int32_t tensor_check(const char *call, const struct hsdp_tensor *tensor,
                     const struct plan_param *param, enum dtype *ret_dtype,
                     struct hsdp_error *reterr);

/** Its first element. */
void *tensor_base(const struct hsdp_tensor *tensor);

#endif /* SHARD_TENSOR_H */
