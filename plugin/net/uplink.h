/* SPDX-License-Identifier: Apache-2.0 */
/* Uplink: looks for a hub at every address and port where it may be, until it is let in. */
#ifndef NET_UPLINK_H
#define NET_UPLINK_H

#include <stdbool.h>
#include <stddef.h>

#include "hsdp/abi.h"
#include "net/net.h"

struct uplink;

/* Called inside uplink_serve only, one at a time; they may call all but uplink_serve and
 * uplink_close. */
struct uplink_events {
    void (*joined)(void *user); /* once: the hub has let this end in */
    void (*received)(void *user, uint32_t kind, const uint8_t *bytes, uint64_t n_bytes);
    void (*ended)(void *user, enum net_end why); /* once, after joined; not after uplink_end */
    void *user;
};

struct uplink_spec {
    const char *const *hosts; /* numbers or names; all addresses of each are tried */
    const uint16_t *ports;    /* of each address, in order */
    uint32_t n_hosts;         /* 1..NET_MAX_HOSTS */
    uint32_t n_ports;         /* 1..NET_MAX_PORTS */
    const uint8_t *token;     /* NET_TOKEN_BYTES, copied; NULL = none */
    struct net_identity self;
    uint64_t max_message_bytes; /* up to NET_MAX_MESSAGE, both ways */
    uint64_t silence_ns;        /* a hub that is silent for longer has ended; 0 = never */
    uint64_t beat_ns;           /* as the hub's */
    struct uplink_events events;
};

enum uplink_state {
    UPLINK_TRYING, /* goes on until its owner closes it */
    UPLINK_JOINED,
    UPLINK_ENDED, /* for good: who was let in once does not try again */
};

/**
 * Begins to try. Does not block: names are resolved in a thread of their own.
 *
 * Errors: HSDP_ERR_INVALID, HSDP_ERR_UNAVAILABLE, HSDP_ERR_NO_MEMORY.
 * Threads: one at a time, whichever, for this and all below.
 */
int32_t uplink_open(const struct uplink_spec *spec, struct uplink **ret, struct hsdp_error *reterr);

/** Closes at once, whatever is queued; the hub finds the connection ended. NULL: none. */
void uplink_close(struct uplink *uplink);

/** uplink_close in a child after fork: closes its copies and frees; the hub notices nothing. */
void uplink_close_in_child(struct uplink *uplink);

/** A descriptor to poll: readable when uplink_serve has something to do. Not to be read. */
int uplink_fd(const struct uplink *uplink);

/** uplink_serve is due at this time of clock_now_ns at the latest; UINT64_MAX = never. */
uint64_t uplink_wake_ns(const struct uplink *uplink);

/**
 * Does what is to be done now, and does not block; needless calls do no harm.
 *
 * Errors: HSDP_ERR_UNAVAILABLE when this host can no longer wait for the hub.
 */
int32_t uplink_serve(struct uplink *uplink, struct hsdp_error *reterr);

/**
 * Queues a message to the hub. kind < NET_KIND_LIMIT. False: not joined or ended; or it has just
 * ended as NET_END_OVERFLOW or NET_END_MEMORY, which the next uplink_serve reports.
 */
bool uplink_send(struct uplink *uplink, uint32_t kind, const void *bytes, uint64_t n_bytes);

/** Sends what is queued and a farewell, then closes. No event comes any more. */
void uplink_end(struct uplink *uplink);

/** True when nothing is queued and no farewell is under way: uplink_close now loses nothing. */
bool uplink_is_flushed(const struct uplink *uplink);

/** Another silence_ns and beat_ns, counted from now on. */
void uplink_set_silence(struct uplink *uplink, uint64_t silence_ns, uint64_t beat_ns);

enum uplink_state uplink_state(const struct uplink *uplink);

/**
 * What the tries of each address met, for a sentence; a refusal counts more than what came later.
 * "127.0.0.1:29500: connection refused; [::1]:29501: it has another token"; "" = no try yet.
 */
void uplink_trouble(const struct uplink *uplink, char *ret_text, size_t max_bytes);

/** The address of the hub that was joined, "127.0.0.1:29501"; "" before. */
const char *uplink_address(const struct uplink *uplink);

#endif /* NET_UPLINK_H */
