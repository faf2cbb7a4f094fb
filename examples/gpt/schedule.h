/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of each step: linear warm-up, then half a cosine. */
#ifndef GPT_SCHEDULE_H
#define GPT_SCHEDULE_H

#include <stdint.h>

struct schedule {
    double peak;  /* reached at the end of the warm-up */
    double least; /* reached at the last step */
    uint64_t n_warmup_steps;
    uint64_t n_steps;
};

/* Learning rate of step 1..n_steps. */
double schedule_rate(const struct schedule *schedule, uint64_t step);

#endif
