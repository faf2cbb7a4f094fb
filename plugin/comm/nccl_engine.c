/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL thread of a job: from connect to destroy. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/nccl_internal.h"
#include "comm/process.h"

/* Only touched pages count. NCCL and the driver have large frames. */
#define STACK_BYTES (8u * 1024u * 1024u)
#define STOP_MS     1900u

#define IDLE_MS      50u             /* between two looks at failures and communicators */
#define SPIN_NS      UINT64_C(20000) /* so long nothing sleeps after something has happened */
#define MIN_SLEEP_NS UINT64_C(10000)
#define MAX_SLEEP_NS UINT64_C(1000000)
#define SLEEP_SHARE  8u    /* of the time in which nothing has happened */
#define SLACK_NS     1000u /* how late a sleep may end */
#define DRAIN_MS     500u  /* for what is on the device when a job ends well */

/* ------------------------------------------------------------------------------ on the thread */

void engine_ring(struct nccl_engine *engine)
{
    control_ring(atomic_load(&engine->job->control), engine->job->node_index);
}

void engine_leave(struct nccl_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->is_away = true;
    pthread_mutex_unlock(&engine->lock);
}

/* Whoever has waited for this thread in vain has freed its tasks: it may not go back to them. */
void engine_return(struct nccl_engine *engine)
{
    bool is_orphaned;

    pthread_mutex_lock(&engine->lock);
    engine->is_away = false;
    is_orphaned = engine->is_orphaned;
    pthread_mutex_unlock(&engine->lock);
    if (is_orphaned && !engine->is_ending) {
        longjmp(engine->retreat, 1);
    }
}

static void wake_await(struct nccl_engine *engine, uint64_t ns)
{
    uint64_t limit_ns = clock_now_ns() + ns;
    struct timespec limit = {.tv_sec = (time_t)(limit_ns / 1000000000u),
                             .tv_nsec = (long)(limit_ns % 1000000000u)};

    pthread_mutex_lock(&engine->lock);
    if (!engine->is_woken && !engine->is_stopping) {
        pthread_cond_timedwait(&engine->wake, &engine->lock, &limit);
    }
    engine->is_woken = false;
    pthread_mutex_unlock(&engine->lock);
}

void engine_sleep(struct nccl_engine *engine)
{
    uint64_t quiet_ns = clock_now_ns() - engine->moved_ns;
    uint64_t ns = quiet_ns / SLEEP_SHARE;

    if (quiet_ns < SPIN_NS) {
        sched_yield();
        return;
    }
    ns = ns < MIN_SLEEP_NS ? MIN_SLEEP_NS : ns;
    wake_await(engine, ns > MAX_SLEEP_NS ? MAX_SLEEP_NS : ns);
}

static bool engine_is_stopping(struct nccl_engine *engine)
{
    bool is_stopping;

    pthread_mutex_lock(&engine->lock);
    is_stopping = engine->is_stopping;
    pthread_mutex_unlock(&engine->lock);
    return is_stopping;
}

int32_t engine_pause(struct nccl_engine *engine, struct hsdp_error *reterr)
{
    const struct failure *failure = failure_first(engine->job);
    int32_t status;

    if (failure != NULL) {
        *reterr = failure->error;
        return failure->error.status;
    }
    if (engine_is_stopping(engine)) {
        return error_set(reterr, HSDP_ERR_ABORTED, "nccl: the job was destroyed");
    }
    status = tasks_look(engine, reterr);
    if (status == HSDP_OK) {
        status = tasks_judge(engine, reterr);
    }
    if (status == HSDP_OK) {
        engine_sleep(engine);
    }
    return status;
}

void engine_fail(struct nccl_engine *engine, struct hsdp_error *err)
{
    struct hsdp_error own = *err; /* it may become another's */

    if (!engine_is_stopping(engine)) {
        failure_record(engine->job, engine->job->launch.rank, &own);
    }
}

/* The first look after the job has failed: nothing is begun any more. Owners of tasks may give the
 * memory back that NCCL uses once it uses none. */
static void failure_serve(struct nccl_engine *engine)
{
    engine->has_failed = true;
    if (engine->has_graphs && engine->nccl.comm_revoke != NULL) {
        communicators_revoke(engine);
    } else {
        communicators_abort(engine);
    }
    tasks_drop(engine);
}

static void order_serve(struct nccl_engine *engine, nccl_order *order)
{
    const struct failure *failure = failure_first(engine->job);

    if (failure == NULL) {
        engine->order_status = order(engine, &engine->order_error);
    } else {
        engine->order_error = failure->error;
        engine->order_status = failure->error.status;
    }
    atomic_fetch_add(&engine->n_orders, 1u);
    engine_ring(engine);
}

