/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel norm: exact sums of |x|^p, the same in any order. */
#ifndef DEVICE_GPU_NORM_H
#define DEVICE_GPU_NORM_H

#include <math.h>

#include "device/gpu_kernels.h"
#include "device/gpu_quad.h"
#include "device/gpu_warp.h"

/*
 * What is summed up are whole numbers. In a window, whose top is 2^(top - 126), a value is
 *
 *     x = high * 2^(top - 148) + low * 2^(top - 170)      |high| <= 2^22, |low| <= 2^21
 *
 * and both come from additions of fp32: 1.5 * 2^23 units of a grid are added to x, and the bits of
 * the sum, less those of what was added, count the units of x, rounded. So x*x is three products of
 * integers, which a lane adds up in 64 bits, exactly. Devices are good at this, also those that
 * have next to no fp64.
 *
 * Values of 512 elements that fit the window are the rule, as the window stays what the last ones
 * needed. When one does not (too large, not a multiple of the lower grid, not finite), a warp takes
 * its 512 values once more: on a window for the largest, then on another for the largest that is
 * left, until all are taken. A sum goes to the limbs of the block when the window moves, and before
 * it could overflow; the block's go to memory in the end.
 */
enum {
    NORM_LANE_QUADS = 4,
    NORM_LANE_ELEMS = NORM_LANE_QUADS * QUAD,
    NORM_CHUNK_ELEMS = WARP_LANES * NORM_LANE_ELEMS,
    NORM_WINDOW_CHUNKS = 256, /* lanes' sums stay below 2^57, those of warps below 2^62 */
    NORM_LEAST_TOP = 21,      /* where the lower grid is that of denormals */
    NORM_LARGEST_TOP = 251,   /* where the upper grid's additions stay finite */
    NORM_SHIFT = 64,          /* larger values are taken 2^64 times smaller */
    NORM_LEAST_SHIFTED = 200, /* the least exponent of these */
};

struct norm_window {
    int32_t top;
    uint32_t end_bits; /* of the least magnitude that is too large; 0 where values are shifted */
    float upper;       /* 1.5 * 2^23 units of each grid */
    float lower;
    uint32_t n_chunks; /* in the sums of the lanes */
    bool is_shifted;
};

/* Whole numbers of a lane: sums of high * high, high * low and low * low; for p = 1 of high and
 * low. */
struct norm_lane {
    uint64_t high;
    uint64_t cross;
    uint64_t low;
};

/* A warp and its chunks: 512 values at a time, 16 a lane. */
struct norm_warp {
    struct gpu_norm *block; /* of all warps of a block */
    struct norm_window window;
    struct norm_lane lanes[WARP_OWN];
    float values[WARP_OWN][NORM_LANE_ELEMS];
};

/* ---------------------------------------------------------------------------------- windows */

/* For values up to that of max_bits, which is finite. */
BOTH_INLINE struct norm_window window_of(uint32_t max_bits)
{
    struct norm_window window;
    int32_t top = (int32_t)(max_bits >> 23);

    window.is_shifted = top > NORM_LARGEST_TOP;
    window.top = window.is_shifted ? top - NORM_SHIFT : top;
    window.top = window.top < NORM_LEAST_TOP ? NORM_LEAST_TOP : window.top;
    window.end_bits = window.is_shifted ? 0 : (uint32_t)(window.top + 1) << 23;
    window.upper = fp32_from_bits((uint32_t)(window.top + 2) << 23 | 0x00400000);
    window.lower = fp32_from_bits((uint32_t)(window.top - 20) << 23 | 0x00400000);
    window.n_chunks = 0;
    return window;
}

/* Adds |x|^p to a lane; returns what of x is below the lower grid, as bits. */
BOTH_INLINE uint32_t lane_take(struct norm_lane *lane, struct norm_window window, float x,
                               bool is_squared)
{
    const float magnitude = fabsf(x);
    float sum = magnitude + window.upper;
    float rest = magnitude - (sum - window.upper);
    float rest_sum = rest + window.lower;
    int32_t high = (int32_t)(fp32_bits(sum) - fp32_bits(window.upper));
    int32_t low = (int32_t)(fp32_bits(rest_sum) - fp32_bits(window.lower));

    if (is_squared) {
        lane->high += (uint64_t)((int64_t)high * high);
        lane->cross += (uint64_t)((int64_t)high * low);
        lane->low += (uint64_t)((int64_t)low * low);
    } else {
        lane->high += (uint64_t)(int64_t)high;
        lane->low += (uint64_t)(int64_t)low;
    }
    return fp32_bits(rest - (rest_sum - window.lower));
}

