/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: its thread, from connect to destroy. */
#include "comm/watchdog.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job_internal.h"
#include "comm/process.h"
#include "comm/watchdog_internal.h"

/* Only touched pages count. A callback of the host has to fit, and the variables that libraries
 * have per thread, which the C library takes from here. */
#define STACK_BYTES (512u * 1024u)
#define STOP_MS     1000u

/* ------------------------------------------------------------------------------- the thread */

static bool is_watching(const struct watchdog *dog)
{
    uint32_t state = atomic_load(&dog->job->state);

    return (state == JOB_CREATED || state == JOB_CONNECTED) &&
           atomic_load(&dog->job->is_noticed) == 0;
}

static void polls_fill(struct watchdog *dog)
{
    struct hsdp_job *job = dog->job;

    dog->polls[0] = (struct pollfd){.fd = atomic_load(&job->abort_fd), .events = POLLIN};
    pthread_mutex_lock(&dog->service_lock);
    dog->polls[1] =
        (struct pollfd){.fd = dog->has_service ? dog->service.fd : -1, .events = POLLIN};
    pthread_mutex_unlock(&dog->service_lock);
    for (uint32_t rank = 0; rank < job_node_ranks(job); rank++) {
        struct pollfd *polls = &dog->polls[2 + 2 * rank];
        uint64_t known = dog->gone | dog->cut; /* each end is told once */

        polls[0] = (struct pollfd){.fd = job->pidfds[rank], .events = POLLIN};
        polls[1] = (struct pollfd){.fd = job->connections[rank]}; /* only whether it has ended */
        polls[0].fd = (dog->gone >> rank & 1u) != 0 ? -1 : polls[0].fd;
        polls[1].fd = (known >> rank & 1u) != 0 ? -1 : polls[1].fd;
    }
}

static uint64_t service_wake_ns(struct watchdog *dog)
{
    uint64_t wake_ns;

    pthread_mutex_lock(&dog->service_lock);
    wake_ns = dog->has_service ? dog->service_wake_ns : UINT64_MAX;
    pthread_mutex_unlock(&dog->service_lock);
    return wake_ns;
}

/* A host that closes what it did not open: poll does not wait then. */
static bool polls_are_bad(const struct watchdog *dog)
{
    bool is_bad = false;

    for (uint32_t i = 0; i < 2u + 2u * job_node_ranks(dog->job); i++) {
        is_bad |= (dog->polls[i].revents & POLLNVAL) != 0;
    }
    return is_bad;
}

/* Sleeps until there is something to look at. */
static void polls_wait(struct watchdog *dog)
{
    uint64_t wake_ns = service_wake_ns(dog);
    uint64_t n_wakes;
    int ms = wake_ns == UINT64_MAX ? -1 : clock_left_ms(wake_ns, INT32_MAX);

    if (is_watching(dog) && (ms < 0 || ms > (int)WATCHDOG_PERIOD_MS)) {
        ms = (int)WATCHDOG_PERIOD_MS;
    }
    polls_fill(dog);
    if (poll(dog->polls, 2u + 2u * job_node_ranks(dog->job), ms) < 0) {
        memset(dog->polls, 0, sizeof(dog->polls));
    }
    if (dog->polls[0].revents != 0 && read(dog->polls[0].fd, &n_wakes, sizeof(n_wakes)) < 0) {
        dog->polls[0].revents = POLLNVAL;
    }
    if (polls_are_bad(dog)) {
        usleep(WATCHDOG_PERIOD_MS * 1000u);
    }
}

/* The time that passed, but only as far as this thread could have run: a gap that is longer than
 * two periods is one in which the process was stopped. */
static void time_take(struct watchdog *dog)
{
    const uint64_t max_gap_ns = 2u * WATCHDOG_PERIOD_MS * CLOCK_NS_PER_MS;
    uint64_t now_ns = clock_now_ns();
    uint64_t gap_ns = now_ns - dog->now_ns;

    dog->awake_ns += gap_ns < max_gap_ns ? gap_ns : max_gap_ns;
    dog->now_ns = now_ns;
}

static void service_serve(struct watchdog *dog)
{
    bool is_called = dog->polls[0].revents != 0 || dog->polls[1].revents != 0;

    pthread_mutex_lock(&dog->service_lock);
    if (dog->has_service && (is_called || clock_now_ns() >= dog->service_wake_ns)) {
        uint64_t wake_ns = dog->service.serve(dog->service.user);

        dog->service_wake_ns = wake_ns;
    }
    pthread_mutex_unlock(&dog->service_lock);
}

/* From here on the thread touches nothing, unless it was left alone with the last reference. */
static void thread_end(struct watchdog *dog)
{
    struct hsdp_job *job = dog->job;
    bool is_abandoned;

    pthread_mutex_lock(&dog->end_lock);
    dog->has_ended = true;
    is_abandoned = dog->is_abandoned;
    pthread_cond_signal(&dog->end);
    pthread_mutex_unlock(&dog->end_lock);
    if (is_abandoned) {
        job_unref(job);
    }
}

static void *thread_run(void *argument)
{
    struct watchdog *dog = argument;
    struct control *control = atomic_load(&dog->job->control);

    atomic_store(&dog->thread_id, (int32_t)gettid());
    dog->now_ns = clock_now_ns();
    while (atomic_load(&dog->is_stopping) == 0) {
        polls_wait(dog);
        if (atomic_load(&dog->is_stopping) != 0) {
            break;
        }
        time_take(dog);
        atomic_fetch_add(&control->ranks[dog->job->node_index].beat, 1u);
        watchdog_look(dog);
        service_serve(dog);
    }
    if (atomic_load(&control->ranks[dog->job->node_index].has_closed) == 0) {
        failure_alert(dog->job); /* a host that goes at once is told, too: not on its own thread */
    }
    thread_end(dog);
    return NULL;
}