static void work_take(struct nccl_engine *engine, nccl_order **ret_order,
                      struct nccl_task **ret_task)
{
    pthread_mutex_lock(&engine->lock);
    *ret_order = engine->order;
    engine->order = NULL;
    *ret_task = *ret_order == NULL ? engine->first_queued : NULL;
    if (*ret_task != NULL) {
        engine->first_queued = (*ret_task)->next;
        engine->last_queued = engine->first_queued == NULL ? NULL : engine->last_queued;
    }
    pthread_mutex_unlock(&engine->lock);
}

/* Nothing is to be begun: what goes on? */
static void thread_rest(struct nccl_engine *engine)
{
    struct hsdp_error err;
    int32_t status = HSDP_OK;

    if (!engine->has_failed) {
        status = tasks_look(engine, &err);
    }
    if (status == HSDP_OK && !engine->has_failed) {
        status = tasks_judge(engine, &err);
    }
    if (status == HSDP_OK && !engine->has_failed) {
        status = nccl_ask(engine, &err);
    }
    if (status != HSDP_OK) {
        engine_fail(engine, &err);
    } else if (engine->first_issued != NULL) {
        engine_sleep(engine);
    } else {
        wake_await(engine, IDLE_MS * CLOCK_NS_PER_MS);
    }
}

static void thread_loop(struct nccl_engine *engine)
{
    while (!engine_is_stopping(engine)) {
        nccl_order *order;
        struct nccl_task *task;

        if (!engine->has_failed && failure_first(engine->job) != NULL) {
            failure_serve(engine);
        }
        work_take(engine, &order, &task);
        if (order != NULL) {
            order_serve(engine, order);
        } else if (task != NULL && !engine->has_failed) {
            task_run(engine, task);
        } else {
            thread_rest(engine);
        }
    }
}

/* A job that has said farewell has no operation open; what is on the device is about to end. */
static void device_drain(struct nccl_engine *engine)
{
    uint64_t limit_ns = clock_deadline_ns(DRAIN_MS);

    while (engine->first_issued != NULL && clock_now_ns() < limit_ns &&
           failure_first(engine->job) == NULL && tasks_look(engine, NULL) == HSDP_OK) {
        engine_sleep(engine);
    }
}

static void communicators_end(struct nccl_engine *engine)
{
    const struct control *control = atomic_load(&engine->job->control);

    if (atomic_load(&control->ranks[engine->job->node_index].has_closed) != 0) {
        communicators_finalize(engine);
    }
    communicators_abort(engine); /* what is left */
}

/* From here on the thread touches nothing, unless it was left alone with the last reference. */
static void thread_end(struct nccl_engine *engine)
{
    struct hsdp_job *job = engine->job;
    bool is_abandoned;

    pthread_mutex_lock(&engine->lock);
    engine->has_ended = true;
    is_abandoned = engine->is_abandoned;
    pthread_cond_broadcast(&engine->rest);
    pthread_mutex_unlock(&engine->lock);
    if (is_abandoned) {
        wedged_remove();
        /* what the host has lent stays as it is: it has left, and its callbacks with it */
        atomic_store(&engine->gpu.is_stuck, engine->gpu.allocator.free != NULL);
        job_unref(job);
    }
}

static void *thread_run(void *argument)
{
    struct nccl_engine *engine = argument;

    prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS, 0ul, 0ul, 0ul);
    if (setjmp(engine->retreat) == 0) {
        thread_loop(engine);
        if (!engine->has_failed) {
            device_drain(engine);
        }
    }
    engine->is_ending = true;
    tasks_drop(engine);
    communicators_end(engine);
    if (engine->is_inside) {
        gpu_visit_end(&engine->gpu, engine->capture_mode);
    }
    thread_end(engine);
    return NULL;
}

/* ------------------------------------------------------------------------- start, orders, stop */

struct nccl_engine *job_nccl(const struct hsdp_job *job)
{
    return atomic_load(&job->nccl);
}

struct gpu *job_gpu(const struct hsdp_job *job)
{
    struct nccl_engine *engine = job_nccl(job);

    return engine == NULL ? NULL : &engine->gpu;
}

/* Signals are the host's: its own threads take them. */
static int thread_create(struct nccl_engine *engine)
{
    pthread_attr_t attributes;
    sigset_t all;
    sigset_t before;
    int failed = pthread_attr_init(&attributes);

    if (failed != 0) {
        return failed;
    }
    pthread_attr_setstacksize(&attributes, STACK_BYTES); /* else it is the default */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&engine->thread, &attributes, thread_run, engine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed == 0) {
        pthread_setname_np(engine->thread, "hsdp-nccl");
    }
    return failed;
}

static void condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

