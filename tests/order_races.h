/* SPDX-License-Identifier: Apache-2.0 */
/* Happens-before: which accesses of several ranks nothing has put into an order. */
#ifndef TESTS_ORDER_RACES_H
#define TESTS_ORDER_RACES_H

#include "order_log.h"

/*
 * The logs are replayed with vector clocks. A raise of a counter releases what its rank has done
 * and seen; a wait that was met acquires that of the first raise that satisfies it, whatever the
 * counter really was by then: so the answer does not depend on how fast the ranks were. Each
 * reduction counts as a thread of its own, forked when it is handed over and joined where the rank
 * has seen that it is done: it may go on in any call between the two.
 */

/* A wait that the replay does as if it were not there. */
struct order_removal {
    enum probe_wait wait; /* PROBE_WAIT_NONE = no wait for peers */
    uint32_t n_kept;      /* but for conditions on so many neighbours, this rank's block */
    enum probe_reduction reduction; /* PROBE_AWAITED_*; else no wait for an own reduction */
};

/* Two accesses that overlap, at least one of them a write. */
struct order_race {
    struct order_event events[2];
    uint32_t ranks[2];
};

/**
 * Finds what races; `removal` may be NULL. Of races between the same kinds of accesses to the same
 * areas one is returned; returns how many.
 */
uint32_t order_races(const struct order_logs *logs, const struct order_removal *removal,
                     struct order_race *ret_races, uint32_t max_races);

/** "rank 1 writes slot of unit 2, rank 0 reads contribution: bytes 4096..8192 of rank 1". */
void order_race_text(const struct order_race *race, char *ret_text, size_t max_bytes);

/** How often a rank has met a wait, or has awaited a reduction. */
uint32_t order_n_met(const struct order_logs *logs, const struct order_removal *removal);

#endif /* TESTS_ORDER_RACES_H */
