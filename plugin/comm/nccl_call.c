/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of NCCL: put in order, begun, and waited for until they are on the stream. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/nccl_internal.h"

/* NCCL notices the death of a peer before the watchdog has said who it was. */
#define VERDICT_MS 500u

#define ASK_MS 20u /* between two looks at how communicators are */

/* ------------------------------------------------------------------------------- its answers */

static void verdict_await(struct nccl_engine *engine)
{
    uint64_t limit_ns = clock_deadline_ns(VERDICT_MS);

    while (failure_first(engine->job) == NULL && clock_now_ns() < limit_ns) {
        usleep(5000);
    }
}

int32_t nccl_check(struct nccl_engine *engine, struct nccl_group *group, const char *call,
                   nccl_result result, struct hsdp_error *reterr)
{
    const char *last;
    const char *words;

    if (result == NCCL_OK || result == NCCL_IN_PROGRESS) {
        return HSDP_OK;
    }
    if (result == NCCL_REMOTE_ERROR || result == NCCL_SYSTEM_ERROR) {
        verdict_await(engine);
    }
    words = engine->nccl.error_string(result);
    last = engine->nccl.last_error(group == NULL ? NULL : group->comm);
    error_set(reterr, HSDP_ERR_DEVICE, "%s%s%s%s on rank %" PRIu32 ": %s (%" PRId32 ")%s%.200s",
              call, group == NULL ? "" : " of group \"", group == NULL ? "" : group->name,
              group == NULL ? "" : "\"", engine->job->launch.rank, words, result,
              last == NULL || last[0] == '\0' ? "" : ": ", last == NULL ? "" : last);
    error_where(reterr, NULL, group == NULL ? NULL : group->name, NULL);
    return HSDP_ERR_DEVICE;
}

void nccl_begin(struct nccl_engine *engine, struct nccl_group *group, const char *call)
{
    atomic_store(&engine->call_ns, clock_now_ns());
    atomic_store(&engine->call_group, group);
    atomic_store(&engine->call, call);
    engine_leave(engine);
}

static nccl_result comm_ask(struct nccl_engine *engine, struct nccl_group *group)
{
    nccl_result answer = NCCL_OK;
    nccl_result result;

    engine_leave(engine);
    result = engine->nccl.async_error(group->comm, &answer);
    engine_return(engine);
    return result == NCCL_OK ? answer : result;
}

int32_t nccl_settle(struct nccl_engine *engine, nccl_result result, struct hsdp_error *reterr)
{
    struct nccl_group *group = atomic_load(&engine->call_group);
    const char *call = atomic_load(&engine->call);
    int32_t status;

    engine_return(engine);
    engine->moved_ns = clock_now_ns();
    status = nccl_check(engine, group, call, result, reterr);
    while (status == HSDP_OK && group != NULL && group->comm != NULL &&
           (result = comm_ask(engine, group)) != NCCL_OK) {
        status = nccl_check(engine, group, call, result, reterr);
        if (status == HSDP_OK) {
            status = engine_pause(engine, reterr);
        }
    }
    engine->moved_ns = clock_now_ns();
    atomic_store(&engine->call, NULL);
    return status;
}

int32_t nccl_ask(struct nccl_engine *engine, struct hsdp_error *reterr)
{
    uint64_t now_ns = clock_now_ns();
    int32_t status = HSDP_OK;

    if (now_ns - engine->asked_ns < ASK_MS * CLOCK_NS_PER_MS) {
        return HSDP_OK;
    }
    engine->asked_ns = now_ns;
    for (struct nccl_group *g = engine->groups; g != NULL && status == HSDP_OK; g = g->next) {
        if (g->comm != NULL) {
            status = nccl_check(engine, g, "ncclCommGetAsyncError", comm_ask(engine, g), reterr);
        }
    }
    return status;
}

/* -------------------------------------------------------------------------------- collectives */

/* Waits until the device has come to the one that was begun NCCL_MAX_QUEUED before; so far n. */
static int32_t queue_await(struct nccl_engine *engine, const cu_event *queued, uint64_t n,
                           struct hsdp_error *reterr)
{
    cu_event oldest = queued[n % NCCL_MAX_QUEUED];
    int32_t status = HSDP_OK;

