/* SPDX-License-Identifier: Apache-2.0 */
/* Standstill: showing what a rank waits for, and finding ranks that wait for each other. */
#include "comm/standstill.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/job_internal.h"
#include "comm/nccl_engine.h"
#include "comm/verdict.h"

#define MAX_NAMED 4u /* ranks that one sentence follows */

_Static_assert(sizeof(struct stand) % sizeof(uint64_t) == 0, "a stand is whole words");

/* -------------------------------------------------------------------------------- showing */

static void stand_show(struct standstill_board *board, const struct stand *stand)
{
    uint64_t words[STANDSTILL_N_WORDS];

    memcpy(words, stand, sizeof(*stand));
    atomic_fetch_add(&board->version, 1u);
    for (uint64_t i = 0; i < STANDSTILL_N_WORDS; i++) {
        atomic_store_explicit(&board->words[i], words[i], memory_order_release);
    }
    atomic_fetch_add(&board->version, 1u);
}

/* False when it was being written. */
static bool stand_read(const struct standstill_board *board, struct stand *ret)
{
    uint64_t version = atomic_load(&board->version);
    uint64_t words[STANDSTILL_N_WORDS];

    for (uint64_t i = 0; i < STANDSTILL_N_WORDS; i++) {
        words[i] = atomic_load_explicit(&board->words[i], memory_order_acquire);
    }
    memcpy(ret, words, sizeof(*ret));
    return version % 2 == 0 && atomic_load(&board->version) == version;
}

static void condition_add(const struct hsdp_job *job, struct stand *stand, const struct wait *wait)
{
    uint64_t missing = missing_ranks(wait) & ~(UINT64_C(1) << job->node_index);

    if (stand->n_conditions == 0) {
        snprintf(stand->operation, sizeof(stand->operation), "%s",
                 wait->operation == NULL ? "" : wait->operation);
        verdict_operation(wait, stand->text, sizeof(stand->text));
    }
    if (stand->n_conditions < STANDSTILL_MAX_CONDITIONS) {
        stand->missing[stand->n_conditions++] = missing;
    } else {
        stand->missing[STANDSTILL_MAX_CONDITIONS - 1] &= missing;
    }
}

/* Work that names no condition is behind other work of this rank, or a call that has not come. */
static void stand_fill(struct hsdp_job *job, const struct waiting *waiting, struct stand *ret)
{
    static const struct wait issuing = {.operation = "ticket.wait"};
    struct work *awaited = waiting->ticket == 0 ? NULL : work_find(job, waiting->ticket);
    const struct wait *first = waiting->wait;

    memset(ret, 0, sizeof(*ret));
    ret->serial = waiting->serial;
    ret->n_looks = ++job->standstill.n_looks;
    ret->n_signals = job->standstill.n_signals;
    if (first == NULL && awaited != NULL) {
        first = awaited->blocker(awaited);
    }
    if (first != NULL) {
        condition_add(job, ret, first);
    }
    for (struct work *work = job->first_work; work != NULL; work = work->next) {
        const struct wait *wait = work == awaited ? NULL : work->blocker(work);

        if (wait != NULL) {
            condition_add(job, ret, wait);
        }
    }
    if (nccl_engine_is_issuing(job)) { /* its thread may raise counters, whatever ranks do */
        condition_add(job, ret, &issuing);
    }
}

/* -------------------------------------------------------------------------------- finding */

static bool stand_is_within(const struct stand *stand, uint64_t ranks)
{
    for (uint64_t i = 0; i < stand->n_conditions; i++) {
        if ((stand->missing[i] & ranks) == 0) {
            return false;
        }
    }
    return stand->n_conditions != 0;
}

/* The largest set of ranks that wait for each other, whatever they wait for. */
static uint64_t ranks_standing(const struct stand *stands, uint32_t n_ranks, uint64_t ranks)
{
    uint64_t before = 0;

    while (before != ranks) {
        before = ranks;
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
            if ((ranks >> rank & 1u) != 0 && !stand_is_within(&stands[rank], ranks)) {
                ranks &= ~(UINT64_C(1) << rank);
            }
        }
    }
    return ranks;
}

static bool stand_is_same(const struct stand *then, const struct stand *now)
{
    return now->serial == then->serial && now->n_signals == then->n_signals &&
           now->n_conditions == then->n_conditions &&
           memcmp(now->missing, then->missing, sizeof(now->missing)) == 0;
}

static uint32_t rank_lowest(uint64_t ranks)
{
    uint32_t rank = 0;

    assert(ranks != 0);
    while ((ranks >> rank & 1u) == 0) {
        rank++;
    }
    return rank;
}

