/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a rank to the server, and the thread that reads from it. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job.h"

#define TICK_MS    100
#define SEND_MS    500  /* the server may take a frame so long behind its deadline */
#define FAILURE_MS 1000 /* and so long news of a failure */
#define GRACE_MS   700  /* who waits for this rank as long has more to tell */
#define STOPPED_MS 1000 /* who sleeps so much longer than asked was stopped */

/* ------------------------------------------------------------------------------------- sending */

void connection_send(hsdp_job *job, struct frame frame, const struct packet *packet)
{
    struct iovec parts[2] = {{&frame, sizeof(frame)}, {NULL, 0}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    bool is_failure =
        frame.kind == FRAME_FAILED; /* on any thread, to which timeouts are not open */
    uint64_t until = now_ms() + (is_failure ? FAILURE_MS : job_timeout_ms(job) + SEND_MS);

    if (packet != NULL) {
        parts[1] = (struct iovec){packet->bytes, packet->n_bytes};
        frame.n_bytes = packet->n_bytes;
    }
    pthread_mutex_lock(&job->send_mutex);
    while (!job->is_torn && parts[0].iov_len + parts[1].iov_len > 0) {
        ssize_t n = sendmsg(job->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

        for (int i = 0; i < 2 && n > 0; i++) {
            size_t part = (size_t)n < parts[i].iov_len ? (size_t)n : parts[i].iov_len;

            parts[i].iov_base = (char *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            n -= (ssize_t)part;
        }
        if (n < 0 && errno == EAGAIN) {
            struct pollfd polled = {.fd = job->fd, .events = POLLOUT};

            poll(&polled, 1, TICK_MS);
        }
        if ((n < 0 && errno != EAGAIN && errno != EINTR) || now_ms() > until ||
            (!is_failure && atomic_load(&job->is_failed))) {
            job->is_torn = true;
            shutdown(job->fd, SHUT_WR); /* the server hears at least that this rank is gone */
        }
    }
    pthread_mutex_unlock(&job->send_mutex);
}

/* ------------------------------------------------------------------------------------- reading */

static void answer_take(hsdp_job *job, struct inbox *inbox)
{
    pthread_mutex_lock(&job->mutex);
    for (struct operation *op = job->operations; op != NULL; op = op->next) {
        if (op->number == inbox->frame.request && !op->is_answered) {
            op->answer = inbox->packet;
            inbox->packet = (struct packet){0}; /* handed over */
            op->is_refused = inbox->frame.kind == FRAME_REFUSED;
            op->is_answered = true;
            job->is_farewell = job->is_farewell || (op->is_farewell && !op->is_refused);
            pthread_cond_broadcast(&job->changed);
            break;
        }
    }
    pthread_mutex_unlock(&job->mutex);
}

static void frame_take(hsdp_job *job, struct inbox *inbox)
{
    struct hsdp_error error;

    if (inbox->frame.kind == FRAME_FAILED) {
        error_read(&inbox->packet, &error);
        job_fail_here(job, &error);
    } else {
        answer_take(job, inbox);
    }
    inbox_next(inbox);
}

static void server_is_lost(hsdp_job *job)
{
    struct hsdp_error error = HSDP_ERROR_INIT;

    error.status = HSDP_ERR_PEER_LOST;
    error.n_missing_ranks = 1; /* rank 0 */
    snprintf(error.operation, sizeof(error.operation), "job");
    snprintf(error.message, sizeof(error.message),
             "job: rank 0, in whose process all ranks meet, died or has left");
    job_fail_here(job, &error);
}

/* The host has made no call for too long. */
static void heartbeat_watch(hsdp_job *job)
{
    uint64_t last_ms = atomic_load(&job->last_call_ms);
    uint64_t now = now_ms();
    uint64_t limit_ms, phase_ms;
    struct hsdp_error error = HSDP_ERROR_INIT;

    pthread_mutex_lock(&job->mutex);
    limit_ms = (uint64_t)settings_number(&job->settings, "heartbeat_timeout_seconds") * 1000;
    phase_ms = job->n_phases > 0 ? job_timeout_ms(job) : 0;
    pthread_mutex_unlock(&job->mutex);
    limit_ms = phase_ms > limit_ms ? phase_ms : limit_ms;
    if (atomic_load(&job->is_busy) || now < last_ms || now - last_ms < limit_ms + GRACE_MS) {
        return;
    }
    error.status = HSDP_ERR_TIMEOUT;
    error.n_missing_ranks = 1;
    error.missing_ranks[0] = job->launch.rank;
    error.waited_ms = now - last_ms;
    snprintf(error.operation, sizeof(error.operation), "heartbeat");
    snprintf(error.message, sizeof(error.message),
             "heartbeat: timeout after %" PRIu64 " ms in which rank %" PRIu32 " has made no call",
             error.waited_ms, job->launch.rank);
    job_fail(job, &error);
}

/* Deadlines do not count the time in which this process was stopped. */
static void deadlines_shift(hsdp_job *job, uint64_t stopped_ms)
{
    atomic_fetch_add(&job->last_call_ms, stopped_ms);
    pthread_mutex_lock(&job->mutex);
    for (struct operation *op = job->operations; op != NULL; op = op->next) {
        op->deadline_ms += stopped_ms;
    }
    pthread_mutex_unlock(&job->mutex);
}

static void *connection_run(void *argument)
{
    hsdp_job *job = argument;
    struct inbox inbox = {0};
    bool is_open = true;

    while (!atomic_load(&job->is_stopping)) {
        struct pollfd polled[3] = {{.fd = job->wake_fd, .events = POLLIN},
                                   {.fd = is_open ? job->fd : -1, .events = POLLIN},
                                   {.fd = is_open ? job->watch_fd : -1, .events = POLLIN}};
        uint64_t before = now_ms();
        enum inbox_state state = INBOX_EMPTY;

        poll(polled, 3, TICK_MS);
        if (now_ms() - before > TICK_MS + STOPPED_MS) {
            deadlines_shift(job, now_ms() - before - TICK_MS);
        }
        while (is_open && (state = inbox_read(&inbox, job->fd)) == INBOX_WHOLE) {
            frame_take(job, &inbox);
        }
        if (is_open && (state == INBOX_CLOSED || polled[2].revents != 0)) {
            is_open = false;
            server_is_lost(job);
        }
        if (is_open && job->is_connected && !atomic_load(&job->is_failed)) {
            heartbeat_watch(job);
        }
    }
    inbox_next(&inbox);
    atomic_store(&job->is_thread_done, true);
    return NULL;
}

/* ----------------------------------------------------------------------------- opening, closing */

static int32_t nobody_listens(const struct call *call, hsdp_job *job, uint64_t waited_ms)
{
    struct hsdp_error error = HSDP_ERROR_INIT;

    error.status = HSDP_ERR_TIMEOUT;
    error.n_missing_ranks = 1; /* rank 0 */
    error.waited_ms = waited_ms;
    snprintf(error.operation, sizeof(error.operation), "%s", call->name);
    snprintf(error.message, sizeof(error.message), "%s: no sign of rank 0 within %" PRIu64 " ms",
             call->name, waited_ms);
    job_fail_here(job, &error);
    return error_pass(call, &error);
}

int32_t connection_open(const struct call *call, hsdp_job *job, const char *place,
                        uint64_t deadline_ms)
{
    const struct operation connecting = {.start_ms = now_ms(), .name = "job.connect"};
    int error;

    job->fd = channel_connect(place);
    while (job->fd < 0) {
        if (atomic_load(&job->is_failed)) {
            return job_failure(call, job, &connecting);
        }
        if (now_ms() >= deadline_ms) {
            return nobody_listens(call, job, now_ms() - connecting.start_ms);
        }
        poll(NULL, 0, 10);
        job->fd = channel_connect(place);
    }
    job->watch_fd = channel_watch(job->fd);
    job->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    error = job->wake_fd < 0 ? errno : thread_start(&job->thread, connection_run, job);
    if (error != 0) {
        return error_raise(call, HSDP_ERR_UNAVAILABLE, "%s: no thread: %s", call->name,
                           strerror(error));
    }
    job->has_thread = true;
    return HSDP_OK;
}

bool connection_close(hsdp_job *job)
{
    uint64_t one = 1;
    ssize_t n;

    if (!job->has_thread) {
        return true;
    }
    connection_send(job, (struct frame){.kind = FRAME_LEAVE}, NULL);
    atomic_store(&job->is_stopping, true);
    n = write(job->wake_fd, &one, sizeof(one));
    (void)n; /* the thread looks again after a tick anyway */
    for (int i = 0; i < 100 && !atomic_load(&job->is_thread_done); i++) {
        poll(NULL, 0, 10);
    }
    if (!atomic_load(&job->is_thread_done)) {
        pthread_detach(job->thread);
        return false;
    }
    pthread_join(job->thread, NULL);
    return true;
}
