/* SPDX-License-Identifier: Apache-2.0 */
/* Rank sets: any of the ranks of a world, as a sentence and as an error name them. */
#ifndef COMM_RANK_SET_H
#define COMM_RANK_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "hsdp/abi.h"

struct rank_set {
    uint64_t *words; /* owned */
    uint32_t world_ranks;
    uint32_t n_ranks; /* in the set */
};

/** An empty set; false without memory. */
bool rank_set_init(struct rank_set *ret, uint32_t world_ranks);
void rank_set_fini(struct rank_set *set);

/** A rank beyond the world is ignored; one that is there already counts once. */
void rank_set_add(struct rank_set *set, uint32_t rank);
bool rank_set_has(const struct rank_set *set, uint32_t rank);

/** "rank 1", "ranks 1, 3 to 5", cut by "and 7 more"; at least 64 bytes. */
void rank_set_text(const struct rank_set *set, char *ret_text, uint64_t max_bytes);

/** Makes them the missing ranks of an error. */
void rank_set_blame(const struct rank_set *set, struct hsdp_error *err);

#endif /* COMM_RANK_SET_H */
