/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the server share. All of it belongs to the server's thread. */
#ifndef REFERENCE_SERVER_INTERNAL_H
#define REFERENCE_SERVER_INTERNAL_H

#include <stdatomic.h>

#include "channel.h"
#include "request.h"
#include "server.h"
#include "thread.h"

/* A frame on its way to a rank. */
struct outgoing {
    struct outgoing *next;
    size_t n_bytes;
    size_t n_sent;
    unsigned char bytes[];
};

/* The other end of a connection. */
struct peer {
    struct peer *next;
    int fd;
    int watch_fd; /* tells that the process has ended; -1 = unknown */
    uint32_t rank;
    bool is_known; /* has said its rank */
    struct inbox inbox;
    struct outgoing *outgoing;
    struct meeting *waits_in; /* it does nothing until this is done; NULL = not so */
};

/* A rank that has come to a meeting. */
struct arrival {
    bool is_there;
    uint64_t request_number;
    uint64_t time_ms;
    struct packet packet; /* what `request` points into */
    struct request request;
};

struct meeting {
    struct meeting *next;
    uint64_t deadline_ms;
    uint32_t first; /* the member that came first */
    uint32_t n_arrivals;
    uint32_t n_members;
    struct arrival arrivals[];
};

struct server {
    pthread_t thread;
    atomic_bool is_stopping;
    int wake_fd;
    int listen_fd; /* -1 once all have come */
    uint32_t world_ranks;
    struct peer *peers;
    struct peer **ranks; /* [world_ranks], NULL = not here */
    bool *has_left;      /* [world_ranks] */
    struct meeting *meetings;
    bool is_failed;
    bool is_closed;            /* all ranks have said farewell */
    struct hsdp_error failure; /* the first one */
};

/* ---------------------------------------------------------------------------- server_peer.c */

/** Queues a frame. */
void peer_send(struct peer *peer, struct frame frame, const struct packet *packet);
/** Sends what the socket takes. */
void peer_flush(struct peer *peer);
void peer_destroy(struct peer *peer);

/* ------------------------------------------------------------------------- server_failure.c */

/** Fails the job with its first reason, and tells all ranks. */
void server_fail(struct server *server, const struct hsdp_error *error);
/** A rank will not come to any meeting any more. */
void server_lose(struct server *server, uint32_t rank, const char *how);

/** Writes the beginning of an error about a meeting; the message is the caller's. */
void error_begin(struct hsdp_error *error, int32_t status, const struct meeting *meeting);
/** Appends to the message. */
void error_say(struct hsdp_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** The deadline of a meeting has passed. */
void meeting_expire(struct server *server, struct meeting *meeting);
/** Fails the job if this rank waits for one that waits for it. */
void server_find_deadlock(struct server *server, uint32_t rank);

/* ------------------------------------------------------------------------- server_meeting.c */

/** Takes a request; the packet of the inbox is taken too. */
void server_request(struct server *server, struct peer *peer);
/** The rank of this peer waits for the answer to one of its requests. */
void server_wait(struct server *server, struct peer *peer, uint64_t request_number);
/** Time that does not count, for this process was stopped. */
void meeting_shift(struct meeting *meeting, uint64_t stopped_ms);
/** A rank has another deadline for one of its requests. */
void server_retime(struct server *server, const struct peer *peer, uint64_t request_number,
                   uint64_t timeout_ms);
/** The request that came first, which stands for all. */
const struct request *meeting_request(const struct meeting *meeting);
bool meeting_misses(const struct meeting *meeting, uint32_t rank);
void meetings_destroy(struct server *server);

/* ----------------------------------------------------------------------------- server_sum.c */

/** Reduces n arrays of n_bytes to one; false where the request makes no sense. */
bool payloads_reduce(const struct request *request, const void *const *payloads, uint32_t n,
                     void *ret);

#endif /* REFERENCE_SERVER_INTERNAL_H */