/* ---------------------------------------------------------------------------- start and stop */

/* Signals are the host's: its own threads take them. */
static int thread_create(struct watchdog *dog)
{
    pthread_attr_t attributes;
    sigset_t all;
    sigset_t before;
    int failed;

    failed = pthread_attr_init(&attributes);
    if (failed != 0) {
        return failed;
    }
    pthread_attr_setstacksize(&attributes, STACK_BYTES); /* else it is the default */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&dog->thread, &attributes, thread_run, dog);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed == 0) {
        pthread_setname_np(dog->thread, "hsdp-watchdog");
    }
    return failed;
}

static void dog_free(struct watchdog *dog)
{
    if (*dog->job->alive != 0) { /* in a child they may have waiters that are not there */
        pthread_mutex_destroy(&dog->service_lock);
        pthread_mutex_destroy(&dog->end_lock);
        pthread_cond_destroy(&dog->end);
    }
    free(dog);
}

int32_t watchdog_start(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct watchdog *dog = calloc(1, sizeof(*dog));
    pthread_condattr_t attributes;
    int failed;

    if (dog == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "connect: cannot allocate %zu bytes",
                         sizeof(*dog));
    }
    dog->job = job;
    pthread_mutex_init(&dog->service_lock, NULL);
    pthread_mutex_init(&dog->end_lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&dog->end, &attributes);
    pthread_condattr_destroy(&attributes);
    failed = thread_create(dog);
    if (failed != 0) {
        dog_free(dog);
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: no thread for the watchdog: %s",
                         strerror(failed));
    }
    atomic_store(&job->watchdog, dog);
    return HSDP_OK;
}

/* True when the thread has ended in time. */
static bool end_await(struct watchdog *dog)
{
    uint64_t limit_ns = clock_deadline_ns(STOP_MS);
    struct timespec limit = {.tv_sec = (time_t)(limit_ns / 1000000000u),
                             .tv_nsec = (long)(limit_ns % 1000000000u)};
    int failed = 0;
    bool has_ended;

    pthread_mutex_lock(&dog->end_lock);
    while (!dog->has_ended && failed == 0) {
        failed = pthread_cond_timedwait(&dog->end, &dog->end_lock, &limit);
    }
    has_ended = dog->has_ended;
    pthread_mutex_unlock(&dog->end_lock);
    return has_ended;
}

/* It keeps the job's memory until it ends, on its own. */
static void thread_abandon(struct watchdog *dog)
{
    bool has_ended;

    process_keep_plugin();
    pthread_mutex_lock(&dog->end_lock);
    has_ended = dog->has_ended;
    if (!has_ended) {
        dog->is_abandoned = true;
        job_ref(dog->job);
    }
    pthread_mutex_unlock(&dog->end_lock);
    if (has_ended) {
        pthread_join(dog->thread, NULL);
    } else {
        pthread_detach(dog->thread);
    }
}

static bool is_own_thread(const struct watchdog *dog)
{
    return atomic_load(&dog->thread_id) == (int32_t)gettid();
}

void watchdog_stop(struct hsdp_job *job)
{
    struct watchdog *dog = atomic_load(&job->watchdog);

    if (dog == NULL || dog->is_over || *job->alive == 0) {
        return; /* in a child there is no such thread */
    }
    dog->is_over = true;
    atomic_store(&dog->is_stopping, 1u);
    watchdog_wake(job);
    if (!is_own_thread(dog) && end_await(dog)) {
        pthread_join(dog->thread, NULL);
    } else {
        thread_abandon(dog);
    }
}

void watchdog_free(struct hsdp_job *job)
{
    struct watchdog *dog = atomic_load(&job->watchdog);

    if (dog != NULL) {
        atomic_store(&job->watchdog, NULL);
        dog_free(dog);
    }
}

void watchdog_wake(struct hsdp_job *job)
{
    int fd = atomic_load(&job->abort_fd);
    uint64_t one = 1;
    ssize_t n_written;

    if (fd >= 0) {
        n_written = write(fd, &one, sizeof(one));
        (void)n_written; /* full means: it is awake already */
    }
}

/* --------------------------------------------------------------------------------- the service */

int32_t watchdog_attach(struct hsdp_job *job, const struct watchdog_service *service,
                        struct hsdp_error *reterr)
{
    struct watchdog *dog = atomic_load(&job->watchdog);
    bool has_service;

    if (dog == NULL) {
        return error_set(reterr, HSDP_ERR_STATE, "watchdog: there is none before connect");
    }
    pthread_mutex_lock(&dog->service_lock);
    has_service = dog->has_service;
    if (!has_service) {
        dog->service = *service;
        dog->has_service = true;
        dog->service_wake_ns = 0;
    }
    pthread_mutex_unlock(&dog->service_lock);
    if (has_service) {
        return error_set(reterr, HSDP_ERR_STATE, "watchdog: it has a service already");
    }
    watchdog_wake(job);
    return HSDP_OK;
}

void watchdog_detach(struct hsdp_job *job)
{
    struct watchdog *dog = atomic_load(&job->watchdog);
    bool is_own;

    if (dog == NULL) {
        return;
    }
    is_own = is_own_thread(dog); /* then it is being served, under the lock */
    if (!is_own) {
        pthread_mutex_lock(&dog->service_lock);
    }
    dog->has_service = false;
    if (!is_own) {
        pthread_mutex_unlock(&dog->service_lock);
    }
    watchdog_wake(job);
}
