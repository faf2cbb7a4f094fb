/* SPDX-License-Identifier: Apache-2.0 */
/* A short number that stands for many floats. */
#include "digest.h"

#include <string.h>

#define FNV_PRIME UINT64_C(0x100000001b3)

uint64_t digest_add(uint64_t digest, const float *values, size_t n_values)
{
    for (size_t i = 0; i < n_values; i++) {
        uint32_t bits;

        memcpy(&bits, &values[i], sizeof(bits));
        for (int byte = 0; byte < 4; byte++) {
            digest = (digest ^ (bits >> 8 * byte & 0xffu)) * FNV_PRIME;
        }
    }
    return digest;
}