    while (status == HSDP_OK && n >= NCCL_MAX_QUEUED) {
        engine_leave(engine);
        status = gpu_event_query(&engine->gpu, oldest, reterr);
        engine_return(engine);
        if (status != HSDP_PENDING) {
            break;
        }
        status = engine_pause(engine, reterr);
    }
    return status;
}

/*
 * Kernels of two communicators that wait for peers at the same time can keep those from beginning.
 * So they come to the device in the order in which they are called, the same on all ranks.
 */
static int32_t order_keep(struct nccl_engine *engine, struct nccl_group *group, cu_stream stream,
                          struct hsdp_error *reterr)
{
    if (!engine->is_serial || engine->last_group == NULL || engine->last_group == group ||
        engine->last_stream == stream) {
        return HSDP_OK;
    }
    return gpu_stream_wait(&engine->gpu, stream, engine->last_event, reterr);
}

/* What was captured is launched again and again by the host's graph, which NCCL waits for. */
static int32_t capture_look(struct nccl_engine *engine, cu_stream stream, struct hsdp_error *reterr)
{
    bool is_capturing = false;
    int32_t status = gpu_is_capturing(&engine->gpu, stream, &is_capturing, reterr);

    engine->has_graphs |= is_capturing;
    return status;
}

static int32_t collective_begin(struct nccl_task *task, struct nccl_group *group,
                                struct nccl_signature *signature, const char *call,
                                struct hsdp_error *reterr)
{
    struct nccl_engine *engine = task->engine;
    const char *what = task->what != NULL ? task->what : task->label.unit;
    int32_t status;

    assert(group->n_ranks > 1 && group->comm != NULL);
    if (what != NULL) {
        snprintf(signature->what, sizeof(signature->what), "%s", what);
    }
    status = queue_await(engine, group->queued, group->n_collectives, reterr);
    if (status == HSDP_OK) {
        status = order_keep(engine, group, task->stream, reterr);
    }
    if (status == HSDP_OK) {
        status = capture_look(engine, task->stream, reterr);
    }
    if (status == HSDP_OK) {
        status = board_post(engine, group, signature, reterr);
    }
    if (status == HSDP_OK) {
        nccl_begin(engine, group, call);
    }
    return status;
}

/* `end` becomes the end of what was called. */
static int32_t call_end(struct nccl_task *task, struct nccl_group *group, cu_event end,
                        nccl_result result, struct hsdp_error *reterr)
{
    struct nccl_engine *engine = task->engine;
    int32_t status = nccl_settle(engine, result, reterr);

    if (status == HSDP_OK) {
        status = gpu_event_record(&engine->gpu, end, task->stream, reterr);
    }
    engine->last_group = group;
    engine->last_stream = task->stream;
    engine->last_event = end;
    return status;
}

static int32_t collective_end(struct nccl_task *task, struct nccl_group *group, nccl_result result,
                              struct hsdp_error *reterr)
{
    cu_event end = group->queued[(group->n_collectives - 1) % NCCL_MAX_QUEUED];

    return call_end(task, group, end, result, reterr);
}

int32_t nccl_all_gather(struct nccl_task *task, struct nccl_group *group, const void *send,
                        void *recv, uint64_t n_send_elems, int32_t dtype, struct hsdp_error *reterr)
{
    struct nccl_signature signature = {
        .kind = NCCL_ALL_GATHER, .n_elems = n_send_elems, .dtype = dtype};
    int32_t status = collective_begin(task, group, &signature, "ncclAllGather", reterr);

    return status != HSDP_OK
               ? status
               : collective_end(task, group,
                                task->engine->nccl.all_gather(send, recv, n_send_elems, dtype,
                                                              group->comm, task->stream),
                                reterr);
}

int32_t nccl_reduce_scatter(struct nccl_task *task, struct nccl_group *group, const void *send,
                            void *recv, uint64_t n_recv_elems, int32_t dtype,
                            struct hsdp_error *reterr)
{
    struct nccl_signature signature = {
        .kind = NCCL_REDUCE_SCATTER, .n_elems = n_recv_elems, .dtype = dtype};
    int32_t status = collective_begin(task, group, &signature, "ncclReduceScatter", reterr);

