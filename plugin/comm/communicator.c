/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: every rank learns what any has asked for, and all make it in one order. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "comm/group_internal.h"
#include "comm/nccl_coll.h"

#define OPERATION       "group.connect"
#define N_PER_EXCHANGE  16u
#define GROUP_NAME_TEXT 24u /* of a name, for sentences; the hash tells names apart */

struct group_request {
    uint64_t members; /* 0 = none */
    uint64_t name_hash;
    uint64_t timeout_ms;
    uint32_t instance;
    char name[GROUP_NAME_TEXT + 4];
};

_Static_assert(N_PER_EXCHANGE * sizeof(struct group_request) <= JOB_EXCHANGE_MAX_BYTES,
               "a batch of requests fits an exchange");

/* ------------------------------------------------------------------------------------ memory */

static uint64_t area_bytes(uint32_t n_ranks)
{
    return sizeof(struct area) + (uint64_t)n_ranks * 2u * CHUNK_BYTES;
}

/* As it lies in a rank's part of the file. */
static uint64_t area_stride(uint32_t n_ranks)
{
    return (area_bytes(n_ranks) + 65535u) / 65536u * 65536u; /* the largest page there is */
}

static void *area_map(int fd, uint64_t offset, uint32_t n_ranks)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *base = mmap(NULL, area_bytes(n_ranks), PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);

    return base == MAP_FAILED ? NULL : base;
}

void communicator_unmap(struct communicator *communicator)
{
    for (uint32_t i = 0; i < communicator->n_ranks; i++) {
        if (communicator->areas[i] != NULL) {
            munmap(communicator->areas[i], area_bytes(communicator->n_ranks));
            communicator->areas[i] = NULL;
        }
    }
}

void communicators_free(struct hsdp_job *job)
{
    while (job->gone_groups != NULL) {
        struct hsdp_group *next = job->gone_groups->next;

        nccl_coll_free(job->gone_groups);
        group_free(job->gone_groups);
        job->gone_groups = next;
    }
    while (job->communicators != NULL) {
        struct communicator *next = job->communicators->next;

        communicator_unmap(job->communicators);
        free(job->communicators);
        job->communicators = next;
    }
}

static bool is_member(const struct communicator *communicator, uint32_t rank)
{
    return (communicator->members >> rank & 1u) != 0;
}

/* From `first` on: where each rank's areas lie in its part, in order; maps those that are ours. */
static int32_t areas_map(struct hsdp_job *job, struct communicator *first,
                         const struct shared_memory *memory, struct hsdp_error *reterr)
{
    uint64_t used[GROUP_MAX_RANKS] = {0};

    for (struct communicator *c = first; c != NULL; c = c->next) {
        uint32_t index = 0;

        for (uint32_t rank = 0; rank < job->launch.world_ranks; rank++) {
            if (!is_member(c, rank)) {
                continue;
            }
            if (is_member(c, job->launch.rank)) {
                c->areas[index] =
                    area_map(memory->fd, memory->offsets[rank] + used[rank], c->n_ranks);
            }
            if (is_member(c, job->launch.rank) && c->areas[index] == NULL) {
                return error_set(reterr, HSDP_ERR_NO_MEMORY,
                                 OPERATION ": cannot map %" PRIu64 " bytes: %s",
                                 area_bytes(c->n_ranks), strerror(errno));
            }
            used[rank] += area_stride(c->n_ranks);
            index++;
        }
    }
    return HSDP_OK;
}

static int32_t areas_share(struct hsdp_job *job, struct communicator *first,
                           struct hsdp_error *reterr)
{
    struct shared_memory memory;
    uint64_t n_bytes = 0;
    int32_t status;

