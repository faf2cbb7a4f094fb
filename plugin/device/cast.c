/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of arrays: plain loops over half.h, which compilers vectorise. */
#include "device/cast.h"

#include <stdint.h>
#include <string.h>

#include "device/half.h"

static void bf16_widen(float *restrict dst, const uint16_t *restrict src, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        dst[i] = bf16_to_fp32(src[i]);
    }
}

static void fp16_widen(float *restrict dst, const uint16_t *restrict src, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        dst[i] = fp16_to_fp32(src[i]);
    }
}

static void bf16_narrow(uint16_t *restrict dst, const float *restrict src, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        dst[i] = bf16_from_fp32(src[i]);
    }
}

static void fp16_narrow(uint16_t *restrict dst, const float *restrict src, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        dst[i] = fp16_from_fp32(src[i]);
    }
}

static void bf16_round(float *values, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        values[i] = bf16_to_fp32(bf16_from_fp32(values[i]));
    }
}

static void fp16_round(float *values, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        values[i] = fp16_to_fp32(fp16_from_fp32(values[i]));
    }
}

static void fp32_copy(float *dst, const float *src, size_t n_elems)
{
    if (dst != src && n_elems != 0) {
        memcpy(dst, src, n_elems * sizeof(*dst));
    }
}

void cast_to_fp32(float *dst, const void *src, enum dtype src_dtype, size_t n_elems)
{
    switch (src_dtype) {
    case DTYPE_FP32:
        fp32_copy(dst, src, n_elems);
        break;
    case DTYPE_BF16:
        bf16_widen(dst, src, n_elems);
        break;
    case DTYPE_FP16:
        fp16_widen(dst, src, n_elems);
        break;
    }
}

void cast_from_fp32(void *dst, enum dtype dst_dtype, const float *src, size_t n_elems)
{
    switch (dst_dtype) {
    case DTYPE_FP32:
        fp32_copy(dst, src, n_elems);
        break;
    case DTYPE_BF16:
        bf16_narrow(dst, src, n_elems);
        break;
    case DTYPE_FP16:
        fp16_narrow(dst, src, n_elems);
        break;
    }
}

void cast_round(float *values, enum dtype wire, size_t n_elems)
{
    switch (wire) {
    case DTYPE_FP32:
        break;
    case DTYPE_BF16:
        bf16_round(values, n_elems);
        break;
    case DTYPE_FP16:
        fp16_round(values, n_elems);
        break;
    }
}
