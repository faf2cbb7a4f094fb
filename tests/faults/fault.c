/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: what happens to the victim, on its own thread, by a timer, or by a second thread. */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "faults/host.h"
#include "faults/inject.h"

#define ABORT_REASON    "the campaign's second thread aborts"
#define MAX_DESCRIPTORS 256

/* For the signal handler, which gets no argument. */
static struct host *struck;

/* Shuts the TCP connections of this process; false when there are none. */
static bool connections_shut(void)
{
    bool is_any = false;

    for (int fd = 3; fd < MAX_DESCRIPTORS; fd++) {
        struct sockaddr_storage peer;
        socklen_t n_bytes = sizeof(peer);

        if (getpeername(fd, (struct sockaddr *)&peer, &n_bytes) == 0 &&
            (peer.ss_family == AF_INET || peer.ss_family == AF_INET6)) {
            is_any = shutdown(fd, SHUT_RDWR) == 0 || is_any;
        }
    }
    return is_any;
}

/* Whatever happens to the link of this leader: by the proxy, where there is one. */
static void link_strike(struct host *host)
{
    if (host->trial->has_proxy) {
        host_note_fault(host);
        atomic_store(&host->record->link,
                     host->trial->kind == FAULT_CUT ? LINK_IS_CUT : LINK_DROPS);
    } else if (connections_shut()) {
        host_note_fault(host);
    }
}

/* On the host's thread, wherever that is: a kind that can happen in the middle of a call. */
static void fault_strike(struct host *host)
{
    if (host->trial->kind == FAULT_DROP || host->trial->kind == FAULT_CUT) {
        link_strike(host);
        return;
    }
    host_note_fault(host);
    switch (host->trial->kind) {
    case FAULT_KILL:
    case FAULT_FORK:
        kill(getpid(), SIGKILL);
        break;
    case FAULT_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case FAULT_STALL:
    case FAULT_CALLBACK:
    case FAULT_DELAY:
        host_sleep_us(host->trial->delay_ms * UINT64_C(1000));
        break;
    case FAULT_EXIT:
        _exit(0);
    default:
        break;
    }
}

static void timer_struck(int signal_number)
{
    (void)signal_number;
    fault_strike(struck);
}

static void timer_start(struct host *host, uint64_t us)
{
    struct sigaction action = {.sa_handler = timer_struck, .sa_flags = SA_RESTART};
    struct itimerval once = {.it_value = {.tv_sec = (time_t)(us / 1000000u)}};

    once.it_value.tv_usec = (suseconds_t)(us % 1000000u);
    struck = host;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &once, NULL);
}

/* A child that holds all that its parent held, until the trial is over. */
static void child_leave(struct host *host)
{
    if (fork() != 0) {
        return;
    }
    prctl(PR_SET_PDEATHSIG, 0);
    if (host->jobs[0] != NULL) {
        host->own->child_status = host->api->job->status(host->jobs[0], NULL);
    }
    while (atomic_load(&host->record->is_over) == 0) {
        host_sleep_us(2000);
    }
    _exit(0);
}

static void *aborting_thread(void *user)
{
    struct host *host = user;
    struct rank_record *own = host->own;
    bool is_timed = host->trial->moment == MOMENT_TIME;
    uint64_t us = host->trial->delta_us;

    if (is_timed) {
        us = (uint64_t)(host->trial->at_fraction * (double)host->run_ns / 1000.0);
    }
    host_sleep_us(us);
    while (host->jobs[0] == NULL && host->is_threaded) {
        host_sleep_us(100);
    }
    if (host->jobs[0] != NULL) {
        host_note_fault(host);
        atomic_store(&own->abort_start_ns, host_now_ns());
        own->abort_status = host->api->job->abort(host->jobs[0], ABORT_REASON, NULL);
        atomic_store(&own->abort_end_ns, host_now_ns());
    }
    return NULL;
}

/* What a second thread asks of a job that it may not enter. */
static int32_t busy_ask(struct host *host, uint32_t n)
{
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    const char *value;
    const char *source;

    if (host->jobs[0] == NULL) {
        return HSDP_OK;
    }
    if (n % 3 == 0) {
        return host->api->job->info(host->jobs[0], &info, NULL);
    }
    if (n % 3 == 1) {
        return host->api->job->setting(host->jobs[0], "backend", &value, &source, NULL);
    }
    return host->api->job->ticket_wait(host->jobs[0], 0, 0, NULL);
}

/* Goes into each call of the host once, a moment after it began. */
static void *busy_thread(void *user)
{
    struct host *host = user;
    uint32_t n_seen = atomic_load(&host->n_visited);

    while (host->is_threaded) {
        int32_t status;

        if (atomic_load(&host->n_inside) == n_seen) {
            host_sleep_us(5);
            continue;
        }
        host_sleep_us(host->trial->delta_us % 300u);
        status = busy_ask(host, n_seen);
        if (status != HSDP_OK && status != HSDP_ERR_BUSY && host->own->busy_status == 0) {
            host->own->busy_status = status;
        }
        atomic_store(&host->n_visited, ++n_seen);
    }
    return NULL;
}

static void thread_start(struct host *host, void *(*function)(void *user))
{
    atomic_store(&host->n_visited, atomic_load(&host->n_inside));
    host->is_threaded = true;
    if (pthread_create(&host->thread, NULL, function, host) != 0) {
        host->is_threaded = false;
    }
}

void fault_end(struct host *host)
{
    inject_disarm();
    if (host->is_threaded) {
        host->is_threaded = false;
        pthread_join(host->thread, NULL);
    }
}

void fault_start(struct host *host)
{
    enum fault_kind kind = host->trial->kind;

    if (!host->is_victim || host->trial->moment != MOMENT_TIME) {
        return;
    }
    if (kind == FAULT_ABORT) {
        thread_start(host, aborting_thread);
    } else if (kind == FAULT_STALL || kind == FAULT_DELAY || kind == FAULT_EXIT ||
               kind == FAULT_DROP || kind == FAULT_CUT) {
        timer_start(host, 1 + (uint64_t)(host->trial->at_fraction * (double)host->run_ns / 1000.0));
    } /* others are struck from outside */
}

void fault_fire(struct host *host)
{
    const struct trial *trial = host->trial;

    switch (trial->kind) {
    case FAULT_LEAVE:
        host_note_fault(host);
        host->is_leaving = true;
        return;
    case FAULT_MEMORY:
        inject_arm(INJECT_MEMORY, trial->nth, trial->is_lasting);
        return;
    case FAULT_MAPPING:
        inject_arm(INJECT_MAPPING, trial->nth, false);
        return;
    case FAULT_ABORT:
        thread_start(host, aborting_thread);
        return;
    case FAULT_BUSY:
        thread_start(host, busy_thread);
        host_note_fault(host);
        return;
    case FAULT_FORK:
        child_leave(host);
        break;
    case FAULT_KILL:
    case FAULT_STOP:
    case FAULT_STALL:
    case FAULT_DELAY:
    case FAULT_EXIT:
    case FAULT_DROP:
    case FAULT_CUT:
        break;
    default: /* wrong calls are made by the scenario, callbacks are slow by themselves */
        return;
    }
    if (trial->moment == MOMENT_INSIDE) {
        timer_start(host, trial->delta_us);
    } else if (trial->kind == FAULT_EXIT) {
        host_note_fault(host);
        exit(0);
    } else {
        fault_strike(host);
    }
}

bool fault_is_wrong(const struct host *host, enum wrong_call wrong)
{
    return host->is_victim && host->trial->kind == FAULT_WRONG && host->trial->wrong == wrong;
}