BOTH_INLINE void block_add(struct gpu_norm *block, int64_t units, int32_t bit)
{
    struct limbs_addend addend = limbs_split(units, bit);

    for (uint32_t i = 0; i < 3; i++) {
        memory_add(&block->limbs[addend.first + i], addend.parts[i]);
    }
}

/* Brings what the lanes hold to the block. */
BOTH_INLINE void warp_flush(struct norm_warp *warp, bool is_squared)
{
    const int32_t shift = warp->window.is_shifted ? NORM_SHIFT : 0;
    const int32_t upper = warp->window.top - 148 + shift; /* the grids' least bits */
    const int32_t lower = warp->window.top - 170 + shift;
    int64_t sums[3][WARP_OWN];
    int64_t totals[3];

    for (uint32_t k = 0; k < WARP_OWN; k++) {
        sums[0][k] = (int64_t)warp->lanes[k].high;
        sums[1][k] = (int64_t)warp->lanes[k].cross;
        sums[2][k] = (int64_t)warp->lanes[k].low;
        warp->lanes[k].high = 0;
        warp->lanes[k].cross = 0;
        warp->lanes[k].low = 0;
    }
    for (uint32_t i = 0; i < 3; i++) {
        totals[i] = warp_sum(sums[i]);
    }
    warp->window.n_chunks = 0;
    if (warp_lane(0) != 0) {
        return;
    }
    block_add(warp->block, totals[0], is_squared ? 2 * upper : upper);
    block_add(warp->block, totals[2], is_squared ? 2 * lower : lower);
    if (is_squared) {
        block_add(warp->block, totals[1], upper + lower + 1);
    }
}

/* ----------------------------------------------------------------- values that need a window */

/* Takes infinities and NaNs out, and counts them. */
BOTH_INLINE void warp_count_nonfinite(struct norm_warp *warp)
{
    int64_t n_inf[WARP_OWN] = {0};
    int64_t n_nan[WARP_OWN] = {0};
    int64_t inf_total;
    int64_t nan_total;

    for (uint32_t k = 0; k < WARP_OWN; k++) {
        BOTH_UNROLL
        for (uint32_t i = 0; i < NORM_LANE_ELEMS; i++) {
            uint32_t magnitude = fp32_bits(warp->values[k][i]) & 0x7fffffff;

            n_inf[k] += magnitude == 0x7f800000;
            n_nan[k] += magnitude > 0x7f800000;
            warp->values[k][i] = magnitude >= 0x7f800000 ? 0.0f : warp->values[k][i];
        }
    }
    inf_total = warp_sum(n_inf);
    nan_total = warp_sum(n_nan);
    if (warp_lane(0) == 0) {
        memory_add(&warp->block->n_inf, inf_total);
        memory_add(&warp->block->n_nan, nan_total);
    }
}

BOTH_INLINE uint32_t warp_max_bits(const struct norm_warp *warp)
{
    uint32_t max[WARP_OWN];

    for (uint32_t k = 0; k < WARP_OWN; k++) {
        max[k] = 0;
        BOTH_UNROLL
        for (uint32_t i = 0; i < NORM_LANE_ELEMS; i++) {
            uint32_t magnitude = fp32_bits(warp->values[k][i]) & 0x7fffffff;

            max[k] = magnitude > max[k] ? magnitude : max[k];
        }
    }
    return warp_max(max);
}

/* Takes what fits the window, and puts 0 in its place. */
BOTH_INLINE void warp_take_fitting(struct norm_warp *warp, bool is_squared)
{
    const struct norm_window window = warp->window;

    for (uint32_t k = 0; k < WARP_OWN; k++) {
        BOTH_UNROLL
        for (uint32_t i = 0; i < NORM_LANE_ELEMS; i++) {
            float x = warp->values[k][i];
            uint32_t exponent = fp32_bits(x) >> 23 & 0xff;
            struct norm_lane lane = warp->lanes[k];

            if (window.is_shifted) { /* exactly, or not at all */
                x = exponent >= NORM_LEAST_SHIFTED ? x * 0x1p-64f : 0.0f;
            }
            if (lane_take(&lane, window, x, is_squared) == 0 &&
                (!window.is_shifted || exponent >= NORM_LEAST_SHIFTED)) {
                warp->lanes[k] = lane;
                warp->values[k][i] = 0.0f;
            }
        }
    }
}

