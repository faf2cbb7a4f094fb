/* SPDX-License-Identifier: Apache-2.0 */
/* The server's thread: takes connections, reads frames, and watches deadlines and processes. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server_internal.h"

#define TICK_MS    100
#define STOPPED_MS 1000 /* who sleeps so much longer than asked was stopped */

/* ------------------------------------------------------------------------------------- frames */

static void mismatch_tell(struct server *server, uint32_t rank, const char *what, uint64_t world)
{
    struct hsdp_error error = HSDP_ERROR_INIT;

    error.status = HSDP_ERR_MISMATCH;
    snprintf(error.operation, sizeof(error.operation), "job.connect");
    snprintf(error.message, sizeof(error.message),
             "job.connect: rank %" PRIu32 " %s: it says that the world has %" PRIu64
             " ranks, rank 0 has %" PRIu32,
             rank, what, world, server->world_ranks);
    server_fail(server, &error);
}

static void hello_take(struct server *server, struct peer *peer)
{
    uint64_t rank = packet_get_number(&peer->inbox.packet);
    uint64_t world_ranks = packet_get_number(&peer->inbox.packet);
    struct packet packet = {0};

    peer->is_known = true;
    peer->rank = (uint32_t)rank;
    if (world_ranks != server->world_ranks || rank >= server->world_ranks) {
        mismatch_tell(server, (uint32_t)rank, "is of another world", world_ranks);
    } else if (server->ranks[rank] != NULL) {
        mismatch_tell(server, (uint32_t)rank, "came twice", world_ranks);
    } else {
        server->ranks[rank] = peer;
    }
    if (server->is_failed) {
        error_write(&server->failure, &packet);
        peer_send(peer, (struct frame){.kind = FRAME_FAILED}, &packet);
        packet_free(&packet);
    }
}

static void leave_take(struct server *server, uint32_t rank)
{
    server->has_left[rank] = true;
    for (struct meeting *m = server->meetings; m != NULL; m = m->next) {
        if (meeting_misses(m, rank)) {
            server_lose(server, rank, "has left the job");
            return;
        }
    }
}

static void frame_take(struct server *server, struct peer *peer)
{
    struct hsdp_error error;

    if (peer->inbox.frame.kind == FRAME_HELLO && !peer->is_known) {
        hello_take(server, peer);
        return;
    }
    if (!peer->is_known || peer->rank >= server->world_ranks || server->ranks[peer->rank] != peer) {
        return; /* a stranger, or a second one of the same rank */
    }
    switch (peer->inbox.frame.kind) {
    case FRAME_REQUEST:
        server_request(server, peer);
        break;
    case FRAME_WAIT:
        server_wait(server, peer, peer->inbox.frame.request);
        break;
    case FRAME_TIMEOUT:
        server_retime(server, peer, peer->inbox.frame.request,
                      packet_get_number(&peer->inbox.packet));
        break;
    case FRAME_LEAVE:
        leave_take(server, peer->rank);
        break;
    case FRAME_FAILED:
        error_read(&peer->inbox.packet, &error);
        server_fail(server, &error);
        break;
    default:
        break;
    }
}

/* -------------------------------------------------------------------------------------- peers */

static void peers_accept(struct server *server)
{
    int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct peer *peer;

    if (fd < 0) {
        return;
    }
    peer = channel_is_own(fd) ? calloc(1, sizeof(*peer)) : NULL;
    if (peer == NULL) {
        close(fd);
        return;
    }
    peer->fd = fd;
    peer->watch_fd = channel_watch(fd);
    peer->next = server->peers;
    server->peers = peer;
}

/* A connection has ended, with or without a farewell. */
static void peer_remove(struct server *server, struct peer *peer)
{
    struct peer **at = &server->peers;

    while (*at != peer) {
        at = &(*at)->next;
    }
    *at = peer->next;
    if (peer->is_known && peer->rank < server->world_ranks && server->ranks[peer->rank] == peer) {
        server->ranks[peer->rank] = NULL;
        if (!server->has_left[peer->rank]) {
            server->has_left[peer->rank] = true;
            server_lose(server, peer->rank, "died: its process has ended without a farewell");
        }
    }
    peer_destroy(peer);
}

/* Reads all that has come; false once the other end is closed. */
static bool peer_read(struct server *server, struct peer *peer)
{
    enum inbox_state state = inbox_read(&peer->inbox, peer->fd);

    while (state == INBOX_WHOLE) {
        frame_take(server, peer);
        inbox_next(&peer->inbox);
        state = inbox_read(&peer->inbox, peer->fd);
    }
    return state != INBOX_CLOSED;
}

