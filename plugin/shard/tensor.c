/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors at the border. */
#include "shard/tensor.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"

void tensor_fill(struct hsdp_tensor *ret, const struct tensor_elems *elems, const int64_t *shape,
                 const int64_t *strides, uint32_t n_dims)
{
    const struct gpu *gpu = elems->space->gpu;
    enum dtype dtype = elems->dtype;

    memset(ret, 0, sizeof(*ret));
    ret->base = (void *)(uintptr_t)elems->base;
    ret->device_type = gpu == NULL ? HSDP_DEVICE_CPU : HSDP_DEVICE_CUDA;
    ret->device_id = gpu == NULL ? 0 : gpu->ordinal;
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

bool tensor_is_host(const struct hsdp_tensor *tensor)
{
    return tensor->device_type == HSDP_DEVICE_CPU;
}

static int32_t device_check(const struct tensor_wanted *wanted, const struct hsdp_tensor *tensor,
                            struct hsdp_error *reterr)
{
    const struct gpu *gpu = wanted->space->gpu;

    if (tensor_is_host(tensor) && (gpu == NULL || wanted->may_be_host)) {
        return HSDP_OK;
    }
    if (gpu == NULL) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "%s: the tensor of \"%s\" is on device type %" PRId32
                         "; the job is on 1 (CPU)",
                         wanted->call, wanted->param->name, tensor->device_type);
    }
    if (tensor->device_type == HSDP_DEVICE_CUDA && tensor->device_id == gpu->ordinal) {
        return HSDP_OK;
    }
    return error_set(reterr, HSDP_ERR_INVALID,
                     "%s: the tensor of \"%s\" is on device type %" PRId32 ", number %" PRId32
                     "; the job is on 2 (CUDA), number %" PRId32 "%s",
                     wanted->call, wanted->param->name, tensor->device_type, tensor->device_id,
                     gpu->ordinal, wanted->may_be_host ? ", and 1 (CPU) will do as well" : "");
}

static int32_t shape_check(const struct tensor_wanted *wanted, const struct hsdp_tensor *tensor,
                           struct hsdp_error *reterr)
{
    const struct plan_param *param = wanted->param;

    if (tensor->n_dims != (int32_t)param->n_dims) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: the tensor of \"%s\" has %" PRId32
                         " dimensions, the parameter has %" PRIu32,
                         wanted->call, param->name, tensor->n_dims, param->n_dims);
    }
    for (uint32_t d = 0; d < param->n_dims; d++) {
        if (tensor->shape == NULL || tensor->shape[d] != param->shape[d]) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "%s: the tensor of \"%s\" has size %" PRId64 " in dimension %" PRIu32
                             ", the parameter has %" PRId64,
                             wanted->call, param->name,
                             tensor->shape == NULL ? -1 : tensor->shape[d], d, param->shape[d]);
        }
    }
    return HSDP_OK;
}

int32_t tensor_check(const struct tensor_wanted *wanted, const struct hsdp_tensor *tensor,
                     enum dtype *ret_dtype, struct hsdp_error *reterr)
{
    const struct plan_param *param = wanted->param;
    int32_t status = device_check(wanted, tensor, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    if (!dtype_of(tensor, ret_dtype)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: the tensor of \"%s\" has dtype code %u with %u bits and %u lanes; "
                         "allowed are fp32, bf16, fp16",
                         wanted->call, param->name, tensor->dtype_code, tensor->dtype_bits,
                         tensor->dtype_lanes);
    }
    status = shape_check(wanted, tensor, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (!is_contiguous(tensor, param->n_elems)) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "%s: the tensor of \"%s\" is not contiguous in row-major order",
                         wanted->call, param->name);
    }
    if (tensor->base == NULL && param->n_elems != 0) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: the tensor of \"%s\" has no memory",
                         wanted->call, param->name);
    }
    return HSDP_OK;
}

void *tensor_base(const struct hsdp_tensor *tensor)
{
    return (uint8_t *)tensor->base + tensor->byte_offset;
}
