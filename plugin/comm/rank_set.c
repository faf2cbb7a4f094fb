/* SPDX-License-Identifier: Apache-2.0 */
/* Rank sets: any of the ranks of a world, as a sentence and as an error name them. */
#include "comm/rank_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64u
/* Room that a number, a range and what follows it may take. */
#define PART_BYTES 28u
#define REST_BYTES 24u

bool rank_set_init(struct rank_set *ret, uint32_t world_ranks)
{
    ret->words = calloc(world_ranks / WORD_BITS + 1, sizeof(*ret->words));
    ret->world_ranks = world_ranks;
    ret->n_ranks = 0;
    return ret->words != NULL;
}

void rank_set_fini(struct rank_set *set)
{
    free(set->words);
    memset(set, 0, sizeof(*set));
}

bool rank_set_has(const struct rank_set *set, uint32_t rank)
{
    return rank < set->world_ranks && (set->words[rank / WORD_BITS] >> rank % WORD_BITS & 1u) != 0;
}

void rank_set_add(struct rank_set *set, uint32_t rank)
{
    if (rank < set->world_ranks && !rank_set_has(set, rank)) {
        set->words[rank / WORD_BITS] |= UINT64_C(1) << rank % WORD_BITS;
        set->n_ranks++;
    }
}

/* The last of the ranks that follow each other from `rank` on. */
static uint32_t run_end(const struct rank_set *set, uint32_t rank)
{
    while (rank_set_has(set, rank + 1)) {
        rank++;
    }
    return rank;
}

void rank_set_text(const struct rank_set *set, char *ret_text, uint64_t max_bytes)
{
    uint64_t n_bytes =
        (uint64_t)snprintf(ret_text, max_bytes, set->n_ranks == 1 ? "rank" : "ranks");
    uint32_t n_named = 0;
    const char *before = " ";

    for (uint32_t rank = 0; rank < set->world_ranks; rank++) {
        uint32_t last;

        if (!rank_set_has(set, rank)) {
            continue;
        }
        if (n_bytes + PART_BYTES + REST_BYTES > max_bytes) {
            snprintf(ret_text + n_bytes, max_bytes - n_bytes, " and %" PRIu32 " more",
                     set->n_ranks - n_named);
            return;
        }
        last = run_end(set, rank);
        last = last < rank + 2 ? rank : last; /* two are told one by one */
        n_bytes +=
            (uint64_t)snprintf(ret_text + n_bytes, max_bytes - n_bytes, "%s%" PRIu32, before, rank);
        if (last > rank) {
            n_bytes +=
                (uint64_t)snprintf(ret_text + n_bytes, max_bytes - n_bytes, " to %" PRIu32, last);
        }
        n_named += last - rank + 1;
        rank = last;
        before = ", ";
    }
}

void rank_set_blame(const struct rank_set *set, struct hsdp_error *err)
{
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < set->world_ranks && n < HSDP_ERROR_MAX_RANKS; rank++) {
        if (rank_set_has(set, rank)) {
            err->missing_ranks[n++] = rank;
        }
    }
    err->n_missing_ranks = set->n_ranks;
}
