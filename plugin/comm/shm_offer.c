/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: ranks read each other's bytes once, for loading, saving and synchronising. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/shm_store.h"

/* An offer under way: peers advance through their stages chunk by chunk, in step. */
struct passage {
    struct store *store;
    const struct store_offer *offer;
    uint32_t ranks[SHM_MAX_RANKS];
    uint32_t n_ranks;
    uint64_t n_rounds;
    uint64_t record;
    uint8_t **received; /* n_readable buffers, each as long as that rank's offer */
    uint64_t *sizes;
};

static int32_t peers_await(struct passage *passage, bool is_consumed, struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    struct wait_entry entries[SHM_MAX_RANKS];
    struct wait wait = {.entries = entries, .n_entries = passage->n_ranks};

    wait.operation = passage->offer->operation;
    wait.unit = passage->offer->unit;
    wait.sequence = store->n_offers;
    wait.record = passage->record;
    for (uint32_t i = 0; i < passage->n_ranks; i++) {
        struct shm_header *header = shm_header(store, passage->ranks[i]);

        entries[i].counter = is_consumed ? &header->offer_consumed : &header->offer_arrived;
        entries[i].target = store->n_chunks;
        entries[i].rank = passage->ranks[i];
        entries[i].wait = is_consumed ? PROBE_WAIT_OFFER_READ : PROBE_WAIT_OFFER;
    }
    probe_expect(store->probe, entries, passage->n_ranks);
    return job_wait(store->job, &wait, reterr);
}

static uint8_t *stage_of(const struct store *store, uint32_t rank)
{
    return store->regions[rank] + store->stage_offset;
}

static uint64_t chunk_bytes(uint64_t n_bytes, uint64_t round)
{
    uint64_t begin = round * SHM_STAGE_BYTES;

    if (n_bytes <= begin) {
        return 0;
    }
    return n_bytes - begin < SHM_STAGE_BYTES ? n_bytes - begin : SHM_STAGE_BYTES;
}

/* Lays out one chunk, waits for those of the peers, copies what this rank wants of them. */
static int32_t chunk_pass(struct passage *passage, uint64_t round, struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    const struct store_offer *offer = passage->offer;
    struct shm_header *mine = shm_header(store, store->rank);
    uint64_t n_bytes = chunk_bytes(offer->n_bytes, round);
    int32_t status;

    if (n_bytes != 0) {
        const uint8_t *source = (const uint8_t *)offer->bytes + round * SHM_STAGE_BYTES;

        probe_read(store->probe, PROBE_OFFERED, PROBE_NO_UNIT, source, n_bytes);
        probe_write(store->probe, PROBE_STAGE, PROBE_NO_UNIT, stage_of(store, store->rank),
                    n_bytes);
        memcpy(stage_of(store, store->rank), source, n_bytes);
    }
    store->n_chunks++;
    job_signal(store->job, &mine->offer_arrived, store->n_chunks, passage->ranks, passage->n_ranks);
    status = peers_await(passage, false, reterr);
    for (uint32_t i = 0; status == HSDP_OK && i < offer->n_readable; i++) {
        n_bytes = chunk_bytes(passage->sizes[i], round);
        if (n_bytes != 0) {
            probe_read(store->probe, PROBE_STAGE, PROBE_NO_UNIT,
                       stage_of(store, offer->readable[i]), n_bytes);
            memcpy(passage->received[i] + round * SHM_STAGE_BYTES,
                   stage_of(store, offer->readable[i]), n_bytes);
        }
    }
    if (status != HSDP_OK) {
        return status;
    }
    job_signal(store->job, &mine->offer_consumed, store->n_chunks, passage->ranks,
               passage->n_ranks);
    return peers_await(passage, true, reterr);
}

