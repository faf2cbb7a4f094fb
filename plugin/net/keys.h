/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: what is computed from a token and from what two ends have said to each other. */
#ifndef NET_KEYS_H
#define NET_KEYS_H

#include <sodium.h>
#include <stdbool.h>

#include "hsdp/abi.h"
#include "net/net.h"

#define KEYS_TAG_BYTES crypto_auth_BYTES

/* Of one token. */
struct keys {
    uint8_t server[crypto_auth_KEYBYTES]; /* the server proves with it that it holds the token */
    uint8_t client[crypto_auth_KEYBYTES];
    uint8_t stream[crypto_kdf_KEYBYTES]; /* from it and the transcript come those of a stream */
    bool has_token;
};

/* Of one connection. */
struct stream_keys {
    uint8_t to_server[crypto_secretstream_xchacha20poly1305_KEYBYTES];
    uint8_t to_client[crypto_secretstream_xchacha20poly1305_KEYBYTES];
};

/** From a token of NET_TOKEN_BYTES; NULL is one of zeros, which protects nothing. */
int32_t keys_init(struct keys *ret, const uint8_t *token, struct hsdp_error *reterr);

void keys_fini(struct keys *keys);

/** From all bytes of the handshake. */
void keys_of_stream(const struct keys *keys, const uint8_t *transcript, uint64_t n_bytes,
                    struct stream_keys *ret);

#endif /* NET_KEYS_H */