/* Values of any kind. The window is then one for the largest of them. */
BOTH_INLINE void warp_take_any(struct norm_warp *warp, bool is_squared)
{
    uint32_t max_bits;
    uint32_t left_bits;

    warp_count_nonfinite(warp);
    max_bits = warp_max_bits(warp);
    BOTH_ROLLED
    for (left_bits = max_bits; left_bits != 0; left_bits = warp_max_bits(warp)) {
        warp_flush(warp, is_squared);
        warp->window = window_of(left_bits);
        warp_take_fitting(warp, is_squared);
        warp->window.n_chunks = 1;
    }
    if (max_bits != 0) {
        warp_flush(warp, is_squared);
        warp->window = window_of(max_bits);
    }
}

/* ------------------------------------------------------------------------------------ chunks */

/* Takes a chunk, if all of it fits the window. */
BOTH_INLINE bool warp_take_all(struct norm_warp *warp, bool is_squared)
{
    const struct norm_window window = warp->window;
    struct norm_lane lanes[WARP_OWN];
    bool are_misfits[WARP_OWN];

    for (uint32_t k = 0; k < WARP_OWN; k++) {
        uint32_t max = 0;
        uint32_t rest = 0;

        lanes[k] = warp->lanes[k];
        BOTH_UNROLL
        for (uint32_t i = 0; i < NORM_LANE_ELEMS; i++) {
            uint32_t magnitude = fp32_bits(warp->values[k][i]) & 0x7fffffff;

            max = magnitude > max ? magnitude : max;
            rest |= lane_take(&lanes[k], window, warp->values[k][i], is_squared);
        }
        are_misfits[k] = rest != 0 || max >= window.end_bits;
    }
    if (warp_any(are_misfits)) {
        return false;
    }
    for (uint32_t k = 0; k < WARP_OWN; k++) {
        warp->lanes[k] = lanes[k];
    }
    return true;
}

BOTH_INLINE void warp_take(struct norm_warp *warp, bool is_squared)
{
    bool is_taken = is_squared ? warp_take_all(warp, true) : warp_take_all(warp, false);

    if (!is_taken) {
        warp_take_any(warp, is_squared);
    } else if (++warp->window.n_chunks == NORM_WINDOW_CHUNKS) {
        warp_flush(warp, is_squared);
    }
}

BOTH_INLINE void warp_take_max(struct norm_warp *warp)
{
    uint32_t max_bits = warp_max_bits(warp);

    if (warp_lane(0) == 0) {
        memory_max(&warp->block->max_bits, max_bits);
    }
}

/* How the elements are cut: whole chunks, then what is behind them, then what is before them. */
struct norm_cut {
    float *values;
    uint64_t n_elems;
    uint64_t lead;
    uint64_t n_whole;
    uint64_t n_chunks;
};

BOTH_INLINE struct norm_cut norm_cut_of(const struct gpu_norm_args *args)
{
    struct norm_cut cut;
    uint64_t lead = array_lead(args->values, DTYPE_FP32);

    cut.values = args->values;
    cut.n_elems = args->n_elems;
    cut.lead = lead < args->n_elems ? lead : args->n_elems;
    cut.n_whole = (args->n_elems - cut.lead) / NORM_CHUNK_ELEMS;
    cut.n_chunks = cut.n_whole + 2;
    return cut;
}

/* The quad of a lane in a chunk, which has no elements where a chunk ends before it. */
BOTH_INLINE struct piece cut_piece(struct norm_cut cut, uint64_t chunk, uint32_t lane, uint32_t i)
{
    uint64_t offset = QUAD * (lane + (uint64_t)WARP_LANES * i);
    uint64_t first = chunk <= cut.n_whole ? cut.lead + NORM_CHUNK_ELEMS * chunk : 0;
    uint64_t end = chunk <= cut.n_whole ? cut.n_elems : cut.lead;
    uint64_t n_left = first + offset < end ? end - first - offset : 0;
    struct piece piece = {first + offset, n_left < QUAD ? (uint32_t)n_left : QUAD, false};

    return piece;
}

/* Loads a chunk, and divides it, also in memory if that is wanted. */
BOTH_INLINE void warp_load(struct norm_warp *warp, struct norm_cut cut, uint64_t chunk,
                           struct gpu_divisor by, bool is_divided)
{
    for (uint32_t k = 0; k < WARP_OWN; k++) {
        struct quad quads[NORM_LANE_QUADS];

        BOTH_UNROLL
        for (uint32_t i = 0; i < NORM_LANE_QUADS; i++) {
            struct piece piece = cut_piece(cut, chunk, warp_lane(k), i);

            piece.is_whole = chunk < cut.n_whole;
            quads[i] = quad_read(cut.values, DTYPE_FP32, piece);
        }
        BOTH_UNROLL
        for (uint32_t i = 0; i < NORM_LANE_QUADS; i++) {
            struct piece piece = cut_piece(cut, chunk, warp_lane(k), i);

            quads[i] = quad_divide(quads[i], by);
            piece.is_whole = chunk < cut.n_whole;
            if (is_divided) {
                quad_write(cut.values, DTYPE_FP32, piece, quads[i]);
            }
        }
        BOTH_UNROLL
        for (uint32_t i = 0; i < NORM_LANE_ELEMS; i++) {
            warp->values[k][i] = quads[i / QUAD].values[i % QUAD];
        }
    }
}

