/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: arithmetic of reductions, each step rounded to the dtype. */
#include <math.h>
#include <string.h>

#include "device/half.h"
#include "doubles/nccl_double.h"

/*
 * A row is what an element is kept as, what it is computed in, and how one becomes the other.
 * Integers are computed without a sign where that is the same, so that nothing overflows.
 */
#define AS_IT_IS(value) (value)

#define DTYPES(X)                                                                                  \
    X(NCCL_INT8, int8_t, int8_t, uint8_t, AS_IT_IS, AS_IT_IS)                                      \
    X(NCCL_UINT8, uint8_t, uint8_t, uint8_t, AS_IT_IS, AS_IT_IS)                                   \
    X(NCCL_INT32, int32_t, int32_t, uint32_t, AS_IT_IS, AS_IT_IS)                                  \
    X(NCCL_UINT32, uint32_t, uint32_t, uint32_t, AS_IT_IS, AS_IT_IS)                               \
    X(NCCL_INT64, int64_t, int64_t, uint64_t, AS_IT_IS, AS_IT_IS)                                  \
    X(NCCL_UINT64, uint64_t, uint64_t, uint64_t, AS_IT_IS, AS_IT_IS)                               \
    X(NCCL_FLOAT16, uint16_t, float, float, fp16_to_fp32, fp16_from_fp32)                          \
    X(NCCL_FLOAT32, float, float, float, AS_IT_IS, AS_IT_IS)                                       \
    X(NCCL_FLOAT64, double, double, double, AS_IT_IS, AS_IT_IS)                                    \
    X(NCCL_BFLOAT16, uint16_t, float, float, bf16_to_fp32, bf16_from_fp32)

#define SIZE_ROW(number, stored, value, sum, load, store)                                          \
    case number:                                                                                   \
        return sizeof(stored);

size_t dtype_size(int32_t dtype)
{
    switch (dtype) {
        DTYPES(SIZE_ROW)
    default:
        return 0;
    }
}

#define NUMBER_ROW(number, stored, value, sum, load, store)                                        \
    case number: {                                                                                 \
        stored element;                                                                            \
        memcpy(&element, address, sizeof(element));                                                \
        return (double)load(element);                                                              \
    }

double dtype_number(int32_t dtype, const void *address)
{
    switch (dtype) {
        DTYPES(NUMBER_ROW)
    default:
        return 0;
    }
}

/* One function for each dtype: elements may lie anywhere, so they are copied. */
#define COMBINE_FUNCTION(number, stored, value, sum, load, store)                                  \
    static void combine_##number(int32_t op, unsigned char *ret, const unsigned char *first,       \
                                 const unsigned char *second, uint64_t n_elems)                    \
    {                                                                                              \
        for (uint64_t i = 0; i < n_elems; i++) {                                                   \
            stored a;                                                                              \
            stored b;                                                                              \
            stored result;                                                                         \
            memcpy(&a, first + i * sizeof(a), sizeof(a));                                          \
            memcpy(&b, second + i * sizeof(b), sizeof(b));                                         \
            value x = load(a);                                                                     \
            value y = load(b);                                                                     \
            if (op == NCCL_SUM) {                                                                  \
                result = (stored)store((value)((sum)x + (sum)y));                                  \
            } else if (op == NCCL_PROD) {                                                          \
                result = (stored)store((value)((sum)x * (sum)y));                                  \
            } else if (op == NCCL_MAX) {                                                           \
                result = x > y ? a : b;                                                            \
            } else {                                                                               \
                result = x < y ? a : b;                                                            \
            }                                                                                      \
            memcpy(ret + i * sizeof(result), &result, sizeof(result));                             \
        }                                                                                          \
    }

DTYPES(COMBINE_FUNCTION)

#define COMBINE_ROW(number, stored, value, sum, load, store)                                       \
    case number:                                                                                   \
        combine_##number(reduction->op, ret, first, second, n_elems);                              \
        break;

void reduction_combine(const struct reduction *reduction, void *ret, const void *first,
                       const void *second, uint64_t n_elems)
{
    switch (reduction->dtype) {
        DTYPES(COMBINE_ROW)
    default:
        nccl_die("dtype %d in a reduction", reduction->dtype);
    }
}

/* The factor is of the dtype, too. */
#define SCALE_FUNCTION(number, stored, value, sum, load, store)                                    \
    static void scale_##number(double factor, unsigned char *ret, const unsigned char *values,     \
                               uint64_t n_elems)                                                   \
    {                                                                                              \
        stored rounded = (stored)store((value)factor);                                             \
        for (uint64_t i = 0; i < n_elems; i++) {                                                   \
            stored element;                                                                        \
            memcpy(&element, values + i * sizeof(element), sizeof(element));                       \
            element = (stored)store((value)((sum)load(element) * (sum)load(rounded)));             \
            memcpy(ret + i * sizeof(element), &element, sizeof(element));                          \
        }                                                                                          \
    }

DTYPES(SCALE_FUNCTION)

#define SCALE_ROW(number, stored, value, sum, load, store)                                         \
    case number:                                                                                   \
        scale_##number(factor, ret, values, n_elems);                                              \
        break;

void reduction_scale(const struct reduction *reduction, void *ret, const void *values,
                     uint64_t n_elems)
{
    double factor = reduction->factor;

    if (reduction->at_device != NULL) {
        factor = dtype_number(reduction->dtype,
                              double_shadow(reduction->at_device, dtype_size(reduction->dtype)));
    }
    switch (reduction->dtype) {
        DTYPES(SCALE_ROW)
    default:
        nccl_die("dtype %d in a reduction", reduction->dtype);
    }
}

#define DIVIDE_ROW(number, stored, value, sum, load, store)                                        \
    case number:                                                                                   \
        for (uint64_t i = 0; i < n_elems; i++) {                                                   \
            stored element;                                                                        \
            memcpy(&element, (unsigned char *)values + i * sizeof(element), sizeof(element));      \
            element = (stored)store((value)(load(element) / (value)n));                            \
            memcpy((unsigned char *)values + i * sizeof(element), &element, sizeof(element));      \
        }                                                                                          \
        break;

void reduction_divide(const struct reduction *reduction, void *values, uint64_t n_elems, uint32_t n)
{
    switch (reduction->dtype) {
        DTYPES(DIVIDE_ROW)
    default:
        nccl_die("dtype %d in a reduction", reduction->dtype);
    }
}
