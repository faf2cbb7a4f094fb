/* SPDX-License-Identifier: Apache-2.0 */
/* Ties across stages: plans of stages differ, but what they hold in common has to agree. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "shard/model.h"
#include "shard/tie.h"

/*
 * Every rank shows one card of each tie that it has, round by round. Who finds that a holder's card
 * is missing, or says something else, tells all; the lowest rank's word is the failure.
 */

struct tie_card {
    uint64_t name_hash;
    uint64_t words_hash;
    uint64_t offset_elems;
    uint64_t shard_elems;
    uint64_t place_elems;
    char name[128];  /* cut; the hash is of all of it */
    char words[640]; /* likewise: what plan_write_tie says */
};

_Static_assert(sizeof(struct tie_card) <= JOB_EXCHANGE_MAX_BYTES, "a card travels in one exchange");

struct verdict {
    int32_t status;
    char message[600];
};

static int32_t memory_refuse(struct hsdp_error *reterr)
{
    return error_set(reterr, HSDP_ERR_NO_MEMORY, "model.create: no memory to compare ties");
}

static int32_t card_fill(const struct hsdp_plan *plan, uint32_t tie, struct tie_card *ret,
                         struct hsdp_error *reterr)
{
    const struct plan_param *param = &plan->params[plan->ties[tie].param];
    const struct plan_buffer *buffer = &plan->units[param->unit].buffers[param->buffer];
    struct text words = TEXT_INIT;

    plan_write_tie(plan, tie, &words);
    if (words.is_failed || words.chars == NULL) {
        text_fini(&words);
        return memory_refuse(reterr);
    }
    memset(ret, 0, sizeof(*ret));
    ret->name_hash = text_hash(TEXT_HASH_BASIS, param->name);
    ret->words_hash = text_hash(TEXT_HASH_BASIS, words.chars);
    ret->offset_elems = param->offset_elems;
    ret->shard_elems = buffer->shard_elems[HSDP_SHARD_STEP];
    ret->place_elems = plan->ties[tie].place_elems;
    snprintf(ret->name, sizeof(ret->name), "%s", param->name);
    snprintf(ret->words, sizeof(ret->words), "%s", words.chars);
    text_fini(&words);
    return HSDP_OK;
}

/* The first word that two cards do not share; words begin with a space. */
static int32_t words_refuse(const struct hsdp_plan *plan, const struct tie_card *mine,
                            const struct tie_card *theirs, uint32_t rank, struct hsdp_error *reterr)
{
    const char *a = mine->words;
    const char *b = theirs->words;
    size_t n_a = 0;
    size_t n_b = 0;

    while (n_a == n_b && memcmp(a, b, n_a) == 0 && a[n_a] == ' ' && b[n_b] == ' ') {
        a += n_a + 1;
        b += n_b + 1;
        n_a = strcspn(a, " ");
        n_b = strcspn(b, " ");
    }
    return error_set(reterr, HSDP_ERR_MISMATCH,
                     "model.create: tied parameter \"%.100s\": rank %" PRIu32
                     " has \"%.*s\", rank %" PRIu32 " has \"%.*s\"",
                     mine->name, plan->mesh->rank, n_a > 100 ? 100 : (int)n_a, a, rank,
                     n_b > 100 ? 100 : (int)n_b, b);
}

/* What another rank shows, if it is of a tie that this rank shares with it. */
static int32_t card_take(const struct hsdp_plan *plan, uint32_t rank, const struct tie_card *card,
                         struct tie_layout *layouts, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (uint32_t t = 0; status == HSDP_OK && t < plan->n_ties; t++) {
        const struct plan_tie *tie = &plan->ties[t];

        for (uint32_t h = 0; status == HSDP_OK && h < tie->n_holders; h++, layouts++) {
            struct tie_card mine;

            if (selector_rank(plan->mesh, &tie->selector, plan->mesh->rank, h) != rank ||
                card->name_hash != text_hash(TEXT_HASH_BASIS, plan->params[tie->param].name)) {
                continue;
            }
            *layouts =
                (struct tie_layout){card->offset_elems, card->shard_elems, card->place_elems, true};
            status = card_fill(plan, t, &mine, reterr);
            if (status == HSDP_OK && card->words_hash != mine.words_hash) {
                status = words_refuse(plan, &mine, card, rank, reterr);
            }
        }
    }
    return status;
}

