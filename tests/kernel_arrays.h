/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays for the suites of the devices' kernels: any values, any alignment, guards around. */
#ifndef TESTS_KERNEL_ARRAYS_H
#define TESTS_KERNEL_ARRAYS_H

#include <stdint.h>

#include "base/dtype.h"
#include "device/gpu_kernels.h"
#include "kernel_values.h"

enum {
    MAX_ELEMS = 5000,
    N_GRIDS = 4,
    N_DTYPES = 3,
};

/* Blocks, threads. */
extern const uint32_t grids[N_GRIDS][2];
extern const int32_t dtypes[N_DTYPES];

/* An array, some elements behind a multiple of 64 bytes, with guards around it. */
struct array {
    char *base;
    void *values;
    uint64_t n_bytes;
};

uint64_t elem_bytes(int32_t dtype);

/* `shift` elements behind; filled with what no kernel writes. */
struct array array_create(int32_t dtype, uint64_t n_elems, uint32_t shift);
struct array array_copy(const struct array *array, int32_t dtype, uint32_t shift);
void array_destroy(struct array *array);

/* With values of one kind (kernel_values.h), or of all in turn if it is VALUES_N_KINDS. */
void array_fill(struct array *array, int32_t dtype, uint64_t *state, uint32_t kind);

/* Nothing around an array was written. */
void array_check_guards(const struct array *array);

/* The same bits; of NaNs only that they are. */
void arrays_check_equal(const struct array *left, const struct array *right, int32_t dtype);

void kernel_run(enum gpu_kernel kernel, const void *args, const uint32_t grid[2]);

/* What a kernel is tried with: each size, some grids, arrays of one misalignment each. */
struct setting {
    uint64_t n_elems;
    const uint32_t *grid;
    uint32_t shifts[5]; /* elements */
    uint64_t seed;
};

void each_setting(void (*check)(const struct setting *setting));

#endif /* TESTS_KERNEL_ARRAYS_H */
