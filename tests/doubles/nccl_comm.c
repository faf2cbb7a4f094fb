/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: communicators, from the call that asks for one to the one that ends it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doubles/nccl_double.h"

static struct ncclComm *comms; /* all that ever were: with comm_lock */

/* ---------------------------------------------------------------------------- their states */

nccl_result comm_check(const struct ncclComm *comm, const char *call)
{
    if (comm == NULL || comm->magic != COMM_LIVE) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "%s: %s", call,
                         comm == NULL ? "no communicator" : "the communicator was destroyed");
    }
    return NCCL_OK;
}

int32_t comm_state(struct ncclComm *comm)
{
    int64_t limit;

    if (comm->wire.seats != NULL && double_fault("async_error", &limit) &&
        collectives_count(0) >= (uint64_t)limit) {
        nccl_fail(NCCL_REMOTE_ERROR, "a peer is gone");
        return NCCL_REMOTE_ERROR;
    }
    return atomic_load(&comm->state);
}

nccl_result comm_check_ready(struct ncclComm *comm, const char *call)
{
    nccl_result result = comm_check(comm, call);

    if (result != NCCL_OK) {
        return result;
    }
    result = comm_state(comm);
    if (result == NCCL_IN_PROGRESS) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "%s: the call before it has not come to its end", call);
    }
    launch_collect(comm, true);
    return result == NCCL_OK ? NCCL_OK : nccl_fail(result, "%s: the communicator has failed", call);
}

bool comm_is_stopped(const struct ncclComm *comm)
{
    return atomic_load(&comm->is_stopped) ||
           (comm->parent != NULL && atomic_load(&comm->parent->is_stopped) &&
            !comm->parent->is_revoked);
}

void comm_stop(struct ncclComm *comm)
{
    atomic_store(&comm->is_stopped, true);
    pthread_mutex_lock(&comm_lock);
    pthread_cond_broadcast(&comm_changed);
    pthread_mutex_unlock(&comm_lock);
    if (atomic_load(&comm->is_mapped)) {
        wire_ring(&comm->wire, comm->wire.rank);
    }
}

struct ncclComm *comm_create(uint32_t n_ranks, uint32_t rank, const struct nccl_config *config)
{
    struct ncclComm *comm = calloc(1, sizeof(*comm));
    const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");

    if (comm == NULL) {
        nccl_die("no memory for a communicator");
    }
    comm->magic = COMM_LIVE;
    comm->n_ranks = n_ranks;
    comm->rank = rank;
    comm->config = *config;
    comm->is_implicitly_ordered = order != NULL && strcmp(order, "1") == 0;
    atomic_init(&comm->state, NCCL_IN_PROGRESS);
    for (uint32_t i = 0; i < MAX_RED_OPS; i++) {
        comm->red_ops[i].op = NCCL_N_OPS;
    }
    pthread_mutex_lock(&comm_lock);
    comm->next = comms;
    comms = comm;
    pthread_mutex_unlock(&comm_lock);
    return comm;
}

nccl_result comm_release(struct ncclComm *comm)
{
    cu_context former;
    cu_result result = CU_OK;

    if (atomic_load(&comm->is_mapped)) {
        atomic_store(&comm->wire.seats[comm->rank].has_left, 1);
        wire_ring_all(&comm->wire);
    }
    wire_unmap(&comm->wire);
    if (comm->memory != 0) {
        result = cuCtxPushCurrent_v2(comm->context);
        if (result == CU_OK) {
            result = cuMemFree_v2(comm->memory);
            cuCtxPopCurrent_v2(&former);
        }
    }
    comm->magic = COMM_DEAD;
    return result == CU_OK
               ? NCCL_OK
               : nccl_fail(NCCL_CUDA_ERROR, "device memory is not given back (%d)", result);
}

/* ------------------------------------------------------------------------------------ jobs */

/* A rank is through with its work, and then waits until all are. */
static nccl_result comm_quiesce(struct ncclComm *comm)
{
    uint32_t rank = 0;

    plans_wait(comm);
    atomic_store(&comm->wire.seats[comm->rank].has_left, 1);
    wire_ring_all(&comm->wire);
    while (rank < comm->n_ranks && !comm_is_stopped(comm)) {
        uint32_t bell = wire_bell(&comm->wire);

        if (atomic_load(&comm->wire.seats[rank].has_left) != 0) {
            rank++;
        } else {
            wire_sleep(&comm->wire, bell);
        }
    }
    return NCCL_OK;
}