/* Has every holder shown its card? */
static int32_t cards_check(const struct hsdp_plan *plan, const struct tie_layout *layouts,
                           struct hsdp_error *reterr)
{
    for (uint32_t t = 0; t < plan->n_ties; t++) {
        const struct plan_tie *tie = &plan->ties[t];

        for (uint32_t h = 0; h < tie->n_holders; h++, layouts++) {
            if (!layouts->is_known) {
                uint32_t rank = selector_rank(plan->mesh, &tie->selector, plan->mesh->rank, h);

                return error_set(reterr, HSDP_ERR_MISMATCH,
                                 "model.create: rank %" PRIu32 " holds \"%.100s\" tied with rank "
                                 "%" PRIu32 ", which has no tied parameter of that name",
                                 plan->mesh->rank, plan->params[tie->param].name, rank);
            }
        }
    }
    return HSDP_OK;
}

/* As many rounds as the rank with most ties needs. A local failure still walks through them. */
static int32_t rounds_run(struct hsdp_job *job, const struct hsdp_plan *plan, uint32_t n_rounds,
                          struct tie_layout *layouts, struct hsdp_error *ret_local)
{
    uint32_t n_ranks = job_world_ranks(job);
    struct tie_card *cards = calloc(n_ranks, sizeof(*cards));
    int32_t status = cards == NULL ? memory_refuse(ret_local) : HSDP_OK;
    int32_t local_status = HSDP_OK;

    for (uint32_t round = 0; status == HSDP_OK && round < n_rounds; round++) {
        struct tie_card mine = {0};

        if (round < plan->n_ties && local_status == HSDP_OK) {
            local_status = card_fill(plan, round, &mine, ret_local);
        }
        status = job_exchange(job, "model.create", &mine, sizeof(mine), cards, ret_local);
        for (uint32_t rank = 0; status == HSDP_OK && local_status == HSDP_OK && rank < n_ranks;
             rank++) {
            local_status = card_take(plan, rank, &cards[rank], layouts, ret_local);
        }
    }
    free(cards);
    if (status == HSDP_OK && local_status == HSDP_OK) {
        local_status = cards_check(plan, layouts, ret_local);
    }
    return status != HSDP_OK ? status : local_status;
}

/* The lowest rank that has found something says it for all. */
static int32_t verdict_share(struct hsdp_job *job, int32_t local_status, const char *message,
                             struct hsdp_error *reterr)
{
    struct verdict mine = {.status = local_status};
    struct verdict *all = calloc(job_world_ranks(job), sizeof(*all));
    struct hsdp_error err;
    int32_t status;

    if (all == NULL) {
        return memory_refuse(reterr);
    }
    snprintf(mine.message, sizeof(mine.message), "%s", local_status == HSDP_OK ? "" : message);
    status = job_exchange(job, "model.create", &mine, sizeof(mine), all, reterr);
    for (uint32_t rank = 0; status == HSDP_OK && rank < job_world_ranks(job); rank++) {
        if (all[rank].status == HSDP_OK) {
            continue;
        }
        error_set(&err, all[rank].status, "%s", all[rank].message);
        error_where(&err, "model.create", NULL, NULL);
        status = err.status == HSDP_ERR_MISMATCH ? job_fail(job, &err) : err.status;
        if (reterr != NULL) {
            *reterr = err;
        }
    }
    free(all);
    return status;
}

int32_t ties_agree(struct hsdp_job *job, const struct hsdp_plan *plan, struct tie_layout *layouts,
                   struct hsdp_error *reterr)
{
    uint32_t n_ranks = job_world_ranks(job);
    uint32_t *counts = calloc(n_ranks, sizeof(*counts));
    struct hsdp_error local = HSDP_ERROR_INIT;
    uint32_t n_rounds = 0;
    int32_t status;

    if (counts == NULL) {
        return memory_refuse(reterr);
    }
    status = job_exchange(job, "model.create", &plan->n_ties, sizeof(plan->n_ties), counts, reterr);
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        n_rounds = counts[rank] > n_rounds ? counts[rank] : n_rounds;
    }
    free(counts);
    if (status != HSDP_OK || n_rounds == 0) {
        return status;
    }
    status = rounds_run(job, plan, n_rounds, layouts, &local);
    return verdict_share(job, status, local.message, reterr);
}
