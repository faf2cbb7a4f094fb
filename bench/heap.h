/* SPDX-License-Identifier: Apache-2.0 */
/* What this program takes of the heap: its own malloc, which counts. */
#ifndef BENCH_HEAP_H
#define BENCH_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/* Since heap_begin, of one thread at a time. */
struct heap_use {
    uint64_t n_calls;   /* that asked for memory */
    uint64_t n_bytes;   /* that they asked for, all together */
    int64_t held_bytes; /* in use now, beside what was in the beginning */
    int64_t peak_bytes; /* the most of these at any time */
};

/** False where a sanitizer has taken malloc over, or the C library does not let itself be asked. */
bool heap_is_counted(void);

/** Counts from here on. */
void heap_begin(void);
struct heap_use heap_use(void);

#endif /* BENCH_HEAP_H */
