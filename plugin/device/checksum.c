/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of arrays: one mixed number per element, added up. */
#include "device/checksum.h"

#include <string.h>

/* Odd, so that multiplying by them loses nothing; otherwise without pattern. */
#define PER_POSITION UINT64_C(0x9e3779b97f4a7c15)
#define PER_BIT      UINT64_C(0xd1342543de82ef95)
#define MIXER        UINT64_C(0xbf58476d1ce4e5b9)

/* One to one: what goes in differently comes out differently. */
static inline uint64_t number_mix(uint64_t number)
{
    number ^= number >> 32;
    number *= MIXER;
    number ^= number >> 29;
    number *= PER_BIT;
    return number ^ number >> 32;
}

uint64_t checksum_mix(uint64_t number)
{
    return number_mix(number + PER_POSITION);
}

static uint64_t words_sum(uint64_t base, const char *values, size_t n_elems)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n_elems; i++) {
        uint32_t bits;

        memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
        sum += number_mix(base + i * PER_POSITION + bits * PER_BIT);
    }
    return sum;
}

static uint64_t halves_sum(uint64_t base, const char *values, size_t n_elems)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n_elems; i++) {
        uint16_t bits;

        memcpy(&bits, values + i * sizeof(bits), sizeof(bits));
        sum += number_mix(base + i * PER_POSITION + bits * PER_BIT);
    }
    return sum;
}

uint64_t checksum_sum(uint64_t salt, uint64_t first, const void *values, enum dtype dtype,
                      size_t n_elems)
{
    uint64_t base = checksum_mix(salt) + first * PER_POSITION;

    return dtype_bytes(dtype) == 4 ? words_sum(base, values, n_elems)
                                   : halves_sum(base, values, n_elems);
}
