/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of NCCL: every rank learns what any wants, and all make them in one order. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/nccl_internal.h"

/* A list of ranks that a rank wants a communicator of; the id comes from the first of the list. */
struct group_request {
    uint32_t n_ranks; /* 0 = none */
    uint32_t has_id;
    char name[32];
    uint8_t ranks[LAUNCH_MAX_RANKS];
    struct nccl_unique_id id;
};

#define N_PER_EXCHANGE ((uint32_t)(JOB_EXCHANGE_MAX_BYTES / sizeof(struct group_request)))

_Static_assert(LAUNCH_MAX_RANKS <= UINT8_MAX, "a rank is one byte");
_Static_assert(N_PER_EXCHANGE >= 4, "several requests fit an exchange");

/* --------------------------------------------------------------------------------- finding */

static bool is_alike(const struct nccl_group *group, const uint32_t *ranks, uint32_t n_ranks)
{
    return group->n_ranks == n_ranks && memcmp(group->ranks, ranks, n_ranks * sizeof(*ranks)) == 0;
}

static struct nccl_group *group_find(const struct nccl_engine *engine, const uint32_t *ranks,
                                     uint32_t n_ranks)
{
    struct nccl_group *group = engine->groups;

    while (group != NULL && !is_alike(group, ranks, n_ranks)) {
        group = group->next;
    }
    return group;
}

struct nccl_group *nccl_world(struct nccl_engine *engine)
{
    return engine->groups;
}

/* Those of one rank are nobody else's business. Counts up to the next one from `*index` on. */
static const struct nccl_wanted *wanted_next(const struct groups_call *call, uint32_t *index)
{
    while (*index < call->n_wanted) {
        const struct nccl_wanted *wanted = &call->wanted[(*index)++];

        if (wanted->n_ranks > 1 &&
            group_find(call->engine, wanted->ranks, wanted->n_ranks) == NULL) {
            return wanted;
        }
    }
    return NULL;
}

/* --------------------------------------------------------------------------------- making one */

static void group_free(struct nccl_engine *engine, struct nccl_group *group)
{
    for (uint32_t i = 0; i < NCCL_MAX_QUEUED && *engine->job->alive != 0; i++) {
        gpu_event_destroy(&engine->gpu, group->queued[i]);
        gpu_event_destroy(&engine->gpu, group->sent[i]);
    }
    free((void *)(uintptr_t)group->ranks);
    free((void *)(uintptr_t)group->name);
    free(group->board);
    free(group);
}

void groups_free(struct nccl_engine *engine)
{
    if (engine->opening != NULL) { /* the thread has not come to it */
        group_free(engine, engine->opening);
    }
    while (engine->groups != NULL) {
        struct nccl_group *next = engine->groups->next;

        group_free(engine, engine->groups);
        engine->groups = next;
    }
}

/* Of which this rank is a member; not in the list of the engine yet. */
static int32_t group_create(struct nccl_engine *engine, const uint32_t *ranks, uint32_t n_ranks,
                            const char *name, struct nccl_group **ret, struct hsdp_error *reterr)
{
    struct nccl_group *group = calloc(1, sizeof(*group));
    uint32_t *copy = malloc(n_ranks * sizeof(*copy));

    if (group != NULL) {
        group->ranks = copy;
        group->name = strdup(name);
        group->board = calloc(1, sizeof(*group->board));
    }
    if (group == NULL || copy == NULL || group->name == NULL || group->board == NULL) {
        free(copy);
        if (group != NULL) {
            free((void *)(uintptr_t)group->name);
            free(group->board);
        }
        free(group);
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: no memory for group \"%s\"", name);
    }
    memcpy(copy, ranks, n_ranks * sizeof(*copy));
    group->n_ranks = n_ranks;
    while (ranks[group->index] != engine->job->launch.rank) {
        group->index++;
    }
    *ret = group;
    return HSDP_OK;
}

/* On the thread. What other processes take from the same device meanwhile is in it. */
static uint64_t memory_free_bytes(struct nccl_engine *engine)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;

    engine_leave(engine);
    engine->gpu.cuda.memory_info(&free_bytes, &total_bytes);
    engine_return(engine);
    return free_bytes;
}

static int32_t communicator_init(struct nccl_engine *engine, struct nccl_group *group,
                                 struct hsdp_error *reterr)
{
    struct nccl_config config = nccl_config_make();
    uint64_t before_bytes = memory_free_bytes(engine);
    uint64_t after_bytes;
    nccl_result result;
    int32_t status;