int32_t engine_start(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct nccl_engine *engine = calloc(1, sizeof(*engine));
    int failed;

    if (engine == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "connect: cannot allocate %zu bytes",
                         sizeof(*engine));
    }
    engine->job = job;
    pthread_mutex_init(&engine->lock, NULL);
    condition_init(&engine->wake);
    condition_init(&engine->rest);
    failed = thread_create(engine);
    if (failed != 0) {
        pthread_mutex_destroy(&engine->lock);
        pthread_cond_destroy(&engine->wake);
        pthread_cond_destroy(&engine->rest);
        free(engine);
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: no thread for NCCL: %s",
                         strerror(failed));
    }
    atomic_store(&job->nccl, engine);
    return HSDP_OK;
}

int32_t engine_order(struct nccl_engine *engine, nccl_order *order, struct wait *what,
                     struct wait_entry *entries, struct hsdp_error *reterr)
{
    int32_t status;

    entries[0] = (struct wait_entry){
        .counter = &engine->n_orders, .target = ++engine->n_orders_given, .rank = WAIT_DEVICE};
    what->entries = entries;
    pthread_mutex_lock(&engine->lock);
    engine->order = order;
    engine->is_woken = true;
    pthread_cond_signal(&engine->wake);
    pthread_mutex_unlock(&engine->lock);
    status = job_wait(engine->job, what, reterr);
    if (status == HSDP_OK && engine->order_status != HSDP_OK) {
        status = engine->order_status;
        if (reterr != NULL) {
            *reterr = engine->order_error;
        }
    }
    return status;
}

void nccl_engine_wake(struct hsdp_job *job)
{
    struct nccl_engine *engine = job_nccl(job);

    if (engine != NULL && *job->alive != 0) {
        pthread_mutex_lock(&engine->lock);
        engine->is_woken = true;
        pthread_cond_signal(&engine->wake);
        pthread_mutex_unlock(&engine->lock);
    }
}

/* True when the thread has ended in time; else it keeps the job's memory until it ends. */
static bool end_await(struct nccl_engine *engine)
{
    uint64_t limit_ns = clock_deadline_ns(STOP_MS);
    struct timespec limit = {.tv_sec = (time_t)(limit_ns / 1000000000u),
                             .tv_nsec = (long)(limit_ns % 1000000000u)};
    int failed = 0;
    bool has_ended;

    pthread_mutex_lock(&engine->lock);
    engine->is_stopping = true;
    pthread_cond_signal(&engine->wake);
    while (!engine->has_ended && failed == 0) {
        failed = pthread_cond_timedwait(&engine->rest, &engine->lock, &limit);
    }
    has_ended = engine->has_ended;
    if (!has_ended) {
        engine->is_abandoned = true;
        engine->is_orphaned = true;
        job_ref(engine->job);
        wedged_add(engine);
        atomic_store(&engine->gpu.is_stuck, true); /* to give memory back would be to wait */
    }
    pthread_mutex_unlock(&engine->lock);
    return has_ended;
}

void nccl_engine_close(struct hsdp_job *job)
{
    struct nccl_engine *engine = job_nccl(job);

    if (engine == NULL || engine->is_over || *job->alive == 0) {
        return; /* in a child there is no such thread */
    }
    engine->is_over = true;
    if (end_await(engine)) {
        pthread_join(engine->thread, NULL);
    } else {
        process_keep_plugin();
        pthread_detach(engine->thread);
    }
}

void nccl_engine_free(struct hsdp_job *job)
{
    struct nccl_engine *engine = job_nccl(job);

    if (engine == NULL) {
        return;
    }
    atomic_store(&job->nccl, NULL);
    groups_free(engine);
    boards_free(engine);
    if (*job->alive != 0) { /* in a child they may have waiters that are not there, and no device */
        gpu_close(&engine->gpu);
        pthread_mutex_destroy(&engine->lock);
        pthread_cond_destroy(&engine->wake);
        pthread_cond_destroy(&engine->rest);
    }
    free(engine);
}

/* -------------------------------------------------------------------------------------- asking */

bool nccl_engine_is_issuing(const struct hsdp_job *job)
{
    struct nccl_engine *engine = job_nccl(job);

    return engine != NULL && atomic_load(&engine->n_unissued) != 0;
}

void nccl_engine_where(const struct hsdp_job *job, char *ret_text, size_t max_bytes)
{
    struct nccl_engine *engine = job_nccl(job);
    const struct nccl_group *group = atomic_load(&engine->call_group);
    const char *call = atomic_load(&engine->call);
    uint64_t ns = clock_now_ns() - atomic_load(&engine->call_ns);

    if (call == NULL) {
        snprintf(ret_text, max_bytes, "the device has not finished");
        return;
    }
    snprintf(ret_text, max_bytes, "the NCCL thread has been in %s%s%s%s for %.1f s", call,
             group == NULL ? "" : " of group \"", group == NULL ? "" : group->name,
             group == NULL ? "" : "\"", (double)ns / 1e9);
}
