/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: plans, which is what a communicator is given by one group, on their streams. */
#include <stdlib.h>
#include <string.h>

#include "doubles/nccl_double.h"

struct plan {
    struct plan *next; /* of all that are not done, in the order in which they were issued */
    struct ncclComm *comm;
    struct operation *collectives;
    struct operation *messages; /* sends and receives */
    uint64_t turn;              /* of the communicator's plans */
    bool is_running;            /* on the device */
    bool is_absent;             /* a fault: it never begins */
};

pthread_mutex_t comm_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t comm_changed = PTHREAD_COND_INITIALIZER;

static struct plan *plans;
static _Atomic uint64_t n_collectives;

uint64_t collectives_count(uint64_t n_more)
{
    return atomic_fetch_add(&n_collectives, n_more) + n_more;
}

static void operations_free(struct operation *operations)
{
    while (operations != NULL) {
        struct operation *next = operations->next;

        free(operations);
        operations = next;
    }
}

static void plan_free(struct plan *plan)
{
    operations_free(plan->collectives);
    operations_free(plan->messages);
    free(plan);
}

/* ------------------------------------------------------------------- on the stream's thread */

/* In the order of issue, whatever the stream, and one at a time on the device. */
static bool plan_may_run(const struct plan *plan)
{
    bool is_before = true;

    if (plan->is_absent || plan->comm->n_plans_done != plan->turn) {
        return false;
    }
    for (const struct plan *other = plans; other != NULL; other = other->next) {
        is_before = is_before && other != plan;
        if (other->comm->context == plan->comm->context &&
            (other->is_running || (is_before && plan->comm->is_implicitly_ordered))) {
            return false;
        }
    }
    return true;
}

/* False = the communicator was stopped before. */
static bool plan_begin(struct plan *plan)
{
    pthread_mutex_lock(&comm_lock);
    while (!comm_is_stopped(plan->comm) && !plan_may_run(plan)) {
        pthread_cond_wait(&comm_changed, &comm_lock);
    }
    plan->is_running = !comm_is_stopped(plan->comm);
    pthread_mutex_unlock(&comm_lock);
    return plan->is_running;
}

/* With the lock; the communicator may be given back from then on. */
static void plan_remove(struct plan *plan)
{
    struct plan **link = &plans;

    while (*link != plan) {
        link = &(*link)->next;
    }
    *link = plan->next;
    plan->comm->n_plans_done++;
    pthread_cond_broadcast(&comm_changed);
}

static void plan_end(struct plan *plan)
{
    pthread_mutex_lock(&comm_lock);
    plan_remove(plan);
    pthread_mutex_unlock(&comm_lock);
    plan_free(plan);
}

static void plan_run(void *arg)
{
    struct plan *plan = arg;
    bool goes_on = plan_begin(plan);

    for (const struct operation *each = plan->collectives; each != NULL && goes_on;
         each = each->next) {
        goes_on = ring_run(each);
    }
    if (goes_on && plan->messages != NULL) {
        exchange_run(plan->messages);
    }
    plan_end(plan);
}

static void plan_discard(void *arg)
{
    plan_end(arg);
}

void plans_wait(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm_lock);
    while (comm->n_plans_done < comm->n_plans) {
        pthread_cond_wait(&comm_changed, &comm_lock);
    }
    pthread_mutex_unlock(&comm_lock);
}

/* -------------------------------------------------------------------------------- issuing */

static uint32_t operation_accesses(const struct operation *operation, struct double_access *ret)
{
    uint64_t n_bytes = operation->n_elems * dtype_size(operation->reduction.dtype);
    uint64_t n_ranks = operation->comm->n_ranks;
    bool is_root = operation->comm->rank == operation->root;
    uint32_t n = 0;

    if (operation->kind != OPERATION_RECV && (operation->kind != OPERATION_BROADCAST || is_root)) {
        uint64_t n_parts = operation->kind == OPERATION_REDUCE_SCATTER ? n_ranks : 1;

        ret[n++] = (struct double_access){operation->send, n_bytes * n_parts, false, 0};
    }
    if (operation->kind != OPERATION_SEND && (operation->kind != OPERATION_REDUCE || is_root)) {
        uint64_t n_parts = operation->kind == OPERATION_ALL_GATHER ? n_ranks : 1;

        ret[n++] = (struct double_access){operation->recv, n_bytes * n_parts, true, 0};
    }
    return n;
}

static uint32_t list_accesses(const struct operation *list, struct double_access *ret)
{
    uint32_t n = 0;

    for (const struct operation *each = list; each != NULL; each = each->next) {
        n += operation_accesses(each, &ret[n]);
    }
    return n;
}

