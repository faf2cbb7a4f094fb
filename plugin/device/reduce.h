/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of gradients in the one order that every strategy, split and transport shares. */
#ifndef DEVICE_REDUCE_H
#define DEVICE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "device/norm.h"
#include "device/path.h"

enum {
    REDUCE_MAX_DIMS = 8,
    REDUCE_MAX_SOURCES = 64,
};

/* Adds |result / divisor|^p of every result to an exact sum; results stay undivided. */
struct reduce_norm {
    struct norm_sum *sum;
    double p; /* 1..NORM_MAX_P */
    float divisor;
};

/*
 * A sum over the ranks of a mesh. Along one dimension adjacent pairs are added, then adjacent pairs
 * of those, an odd one being carried up:
 *
 *     for (s = 1; s < n; s *= 2)
 *         for (i = 0; i + s < n; i += 2 * s)
 *             x[i] += x[i + s];
 *
 * first along the innermost dimension, then along the next with the results, and so on. So
 * dimensions {2, 3} add in another order than {6}. Each source is rounded to wire_dtype once, also
 * a single one; everything from there on is fp32.
 */
struct reduce_spec {
    float *dst;                 /* (n_elems,); may be one of the fp32 sources, else no overlap */
    const void *const *sources; /* product of dim_sizes, row-major; NULL = absent = +0, added */
    const uint32_t *dim_sizes;  /* n_dims sizes >= 1, outermost first */
    size_t n_elems;             /* of dst and of each source */
    const enum dtype *source_dtypes; /* one a source; NULL = all are of source_dtype */
    enum dtype source_dtype;
    enum dtype wire_dtype;
    uint32_t n_dims;      /* 0..REDUCE_MAX_DIMS; 0 = one source */
    uint32_t n_copies;    /* up to REDUCE_MAX_SOURCES */
    float *const *copies; /* n_copies of (n_elems,), which get what dst gets; no overlap */
    const struct reduce_norm *norm; /* NULL = none is wanted */
    bool accumulate;                /* dst = dst + sum; false: dst = sum, whatever dst held */
    bool is_streamed;               /* what is written goes around the caches: below */
};

/*
 * One pass: each source is read once, each destination written once, and what else is wanted is
 * done to values that are in registers. Where all destinations lie alike to a line of the cache,
 * streams write them, but for dst where it is read as well; they are done when the call returns.
 *
 * Needs about 40 KiB of stack.
 */
void reduce_tree(const struct reduce_spec *spec);

/*
 * Whether a reduction should stream that writes n_bytes, on all ranks of the host together: they
 * share the last level of the cache. Measured with sums of two sources that were written just
 * before, the result being read right behind, on 32 MiB of cache: streams took 1.3 to 2 times as
 * long up to 8 MiB, as the reader had to fetch from memory what stores would have left in the
 * cache; at 16 MiB both were alike; from 32 MiB on stores took 1.2 times as long, as they read what
 * they overwrite.
 */
static inline bool reduce_streams(uint64_t n_bytes)
{
    return n_bytes >= UINT64_C(16) << 20;
}

/* dst = dst + src. (n_elems,) each; src may be dst (fp32), else no overlap. */
void reduce_add(float *dst, const void *src, enum dtype src_dtype, size_t n_elems);

/* values = values / divisor, by true division. */
void reduce_divide(float *values, float divisor, size_t n_elems);

#endif
