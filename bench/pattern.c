/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks put into a measured operation, and what must come out. */
#include "pattern.h"

#include <inttypes.h>
#include <string.h>

#define MULTIPLIER UINT32_C(2654435761) /* neighbours get unlike numbers */
#define TURN       UINT32_C(40503)
#define SHIFT      28 /* 0 to 15 */

/* A whole number below 256 is exact in bf16, which is the upper half of fp32. */
static uint16_t bf16_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static float fp32_of(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float ret;

    memcpy(&ret, &bits, sizeof(ret));
    return ret;
}

static uint32_t number(size_t element, uint32_t turn)
{
    return (((uint32_t)element + turn * TURN) * MULTIPLIER) >> SHIFT;
}

void pattern_write(const struct piece *piece, uint32_t rank, uint32_t turn)
{
    float *fp32 = piece->base;
    uint16_t *bf16 = piece->base;

    if (piece->dtype == DTYPE_FP32) {
        for (size_t i = 0; i < piece->n_elems; i++) {
            fp32[i] = (float)(int32_t)(number(piece->first + i, turn) + rank);
        }
    } else {
        for (size_t i = 0; i < piece->n_elems; i++) {
            bf16[i] = bf16_of((float)(int32_t)(number(piece->first + i, turn) + rank));
        }
    }
}

/* A sum over ranks, and where in the whole buffer the piece begins. */
struct expected {
    size_t first;
    uint32_t n_ranks;
    uint32_t turn;
    float divisor;
};

static float wanted(const struct expected *expected, size_t i)
{
    uint32_t ranks = expected->n_ranks * (expected->n_ranks - 1) / 2;
    uint32_t sum = expected->n_ranks * number(expected->first + i, expected->turn) + ranks;

    return (float)(int32_t)sum / expected->divisor;
}

/* Without a branch, so that it is done in vectors. */
static uint32_t n_wrong_fp32(const float *values, size_t n_elems, const struct expected *expected)
{
    uint32_t n = 0;

    for (size_t i = 0; i < n_elems; i++) {
        n += values[i] != wanted(expected, i);
    }
    return n;
}

static uint32_t n_wrong_bf16(const uint16_t *values, size_t n_elems,
                             const struct expected *expected)
{
    uint32_t n = 0;

    for (size_t i = 0; i < n_elems; i++) {
        n += fp32_of(values[i]) != wanted(expected, i);
    }
    return n;
}

static float value_at(const struct piece *piece, size_t i)
{
    return piece->dtype == DTYPE_FP32 ? ((const float *)piece->base)[i]
                                      : fp32_of(((const uint16_t *)piece->base)[i]);
}

void pattern_check(const struct piece *piece, uint32_t n_ranks, uint32_t turn)
{
    const struct expected expected = {piece->first, n_ranks, turn, piece->divisor};
    uint32_t n = piece->dtype == DTYPE_FP32 ? n_wrong_fp32(piece->base, piece->n_elems, &expected)
                                            : n_wrong_bf16(piece->base, piece->n_elems, &expected);

    for (size_t i = 0; n > 0; i++) {
        if (value_at(piece, i) != wanted(&expected, i)) {
            fail("%" PRIu32 " elements are wrong, first element %zu: %g instead of %g", n,
                 piece->first + i, (double)value_at(piece, i), (double)wanted(&expected, i));
        }
    }
}

void pattern_spoil(const struct piece *piece)
{
    size_t i = piece->n_elems / 3;

    if (piece->dtype == DTYPE_FP32) {
        ((float *)piece->base)[i] += 1;
    } else {
        ((uint16_t *)piece->base)[i] = bf16_of(fp32_of(((uint16_t *)piece->base)[i]) + 1);
    }
}

void pattern_read(const struct piece *piece)
{
    const uint64_t *words = piece->base;
    size_t n = piece->n_elems * dtype_bytes(piece->dtype) / sizeof(words[0]);
    uint64_t all = 0;

    for (size_t i = 0; i < n; i++) {
        all ^= words[i];
    }
    __asm__ volatile("" : : "r"(all)); /* it is needed, as far as the compiler knows */
}
