/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a step goes: every moment of it belongs to one of three parts. */
#ifndef GPT_LAPS_H
#define GPT_LAPS_H

/*
 * What a host can tell of itself. Inside a call of the plugin this rank moves data, adds it up, or
 * waits for other ranks; which of these it is, only the plugin knows.
 */
enum laps_part {
    LAPS_COMPUTE,       /* outside of the plugin: samples, forward, backward */
    LAPS_COMMUNICATION, /* unshard, release, reduce, passes, the sum of the losses */
    LAPS_OPTIMIZER,     /* from step.begin to step.end: norm, clipping, AdamW, publishing */
    LAPS_N_PARTS
};

struct laps {
    double since; /* seconds of the monotonic clock; the end of the last lap */
    double seconds[LAPS_N_PARTS];
};

/* A new step begins: nothing is spent yet. */
void laps_begin(struct laps *laps);
/* What has passed since the call before was spent on `part`. */
void laps_end(struct laps *laps, enum laps_part part);
/* All parts together: from the beginning to the end of the last lap. */
double laps_total(const struct laps *laps);

#endif