/* Nobody can poll a communicator that never came about, so one that blocks is taken back. */
static nccl_result job_init(const struct job *job)
{
    nccl_result result = init_run(job->comm, &job->id);

    if (job->comm->config.blocking != 0 && result != NCCL_OK) {
        *job->ret_comm = NULL;
        comm_release(job->comm);
    }
    return result;
}

/* There is no child yet for as long as it is made, and none at all for a rank without color. */
static nccl_result job_split(const struct job *job)
{
    nccl_result result = init_run_split(job->child, job->color_key, job->ret_comm);

    if (result != NCCL_OK || job->color_key[0] == NCCL_SPLIT_NO_COLOR) {
        comm_release(job->child);
    }
    return result;
}

nccl_result job_run(struct job *job)
{
    struct ncclComm *comm = job->comm;

    switch (job->kind) {
    case JOB_INIT:
        return job_init(job);
    case JOB_SPLIT:
        return job_split(job);
    case JOB_FINALIZE:
        return comm_quiesce(comm);
    case JOB_REVOKE:
        plans_wait(comm);
        return NCCL_OK;
    case JOB_DESTROY:
        if (!comm->is_finalized && !comm->is_revoked) {
            comm_quiesce(comm);
        }
        plans_wait(comm);
        return comm_release(comm);
    default:
        launch_collect(comm, true);
        plans_wait(comm);
        return comm_release(comm);
    }
}

/* ----------------------------------------------------------------------------------- calls */

/* A call has failed before anything was begun: the group has, and a communicator that is polled. */
static nccl_result call_refuse(struct ncclComm *comm, nccl_result result)
{
    group_fail(result);
    group_leave();
    if (comm != NULL && comm->magic == COMM_LIVE && comm->config.blocking == 0) {
        atomic_store(&comm->state, result);
    }
    return call_leave(result);
}

static nccl_result init_check(nccl_comm *ret_comm, int32_t n_ranks, int32_t rank,
                              cu_context *ret_context)
{
    cu_result result = cuCtxGetCurrent(ret_context);

    if (result != CU_OK || *ret_context == NULL) {
        return nccl_fail(NCCL_CUDA_ERROR, "ncclCommInitRankConfig: no device is current (%d)",
                         result);
    }
    if (ret_comm == NULL || n_ranks < 1 || rank < 0 || rank >= n_ranks) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "ncclCommInitRankConfig: rank %d of %d", rank, n_ranks);
    }
    return NCCL_OK;
}

nccl_result ncclCommInitRankConfig(nccl_comm *ret_comm, int32_t n_ranks, struct nccl_unique_id id,
                                   int32_t rank, struct nccl_config *config)
{
    struct job job = {.kind = JOB_INIT, .id = id, .ret_comm = ret_comm};
    struct nccl_config effective;
    cu_context context;
    nccl_result result;

    call_enter("ncclCommInitRankConfig");
    while (double_fault("init_blocks", NULL)) {
        pause();
    }
    group_enter();
    result = init_check(ret_comm, n_ranks, rank, &context);
    if (result == NCCL_OK) {
        result = config_check(config, &effective);
    }
    if (result != NCCL_OK) {
        return call_refuse(NULL, result);
    }
    job.comm = comm_create((uint32_t)n_ranks, (uint32_t)rank, &effective);
    job.comm->context = context;
    *ret_comm = job.comm;
    group_add_job(&job);
    return call_leave(group_leave());
}

nccl_result ncclCommSplit(nccl_comm comm, int32_t color, int32_t key, nccl_comm *ret_comm,
                          struct nccl_config *config)
{
    struct job job = {.kind = JOB_SPLIT, .comm = comm, .ret_comm = ret_comm};
    struct nccl_config effective;
    nccl_result result;

