/* SPDX-License-Identifier: Apache-2.0 */
/* Two channels without a socket between them: bytes are carried by the test, who may alter them. */
#ifndef TESTS_CHANNEL_PAIR_H
#define TESTS_CHANNEL_PAIR_H

#include "net/channel.h"

#define PAIR_MESSAGE 300u

/* What one end has met. */
struct pair_log {
    uint32_t n_proved;
    uint32_t n_joined;
    uint32_t n_beats;
    uint32_t n_messages;
    uint32_t n_ended;
    uint32_t kind; /* of the last message */
    uint64_t n_bytes;
    uint8_t bytes[PAIR_MESSAGE];
};

struct pair {
    struct keys client_keys;
    struct keys server_keys;
    struct channel client;
    struct channel server;
    struct pair_log client_log;
    struct pair_log server_log;
};

/** A broken promise ends the program: a fuzzer sees that, and so does Check. */
void pair_expect(bool holds);

/** Tokens of bytes that are all equal; 0 = none. */
void pair_init(struct pair *pair, uint8_t client_token, uint8_t server_token);
void pair_fini(struct pair *pair);

/** Feeds bytes, `cut` at a time (0 = all at once), and notes what happens. */
void pair_feed(struct channel *channel, struct pair_log *log, const uint8_t *bytes,
               uint64_t n_bytes, uint64_t cut);

/** Takes all that a channel wants to send; returns the number of bytes, at most max_bytes. */
uint64_t pair_take(struct channel *channel, uint8_t *ret_bytes, uint64_t max_bytes);

/** Carries bytes from one to the other. */
void pair_to_server(struct pair *pair, uint64_t cut);
void pair_to_client(struct pair *pair, uint64_t cut);

/** Carries all that they have to say until nobody speaks. */
void pair_run(struct pair *pair, uint64_t cut);

#endif /* TESTS_CHANNEL_PAIR_H */
