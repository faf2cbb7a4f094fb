/* SPDX-License-Identifier: Apache-2.0 */
/* Channel: what its two files share, the handshake (channel_hand.c) and the frames (channel.c). */
#ifndef NET_CHANNEL_INTERNAL_H
#define NET_CHANNEL_INTERNAL_H

#include "net/channel.h"

enum {
    STATE_HELLO,     /* server: waits for it */
    STATE_PROOF,     /* server */
    STATE_CHALLENGE, /* client */
    STATE_STREAM,    /* client: the header of the server's stream */
    STATE_FIRST,     /* both: a first frame, the welcome */
    STATE_OPEN,
    STATE_ENDED,
};

static inline void u32_write(uint8_t *bytes, uint32_t value)
{
    for (uint32_t i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline uint32_t u32_read(const uint8_t *bytes)
{
    uint32_t value = 0;

    for (uint32_t i = 0; i < 4; i++) {
        value |= (uint32_t)bytes[i] << (8 * i);
    }
    return value;
}

/* channel.c */
enum channel_event channel_end(struct channel *channel, enum net_end why);
bool channel_out(struct channel *channel, const uint8_t *bytes, uint64_t n_bytes);
bool channel_say_welcome(struct channel *channel);

/* channel_hand.c: the first message of a client, and what is done with bytes up to a stream. They
 * move *bytes and *n_bytes over what they use. */
void channel_hand_begin(struct channel *channel);
enum channel_event channel_hand_feed(struct channel *channel, const uint8_t **bytes,
                                     uint64_t *n_bytes);

#endif /* NET_CHANNEL_INTERNAL_H */
