/* SPDX-License-Identifier: Apache-2.0 */
/* Channel, the handshake: both ends prove that they hold the same token, and make their keys. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "net/channel_internal.h"

#define MAGIC       "hsdp-net"
#define MAGIC_BYTES 8u

enum {
    KIND_HELLO = 1,
    KIND_CHALLENGE = 2,
    KIND_PROOF = 3,
    KIND_REFUSED = 4,
};

#define HELLO_HAS_TOKEN 1u

_Static_assert(CHANNEL_HELLO_BYTES <= CHANNEL_HAND_BYTES, "hello");
_Static_assert(CHANNEL_CHALLENGE_BYTES <= CHANNEL_HAND_BYTES, "challenge");
_Static_assert(CHANNEL_PROOF_BYTES <= CHANNEL_HAND_BYTES, "proof");
_Static_assert(CHANNEL_HELLO_BYTES + CHANNEL_PROOF_BYTES <= 256, "unproved bytes");

static enum channel_event channel_refuse(struct channel *channel, enum channel_refusal why)
{
    channel->refusal = why;
    return channel_end(channel, NET_END_GARBAGE);
}

/* ---------------------------------------------------------------------- what is said in clear */

static void head_write(uint8_t *bytes, uint32_t kind)
{
    memcpy(bytes, MAGIC, MAGIC_BYTES);
    u32_write(bytes + MAGIC_BYTES, CHANNEL_VERSION);
    u32_write(bytes + MAGIC_BYTES + 4, kind);
}

void channel_hand_begin(struct channel *channel)
{
    uint8_t *at = channel->hello + CHANNEL_HEAD_BYTES;

    head_write(channel->hello, KIND_HELLO);
    memcpy(at, channel->spec.self.job, NET_JOB_BYTES);
    u32_write(at + NET_JOB_BYTES, channel->spec.self.rank);
    u32_write(at + NET_JOB_BYTES + 4, channel->spec.keys->has_token ? HELLO_HAS_TOKEN : 0);
    randombytes_buf(at + NET_JOB_BYTES + 8, CHANNEL_NONCE_BYTES);
    channel_out(channel, channel->hello, sizeof(channel->hello));
}

/* Tells the other end why, and ends. */
static enum channel_event refused_say(struct channel *channel, enum channel_refusal why)
{
    uint8_t refused[CHANNEL_REFUSED_BYTES] = {0};

    head_write(refused, KIND_REFUSED);
    u32_write(refused + CHANNEL_HEAD_BYTES, (uint32_t)why);
    channel_out(channel, refused, sizeof(refused));
    return channel_refuse(channel, why);
}

/* The tag with which one end proves that it holds the token: over who proves, hello and nonce. */
static void tag_compute(const struct channel *channel, enum channel_side side, uint8_t *ret_tag)
{
    uint8_t said[1 + CHANNEL_HELLO_BYTES + CHANNEL_NONCE_BYTES];
    const struct keys *keys = channel->spec.keys;

    said[0] = side == CHANNEL_SERVER ? 'S' : 'C';
    memcpy(said + 1, channel->hello, CHANNEL_HELLO_BYTES);
    memcpy(said + 1 + CHANNEL_HELLO_BYTES, channel->challenge + CHANNEL_HEAD_BYTES,
           CHANNEL_NONCE_BYTES);
    crypto_auth(ret_tag, said, sizeof(said), side == CHANNEL_SERVER ? keys->server : keys->client);
}

static bool tag_is_right(const struct channel *channel, enum channel_side side, const uint8_t *tag)
{
    uint8_t right[KEYS_TAG_BYTES];
    bool is_right;

    tag_compute(channel, side, right);
    is_right = sodium_memcmp(right, tag, sizeof(right)) == 0;
    sodium_memzero(right, sizeof(right));
    return is_right;
}

static void challenge_say(struct channel *channel)
{
    head_write(channel->challenge, KIND_CHALLENGE);
    randombytes_buf(channel->challenge + CHANNEL_HEAD_BYTES, CHANNEL_NONCE_BYTES);
    tag_compute(channel, CHANNEL_SERVER,
                channel->challenge + CHANNEL_HEAD_BYTES + CHANNEL_NONCE_BYTES);
    channel_out(channel, channel->challenge, sizeof(channel->challenge));
}

