/* SPDX-License-Identifier: Apache-2.0 */
/* The loads, additions and stores that a reduction cannot do without, as fast as we know how. */
#ifndef BENCH_BUS_H
#define BENCH_BUS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"

#define BUS_MAX_RANKS 64u

/* Sums the sources in fp32, once through, into all of the outputs. Multiples of 64 bytes. */
struct bus_work {
    const void *sources[BUS_MAX_RANKS];
    float *outputs[BUS_MAX_RANKS];
    size_t n_elems; /* of each */
    enum dtype dtype;
    unsigned n_sources;
    unsigned n_outputs;
    bool is_streamed; /* stores go around the caches */
};

/* bus_loops.c, compiled once for every path of the kernels. */
void bus_sum_plain(const struct bus_work *work);
void bus_sum_avx2(const struct bus_work *work);
void bus_sum_avx512(const struct bus_work *work);

#endif
