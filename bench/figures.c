/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of a bench: those it is told by options, and the middle one of what it has measured. */
#include "figures.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t figures_option(const char *bench, const char *text, uint64_t max)
{
    char *end = NULL;
    unsigned long long value = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0' || value == 0 || value > max) {
        fprintf(stderr, "%s: %s: a number from 1 to %" PRIu64 " is expected\n", bench, text, max);
        exit(2);
    }
    return value;
}

static int value_compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

double figures_median(double *values, uint32_t n)
{
    qsort(values, n, sizeof(*values), value_compare);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}