BOTH_INLINE void warp_chunks(struct norm_warp *warp, const struct gpu_norm_args *args,
                             struct gpu_thread self)
{
    const struct gpu_divisor by = gpu_divisor_of(args->divisor);
    const struct norm_cut cut = norm_cut_of(args);
    const bool is_max = isinf(args->p);

    BOTH_ROLLED
    for (uint64_t chunk = self.index; chunk < cut.n_chunks; chunk += self.n_threads) {
        warp_load(warp, cut, chunk, by, args->is_divided != 0);
        if (is_max) {
            warp_take_max(warp);
        } else {
            warp_take(warp, args->p == 2.0);
        }
    }
    if (!is_max) {
        warp_flush(warp, args->p == 2.0);
    }
}

/* Other powers than 1 and 2, element by element, by the function that all have. */
BOTH_INLINE void norm_powers(struct gpu_norm *block, const struct gpu_norm_args *args,
                             struct gpu_thread thread)
{
    const struct gpu_divisor by = gpu_divisor_of(args->divisor);
    const struct power power = power_of(args->p);

    BOTH_ROLLED
    for (uint64_t i = thread.index; i < args->n_elems; i += thread.n_threads) {
        float value = gpu_quotient(args->values[i], by);
        double magnitude = fabs((double)value);

        if (args->is_divided != 0) {
            args->values[i] = value;
        }
        if (magnitude > 0.0 && !isinf(magnitude)) {
            struct scaled term = power_raise(power, magnitude);

            block_add(block, (int64_t)(term.significand * 0x1p53), term.exponent - 53);
        } else if (magnitude != 0.0) {
            memory_add(isinf(magnitude) ? &block->n_inf : &block->n_nan, 1);
        }
    }
}

/* ---------------------------------------------------------- a block: between these all wait */

enum { NORM_WORDS = LIMBS + 2 };

/* Zeroes what the warps of a block add to. */
BOTH_INLINE void norm_begin(struct gpu_norm *block, uint32_t thread, uint32_t n_threads)
{
    BOTH_ROLLED
    for (uint32_t i = thread; i < LIMBS; i += n_threads) {
        block->limbs[i] = 0;
    }
    if (thread == 0) {
        block->n_inf = 0;
        block->n_nan = 0;
        block->max_bits = 0;
    }
}

BOTH_INLINE bool norm_is_of_powers(const struct gpu_norm_args *args)
{
    return args->p != 1.0 && args->p != 2.0 && !isinf(args->p);
}

/* All of one warp; `self` is its number, and how many of them the grid has. */
BOTH_INLINE void norm_warps(struct gpu_norm *block, const struct gpu_norm_args *args,
                            struct gpu_thread self)
{
    struct norm_warp warp;

    warp.block = block;
    warp.window = window_of(0x3f800000); /* any: values will set theirs */
    for (uint32_t k = 0; k < WARP_OWN; k++) {
        warp.lanes[k].high = 0;
        warp.lanes[k].cross = 0;
        warp.lanes[k].low = 0;
    }
    warp_chunks(&warp, args, self);
}

/* Carries, so that memory has room for what 2^31 blocks add. */
BOTH_INLINE void norm_carry(struct gpu_norm *block, uint32_t thread)
{
    if (thread == 0) {
        limbs_normalize(block->limbs);
    }
}

BOTH_INLINE void norm_end(const struct gpu_norm *block, const struct gpu_norm_args *args,
                          uint32_t thread, uint32_t n_threads)
{
    BOTH_ROLLED
    for (uint32_t i = thread; i < LIMBS; i += n_threads) {
        if (block->limbs[i] != 0) {
            memory_add(&args->norm->limbs[i], block->limbs[i]);
        }
    }
    if (thread == 0 && block->n_inf != 0) {
        memory_add(&args->norm->n_inf, block->n_inf);
    }
    if (thread == 0 && block->n_nan != 0) {
        memory_add(&args->norm->n_nan, block->n_nan);
    }
    if (thread == 0 && block->max_bits != 0) {
        memory_max(&args->norm->max_bits, block->max_bits);
    }
}

#endif /* DEVICE_GPU_NORM_H */
