/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks for the NCCL thread: submitted and awaited by the host's, run and watched by this one. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/nccl_internal.h"

#define RELEASE_MS    1500u /* how long a thread may be away before its tasks go without it */
#define MAX_N_STREAMS 8u    /* that are told apart while looking */
#define LATE_MS       250u  /* so much later than a call does this thread speak of a deadline */

bool nccl_task_is_held(const struct nccl_task *task)
{
    uint64_t state = atomic_load(&task->state);

    return state == NCCL_TASK_QUEUED || state == NCCL_TASK_ISSUED;
}

/* ------------------------------------------------------------------------------ the ticket's */

/* The device comes to what was submitted before it first. */
static bool is_first(const struct nccl_task *task)
{
    return task->place <= atomic_load(&task->engine->lanes[task->lane].n_done) + 1;
}

/* The members of this node that have not begun the last collective which this rank has begun. */
static uint32_t peers_fill(const struct nccl_task *task, uint32_t i, struct wait_entry *entries,
                           bool *ret_is_missing)
{
    const struct nccl_group *group = task->groups[i];
    uint64_t number = atomic_load(&task->numbers[i]);
    uint32_t n = 0;

    *ret_is_missing = false;
    for (uint32_t peer = 0; number > 0 && peer < group->n_ranks; peer++) {
        const _Atomic uint64_t *posted = &group->board->lines[peer]->n_posted;

        if (peer != group->index) {
            entries[n++] = (struct wait_entry){
                .counter = posted, .target = number, .rank = group->ranks[peer]};
            *ret_is_missing |= atomic_load(posted) < number;
        }
    }
    return n;
}

/* For sentences, and to know who died: the device, and the peers of the collective that it is at
 * or, if all have come to each, of the last. */
static uint32_t entries_fill(const struct nccl_task *task, struct wait_entry *entries)
{
    uint32_t n_peers = 0;
    bool is_missing = false;

    entries[0] =
        (struct wait_entry){.counter = &task->state, .target = NCCL_TASK_DONE, .rank = WAIT_DEVICE};
    for (uint32_t i = 0; i < task->n_groups && !is_missing; i++) {
        uint32_t n = peers_fill(task, i, &entries[1], &is_missing);

        n_peers = n > 0 ? n : n_peers;
    }
    return 1 + n_peers;
}

static void label_fill(struct nccl_task *task)
{
    task->label.entries = task->entries;
    task->label.n_entries = entries_fill(task, task->entries);
}

static const struct wait *task_blocker(struct work *work)
{
    struct nccl_task *task = (struct nccl_task *)work;

    if (!is_first(task)) {
        return NULL;
    }
    label_fill(task);
    return &task->label;
}

static int32_t task_progress(struct work *work, struct hsdp_error *reterr)
{
    struct nccl_task *task = (struct nccl_task *)work;

    if (atomic_load(&task->state) != NCCL_TASK_DONE) {
        return HSDP_PENDING;
    }
    return task->complete == NULL ? HSDP_OK : task->complete(task, reterr);
}

static void task_finish(struct work *work, int32_t status)
{
    (void)status;
    ((struct nccl_task *)work)->is_open = false;
}

static int32_t task_order(struct work *work, void *stream, struct hsdp_error *reterr)
{
    return nccl_task_order((struct nccl_task *)work, stream, reterr);
}

/* ------------------------------------------------------------------------------ the host's side */

int32_t nccl_task_init(struct hsdp_job *job, struct nccl_task *task, struct hsdp_error *reterr)
{
    struct nccl_engine *engine = job_nccl(job);
    int32_t status;

    memset(task, 0, sizeof(*task));
    task->entries = calloc((size_t)job->launch.world_ranks + 1, sizeof(*task->entries));
    if (task->entries == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "nccl: no memory for a task");
    }
    status = gpu_event_create(&engine->gpu, &task->done, reterr);
    if (status != HSDP_OK) {
        free(task->entries);
        memset(task, 0, sizeof(*task));
        return status;
    }
    task->engine = engine;
    return HSDP_OK;
}

