/* SPDX-License-Identifier: Apache-2.0 */
/* Elements: the three dtypes of models, read and written one element at a time. */
#ifndef REFERENCE_ELEMENT_H
#define REFERENCE_ELEMENT_H

#include <stdbool.h>

#include "hsdp/abi.h"

enum dtype { DTYPE_FP32, DTYPE_FP16, DTYPE_BF16 };

uint32_t dtype_bytes(enum dtype dtype);
const char *dtype_name(enum dtype dtype);
/** False for a name that is none of the three. */
bool dtype_find(const char *name, enum dtype *ret);
/** False for a tensor of another dtype. */
bool dtype_of(const struct hsdp_tensor *tensor, enum dtype *ret);
/** True for one that is row-major without gaps, of any dtype. */
bool tensor_is_contiguous(const struct hsdp_tensor *tensor);

float element_read(const void *array, enum dtype dtype, uint64_t index);
/** Rounds to the nearest, ties to even. */
void element_write(void *array, enum dtype dtype, uint64_t index, float value);
float element_round(float value, enum dtype dtype);

#endif /* REFERENCE_ELEMENT_H */
