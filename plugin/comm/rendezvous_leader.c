/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous, the leader of a node: its ranks come to it; with the other leaders it meets the rest.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/forks.h"
#include "comm/nodes.h"
#include "comm/process.h"
#include "comm/rendezvous.h"

#define MAX_GUESTS     (2u * LAUNCH_MAX_RANKS)
#define BACKLOG        4096
#define HELLO_LIMIT_MS 2000u /* a stranger who says nothing is dropped then */
#define LINGER_MS      500u  /* once ranks disagree: so long the others may come to hear it */
#define LATE_MS        500u  /* once it has failed: so long for those a moment behind the others */
#define FAREWELL_MS    300u  /* for other nodes to hear it */

enum { POLL_ABORT, POLL_LISTENER, POLL_NODES, POLL_GUESTS };

#define POLLS_MAX (POLL_GUESTS + 2u * MAX_GUESTS)

struct guest {
    int fd;
    int pidfd;
    uint32_t pid;
    uint32_t rank;
    uint32_t local_rank;
    bool is_known; /* it has said hello */
    bool is_good;  /* and is one of us */
    uint64_t drop_ns;
};

struct meeting {
    struct hsdp_job *job;
    struct nodes *nodes; /* of a job on one host: the port that is held, if any */
    struct wire_hello own;
    uint64_t deadline_ns;
    uint64_t linger_ns; /* UINT64_MAX while all agree */
    uint32_t n_good;    /* ranks that have come and are of us, this one included */
    uint32_t n_known;
    uint32_t n_guests;
    uint32_t reporter; /* of what ended it */
    int listener;
    bool is_listening;
    struct hsdp_error misfit; /* the first disagreement */
    struct guest guests[MAX_GUESTS];
    struct pollfd polls[POLLS_MAX];
};

static void guest_close(struct guest *guest)
{
    if (guest->fd >= 0) {
        close(guest->fd);
    }
    if (guest->pidfd >= 0) {
        close(guest->pidfd);
    }
    guest->fd = -1;
    guest->pidfd = -1;
}

static void guest_drop(struct meeting *meeting, uint32_t index)
{
    guest_close(&meeting->guests[index]);
    meeting->guests[index] = meeting->guests[--meeting->n_guests];
}

/* To all that have said hello; who does not hear it is found gone by its own end. */
static void guests_tell(struct meeting *meeting, struct wire_message *message, int passed_fd)
{
    for (uint32_t i = 0; i < meeting->n_guests; i++) {
        if (meeting->guests[i].is_known) {
            wire_send_message(meeting->guests[i].fd, message, passed_fd);
        }
    }
}

/* ------------------------------------------------------------------------------ who comes */

static void misfit_note(struct meeting *meeting, const struct hsdp_error *err)
{
    if (meeting->misfit.status == HSDP_OK) {
        meeting->misfit = *err;
        meeting->linger_ns = clock_deadline_ns(LINGER_MS);
    }
}

static struct guest *guest_of(struct meeting *meeting, const struct wire_hello *hello)
{
    for (uint32_t i = 0; i < meeting->n_guests; i++) {
        struct guest *guest = &meeting->guests[i];

        if (guest->is_good &&
            (guest->rank == hello->rank || guest->local_rank == hello->local_rank)) {
            return guest;
        }
    }
    return NULL;
}

static int32_t hello_check(struct meeting *meeting, const struct guest *guest,
                           const struct wire_hello *hello, struct hsdp_error *reterr)
{
    const struct wire_hello *own = &meeting->own;
    const struct guest *earlier = guest_of(meeting, hello);
    bool is_leader = hello->rank == own->rank || hello->local_rank == own->local_rank;
    int32_t status = rendezvous_compare(own, hello, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    if (hello->local_ranks != own->local_ranks || hello->local_rank >= own->local_ranks) {
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "connect: rank %" PRIu32 " is local rank %" PRIu32 " of %" PRIu32
                         ", rank %" PRIu32 " expects %" PRIu32 " local ranks",
                         hello->rank, hello->local_rank, hello->local_ranks, own->rank,
                         own->local_ranks);
    }
    if (hello->rank < own->rank) {
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "connect: rank %" PRIu32 " is local rank 0 beside rank %" PRIu32
                         "; the least rank of a host leads it",
                         own->rank, hello->rank);
    }
    if (earlier != NULL || is_leader) {
        uint32_t rank = is_leader ? own->rank : earlier->rank;
        uint32_t pid = is_leader ? (uint32_t)getpid() : earlier->pid;

        if (rank == hello->rank) {
            return error_set(reterr, HSDP_ERR_MISMATCH,
                             "connect: rank %" PRIu32 " came twice: processes %" PRIu32
                             " and %" PRIu32,
                             rank, pid, guest->pid);
        }
        return error_set(reterr, HSDP_ERR_MISMATCH,
                         "connect: ranks %" PRIu32 " and %" PRIu32 " are both local rank %" PRIu32
                         ": processes %" PRIu32 " and %" PRIu32,
                         rank, hello->rank, hello->local_rank, pid, guest->pid);
    }
    return HSDP_OK;
}

