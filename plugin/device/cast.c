/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of arrays: plain loops over half.h, which compilers vectorise. */
#include "device/cast.h"

#include <stdint.h>
#include <string.h>

#include "device/half.h"

enum { BLOCK_ELEMS = 512 };

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

static void elems_copy(void *dst, const void *src, enum dtype dtype, size_t n_elems)
{
    if (dst != src && n_elems != 0) {
        memcpy(dst, src, n_elems * dtype_bytes(dtype));
    }
}

void cast_to_fp32(float *dst, const void *src, enum dtype src_dtype, size_t n_elems)
{
    switch (src_dtype) {
    case DTYPE_FP32:
        elems_copy(dst, src, DTYPE_FP32, n_elems);
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
        elems_copy(dst, src, DTYPE_FP32, n_elems);
        break;
    case DTYPE_BF16:
        bf16_narrow(dst, src, n_elems);
        break;
    case DTYPE_FP16:
        fp16_narrow(dst, src, n_elems);
        break;
    }
}

void cast_convert(void *dst, enum dtype dst_dtype, const void *src, enum dtype src_dtype,
                  size_t n_elems)
{
    float block[BLOCK_ELEMS];

    if (dst_dtype == src_dtype) {
        elems_copy(dst, src, dst_dtype, n_elems);
    } else if (dst_dtype == DTYPE_FP32) {
        cast_to_fp32(dst, src, src_dtype, n_elems);
    } else if (src_dtype == DTYPE_FP32) {
        cast_from_fp32(dst, dst_dtype, src, n_elems);
    } else { /* between the two of 16 bits; the way there is exact */
        for (size_t first = 0; first < n_elems; first += BLOCK_ELEMS) {
            size_t n_block = n_elems - first < BLOCK_ELEMS ? n_elems - first : BLOCK_ELEMS;

            cast_to_fp32(block, (const uint16_t *)src + first, src_dtype, n_block);
            cast_from_fp32((uint16_t *)dst + first, dst_dtype, block, n_block);
        }
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
