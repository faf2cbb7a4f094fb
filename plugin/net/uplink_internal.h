/* SPDX-License-Identifier: Apache-2.0 */
/* Uplink: what its files share, the link (uplink.c) and where it leads (uplink_targets.c). */
#ifndef NET_UPLINK_INTERNAL_H
#define NET_UPLINK_INTERNAL_H

#include "net/link.h"
#include "net/lookup.h"
#include "net/uplink.h"

/* What tries of an address and port met. */
enum try_outcome {
    TRY_NONE = 0,
    TRY_FAILED, /* detail: errno */
    TRY_NO_CONNECTION,
    TRY_NO_ANSWER,
    TRY_CUT,     /* connected, and ended without an answer */
    TRY_REFUSED, /* plus a channel_refusal; detail: the other version */
};

struct uplink_try {
    uint32_t outcome;
    uint32_t detail;
};

struct uplink_host {
    char *name;
    bool is_number;             /* and stays what it is */
    struct lookup *lookup;      /* while it goes on */
    struct addresses addresses; /* as they were found last */
    uint64_t looked_ns;         /* 0 = never */
    struct uplink_try *tries;   /* [address][port] */
    char trouble[128];          /* why it has no address */
};

/* Ports before hosts before addresses: every host's first port comes first. */
struct target {
    uint32_t port;
    uint32_t host;
    uint32_t address;
};

struct uplink {
    struct uplink_spec spec; /* hosts, ports and token are not kept */
    struct keys keys;
    enum uplink_state state;
    int epoll_fd;
    struct link link; /* fd -1: none */

    struct uplink_host hosts[NET_MAX_HOSTS];
    uint16_t ports[NET_MAX_PORTS];
    uint32_t n_hosts;
    uint32_t n_ports;
    struct target target; /* that is tried, or is next */
    bool is_trying;
    bool has_waited;     /* a try of this round took as long as it may */
    uint64_t give_up_ns; /* this try, or a farewell */
    uint64_t resume_ns;  /* the next round begins */
    uint64_t try_limit_ns;
    uint32_t pause_ms;
    char address[ADDRESS_MAX_CHARS]; /* that was joined */
    uint8_t inbox[LINK_INBOX_BYTES];
};

bool target_is_first(const struct target *target);

bool target_is_only(const struct uplink *uplink);

/** Goes one on, whether there is an address or not; past the last port there is none. */
void target_next(const struct uplink *uplink, struct target *target);

/** Goes on to where there is an address, or past the last port. */
void target_skip(const struct uplink *uplink, struct target *target);

/** With its port; false: there is none. */
bool target_address(const struct uplink *uplink, const struct target *target, struct address *ret);

/** Keeps what a try has met; why a hub refused stays known, though it may not be there any more. */
void target_note(struct uplink *uplink, enum try_outcome outcome, uint32_t detail);

/** Begins to look for hosts that were not looked for lately, and takes what has been found. */
void hosts_look(struct uplink *uplink);
void hosts_take(struct uplink *uplink);

#endif /* NET_UPLINK_INTERNAL_H */
