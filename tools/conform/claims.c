/* SPDX-License-Identifier: Apache-2.0 */
/* What describe() claims, and what becomes of a check whose call answers HSDP_ERR_UNSUPPORTED. */
#include "claims.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "training/device.h"

/* ---------------------------------------------------------------------------------- describe() */

/* Adds a word, if it is one and fits. */
static void word_add(char *words, size_t max_bytes, const json_t *word)
{
    const char *text = json_string_value(word);
    size_t n_bytes = strlen(words);

    if (text != NULL && text[0] != '\0' && n_bytes + strlen(text) + 3 <= max_bytes) {
        snprintf(words + n_bytes, max_bytes - n_bytes, "%s%s ", n_bytes == 0 ? " " : "", text);
    }
}

static void strategies_take(const json_t *root, struct claims *ret)
{
    const json_t *list = json_object_get(root, "strategies");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *strategy = json_array_get(list, i);
        const json_t *aliases = json_object_get(strategy, "aliases");

        word_add(ret->strategies, sizeof(ret->strategies), json_object_get(strategy, "name"));
        for (size_t k = 0; k < json_array_size(aliases); k++) {
            word_add(ret->strategies, sizeof(ret->strategies), json_array_get(aliases, k));
        }
    }
}

static void transports_take(const json_t *root, struct claims *ret)
{
    const json_t *list = json_object_get(root, "transports");
    bool is_limited = true;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *transport = json_array_get(list, i);
        json_int_t most = json_integer_value(json_object_get(transport, "max_ranks"));

        if (!json_is_true(json_object_get(transport, "usable"))) {
            continue;
        }
        word_add(ret->transports, sizeof(ret->transports), json_object_get(transport, "name"));
        is_limited = is_limited && most > 0 && most <= UINT32_MAX;
        if (is_limited && most > ret->max_ranks) {
            ret->max_ranks = (uint32_t)most;
        }
    }
    ret->max_ranks = is_limited ? ret->max_ranks : 0;
}

/* NULL where it fails. */
static char *text_ask(const struct hsdp_api *api)
{
    uint64_t n_bytes = 0;
    char *text;

    api->describe(NULL, 0, &n_bytes, NULL);
    text = n_bytes > 0 && n_bytes < UINT64_C(1) << 24 ? calloc(1, n_bytes + 1) : NULL;
    if (text != NULL && api->describe(text, n_bytes, &n_bytes, NULL) != HSDP_OK) {
        free(text);
        return NULL;
    }
    return text;
}

void claims_read(const struct hsdp_api *api, struct claims *ret)
{
    char *text = text_ask(api);
    json_t *root = text == NULL ? NULL : json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *extensions = json_object_get(root, "extensions");

    memset(ret, 0, sizeof(*ret));
    if (root != NULL) {
        strategies_take(root, ret);
        transports_take(root, ret);
        for (size_t i = 0; i < json_array_size(extensions); i++) {
            word_add(ret->extensions, sizeof(ret->extensions), json_array_get(extensions, i));
        }
        ret->is_read = 1;
    }
    json_decref(root);
    free(text);
}

/* ------------------------------------------------------------------------------ what is claimed */

#define STRATEGY_KEY "sharding_strategy="

static bool words_have(const char *words, const char *word, size_t n_bytes)
{
    char spaced[128];

    snprintf(spaced, sizeof(spaced), " %.*s ", (int)n_bytes, word);
    return strstr(words, spaced) != NULL;
}

void conform_needs_cpu(struct conform *conform, const char *what)
{
    if (device_is_used()) {
        conform_skip(conform, "not of a device: %s", what);
    }
}

void conform_needs_transport(struct conform *conform)
{
    const struct claims *claims = conform->claims;
    char reason[256];

    conform->is_joining = true;
    if (!device_open(reason, sizeof(reason))) {
        conform_skip(conform, "no device for this rank: %s", reason);
    }
    if (claims->is_read == 0) {
        return;
    }
    if (claims->transports[0] == '\0') {
        conform_skip(conform, "describe() lists no usable transport");
    }
    if (claims->max_ranks != 0 && conform->n_ranks > claims->max_ranks) {
        conform_skip(conform, "describe() claims a transport for %" PRIu32 " ranks at most",
                     claims->max_ranks);
    }
}

static void strategy_need(struct conform *conform, const char *name, size_t n_bytes)
{
    const struct claims *claims = conform->claims;

    snprintf(conform->strategy, sizeof(conform->strategy), "%.*s", (int)n_bytes, name);
    if (claims->is_read == 0 || words_have(claims->strategies, name, n_bytes)) {
        return;
    }
    if (claims->strategies[0] == '\0') {
        conform_skip(conform, "describe() lists no strategy");
    }
    conform_skip(conform, "describe() does not list the strategy %s", conform->strategy);
}

/* What a header lets a plugin refuse. */
static void options_note(struct conform *conform, const char *text)
{
    static const struct {
        const char *sign;
        const char *what;
    } optional[] = {
        {"_dtype=bf16", "a dtype other than fp32"},
        {"_dtype=fp16", "a dtype other than fp32"},
        {"verify=", "verify"},
        {"tied_", "a tie"},
    };

    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++) {
        if (strstr(text, optional[i].sign) != NULL) {
            conform->optional = optional[i].what;
        }
    }
}

void conform_needs_part(struct conform *conform, const char *text)
{
    for (const char *at = strstr(text, STRATEGY_KEY); at != NULL; at = strstr(at, STRATEGY_KEY)) {
        at += strlen(STRATEGY_KEY);
        strategy_need(conform, at, strcspn(at, " "));
    }
    options_note(conform, text);
}

void conform_needs_plan(struct conform *conform, const char *settings)
{
    conform->optional = NULL;
    if (strstr(settings, STRATEGY_KEY) == NULL) {
        conform_needs_part(conform, STRATEGY_KEY "fsdp"); /* by default */
    }
    conform_needs_part(conform, settings);
}

void conform_needs_extension(struct conform *conform, const char *name)
{
    const struct claims *claims = conform->claims;

    if (claims->is_read != 0 && !words_have(claims->extensions, name, strlen(name))) {
        conform_skip(conform, "describe() does not list the extension %s", name);
    }
}

bool conform_has_strategy(const struct conform *conform, const char *name)
{
    const struct claims *claims = conform->claims;

    return claims->is_read == 0 || words_have(claims->strategies, name, strlen(name));
}

/* ------------------------------------------------------------------------------------- judging */

void conform_unsupported(struct conform *conform, const char *call, const char *sentence)
{
    const struct claims *claims = conform->claims;
    const char *status = conform_status_name(HSDP_ERR_UNSUPPORTED);

    if (conform->optional != NULL) {
        conform_skip(conform, "%s is optional: %s: answers %s: %s", conform->optional, call, status,
                     sentence);
    }
    if (claims->is_read != 0 && conform->strategy[0] != '\0') {
        conform_fail(conform, "describe() lists the strategy %s, but %s: answers %s: %s",
                     conform->strategy, call, status, sentence);
    }
    if (claims->is_read != 0 && conform->is_joining) {
        conform_fail(conform, "describe() lists a usable transport:%.*s; but %s: answers %s: %s",
                     (int)strlen(claims->transports) - 1, claims->transports, call, status,
                     sentence);
    }
    conform_fail(conform, "%s: answers %s: %s", call, status, sentence);
}
