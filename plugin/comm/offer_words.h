/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say of their offers before anything moves: the same thing, from the same rank? */
#ifndef COMM_OFFER_WORDS_H
#define COMM_OFFER_WORDS_H

#include "comm/transport.h"

#define OFFER_MAX_RANKS 64u

/* What a rank says of its offer; where it refuses, why. */
struct offer_words {
    uint64_t tag;     /* what is offered; equal on all */
    uint64_t root;    /* likewise, on the ranks that share a parameter */
    uint64_t n_bytes; /* of the whole offer */
    uint64_t readers; /* a bit for each of its ranks whose bytes this one wants */
    int64_t status;
    char what[128];
    char message[400];
};

/* An offer under way, on one of its ranks. */
struct offer_round {
    struct hsdp_job *job;
    const struct hsdp_mesh *mesh;
    const struct store_offer *offer;
    uint32_t rank;
    const uint32_t *ranks; /* n_ranks world ranks, this one among them */
    uint32_t n_ranks;
    uint64_t number; /* of the offer, in sentences */
    /* Of each of the ranks: what it says, while all are there; how much it offers, from then on. */
    const struct offer_words *words[OFFER_MAX_RANKS];
    uint64_t sizes[OFFER_MAX_RANKS];
    uint64_t readers; /* a bit for each rank that wants this one's bytes */
};

/** What this rank says: status and message of the offer, or of its preparations. */
void offer_words_fill(const struct offer_round *round, int32_t status, const char *message,
                      struct offer_words *ret);

/**
 * Whether all ranks that do not refuse offer the same, and name the same root.
 *
 * Errors: HSDP_ERR_MISMATCH: the job has failed, with the same sentence whichever rank finds it.
 */
int32_t offer_tags_compare(const struct offer_round *round, struct hsdp_error *reterr);

/**
 * HSDP_OK if no rank refuses. Whoever has refused (local_status) keeps its own reason; the others
 * get that of the first one.
 */
int32_t offer_refusals_tell(const struct offer_round *round, int32_t local_status,
                            const char *message, struct hsdp_error *reterr);

/** Keeps sizes and readers, and returns the largest size: ranks may say something else next. */
uint64_t offer_sizes_take(struct offer_round *round);
/** What the i-th of those that this rank reads offers. */
uint64_t offer_read_bytes(const struct offer_round *round, uint32_t i);
/** Where a rank stands among those of the offer. */
uint32_t offer_index(const struct offer_round *round, uint32_t rank);

/**
 * All that may still fail on this rank before anything moves: asks the caller, and allocates a
 * buffer for each of the ranks that it reads, to be freed by the caller.
 */
int32_t offer_prepare(const struct offer_round *round, uint8_t **ret_received,
                      struct hsdp_error *reterr);

#endif /* COMM_OFFER_WORDS_H */
