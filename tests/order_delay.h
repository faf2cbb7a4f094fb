/* SPDX-License-Identifier: Apache-2.0 */
/* A probe that delays an operation, and takes a wait away. */
#ifndef TESTS_ORDER_DELAY_H
#define TESTS_ORDER_DELAY_H

#include "order_log.h"

/* Kinds of operations by number: accesses, counters, waits before and behind, reductions. */
#define ORDER_POINT_ACCESS    0u
#define ORDER_POINT_RAISE     (ORDER_POINT_ACCESS + 2u * PROBE_N_AREAS)
#define ORDER_POINT_EXPECT    (ORDER_POINT_RAISE + ORDER_N_COUNTERS)
#define ORDER_POINT_MET       (ORDER_POINT_EXPECT + PROBE_N_WAITS)
#define ORDER_POINT_REDUCTION (ORDER_POINT_MET + PROBE_N_WAITS)
#define ORDER_N_POINTS        (ORDER_POINT_REDUCTION + PROBE_N_REDUCTIONS)

#define ORDER_POINT_READ(area)  (ORDER_POINT_ACCESS + 2u * (area))
#define ORDER_POINT_WRITE(area) (ORDER_POINT_ACCESS + 2u * (area) + 1u)

struct order_delay {
    struct probe probe; /* first */
    struct order_map map;
    uint32_t counts[ORDER_N_POINTS]; /* how often each has come since order_delay_set */
    uint32_t point;                  /* the one that is delayed; ORDER_N_POINTS = none */
    uint32_t first;                  /* the first of them that is, counted from 0 */
    uint32_t n_left;                 /* so many in a row */
    uint32_t delay_ms;
    enum probe_wait removed;
};

/** Delays and removes nothing. */
void order_delay_init(struct order_delay *delay);
/** Counts from 0 again; from the `first` time on that it comes, a point is delayed n times. */
void order_delay_set(struct order_delay *delay, uint32_t point, uint32_t first, uint32_t n,
                     uint32_t ms);

/** "before a write of slot". */
void order_point_text(uint32_t point, char *ret_text, size_t max_bytes);

#endif /* TESTS_ORDER_DELAY_H */
