/* SPDX-License-Identifier: Apache-2.0 */
/* Link: a socket that does not block, with the channel that its bytes make. */
#ifndef NET_LINK_H
#define NET_LINK_H

#include "net/address.h"
#include "net/channel.h"

#define LINK_INBOX_BYTES (UINT64_C(16) << 10)

struct link {
    int fd;
    int epoll_fd;
    uint64_t mark; /* what epoll says of it */
    struct channel channel;
    enum net_end end; /* once it has ended; nothing is sent or received any more */
    bool wants_out;   /* epoll tells when it can be written */
    bool is_connecting;
    bool is_leaving;     /* has said farewell, and hears nothing any more */
    bool is_shut;        /* all is sent, and the other end has been told that no more comes */
    uint64_t silence_ns; /* 0 = never */
    uint64_t beat_ns;
    uint64_t received_ns;
    uint64_t sent_ns;
};

/** Events of a channel, while link_receive runs; after CHANNEL_ENDED link->end is set. */
typedef void link_handler(void *user, struct link *link, enum channel_event event);

/** A socket as all of ours are: closed by exec, not blocking, without delays. -1 with errno. */
int link_socket(int family);
void link_tune(int fd, uint64_t silence_ns);

/** How often it beats (0 = NET_BEAT_NS), and for how long it may be silent. After link_init. */
void link_set_times(struct link *link, uint64_t beat_ns, uint64_t silence_ns);

/** Takes the socket over, whatever the outcome; false with errno when epoll does not take it. */
bool link_init(struct link *link, int fd, int epoll_fd, uint64_t mark,
               const struct channel_spec *spec);

/** Ends both directions, so that the other end sees it whoever else holds the socket; closes. */
void link_fini(struct link *link);

/** Only closes. */
void link_fini_in_child(struct link *link);

/** Reads what is there, LINK_INBOX_BYTES at a time into `inbox`, and handles its events. */
void link_receive(struct link *link, uint8_t *inbox, link_handler *handler, void *user);

/** Sends what the system takes of what is queued. */
void link_flush(struct link *link);

/** A message of the owner; false: not joined, ended, or ended by this. */
bool link_send(struct link *link, uint32_t kind, const void *bytes, uint64_t n_bytes);

/** Queues a farewell. */
void link_leave(struct link *link);

/** True when nothing is queued, and a farewell has been received. */
bool link_is_flushed(const struct link *link);

/** True when bytes have come that were not received yet: then it is no silence. */
bool link_has_unread(const struct link *link);

/** What is to be done next: the earlier of its beat and its silence; 0 = never. */
uint64_t link_due_ns(const struct link *link);

/** Beats, if nothing was sent for beat_ns; ends it when it has been silent. */
void link_watch(struct link *link, uint64_t now_ns);

#endif /* NET_LINK_H */
