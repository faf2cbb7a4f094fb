/* SPDX-License-Identifier: Apache-2.0 */
/* Channel: frames, and the way of bytes into messages. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "net/channel_internal.h"

#define LENGTH_BYTES 4u
#define KIND_BYTES   4u
#define MARKS_BYTES  crypto_secretstream_xchacha20poly1305_ABYTES

/* Frames that are not the owner's. */
enum {
    FRAME_BEAT = NET_KIND_LIMIT,
    FRAME_WELCOME,
    FRAME_FAREWELL,
};

enum channel_event channel_end(struct channel *channel, enum net_end why)
{
    channel->state = STATE_ENDED;
    channel->end = why;
    return CHANNEL_ENDED;
}

bool channel_out(struct channel *channel, const uint8_t *bytes, uint64_t n_bytes)
{
    uint8_t *room = bytes_reserve(&channel->out, n_bytes);

    if (room == NULL) {
        channel_end(channel, NET_END_MEMORY);
        return false;
    }
    memcpy(room, bytes, n_bytes);
    channel->out.end += n_bytes;
    return true;
}

/* ------------------------------------------------------------------------------- the frames */

/* The rest of a frame is sealed as one message: its kind, then its content. */
static bool frame_seal(struct channel *channel, const struct channel_message *message, uint8_t tag)
{
    uint64_t n_plain = KIND_BYTES + message->n_bytes;
    uint8_t small[512];
    uint8_t *plain = n_plain <= sizeof(small) ? small : malloc(n_plain);
    uint8_t *room = bytes_reserve(&channel->out, LENGTH_BYTES + MARKS_BYTES + n_plain);

    if (plain == NULL || room == NULL) {
        if (plain != small) {
            free(plain);
        }
        channel_end(channel, NET_END_MEMORY);
        return false;
    }
    u32_write(plain, message->kind);
    if (message->n_bytes > 0) {
        memcpy(plain + KIND_BYTES, message->bytes, message->n_bytes);
    }
    u32_write(room, (uint32_t)(MARKS_BYTES + n_plain));
    crypto_secretstream_xchacha20poly1305_push(&channel->outgoing, room + LENGTH_BYTES, NULL, plain,
                                               n_plain, room, LENGTH_BYTES, tag);
    channel->out.end += LENGTH_BYTES + MARKS_BYTES + n_plain;
    if (plain != small) {
        free(plain);
    }
    return true;
}

static bool empty_say(struct channel *channel, uint32_t kind, uint8_t tag)
{
    struct channel_message message = {.kind = kind};

    return frame_seal(channel, &message, tag);
}

