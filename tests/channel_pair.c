/* SPDX-License-Identifier: Apache-2.0 */
/* Two channels without a socket between them. */
#include "channel_pair.h"

#include <stdlib.h>
#include <string.h>

void pair_expect(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void keys_make(struct keys *keys, uint8_t token)
{
    uint8_t bytes[NET_TOKEN_BYTES];

    memset(bytes, token, sizeof(bytes));
    pair_expect(keys_init(keys, token == 0 ? NULL : bytes, NULL) == HSDP_OK);
}

void pair_init(struct pair *pair, uint8_t client_token, uint8_t server_token)
{
    struct channel_spec spec = {.max_message_bytes = PAIR_MESSAGE};

    memset(pair, 0, sizeof(*pair));
    keys_make(&pair->client_keys, client_token);
    keys_make(&pair->server_keys, server_token);
    memset(spec.self.job, 5, sizeof(spec.self.job));
    spec.side = CHANNEL_CLIENT;
    spec.keys = &pair->client_keys;
    spec.self.rank = 77;
    channel_init(&pair->client, &spec);
    spec.side = CHANNEL_SERVER;
    spec.keys = &pair->server_keys;
    spec.self.rank = 0;
    channel_init(&pair->server, &spec);
}

void pair_fini(struct pair *pair)
{
    channel_fini(&pair->client);
    channel_fini(&pair->server);
    keys_fini(&pair->client_keys);
    keys_fini(&pair->server_keys);
}

static void message_note(struct pair_log *log, const struct channel_message *message)
{
    pair_expect(message->n_bytes <= PAIR_MESSAGE);
    pair_expect(message->kind < NET_KIND_LIMIT);
    log->n_messages++;
    log->kind = message->kind;
    log->n_bytes = message->n_bytes;
    memcpy(log->bytes, message->bytes, message->n_bytes);
}

static void event_note(const struct channel *channel, struct pair_log *log,
                       enum channel_event event)
{
    if (event == CHANNEL_MESSAGE) {
        message_note(log, &channel->message);
    }
    log->n_proved += event == CHANNEL_PROVED;
    log->n_joined += event == CHANNEL_JOINED;
    log->n_beats += event == CHANNEL_BEAT;
    log->n_ended += event == CHANNEL_ENDED;
}

/* The bytes lie at the end of a block of their own, so that a sanitizer sees one read too many. */
static void piece_feed(struct channel *channel, struct pair_log *log, const uint8_t *bytes,
                       uint64_t n_bytes)
{
    uint8_t *piece = malloc(n_bytes);
    uint64_t at = 0;

    memcpy(piece, bytes, n_bytes);
    while (at < n_bytes && channel->end == NET_END_NONE) {
        uint64_t n_used = 0;
        enum channel_event event = channel_feed(channel, piece + at, n_bytes - at, &n_used);

        pair_expect(n_used <= n_bytes - at);
        pair_expect(event != CHANNEL_WANTS || n_used == n_bytes - at);
        pair_expect((event == CHANNEL_ENDED) == (channel->end != NET_END_NONE));
        event_note(channel, log, event);
        at += n_used;
    }
    free(piece);
}

void pair_feed(struct channel *channel, struct pair_log *log, const uint8_t *bytes,
               uint64_t n_bytes, uint64_t cut)
{
    uint64_t step = cut == 0 ? n_bytes : cut;

    for (uint64_t at = 0; at < n_bytes; at += step) {
        piece_feed(channel, log, bytes + at, step < n_bytes - at ? step : n_bytes - at);
    }
}

uint64_t pair_take(struct channel *channel, uint8_t *ret_bytes, uint64_t max_bytes)
{
    uint64_t n_bytes = bytes_left(&channel->out);

    pair_expect(n_bytes <= max_bytes);
    if (n_bytes > 0) {
        memcpy(ret_bytes, channel->out.memory + channel->out.begin, n_bytes);
        bytes_take(&channel->out, n_bytes);
    }
    return n_bytes;
}

void pair_to_server(struct pair *pair, uint64_t cut)
{
    uint8_t bytes[4096];
    uint64_t n_bytes = pair_take(&pair->client, bytes, sizeof(bytes));

    pair_feed(&pair->server, &pair->server_log, bytes, n_bytes, cut);
}

void pair_to_client(struct pair *pair, uint64_t cut)
{
    uint8_t bytes[4096];
    uint64_t n_bytes = pair_take(&pair->server, bytes, sizeof(bytes));

    pair_feed(&pair->client, &pair->client_log, bytes, n_bytes, cut);
}

void pair_run(struct pair *pair, uint64_t cut)
{
    while (bytes_left(&pair->client.out) > 0 || bytes_left(&pair->server.out) > 0) {
        pair_to_server(pair, cut);
        pair_to_client(pair, cut);
    }
}
