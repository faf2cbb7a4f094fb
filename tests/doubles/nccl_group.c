/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: groups of calls, and the threads on which those that do not block are launched. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "doubles/nccl_double.h"

struct group {
    uint32_t depth;
    nccl_result error; /* of the first call in it that failed */
    struct operation *operations;
    struct operation **operations_end;
    struct job *jobs;
    struct job **jobs_end;
};

/* What a group leaves to be done, by its caller or by a thread. */
struct launch {
    struct operation *operations;
    struct job *jobs;
    pthread_t thread;
    uint32_t n_comms; /* that have not collected it */
    _Atomic bool was_seen;
    _Atomic bool is_done;
};

static _Thread_local struct group group;

/* ------------------------------------------------------------------------------- launches */

static void *job_thread(void *arg)
{
    struct job *job = arg;

    job->result = job_run(job);
    return NULL;
}

static bool thread_start(pthread_t *ret, void *(*function)(void *arg), void *arg)
{
    sigset_t all;
    sigset_t former;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    error = pthread_create(ret, NULL, function, arg);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    return error == 0;
}

/* Only what is under way ends: an error that came in between stays. */
static void state_settle(struct ncclComm *comm, nccl_result result)
{
    int32_t expected = NCCL_IN_PROGRESS;

    atomic_compare_exchange_strong(&comm->state, &expected, result);
}

/* All at once, each on a thread: their ranks may come in any order. */
static nccl_result jobs_run(struct job *jobs)
{
    nccl_result result = NCCL_OK;

    for (struct job *job = jobs; job != NULL; job = job->next) {
        job->has_thread = jobs->next != NULL && thread_start(&job->thread, job_thread, job);
        if (!job->has_thread) {
            job->result = job_run(job);
        }
    }
    for (struct job *job = jobs; job != NULL; job = job->next) {
        if (job->has_thread) {
            pthread_join(job->thread, NULL);
        }
        result = result == NCCL_OK ? job->result : result;
    }
    return result;
}

/* Takes those of a communicator out of the list, in their order. */
static struct operation *operations_take(struct operation **list, const struct ncclComm *comm)
{
    struct operation *taken = NULL;
    struct operation **end = &taken;

    while (*list != NULL) {
        struct operation *each = *list;

        if (each->comm == comm) {
            *list = each->next;
            each->next = NULL;
            *end = each;
            end = &each->next;
        } else {
            list = &each->next;
        }
    }
    return taken;
}

static nccl_result launch_run(struct launch *launch)
{
    nccl_result result = jobs_run(launch->jobs);

    while (launch->operations != NULL) {
        struct ncclComm *comm = launch->operations->comm;
        nccl_result issued = plan_issue(comm, operations_take(&launch->operations, comm));

        state_settle(comm, issued);
        result = result == NCCL_OK ? issued : result;
    }
    for (struct job *job = launch->jobs; job != NULL; job = job->next) {
        state_settle(job->comm, job->result);
    }
    return result;
}

/*
 * Nothing is on the stream until somebody has seen that it is not, or has had the time to: so who
 * does not ask at all is found out.
 */
static void launch_dawdle(const struct launch *launch)
{
    const long limit_ns = 2000000;
    struct timespec end;
    bool is_late = false;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (end.tv_nsec + limit_ns) / 1000000000;
    end.tv_nsec = (end.tv_nsec + limit_ns) % 1000000000;
    pthread_mutex_lock(&comm_lock);
    while (!is_late && !atomic_load(&launch->was_seen)) {
        is_late = pthread_cond_timedwait(&comm_changed, &comm_lock, &end) != 0;
    }
    pthread_mutex_unlock(&comm_lock);
}

static void *launch_thread(void *arg)
{
    struct launch *launch = arg;

    if (launch->operations != NULL) {
        launch_dawdle(launch);
    }
    launch_run(launch);
    pthread_mutex_lock(&comm_lock);
    atomic_store(&launch->is_done, true);
    pthread_cond_broadcast(&comm_changed);
    pthread_mutex_unlock(&comm_lock);
    return NULL;
}

