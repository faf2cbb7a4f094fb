/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes on one machine: the environment that a launcher gives to their ranks. */
#ifndef TESTS_NODE_RANKS_H
#define TESTS_NODE_RANKS_H

#include <stdint.h>

/** Which ranks are on which node, one after the other: "2,2", "1,3,1". */
struct nodes_case {
    const char *sizes;
    uint16_t port; /* MASTER_PORT, the same for all of its ranks */
};

/** Ranks in all. */
uint32_t node_ranks_world(const char *sizes);

/** A port that was free a moment ago. */
uint16_t node_ranks_port(void);

/** To be called in a rank: its node, local rank, and where to meet; after ranks_environment. */
void node_ranks_environment(const struct nodes_case *nodes, uint32_t rank);

#endif /* TESTS_NODE_RANKS_H */
