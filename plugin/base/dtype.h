/* SPDX-License-Identifier: Apache-2.0 */
/* The element types of parameters and gradients: names as settings spell them, and sizes. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

enum dtype { DTYPE_FP32, DTYPE_BF16, DTYPE_FP16 };

/* Bytes of one element. */
size_t dtype_bytes(enum dtype dtype);

/* "fp32", "bf16" or "fp16"; static text. */
const char *dtype_name(enum dtype dtype);

/* False, with *ret_dtype untouched, for text that is not exactly one of the names. */
bool dtype_parse(const char *text, enum dtype *ret_dtype);

#endif
