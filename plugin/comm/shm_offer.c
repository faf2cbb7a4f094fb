/* SPDX-License-Identifier: Apache-2.0 */
/* The shm store: ranks read each other's bytes once, for loading, saving and synchronising. */
#include <stdlib.h>
#include <string.h>

#include "comm/shm_store.h"

/* An offer under way: peers advance through their stages chunk by chunk, in step. */
struct passage {
    struct store *store;
    struct offer_round round;
    uint32_t ranks[SHM_MAX_RANKS];
    uint64_t n_rounds;
    uint64_t record;
    uint8_t *received[SHM_MAX_RANKS]; /* n_readable buffers, each as long as that rank's offer */
};

static int32_t peers_await(struct passage *passage, bool is_consumed, struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    struct wait_entry entries[SHM_MAX_RANKS];
    struct wait wait = {.entries = entries, .n_entries = passage->round.n_ranks};

    wait.operation = passage->round.offer->operation;
    wait.unit = passage->round.offer->unit;
    wait.sequence = store->n_offers;
    wait.record = passage->record;
    for (uint32_t i = 0; i < passage->round.n_ranks; i++) {
        struct shm_header *header = shm_header(store, passage->ranks[i]);

        entries[i].counter = is_consumed ? &header->offer_consumed : &header->offer_arrived;
        entries[i].target = store->n_chunks;
        entries[i].rank = passage->ranks[i];
        entries[i].wait = is_consumed ? PROBE_WAIT_OFFER_READ : PROBE_WAIT_OFFER;
    }
    probe_expect(store->probe, entries, passage->round.n_ranks);
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
    const struct store_offer *offer = passage->round.offer;
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
    job_signal(store->job, &mine->offer_arrived, store->n_chunks, passage->ranks,
               passage->round.n_ranks);
    status = peers_await(passage, false, reterr);
    for (uint32_t i = 0; status == HSDP_OK && i < offer->n_readable; i++) {
        n_bytes = chunk_bytes(offer_read_bytes(&passage->round, i), round);
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
               passage->round.n_ranks);
    return peers_await(passage, true, reterr);
}

/*
 * A round that carries no bytes, but what each rank says. Whoever has refused keeps its own reason;
 * the others get the first one's.
 */
static int32_t words_pass(struct passage *passage, int32_t local_status, const char *message,
                          struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    struct offer_round *round = &passage->round;
    struct shm_header *mine = shm_header(store, store->rank);
    int32_t refused;
    int32_t status;

    probe_write(store->probe, PROBE_OFFER_WORDS, PROBE_NO_UNIT, &mine->offer, sizeof(mine->offer));
    offer_words_fill(round, local_status, message, &mine->offer);
    store->n_chunks++;
    job_signal(store->job, &mine->offer_arrived, store->n_chunks, passage->ranks, round->n_ranks);
    status = peers_await(passage, false, reterr);
    if (status == HSDP_OK) {
        for (uint32_t i = 0; i < round->n_ranks; i++) {
            probe_read(store->probe, PROBE_OFFER_WORDS, PROBE_NO_UNIT, round->words[i],
                       sizeof(*round->words[i]));
        }
        status = offer_tags_compare(round, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    passage->n_rounds = (offer_sizes_take(round) + SHM_STAGE_BYTES - 1) / SHM_STAGE_BYTES;
    refused = offer_refusals_tell(round, local_status, message, reterr);
    job_signal(store->job, &mine->offer_consumed, store->n_chunks, passage->ranks, round->n_ranks);
    status = peers_await(passage, true, reterr);
    return status != HSDP_OK ? status : refused;
}

static int32_t passage_run(struct passage *passage, struct hsdp_error *reterr)
{
    const struct store_offer *offer = passage->round.offer;
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status = words_pass(passage, offer->status, offer->message, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    status = offer_prepare(&passage->round, passage->received, &err);
    status = words_pass(passage, status, err.message, reterr);
    for (uint64_t round = 0; status == HSDP_OK && round < passage->n_rounds; round++) {
        status = chunk_pass(passage, round, reterr);
    }
    for (uint32_t i = 0; status == HSDP_OK && i < offer->n_readable; i++) {
        offer->read(offer->user, i, passage->received[i], offer_read_bytes(&passage->round, i));
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
    struct passage passage = {.store = store};
    struct offer_round *round = &passage.round;
    int32_t status;

    round->job = store->job;
    round->mesh = mesh;
    round->offer = offer;
    round->rank = store->rank;
    round->ranks = passage.ranks;
    round->n_ranks = mesh_span(mesh, dims);
    round->number = ++store->n_offers;
    for (uint32_t i = 0; i < round->n_ranks; i++) {
        passage.ranks[i] = mesh_peer(mesh, dims, store->rank, i);
        round->words[i] = &shm_header(store, passage.ranks[i])->offer;
    }
    passage.record = offer_record(store, offer);
    status = passage_run(&passage, reterr);
    job_record_end(store->job, passage.record, status);
    for (uint32_t i = 0; i < offer->n_readable; i++) {
        free(passage.received[i]);
    }
    return status;
}
