/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums of doubles: they depend on no order, and are rounded once. */
#ifndef REFERENCE_EXACT_H
#define REFERENCE_EXACT_H

#include <stdint.h>

/* Doubles that do not overlap, the smallest first: 48 of 53 bits each are more than a double's
 * range of exponents. Zeroed memory is the sum of nothing. */
struct exact {
    double parts[48];
    uint64_t n;
};

/** Adds a finite number. */
void exact_add(struct exact *exact, double value);

/** The sum, rounded to the nearest, ties to even. */
double exact_sum(const struct exact *exact);

#endif /* REFERENCE_EXACT_H */
