/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store: ranks read each other's bytes once, for loading, saving and synchronising. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/nccl_store.h"

/*
 * Bytes of hosts travel through stages on the devices, chunk by chunk: a stage has a place for what
 * this rank sends, and one for what comes from each of the ranks of the offer, itself included. A
 * rank does not know who reads it, so first each says whom it reads.
 */
struct passage {
    struct store *store;
    struct offer_round round;
    uint64_t chunk; /* the one that is passed on */
    uint64_t n_chunks;
    uint64_t record;
    uint8_t *received[NCCL_STORE_MAX_RANKS]; /* n_readable buffers, each as long as that offer */
};

static uint8_t *stage_place(uint8_t *stage, uint32_t i)
{
    return stage + (uint64_t)(i + 1) * NCCL_CHUNK_BYTES;
}

static uint64_t chunk_bytes(uint64_t n_bytes, uint64_t chunk)
{
    uint64_t begin = chunk * NCCL_CHUNK_BYTES;

    if (n_bytes <= begin) {
        return 0;
    }
    return n_bytes - begin < NCCL_CHUNK_BYTES ? n_bytes - begin : NCCL_CHUNK_BYTES;
}

/* One task for each step of the way, which this waits for: offers are rare. */
static int32_t passage_task(struct passage *passage,
                            int32_t (*run)(struct nccl_task *task, struct hsdp_error *reterr),
                            struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    struct nccl_task *task = &store->cold.task;
    int32_t status;

    store->cold.call = passage;
    task->run = run;
    task->stream = store->gpu->reduce_stream;
    task->label.operation = passage->round.offer->operation;
    task->label.group = store->shared.name;
    task->label.unit = NULL; /* ranks may differ in it: that is what their words are for */
    task->label.sequence = store->n_offers;
    task->label.record = passage->record;
    task->groups[0] = store->shared.group;
    task->n_groups = store->shared.n_ranks == 1 ? 0 : 1;
    status = nccl_task_submit(task, NULL, reterr);
    return status == HSDP_OK ? nccl_task_await(task, reterr) : status;
}

/* ----------------------------------------------------------------------------------------- words
 */

/* Words lie in the places of chunks, back to back, as an all-gather leaves them. */
static int32_t words_run(struct nccl_task *task, struct hsdp_error *reterr)
{
    struct store *store = ((struct nccl_cold *)task)->store;
    cu_stream stream = store->gpu->reduce_stream;
    uint64_t n_bytes = sizeof(struct offer_words);
    uint8_t *sent = store->device_stage;
    uint8_t *all = stage_place(store->device_stage, 0);
    int32_t status = gpu_copy(store->gpu, sent, store->host_stage, n_bytes, stream, reterr);

    if (status == HSDP_OK && store->shared.n_ranks == 1) {
        all = sent;
    } else if (status == HSDP_OK) {
        status = nccl_all_gather(task, task->groups[0], sent, all, n_bytes, NCCL_UINT8, reterr);
    }
    return status == HSDP_OK ? gpu_copy(store->gpu, stage_place(store->host_stage, 0), all,
                                        store->shared.n_ranks * n_bytes, stream, reterr)
                             : status;
}

/* Carries no bytes, but what each rank says. */
static int32_t words_pass(struct passage *passage, int32_t local_status, const char *message,
                          struct hsdp_error *reterr)
{
    struct store *store = passage->store;
    struct offer_round *round = &passage->round;
    const struct offer_words *words =
        (const struct offer_words *)(const void *)stage_place(store->host_stage, 0);
    int32_t status;

