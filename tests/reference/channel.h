/* SPDX-License-Identifier: Apache-2.0 */
/* Channels: frames over a unix socket between a rank and the server. */
#ifndef REFERENCE_CHANNEL_H
#define REFERENCE_CHANNEL_H

#include "packet.h"

enum frame_kind {
    /* to the server */
    FRAME_HELLO = 1, /* rank, world_ranks */
    FRAME_REQUEST,   /* a request: request.h */
    FRAME_WAIT,      /* the rank does nothing until this request is answered */
    FRAME_TIMEOUT,   /* milliseconds: the deadline of a request has changed */
    FRAME_LEAVE,     /* the rank will ask for nothing any more */
    /* from the server */
    FRAME_ANSWER,
    FRAME_REFUSED, /* a struct hsdp_error: what one of the ranks could not do */
    /* both ways: a struct hsdp_error, with which the job has failed */
    FRAME_FAILED,
};

struct frame {
    uint32_t kind;
    uint32_t reserved;
    uint64_t request; /* the rank's number of it, from 1 */
    uint64_t n_bytes; /* of the packet that follows */
};

#define CHANNEL_NAME_BYTES 100u

/** Listens at a name of the abstract namespace; returns -1 with errno, EADDRINUSE if it is held. */
int channel_listen(const char *name);
/** Connects; returns -1 with errno, ECONNREFUSED while nobody listens. */
int channel_connect(const char *name);
/** A descriptor that can be read once the process at the other end has ended; -1 = unknown. */
int channel_watch(int fd);
/** True if the other end is a process of the same user. */
bool channel_is_own(int fd);

/* A frame that comes in piece by piece. Zeroed memory waits for the first. */
struct inbox {
    struct frame frame;
    size_t n_frame; /* bytes of the head that are there */
    size_t n_body;
    struct packet packet; /* whoever takes a whole frame takes it too */
};

enum inbox_state { INBOX_EMPTY, INBOX_WHOLE, INBOX_CLOSED };

/** Reads what is there, without waiting, up to one whole frame. */
enum inbox_state inbox_read(struct inbox *inbox, int fd);
/** Makes room for the next frame. */
void inbox_next(struct inbox *inbox);

#endif /* REFERENCE_CHANNEL_H */