/* rank 0 is in close and waits for rank 1, rank 1 is in model.sync and waits for rank 0 */
static int32_t standstill_raise(struct hsdp_job *job, const struct stand *stands, uint64_t ranks,
                                struct hsdp_error *reterr)
{
    uint32_t rank = rank_lowest(ranks);
    uint64_t named = 0;
    struct hsdp_error err;
    char text[448] = "";
    size_t n_bytes = 0;

    for (uint32_t i = 0; i < MAX_NAMED && (named >> rank & 1u) == 0 && n_bytes < sizeof(text);
         i++) {
        uint32_t next = rank_lowest(stands[rank].missing[0] & ranks);

        named |= UINT64_C(1) << rank;
        n_bytes += (size_t)snprintf(text + n_bytes, sizeof(text) - n_bytes,
                                    "%srank %" PRIu32 " is in %.110s and waits for rank %" PRIu32,
                                    i == 0 ? "" : ", ", rank, stands[rank].text, next);
        rank = next;
    }
    error_set(&err, HSDP_ERR_MISMATCH, "%s: different calls, and none can go on", text);
    error_where(&err, stands[rank_lowest(ranks)].operation, NULL, NULL);
    failure_raise(job, &err);
    return failure_tell(job, reterr);
}

/* Those that wait for each other now, this rank among them; else 0. */
static uint64_t stands_read(const struct hsdp_job *job, struct stand *ret_stands)
{
    const struct control *control = atomic_load(&job->control);
    uint32_t n_ranks = control->n_ranks;
    uint64_t ranks = 0;

    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        bool is_whole = stand_read(&control->ranks[rank].stand, &ret_stands[rank]);

        ranks |= (uint64_t)(is_whole && ret_stands[rank].serial != 0) << rank;
    }
    ranks = ranks_standing(ret_stands, n_ranks, ranks);
    return (ranks >> job->node_index & 1u) != 0 ? ranks : 0;
}

/* Whether `ranks` still stand as at the first reading, and have looked since; else this is it. */
static bool suspicion_is_proved(struct standstill *own, const struct stand *now, uint64_t ranks,
                                uint32_t n_ranks)
{
    bool is_same = ranks == own->suspects;
    bool has_looked = true;

    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        if ((ranks >> rank & 1u) != 0) {
            is_same = is_same && stand_is_same(&own->stands[rank], &now[rank]);
            has_looked = has_looked && now[rank].n_looks >= own->stands[rank].n_looks + 2;
        }
    }
    if (!is_same) {
        own->suspects = ranks;
        memcpy(own->stands, now, n_ranks * sizeof(*now));
    }
    return is_same && has_looked;
}

int32_t standstill_init(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct standstill *own = &job->standstill;

    own->stands = calloc((size_t)job_node_ranks(job) * 2, sizeof(*own->stands));
    if (own->stands == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "connect: no memory for what ranks wait for");
    }
    return HSDP_OK;
}

int32_t standstill_look(struct hsdp_job *job, const struct waiting *waiting,
                        struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);
    struct standstill *own = &job->standstill;
    uint32_t n_ranks = control->n_ranks;
    struct stand *now;
    struct stand mine;
    uint64_t ranks;

    if (control->world_ranks != n_ranks || n_ranks == 1 || waiting->give_up_ns != UINT64_MAX) {
        return HSDP_OK; /* alone, or not all ranks can be seen, or the host goes on by itself */
    }
    if (own->stands == NULL) {
        return HSDP_OK; /* no memory for it: connect waits once more, to tell its peers so */
    }
    now = own->stands + n_ranks;
    stand_fill(job, waiting, &mine);
    stand_show(&control->ranks[job->node_index].stand, &mine);
    own->is_shown = true;
    ranks = stands_read(job, now);
    if (ranks == 0) {
        own->suspects = 0;
        return HSDP_OK;
    }
    return suspicion_is_proved(own, now, ranks, n_ranks) ? standstill_raise(job, now, ranks, reterr)
                                                         : HSDP_OK;
}

void standstill_leave(struct hsdp_job *job)
{
    struct standstill *own = &job->standstill;
    struct stand none = {.serial = 0};

    if (own->is_shown) {
        none.n_looks = own->n_looks;
        stand_show(&atomic_load(&job->control)->ranks[job->node_index].stand, &none);
        own->is_shown = false;
        own->suspects = 0;
    }
}

void standstill_fini(struct hsdp_job *job)
{
    free(job->standstill.stands);
    job->standstill.stands = NULL;
}