    if (engine->nccl.version >= 22700) {
        config.comm_name = group->name;
    }
    atomic_store(&group->board->lines[group->index]->has_come, 1u);
    nccl_begin(engine, group, "ncclCommInitRankConfig");
    result = engine->nccl.comm_init(&group->comm, (int32_t)group->n_ranks, engine->id,
                                    (int32_t)group->index, &config);
    status = nccl_settle(engine, result, reterr);
    after_bytes = memory_free_bytes(engine);
    group->memory_bytes = before_bytes > after_bytes ? before_bytes - after_bytes : 0;
    return status;
}

/* An order. It is in the list before NCCL is asked, so that it is aborted whatever happens. */
static int32_t group_open(struct nccl_engine *engine, struct hsdp_error *reterr)
{
    struct nccl_group *group = engine->opening;
    struct nccl_group **last = &engine->groups;
    int32_t status = HSDP_OK;

    while (*last != NULL) {
        last = &(*last)->next;
    }
    job_lock(engine->job);
    *last = group;
    job_unlock(engine->job);
    engine->opening = NULL;
    for (uint32_t i = 0; i < NCCL_MAX_QUEUED && status == HSDP_OK; i++) {
        status = gpu_event_create(&engine->gpu, &group->queued[i], reterr);
        if (status == HSDP_OK) {
            status = gpu_event_create(&engine->gpu, &group->sent[i], reterr);
        }
    }
    if (status == HSDP_OK && group->n_ranks > 1) {
        status = communicator_init(engine, group, reterr);
    }
    if (status != HSDP_OK) {
        engine_fail(engine, reterr);
    }
    return status;
}

/* On the host's thread. */
static int32_t group_start(const struct groups_call *call, struct nccl_group *group,
                           struct hsdp_error *reterr)
{
    struct nccl_engine *engine = call->engine;
    struct wait_entry entries[LAUNCH_MAX_RANKS + 1];
    struct wait what = {.operation = call->operation, .group = group->name};

    what.deadline_ns = call->deadline_ns;
    what.record = job_is_connected(engine->job) ? 0 : engine->job->connecting;
    what.n_entries = 1; /* that of the order */
    for (uint32_t i = 0; i < group->n_ranks && group->n_ranks > 1; i++) {
        if (i != group->index) {
            entries[what.n_entries++] = (struct wait_entry){
                .counter = &group->board->lines[i]->has_come, .target = 1, .rank = group->ranks[i]};
        }
        what.peers |= UINT64_C(1) << group->ranks[i];
    }
    engine->opening = group;
    return engine_order(engine, group_open, &what, entries, reterr);
}

/* ---------------------------------------------------------------------------------- requests */

/* An order. */
static int32_t id_make(struct nccl_engine *engine, struct hsdp_error *reterr)
{
    nccl_result result;
    int32_t status;

    nccl_begin(engine, NULL, "ncclGetUniqueId");
    result = engine->nccl.unique_id(&engine->id);
    status = nccl_settle(engine, result, reterr);
    return status;
}

static int32_t request_fill(const struct groups_call *call, const struct nccl_wanted *wanted,
                            struct group_request *ret, struct hsdp_error *reterr)
{
    struct nccl_engine *engine = call->engine;
    struct wait_entry entry;
    struct wait what = {.operation = call->operation, .group = wanted->name};
    int32_t status = HSDP_OK;

    what.n_entries = 1;
    what.deadline_ns = call->deadline_ns;
    what.record = job_is_connected(engine->job) ? 0 : engine->job->connecting;
    ret->n_ranks = wanted->n_ranks;
    snprintf(ret->name, sizeof(ret->name), "%s", wanted->name);
    for (uint32_t i = 0; i < wanted->n_ranks; i++) {
        ret->ranks[i] = (uint8_t)wanted->ranks[i];
    }
    if (wanted->ranks[0] == engine->job->launch.rank) {
        status = engine_order(engine, id_make, &what, &entry, reterr);
        ret->id = engine->id;
        ret->has_id = 1;
    }
    return status;
}

static int32_t making_add(struct groups_call *call, const struct group_request *request,
                          struct nccl_making **ret, struct hsdp_error *reterr)
{
    struct nccl_making **last = &call->making;
    struct nccl_making *making;

    while (*last != NULL &&
           ((*last)->n_ranks != request->n_ranks ||
            memcmp((*last)->ranks, request->ranks, request->n_ranks * sizeof(uint8_t)) != 0)) {
        last = &(*last)->next;
    }
    making = *last;
    if (making == NULL) {
        making = calloc(1, sizeof(*making));
        if (making == NULL) {
            return error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: no memory for communicators");
        }
        making->n_ranks = request->n_ranks;
        memcpy(making->ranks, request->ranks, sizeof(making->ranks));
        memcpy(making->name, request->name, sizeof(making->name));
        *last = making;
    }
    *ret = making;
    return HSDP_OK;
}