static void peer_serve(struct server *server, struct peer *peer, const struct pollfd *polled)
{
    bool is_there = true;

    if ((polled[0].revents & POLLOUT) != 0) {
        peer_flush(peer);
    }
    if ((polled[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
        is_there = peer_read(server, peer);
    }
    if (is_there && polled[1].revents != 0) {
        peer_read(server, peer); /* its last words; then the process is gone */
        is_there = false;
    }
    if (!is_there) {
        peer_remove(server, peer);
    }
}

/* --------------------------------------------------------------------------------------- loop */

static void deadlines_watch(struct server *server, uint64_t stopped_ms)
{
    uint64_t now = now_ms();

    for (struct meeting *m = server->meetings; m != NULL; m = m->next) {
        meeting_shift(m, stopped_ms);
    }
    for (struct meeting *m = server->meetings; m != NULL; m = m->next) {
        if (now >= m->deadline_ms) {
            meeting_expire(server, m);
            return;
        }
    }
}

/* Two entries for each peer, behind those of the server itself; returns how many. */
static nfds_t polled_fill(struct server *server, struct pollfd *polled)
{
    nfds_t n = 0;

    polled[n++] = (struct pollfd){.fd = server->wake_fd, .events = POLLIN};
    polled[n++] = (struct pollfd){.fd = server->listen_fd, .events = POLLIN};
    for (struct peer *peer = server->peers; peer != NULL; peer = peer->next) {
        short events = peer->outgoing != NULL ? POLLIN | POLLOUT : POLLIN;

        polled[n++] = (struct pollfd){.fd = peer->fd, .events = events};
        polled[n++] = (struct pollfd){.fd = peer->watch_fd, .events = POLLIN};
    }
    return n;
}

static size_t peers_count(const struct server *server)
{
    size_t n = 0;

    for (struct peer *peer = server->peers; peer != NULL; peer = peer->next) {
        n++;
    }
    return n;
}

static void server_turn(struct server *server, struct pollfd *polled)
{
    nfds_t n = polled_fill(server, polled);
    uint64_t before = now_ms();
    struct peer *peer = server->peers, *next;
    uint64_t slept_ms;

    if (poll(polled, n, TICK_MS) < 0) {
        return;
    }
    slept_ms = now_ms() - before;
    for (nfds_t i = 2; peer != NULL; i += 2, peer = next) {
        next = peer->next;
        peer_serve(server, peer, &polled[i]);
    }
    if ((polled[1].revents & POLLIN) != 0) {
        peers_accept(server);
    }
    deadlines_watch(server, slept_ms > TICK_MS + STOPPED_MS ? slept_ms - TICK_MS : 0);
}

static void *server_run(void *argument)
{
    struct server *server = argument;
    struct pollfd *polled = NULL;
    size_t n_polled = 0;

    while (!atomic_load(&server->is_stopping)) {
        size_t n = 2 + 2 * peers_count(server);

        if (n > n_polled) {
            struct pollfd *larger = realloc(polled, n * sizeof(*polled));

            if (larger == NULL) {
                break;
            }
            polled = larger;
            n_polled = n;
        }
        server_turn(server, polled);
    }
    free(polled);
    return NULL;
}

/* ------------------------------------------------------------------------------- start and stop */

static void server_destroy(struct server *server)
{
    meetings_destroy(server);
    while (server->peers != NULL) {
        struct peer *first = server->peers;

        server->peers = first->next;
        peer_destroy(first);
    }
    if (server->listen_fd >= 0) {
        close(server->listen_fd);
    }
    if (server->wake_fd >= 0) {
        close(server->wake_fd);
    }
    free(server->ranks);
    free(server->has_left);
    free(server);
}

int server_start(const char *name, uint32_t world_ranks, struct server **ret)
{
    struct server *server = calloc(1, sizeof(*server));
    int error = ENOMEM;

    if (server == NULL) {
        return ENOMEM;
    }
    server->world_ranks = world_ranks;
    server->ranks = calloc(world_ranks, sizeof(*server->ranks));
    server->has_left = calloc(world_ranks, sizeof(*server->has_left));
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->listen_fd = channel_listen(name);
    if (server->listen_fd < 0) {
        error = errno;
    } else if (server->ranks != NULL && server->has_left != NULL && server->wake_fd >= 0) {
        error = thread_start(&server->thread, server_run, server);
    }
    if (error != 0) {
        server_destroy(server);
        return error;
    }
    *ret = server;
    return 0;
}

/* The last answers, to ranks that are slow to read them. */
static void server_flush(struct server *server)
{
    uint64_t until = now_ms() + 2000;

    for (struct peer *peer = server->peers; peer != NULL; peer = peer->next) {
        while (peer->outgoing != NULL && now_ms() < until) {
            struct pollfd polled = {.fd = peer->fd, .events = POLLOUT};

            poll(&polled, 1, TICK_MS);
            peer_flush(peer);
        }
    }
}

void server_stop(struct server *server)
{
    uint64_t one = 1;
    ssize_t n;

    if (server == NULL) {
        return;
    }
    atomic_store(&server->is_stopping, true);
    n = write(server->wake_fd, &one, sizeof(one));
    (void)n; /* the thread looks again after a tick anyway */
    pthread_join(server->thread, NULL);
    server_flush(server);
    server_destroy(server);
}

void server_forget(struct server *server)
{
    if (server != NULL) {
        server_destroy(server);
    }
}
