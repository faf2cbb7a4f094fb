/* SPDX-License-Identifier: Apache-2.0 */
/* A hub and its uplinks in one process: both served in turn, and what they have heard. */
#ifndef TESTS_NET_FIXTURE_H
#define TESTS_NET_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/hub.h"
#include "net/uplink.h"

#define NET_UPLINKS    8u
#define NET_LIMIT_MS   30000u /* of one wait */
#define NET_SILENCE_NS UINT64_C(20000000000)
#define NET_MESSAGE    1000u /* bytes at most, unless a test says otherwise */

/* What one end was told. */
struct net_log {
    uint32_t n_joined;
    uint32_t n_messages;
    uint32_t n_ended;
    enum net_end why;        /* the last end */
    uint32_t peer;           /* of the last event; of an uplink 0 */
    struct net_identity who; /* who joined last */
    uint32_t kind;           /* of the last message */
    uint64_t n_bytes;
    uint8_t bytes[64]; /* its first ones */
    uint64_t n_bytes_ever;
    uint64_t sum; /* of all bytes: says whether all came whole */
    bool answers; /* a hub that sends everything back */
    struct hub *hub;
};

struct net_world {
    struct hub *hub; /* NULL: none */
    struct uplink *uplinks[NET_UPLINKS];
    struct net_log hub_log;
    struct net_log logs[NET_UPLINKS];
    uint16_t port; /* of the hub, or that was reserved */
};

/** A spec that works: port 0 of loopback, no token, NET_MESSAGE, NET_SILENCE_NS. */
struct hub_spec net_hub_spec(struct net_world *world);
/** The same for uplink `index`, whose rank is index + 1: 127.0.0.1 and the port of the world. */
struct uplink_spec net_uplink_spec(struct net_world *world, uint32_t index);

/** They have to open. */
void net_hub_open(struct net_world *world, const struct hub_spec *spec);
void net_uplink_open(struct net_world *world, uint32_t index, const struct uplink_spec *spec);
void net_world_close(struct net_world *world);

/** Serves both until a condition holds; the test fails when it does not in NET_LIMIT_MS. */
void net_serve_until(struct net_world *world, bool (*holds)(struct net_world *world));
/** Serves for so long. */
void net_serve_ms(struct net_world *world, uint32_t ms);

bool net_all_joined(struct net_world *world); /* each uplink that there is, at both ends */

/** A token that is `byte` 32 times. */
const uint8_t *net_token(uint8_t byte);

/** A plain connection to the port of the world, by IPv4; it blocks. */
int net_stranger(const struct net_world *world);
/** True when the other end has closed it, within ms. What it says before is dropped. */
bool net_stranger_is_dropped(int fd, uint32_t ms);

/** A listener at a free port of 127.0.0.1 that never accepts; -1 never. */
int net_silent_listener(uint16_t *ret_port);

bool net_has_ipv6(void);

#endif /* TESTS_NET_FIXTURE_H */
