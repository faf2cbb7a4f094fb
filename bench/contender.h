/* SPDX-License-Identifier: Apache-2.0 */
/* What a contender of the collectives' bench does, and the rows in which it does it. */
#ifndef BENCH_CONTENDER_H
#define BENCH_CONTENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum op { OP_UNSHARD, OP_REDUCE_SCATTER, OP_ALL_REDUCE, N_OPS };

/* What is measured: of `ranks` ranks, each has a buffer of n_elems that belongs to all. */
struct row {
    enum op op;
    enum dtype dtype; /* of what each rank puts in */
    size_t n_elems;   /* of the whole buffer; a multiple of the ranks */
    size_t bytes;     /* of the whole buffer, in that dtype */
    uint32_t rank;
    uint32_t n_ranks;
};

/* Where this rank is, and how the ranks meet: meeting.h. */
struct meeting {
    struct meeting_page *page;
    const char *path; /* the file of it, the same for all ranks */
    uint32_t rank;
    uint32_t n_ranks;
    uint32_t n_cores;        /* for all of them; one itself may be bound to a core */
    uint32_t ranks_per_core; /* at least 1 */
};

/* Elements of the whole buffer, somewhere in memory. */
struct piece {
    void *base;
    size_t first;
    size_t n_elems;
    enum dtype dtype;
    float divisor; /* of a result: 1 for a sum, the ranks for a mean */
};

/*
 * A program is the harness (harness.c), which has main(), and one contender. All functions are
 * collective over the ranks, and end the process when something fails.
 *
 *     begin
 *     for each row, for each variant:
 *         row_begin
 *         many times:
 *             open      and the harness writes what the rank puts in: to an unshard its shard, to
 *             ready     the others a whole buffer
 *             run       from the barrier that all ranks have come to: this is timed
 *             result    and the harness may compare what is there
 *             settle
 *         row_end
 *     end
 */
struct contender {
    const char *name;
    const char *(*version)(void); /* of a library; needs no begin; NULL = it has none */
    /* Its ranks do not wait for each other: where they share cores the time of one on a core
     * counts, as often as there are ranks for it. */
    bool never_waits;
    /* A rank has threads besides, which must not find its core taken by who looks at the barrier.
     */
    bool has_threads;
    /* Ways to do it, of which the fastest counts: a word each, NULL behind the last one. */
    const char *(*variant)(const struct row *row, uint32_t index);
    void (*begin)(const struct meeting *meeting, size_t max_bytes); /* of its rows */
    void (*row_begin)(const struct row *row, uint32_t variant);
    struct piece (*open)(void);
    void (*ready)(void);
    void (*run)(void);
    struct piece (*result)(void);
    void (*settle)(void);
    void (*row_end)(void);
    void (*end)(void);
};

/* The one of this program. */
extern const struct contender contender;

/* Prints a sentence, and ends the process. */
#if defined(__GNUC__)
__attribute__((noreturn, format(printf, 1, 2)))
#endif
void fail(const char *format, ...);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
