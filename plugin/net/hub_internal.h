/* SPDX-License-Identifier: Apache-2.0 */
/* Hub: what its two files share, the whole (hub.c) and each who comes (hub_guest.c). */
#ifndef NET_HUB_INTERNAL_H
#define NET_HUB_INTERNAL_H

#include "net/hub.h"
#include "net/link.h"
#include "net/listen.h"

#define HUB_NOBODY UINT32_MAX

/* What epoll says of the first listener; of guests it says their numbers. */
#define HUB_LISTENER_MARK (UINT64_C(1) << 32)

enum guest_state {
    GUEST_STRANGER, /* has proved nothing */
    GUEST_PROVED,   /* holds the token, and may not know yet that it is let in */
    GUEST_PEER,
};

struct guest {
    struct link link;
    enum guest_state state;
    uint32_t number;   /* its slot, plus a multiple of n_slots that is never used twice */
    uint64_t limit_ns; /* until it is a peer, and once it is leaving */
    uint32_t older;    /* slots of strangers, in the order of their coming */
    uint32_t newer;
};

struct hub {
    struct hub_spec spec; /* host, ports and token are not kept */
    struct keys keys;
    struct listeners listeners;
    int epoll_fd;
    bool has_ended; /* one has ended outside of hub_serve, or inside of an event */

    struct guest **guests; /* n_slots; NULL = free */
    uint32_t *numbers;     /* of each slot, for the next who comes */
    uint32_t *free_slots;
    uint32_t n_slots;
    uint32_t n_free;
    uint32_t n_members; /* proved or peer */
    uint32_t max_strangers;
    uint32_t oldest; /* stranger */
    uint32_t newest;

    uint64_t members_due_ns;  /* members are looked at then */
    uint64_t members_seen_ns; /* and were last */
    uint64_t listen_again_ns; /* UINT64_MAX while it listens */
    struct hub_counts counts;
    uint8_t inbox[LINK_INBOX_BYTES];
};

/** Takes who waits at a listener, a number at a time. */
void guests_accept(struct hub *hub, int listener_fd);

/** NULL when there is no such guest any more. */
struct guest *guest_find(const struct hub *hub, uint64_t number);

/** What epoll says of it. It may be gone afterwards, as after all of these. */
void guest_serve(struct hub *hub, struct guest *guest, uint32_t epoll_events);

/** Strangers who have proved nothing in time go; members beat, are silent, have ended. */
void guests_watch_strangers(struct hub *hub, uint64_t now_ns);
void guests_watch_members(struct hub *hub, uint64_t now_ns);

/** Gives the limit of its farewell to one that is leaving. */
void guest_leave(struct hub *hub, struct guest *guest);

/** All that are no peers. Not inside of an event. */
void guests_drop_strangers(struct hub *hub);

#endif /* NET_HUB_INTERNAL_H */
