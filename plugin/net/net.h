/* SPDX-License-Identifier: Apache-2.0 */
/* Net: what both ends of a connection between hosts share. */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdint.h>

#define NET_TOKEN_BYTES 32u
#define NET_JOB_BYTES   16u
#define NET_MAX_HOSTS   16u /* of one uplink */
#define NET_MAX_PORTS   64u /* of one hub or uplink */
#define NET_MAX_PEERS   (UINT32_C(1) << 20)
#define NET_MAX_MESSAGE (UINT64_C(1) << 30) /* bytes */

/* Kinds of messages are the owner's, below this. */
#define NET_KIND_LIMIT UINT32_C(0xffff0000)

/* Every connection says something at least so often, unless there are very many: net_beat_ns. */
#define NET_BEAT_NS UINT64_C(200000000)

/* Who speaks: the first message carries it, in clear, and both ends prove that they agree on it. */
struct net_identity {
    uint8_t job[NET_JOB_BYTES]; /* a hash of all that makes this run, and this attempt, itself */
    uint32_t rank;
};

/* How a connection ended. */
enum net_end {
    NET_END_NONE = 0, /* it has not */
    NET_END_CLOSED,   /* the other end said farewell: hub_end, uplink_end */
    NET_END_LOST,     /* the connection ended without one: its process died, or closed at once */
    NET_END_SILENT,   /* nothing was heard for silence_ns, not even a beat */
    NET_END_GARBAGE,  /* what came is not what the other end sent, or is longer than agreed */
    NET_END_OVERFLOW, /* it does not read what is sent to it */
    NET_END_MEMORY,   /* no memory here for what it sends or is sent */
};

/**
 * How often the connections of a hub of n_peers beat, and their uplinks too: NET_BEAT_NS up to
 * 2,000 peers, then less often, so that beats alone do not keep a processor busy; but at least four
 * times in silence_ns (0 = never silent).
 */
uint64_t net_beat_ns(uint32_t n_peers, uint64_t silence_ns);

/** A few words for a sentence: "the connection ended". */
const char *net_end_text(enum net_end why);

#endif /* NET_NET_H */