/* Until the thread has let go of it. One that is away, maybe for ever, finds out when it returns
 * that there are no tasks any more. */
static void task_release(struct nccl_task *task)
{
    struct nccl_engine *engine = task->engine;
    uint64_t limit_ns = clock_deadline_ns(RELEASE_MS);
    struct timespec limit = {.tv_sec = (time_t)(limit_ns / 1000000000u),
                             .tv_nsec = (long)(limit_ns % 1000000000u)};
    int failed = 0;

    pthread_mutex_lock(&engine->lock);
    while (nccl_task_is_held(task) && !engine->is_orphaned && !engine->has_ended && failed == 0) {
        failed = pthread_cond_timedwait(&engine->rest, &engine->lock, &limit);
    }
    engine->is_orphaned |= nccl_task_is_held(task);
    pthread_mutex_unlock(&engine->lock);
}

void nccl_task_fini(struct nccl_task *task)
{
    struct hsdp_job *job = task->engine == NULL ? NULL : task->engine->job;
    bool is_child;

    if (job == NULL) {
        return;
    }
    is_child = *job->alive == 0; /* where there is neither thread nor device, but the queue */
    if (!is_child && task->is_open && failure_first(job) == NULL) {
        nccl_task_await(task, NULL);
    }
    nccl_task_abandon(task);
    if (!is_child) {
        task_release(task);
        gpu_event_destroy(&task->engine->gpu, task->done);
    }
    free(task->entries);
    memset(task, 0, sizeof(*task));
}

void nccl_task_abandon(struct nccl_task *task)
{
    if (task->is_open) {
        job_work_cancel(task->engine->job, &task->work);
        task->is_open = false;
    }
}

bool nccl_task_is_open(const struct nccl_task *task)
{
    return task->is_open;
}

static void task_queue(struct nccl_engine *engine, struct nccl_task *task)
{
    pthread_mutex_lock(&engine->lock);
    task->next = NULL;
    if (engine->last_queued == NULL) {
        engine->first_queued = task;
    } else {
        engine->last_queued->next = task;
    }
    engine->last_queued = task;
    atomic_fetch_add(&engine->n_unissued, 1u);
    engine->is_woken = true;
    pthread_cond_signal(&engine->wake);
    pthread_mutex_unlock(&engine->lock);
}

/* Serialised launches make one order of all that has collectives. */
static void task_place(struct nccl_engine *engine, struct nccl_task *task)
{
    bool is_apart = !engine->is_serial && task->stream == engine->gpu.unshard_stream;

    task->lane = is_apart ? 1 : 0;
    task->place = ++engine->lanes[task->lane].n_submitted;
    for (uint32_t i = 0; i < NCCL_TASK_MAX_GROUPS; i++) {
        atomic_store(&task->numbers[i], 0u);
    }
}

int32_t nccl_task_submit(struct nccl_task *task, uint64_t *ret_ticket, struct hsdp_error *reterr)
{
    struct nccl_engine *engine = task->engine;
    struct hsdp_job *job = engine->job;
    int32_t status;

    if (failure_first(job) != NULL) {
        return failure_tell(job, reterr);
    }
    status = nccl_task_await(task, reterr); /* it is done, but maybe no call has looked since */
    if (status != HSDP_OK) {
        return status;
    }
    assert(!task->is_open && !nccl_task_is_held(task));
    task->work.label = &task->label;
    task->work.progress = task_progress;
    task->work.blocker = task_blocker;
    task->work.finish = task_finish;
    task->work.order = task_order;
    task->label.ticket = job->last_ticket + 1;
    task->is_open = true;
    task_place(engine, task);
    label_fill(task);
    atomic_store(&task->state, NCCL_TASK_QUEUED);
    job->standstill.n_signals++; /* what the thread raises for it */
    task_queue(engine, task);
    return job_work_start(job, &task->work, ret_ticket, reterr);
}