    offer_words_fill(round, local_status, message, (struct offer_words *)(void *)store->host_stage);
    status = passage_task(passage, words_run, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    for (uint32_t i = 0; i < round->n_ranks; i++) {
        round->words[i] = &words[i];
    }
    status = offer_tags_compare(round, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    passage->n_chunks = (offer_sizes_take(round) + NCCL_CHUNK_BYTES - 1) / NCCL_CHUNK_BYTES;
    return offer_refusals_tell(round, local_status, message, reterr);
}

/* ---------------------------------------------------------------------------------------- chunks
 */

/* What this rank sends to those that read it, and what it gets of those that it reads. */
static uint32_t messages_fill(const struct passage *passage, struct nccl_message *ret)
{
    const struct offer_round *round = &passage->round;
    uint8_t *stage = passage->store->device_stage;
    uint64_t n_bytes = chunk_bytes(round->offer->n_bytes, passage->chunk);
    uint32_t n = 0;

    for (uint32_t i = 0; i < round->n_ranks && n_bytes != 0; i++) {
        if ((round->readers >> i & 1u) != 0) {
            ret[n++] = (struct nccl_message){stage, n_bytes, i, .is_send = true};
        }
    }
    for (uint32_t i = 0; i < round->offer->n_readable; i++) {
        uint32_t peer = offer_index(round, round->offer->readable[i]);

        n_bytes = chunk_bytes(round->sizes[peer], passage->chunk);
        if (n_bytes != 0) {
            ret[n++] = (struct nccl_message){stage_place(stage, peer), n_bytes, peer, false};
        }
    }
    return n;
}

static int32_t received_copy(const struct passage *passage, struct hsdp_error *reterr)
{
    const struct offer_round *round = &passage->round;
    struct store *store = passage->store;
    bool is_alone = round->n_ranks == 1; /* then what it reads is what it offers */
    int32_t status = HSDP_OK;

    for (uint32_t i = 0; i < round->offer->n_readable && status == HSDP_OK; i++) {
        uint32_t peer = offer_index(round, round->offer->readable[i]);
        uint64_t n_bytes = chunk_bytes(round->sizes[peer], passage->chunk);
        const uint8_t *place =
            is_alone ? store->device_stage : stage_place(store->device_stage, peer);

        if (n_bytes != 0) {
            status = gpu_copy(store->gpu, stage_place(store->host_stage, peer), place, n_bytes,
                              store->gpu->reduce_stream, reterr);
        }
    }
    return status;
}

static int32_t chunk_run(struct nccl_task *task, struct hsdp_error *reterr)
{
    const struct passage *passage = ((struct nccl_cold *)task)->call;
    struct store *store = passage->store;
    struct nccl_message messages[2 * NCCL_STORE_MAX_RANKS];
    uint64_t n_bytes = chunk_bytes(passage->round.offer->n_bytes, passage->chunk);
    int32_t status = HSDP_OK;

    if (n_bytes != 0) {
        status = gpu_copy(store->gpu, store->device_stage, store->host_stage, n_bytes,
                          store->gpu->reduce_stream, reterr);
    }
    if (status == HSDP_OK && passage->round.n_ranks > 1) {
        status = nccl_exchange(task, task->groups[0], messages, messages_fill(passage, messages),
                               reterr);
    }
    return status == HSDP_OK ? received_copy(passage, reterr) : status;
}

static int32_t chunk_pass(struct passage *passage, struct hsdp_error *reterr)
{
    const struct store_offer *offer = passage->round.offer;
    struct store *store = passage->store;
    uint64_t begin = passage->chunk * NCCL_CHUNK_BYTES;
    uint64_t n_bytes = chunk_bytes(offer->n_bytes, passage->chunk);
    int32_t status;

    if (n_bytes != 0) {
        memcpy(store->host_stage, (const uint8_t *)offer->bytes + begin, n_bytes);
    }
    status = passage_task(passage, chunk_run, reterr);
    for (uint32_t i = 0; status == HSDP_OK && i < offer->n_readable; i++) {
        uint32_t peer = offer_index(&passage->round, offer->readable[i]);

        n_bytes = chunk_bytes(passage->round.sizes[peer], passage->chunk);
        if (n_bytes != 0) {
            memcpy(passage->received[i] + begin, stage_place(store->host_stage, peer), n_bytes);
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------------- the offer
 */

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
    for (; status == HSDP_OK && passage->chunk < passage->n_chunks; passage->chunk++) {
        status = chunk_pass(passage, reterr);
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

int32_t nccl_offer(struct store *store, const struct store_offer *offer, struct hsdp_error *reterr)
{
    struct passage passage = {.store = store};
    struct offer_round *round = &passage.round;
    int32_t status;

    round->job = store->job;
    round->mesh = store->plan->mesh;
    round->offer = offer;
    round->rank = store->rank;
    round->ranks = store->shared.ranks;
    round->n_ranks = store->shared.n_ranks;
    round->number = ++store->n_offers;
    passage.record = offer_record(store, offer);
    status = passage_run(&passage, reterr);
    job_record_end(store->job, passage.record, status);
    for (uint32_t i = 0; i < offer->n_readable; i++) {
        free(passage.received[i]);
    }
    return status;
}
