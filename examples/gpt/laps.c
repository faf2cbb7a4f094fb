/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a step goes: every moment of it belongs to one of three parts. */
#include "laps.h"

#include <time.h>

#define NANOSECONDS_SECOND 1e9

static double clock_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / NANOSECONDS_SECOND;
}

void laps_begin(struct laps *laps)
{
    *laps = (struct laps){.since = clock_seconds()};
}

void laps_end(struct laps *laps, enum laps_part part)
{
    const double now = clock_seconds();

    laps->seconds[part] += now - laps->since;
    laps->since = now;
}

double laps_total(const struct laps *laps)
{
    double sum = 0;

    for (int part = 0; part < LAPS_N_PARTS; part++) {
        sum += laps->seconds[part];
    }
    return sum;
}
