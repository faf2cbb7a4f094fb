/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of a bench: those it is told by options, and the middle one of what it has measured. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include <stdint.h>

/**
 * An option of the program `bench`: a number from 1 to max, or a sentence, and the process ends
 * with the status of wrong use.
 */
uint64_t figures_option(const char *bench, const char *text, uint64_t max);

/** The median of n >= 1 values. Sorts them: the least is the first then, and the most the last. */
double figures_median(double *values, uint32_t n);

#endif /* BENCH_FIGURES_H */
