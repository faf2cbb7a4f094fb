/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sharding strategies, as hsdp/plan.h has it. */
#include "strategy.h"

#include <stddef.h>
#include <string.h>

const struct strategy strategies[N_STRATEGIES] = {
    {"ddp", {"no_shard", NULL}, {SPAN_NONE, SPAN_NONE, SPAN_NONE}},
    {"zero1", {NULL, NULL}, {SPAN_NONE, SPAN_NONE, SPAN_ALL}},
    {"zero2", {"shard_grad_op", NULL}, {SPAN_NONE, SPAN_ALL, SPAN_ALL}},
    {"fsdp", {"full_shard", "zero3"}, {SPAN_ALL, SPAN_ALL, SPAN_ALL}},
    {"hsdp", {"hybrid_shard", NULL}, {SPAN_INNER, SPAN_INNER, SPAN_INNER}},
    {"hsdp_zero2", {"hybrid_shard_zero2", NULL}, {SPAN_NONE, SPAN_INNER, SPAN_INNER}},
    {"hfsdp", {NULL, NULL}, {SPAN_INNER, SPAN_INNER, SPAN_ALL}},
};

const struct strategy *strategy_find(const char *name)
{
    for (int s = 0; s < N_STRATEGIES; s++) {
        const char *const *aliases = strategies[s].aliases;

        if (strcmp(strategies[s].name, name) == 0 ||
            (aliases[0] != NULL && strcmp(aliases[0], name) == 0) ||
            (aliases[1] != NULL && strcmp(aliases[1], name) == 0)) {
            return &strategies[s];
        }
    }
    return NULL;
}
