/* SPDX-License-Identifier: Apache-2.0 */
/* Hub: listens, lets in who holds the same token and belongs to the same job, keeps them. */
#ifndef NET_HUB_H
#define NET_HUB_H

#include <stdbool.h>
#include <stddef.h>

#include "hsdp/abi.h"
#include "net/net.h"

struct hub;

/*
 * Events are called inside hub_serve only, one at a time. They may call hub_send, hub_end and the
 * queries; not hub_serve or hub_close. Peers are numbers that are never used twice.
 */
struct hub_events {
    void (*joined)(void *user, uint32_t peer, const struct net_identity *who);
    void (*received)(void *user, uint32_t peer, uint32_t kind, const uint8_t *bytes,
                     uint64_t n_bytes);
    /* The last of this peer; not called after hub_end. With NET_END_MEMORY also without joined, of
     * one that could not be let in to the end. */
    void (*ended)(void *user, uint32_t peer, enum net_end why);
    void *user;
};

struct hub_spec {
    /* Where to listen: a number or a name. NULL: every address of this host, IPv4 and IPv6, with
     * a token; 127.0.0.1 and ::1 without one. */
    const char *host;
    const uint16_t *ports; /* tried in order; the first that is free everywhere is taken; 0 = any */
    uint32_t n_ports;      /* 1..NET_MAX_PORTS */
    uint32_t max_peers;    /* 1..NET_MAX_PEERS at a time */
    const uint8_t *token;  /* NET_TOKEN_BYTES, copied; NULL = none: only loopback is let in */
    struct net_identity self;
    uint64_t max_message_bytes; /* up to NET_MAX_MESSAGE, both ways */
    uint64_t silence_ns;        /* who is silent for longer has ended; 0 = never */
    uint64_t beat_ns;           /* net_beat_ns of both ends' numbers; 0 = NET_BEAT_NS */
    struct hub_events events;   /* joined, received and ended are all there */
};

/* Who was not let in, counted since hub_open; and how many are there now. */
struct hub_counts {
    uint64_t n_peers;        /* now */
    uint64_t n_strangers;    /* now: have come, and proved nothing yet */
    uint64_t n_joined;       /* ever */
    uint64_t other_versions; /* of this protocol */
    uint64_t other_jobs;
    uint64_t other_tokens; /* or none, where there is one here */
    uint64_t remotes;      /* from another host, without a token here */
    uint64_t garbage;      /* spoke no word of ours */
    uint64_t silent;       /* proved nothing in time */
    uint64_t crowded_out;  /* the oldest strangers, when more came; and who came when full */
};

/**
 * Listens. Does not block, but for a host that is a name: resolving it is waited for at most 5 s.
 * Raises the soft limit of descriptors up to the hard one, where max_peers needs it.
 *
 * Errors: HSDP_ERR_ADDRESS_IN_USE when every port is held, naming them; HSDP_ERR_INVALID for a
 * host that is no loopback address without a token, HSDP_ERR_UNAVAILABLE, HSDP_ERR_NO_MEMORY.
 * Threads: one at a time, whichever, for this and all below.
 */
int32_t hub_open(const struct hub_spec *spec, struct hub **ret, struct hsdp_error *reterr);

/** Closes everything at once, whatever is queued; peers find the connection ended. NULL: none. */
void hub_close(struct hub *hub);

/** hub_close in a child after fork: closes its copies and frees, and the peers notice nothing. */
void hub_close_in_child(struct hub *hub);

/** The port that was taken. */
uint16_t hub_port(const struct hub *hub);

/**
 * Nobody else is let in: closes the listeners, and drops who is not a peer yet. Whoever comes
 * finds nobody there, and goes on looking. hub_port stays what it was.
 */
void hub_stop_listening(struct hub *hub);

/** A descriptor to poll: readable when hub_serve has something to do. Not to be read. */
int hub_fd(const struct hub *hub);

/** hub_serve is due at this time of clock_now_ns at the latest; UINT64_MAX = never. */
uint64_t hub_wake_ns(const struct hub *hub);

/**
 * Does what is to be done now, and does not block. To be called when hub_fd is readable and at
 * hub_wake_ns; needless calls do no harm.
 *
 * Errors: HSDP_ERR_UNAVAILABLE when this host can no longer wait for its peers.
 */
int32_t hub_serve(struct hub *hub, struct hsdp_error *reterr);

/**
 * Queues a message to a peer. kind < NET_KIND_LIMIT. False: there is no such peer (any more), or
 * it has just ended as NET_END_OVERFLOW or NET_END_MEMORY, which the next hub_serve reports. Up to
 * four messages of full length are queued beside what the system takes.
 */
bool hub_send(struct hub *hub, uint32_t peer, uint32_t kind, const void *bytes, uint64_t n_bytes);

/** Sends a peer what is queued and a farewell, then closes. No event of it comes any more. */
void hub_end(struct hub *hub, uint32_t peer);

/** True when nothing is queued and nobody's farewell is under way: hub_close now loses nothing. */
bool hub_is_flushed(const struct hub *hub);

/** Another silence_ns and beat_ns, for all peers, counted from now on. */
void hub_set_silence(struct hub *hub, uint64_t silence_ns, uint64_t beat_ns);

void hub_count(const struct hub *hub, struct hub_counts *ret);

/** Who was not let in, for a sentence: "2 with another token, 1 of another job"; "" = nobody. */
void hub_trouble(const struct hub *hub, char *ret_text, size_t max_bytes);

#endif /* NET_HUB_H */
