/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter negotiation: describe, and the extensions that it lists. */
#include <jansson.h>
#include <string.h>

#include "guard.h"
#include "hsdp/adamw.h"
#include "negotiation.h"

static uint64_t size_ask(struct conform *conform)
{
    uint64_t n_bytes = 0;

    conform_must_refuse(conform, conform->api->describe(NULL, 0, &n_bytes, &conform->err),
                        HSDP_ERR_BUFFER_TOO_SMALL);
    conform_expect(conform, n_bytes > 1 && n_bytes < UINT64_C(1) << 24,
                   "describe says that it needs %llu bytes", (unsigned long long)n_bytes);
    return n_bytes;
}

/* The text, in memory that ends behind its NUL. */
static const char *text_ask(struct conform *conform)
{
    uint64_t n_bytes = size_ask(conform);
    char *text = guard_memory(conform, n_bytes);
    uint64_t n_again = 0;

    text += (8 - n_bytes % 8) % 8; /* up to the very edge: a text needs no alignment */
    conform_must(conform, conform->api->describe(text, n_bytes, &n_again, &conform->err));
    conform_expect(conform, n_again == n_bytes, "describe needs %llu bytes, and then %llu",
                   (unsigned long long)n_bytes, (unsigned long long)n_again);
    conform_expect(conform, memchr(text, '\0', n_bytes) == text + n_bytes - 1,
                   "*ret_bytes is not the length of the text with its NUL");
    return text;
}

void describe_sizes(struct conform *conform)
{
    uint64_t n_bytes = size_ask(conform);
    const uint64_t sizes[] = {1, n_bytes / 2, n_bytes - 1};

    text_ask(conform);
    for (size_t i = 0; i < 3; i++) {
        char *room = guard_memory(conform, n_bytes);
        uint64_t n_again = 0;

        conform_must_refuse(conform,
                            conform->api->describe(room, sizes[i], &n_again, &conform->err),
                            HSDP_ERR_BUFFER_TOO_SMALL);
        conform_expect(conform, n_again == n_bytes,
                       "describe needs %llu bytes, but says %llu when the buffer is too small",
                       (unsigned long long)n_bytes, (unsigned long long)n_again);
        conform_expect(conform, guard_is_filled(room, n_bytes, GUARD_FILLER),
                       "describe fails, but has written to the buffer that is too small");
    }
    conform_expect(conform,
                   conform->api->describe(NULL, 0, &n_bytes, NULL) == HSDP_ERR_BUFFER_TOO_SMALL,
                   "describe answers something else when reterr is NULL");
    conform_must_refuse(conform, conform->api->describe(NULL, 0, NULL, &conform->err),
                        HSDP_ERR_INVALID);
}

void describe_again(struct conform *conform)
{
    const char *first = text_ask(conform);

    conform_expect(conform, strcmp(first, text_ask(conform)) == 0,
                   "two calls of describe, with nothing between them, give different texts");
}

/* ----------------------------------------------------------------------------------- document */

static json_t *document_ask(struct conform *conform)
{
    json_error_t error;
    json_t *root = json_loads(text_ask(conform), JSON_REJECT_DUPLICATES, &error);

    conform_expect(conform, root != NULL, "describe is no JSON: %s (byte %d)", error.text,
                   error.position);
    conform_expect(conform, json_is_object(root), "describe is JSON, but no object");
    return root;
}

static void text_expect(struct conform *conform, const json_t *root, const char *member,
                        const char *expected)
{
    const char *found = json_string_value(json_object_get(root, member));

    conform_expect(conform, found != NULL, "describe has no text \"%s\"", member);
    conform_expect(conform, strcmp(found, expected) == 0,
                   "describe says that %s is \"%s\"; the table says \"%s\"", member, found,
                   expected);
}

static void number_expect(struct conform *conform, const json_t *root, const char *member,
                          uint32_t expected)
{
    const json_t *found = json_object_get(root, member);

    conform_expect(conform, json_is_integer(found), "describe has no number \"%s\"", member);
    conform_expect(conform, json_integer_value(found) == (json_int_t)expected,
                   "describe says that %s is %lld; the table says %u", member,
                   (long long)json_integer_value(found), (unsigned)expected);
}

static const json_t *list_expect(struct conform *conform, const json_t *root, const char *member)
{
    const json_t *list = json_object_get(root, member);

    conform_expect(conform, json_is_array(list), "describe has no list \"%s\"", member);
    return list;
}

/* A member of each object of a list is a text that says something. */
static void texts_expect(struct conform *conform, const json_t *object, const char *list,
                         const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));

    conform_expect(conform, text != NULL && text[0] != '\0',
                   "an entry of \"%s\" in describe has no text \"%s\"", list, member);
}

static void transports_expect(struct conform *conform, const json_t *root)
{
    const json_t *list = list_expect(conform, root, "transports");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *transport = json_array_get(list, i);
        const json_t *usable = json_object_get(transport, "usable");

        texts_expect(conform, transport, "transports", "name");
        conform_expect(conform, json_is_boolean(usable),
                       "a transport in describe does not say whether it is usable");
        if (json_is_false(usable)) {
            texts_expect(conform, transport, "transports", "reason");
        }
    }
}

