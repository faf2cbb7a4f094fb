/* SPDX-License-Identifier: Apache-2.0 */
/* Delaying the operations that a probe is told of. */
#include "order_delay.h"

#include <stdio.h>

#include "ranks.h"

static void point_pass(struct probe *probe, uint32_t point)
{
    struct order_delay *delay = (struct order_delay *)probe;
    uint32_t number = delay->counts[point]++;

    if (point == delay->point && number >= delay->first && delay->n_left > 0) {
        delay->n_left--;
        ranks_sleep_ms(delay->delay_ms);
    }
}

static void delay_access(struct probe *probe, const struct probe_access *access)
{
    point_pass(probe, access->is_write ? ORDER_POINT_WRITE((uint32_t)access->area)
                                       : ORDER_POINT_READ((uint32_t)access->area));
}

static void delay_raise(struct probe *probe, const _Atomic uint64_t *counter, uint64_t value)
{
    struct order_delay *delay = (struct order_delay *)probe;

    (void)value;
    point_pass(probe, ORDER_POINT_RAISE + (uint32_t)order_counter_of(&delay->map, counter));
}

static void delay_expect(struct probe *probe, struct wait_entry *entries, uint32_t n_entries)
{
    struct order_delay *delay = (struct order_delay *)probe;

    if (n_entries > 0) {
        point_pass(probe, ORDER_POINT_EXPECT + entries[0].wait);
    }
    for (uint32_t i = 0; i < n_entries; i++) {
        if (delay->removed != PROBE_WAIT_NONE && entries[i].wait == delay->removed) {
            entries[i].target = 0;
        }
    }
}

static void delay_met(struct probe *probe, const struct wait_entry *entries, uint32_t n_entries)
{
    if (n_entries > 0) {
        point_pass(probe, ORDER_POINT_MET + entries[0].wait);
    }
}

static void delay_reduction(struct probe *probe, uint32_t unit, enum probe_reduction what)
{
    (void)unit;
    point_pass(probe, ORDER_POINT_REDUCTION + (uint32_t)what);
}

void order_delay_init(struct order_delay *delay)
{
    memset(delay, 0, sizeof(*delay));
    delay->probe.access = delay_access;
    delay->probe.raise = delay_raise;
    delay->probe.expect = delay_expect;
    delay->probe.met = delay_met;
    delay->probe.reduction = delay_reduction;
    delay->point = ORDER_N_POINTS;
}

void order_delay_set(struct order_delay *delay, uint32_t point, uint32_t first, uint32_t n,
                     uint32_t ms)
{
    memset(delay->counts, 0, sizeof(delay->counts));
    delay->point = point;
    delay->first = first;
    delay->n_left = n;
    delay->delay_ms = ms;
}

void order_point_text(uint32_t point, char *ret_text, size_t max_bytes)
{
    if (point < ORDER_POINT_RAISE) {
        snprintf(ret_text, max_bytes, "before a %s of %s", point % 2 == 1 ? "write" : "read",
                 order_area_names[point / 2]);
    } else if (point < ORDER_POINT_EXPECT) {
        snprintf(ret_text, max_bytes, "before raising %s",
                 order_counter_names[point - ORDER_POINT_RAISE]);
    } else if (point < ORDER_POINT_MET) {
        snprintf(ret_text, max_bytes, "before the wait \"%s\"",
                 order_wait_names[point - ORDER_POINT_EXPECT]);
    } else if (point < ORDER_POINT_REDUCTION) {
        snprintf(ret_text, max_bytes, "behind the wait \"%s\"",
                 order_wait_names[point - ORDER_POINT_MET]);
    } else {
        snprintf(ret_text, max_bytes, "at a reduction %s",
                 order_reduction_names[point - ORDER_POINT_REDUCTION]);
    }
}
