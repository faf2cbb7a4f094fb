/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors at the border: filling the views that are handed out, checking those that come in. */
#ifndef SHARD_TENSOR_H
#define SHARD_TENSOR_H

#include "base/dtype.h"
#include "device/space.h"
#include "hsdp/abi.h"
#include "plan/plan.h"

/** What lies where. */
struct tensor_elems {
    const struct space *space;
    const void *base;
    enum dtype dtype;
};

/** Fills a view; shape and strides are borrowed. */
void tensor_fill(struct hsdp_tensor *ret, const struct tensor_elems *elems, const int64_t *shape,
                 const int64_t *strides, uint32_t n_dims);

/** What a call takes from the host. */
struct tensor_wanted {
    const char *call; /* begins sentences */
    const struct plan_param *param;
    const struct space *space; /* on whose device it lies, */
    bool may_be_host;          /* or, where there is one, in the host's memory */
};

/**
 * Checks that a tensor of the host has a parameter's shape, lies contiguously where it is wanted,
 * and is fp32, bf16 or fp16.
 */
int32_t tensor_check(const struct tensor_wanted *wanted, const struct hsdp_tensor *tensor,
                     enum dtype *ret_dtype, struct hsdp_error *reterr);

/** Whether it lies in the host's memory. */
bool tensor_is_host(const struct hsdp_tensor *tensor);

/** Its first element. */
void *tensor_base(const struct hsdp_tensor *tensor);

#endif /* SHARD_TENSOR_H */