    for (const struct communicator *c = first; c != NULL; c = c->next) {
        n_bytes += is_member(c, job->launch.rank) ? area_stride(c->n_ranks) : 0;
    }
    status = job_share_memory(job, n_bytes, &memory, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = areas_map(job, first, &memory, reterr);
    shared_memory_fini(&memory);
    return exchange_agree(job, OPERATION, status, reterr);
}

/* ---------------------------------------------------------------------------------- requests */

static struct communicator *communicator_find(const struct hsdp_job *job, uint64_t members,
                                              uint64_t name_hash, uint32_t instance)
{
    struct communicator *c = job->communicators;

    while (c != NULL &&
           (c->members != members || c->name_hash != name_hash || c->instance != instance)) {
        c = c->next;
    }
    return c;
}

static uint32_t ranks_count(uint64_t mask)
{
    uint32_t n = 0;

    for (; mask != 0; mask &= mask - 1) {
        n++;
    }
    return n;
}

static int32_t communicator_add(struct hsdp_job *job, const struct group_request *request,
                                uint32_t rank, struct hsdp_error *reterr)
{
    struct communicator **last = &job->communicators;
    struct communicator *c = calloc(1, sizeof(*c));

    if (c == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, OPERATION ": no memory for %zu bytes",
                         sizeof(*c));
    }
    c->members = request->members;
    c->name_hash = request->name_hash;
    c->timeout_ms = request->timeout_ms;
    c->first_rank = rank;
    c->instance = request->instance;
    c->n_ranks = ranks_count(request->members);
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = c;
    return HSDP_OK;
}

static int32_t timeouts_differ(struct hsdp_job *job, const struct communicator *c,
                               const struct group_request *request, uint32_t rank,
                               struct hsdp_error *reterr)
{
    struct hsdp_error err;

    error_set(&err, HSDP_ERR_MISMATCH,
              OPERATION ": group \"%.*s\" has a timeout of %" PRIu64 " ms on rank %" PRIu32
                        ", %" PRIu64 " ms on rank %" PRIu32 " (0 = the job's)",
              (int)GROUP_NAME_TEXT, request->name, c->timeout_ms, c->first_rank,
              request->timeout_ms, rank);
    error_where(&err, OPERATION, request->name, NULL);
    failure_raise(job, &err);
    return failure_tell(job, reterr);
}

/* All ranks take in the same requests in the same order, so their lists stay equal. */
static int32_t requests_merge(struct hsdp_job *job, const struct group_request *all,
                              struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (uint32_t i = 0; i < job->launch.world_ranks * N_PER_EXCHANGE; i++) {
        const struct group_request *request = &all[i];
        const struct communicator *known;

        if (request->members == 0 || status != HSDP_OK) {
            continue;
        }
        known = communicator_find(job, request->members, request->name_hash, request->instance);
        if (known == NULL) {
            status = communicator_add(job, request, i / N_PER_EXCHANGE, reterr);
        } else if (known->timeout_ms != request->timeout_ms) {
            status = timeouts_differ(job, known, request, i / N_PER_EXCHANGE, reterr);
        }
    }
    return status;
}

/* Groups that wait for connect and need a communicator, oldest first; at most max of them from
 * the `skip`-th on. Returns how many there are in all. */
static uint64_t requests_fill(const struct hsdp_job *job, uint64_t skip,
                              struct group_request *ret_requests)
{
    uint64_t n_waiting = 0;
    uint64_t position;

    for (const struct hsdp_group *g = job->groups; g != NULL; g = g->next) {
        n_waiting += !g->is_connected && g->n_ranks > 1;
    }
    position = n_waiting;
    for (const struct hsdp_group *g = job->groups; g != NULL; g = g->next) {
        struct group_request *request;

        if (g->is_connected || g->n_ranks == 1) {
            continue;
        }
        position--; /* the list has the newest first */
        if (position < skip || position - skip >= N_PER_EXCHANGE) {
            continue;
        }
        request = &ret_requests[position - skip];
        request->members = g->members;
        request->name_hash = g->name_hash;
        request->timeout_ms = g->timeout_ms;
        request->instance = g->instance;
        strncpy(request->name, g->name, GROUP_NAME_TEXT);
    }
    return n_waiting;
}

static int32_t rounds_agree(struct hsdp_job *job, uint64_t *ret_n_rounds, struct hsdp_error *reterr)
{
    struct group_request requests[N_PER_EXCHANGE];
    uint64_t all[GROUP_MAX_RANKS];
    uint64_t mine;
    int32_t status;

    memset(requests, 0, sizeof(requests));
    mine = requests_fill(job, 0, requests);
    status = job_exchange(job, OPERATION, &mine, sizeof(mine), all, reterr);
    *ret_n_rounds = 0;
    for (uint32_t rank = 0; status == HSDP_OK && rank < job->launch.world_ranks; rank++) {
        uint64_t n_rounds = (all[rank] + N_PER_EXCHANGE - 1) / N_PER_EXCHANGE;

        *ret_n_rounds = n_rounds > *ret_n_rounds ? n_rounds : *ret_n_rounds;
    }
    return status;
}

