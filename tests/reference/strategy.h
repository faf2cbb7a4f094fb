/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sharding strategies: over which ranks each of the three cuts goes. */
#ifndef REFERENCE_STRATEGY_H
#define REFERENCE_STRATEGY_H

#include <stdint.h>

#define N_CUTS 3 /* parameter, gradient, step: HSDP_SHARD_* */

/* What a cut goes over: nothing, the inner dimensions, or all that are reduced over. */
enum span { SPAN_NONE, SPAN_INNER, SPAN_ALL };

struct strategy {
    const char *name;
    const char *aliases[2]; /* NULL = none */
    enum span cuts[N_CUTS];
};

#define N_STRATEGIES 7
extern const struct strategy strategies[N_STRATEGIES];

/** The row of a name or alias; NULL for any other word, "auto" too. */
const struct strategy *strategy_find(const char *name);

#endif /* REFERENCE_STRATEGY_H */
