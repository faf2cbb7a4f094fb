/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous, every rank that leads no node: looks for its leader, says who it is, hears the end.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/process.h"
#include "comm/rendezvous.h"

#define RETRY_FIRST_MS 1u
#define RETRY_LAST_MS  50u
#define WELCOME_MS     300                 /* so long a control block may be on its way */
#define ANSWER_NS      UINT64_C(900000000) /* so long the leader may take to say who is missing */

struct visit {
    struct hsdp_job *job;
    uint64_t deadline_ns;
    uint64_t expired_ns; /* when the leader was asked whose fault it is; 0 = it has not been */
    bool is_heard;       /* the leader has read who this is */
    bool is_unpublished; /* rank 0 has put nothing into the host's store yet */
    uint64_t random;
    uint32_t retry_ms;
    uint32_t reporter;
    int fd;
    int pidfd; /* of the leader */
};

static void visit_close(struct visit *visit)
{
    if (visit->fd >= 0) {
        close(visit->fd);
    }
    if (visit->pidfd >= 0) {
        close(visit->pidfd);
    }
    visit->fd = -1;
    visit->pidfd = -1;
}

/* Who is looked for, in a sentence. Its rank is known where all ranks are on one host. */
static const char *leader_name(const struct visit *visit)
{
    return visit->job->launch.is_one_host ? "rank 0" : "local rank 0 of this host";
}

/* Abort and deadline, which end a visit at any point. The leader knows who is missing: it has a
 * moment to say so. */
static int32_t visit_check(struct visit *visit, struct hsdp_error *reterr)
{
    const struct failure *first = failure_first(visit->job);
    const char *seconds = settings_text(&visit->job->settings, "init_timeout_seconds");
    uint64_t now_ns = clock_now_ns();

    if (first != NULL) {
        *reterr = first->error;
        return reterr->status;
    }
    if (now_ns < visit->deadline_ns) {
        return HSDP_OK;
    }
    if (visit->is_heard && visit->expired_ns == 0) {
        struct wire_message message = {.kind = WIRE_EXPIRED};

        visit->expired_ns = now_ns;
        wire_send_message(visit->fd, &message, -1);
    }
    if (visit->is_heard && now_ns < visit->expired_ns + ANSWER_NS) {
        return HSDP_OK;
    }
    error_set(reterr, HSDP_ERR_TIMEOUT, "connect: timeout after %s s: %s %s", seconds,
              visit->is_heard ? "no answer of" : "no sign of",
              visit->is_unpublished ? "rank 0 in the host's store" : leader_name(visit));
    if (visit->is_unpublished || visit->job->launch.is_one_host) {
        error_missing_one(reterr, 0);
    }
    reterr->waited_ms = rendezvous_limit_ms(visit->job);
    return reterr->status;
}

/* Until when a poll may sleep. */
static int visit_left_ms(const struct visit *visit, int max_ms)
{
    bool is_asking = visit->expired_ns != 0;

    return clock_left_ms(is_asking ? visit->expired_ns + ANSWER_NS : visit->deadline_ns, max_ms);
}

/* Sleeps until the next try, longer each time, and never in step with the other ranks. */
static void retry_pause(struct visit *visit)
{
    struct pollfd wake = {.fd = atomic_load(&visit->job->abort_fd), .events = POLLIN};
    uint32_t ms;

    visit->random = visit->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    ms = visit->retry_ms + (uint32_t)(visit->random >> 33) % (visit->retry_ms + 1);
    poll(&wake, 1, visit_left_ms(visit, (int)ms));
    visit->retry_ms = 2 * visit->retry_ms > RETRY_LAST_MS ? RETRY_LAST_MS : 2 * visit->retry_ms;
}

/* HSDP_PENDING: nobody is there. */
static int32_t leader_call(struct visit *visit, struct hsdp_error *reterr)
{
    struct sockaddr_un address;
    socklen_t n_bytes;
    struct wire_hello hello;
    uint32_t uid;
    uint32_t pid;

    n_bytes = wire_address(visit->job->identity, visit->job->name, &address);
    visit->fd = wire_socket();
    if (visit->fd < 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: no socket: %s", strerror(errno));
    }
    if (connect(visit->fd, (struct sockaddr *)&address, n_bytes) != 0 ||
        !wire_peer(visit->fd, &uid, &pid)) {
        return HSDP_PENDING;
    }
    if (uid != (uint32_t)geteuid()) {
        return error_set(reterr, HSDP_ERR_ADDRESS_IN_USE,
                         "connect: the meeting point \"%s\" is held by user %" PRIu32,
                         address.sun_path + 1, uid);
    }
    visit->pidfd = process_open(pid);
    rendezvous_hello(visit->job, &hello);
    return wire_send(visit->fd, &hello, sizeof(hello), -1) ? HSDP_OK : HSDP_PENDING;
}

