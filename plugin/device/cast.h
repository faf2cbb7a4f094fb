/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of arrays between fp32 and the other element types. */
#ifndef DEVICE_CAST_H
#define DEVICE_CAST_H

#include <stddef.h>

#include "base/dtype.h"
#include "device/path.h"

/*
 * The rules of half.h, element by element. Arrays are (n_elems,), contiguous, aligned to their
 * element; source and destination are the same array (fp32 only) or do not overlap. A conversion
 * that writes more than the last cache can keep (reduce_streams) writes around the caches, and what
 * it has written is there when the call returns.
 *
 * Like everything in device/: calls cannot fail, allocate nothing, keep nothing, and compute what
 * is documented only in the arithmetic that fp_mode_enter sets.
 */

/* dst = src, exactly. */
void cast_to_fp32(float *dst, const void *src, enum dtype src_dtype, size_t n_elems);

/* dst = src, rounded. */
void cast_from_fp32(void *dst, enum dtype dst_dtype, const float *src, size_t n_elems);

/* dst = src, rounded once; values of one dtype are copied as they are. */
void cast_convert(void *dst, enum dtype dst_dtype, const void *src, enum dtype src_dtype,
                  size_t n_elems);

/* Rounds each value to what `wire` can hold; a second time changes nothing. */
void cast_round(float *values, enum dtype wire, size_t n_elems);

#endif
