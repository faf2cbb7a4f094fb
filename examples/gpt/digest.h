/* SPDX-License-Identifier: Apache-2.0 */
/* A short number that stands for many floats: equal bits give equal numbers. */
#ifndef GPT_DIGEST_H
#define GPT_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define DIGEST_START UINT64_C(0xcbf29ce484222325)

/* The digest of what was digested before and of these floats behind it: 64-bit FNV-1a over their
 * bytes, least significant first. */
uint64_t digest_add(uint64_t digest, const float *values, size_t n_values);

#endif