/* The sentence is the same whichever of the two finds it: the lower rank comes first. */
static int32_t tags_differ(struct passage *passage, uint32_t rank, struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    uint32_t first = rank < store->rank ? rank : store->rank;
    uint32_t second = rank < store->rank ? store->rank : rank;
    const struct shm_offer_words *a = &shm_header(store, first)->offer;
    const struct shm_offer_words *b = &shm_header(store, second)->offer;
    struct hsdp_error err;

    if (a->tag != b->tag) {
        error_set(&err, HSDP_ERR_MISMATCH,
                  "rank %" PRIu32 " is in %.127s, rank %" PRIu32 " in %.127s: call %" PRIu64
                  " of those that move parameters and states",
                  first, a->what, second, b->what, store->n_offers);
    } else {
        error_set(&err, HSDP_ERR_MISMATCH,
                  "%s: rank %" PRIu32 " names rank %" PRIu64 ", rank %" PRIu32
                  " names rank %" PRIu64 " in their call %" PRIu64,
                  passage->offer->operation, first, a->root, second, b->root, store->n_offers);
    }
    error_where(&err, passage->offer->operation, NULL, passage->offer->unit);
    err.sequence = store->n_offers;
    if (reterr != NULL) {
        *reterr = err;
    }
    return job_fail(store->job, &err);
}

/* Do all ranks move the same thing, and from the same rank? Those that refuse move nothing. */
static int32_t tags_compare(struct passage *passage, struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    const struct store_offer *offer = passage->offer;
    const struct hsdp_mesh *mesh = store->plan->mesh;
    uint32_t index = mesh_index(mesh, offer->root_dims, store->rank);

    for (uint32_t i = 0; i < passage->n_ranks; i++) {
        uint32_t rank = passage->ranks[i];
        const struct shm_offer_words *words = &shm_header(store, rank)->offer;
        bool is_peer = mesh_peer(mesh, offer->root_dims, rank, index) == store->rank;

        probe_read(store->probe, PROBE_OFFER_WORDS, PROBE_NO_UNIT, words, sizeof(*words));
        if (offer->status != HSDP_OK || words->status != HSDP_OK) {
            continue;
        }
        if (words->tag != offer->tag || (is_peer && words->root != offer->root)) {
            return tags_differ(passage, rank, reterr);
        }
    }
    return HSDP_OK;
}

/* The first rank that refuses, and why. */
static int32_t refusals_tell(struct passage *passage, struct hsdp_error *reterr)
{
    for (uint32_t i = 0; i < passage->n_ranks; i++) {
        const struct shm_offer_words *words = &shm_header(passage->store, passage->ranks[i])->offer;

        probe_read(passage->store->probe, PROBE_OFFER_WORDS, PROBE_NO_UNIT, words, sizeof(*words));
        if (words->status != HSDP_OK && passage->ranks[i] != passage->store->rank) {
            error_set(reterr, (int32_t)words->status, "%s: rank %" PRIu32 ": %.399s",
                      passage->offer->operation, passage->ranks[i], words->message);
            error_where(reterr, passage->offer->operation, NULL, passage->offer->unit);
            return (int32_t)words->status;
        }
    }
    return HSDP_OK;
}

/*
 * A round that carries no bytes, but what each rank says. Whoever has refused keeps its own reason;
 * the others get the first one's.
 */
