/* SPDX-License-Identifier: Apache-2.0 */
/* The end of communicators: finalized, aborted or revoked; and what becomes of those that hang. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/nccl_internal.h"

#define FINALIZE_MS 1000u
#define REVOKE_MS   1000u

/* ---------------------------------------------------------------------------------- the wedged */

/*
 * State outside of objects: what an earlier job of the process has left behind stands in the way of
 * the next one, which knows nothing of it. NCCL has one set of variables for all of them.
 */
static pthread_mutex_t wedged_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t n_wedged;
static char wedged_reason[300];

int32_t wedged_check(struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    pthread_mutex_lock(&wedged_lock);
    if (n_wedged > 0) {
        status = error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: this process is wedged: %s",
                           wedged_reason);
    }
    pthread_mutex_unlock(&wedged_lock);
    return status;
}

void wedged_add(struct nccl_engine *engine)
{
    char where[200];

    nccl_engine_where(engine->job, where, sizeof(where));
    pthread_mutex_lock(&wedged_lock);
    n_wedged++;
    snprintf(wedged_reason, sizeof(wedged_reason), "job \"%s\" has ended, but %s",
             engine->job->name, where);
    pthread_mutex_unlock(&wedged_lock);
}

void wedged_remove(void)
{
    pthread_mutex_lock(&wedged_lock);
    n_wedged--;
    pthread_mutex_unlock(&wedged_lock);
}

/* ------------------------------------------------------------------------------ communicators */

/* Until NCCL has an answer, or the time is over. */
static nccl_result answer_await(struct nccl_engine *engine, struct nccl_group *group,
                                uint64_t limit_ns)
{
    nccl_result answer = NCCL_OK;
    nccl_result result;

    do {
        result = engine->nccl.async_error(group->comm, &answer);
        if (answer == NCCL_IN_PROGRESS) {
            engine_sleep(engine);
        }
    } while (result == NCCL_OK && answer == NCCL_IN_PROGRESS && clock_now_ns() < limit_ns);
    return result == NCCL_OK ? answer : result;
}

/*
 * In one group: so all of them are marked before NCCL waits for the kernels of any, which may stand
 * behind those of another on the device. What it says no longer matters: the job has failed, or is
 * over.
 */
void communicators_abort(struct nccl_engine *engine)
{
    if (engine->groups == NULL || engine->nccl.group_start == NULL) {
        return; /* a world of one has loaded no NCCL */
    }
    nccl_begin(engine, NULL, "ncclCommAbort");
    engine->nccl.group_start();
    for (struct nccl_group *g = engine->groups; g != NULL; g = g->next) {
        if (g->comm != NULL) {
            engine->nccl.comm_abort(g->comm);
            g->comm = NULL; /* whatever comes of it: a second time would be one too many */
        }
    }
    engine->nccl.group_end();
    engine_return(engine);
    atomic_store(&engine->call, NULL);
}

void communicators_revoke(struct nccl_engine *engine)
{
    uint64_t limit_ns = clock_deadline_ns(REVOKE_MS);

    for (struct nccl_group *g = engine->groups; g != NULL; g = g->next) {
        if (g->comm == NULL) {
            continue;
        }
        nccl_begin(engine, g, "ncclCommRevoke");
        engine->nccl.comm_revoke(g->comm, 0);
        engine_return(engine);
        answer_await(engine, g, limit_ns);
        atomic_store(&engine->call, NULL);
    }
}

static void group_finalize(struct nccl_engine *engine, struct nccl_group *group, uint64_t limit_ns)
{
    nccl_comm comm = group->comm;
    nccl_result result;

    nccl_begin(engine, group, "ncclCommFinalize");
    result = engine->nccl.comm_finalize(comm);
    engine_return(engine);
    if ((result == NCCL_OK || result == NCCL_IN_PROGRESS) &&
        answer_await(engine, group, limit_ns) == NCCL_OK) {
        nccl_begin(engine, group, "ncclCommDestroy");
        engine->nccl.comm_destroy(comm);
        group->comm = NULL;
        engine_return(engine);
    }
    atomic_store(&engine->call, NULL);
}

void communicators_finalize(struct nccl_engine *engine)
{
    uint64_t limit_ns = clock_deadline_ns(FINALIZE_MS);

    for (struct nccl_group *g = engine->groups; g != NULL; g = g->next) {
        if (g->comm != NULL && clock_now_ns() < limit_ns) {
            group_finalize(engine, g, limit_ns);
        }
    }
}
