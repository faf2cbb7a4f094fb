/* SPDX-License-Identifier: Apache-2.0 */
/* What the threads of a warp find out together, and of blocks what they add up in memory. */
#ifndef DEVICE_GPU_WARP_H
#define DEVICE_GPU_WARP_H

#include <stdbool.h>
#include <stdint.h>

#include "device/both.h"

/*
 * A device runs the lanes of a warp at once: each thread has one of them. The host runs them in
 * turn: one call has all. So what a lane has of its own is an array of WARP_OWN, and a loop over
 * that is what all lanes do.
 */
enum { WARP_LANES = 32 };

#ifdef __CUDACC__
enum { WARP_OWN = 1 };
#define WARP_ALL 0xffffffffu

BOTH_INLINE uint32_t warp_lane(uint32_t own)
{
    return threadIdx.x % WARP_LANES + own;
}

BOTH_INLINE bool warp_any(const bool own[WARP_OWN])
{
    return __any_sync(WARP_ALL, own[0]) != 0;
}

BOTH_INLINE uint32_t warp_max(const uint32_t own[WARP_OWN])
{
    return __reduce_max_sync(WARP_ALL, own[0]);
}

/* Whole in each lane. */
BOTH_INLINE int64_t warp_sum(const int64_t own[WARP_OWN])
{
    long long sum = own[0];

    BOTH_UNROLL
    for (int distance = WARP_LANES / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(WARP_ALL, sum, distance);
    }
    return sum;
}

/* In any order, so for whole numbers only. */
BOTH_INLINE void memory_add(int64_t *sum, int64_t value)
{
    atomicAdd((unsigned long long *)sum, (unsigned long long)value);
}

BOTH_INLINE void memory_max(uint64_t *max, uint64_t value)
{
    atomicMax((unsigned long long *)max, (unsigned long long)value);
}
#else
enum { WARP_OWN = WARP_LANES };

BOTH_INLINE uint32_t warp_lane(uint32_t own)
{
    return own;
}

BOTH_INLINE bool warp_any(const bool own[WARP_OWN])
{
    bool any = false;

    for (uint32_t k = 0; k < WARP_OWN; k++) {
        any = any || own[k];
    }
    return any;
}

BOTH_INLINE uint32_t warp_max(const uint32_t own[WARP_OWN])
{
    uint32_t max = 0;

    for (uint32_t k = 0; k < WARP_OWN; k++) {
        max = own[k] > max ? own[k] : max;
    }
    return max;
}

BOTH_INLINE int64_t warp_sum(const int64_t own[WARP_OWN])
{
    int64_t sum = 0;

    for (uint32_t k = 0; k < WARP_OWN; k++) {
        sum += own[k];
    }
    return sum;
}

BOTH_INLINE void memory_add(int64_t *sum, int64_t value)
{
    *sum += value;
}

BOTH_INLINE void memory_max(uint64_t *max, uint64_t value)
{
    *max = value > *max ? value : *max;
}
#endif

#endif /* DEVICE_GPU_WARP_H */
