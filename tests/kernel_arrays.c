/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays for the suites of the devices' kernels: any values, any alignment, guards around. */
#include "kernel_arrays.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cast.h"
#include "doubles/double.h"

enum {
    GUARD_BYTES = 64, /* on both sides of what a kernel may write */
    N_SIZES = 14,
};

static const uint64_t sizes[N_SIZES] = {0,   1,   2,   3,   4,    5,    7,
                                        127, 511, 512, 513, 1025, 4096, MAX_ELEMS};

/* Blocks, threads. */
const uint32_t grids[N_GRIDS][2] = {{1, 32}, {1, 256}, {3, 64}, {17, 128}};

const int32_t dtypes[N_DTYPES] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};

/* Here device memory is memory. */
void *double_shadow(const void *address, uint64_t n_bytes)
{
    ck_assert(address != NULL && n_bytes != 0);
    return (void *)(uintptr_t)address;
}

/* --------------------------------------------------------------------------------- arrays */

uint64_t elem_bytes(int32_t dtype)
{
    return dtype == DTYPE_FP32 ? 4 : 2;
}

struct array array_create(int32_t dtype, uint64_t n_elems, uint32_t shift)
{
    struct array array = {.n_bytes = n_elems * elem_bytes(dtype)};
    uint64_t n_bytes = array.n_bytes + 3 * GUARD_BYTES;

    array.base = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    ck_assert_ptr_nonnull(array.base);
    memset(array.base, 0xa5, n_bytes);
    array.values = array.base + GUARD_BYTES + shift * elem_bytes(dtype);
    return array;
}

void array_destroy(struct array *array)
{
    free(array->base);
}

static void guard_check(const char *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        ck_assert_int_eq((unsigned char)bytes[i], 0xa5);
    }
}

/* Nothing around an array was written. */
void array_check_guards(const struct array *array)
{
    const char *end = (const char *)array->values + array->n_bytes;

    guard_check(array->base, (size_t)((char *)array->values - array->base));
    guard_check(end, GUARD_BYTES);
}

/* Values of all kinds in turn, or of one. */
void array_fill(struct array *array, int32_t dtype, uint64_t *state, uint32_t kind)
{
    uint64_t n_elems = array->n_bytes / elem_bytes(dtype);

    for (uint64_t i = 0; i < n_elems; i++) {
        float value = values_kind(state, kind < VALUES_N_KINDS ? kind : (uint32_t)(i / 3) % 5);

        cast_from_fp32((char *)array->values + i * elem_bytes(dtype), (enum dtype)dtype, &value, 1);
    }
}

struct array array_copy(const struct array *array, int32_t dtype, uint32_t shift)
{
    struct array copy = array_create(dtype, array->n_bytes / elem_bytes(dtype), shift);

    memcpy(copy.values, array->values, array->n_bytes);
    return copy;
}

static int is_nan(const char *bytes, int32_t dtype)
{
    uint16_t half;
    float value;

    if (dtype == DTYPE_FP32) {
        memcpy(&value, bytes, sizeof(value));
        return isnan(value);
    }
    memcpy(&half, bytes, sizeof(half));
    return isnan(dtype == DTYPE_BF16 ? bf16_to_fp32(half) : fp16_to_fp32(half));
}

/* The same bits; of NaNs only that they are. */
void arrays_check_equal(const struct array *left, const struct array *right, int32_t dtype)
{
    const char *l = left->values;
    const char *r = right->values;

    ck_assert_uint_eq(left->n_bytes, right->n_bytes);
    for (uint64_t i = 0; i < left->n_bytes; i += elem_bytes(dtype)) {
        if (memcmp(l + i, r + i, elem_bytes(dtype)) != 0 &&
            (!is_nan(l + i, dtype) || !is_nan(r + i, dtype))) {
            ck_abort_msg("element %d of %d differs", (int)(i / elem_bytes(dtype)),
                         (int)(left->n_bytes / elem_bytes(dtype)));
        }
    }
}

void kernel_run(enum gpu_kernel kernel, const void *args, const uint32_t grid[2])
{
    double_kernels[kernel].run(args, grid[0], grid[1]);
}

void each_setting(void (*check)(const struct setting *setting))
{
    static const uint32_t shifts[][5] = {{0}, {1, 1, 1, 1, 1}, {3, 3, 3, 3, 3}, {0, 1, 2, 3, 5}};

    for (uint32_t i = 0; i < N_SIZES; i++) {
        for (uint32_t j = 0; j < 4; j++) {
            struct setting setting = {sizes[i], grids[(i + j) % N_GRIDS], {0}, i * 16 + j};

            memcpy(setting.shifts, shifts[j], sizeof(setting.shifts));
            check(&setting);
        }
    }
}