/* A survivor of an earlier attempt, or one of another run, is none of us: it alone hears it. */
static bool is_survivor(struct meeting *meeting, struct guest *guest,
                        const struct wire_hello *hello)
{
    struct wire_message message = {.kind = WIRE_FAILED, .rank = meeting->own.rank};

    if (launch_identity_check(&meeting->own.run, meeting->own.rank, &hello->run, hello->rank,
                              &message.error) == HSDP_OK) {
        return false;
    }
    error_where(&message.error, "connect", NULL, NULL);
    wire_send_message(guest->fd, &message, -1);
    return true;
}

/* A hello of ours, whatever it says: it is counted, and compared. */
static void guest_know(struct meeting *meeting, struct guest *guest, const struct wire_hello *hello)
{
    struct wire_message message = {.kind = WIRE_HEARD};
    struct hsdp_error err;

    guest->is_known = true;
    guest->rank = hello->rank;
    guest->local_rank = hello->local_rank;
    meeting->n_known++;
    if (hello_check(meeting, guest, hello, &err) == HSDP_OK) {
        guest->is_good = true;
        meeting->n_good++;
        nodes_arrived(meeting->nodes, guest->rank, guest->pid);
    } else {
        misfit_note(meeting, &err);
    }
    wire_send_message(guest->fd, &message, -1);
}

/* Strangers that say nothing go soon and make room; else those who knock can never come in. */
static int32_t descriptors_check(const struct meeting *meeting, int reason,
                                 struct hsdp_error *reterr)
{
    if ((reason != EMFILE && reason != ENFILE) || meeting->n_known < meeting->n_guests) {
        return HSDP_OK;
    }
    return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                     "connect: rank %" PRIu32 " has no descriptor left for the %" PRIu32
                     " other ranks of its host: %s",
                     meeting->own.rank, meeting->own.local_ranks - 1, strerror(reason));
}

