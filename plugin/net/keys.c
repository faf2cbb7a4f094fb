/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: what is computed from a token and a transcript. */
#include "net/keys.h"

#include <string.h>

#include "base/error.h"

#define CONTEXT     "libhsdp net: keys from a token, 1"
#define KDF_CONTEXT "hsdp-net" /* crypto_kdf_CONTEXTBYTES */

/* Numbers of subkeys: never change what one is for, take a new one. */
enum {
    SUBKEY_SERVER = 1,
    SUBKEY_CLIENT = 2,
    SUBKEY_STREAM = 3,
    SUBKEY_TO_SERVER = 4,
    SUBKEY_TO_CLIENT = 5,
};

_Static_assert(sizeof(KDF_CONTEXT) - 1 == crypto_kdf_CONTEXTBYTES, "context of the subkeys");
_Static_assert(NET_TOKEN_BYTES >= crypto_generichash_KEYBYTES_MIN &&
                   NET_TOKEN_BYTES <= crypto_generichash_KEYBYTES_MAX,
               "a token is a key of the hash");

int32_t keys_init(struct keys *ret, const uint8_t *token, struct hsdp_error *reterr)
{
    static const uint8_t zeros[NET_TOKEN_BYTES];
    uint8_t root[crypto_kdf_KEYBYTES];

    if (sodium_init() < 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "net: libsodium cannot be initialised");
    }
    ret->has_token = token != NULL;
    crypto_generichash(root, sizeof(root), (const uint8_t *)CONTEXT, sizeof(CONTEXT) - 1,
                       token == NULL ? zeros : token, NET_TOKEN_BYTES);
    crypto_kdf_derive_from_key(ret->server, sizeof(ret->server), SUBKEY_SERVER, KDF_CONTEXT, root);
    crypto_kdf_derive_from_key(ret->client, sizeof(ret->client), SUBKEY_CLIENT, KDF_CONTEXT, root);
    crypto_kdf_derive_from_key(ret->stream, sizeof(ret->stream), SUBKEY_STREAM, KDF_CONTEXT, root);
    sodium_memzero(root, sizeof(root));
    return HSDP_OK;
}

void keys_fini(struct keys *keys)
{
    sodium_memzero(keys, sizeof(*keys));
}

void keys_of_stream(const struct keys *keys, const uint8_t *transcript, uint64_t n_bytes,
                    struct stream_keys *ret)
{
    uint8_t root[crypto_kdf_KEYBYTES];

    crypto_generichash(root, sizeof(root), transcript, n_bytes, keys->stream, sizeof(keys->stream));
    crypto_kdf_derive_from_key(ret->to_server, sizeof(ret->to_server), SUBKEY_TO_SERVER,
                               KDF_CONTEXT, root);
    crypto_kdf_derive_from_key(ret->to_client, sizeof(ret->to_client), SUBKEY_TO_CLIENT,
                               KDF_CONTEXT, root);
    sodium_memzero(root, sizeof(root));
}