static int32_t words_pass(struct passage *passage, int32_t local_status, const char *message,
                          struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    const struct store_offer *offer = passage->offer;
    struct shm_header *mine = shm_header(store, store->rank);
    uint64_t largest = 0;
    int32_t refused;
    int32_t status;

    probe_write(store->probe, PROBE_OFFER_WORDS, PROBE_NO_UNIT, &mine->offer, sizeof(mine->offer));
    mine->offer.tag = offer->tag;
    mine->offer.root = offer->root;
    mine->offer.n_bytes = offer->n_bytes;
    mine->offer.status = local_status;
    snprintf(mine->offer.what, sizeof(mine->offer.what), "%s%s%s", offer->operation,
             offer->what == NULL ? "" : " of ", offer->what == NULL ? "" : offer->what);
    snprintf(mine->offer.message, sizeof(mine->offer.message), "%s",
             local_status == HSDP_OK ? "" : message);
    store->n_chunks++;
    job_signal(store->job, &mine->offer_arrived, store->n_chunks, passage->ranks, passage->n_ranks);
    status = peers_await(passage, false, reterr);
    if (status == HSDP_OK) {
        status = tags_compare(passage, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    for (uint32_t i = 0; i < passage->n_ranks; i++) {
        uint64_t n_bytes = shm_header(store, passage->ranks[i])->offer.n_bytes;

        largest = n_bytes > largest ? n_bytes : largest;
    }
    for (uint32_t i = 0; i < offer->n_readable; i++) {
        passage->sizes[i] = shm_header(store, offer->readable[i])->offer.n_bytes;
    }
    passage->n_rounds = (largest + SHM_STAGE_BYTES - 1) / SHM_STAGE_BYTES;
    refused = local_status != HSDP_OK ? local_status : refusals_tell(passage, reterr);
    job_signal(store->job, &mine->offer_consumed, store->n_chunks, passage->ranks,
               passage->n_ranks);
    status = peers_await(passage, true, reterr);
    if (status != HSDP_OK || local_status == HSDP_OK) {
        return status != HSDP_OK ? status : refused;
    }
    return error_set(reterr, local_status, "%s", message);
}

/* All that may still fail here, before anything moves anywhere. */
static int32_t passage_prepare(struct passage *passage, struct hsdp_error *ret_err)
{
    const struct store_offer *offer = passage->offer;

    for (uint32_t i = 0; i < offer->n_readable; i++) {
        int32_t status = offer->prepare(offer->user, i, passage->sizes[i], ret_err);

        if (status != HSDP_OK) {
            return status;
        }
        passage->received[i] = malloc(passage->sizes[i] == 0 ? 1 : passage->sizes[i]);
        if (passage->received[i] == NULL) {
            return error_set(ret_err, HSDP_ERR_NO_MEMORY,
                             "%s: no memory for what rank %" PRIu32 " offers", offer->operation,
                             offer->readable[i]);
        }
    }
    return HSDP_OK;
}

static int32_t passage_run(struct passage *passage, struct hsdp_error *reterr)
{
    const struct store_offer *offer = passage->offer;
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status = words_pass(passage, offer->status, offer->message, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    status = passage_prepare(passage, &err);
    status = words_pass(passage, status, err.message, reterr);
    for (uint64_t round = 0; status == HSDP_OK && round < passage->n_rounds; round++) {
        status = chunk_pass(passage, round, reterr);
    }
    for (uint32_t i = 0; status == HSDP_OK && i < offer->n_readable; i++) {
        offer->read(offer->user, i, passage->received[i], passage->sizes[i]);
    }
    return status;
}

static uint64_t offer_record(struct store *store, const struct store_offer *offer)
{
    struct wait what = {.operation = offer->operation, .unit = offer->unit};

    what.sequence = store->n_offers;
    what.n_bytes = offer->n_bytes;
    return job_record_begin(store->job, &what);
}

int32_t shm_offer(struct store *store, const struct store_offer *offer, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = store->plan->mesh;
    uint32_t dims = plan_shared_dims(store->plan);
    uint8_t *received[SHM_MAX_RANKS] = {NULL};
    uint64_t sizes[SHM_MAX_RANKS] = {0};
    struct passage passage = {.store = store, .offer = offer, .received = received, .sizes = sizes};
    int32_t status;

    passage.n_ranks = mesh_span(mesh, dims);
    for (uint32_t i = 0; i < passage.n_ranks; i++) {
        passage.ranks[i] = mesh_peer(mesh, dims, store->rank, i);
    }
    store->n_offers++;
    passage.record = offer_record(store, offer);
    status = passage_run(&passage, reterr);
    job_record_end(store->job, passage.record, status);
    for (uint32_t i = 0; i < offer->n_readable; i++) {
        free(received[i]);
    }
    return status;
}