/* Zero counts are nothing at all. Collectives keep their order, and messages theirs. */
static uint32_t plan_fill(struct plan *plan, struct operation *operations)
{
    struct operation **collectives_end = &plan->collectives;
    struct operation **messages_end = &plan->messages;
    uint32_t n = 0;

    while (operations != NULL) {
        struct operation *each = operations;
        bool is_message = each->kind == OPERATION_SEND || each->kind == OPERATION_RECV;
        struct operation ***end = is_message ? &messages_end : &collectives_end;

        operations = each->next;
        each->next = NULL;
        if (each->n_elems == 0) {
            free(each);
            continue;
        }
        if (!is_message) {
            each->sequence = ++plan->comm->n_collectives;
        }
        **end = each;
        *end = &each->next;
        n++;
    }
    return n;
}

static void plan_append(struct plan *plan)
{
    struct plan **end = &plans;

    pthread_mutex_lock(&comm_lock);
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = plan;
    plan->turn = plan->comm->n_plans++;
    pthread_mutex_unlock(&comm_lock);
}

static cu_result stream_follow(cu_stream stream, cu_stream other)
{
    cu_event event;
    cu_result result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);

    if (result == CU_OK) {
        result = cuEventRecord(event, other);
        if (result == CU_OK) {
            result = cuStreamWaitEvent(stream, event, 0);
        }
        cuEventDestroy_v2(event);
    }
    return result;
}

static const char *plan_name(const struct plan *plan)
{
    if (plan->collectives == NULL) {
        return "ncclSend and ncclRecv";
    }
    return plan->collectives->next == NULL && plan->messages == NULL
               ? operation_name(plan->collectives->kind)
               : "a group of NCCL";
}

/* The streams of its operations other than `stream`, in ret; how many. */
static uint32_t plan_other_streams(const struct plan *plan, cu_stream stream, cu_stream *ret)
{
    uint32_t n = 0;

    for (const struct operation *each = plan->collectives; each != NULL; each = each->next) {
        ret[n] = each->stream;
        n += each->stream != stream;
    }
    for (const struct operation *each = plan->messages; each != NULL; each = each->next) {
        ret[n] = each->stream;
        n += each->stream != stream;
    }
    return n;
}

static cu_result plan_start(struct plan *plan, uint32_t n_operations, cu_stream stream)
{
    struct double_access *accesses = calloc(2 * (size_t)n_operations, sizeof(*accesses));
    uint32_t n_accesses;
    cu_result result;

    if (accesses == NULL) {
        nccl_die("no memory for a group of %u operations", n_operations);
    }
    n_accesses = list_accesses(plan->collectives, accesses);
    n_accesses += list_accesses(plan->messages, &accesses[n_accesses]);
    plan_append(plan);
    result =
        double_enqueue(stream, plan_name(plan), plan_run, plan, plan_discard, accesses, n_accesses);
    if (result != CU_OK) {
        plan_end(plan);
    }
    free(accesses);
    return result;
}

/*
 * All of it is on the first stream that the group names, and other streams wait, before and after.
 * The plan is the stream's as soon as it has been started.
 */
static cu_result plan_enqueue(struct plan *plan, uint32_t n_operations, cu_stream stream)
{
    cu_stream *others = calloc((size_t)n_operations + 1, sizeof(cu_stream));
    uint32_t n_others;
    cu_result result = CU_OK;

    if (others == NULL) {
        nccl_die("no memory for a group of %u operations", n_operations);
    }
    n_others = plan_other_streams(plan, stream, others);
    for (uint32_t i = 0; i < n_others && result == CU_OK; i++) {
        result = stream_follow(stream, others[i]);
    }
    if (result != CU_OK) {
        plan_free(plan);
    } else {
        result = plan_start(plan, n_operations, stream);
    }
    for (uint32_t i = 0; i < n_others && result == CU_OK; i++) {
        result = stream_follow(others[i], stream);
    }
    free(others);
    return result;
}

/* Counts its collectives, and draws from the count whether it is one that never begins. */
static void plan_count(struct plan *plan)
{
    uint64_t n = plan->messages != NULL;
    int64_t limit;

    for (const struct operation *each = plan->collectives; each != NULL; each = each->next) {
        n++;
    }
    n = collectives_count(n);
    plan->is_absent = double_fault("peer_absent", &limit) && n >= (uint64_t)limit;
}

nccl_result plan_issue(struct ncclComm *comm, struct operation *operations)
{
    struct plan *plan = calloc(1, sizeof(*plan));
    cu_stream stream = operations->stream;
    cu_context former;
    cu_result result;
    uint32_t n;

    if (plan == NULL) {
        nccl_die("no memory for a group");
    }
    plan->comm = comm;
    n = plan_fill(plan, operations);
    result = n > 0 ? cuCtxPushCurrent_v2(comm->context) : CU_OK;
    if (n == 0 || result != CU_OK) {
        plan_free(plan);
    } else {
        plan_count(plan);
        result = plan_enqueue(plan, n, stream);
        cuCtxPopCurrent_v2(&former);
    }
    return result == CU_OK ? NCCL_OK
                           : nccl_fail(NCCL_CUDA_ERROR, "a stream refuses work (%d)", result);
}