/* Both ends have the same three messages before them when they come here. */
static void stream_keys_make(struct channel *channel, const uint8_t *proof)
{
    uint8_t transcript[CHANNEL_HELLO_BYTES + CHANNEL_CHALLENGE_BYTES + CHANNEL_PROOF_BYTES];
    uint8_t *at = transcript;

    memcpy(at, channel->hello, CHANNEL_HELLO_BYTES);
    at += CHANNEL_HELLO_BYTES;
    memcpy(at, channel->challenge, CHANNEL_CHALLENGE_BYTES);
    at += CHANNEL_CHALLENGE_BYTES;
    /* without the header of the client's stream, which is made with these keys */
    memcpy(at, proof, CHANNEL_PROOF_BYTES - CHANNEL_STREAM_BYTES);
    keys_of_stream(channel->spec.keys, transcript, sizeof(transcript) - CHANNEL_STREAM_BYTES,
                   &channel->stream_keys);
}

/* ---------------------------------------------------------------------------- the handshake */

static enum channel_event hello_take(struct channel *channel)
{
    const uint8_t *at = channel->hand + CHANNEL_HEAD_BYTES;
    bool has_token = (u32_read(at + NET_JOB_BYTES + 4) & HELLO_HAS_TOKEN) != 0;

    memcpy(channel->hello, channel->hand, CHANNEL_HELLO_BYTES);
    memcpy(channel->who.job, at, NET_JOB_BYTES);
    channel->who.rank = u32_read(at + NET_JOB_BYTES);
    if (memcmp(channel->who.job, channel->spec.self.job, NET_JOB_BYTES) != 0) {
        return refused_say(channel, CHANNEL_REFUSED_JOB);
    }
    if (has_token != channel->spec.keys->has_token) {
        return refused_say(channel,
                           has_token ? CHANNEL_REFUSED_TOKEN_HERE : CHANNEL_REFUSED_NO_TOKEN);
    }
    if (channel->spec.is_full) {
        return refused_say(channel, CHANNEL_REFUSED_FULL);
    }
    channel->state = STATE_PROOF;
    challenge_say(channel);
    return channel->end == NET_END_NONE ? CHANNEL_WANTS : CHANNEL_ENDED;
}

static enum channel_event challenge_take(struct channel *channel)
{
    uint8_t proof[CHANNEL_PROOF_BYTES];

    memcpy(channel->challenge, channel->hand, CHANNEL_CHALLENGE_BYTES);
    if (!tag_is_right(channel, CHANNEL_SERVER,
                      channel->hand + CHANNEL_HEAD_BYTES + CHANNEL_NONCE_BYTES)) {
        return refused_say(channel, CHANNEL_REFUSED_TOKEN);
    }
    head_write(proof, KIND_PROOF);
    tag_compute(channel, CHANNEL_CLIENT, proof + CHANNEL_HEAD_BYTES);
    stream_keys_make(channel, proof);
    crypto_secretstream_xchacha20poly1305_init_push(
        &channel->outgoing, proof + CHANNEL_PROOF_BYTES - CHANNEL_STREAM_BYTES,
        channel->stream_keys.to_server);
    channel->state = STATE_STREAM;
    return channel_out(channel, proof, sizeof(proof)) ? CHANNEL_WANTS : CHANNEL_ENDED;
}

static enum channel_event proof_take(struct channel *channel)
{
    const uint8_t *their_header = channel->hand + CHANNEL_PROOF_BYTES - CHANNEL_STREAM_BYTES;
    uint8_t header[CHANNEL_STREAM_BYTES];

    if (!tag_is_right(channel, CHANNEL_CLIENT, channel->hand + CHANNEL_HEAD_BYTES)) {
        return channel_refuse(channel, CHANNEL_REFUSED_TOKEN);
    }
    stream_keys_make(channel, channel->hand);
    crypto_secretstream_xchacha20poly1305_init_push(&channel->outgoing, header,
                                                    channel->stream_keys.to_client);
    if (crypto_secretstream_xchacha20poly1305_init_pull(&channel->incoming, their_header,
                                                        channel->stream_keys.to_server) != 0) {
        return channel_refuse(channel, CHANNEL_REFUSED_STRANGER);
    }
    sodium_memzero(&channel->stream_keys, sizeof(channel->stream_keys));
    channel->state = STATE_FIRST;
    if (!channel_out(channel, header, sizeof(header)) || !channel_say_welcome(channel)) {
        return CHANNEL_ENDED;
    }
    return CHANNEL_PROVED;
}

static enum channel_event stream_take(struct channel *channel)
{
    if (crypto_secretstream_xchacha20poly1305_init_pull(&channel->incoming, channel->hand,
                                                        channel->stream_keys.to_client) != 0) {
        return channel_refuse(channel, CHANNEL_REFUSED_STRANGER);
    }
    sodium_memzero(&channel->stream_keys, sizeof(channel->stream_keys));
    channel->state = STATE_FIRST;
    return CHANNEL_WANTS;
}

static enum channel_event refused_take(struct channel *channel)
{
    uint32_t why = u32_read(channel->hand + CHANNEL_HEAD_BYTES);