static int32_t welcome_take(struct visit *visit, int fd, struct hsdp_error *reterr)
{
    struct hsdp_job *job = visit->job;
    struct control *control = NULL;
    struct control_size size = job_control_size(job);
    struct stat file;
    int32_t status;

    if (fd < 0 || fstat(fd, &file) != 0 || (uint64_t)file.st_size != control_bytes(&size)) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "connect: the control block did not arrive; too many open files?");
    }
    status = control_map(fd, &size, &control, reterr);
    if (status == HSDP_OK) {
        atomic_store(&job->control, control);
        job->connections[0] = visit->fd;
        visit->fd = -1;
    }
    return status;
}

/* HSDP_PENDING: nothing more to read now. */
static int32_t leader_read(struct visit *visit, bool *ret_is_over, struct hsdp_error *reterr)
{
    struct wire_message message;
    int fd;
    int received = wire_receive_message(visit->fd, &message, &fd);
    int32_t status = HSDP_OK;

    if (received == WIRE_NOTHING) {
        return HSDP_PENDING;
    }
    if (received != WIRE_RECEIVED) {
        *ret_is_over = true;
        if (!visit->is_heard) {
            return HSDP_PENDING; /* it was closing for another meeting: try again */
        }
        error_set(reterr, HSDP_ERR_PEER_LOST,
                  "connect: peer lost: %s died before all ranks had come", leader_name(visit));
        if (visit->job->launch.is_one_host) {
            error_missing_one(reterr, 0);
        }
        return reterr->status;
    }
    if (message.kind == WIRE_HEARD) {
        visit->is_heard = true;
    } else if (message.kind == WIRE_BELL) {
        visit->job->leader_bell = fd;
        fd = -1;
    } else if (message.kind == WIRE_WELCOME) {
        *ret_is_over = true;
        status = welcome_take(visit, fd, reterr);
    } else if (message.kind == WIRE_FAILED && message.error.status < 0) {
        *ret_is_over = true;
        visit->reporter = message.rank;
        *reterr = message.error;
        status = reterr->status;
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

/* Stays with the leader until it says how it ended. HSDP_PENDING: it was not meant; look again. */
static int32_t leader_hear(struct visit *visit, struct hsdp_error *reterr)
{
    bool is_over = false;
    int32_t status = HSDP_OK;

    while (!is_over) {
        struct pollfd polls[3] = {
            {.fd = atomic_load(&visit->job->abort_fd), .events = POLLIN},
            {.fd = visit->fd, .events = POLLIN},
            {.fd = visit->pidfd, .events = POLLIN},
        };

        status = visit_check(visit, reterr);
        if (status != HSDP_OK) {
            return status;
        }
        poll(polls, 3, visit_left_ms(visit, 500));
        status = leader_read(visit, &is_over, reterr);
        if (status < 0) {
            return status;
        }
        if (status == HSDP_PENDING && polls[2].revents != 0) {
            shutdown(visit->fd, SHUT_RDWR); /* dead, though a child of it may hold the other end */
        }
    }
    return status;
}

/* The leader is told why this rank goes, so that all hear it. */
static void leader_warn(struct visit *visit, const struct hsdp_error *err)
{
    struct wire_message message = {.kind = WIRE_FAILED};

    if (visit->fd >= 0) {
        message.rank = visit->job->launch.rank;
        message.error = *err;
        wire_send_message(visit->fd, &message, -1);
    }
}

/*
 * This rank goes. If all had come meanwhile, the leader reads nothing more, but the control block
 * is on its way here: by that one the others learn why.
 */
static void welcome_share(struct visit *visit)
{
    struct pollfd answer = {.fd = visit->fd, .events = POLLIN};
    uint64_t until_ns = clock_deadline_ns(WELCOME_MS);
    struct hsdp_error unheard;
    bool is_over = visit->fd < 0;

    while (!is_over && poll(&answer, 1, clock_left_ms(until_ns, WELCOME_MS)) > 0) {
        leader_read(visit, &is_over, &unheard);
    }
    failure_share(visit->job);
}

int32_t rendezvous_guest(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct visit visit = {.job = job, .deadline_ns = deadline_ns, .retry_ms = RETRY_FIRST_MS};
    int32_t status = HSDP_PENDING;

    visit.random = clock_now_ns() ^ ((uint64_t)getpid() << 20);
    visit.reporter = job->launch.rank;
    visit.fd = -1;
    visit.pidfd = -1;
    while (status == HSDP_PENDING) {
        status = visit_check(&visit, reterr);
        if (status == HSDP_OK) {
            status = rendezvous_ask(job, reterr);
            visit.is_unpublished = status == HSDP_PENDING;
        }
        if (status == HSDP_OK) {
            status = leader_call(&visit, reterr);
        }
        if (status == HSDP_OK) {
            status = leader_hear(&visit, reterr);
        }
        if (status == HSDP_PENDING) {
            visit_close(&visit);
            retry_pause(&visit);
        }
    }
    if (status != HSDP_OK) {
        status = rendezvous_end(job, visit.reporter, reterr);
        leader_warn(&visit, reterr);
        welcome_share(&visit);
    }
    visit_close(&visit);
    return status;
}
