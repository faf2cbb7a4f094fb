/* SPDX-License-Identifier: Apache-2.0 */
/* The scenario of several nodes: all that works between them, and that the rest is refused. */
#include "faults/scenario.h"

#define PAUSE_US 3000u /* at most: ranks come to a call one after the other */

/* So often, with two values in turn; a call that is left out is found by the next one. */
static bool settings_change(struct host *host, uint32_t n)
{
    bool is_good = true;

    for (uint32_t i = 0; is_good && i < n; i++) {
        uint32_t ms = i % 2 == 0 ? host->trial->set_ms : host->trial->timeout_ms;

        host_sleep_us((host->rank * 7u + i * 5u) % 4u * PAUSE_US / 3u);
        if (i == 0 && !host->has_fired && fault_is_wrong(host, WRONG_MISSING)) {
            host->has_fired = true;
            host_note_fault(host);
            continue;
        }
        is_good = scenario_set(host, ms);
    }
    return is_good;
}

bool scenario_nodes(struct host *host)
{
    return settings_change(host, 4) && scenario_phase_open(host) && scenario_model(host) &&
           scenario_phase_close(host) && settings_change(host, 2 + host->trial->n_steps);
}
