/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks put into a measured operation, and what must come out. */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include "contender.h"

/*
 * Element i of rank r in turn t is a small whole number that depends on i and t, plus r. So the
 * sums of all ranks are exact in every dtype and order, what lies in the wrong place or is of
 * another turn is seen, and a serial sum needs none of the buffers.
 */

/* Writes what `rank` puts in. */
void pattern_write(const struct piece *piece, uint32_t rank, uint32_t turn);

/*
 * Ends the process, naming the element, unless the piece holds the sum of what n_ranks ranks have
 * put in, over its divisor; of one rank what rank 0 would.
 */
void pattern_check(const struct piece *piece, uint32_t n_ranks, uint32_t turn);

/* Makes one element other than it must be. */
void pattern_spoil(const struct piece *piece);

/* Reads all of a piece once. */
void pattern_read(const struct piece *piece);

#endif
