/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums of |x| and x*x made row by row, while the values are in registers. */
#ifndef DEVICE_NORM_ROWS_H
#define DEVICE_NORM_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/norm.h"
#include "device/vector.h"

/*
 * |x| and x*x of an fp32 x are exact in fp64: their terms. What is not exact is adding them, so a
 * sum is kept in two numbers, each on a grid, the multiples of a power of two. A number in
 * [2^(bit + 52), 2^(bit + 53)) is a multiple of 2^bit, and what is added to it is rounded to one:
 *
 *     high' = high + term         rounded to the upper grid
 *     rest  = term - (high' - high)        exact
 *     low'  = low + rest          exact, where the term is a multiple of the lower grid
 *
 * The lower grid lies as far below the upper one as fp64 has digits, less those that a block of
 * sums needs. Terms beyond both ends are noticed when a block is done: high only grows, so it has
 * left its range if it ever did (infinite and not a number are beyond as well), and the least
 * magnitude says whether all terms were multiples of the lower grid. Then norm_block_add does the
 * block over: on grids for its largest value, and on others for what is too small for these.
 *
 * As both grids stay while they fit, no block has to look for its largest value first; and as a
 * number of one binade is its lowest bits, blocks add up as integers.
 */
enum {
    NORM_BLOCK_ELEMS = 512,                             /* at most, of one block */
    NORM_BLOCK_TERMS = NORM_BLOCK_ELEMS / VECTOR_LANES, /* added to one lane */
    NORM_MAX_BLOCKS = 32,                               /* kept in words */
    NORM_MAX_LANES = NORM_MAX_BLOCKS * VECTOR_LANES,    /* likewise, of up to 2^52 units each */
};

_Static_assert((int)NORM_MAX_LANES < 1 << 10,
               "limbs_add takes all lanes at once, below 2^62 units");

/* What a kernel adds to a sum, from begin to end; of its own thread. */
struct norm_adder {
    struct norm_sum *sum;
    double p;
    bool is_squared; /* p = 2 */
    int high_bit;    /* of the grids */
    int low_bit;
    double high_zero; /* what stands for 0 on them */
    double low_zero;
    double high_end;         /* 0 where p is neither 1 nor 2: no rows are below it */
    uint32_t least_bits;     /* of the least magnitude whose term is on the lower grid */
    uint32_t n_blocks;       /* in the words */
    uint32_t n_additions;    /* to the sum, since its last carry */
    struct words high_words; /* sums of the bits of all blocks' lanes */
    struct words low_words;
};

/* The block that is being added. */
struct norm_rows {
    struct wide high;
    struct wide low;
    struct least least;
};

struct norm_adder norm_adder_begin(struct norm_sum *sum, double p);

/* Brings what the words hold to the sum: when they are full, and before the grids are others. */
void norm_adder_flush(struct norm_adder *adder);

/* Flushes, and leaves the sum normalised. */
void norm_adder_end(struct norm_adder *adder);

/* Adds a block of any values, up to NORM_BLOCK_ELEMS. */
void norm_block_add(struct norm_adder *adder, const float *values, size_t n_elems);

PATH_INLINE struct norm_rows norm_rows_begin(const struct norm_adder *adder)
{
    return (struct norm_rows){wide_set(adder->high_zero), wide_set(adder->low_zero), least_begin()};
}

/* Adds |values|^p. Lanes of 0 add nothing. */
PATH_INLINE void norm_rows_add(struct norm_rows *rows, struct vector values, bool is_squared)
{
    struct wide x = wide_of(values);
    struct wide high;
    struct wide rest;

    if (__builtin_expect(is_squared, true)) {
        high = wide_square_add(x, rows->high);
        rest = wide_square_subtract(x, wide_subtract(high, rows->high));
    } else {
        x = wide_magnitude(x);
        high = wide_add(x, rows->high);
        rest = wide_subtract(x, wide_subtract(high, rows->high));
    }
    rows->high = high;
    rows->low = wide_add(rows->low, rest);
    rows->least = least_take(rows->least, values);
}

PATH_INLINE bool norm_rows_hold(const struct norm_adder *adder, struct norm_rows rows)
{
    return wide_is_below(rows.high, adder->high_end) &&
           least_reaches(rows.least, adder->least_bits);
}

PATH_INLINE void norm_rows_keep(struct norm_adder *adder, struct norm_rows rows)
{
    adder->high_words = words_add_bits(adder->high_words, rows.high);
    adder->low_words = words_add_bits(adder->low_words, rows.low);
    if (++adder->n_blocks == NORM_MAX_BLOCKS) {
        norm_adder_flush(adder);
    }
}

/* All rows of a block are added; values are what they were made of. */
PATH_INLINE void norm_rows_end(struct norm_adder *adder, struct norm_rows rows, const float *values,
                               size_t n_elems)
{
    if (norm_rows_hold(adder, rows)) {
        norm_rows_keep(adder, rows);
    } else {
        norm_block_add(adder, values, n_elems);
    }
}

#endif
