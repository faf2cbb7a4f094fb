/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of each step. */
#include "schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

double schedule_rate(const struct schedule *schedule, uint64_t step)
{
    if (step <= schedule->n_warmup_steps) {
        return schedule->peak * (double)step / (double)schedule->n_warmup_steps;
    }
    if (step >= schedule->n_steps) {
        return schedule->least;
    }
    const double done = (double)(step - schedule->n_warmup_steps) /
                        (double)(schedule->n_steps - schedule->n_warmup_steps);

    return schedule->least + (schedule->peak - schedule->least) * (1 + cos(PI * done)) / 2;
}