/* All ranks take in the same requests in the same order, so their lists are equal. */
static int32_t requests_merge(struct groups_call *call, const struct group_request *all,
                              struct hsdp_error *reterr)
{
    uint32_t n = call->engine->job->launch.world_ranks * N_PER_EXCHANGE;
    int32_t status = HSDP_OK;

    for (uint32_t i = 0; i < n && status == HSDP_OK; i++) {
        struct nccl_making *making = NULL;

        if (all[i].n_ranks == 0) {
            continue;
        }
        status = making_add(call, &all[i], &making, reterr);
        if (status == HSDP_OK) {
            making->wanted_by |= UINT64_C(1) << i / N_PER_EXCHANGE;
        }
        if (status == HSDP_OK && all[i].has_id != 0 && !making->has_id) {
            making->id = all[i].id;
            making->has_id = true;
        }
    }
    return status;
}

/* All ranks say the next ones of what they want. */
static int32_t requests_round(struct groups_call *call, uint32_t *index, struct hsdp_error *reterr)
{
    struct hsdp_job *job = call->engine->job;
    struct group_request mine[N_PER_EXCHANGE];
    struct exchange what = {.operation = call->operation, .mine = mine, .n_bytes = sizeof(mine)};
    struct group_request *all = calloc(job->launch.world_ranks, sizeof(mine));
    int32_t status = all != NULL ? HSDP_OK
                                 : error_set(reterr, HSDP_ERR_NO_MEMORY,
                                             "nccl: no memory for what ranks ask for");

    what.deadline_ns = call->deadline_ns;
    memset(mine, 0, sizeof(mine));
    for (uint32_t i = 0; i < N_PER_EXCHANGE && status == HSDP_OK; i++) {
        const struct nccl_wanted *wanted = wanted_next(call, index);

        status = wanted == NULL ? HSDP_OK : request_fill(call, wanted, &mine[i], reterr);
    }
    status = exchange_agree_by(job, call->operation, status, call->deadline_ns, reterr);
    if (status == HSDP_OK) {
        status = exchange_all(job, &what, all, reterr);
    }
    if (status == HSDP_OK) {
        status = requests_merge(call, all, reterr);
        status = exchange_agree_by(job, call->operation, status, call->deadline_ns, reterr);
    }
    free(all);
    return status;
}

static int32_t rounds_count(const struct groups_call *call, uint32_t *ret_n_rounds,
                            struct hsdp_error *reterr)
{
    struct hsdp_job *job = call->engine->job;
    uint64_t all[LAUNCH_MAX_RANKS];
    uint64_t mine = 0;
    struct exchange what = {.operation = call->operation, .mine = &mine, .n_bytes = sizeof(mine)};
    uint32_t index = 0;
    int32_t status;

    while (wanted_next(call, &index) != NULL) {
        mine++;
    }
    what.deadline_ns = call->deadline_ns;
    status = exchange_all(job, &what, all, reterr);
    *ret_n_rounds = 0;
    for (uint32_t rank = 0; status == HSDP_OK && rank < job->launch.world_ranks; rank++) {
        uint32_t n_rounds = (uint32_t)((all[rank] + N_PER_EXCHANGE - 1) / N_PER_EXCHANGE);

        *ret_n_rounds = n_rounds > *ret_n_rounds ? n_rounds : *ret_n_rounds;
    }
    return status;
}

/* ------------------------------------------------------------------------------------ making */

/* All ranks see the same lists, so all find the same fault. */
static int32_t makings_check(const struct groups_call *call, struct hsdp_error *reterr)
{
    struct hsdp_job *job = call->engine->job;
    struct hsdp_error err;

    for (const struct nccl_making *m = call->making; m != NULL; m = m->next) {
        for (uint32_t i = 0; i < m->n_ranks; i++) {
            if ((m->wanted_by >> m->ranks[i] & 1u) != 0) {
                continue;
            }
            error_set(&err, HSDP_ERR_MISMATCH,
                      "%s: rank %d wants a communicator \"%s\" with rank %d, which does not",
                      call->operation, __builtin_ctzll(m->wanted_by), m->name, m->ranks[i]);
            error_where(&err, call->operation, m->name, NULL);
            failure_raise(job, &err);
            return failure_tell(job, reterr);
        }
    }
    return HSDP_OK;
}

