/* SPDX-License-Identifier: Apache-2.0 */
/* Memory in which a byte too far is a fault, and a byte that was written is seen. */
#ifndef CONFORM_GUARD_H
#define CONFORM_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "conform.h"

#define GUARD_FILLER 0xaa

/**
 * Memory of n_bytes that ends where the process may neither read nor write (but for what rounding
 * to 8 adds before that), filled with GUARD_FILLER. It lives as long as the rank.
 */
void *guard_memory(struct conform *conform, size_t n_bytes);

/**
 * A copy of a struct in such memory that says it has, and has, n_bytes: cut, or longer with zeros.
 * Of fewer than 8 there are 8, for the size that it says.
 */
void *guard_copy(struct conform *conform, const void *object, size_t full_bytes, size_t n_bytes);

/** A struct that says it has, and has, n_bytes, and the filler in all others. */
void *guard_output(struct conform *conform, size_t n_bytes);

bool guard_is_filled(const void *memory, size_t n_bytes, int filler);

#endif /* CONFORM_GUARD_H */