    return status != HSDP_OK
               ? status
               : collective_end(task, group,
                                task->engine->nccl.reduce_scatter(send, recv, n_recv_elems, dtype,
                                                                  NCCL_SUM, group->comm,
                                                                  task->stream),
                                reterr);
}

int32_t nccl_all_reduce(struct nccl_task *task, struct nccl_group *group, const void *send,
                        void *recv, uint64_t n_elems, int32_t dtype, int32_t op,
                        struct hsdp_error *reterr)
{
    struct nccl_signature signature = {
        .kind = NCCL_ALL_REDUCE, .n_elems = n_elems, .dtype = dtype, .op = op};
    int32_t status = collective_begin(task, group, &signature, "ncclAllReduce", reterr);

    return status != HSDP_OK
               ? status
               : collective_end(task, group,
                                task->engine->nccl.all_reduce(send, recv, n_elems, dtype, op,
                                                              group->comm, task->stream),
                                reterr);
}

int32_t nccl_broadcast(struct nccl_task *task, struct nccl_group *group, const void *send,
                       void *recv, uint64_t n_elems, int32_t dtype, uint32_t root,
                       struct hsdp_error *reterr)
{
    struct nccl_signature signature = {
        .kind = NCCL_BROADCAST, .n_elems = n_elems, .dtype = dtype, .root = root};
    int32_t status = collective_begin(task, group, &signature, "ncclBroadcast", reterr);

    return status != HSDP_OK
               ? status
               : collective_end(task, group,
                                task->engine->nccl.broadcast(send, recv, n_elems, dtype,
                                                             (int32_t)root, group->comm,
                                                             task->stream),
                                reterr);
}

/* A group that was started is ended, whatever comes in between. */
static nccl_result messages_call(struct nccl_task *task, const struct nccl_group *group,
                                 const struct nccl_message *messages, uint32_t n_messages)
{
    const struct nccl *nccl = &task->engine->nccl;
    nccl_result result = nccl->group_start();
    nccl_result end;

    if (result != NCCL_OK) {
        return result;
    }
    for (uint32_t i = 0; i < n_messages && result == NCCL_OK; i++) {
        const struct nccl_message *m = &messages[i];

        result = m->is_send ? nccl->send(m->address, m->n_bytes, NCCL_UINT8, (int32_t)m->peer,
                                         group->comm, task->stream)
                            : nccl->recv(m->address, m->n_bytes, NCCL_UINT8, (int32_t)m->peer,
                                         group->comm, task->stream);
        result = result == NCCL_IN_PROGRESS ? NCCL_OK : result;
    }
    end = nccl->group_end();
    return result != NCCL_OK ? result : end;
}

int32_t nccl_exchange(struct nccl_task *task, struct nccl_group *group,
                      const struct nccl_message *messages, uint32_t n_messages,
                      struct hsdp_error *reterr)
{
    struct nccl_signature signature = {.kind = NCCL_EXCHANGE};
    int32_t status = collective_begin(task, group, &signature, "ncclGroupEnd", reterr);

    return status != HSDP_OK
               ? status
               : collective_end(task, group, messages_call(task, group, messages, n_messages),
                                reterr);
}

/* Members that none of them concerns do not know of it, so there is nothing to show on the board.
 */
int32_t nccl_messages(struct nccl_task *task, struct nccl_group *group,
                      const struct nccl_message *messages, uint32_t n_messages,
                      struct hsdp_error *reterr)
{
    struct nccl_engine *engine = task->engine;
    uint64_t n = group->n_messages;
    int32_t status = queue_await(engine, group->sent, n, reterr);

    if (status == HSDP_OK) {
        status = order_keep(engine, group, task->stream, reterr);
    }
    if (status == HSDP_OK) {
        status = capture_look(engine, task->stream, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    group->n_messages++;
    nccl_begin(engine, group, "ncclGroupEnd");
    return call_end(task, group, group->sent[n % NCCL_MAX_QUEUED],
                    messages_call(task, group, messages, n_messages), reterr);
}