static void launch_free(struct launch *launch)
{
    while (launch->operations != NULL) {
        struct operation *next = launch->operations->next;

        free(launch->operations);
        launch->operations = next;
    }
    while (launch->jobs != NULL) {
        struct job *next = launch->jobs->next;

        free(launch->jobs);
        launch->jobs = next;
    }
    free(launch);
}

void launch_was_seen(struct ncclComm *comm)
{
    if (comm->launch != NULL && !atomic_load(&comm->launch->was_seen)) {
        pthread_mutex_lock(&comm_lock);
        atomic_store(&comm->launch->was_seen, true);
        pthread_cond_broadcast(&comm_changed);
        pthread_mutex_unlock(&comm_lock);
    }
}

void launch_collect(struct ncclComm *comm, bool waits)
{
    struct launch *launch = comm->launch;

    if (launch == NULL || (!waits && !atomic_load(&launch->is_done))) {
        return;
    }
    pthread_mutex_lock(&comm_lock);
    while (!atomic_load(&launch->is_done)) {
        pthread_cond_wait(&comm_changed, &comm_lock);
    }
    pthread_mutex_unlock(&comm_lock);
    comm->launch = NULL;
    launch->n_comms--;
    if (launch->n_comms == 0) {
        pthread_join(launch->thread, NULL);
        launch_free(launch);
    }
}

/* -------------------------------------------------------------------------------- the group */

bool group_is_open(void)
{
    return group.depth > 0;
}

void group_enter(void)
{
    if (group.depth == 0) {
        group = (struct group){.operations_end = &group.operations, .jobs_end = &group.jobs};
    }
    group.depth++;
}

void group_fail(nccl_result result)
{
    if (group.error == NCCL_OK) {
        group.error = result;
    }
}

void group_add_operation(const struct operation *operation)
{
    struct operation *copy = malloc(sizeof(*copy));

    if (copy == NULL) {
        nccl_die("no memory for an operation");
    }
    *copy = *operation;
    *group.operations_end = copy;
    group.operations_end = &copy->next;
}

void group_add_job(const struct job *job)
{
    struct job *copy = malloc(sizeof(*copy));

    if (copy == NULL) {
        nccl_die("no memory for a job");
    }
    *copy = *job;
    *group.jobs_end = copy;
    group.jobs_end = &copy->next;
}

/* Calls f for every communicator of a launch that outlives it, once or more. */
static void launch_each(const struct launch *launch, void (*f)(struct ncclComm *comm, void *arg),
                        void *arg)
{
    for (const struct operation *each = launch->operations; each != NULL; each = each->next) {
        f(each->comm, arg);
    }
    for (const struct job *job = launch->jobs; job != NULL; job = job->next) {
        f(job->comm, arg);
    }
}

static void comm_count_blocking(struct ncclComm *comm, void *arg)
{
    uint32_t *counts = arg;

    counts[comm->config.blocking != 0]++;
}

static void comm_poison(struct ncclComm *comm, void *arg)
{
    const nccl_result *error = arg;

    if (comm->config.blocking == 0) {
        atomic_store(&comm->state, *error);
    }
}

static void comm_attach(struct ncclComm *comm, void *arg)
{
    struct launch *launch = arg;

    if (comm->launch != launch) {
        comm->launch = launch;
        launch->n_comms++;
        atomic_store(&comm->state, NCCL_IN_PROGRESS);
    }
}

/* A message to oneself has to have both its sides in one group. */
static bool own_messages_match(const struct operation *operations, const struct ncclComm *comm)
{
    const struct operation *send = operations;
    const struct operation *recv = operations;

    for (;;) {
        while (send != NULL &&
               (send->comm != comm || send->kind != OPERATION_SEND || send->root != comm->rank)) {
            send = send->next;
        }
        while (recv != NULL &&
               (recv->comm != comm || recv->kind != OPERATION_RECV || recv->root != comm->rank)) {
            recv = recv->next;
        }
        if (send == NULL || recv == NULL) {
            return send == recv;
        }
        if (send->n_elems * dtype_size(send->reduction.dtype) !=
            recv->n_elems * dtype_size(recv->reduction.dtype)) {
            return false;
        }
        send = send->next;
        recv = recv->next;
    }
}