static int32_t groups_create(const struct groups_call *call, struct hsdp_error *reterr)
{
    struct nccl_engine *engine = call->engine;
    int32_t status = HSDP_OK;

    for (struct nccl_making *m = call->making; m != NULL && status == HSDP_OK; m = m->next) {
        uint32_t ranks[LAUNCH_MAX_RANKS];

        if ((m->wanted_by >> engine->job->launch.rank & 1u) == 0) {
            continue;
        }
        for (uint32_t i = 0; i < m->n_ranks; i++) {
            ranks[i] = m->ranks[i];
        }
        status = group_create(engine, ranks, m->n_ranks, m->name, &m->group, reterr);
    }
    return status;
}

static int32_t groups_start(const struct groups_call *call, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (struct nccl_making *m = call->making; m != NULL && status == HSDP_OK; m = m->next) {
        struct nccl_group *group = m->group;

        if (group != NULL) {
            m->group = NULL; /* handed over */
            call->engine->id = m->id;
            status = group_start(call, group, reterr);
        }
    }
    return status;
}

static void makings_free(struct groups_call *call)
{
    while (call->making != NULL) {
        struct nccl_making *next = call->making->next;

        if (call->making->group != NULL) {
            group_free(call->engine, call->making->group);
        }
        free(call->making);
        call->making = next;
    }
}

static int32_t requests_run(struct groups_call *call, struct hsdp_error *reterr)
{
    struct hsdp_job *job = call->engine->job;
    uint32_t n_rounds = 0;
    uint32_t index = 0;
    int32_t status = rounds_count(call, &n_rounds, reterr);

    for (uint32_t round = 0; round < n_rounds && status == HSDP_OK; round++) {
        status = requests_round(call, &index, reterr);
    }
    if (status != HSDP_OK || call->making == NULL) {
        return status;
    }
    status = makings_check(call, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = groups_create(call, reterr);
    status = exchange_agree_by(job, call->operation, status, call->deadline_ns, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = boards_share(call->engine, call->making, reterr);
    status = exchange_agree_by(job, call->operation, status, call->deadline_ns, reterr);
    return status == HSDP_OK ? groups_start(call, reterr) : status;
}

/* Those of one rank, and where all of them are. */
static int32_t groups_collect(const struct groups_call *call, struct nccl_group **ret_groups,
                              struct hsdp_error *reterr)
{
    struct nccl_engine *engine = call->engine;
    int32_t status = HSDP_OK;

    for (uint32_t i = 0; i < call->n_wanted && status == HSDP_OK; i++) {
        const struct nccl_wanted *wanted = &call->wanted[i];
        struct nccl_group *group = group_find(engine, wanted->ranks, wanted->n_ranks);

        if (group == NULL) {
            status =
                group_create(engine, wanted->ranks, wanted->n_ranks, wanted->name, &group, reterr);
            if (status == HSDP_OK) {
                status = group_start(call, group, reterr);
            }
        }
        ret_groups[i] = group;
    }
    return status;
}

int32_t groups_make(struct groups_call *call, struct nccl_group **ret_groups,
                    struct hsdp_error *reterr)
{
    struct hsdp_job *job = call->engine->job;
    bool is_alone = job->launch.world_ranks == 1;
    struct hsdp_error err;
    int32_t status = is_alone ? HSDP_OK : requests_run(call, &err); /* on all ranks alike */

    makings_free(call);
    if (status == HSDP_OK) {
        status = groups_collect(call, ret_groups, &err);
        if (!is_alone) {
            status = exchange_agree_by(job, call->operation, status, call->deadline_ns, &err);
        }
    }
    if (status != HSDP_OK && reterr != NULL) {
        *reterr = err;
    }
    return status;
}

int32_t nccl_groups_make(struct hsdp_job *job, const struct nccl_wanted *wanted, uint32_t n_wanted,
                         struct nccl_group **ret_groups, struct hsdp_error *reterr)
{
    struct groups_call call = {.engine = job_nccl(job),
                               .operation = "communicators",
                               .wanted = wanted,
                               .n_wanted = n_wanted};

    return groups_make(&call, ret_groups, reterr);
}

/* ----------------------------------------------------------------------------------- reports */

void nccl_engine_write(const struct hsdp_job *job, struct text *text)
{
    const struct nccl_engine *engine = job_nccl(job);

    if (engine == NULL) {
        return;
    }
    json_open(text, "communicators", '[');
    for (const struct nccl_group *g = engine->groups; g != NULL; g = g->next) {
        if (g->n_ranks == 1) {
            continue;
        }
        json_open(text, NULL, '{');
        json_string(text, "name", g->name);
        json_open(text, "ranks", '[');
        for (uint32_t i = 0; i < g->n_ranks; i++) {
            json_uint(text, NULL, g->ranks[i]);
        }
        json_close(text, ']');
        json_uint(text, "device_bytes", g->memory_bytes);
        json_close(text, '}');
    }
    json_close(text, ']');
}