void describe_document(struct conform *conform)
{
    json_t *root = document_ask(conform);
    const json_t *list;

    text_expect(conform, root, "plugin_name", conform->api->plugin_name);
    text_expect(conform, root, "plugin_version", conform->api->plugin_version);
    number_expect(conform, root, "abi_major", conform->api->abi_major);
    number_expect(conform, root, "abi_minor", conform->api->abi_minor);
    transports_expect(conform, root);
    list = list_expect(conform, root, "strategies");
    for (size_t i = 0; i < json_array_size(list); i++) {
        texts_expect(conform, json_array_get(list, i), "strategies", "name");
    }
    list = list_expect(conform, root, "extensions");
    for (size_t i = 0; i < json_array_size(list); i++) {
        conform_expect(conform, json_is_string(json_array_get(list, i)),
                       "an entry of \"extensions\" in describe is no text");
    }
    list_expect(conform, root, "settings");
    json_decref(root);
}

/* ----------------------------------------------------------------------------------- settings */

static const char *const setting_keys[] = {
    "backend",
    "nccl_timeout_seconds",
    "init_timeout_seconds",
    "heartbeat_timeout_seconds",
    "token_file",
    "peer_silence_seconds",
    "rendezvous_port",
    "flight_records",
    "flight_dir",
    "cpu_path",
    "nccl_library",
    "cuda_library",
    "replicate_dims",
    "sharding_strategy",
    "shard_size",
    "param_dtype",
    "master_dtype",
    "reduce_dtype",
    "gradient_dtype",
    "gradient_op",
    "gradient_divisor",
    "accumulation_scope",
    "slots",
    "verify",
};

static void setting_expect(struct conform *conform, const json_t *setting, const char *key)
{
    const char *type = json_string_value(json_object_get(setting, "type"));

    conform_expect(conform, type != NULL && type[0] != '\0',
                   "the setting \"%s\" in describe has no type", key);
    conform_expect(conform,
                   json_is_string(json_object_get(setting, "default")) ||
                       json_is_string(json_object_get(setting, "default_rule")),
                   "the setting \"%s\" in describe has neither default nor default_rule", key);
    conform_expect(conform, json_is_string(json_object_get(setting, "meaning")),
                   "the setting \"%s\" in describe has no meaning", key);
    conform_expect(conform,
                   strcmp(type, "integer") != 0 ||
                       (json_is_integer(json_object_get(setting, "min")) &&
                        json_is_integer(json_object_get(setting, "max"))),
                   "the integer \"%s\" in describe has no min and max", key);
    conform_expect(conform,
                   strcmp(type, "choice") != 0 ||
                       json_array_size(json_object_get(setting, "choices")) > 0,
                   "the choice \"%s\" in describe has no choices", key);
}

void describe_settings(struct conform *conform)
{
    json_t *root = document_ask(conform);
    const json_t *list = list_expect(conform, root, "settings");

    for (size_t i = 0; i < sizeof(setting_keys) / sizeof(setting_keys[0]); i++) {
        const json_t *found = NULL;

        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *setting = json_array_get(list, k);
            const char *key = json_string_value(json_object_get(setting, "key"));

            if (key != NULL && strcmp(key, setting_keys[i]) == 0) {
                conform_expect(conform, found == NULL, "describe has the setting \"%s\" twice",
                               key);
                found = setting;
            }
        }
        conform_expect(conform, found != NULL, "describe does not have the setting \"%s\"",
                       setting_keys[i]);
        setting_expect(conform, found, setting_keys[i]);
    }
    json_decref(root);
}

/* --------------------------------------------------------------------------------- extensions */

void extension_known(struct conform *conform)
{
    json_t *root = document_ask(conform);
    const json_t *list = list_expect(conform, root, "extensions");

    if (json_array_size(list) == 0) {
        conform_skip(conform, "it lists no extension");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        const void *ops = NULL;
        const void *again = NULL;

        conform_expect(conform, name != NULL, "an entry of \"extensions\" in describe is no text");
        conform_must(conform, conform->api->extension(name, &ops, &conform->err));
        conform_must(conform, conform->api->extension(name, &again, &conform->err));
        conform_expect(conform, ops != NULL, "extension \"%s\" is found, but is NULL", name);
        if (strcmp(name, HSDP_ADAMW_EXTENSION) == 0) {
            const struct table adamw = {"hsdp_adamw_ops", ops, 16, sizeof(struct hsdp_adamw_ops)};

            table_check(conform, &adamw, adamw.n_bytes_1_0);
        }
    }
    json_decref(root);
}

void extension_unknown(struct conform *conform)
{
    static const char *const names[] = {"", "hsdp.none", "hsdp.adamw2", "HSDP.ADAMW", "%s%n"};
    json_t *root = document_ask(conform);
    const json_t *list = list_expect(conform, root, "extensions");
    const void *const before = conform;
    const void *ops = before;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        conform_must_refuse(conform, conform->api->extension(names[i], &ops, &conform->err),
                            HSDP_ERR_UNSUPPORTED);
        conform_expect(conform, ops == before, "extension \"%s\" is refused, but *ret_ops written",
                       names[i]);
        for (size_t k = 0; k < json_array_size(list); k++) {
            const char *known = json_string_value(json_array_get(list, k));

            conform_expect(conform, known != NULL && strstr(conform->err.message, known) != NULL,
                           "the refusal of an extension lists those that are known; \"%s\" does "
                           "not have \"%s\"",
                           conform->err.message, known != NULL ? known : "");
        }
    }
    conform_must_refuse(conform, conform->api->extension(NULL, &ops, &conform->err),
                        HSDP_ERR_INVALID);
    conform_must_refuse(conform, conform->api->extension("hsdp.none", NULL, &conform->err),
                        HSDP_ERR_INVALID);
    conform_expect(conform, ops == before, "a refused extension was written to *ret_ops");
    json_decref(root);
}