/* Whoever is the first in its lane keeps the deadline, and knows who is missing; but inside of
 * other work nobody looks at the queue. */
static int32_t state_await(struct nccl_task *task, enum nccl_task_state state,
                           struct hsdp_error *reterr)
{
    struct hsdp_job *job = task->engine->job;
    struct wait_entry entry = {
        .counter = &task->state, .target = (uint64_t)state, .rank = WAIT_DEVICE};
    struct wait wait = task->label;

    wait.entries = &entry;
    wait.n_entries = 1;
    wait.deadline_ns = job->is_progressing ? wait.deadline_ns : UINT64_MAX;
    wait.record = task->work.record;
    return job_wait(job, &wait, reterr);
}

int32_t nccl_task_await_issue(struct nccl_task *task, struct hsdp_error *reterr)
{
    return nccl_task_is_held(task) ? state_await(task, NCCL_TASK_ISSUED, reterr) : HSDP_OK;
}

int32_t nccl_task_await(struct nccl_task *task, struct hsdp_error *reterr)
{
    struct waiting waiting = {.ticket = task->work.ticket, .give_up_ns = UINT64_MAX};
    struct hsdp_job *job = task->engine->job;
    int32_t status;

    if (!task->is_open) {
        return HSDP_OK;
    }
    if (!job->is_progressing) {
        return wait_run(job, &waiting, reterr);
    }
    status = state_await(task, NCCL_TASK_DONE, reterr);
    return status == HSDP_OK ? job_work_settle(job, &task->work, reterr) : status;
}

int32_t nccl_task_order(struct nccl_task *task, cu_stream stream, struct hsdp_error *reterr)
{
    int32_t status = nccl_task_await_issue(task, reterr);

    if (status != HSDP_OK || atomic_load(&task->state) != NCCL_TASK_ISSUED) {
        return status;
    }
    return gpu_stream_wait(&task->engine->gpu, stream, task->done, reterr);
}

/* ---------------------------------------------------------------------------- the thread's side */

static void task_set(struct nccl_engine *engine, struct nccl_task *task, enum nccl_task_state state)
{
    pthread_mutex_lock(&engine->lock);
    atomic_store(&task->state, (uint64_t)state);
    pthread_cond_broadcast(&engine->rest); /* from here on its owner may free it */
    pthread_mutex_unlock(&engine->lock);
    engine->moved_ns = clock_now_ns();
    engine_ring(engine);
}

static void task_append(struct nccl_engine *engine, struct nccl_task *task)
{
    task->next = NULL;
    if (engine->last_issued == NULL) {
        engine->first_issued = task;
    } else {
        engine->last_issued->next = task;
    }
    engine->last_issued = task;
}

void task_run(struct nccl_engine *engine, struct nccl_task *task)
{
    struct hsdp_error err;
    int32_t status;

    engine->running = task;
    status = task->run(task, &err);
    if (status == HSDP_OK) {
        status = gpu_event_record(&engine->gpu, task->done, task->stream, &err);
    }
    if (status != HSDP_OK) {
        error_where(&err, task->label.operation, task->label.group, task->label.unit);
        err.ticket = task->label.ticket;
        engine_fail(engine, &err); /* it is dropped with all others */
        return;
    }
    engine->running = NULL;
    task_append(engine, task);
    atomic_fetch_sub(&engine->n_unissued, 1u);
    task_set(engine, task, NCCL_TASK_ISSUED);
}

static void task_done(struct nccl_engine *engine, struct nccl_task *task)
{
    struct nccl_lane *lane = &engine->lanes[task->lane];

    if (task->place > atomic_load(&lane->n_done)) {
        atomic_store(&lane->n_done, task->place);
    }
    task_set(engine, task, NCCL_TASK_DONE);
}