    if (why <= CHANNEL_WELCOME || why > CHANNEL_REFUSED_FULL) {
        why = CHANNEL_REFUSED_STRANGER;
    }
    return channel_refuse(channel, (enum channel_refusal)why);
}

/* The head of a message is there: the length of the whole, 0 when it is none of ours. */
static uint32_t head_read(struct channel *channel)
{
    uint32_t kind = u32_read(channel->hand + MAGIC_BYTES + 4);

    channel->other_version = u32_read(channel->hand + MAGIC_BYTES);
    if (kind == KIND_REFUSED && channel->state != STATE_HELLO) {
        return CHANNEL_REFUSED_BYTES;
    }
    if (channel->other_version != CHANNEL_VERSION) {
        return 0;
    }
    if (kind == KIND_HELLO && channel->state == STATE_HELLO) {
        return CHANNEL_HELLO_BYTES;
    }
    if (kind == KIND_CHALLENGE && channel->state == STATE_CHALLENGE) {
        return CHANNEL_CHALLENGE_BYTES;
    }
    if (kind == KIND_PROOF && channel->state == STATE_PROOF) {
        return CHANNEL_PROOF_BYTES;
    }
    return 0;
}

static enum channel_event hand_misfit(struct channel *channel)
{
    if (channel->other_version == CHANNEL_VERSION) {
        return channel_refuse(channel, CHANNEL_REFUSED_STRANGER);
    }
    if (channel->state == STATE_HELLO) {
        return refused_say(channel, CHANNEL_REFUSED_VERSION);
    }
    return channel_refuse(channel, CHANNEL_REFUSED_VERSION);
}

static enum channel_event hand_take(struct channel *channel)
{
    channel->n_hand = 0;
    if (channel->state == STATE_STREAM) {
        return stream_take(channel);
    }
    if (u32_read(channel->hand + MAGIC_BYTES + 4) == KIND_REFUSED) {
        return refused_take(channel);
    }
    if (channel->state == STATE_HELLO) {
        return hello_take(channel);
    }
    return channel->state == STATE_PROOF ? proof_take(channel) : challenge_take(channel);
}

static void hand_fill(struct channel *channel, uint32_t wanted, const uint8_t **bytes,
                      uint64_t *n_bytes)
{
    uint64_t n_missing = wanted > channel->n_hand ? wanted - channel->n_hand : 0;
    uint64_t n_taken = n_missing < *n_bytes ? n_missing : *n_bytes;

    memcpy(channel->hand + channel->n_hand, *bytes, n_taken);
    channel->n_hand += (uint32_t)n_taken;
    *bytes += n_taken;
    *n_bytes -= n_taken;
}

enum channel_event channel_hand_feed(struct channel *channel, const uint8_t **bytes,
                                     uint64_t *n_bytes)
{
    uint32_t wanted = CHANNEL_STREAM_BYTES;
    uint32_t n_magic;

    if (channel->state != STATE_STREAM) {
        hand_fill(channel, CHANNEL_HEAD_BYTES, bytes, n_bytes);
        n_magic = channel->n_hand < MAGIC_BYTES ? channel->n_hand : MAGIC_BYTES;
        if (memcmp(channel->hand, MAGIC, n_magic) != 0) {
            return channel_refuse(channel, CHANNEL_REFUSED_STRANGER);
        }
        if (channel->n_hand < CHANNEL_HEAD_BYTES) {
            return CHANNEL_WANTS;
        }
        wanted = head_read(channel);
        if (wanted == 0) {
            return hand_misfit(channel);
        }
    }
    hand_fill(channel, wanted, bytes, n_bytes);
    return channel->n_hand < wanted ? CHANNEL_WANTS : hand_take(channel);
}

void channel_refusal_text(enum channel_refusal why, uint32_t other_version, char *ret_text,
                          uint64_t max_bytes)
{
    const char *text = "it is nobody of ours";

    switch (why) {
    case CHANNEL_REFUSED_VERSION:
        snprintf(ret_text, max_bytes, "it speaks protocol %" PRIu32 ", this process protocol %u",
                 other_version, CHANNEL_VERSION);
        return;
    case CHANNEL_REFUSED_JOB:
        text = "it serves another job or attempt";
        break;
    case CHANNEL_REFUSED_TOKEN:
        text = "it has another token";
        break;
    case CHANNEL_REFUSED_NO_TOKEN:
        text = "it has a token, this process has none";
        break;
    case CHANNEL_REFUSED_TOKEN_HERE:
        text = "it has no token, this process has one";
        break;
    case CHANNEL_REFUSED_FULL:
        text = "all that it expects have come";
        break;
    case CHANNEL_WELCOME:
    case CHANNEL_REFUSED_STRANGER:
        break;
    }
    snprintf(ret_text, max_bytes, "%s", text);
}