bool channel_say(struct channel *channel, uint32_t kind, const void *bytes, uint64_t n_bytes)
{
    struct channel_message message = {kind, bytes, n_bytes};

    assert(channel->state == STATE_OPEN && kind < NET_KIND_LIMIT);
    assert(n_bytes <= channel->spec.max_message_bytes);
    return frame_seal(channel, &message, crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
}

bool channel_say_beat(struct channel *channel)
{
    assert(channel->state == STATE_OPEN);
    return empty_say(channel, FRAME_BEAT, crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
}

bool channel_say_farewell(struct channel *channel)
{
    assert(channel->state == STATE_OPEN);
    return empty_say(channel, FRAME_FAREWELL, crypto_secretstream_xchacha20poly1305_TAG_FINAL);
}

bool channel_say_welcome(struct channel *channel)
{
    return empty_say(channel, FRAME_WELCOME, crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
}

/* What a frame means that was opened. */
static enum channel_event frame_take(struct channel *channel, const uint8_t *plain,
                                     uint64_t n_plain, uint8_t tag)
{
    uint32_t kind = u32_read(plain);
    uint64_t n_bytes = n_plain - KIND_BYTES;
    bool is_final = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;

    if (tag != crypto_secretstream_xchacha20poly1305_TAG_MESSAGE && !is_final) {
        return channel_end(channel, NET_END_GARBAGE);
    }
    if (is_final != (kind == FRAME_FAREWELL) || (kind >= NET_KIND_LIMIT && n_bytes != 0) ||
        (channel->state == STATE_FIRST) != (kind == FRAME_WELCOME)) {
        return channel_end(channel, NET_END_GARBAGE);
    }
    if (kind == FRAME_FAREWELL) {
        return channel_end(channel, NET_END_CLOSED);
    }
    if (kind == FRAME_WELCOME) {
        channel->state = STATE_OPEN;
        if (channel->spec.side == CHANNEL_CLIENT && !channel_say_welcome(channel)) {
            return CHANNEL_ENDED;
        }
        return CHANNEL_JOINED;
    }
    if (kind == FRAME_BEAT) {
        return CHANNEL_BEAT;
    }
    if (kind >= NET_KIND_LIMIT) {
        return channel_end(channel, NET_END_GARBAGE);
    }
    channel->message = (struct channel_message){kind, plain + KIND_BYTES, n_bytes};
    return CHANNEL_MESSAGE;
}

static enum channel_event frame_open(struct channel *channel)
{
    const uint8_t *frame = channel->frame.memory + channel->frame.begin;
    uint64_t n_sealed = bytes_left(&channel->frame) - LENGTH_BYTES;
    uint8_t *plain = bytes_reserve(&channel->plain, n_sealed - MARKS_BYTES);
    unsigned long long n_plain = 0;
    uint8_t tag = 0;

    if (plain == NULL) {
        return channel_end(channel, NET_END_MEMORY);
    }
    if (crypto_secretstream_xchacha20poly1305_pull(&channel->incoming, plain, &n_plain, &tag,
                                                   frame + LENGTH_BYTES, n_sealed, frame,
                                                   LENGTH_BYTES) != 0) {
        return channel_end(channel, NET_END_GARBAGE);
    }
    channel->plain.end += n_plain;
    bytes_take(&channel->frame, bytes_left(&channel->frame));
    return frame_take(channel, plain, n_plain, tag);
}

/* Moves up to what is missing to `wanted` bytes from the input into the frame; false: no memory. */
static bool frame_fill(struct channel *channel, uint64_t wanted, const uint8_t **bytes,
                       uint64_t *n_bytes)
{
    uint64_t n_missing = wanted - bytes_left(&channel->frame);
    uint64_t n_taken = n_missing < *n_bytes ? n_missing : *n_bytes;
    uint8_t *room = bytes_reserve(&channel->frame, n_missing);

    if (room == NULL) {
        return false;
    }
    if (n_taken > 0) {
        memcpy(room, *bytes, n_taken);
    }
    channel->frame.end += n_taken;
    *bytes += n_taken;
    *n_bytes -= n_taken;
    return true;
}

static enum channel_event frame_feed(struct channel *channel, const uint8_t **bytes,
                                     uint64_t *n_bytes)
{
    uint64_t n_sealed;

    if (bytes_left(&channel->frame) < LENGTH_BYTES &&
        !frame_fill(channel, LENGTH_BYTES, bytes, n_bytes)) {
        return channel_end(channel, NET_END_MEMORY);
    }
    if (bytes_left(&channel->frame) < LENGTH_BYTES) {
        return CHANNEL_WANTS;
    }
    n_sealed = u32_read(channel->frame.memory + channel->frame.begin);
    if (n_sealed < MARKS_BYTES + KIND_BYTES ||
        n_sealed > MARKS_BYTES + KIND_BYTES + channel->spec.max_message_bytes) {
        return channel_end(channel, NET_END_GARBAGE);
    }
    if (!frame_fill(channel, LENGTH_BYTES + n_sealed, bytes, n_bytes)) {
        return channel_end(channel, NET_END_MEMORY);
    }
    if (bytes_left(&channel->frame) < LENGTH_BYTES + n_sealed) {
        return CHANNEL_WANTS;
    }
    return frame_open(channel);
}

/* ---------------------------------------------------------------------------- begin and end */

void channel_init(struct channel *channel, const struct channel_spec *spec)
{
    memset(channel, 0, sizeof(*channel));
    channel->spec = *spec;
    if (spec->side == CHANNEL_SERVER) {
        channel->state = STATE_HELLO;
    } else {
        channel->state = STATE_CHALLENGE;
        channel_hand_begin(channel);
    }
}

void channel_fini(struct channel *channel)
{
    bytes_fini(&channel->out);
    bytes_fini(&channel->frame);
    bytes_fini(&channel->plain);
    sodium_memzero(&channel->stream_keys, sizeof(channel->stream_keys));
    sodium_memzero(&channel->incoming, sizeof(channel->incoming));
    sodium_memzero(&channel->outgoing, sizeof(channel->outgoing));
    channel->state = STATE_ENDED;
}

bool channel_is_joined(const struct channel *channel)
{
    return channel->state == STATE_OPEN;
}

bool channel_has_hello(const struct channel *channel)
{
    return channel->state == STATE_PROOF;
}

enum channel_event channel_feed(struct channel *channel, const uint8_t *bytes, uint64_t n_bytes,
                                uint64_t *ret_used)
{
    const uint8_t *at = bytes;
    uint64_t n_left = n_bytes;
    enum channel_event event = CHANNEL_WANTS;

    bytes_take(&channel->plain, bytes_left(&channel->plain)); /* the last message is over */
    while (event == CHANNEL_WANTS && n_left > 0) {
        if (channel->state == STATE_ENDED) {
            event = CHANNEL_ENDED;
        } else if (channel->state < STATE_FIRST) {
            event = channel_hand_feed(channel, &at, &n_left);
        } else {
            event = frame_feed(channel, &at, &n_left);
        }
    }
    *ret_used = n_bytes - n_left;
    return event;
}