static nccl_result launch_check(const struct launch *launch)
{
    uint32_t counts[2] = {0, 0};

    launch_each(launch, comm_count_blocking, counts);
    if (counts[0] > 0 && counts[1] > 0) {
        return nccl_fail(NCCL_BAD_ARGUMENT,
                         "communicators that block and others cannot be in one group");
    }
    if (launch->operations != NULL && launch->jobs != NULL) {
        return nccl_fail(NCCL_BAD_USAGE, "a group is of collectives, or makes communicators");
    }
    for (const struct operation *each = launch->operations; each != NULL; each = each->next) {
        if (!own_messages_match(launch->operations, each->comm)) {
            return nccl_fail(NCCL_BAD_USAGE,
                             "a message of rank %u to itself lacks its other side in the group",
                             each->comm->rank);
        }
    }
    return NCCL_OK;
}

/* A fault: the call never returns. */
static void launch_block(const struct launch *launch)
{
    uint64_t n = collectives_count(0);
    bool has_messages = false;
    int64_t limit;

    for (const struct operation *each = launch->operations; each != NULL; each = each->next) {
        has_messages = has_messages || each->kind >= OPERATION_SEND;
        n += each->kind < OPERATION_SEND;
    }
    n += has_messages;
    while (launch->operations != NULL && double_fault("calls_block", &limit) &&
           n >= (uint64_t)limit) {
        pause();
    }
}

static nccl_result launch_start(struct launch *launch)
{
    uint32_t counts[2] = {0, 0};
    nccl_result result = launch_check(launch);

    if (result != NCCL_OK) {
        launch_each(launch, comm_poison, &result);
        launch_free(launch);
        return result;
    }
    launch_block(launch);
    launch_each(launch, comm_count_blocking, counts);
    if (counts[1] > 0) {
        result = launch_run(launch);
        launch_free(launch);
        return result;
    }
    launch_each(launch, comm_attach, launch);
    if (!thread_start(&launch->thread, launch_thread, launch)) {
        nccl_die("no thread for a group");
    }
    return NCCL_IN_PROGRESS;
}

/* Those that end communicators do it at once, and block, whatever the communicator. */
static nccl_result jobs_end(struct job **list)
{
    nccl_result result = NCCL_OK;

    while (*list != NULL) {
        struct job *job = *list;

        if (job->kind == JOB_DESTROY || job->kind == JOB_ABORT) {
            nccl_result ended = job_run(job);

            result = result == NCCL_OK ? ended : result;
            *list = job->next;
            free(job);
        } else {
            list = &job->next;
        }
    }
    return result;
}

/* The outermost group has ended. */
static nccl_result group_close(void)
{
    nccl_result error = group.error;
    struct launch *launch = calloc(1, sizeof(*launch));
    nccl_result result = jobs_end(&group.jobs);

    if (launch == NULL) {
        nccl_die("no memory for a group");
    }
    launch->operations = group.operations;
    launch->jobs = group.jobs;
    if (error != NCCL_OK) {
        launch_each(launch, comm_poison, &error);
        launch_free(launch);
        return error;
    }
    if (launch->operations == NULL && launch->jobs == NULL) {
        launch_free(launch);
        return result;
    }
    return launch_start(launch);
}

nccl_result group_leave(void)
{
    group.depth--;
    return group.depth == 0 ? group_close() : NCCL_OK;
}

nccl_result ncclGroupStart(void)
{
    call_enter("ncclGroupStart");
    group_enter();
    return call_leave(NCCL_OK);
}

nccl_result ncclGroupEnd(void)
{
    call_enter("ncclGroupEnd");
    if (!group_is_open()) {
        return call_leave(nccl_fail(NCCL_BAD_USAGE, "ncclGroupEnd: no group was started"));
    }
    return call_leave(group_leave());
}