    call_enter("ncclCommSplit");
    group_enter();
    result = comm_check_ready(comm, "ncclCommSplit");
    if (result == NCCL_OK && (ret_comm == NULL || color < NCCL_SPLIT_NO_COLOR)) {
        result = nccl_fail(NCCL_BAD_ARGUMENT, "ncclCommSplit: color %d", color);
    }
    if (result == NCCL_OK) {
        effective = comm->config;
        result = config != NULL ? config_check(config, &effective) : NCCL_OK;
    }
    if (result != NCCL_OK) {
        return call_refuse(comm, result);
    }
    *ret_comm = NULL;
    job.color_key[0] = color;
    job.color_key[1] = key;
    job.child = comm_create(1, 0, &effective);
    job.child->parent = comm;
    job.child->context = comm->context;
    group_add_job(&job);
    return call_leave(group_leave());
}

nccl_result ncclCommFinalize(nccl_comm comm)
{
    struct job job = {.kind = JOB_FINALIZE, .comm = comm};
    nccl_result result;

    if (comm == NULL) {
        return NCCL_OK;
    }
    call_enter("ncclCommFinalize");
    group_enter();
    result = comm_check_ready(comm, "ncclCommFinalize");
    if (result == NCCL_OK && comm->is_finalized) {
        result = nccl_fail(NCCL_BAD_ARGUMENT, "ncclCommFinalize: it was called before");
    } else if (result == NCCL_OK && comm->is_revoked) {
        result = nccl_fail(NCCL_BAD_USAGE, "ncclCommFinalize: the communicator was revoked");
    }
    if (result != NCCL_OK) {
        return call_refuse(comm, result);
    }
    comm->is_finalized = true;
    group_add_job(&job);
    return call_leave(group_leave());
}

nccl_result ncclCommDestroy(nccl_comm comm)
{
    struct job job = {.kind = JOB_DESTROY, .comm = comm};
    nccl_result result;

    if (comm == NULL) {
        return NCCL_OK;
    }
    call_enter("ncclCommDestroy");
    group_enter();
    result = comm_check_ready(comm, "ncclCommDestroy");
    if (result != NCCL_OK) {
        return call_refuse(NULL, result);
    }
    group_add_job(&job);
    return call_leave(group_leave());
}

nccl_result ncclCommAbort(nccl_comm comm)
{
    struct job job = {.kind = JOB_ABORT, .comm = comm};
    nccl_result result;

    if (comm == NULL) {
        return NCCL_OK;
    }
    call_enter("ncclCommAbort");
    while (double_fault("abort_hangs", NULL)) {
        pause();
    }
    group_enter();
    result = comm_check(comm, "ncclCommAbort");
    if (result != NCCL_OK) {
        return call_refuse(NULL, result);
    }
    comm_stop(comm);
    group_add_job(&job);
    return call_leave(group_leave());
}

nccl_result ncclCommRevoke(nccl_comm comm, int32_t flags)
{
    struct job job = {.kind = JOB_REVOKE, .comm = comm};
    nccl_result result;

    if (comm == NULL) {
        return NCCL_OK;
    }
    call_enter("ncclCommRevoke");
    group_enter();
    result = comm_check(comm, "ncclCommRevoke");
    if (result == NCCL_OK && (flags != 0 || comm->is_revoked)) {
        result = nccl_fail(NCCL_BAD_ARGUMENT, "ncclCommRevoke: flags %d%s", flags,
                           comm->is_revoked ? ", and it was called before" : "");
    }
    if (result != NCCL_OK) {
        return call_refuse(NULL, result);
    }
    comm->is_revoked = true;
    comm_stop(comm);
    launch_collect(comm, true);
    atomic_store(&comm->state, NCCL_OK);
    group_add_job(&job);
    return call_leave(group_leave());
}

nccl_result ncclCommGetAsyncError(nccl_comm comm, nccl_result *ret_error)
{
    nccl_result result;

    call_enter("ncclCommGetAsyncError");
    result = comm_check(comm, "ncclCommGetAsyncError");
    if (result == NCCL_OK && ret_error == NULL) {
        result = nccl_fail(NCCL_BAD_ARGUMENT, "ncclCommGetAsyncError: nowhere to put the error");
    }
    if (result == NCCL_OK) {
        *ret_error = comm_state(comm);
        if (*ret_error == NCCL_IN_PROGRESS) {
            launch_was_seen(comm);
        } else if (*ret_error == NCCL_OK) {
            launch_collect(comm, true);
        }
    }
    return call_leave(result);
}
