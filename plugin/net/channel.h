/* SPDX-License-Identifier: Apache-2.0 */
/* Channel: everything that reads or makes the bytes of a connection. It knows no sockets. */
#ifndef NET_CHANNEL_H
#define NET_CHANNEL_H

#include <sodium.h>
#include <stdbool.h>

#include "net/bytes.h"
#include "net/keys.h"
#include "net/net.h"

/*
 * The client speaks first. All numbers are little endian, all lengths fixed:
 *
 *     client  HELLO      job, rank, whether it has a token, nonce
 *     server  CHALLENGE  nonce, tag of "S", HELLO and nonce    or  REFUSED, why, and the end
 *     client  PROOF      tag of "C", HELLO and nonce, header   or  REFUSED: another token
 *     server             header of its stream, then frames; the first is a welcome
 *     client             frames; the first is a welcome
 *
 * Every message up to PROOF begins with magic and version, and these and REFUSED stay as they are
 * in all versions. A frame is the length of what follows (4 bytes) and a message of secretstream:
 * kind (4 bytes) and content. The last frame of an end that says farewell is marked as final.
 */
#define CHANNEL_VERSION         1u
#define CHANNEL_HEAD_BYTES      16u
#define CHANNEL_NONCE_BYTES     32u
#define CHANNEL_STREAM_BYTES    crypto_secretstream_xchacha20poly1305_HEADERBYTES
#define CHANNEL_HELLO_BYTES     (CHANNEL_HEAD_BYTES + NET_JOB_BYTES + 8u + CHANNEL_NONCE_BYTES)
#define CHANNEL_CHALLENGE_BYTES (CHANNEL_HEAD_BYTES + CHANNEL_NONCE_BYTES + KEYS_TAG_BYTES)
#define CHANNEL_PROOF_BYTES     (CHANNEL_HEAD_BYTES + KEYS_TAG_BYTES + CHANNEL_STREAM_BYTES)
#define CHANNEL_REFUSED_BYTES   (CHANNEL_HEAD_BYTES + 8u)
#define CHANNEL_HAND_BYTES      96u /* the longest of them, and some more */
/* What surrounds a message in its frame: length, marks of secretstream, kind. */
#define CHANNEL_FRAME_BYTES (4u + crypto_secretstream_xchacha20poly1305_ABYTES + 4u)

enum channel_side {
    CHANNEL_CLIENT,
    CHANNEL_SERVER,
};

/* Why one end does not let the other in; on the wire, so numbers stay. */
enum channel_refusal {
    CHANNEL_WELCOME = 0,
    CHANNEL_REFUSED_VERSION = 1,
    CHANNEL_REFUSED_JOB = 2,
    CHANNEL_REFUSED_TOKEN = 3,
    CHANNEL_REFUSED_NO_TOKEN = 4,    /* the server has one, the client has none */
    CHANNEL_REFUSED_TOKEN_HERE = 5,  /* the client has one, the server has none */
    CHANNEL_REFUSED_FULL = 6,        /* as many as the server expects have come */
    CHANNEL_REFUSED_STRANGER = 1000, /* not on the wire: what came is none of our messages */
};

enum channel_event {
    CHANNEL_WANTS,   /* more bytes; all that were given are used */
    CHANNEL_PROVED,  /* server: the client holds the token */
    CHANNEL_JOINED,  /* both know that it is let in */
    CHANNEL_MESSAGE, /* channel->message, until the next feed */
    CHANNEL_BEAT,
    CHANNEL_ENDED, /* channel->end; before it was joined: channel->refusal */
};

struct channel_spec {
    enum channel_side side;
    const struct keys *keys; /* outlives the channel */
    struct net_identity self;
    uint64_t max_message_bytes;
    bool is_full; /* server: nobody is let in */
};

struct channel_message {
    uint32_t kind;
    const uint8_t *bytes;
    uint64_t n_bytes;
};

struct channel {
    struct channel_spec spec;
    uint32_t state; /* channel.c */
    enum net_end end;
    enum channel_refusal refusal;
    uint32_t other_version;  /* REFUSED_VERSION */
    struct net_identity who; /* server: what the hello said */
    struct channel_message message;
    struct bytes out; /* to be sent */

    uint32_t n_hand; /* bytes of the message of the handshake that is under way */
    uint8_t hand[CHANNEL_HAND_BYTES];
    uint8_t hello[CHANNEL_HELLO_BYTES];
    uint8_t challenge[CHANNEL_CHALLENGE_BYTES];
    struct bytes frame;
    struct bytes plain;
    struct stream_keys stream_keys; /* until both streams have begun */
    crypto_secretstream_xchacha20poly1305_state incoming;
    crypto_secretstream_xchacha20poly1305_state outgoing;
};

/** A client's first message is in channel->out then, unless there is no memory: end is set. */
void channel_init(struct channel *channel, const struct channel_spec *spec);

/** Wipes and frees; twice does no harm. */
void channel_fini(struct channel *channel);

/**
 * Takes bytes that came until something has happened; to be called again with the rest while it
 * has used fewer than n_bytes. After CHANNEL_ENDED nothing is used any more.
 */
enum channel_event channel_feed(struct channel *channel, const uint8_t *bytes, uint64_t n_bytes,
                                uint64_t *ret_used);

bool channel_is_joined(const struct channel *channel);

/** Server: the client has said who it is, which proves nothing. */
bool channel_has_hello(const struct channel *channel);

/** Appends a message to channel->out; false sets channel->end: no memory. Once it is joined. */
bool channel_say(struct channel *channel, uint32_t kind, const void *bytes, uint64_t n_bytes);
bool channel_say_beat(struct channel *channel);
bool channel_say_farewell(struct channel *channel);

/** A few words for a sentence: "it has another token". */
void channel_refusal_text(enum channel_refusal why, uint32_t other_version, char *ret_text,
                          uint64_t max_bytes);

#endif /* NET_CHANNEL_H */