static int32_t requests_exchange(struct hsdp_job *job, uint64_t round, struct group_request *all,
                                 struct hsdp_error *reterr)
{
    struct group_request mine[N_PER_EXCHANGE];
    int32_t status;

    memset(mine, 0, sizeof(mine));
    requests_fill(job, round * N_PER_EXCHANGE, mine);
    status = job_exchange(job, OPERATION, mine, sizeof(mine), all, reterr);
    if (status == HSDP_OK) {
        status = requests_merge(job, all, reterr);
        if (status == HSDP_OK || !error_fails_job(status)) {
            status = exchange_agree(job, OPERATION, status, reterr);
        }
    }
    return status;
}

/* ----------------------------------------------------------------------------------- connect */

/* A group of one has a communicator of its own, which nobody else knows. */
static int32_t single_make(struct hsdp_group *group, struct hsdp_error *reterr)
{
    struct communicator *single = calloc(1, sizeof(*single));

    if (single != NULL) {
        single->n_ranks = 1;
        single->areas[0] = area_map(-1, 0, 1);
    }
    if (single == NULL || single->areas[0] == NULL) {
        free(single);
        return error_set(reterr, HSDP_ERR_NO_MEMORY, OPERATION ": no memory for group \"%s\"",
                         group->name);
    }
    group->communicator = single;
    return HSDP_OK;
}

/* Those that an earlier call has made, and then failed, are kept. */
static int32_t singles_make(struct hsdp_job *job, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (struct hsdp_group *g = job->groups; g != NULL && status == HSDP_OK; g = g->next) {
        if (g->n_ranks == 1 && g->communicator == NULL) {
            status = single_make(g, reterr);
        }
    }
    return status;
}

static void group_attach(struct hsdp_group *group)
{
    if (group->n_ranks > 1) {
        group->communicator =
            communicator_find(group->job, group->members, group->name_hash, group->instance);
        group->communicator->is_taken = true;
    }
    group->is_connected = true;
}

/* Forgets what was added from `first` on: it has come to nothing, on all ranks alike. */
static void communicators_drop(struct hsdp_job *job, struct communicator *first)
{
    struct communicator **link = &job->communicators;

    while (*link != first) {
        link = &(*link)->next;
    }
    *link = NULL;
    while (first != NULL) {
        struct communicator *next = first->next;

        communicator_unmap(first);
        free(first);
        first = next;
    }
}

static int32_t communicators_make(struct hsdp_job *job, struct communicator **ret_first,
                                  struct hsdp_error *reterr)
{
    struct communicator *last = job->communicators;
    struct group_request *all;
    uint64_t n_rounds;
    int32_t status;

    while (last != NULL && last->next != NULL) {
        last = last->next;
    }
    status = rounds_agree(job, &n_rounds, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    all = calloc(GROUP_MAX_RANKS * N_PER_EXCHANGE, sizeof(*all));
    status = all == NULL ? error_set(reterr, HSDP_ERR_NO_MEMORY, OPERATION ": no memory") : HSDP_OK;
    status = exchange_agree(job, OPERATION, status, reterr);
    for (uint64_t round = 0; round < n_rounds && status == HSDP_OK; round++) {
        status = requests_exchange(job, round, all, reterr);
    }
    free(all);
    *ret_first = last == NULL ? job->communicators : last->next;
    if (status == HSDP_OK && *ret_first != NULL) {
        status = job->has_device ? nccl_coll_connect(job, *ret_first, reterr)
                                 : areas_share(job, *ret_first, reterr);
    }
    return status;
}

int32_t group_connect(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct communicator *first = NULL;
    int32_t status;

    if (!job_is_connected(job)) {
        return error_set(reterr, HSDP_ERR_STATE, OPERATION ": needs a connected job");
    }
    status = job_check_host(job, OPERATION, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = singles_make(job, reterr);
    if (status == HSDP_OK) { /* which ends with an exchange: nothing may fail behind it */
        status = communicators_make(job, &first, reterr);
    }
    if (status != HSDP_OK) {
        if (first != NULL) {
            communicators_drop(job, first);
        }
        return status;
    }
    for (struct hsdp_group *g = job->groups; g != NULL; g = g->next) {
        if (!g->is_connected) {
            group_attach(g);
        }
    }
    return HSDP_OK;
}