static int32_t guests_accept(struct meeting *meeting, struct hsdp_error *reterr)
{
    while (meeting->n_guests < MAX_GUESTS) {
        struct guest *guest = &meeting->guests[meeting->n_guests];
        uint32_t uid;

        memset(guest, 0, sizeof(*guest));
        guest->pidfd = -1;
        guest->fd = accept4(meeting->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (guest->fd < 0) {
            return descriptors_check(meeting, errno, reterr);
        }
        if (!wire_peer(guest->fd, &uid, &guest->pid) || uid != (uint32_t)geteuid()) {
            guest_close(guest); /* another user's: not one word with it */
            continue;
        }
        guest->pidfd = process_open(guest->pid);
        guest->drop_ns = clock_deadline_ns(HELLO_LIMIT_MS);
        meeting->n_guests++;
    }
    return HSDP_OK;
}

/* -------------------------------------------------------------------------- what they say */

static int32_t loss_set(const struct guest *guest, struct hsdp_error *reterr)
{
    int32_t status = error_set(
        reterr, HSDP_ERR_PEER_LOST,
        "connect: peer lost: rank %" PRIu32 " died before all ranks had come", guest->rank);

    error_missing_one(reterr, guest->rank);
    return status;
}

static int32_t known_read(struct meeting *meeting, struct guest *guest, struct hsdp_error *reterr)
{
    struct wire_message message;
    int fd;
    int received = wire_receive_message(guest->fd, &message, &fd);

    if (fd >= 0) {
        close(fd);
    }
    if (received == WIRE_NOTHING) {
        return HSDP_OK;
    }
    if (received == WIRE_RECEIVED && message.kind == WIRE_EXPIRED) {
        meeting->deadline_ns = clock_now_ns(); /* the earliest counts for all */
        return HSDP_OK;
    }
    if (received == WIRE_RECEIVED && message.kind == WIRE_FAILED && message.error.status < 0) {
        meeting->reporter = guest->rank;
        *reterr = message.error;
        return reterr->status;
    }
    return guest->is_good ? loss_set(guest, reterr) : HSDP_PENDING; /* PENDING: drop it */
}

/* HSDP_PENDING: the guest is to be dropped. */
static int32_t guest_read(struct meeting *meeting, struct guest *guest, struct hsdp_error *reterr)
{
    struct wire_hello hello;
    int received;
    int fd;

    if (guest->is_known) {
        return known_read(meeting, guest, reterr);
    }
    received = wire_receive(guest->fd, &hello, sizeof(hello), &fd);
    if (fd >= 0) {
        close(fd);
    }
    if (received == WIRE_NOTHING) {
        return HSDP_OK;
    }
    if (received != WIRE_RECEIVED || hello.magic != WIRE_MAGIC ||
        is_survivor(meeting, guest, &hello)) {
        return HSDP_PENDING;
    }
    guest_know(meeting, guest, &hello);
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------- the loop */

static uint32_t polls_fill(struct meeting *meeting)
{
    uint32_t n = POLL_GUESTS;

    meeting->polls[POLL_ABORT] =
        (struct pollfd){.fd = atomic_load(&meeting->job->abort_fd), .events = POLLIN};
    meeting->polls[POLL_LISTENER] = (struct pollfd){
        .fd = meeting->n_guests < MAX_GUESTS ? meeting->listener : -1, .events = POLLIN};
    meeting->polls[POLL_NODES] = (struct pollfd){.fd = nodes_fd(meeting->nodes), .events = POLLIN};
    for (uint32_t i = 0; i < meeting->n_guests; i++) {
        const struct guest *guest = &meeting->guests[i];

        meeting->polls[n++] = (struct pollfd){.fd = guest->fd, .events = POLLIN};
        meeting->polls[n++] =
            (struct pollfd){.fd = guest->is_good ? guest->pidfd : -1, .events = POLLIN};
    }
    return n;
}

static int32_t guests_serve(struct meeting *meeting, struct hsdp_error *reterr)
{
    uint64_t now_ns = clock_now_ns();

    for (uint32_t i = meeting->n_guests; i-- > 0;) { /* backwards: dropping moves the last here */
        struct guest *guest = &meeting->guests[i];
        const struct pollfd *polls = &meeting->polls[POLL_GUESTS + 2 * i];
        int32_t status = HSDP_OK;

        if (polls[0].revents != 0) {
            status = guest_read(meeting, guest, reterr);
        } else if (polls[1].revents != 0) {
            status = loss_set(guest, reterr);
        }
        if (status < 0) {
            return status;
        }
        if (status == HSDP_PENDING || (!guest->is_known && now_ns >= guest->drop_ns)) {
            guest_drop(meeting, i);
        }
    }
    return HSDP_OK;
}

static int32_t deadline_check(struct meeting *meeting, struct hsdp_error *reterr)
{
    uint64_t now_ns = clock_now_ns();
    bool is_late = now_ns >= meeting->deadline_ns;

    if (meeting->misfit.status != HSDP_OK && (is_late || now_ns >= meeting->linger_ns ||
                                              meeting->n_known + 1 >= meeting->own.local_ranks)) {
        *reterr = meeting->misfit;
        return reterr->status;
    }
    if (is_late) {
        nodes_expire(meeting->nodes);
    }
    return HSDP_OK;
}

static uint64_t step_until_ns(const struct meeting *meeting)
{
    uint64_t wake_ns = nodes_wake_ns(meeting->nodes);
    uint64_t until_ns =
        meeting->deadline_ns < meeting->linger_ns ? meeting->deadline_ns : meeting->linger_ns;

    return until_ns < wake_ns ? until_ns : wake_ns;
}

/* Waits until something happens, and sees to it; HSDP_PENDING while ranks are missing. */
static int32_t meeting_step(struct meeting *meeting, struct hsdp_error *reterr)
{
    const struct failure *first = failure_first(meeting->job);
    int32_t status;
    uint32_t n;

    if (first != NULL) {
        *reterr = first->error;
        return reterr->status;
    }
    status = deadline_check(meeting, reterr);
    if (status == HSDP_OK) {
        status = nodes_meet(meeting->nodes, &meeting->reporter, reterr);
    }
    if (status < 0 || (status == HSDP_OK && meeting->n_good == meeting->own.local_ranks &&
                       meeting->misfit.status == HSDP_OK)) {
        return status;
    }
    n = polls_fill(meeting);
    if (poll(meeting->polls, n, clock_left_ms(step_until_ns(meeting), 100)) < 0 && errno != EINTR) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "connect: poll: %s", strerror(errno));
    }
    status = guests_serve(meeting, reterr);
    if (status == HSDP_OK && meeting->polls[POLL_LISTENER].revents != 0) {
        status = guests_accept(meeting, reterr);
    }
    return status == HSDP_OK ? HSDP_PENDING : status;
}

