/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say of their offers before anything moves: the same thing, from the same rank? */
#include "comm/offer_words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

uint32_t offer_index(const struct offer_round *round, uint32_t rank)
{
    uint32_t i = 0;

    while (round->ranks[i] != rank) {
        i++;
    }
    return i;
}

void offer_words_fill(const struct offer_round *round, int32_t status, const char *message,
                      struct offer_words *ret)
{
    const struct store_offer *offer = round->offer;

    memset(ret, 0, sizeof(*ret));
    ret->tag = offer->tag;
    ret->root = offer->root;
    ret->n_bytes = offer->n_bytes;
    ret->status = status;
    for (uint32_t i = 0; i < offer->n_readable; i++) {
        ret->readers |= UINT64_C(1) << offer_index(round, offer->readable[i]);
    }
    snprintf(ret->what, sizeof(ret->what), "%s%s%s", offer->operation,
             offer->what == NULL ? "" : " of ", offer->what == NULL ? "" : offer->what);
    snprintf(ret->message, sizeof(ret->message), "%s", status == HSDP_OK ? "" : message);
}

/* The sentence is the same whichever of the two finds it: the lower rank comes first. */
static int32_t tags_differ(const struct offer_round *round, uint32_t rank,
                           struct hsdp_error *reterr)
{
    uint32_t first = rank < round->rank ? rank : round->rank;
    uint32_t second = rank < round->rank ? round->rank : rank;
    const struct offer_words *a = round->words[offer_index(round, first)];
    const struct offer_words *b = round->words[offer_index(round, second)];
    struct hsdp_error err;

    if (a->tag != b->tag) {
        error_set(&err, HSDP_ERR_MISMATCH,
                  "rank %" PRIu32 " is in %.127s, rank %" PRIu32 " in %.127s: call %" PRIu64
                  " of those that move parameters and states",
                  first, a->what, second, b->what, round->number);
    } else {
        error_set(&err, HSDP_ERR_MISMATCH,
                  "%s: rank %" PRIu32 " names rank %" PRIu64 ", rank %" PRIu32
                  " names rank %" PRIu64 " in their call %" PRIu64,
                  round->offer->operation, first, a->root, second, b->root, round->number);
    }
    error_where(&err, round->offer->operation, NULL, round->offer->unit);
    err.sequence = round->number;
    if (reterr != NULL) {
        *reterr = err;
    }
    return job_fail(round->job, &err);
}

int32_t offer_tags_compare(const struct offer_round *round, struct hsdp_error *reterr)
{
    const struct store_offer *offer = round->offer;
    uint32_t index = mesh_index(round->mesh, offer->root_dims, round->rank);
    int64_t own_status = round->words[offer_index(round, round->rank)]->status;

    for (uint32_t i = 0; i < round->n_ranks; i++) {
        const struct offer_words *words = round->words[i];
        bool is_peer =
            mesh_peer(round->mesh, offer->root_dims, round->ranks[i], index) == round->rank;

        if (own_status != HSDP_OK || words->status != HSDP_OK) {
            continue; /* those that refuse move nothing */
        }
        if (words->tag != offer->tag || (is_peer && words->root != offer->root)) {
            return tags_differ(round, round->ranks[i], reterr);
        }
    }
    return HSDP_OK;
}

int32_t offer_refusals_tell(const struct offer_round *round, int32_t local_status,
                            const char *message, struct hsdp_error *reterr)
{
    if (local_status != HSDP_OK) {
        return error_set(reterr, local_status, "%s", message);
    }
    for (uint32_t i = 0; i < round->n_ranks; i++) {
        const struct offer_words *words = round->words[i];

        if (words->status != HSDP_OK) {
            error_set(reterr, (int32_t)words->status, "%s: rank %" PRIu32 ": %.399s",
                      round->offer->operation, round->ranks[i], words->message);
            error_where(reterr, round->offer->operation, NULL, round->offer->unit);
            return (int32_t)words->status;
        }
    }
    return HSDP_OK;
}

uint64_t offer_sizes_take(struct offer_round *round)
{
    uint32_t own = offer_index(round, round->rank);
    uint64_t largest = 0;

    round->readers = 0;
    for (uint32_t i = 0; i < round->n_ranks; i++) {
        const struct offer_words *words = round->words[i];

        round->sizes[i] = words->n_bytes;
        round->readers |= (words->readers >> own & 1u) << i;
        largest = words->n_bytes > largest ? words->n_bytes : largest;
    }
    return largest;
}

uint64_t offer_read_bytes(const struct offer_round *round, uint32_t i)
{
    return round->sizes[offer_index(round, round->offer->readable[i])];
}

int32_t offer_prepare(const struct offer_round *round, uint8_t **ret_received,
                      struct hsdp_error *reterr)
{
    const struct store_offer *offer = round->offer;

    for (uint32_t i = 0; i < offer->n_readable; i++) {
        uint64_t n_bytes = offer_read_bytes(round, i);
        int32_t status = offer->prepare(offer->user, i, n_bytes, reterr);

        if (status != HSDP_OK) {
            return status;
        }
        ret_received[i] = malloc(n_bytes == 0 ? 1 : n_bytes);
        if (ret_received[i] == NULL) {
            return error_set(reterr, HSDP_ERR_NO_MEMORY,
                             "%s: no memory for what rank %" PRIu32 " offers", offer->operation,
                             offer->readable[i]);
        }
    }
    return HSDP_OK;
}
