/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of the server: one element of all members at a time, adjacent pairs first. */
#include <math.h>
#include <string.h>

#include "element.h"
#include "launch.h"
#include "server_internal.h"

static const uint32_t element_bytes[N_ELEMENTS] = {4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8};

/*
 * ((x0 + x1) + (x2 + x3)) + ...: the odd one is carried. fp32, fp16 and bf16 are summed in fp32:
 * the sum of two floats, and a quotient, is the same float when it is rounded by way of a double.
 */
static double numbers_reduce(double *x, uint32_t n, int32_t reduce, bool is_fp64)
{
    for (uint32_t stride = 1; stride < n; stride *= 2) {
        for (uint32_t i = 0; i + stride < n; i += 2 * stride) {
            double left = x[i], right = x[i + stride];

            if (reduce == HSDP_REDUCE_MAX) {
                x[i] = left < right || isnan(right) ? right : left;
            } else if (reduce == HSDP_REDUCE_MIN) {
                x[i] = left > right || isnan(right) ? right : left;
            } else {
                x[i] = is_fp64 ? left + right : (double)(float)(left + right);
            }
        }
    }
    return reduce == HSDP_REDUCE_MEAN ? x[0] / n : x[0];
}

/* Integers of any size, extended to 64 bits: a sum wraps as it does in their own size. */
static uint64_t integers_reduce(const uint64_t *x, uint32_t n, int32_t reduce, bool is_signed)
{
    uint64_t result = x[0];

    for (uint32_t i = 1; i < n; i++) {
        bool is_less = is_signed ? (int64_t)x[i] < (int64_t)result : x[i] < result;

        if (reduce == HSDP_REDUCE_SUM) {
            result += x[i];
        } else if (is_less == (reduce == HSDP_REDUCE_MIN)) {
            result = x[i];
        }
    }
    return result;
}

static uint64_t integer_read(const unsigned char *at, uint32_t n_bytes, bool is_signed)
{
    uint64_t value = 0;
    uint32_t unused_bits = 64 - 8 * n_bytes;

    memcpy(&value, at, n_bytes);
    value <<= unused_bits; /* the sign comes down with it */
    return is_signed ? (uint64_t)((int64_t)value >> unused_bits) : value >> unused_bits;
}

static enum dtype dtype_in(enum element element)
{
    switch (element) {
    case ELEMENT_FP16:
        return DTYPE_FP16;
    case ELEMENT_BF16:
        return DTYPE_BF16;
    default:
        return DTYPE_FP32;
    }
}

static void number_reduce_at(const struct request *request, const void *const *payloads, uint32_t n,
                             size_t index, void *ret)
{
    bool is_fp64 = request->element == ELEMENT_FP64;
    enum dtype dtype = dtype_in(request->element);
    double x[MOST_RANKS], result;

    for (uint32_t i = 0; i < n; i++) {
        x[i] = is_fp64 ? ((const double *)payloads[i])[index]
                       : (double)element_read(payloads[i], dtype, index);
    }
    result = numbers_reduce(x, n, request->reduce, is_fp64);
    if (is_fp64) {
        ((double *)ret)[index] = result;
    } else {
        element_write(ret, dtype, index, (float)result);
    }
}

static void integer_reduce_at(const struct request *request, const void *const *payloads,
                              uint32_t n, size_t index, void *ret)
{
    uint32_t n_bytes = element_bytes[request->element];
    bool is_signed = request->element < ELEMENT_UINT8;
    uint64_t x[MOST_RANKS] = {0};

    for (uint32_t i = 0; i < n; i++) {
        x[i] =
            integer_read((const unsigned char *)payloads[i] + index * n_bytes, n_bytes, is_signed);
    }
    x[0] = integers_reduce(x, n, request->reduce, is_signed);
    memcpy((unsigned char *)ret + index * n_bytes, &x[0], n_bytes); /* little endian */
}

bool payloads_reduce(const struct request *request, const void *const *payloads, uint32_t n,
                     void *ret)
{
    size_t n_elems;

    if ((uint32_t)request->element >= N_ELEMENTS || n > MOST_RANKS) {
        return false;
    }
    n_elems = request->payload_bytes / element_bytes[request->element];
    for (size_t i = 0; i < n_elems; i++) {
        if (request->element < ELEMENT_INT8) {
            number_reduce_at(request, payloads, n, i, ret);
        } else {
            integer_reduce_at(request, payloads, n, i, ret);
        }
    }
    return true;
}
