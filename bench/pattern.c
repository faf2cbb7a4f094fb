/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks put into a measured operation, and what must come out. */
#include "pattern.h"

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

void pattern_check(const struct piece *piece, uint32_t n_ranks, uint32_t turn)
{
    const float *fp32 = piece->base;
    const uint16_t *bf16 = piece->base;
    uint32_t ranks = n_ranks * (n_ranks - 1) / 2;

    for (size_t i = 0; i < piece->n_elems; i++) {
        float sum = (float)(n_ranks * number(piece->first + i, turn) + ranks);
        float wanted = sum / piece->divisor;
        float found = piece->dtype == DTYPE_FP32 ? fp32[i] : fp32_of(bf16[i]);

        if (found != wanted) {
            fail("element %zu of the result is %g, not %g", piece->first + i, (double)found,
                 (double)wanted);
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
