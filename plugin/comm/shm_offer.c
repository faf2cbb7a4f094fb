/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: ranks read each other's bytes once, for loading, saving and synchronising. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/shm_store.h"

/* Tag, root and size, for probes. */
#define OFFER_WORDS_BYTES (3 * sizeof(uint64_t))

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

/* Do all ranks move the same thing, and from the same rank? */
static int32_t tags_compare(struct passage *passage, struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    const struct store_offer *offer = passage->offer;
    const struct hsdp_mesh *mesh = store->plan->mesh;
    uint32_t index = mesh_index(mesh, offer->root_dims, store->rank);
    struct hsdp_error err;

    for (uint32_t i = 0; i < passage->n_ranks; i++) {
        uint32_t rank = passage->ranks[i];
        const struct shm_header *header = shm_header(store, rank);
        bool is_peer = mesh_peer(mesh, offer->root_dims, rank, index) == store->rank;

        probe_read(store->probe, PROBE_OFFER_WORDS, PROBE_NO_UNIT, &header->offer_tag,
                   OFFER_WORDS_BYTES);
        if (header->offer_tag != offer->tag) {
            error_set(&err, HSDP_ERR_MISMATCH,
                      "%s: rank %" PRIu32 " and rank %" PRIu32
                      " name different parameters or states in their call %" PRIu64
                      ", or one of them makes another call",
                      offer->operation, store->rank, rank, store->n_offers);
        } else if (is_peer && header->offer_root != offer->root) {
            error_set(&err, HSDP_ERR_MISMATCH,
                      "%s: rank %" PRIu32 " names rank %" PRIu32 ", rank %" PRIu32
                      " names rank %" PRIu64 " in their call %" PRIu64,
                      offer->operation, store->rank, offer->root, rank, header->offer_root,
                      store->n_offers);
        } else {
            continue;
        }
        error_where(&err, offer->operation, NULL, offer->unit);
        if (reterr != NULL) {
            *reterr = err;
        }
        return job_fail(store->job, &err);
    }
    return HSDP_OK;
}

/* Round zero carries no bytes: it tells everyone's sizes, and so how many rounds there are. */
static int32_t sizes_pass(struct passage *passage, struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    const struct store_offer *offer = passage->offer;
    struct shm_header *mine = shm_header(store, store->rank);
    uint64_t largest = 0;
    int32_t status;

    probe_write(store->probe, PROBE_OFFER_WORDS, PROBE_NO_UNIT, &mine->offer_tag,
                OFFER_WORDS_BYTES);
    mine->offer_tag = offer->tag;
    mine->offer_root = offer->root;
    mine->offer_bytes = offer->n_bytes;
    store->n_chunks++;
    job_signal(store->job, &mine->offer_arrived, store->n_chunks, passage->ranks, passage->n_ranks);
    status = peers_await(passage, false, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = tags_compare(passage, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    for (uint32_t i = 0; i < passage->n_ranks; i++) {
        uint64_t n_bytes = shm_header(store, passage->ranks[i])->offer_bytes;

        largest = n_bytes > largest ? n_bytes : largest;
    }
    for (uint32_t i = 0; i < offer->n_readable; i++) {
        passage->sizes[i] = shm_header(store, offer->readable[i])->offer_bytes;
    }
    passage->n_rounds = (largest + SHM_STAGE_BYTES - 1) / SHM_STAGE_BYTES;
    job_signal(store->job, &mine->offer_consumed, store->n_chunks, passage->ranks,
               passage->n_ranks);
    return peers_await(passage, true, reterr);
}

/* A rank without memory still walks through all rounds, so that its peers need not wait. */
static int32_t received_allocate(struct passage *passage, struct hsdp_error *reterr)
{
    for (uint32_t i = 0; i < passage->offer->n_readable; i++) {
        passage->received[i] = malloc(passage->sizes[i] == 0 ? 1 : passage->sizes[i]);
        if (passage->received[i] == NULL) {
            for (uint32_t j = 0; j < passage->offer->n_readable; j++) {
                passage->sizes[j] = 0;
            }
            return error_set(reterr, HSDP_ERR_NO_MEMORY,
                             "shm: no memory for what rank %" PRIu32 " offers",
                             passage->offer->readable[i]);
        }
    }
    return HSDP_OK;
}

static int32_t passage_run(struct passage *passage, struct hsdp_error *reterr)
{
    const struct store_offer *offer = passage->offer;
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t local_status;
    int32_t status = sizes_pass(passage, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    local_status = received_allocate(passage, &err);
    for (uint64_t round = 0; status == HSDP_OK && round < passage->n_rounds; round++) {
        status = chunk_pass(passage, round, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    for (uint32_t i = 0; local_status == HSDP_OK && i < offer->n_readable; i++) {
        local_status = offer->read(offer->user, offer->readable[i], passage->received[i],
                                   passage->sizes[i], &err);
    }
    if (local_status != HSDP_OK) {
        return error_set(reterr, local_status, "%s", err.message);
    }
    return HSDP_OK;
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
