/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of arrays, row by row in registers. */
#include "device/cast.h"

#include <stdint.h>
#include <string.h>

#include "device/reduce.h"
#include "device/vector.h"

/* Whole rows. The types are constants where this is called. */
PATH_INLINE void rows_convert(char *dst, enum dtype dst_dtype, const char *src,
                              enum dtype src_dtype, size_t n_elems, bool is_streamed)
{
    for (size_t i = 0; i + VECTOR_LANES <= n_elems; i += VECTOR_LANES) {
        struct vector row = vector_get(src + vector_bytes(src_dtype, i), src_dtype, VECTOR_LANES);

        vector_write(dst + vector_bytes(dst_dtype, i), dst_dtype, row, VECTOR_LANES, is_streamed);
    }
}

static void elems_convert(char *dst, enum dtype dst_dtype, const char *src, enum dtype src_dtype,
                          size_t n_elems, bool is_streamed)
{
    size_t n_tail = n_elems % VECTOR_LANES;
    size_t n_rows = n_elems - n_tail;

    if (src_dtype == DTYPE_FP32 && dst_dtype == DTYPE_BF16) {
        rows_convert(dst, DTYPE_BF16, src, DTYPE_FP32, n_rows, is_streamed);
    } else if (src_dtype == DTYPE_FP32 && dst_dtype == DTYPE_FP16) {
        rows_convert(dst, DTYPE_FP16, src, DTYPE_FP32, n_rows, is_streamed);
    } else if (src_dtype == DTYPE_BF16 && dst_dtype == DTYPE_FP32) {
        rows_convert(dst, DTYPE_FP32, src, DTYPE_BF16, n_rows, is_streamed);
    } else if (src_dtype == DTYPE_FP16 && dst_dtype == DTYPE_FP32) {
        rows_convert(dst, DTYPE_FP32, src, DTYPE_FP16, n_rows, is_streamed);
    } else { /* between the two of 16 bits; the way to fp32 is exact */
        rows_convert(dst, dst_dtype, src, src_dtype, n_rows, is_streamed);
    }
    if (n_tail != 0) {
        vector_put(dst + vector_bytes(dst_dtype, n_rows), dst_dtype,
                   vector_get(src + vector_bytes(src_dtype, n_rows), src_dtype, n_tail), n_tail);
    }
}

void cast_convert(void *dst, enum dtype dst_dtype, const void *src, enum dtype src_dtype,
                  size_t n_elems)
{
    bool is_streamed = reduce_streams(vector_bytes(dst_dtype, n_elems));
    size_t lead = is_streamed ? vector_lead(dst, dst_dtype) : 0;

    if (dst_dtype == src_dtype) {
        if (dst != src && n_elems != 0) {
            memcpy(dst, src, vector_bytes(dst_dtype, n_elems));
        }
        return;
    }
    elems_convert(dst, dst_dtype, src, src_dtype, lead, false);
    elems_convert((char *)dst + vector_bytes(dst_dtype, lead), dst_dtype,
                  (const char *)src + vector_bytes(src_dtype, lead), src_dtype, n_elems - lead,
                  is_streamed);
    if (is_streamed) {
        vector_fence();
    }
}

void cast_to_fp32(float *dst, const void *src, enum dtype src_dtype, size_t n_elems)
{
    cast_convert(dst, DTYPE_FP32, src, src_dtype, n_elems);
}

void cast_from_fp32(void *dst, enum dtype dst_dtype, const float *src, size_t n_elems)
{
    cast_convert(dst, dst_dtype, src, DTYPE_FP32, n_elems);
}

PATH_INLINE void row_round(float *values, enum dtype wire, size_t n)
{
    vector_put(values, DTYPE_FP32, vector_round(vector_get(values, DTYPE_FP32, n), wire), n);
}

PATH_INLINE void rows_round(float *values, enum dtype wire, size_t n_elems)
{
    for (size_t i = 0; i + VECTOR_LANES <= n_elems; i += VECTOR_LANES) {
        row_round(values + i, wire, VECTOR_LANES);
    }
}

void cast_round(float *values, enum dtype wire, size_t n_elems)
{
    size_t n_tail = n_elems % VECTOR_LANES;

    switch (wire) {
    case DTYPE_FP32:
        return;
    case DTYPE_BF16:
        rows_round(values, DTYPE_BF16, n_elems);
        break;
    case DTYPE_FP16:
        rows_round(values, DTYPE_FP16, n_elems);
        break;
    }
    if (n_tail != 0) {
        row_round(values + n_elems - n_tail, wire, n_tail);
    }
}
