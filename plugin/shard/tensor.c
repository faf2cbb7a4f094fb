/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors at the border. */
#include "shard/tensor.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"

void tensor_fill(struct hsdp_tensor *ret, const void *base, enum dtype dtype, const int64_t *shape,
                 const int64_t *strides, uint32_t n_dims)
{
    memset(ret, 0, sizeof(*ret));
    ret->base = (void *)(uintptr_t)base;
    ret->device_type = HSDP_DEVICE_CPU;
    ret->n_dims = (int32_t)n_dims;
    ret->dtype_code = dtype == DTYPE_BF16 ? HSDP_DTYPE_BFLOAT : HSDP_DTYPE_FLOAT;
    ret->dtype_bits = (uint8_t)(8 * dtype_bytes(dtype));
    ret->dtype_lanes = 1;
    ret->shape = (int64_t *)(uintptr_t)shape;
    ret->strides = (int64_t *)(uintptr_t)strides;
}

static bool dtype_of(const struct hsdp_tensor *tensor, enum dtype *ret)
{
    if (tensor->dtype_lanes != 1) {
        return false;
    }
    if (tensor->dtype_code == HSDP_DTYPE_FLOAT && tensor->dtype_bits == 32) {
        *ret = DTYPE_FP32;
    } else if (tensor->dtype_code == HSDP_DTYPE_FLOAT && tensor->dtype_bits == 16) {
        *ret = DTYPE_FP16;
    } else if (tensor->dtype_code == HSDP_DTYPE_BFLOAT && tensor->dtype_bits == 16) {
        *ret = DTYPE_BF16;
    } else {
        return false;
    }
    return true;
}

/* Strides of dimensions of size 1 do not matter, and of an empty tensor none. */
static bool is_contiguous(const struct hsdp_tensor *tensor, uint64_t n_elems)
{
    int64_t expected = 1;

    if (tensor->strides == NULL || n_elems == 0) {
        return true;
    }
    for (int32_t d = tensor->n_dims - 1; d >= 0; d--) {
        if (tensor->shape[d] != 1 && tensor->strides[d] != expected) {
            return false;
        }
        expected *= tensor->shape[d];
    }
    return true;
}

int32_t tensor_check(const char *call, const struct hsdp_tensor *tensor,
                     const struct plan_param *param, enum dtype *ret_dtype,
                     struct hsdp_error *reterr)
{
    if (tensor->device_type != HSDP_DEVICE_CPU) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "%s: the tensor of \"%s\" is on device type %" PRId32
                         ", only 1 (CPU) is built",
                         call, param->name, tensor->device_type);
    }
    if (!dtype_of(tensor, ret_dtype)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: the tensor of \"%s\" has dtype code %u with %u bits and %u lanes; "
                         "allowed are fp32, bf16, fp16",
                         call, param->name, tensor->dtype_code, tensor->dtype_bits,
                         tensor->dtype_lanes);
    }
    if (tensor->n_dims != (int32_t)param->n_dims) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: the tensor of \"%s\" has %" PRId32
                         " dimensions, the parameter has %" PRIu32,
                         call, param->name, tensor->n_dims, param->n_dims);
    }
    for (uint32_t d = 0; d < param->n_dims; d++) {
        if (tensor->shape == NULL || tensor->shape[d] != param->shape[d]) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "%s: the tensor of \"%s\" has size %" PRId64 " in dimension %" PRIu32
                             ", the parameter has %" PRId64,
                             call, param->name, tensor->shape == NULL ? -1 : tensor->shape[d], d,
                             param->shape[d]);
        }
    }
    if (!is_contiguous(tensor, param->n_elems)) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "%s: the tensor of \"%s\" is not contiguous in row-major order", call,
                         param->name);
    }
    if (tensor->base == NULL && param->n_elems != 0) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: the tensor of \"%s\" has no memory", call,
                         param->name);
    }
    return HSDP_OK;
}

void *tensor_base(const struct hsdp_tensor *tensor)
{
    return (uint8_t *)tensor->base + tensor->byte_offset;
}