/* ------------------------------------------------------------------------- begin and end */

static int32_t meeting_listen(struct meeting *meeting, struct hsdp_error *reterr)
{
    const struct hsdp_job *job = meeting->job;
    struct sockaddr_un address;
    socklen_t n_bytes = wire_address(job->identity, job->name, &address);

    meeting->listener = forks_open_listener(meeting->job);
    if (meeting->listener < 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: no socket: %s", strerror(errno));
    }
    if (bind(meeting->listener, (struct sockaddr *)&address, n_bytes) != 0) {
        if (errno == EADDRINUSE) {
            return error_set(reterr, HSDP_ERR_ADDRESS_IN_USE,
                             "connect: another process is rank %" PRIu32
                             " of this run already: it listens at \"%s\" for job \"%s\"",
                             job->launch.rank, address.sun_path + 1, job->name);
        }
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "connect: rank %" PRIu32 " cannot listen at \"%s\" for job \"%s\": %s",
                         job->launch.rank, address.sun_path + 1, job->name, strerror(errno));
    }
    if (listen(meeting->listener, BACKLOG) != 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: listen: %s", strerror(errno));
    }
    meeting->is_listening = true;
    return HSDP_OK;
}

static int by_rank(const void *left, const void *right)
{
    const struct guest *a = left;
    const struct guest *b = right;

    /* who is good first, by rank */
    if (a->is_good != b->is_good) {
        return a->is_good ? -1 : 1;
    }
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* The ranks of this node, in the order of their world ranks. */
static void control_fill(struct meeting *meeting, struct control *control)
{
    struct hsdp_job *job = meeting->job;
    uint32_t index = 0;
    bool is_placed = false;

    qsort(meeting->guests, meeting->n_guests, sizeof(meeting->guests[0]), by_rank);
    for (uint32_t i = 0; index < control->n_ranks;) {
        bool is_guest = i < meeting->n_guests && meeting->guests[i].is_good;

        if (!is_placed && (!is_guest || meeting->guests[i].rank > job->launch.rank)) {
            control->ranks[index].pid = (uint32_t)getpid();
            control->ranks[index++].rank = job->launch.rank;
            is_placed = true;
            continue;
        }
        control->ranks[index].pid = meeting->guests[i].pid;
        control->ranks[index].rank = meeting->guests[i].rank;
        job->connections[index++] = meeting->guests[i++].fd;
    }
}

/* All have come: each gets the control block, and its connection is kept. */
static int32_t meeting_welcome(struct meeting *meeting, struct hsdp_error *reterr)
{
    struct hsdp_job *job = meeting->job;
    struct wire_message message = {.kind = WIRE_WELCOME};
    struct wire_message bell = {.kind = WIRE_BELL};
    struct control_size size = job_control_size(job);
    struct control *control = NULL;
    int32_t status;
    int fd = -1;

    status = memory_file_create("hsdp-control", control_bytes(&size), &fd, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = control_map(fd, &size, &control, reterr);
    if (status == HSDP_OK) {
        control_fill(meeting, control);
        atomic_store(&job->control, control);
        if (!job->launch.is_one_host) {
            guests_tell(meeting, &bell, atomic_load(&job->abort_fd));
        }
        guests_tell(meeting, &message, fd);
        for (uint32_t i = 0; i < meeting->n_guests; i++) {
            meeting->guests[i].fd = meeting->guests[i].is_good ? -1 : meeting->guests[i].fd;
        }
    }
    close(fd);
    return status;
}

static void guests_drop(struct meeting *meeting, bool is_known)
{
    for (uint32_t i = meeting->n_guests; i-- > 0;) {
        if (meeting->guests[i].is_known == is_known) {
            guest_drop(meeting, i);
        }
    }
}

static uint64_t late_until_ns(const struct meeting *meeting, uint64_t until_ns)
{
    uint64_t wake_ns = meeting->nodes == NULL ? UINT64_MAX : nodes_wake_ns(meeting->nodes);

    return wake_ns < until_ns ? wake_ns : until_ns;
}

/* Tells those who come a moment later, who would look for a leader that has gone. */
static void late_tell(struct meeting *meeting, struct wire_message *message)
{
    uint64_t until_ns = clock_deadline_ns(LATE_MS);
    struct hsdp_error err;
    uint32_t n;

    while ((nodes_fail_late(meeting->nodes) || meeting->n_known + 1 < meeting->own.local_ranks) &&
           clock_now_ns() < until_ns) {
        n = polls_fill(meeting);
        poll(&meeting->polls[POLL_LISTENER], n - POLL_LISTENER,
             clock_left_ms(late_until_ns(meeting, until_ns), LATE_MS));
        guests_serve(meeting, &err);
        guests_tell(meeting, message, -1);
        guests_drop(meeting, true);
        if (meeting->polls[POLL_LISTENER].revents != 0) {
            guests_accept(meeting, &err);
        }
    }
}

/* Everybody hears how it failed: at once who is there, and who comes late, unless time is over. */
static void meeting_fail(struct meeting *meeting, const struct hsdp_error *err)
{
    struct wire_message message = {.kind = WIRE_FAILED, .rank = meeting->reporter};
    const struct failure *first = failure_first(meeting->job);

    message.error =
        first == NULL ? *err : first->error; /* who aborted is added by each for itself */
    guests_tell(meeting, &message, -1);
    guests_drop(meeting, true);
    if (meeting->nodes != NULL) {
        nodes_fail(meeting->nodes, meeting->reporter, &message.error, FAREWELL_MS);
    }
    if (meeting->is_listening && err->status != HSDP_ERR_TIMEOUT) {
        late_tell(meeting, &message);
    }
}

/* The meeting point of this node, and the way to the others. */
static int32_t meeting_open(struct meeting *meeting, struct hsdp_error *reterr)
{
    struct hsdp_job *job = meeting->job;
    bool is_root = job->launch.rank == 0;
    int32_t status = is_root ? rendezvous_identify(job, reterr)
                             : rendezvous_ask_until(job, meeting->deadline_ns, reterr);

    if (status == HSDP_OK) {
        status = meeting_listen(meeting, reterr);
    }
    if (status == HSDP_OK) {
        status = nodes_open(job, &meeting->nodes, reterr);
    }
    if (status == HSDP_OK && is_root) {
        job->point.port = job->launch.is_one_host ? 0 : nodes_port(meeting->nodes);
        status = rendezvous_publish(job, reterr);
    }
    if (status == HSDP_OK) {
        nodes_arrived(meeting->nodes, job->launch.rank, (uint32_t)getpid());
    }
    return status;
}

int32_t rendezvous_leader(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct meeting *meeting = calloc(1, sizeof(*meeting));
    int32_t status;

    if (meeting == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "connect: no memory for %zu bytes",
                         sizeof(*meeting));
    }
    meeting->job = job;
    meeting->deadline_ns = deadline_ns;
    meeting->linger_ns = UINT64_MAX;
    meeting->n_good = 1;
    meeting->listener = -1;
    meeting->reporter = job->launch.rank;
    rendezvous_hello(job, &meeting->own);
    status = meeting_open(meeting, reterr);
    if (status == HSDP_OK) {
        status = HSDP_PENDING;
    }
    while (status == HSDP_PENDING) {
        status = meeting_step(meeting, reterr);
    }
    if (status == HSDP_OK) {
        status = meeting_welcome(meeting, reterr);
    }
    if (status != HSDP_OK) {
        status = rendezvous_end(job, meeting->reporter, reterr);
        meeting_fail(meeting, reterr);
    } else if (!job->launch.is_one_host) {
        meeting->nodes = NULL; /* handed over: job->nodes */
    }
    if (meeting->nodes != NULL) {
        forks_set_nodes(job, NULL);
        nodes_close(meeting->nodes);
    }
    guests_drop(meeting, false);
    guests_drop(meeting, true);
    forks_close_listener(job);
    free(meeting);
    return status;
}