static int32_t event_look(struct nccl_engine *engine, cu_event event, struct hsdp_error *reterr)
{
    int32_t status;

    engine_leave(engine);
    status = gpu_event_query(&engine->gpu, event, reterr);
    engine_return(engine);
    return status;
}

/* Of each stream only the first that is not done is asked for. */
int32_t tasks_look(struct nccl_engine *engine, struct hsdp_error *reterr)
{
    struct nccl_task **link = &engine->first_issued;
    struct nccl_task *last = NULL;
    cu_stream busy[MAX_N_STREAMS];
    uint32_t n_busy = 0;

    while (*link != NULL) {
        struct nccl_task *task = *link;
        int32_t status = HSDP_OK;

        for (uint32_t i = 0; i < n_busy && status == HSDP_OK; i++) {
            status = busy[i] == task->stream ? HSDP_PENDING : HSDP_OK;
        }
        if (status == HSDP_OK) {
            status = event_look(engine, task->done, reterr);
            if (status == HSDP_PENDING && n_busy < MAX_N_STREAMS) {
                busy[n_busy++] = task->stream;
            }
        }
        if (status == HSDP_OK) {
            *link = task->next;
            task_done(engine, task);
        } else if (status == HSDP_PENDING) {
            last = task;
            link = &task->next;
        } else {
            return status;
        }
    }
    engine->last_issued = last;
    return HSDP_OK;
}

/* Time in which this process was stopped does not count. */
static void front_find(struct nccl_engine *engine, const struct nccl_task *front, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - engine->front.look_ns;

    if (front != engine->front.task || front->place != engine->front.place) {
        engine->front.task = front;
        engine->front.place = front->place;
        engine->front.since_ns = now_ns;
    } else if (gap_ns >= AWAY_MIN_NS) {
        engine->front.since_ns += gap_ns;
    }
    engine->front.look_ns = now_ns;
}

/*
 * The host may wait for its own stream, and so outside of calls, for what never ends: a call that
 * waits says so at the deadline, and this thread a moment later.
 */
int32_t tasks_judge(struct nccl_engine *engine, struct hsdp_error *reterr)
{
    const struct nccl_task *front = engine->first_issued;
    struct wait_entry entries[LAUNCH_MAX_RANKS + 1];
    uint64_t now_ns = clock_now_ns();
    uint64_t limit_ns = (job_timeout_ms(engine->job) + LATE_MS) * CLOCK_NS_PER_MS;
    struct wait wait;

    if (front == NULL) {
        engine->front.task = NULL;
        return HSDP_OK;
    }
    front_find(engine, front, now_ns);
    if (now_ns - engine->front.since_ns < limit_ns ||
        (front->label.deadline_ns != 0 && now_ns < front->label.deadline_ns)) {
        return HSDP_OK;
    }
    wait = front->label;
    wait.entries = entries;
    wait.n_entries = entries_fill(front, entries);
    watch_blame(engine->job, &wait, now_ns - engine->front.since_ns, reterr);
    error_where(reterr, wait.operation, wait.group, wait.unit);
    return HSDP_ERR_TIMEOUT;
}

static void tasks_give_up(struct nccl_task *task)
{
    while (task != NULL) {
        struct nccl_task *next = task->next;

        atomic_store(&task->state, NCCL_TASK_IDLE);
        task = next;
    }
}

void tasks_drop(struct nccl_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    if (!engine->is_orphaned) {
        tasks_give_up(engine->first_queued);
        tasks_give_up(engine->first_issued);
        if (engine->running != NULL) {
            atomic_store(&engine->running->state, NCCL_TASK_IDLE);
        }
    }
    engine->first_queued = NULL;
    engine->last_queued = NULL;
    engine->first_issued = NULL;
    engine->last_issued = NULL;
    engine->running = NULL;
    atomic_store(&engine->n_unissued, 0u);
    pthread_cond_broadcast(&engine->rest);
    pthread_mutex_unlock(&engine->lock);
}
