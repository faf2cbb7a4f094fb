/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks with four units. */
#include "four_units.h"

void four_run(int strategy, const char *more, void (*function)(uint32_t rank, void *shared),
              void *shared)
{
    host_settings_set(strategy, more);
    ranks_run(2, RANKS_LIMIT_MS, function, shared);
}

void four_open(struct host *host, uint32_t rank)
{
    host_open(host, rank, "dp=2", host_settings,
              "unit a: w[5] k[3]!; unit b: x[7]; unit c: y[]; unit d: z[1031]");
}

double four_gradient(struct host_at at)
{
    return 1.0 + 2.0 * at.rank;
}

void four_backward(struct host *host, uint32_t unit)
{
    host_acquire(host, unit);
    host_fill(host, unit, 0, four_gradient);
    host_hand_over(host, unit);
}

void four_step(struct host *host, double expected)
{
    host_step(host, 0.0);
    host_expect_grad(host, "w", expected);
    host_expect_grad(host, "x", expected);
    host_expect_grad(host, "y", expected);
    host_expect_grad(host, "z", expected);
    host_step_end(host);
}

void four_finish_pass(struct host *host, const char *handed)
{
    for (uint32_t unit = host->n_units; unit-- > 0;) {
        if (strchr(handed, host->units[unit][0]) == NULL) {
            four_backward(host, unit);
        }
    }
    host_pass_end(host);
    four_step(host, 2.0);
    host_close(host);
}

void four_finish(struct host *host)
{
    host_pass_begin(host, HSDP_SCOPE_FULL);
    four_finish_pass(host, "");
}
