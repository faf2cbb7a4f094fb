/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks put into a measured operation, and what must come out. */
#include "pattern.h"

#include <inttypes.h>
#include <string.h>

#define TURN UINT32_C(40503)
#define MASK 15u /* numbers are 0 to 15 */

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
    uint32_t at = (uint32_t)element + turn * TURN;

    /* Digits of the place, so that it is another one 16, 256, ... elements further on. */
    return (at ^ at >> 5 ^ at >> 11 ^ at >> 18) & MASK;
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

/* A sum, or a mean, is each rank's number times `scale`, and the ranks themselves: all exact. */
struct expected {
    size_t first; /* in the whole buffer */
    uint32_t turn;
    float scale;
    float ranks;
};

static struct expected expect(const struct piece *piece, uint32_t n_ranks, uint32_t turn)
{
    struct expected expected = {.first = piece->first, .turn = turn};

    expected.scale = (float)n_ranks / piece->divisor;
    expected.ranks = (float)n_ranks * (float)(n_ranks - 1) / 2 / piece->divisor;
    return expected;
}

static float wanted(const struct expected *expected, size_t i)
{
    int32_t own = (int32_t)number(expected->first + i, expected->turn);

    return (float)own * expected->scale + expected->ranks;
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
    const struct expected expected = expect(piece, n_ranks, turn);
    uint32_t n = piece->dtype == DTYPE_FP32 ? n_wrong_fp32(piece->base, piece->n_elems, &expected)
                                            : n_wrong_bf16(piece->base, piece->n_elems, &expected);
    size_t i = 0;

    if (n == 0) {
        return;
    }
    while (value_at(piece, i) == wanted(&expected, i)) {
        i++;
    }
    fail("wrong elements: %" PRIu32 ", the first is %zu: %g instead of %g", n, piece->first + i,
         (double)value_at(piece, i), (double)wanted(&expected, i));
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
