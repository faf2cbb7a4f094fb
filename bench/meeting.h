/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a measurement meet: a barrier, and the times at which each was where. */
#ifndef BENCH_MEETING_H
#define BENCH_MEETING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "contender.h"

#define MEETING_MAX_RANKS 8u /* sums of so many are exact in bf16 (pattern.h) */

/* How long one rank took; a line each. */
struct meeting_times {
    uint64_t run_ns;  /* from the barrier to the end of the operation */
    uint64_t read_ns; /* from the barrier to the end of one read of its result */
    uint64_t reserved[6];
};

/* Shared by all ranks: the same file, mapped; all zero at first. */
struct meeting_page {
    _Atomic uint32_t n_arrived;
    _Atomic uint32_t generation;
    uint32_t is_last; /* rank 0 says so before a barrier, for the time behind it */
    uint32_t reserved;
    int64_t
        shared_pid; /* rank 0 and its descriptor of memory for all, where a contender has some */
    int64_t shared_fd;
    uint64_t reserved_line[4];
    struct meeting_times times[2][MEETING_MAX_RANKS]; /* of even and odd turns: a rank may be one
                                                         ahead of rank 0, which reads them */
};

/* Fills what path, rank, n_ranks and n_cores do not say. */
void meeting_open(struct meeting *meeting);

/*
 * Returns once all ranks have called it. Ranks that have a core each look for the last one without
 * a pause; others sleep, so that it gets a core, and so do ranks that have threads besides.
 */
void meeting_wait(const struct meeting *meeting);

#endif
