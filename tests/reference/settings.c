/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: from the host, the environment and the defaults; checked; read back. */
#include "settings.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int key_find(const char *name)
{
    for (int k = 0; k < N_KEYS; k++) {
        if (strcmp(keys[k].name, name) == 0) {
            return k;
        }
    }
    return -1;
}

static int32_t key_refuse(const struct call *call, uint32_t home, const char *name)
{
    const char *owner = home == HOME_JOB ? "job" : home == HOME_PLAN ? "plan" : "class";
    char known[400] = "";

    for (int k = 0; k < N_KEYS; k++) {
        if ((keys[k].homes & home) != 0) {
            size_t n = strlen(known);

            snprintf(known + n, sizeof(known) - n, "%s%s", n == 0 ? "" : ", ", keys[k].name);
        }
    }
    return error_raise(call, HSDP_ERR_INVALID, "settings: a %s has no key \"%.40s\"; it has: %s",
                       owner, name, known);
}

/* -------------------------------------------------------------------------------------- values */

int32_t number_read(const struct call *call, const struct range *range, const char *text,
                    int64_t *ret_number)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    size_t n_digits = strspn(digits, "0123456789");
    int64_t number = 0;

    /* Up to 18 digits fit into an int64_t, and no setting has as many. */
    if (n_digits == 0 || n_digits > 18 || digits[n_digits] != '\0') {
        n_digits = 0;
    }
    for (size_t i = 0; i < n_digits; i++) {
        number = number * 10 + (digits[i] - '0');
    }
    if (text[0] == '-') {
        number = -number;
    }
    if (n_digits == 0 || number < range->least || number > range->most) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: \"%.64s\" is not a whole number from %" PRId64 " to %" PRId64,
                           range->name, text, range->least, range->most);
    }
    *ret_number = number;
    return HSDP_OK;
}

/* True if the n bytes at `text` are the word, or, for a word with ':', the word and a number. */
static bool word_matches(const char *word, size_t n_word, const char *text, size_t n)
{
    if (word[n_word - 1] != ':') {
        return n == n_word && memcmp(word, text, n) == 0;
    }
    return n > n_word && n < n_word + 10 && memcmp(word, text, n_word) == 0 &&
           text[n_word] != '0' && strspn(text + n_word, "0123456789") == n - n_word;
}

static bool words_have(const char *words, const char *text, size_t n)
{
    while (*words != '\0') {
        size_t n_word = strcspn(words, " ");

        if (n > 0 && word_matches(words, n_word, text, n)) {
            return true;
        }
        words += n_word + (words[n_word] == ' ');
    }
    return false;
}

static bool list_is_legal(const struct key *key, const char *value)
{
    size_t n = strcspn(value, ",");

    while (value[n] == ',') {
        if (!words_have(key->words, value, n)) {
            return false;
        }
        value += n + 1;
        n = strcspn(value, ",");
    }
    return words_have(key->words, value, n);
}

static int32_t value_check(const struct call *call, const struct key *key, const char *value)
{
    struct range range = {key->name, key->least, key->most};
    int64_t number;
    bool is_legal = true;

    switch (key->type) {
    case KEY_WORD:
        is_legal = words_have(key->words, value, strlen(value));
        break;
    case KEY_LIST:
        is_legal = list_is_legal(key, value);
        break;
    case KEY_NUMBER:
        return number_read(call, &range, value, &number);
    case KEY_SELECTOR:
        break;
    case KEY_PATH:
        return value[0] != '\0'
                   ? HSDP_OK
                   : error_raise(call, HSDP_ERR_INVALID, "%s: \"\" is no path", key->name);
    }
    return is_legal ? HSDP_OK
                    : error_raise(call, HSDP_ERR_INVALID, "%s: \"%.64s\" is none of: %s", key->name,
                                  value, key->words);
}

static int32_t value_put(const struct call *call, struct settings *settings, int k,
                         const char *value, const char *source)
{
    int32_t status = value_check(call, &keys[k], value);
    char *copy;

    if (status != HSDP_OK) {
        return status;
    }
    copy = strdup(value);
    if (copy == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "settings: no memory for %s", keys[k].name);
    }
    free(settings->values[k]);
    settings->values[k] = copy;
    settings->sources[k] = source;
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------------- sources */

static int32_t host_read(const struct call *call, const struct hsdp_settings *given, uint64_t i,
                         struct settings *settings)
{
    const char *name = given->keys[i];
    const char *value = given->values[i];
    int k;

    if (name == NULL || value == NULL) {
        return error_raise(call, HSDP_ERR_INVALID, "settings: entry %" PRIu64 " has no %s", i,
                           name == NULL ? "key" : "value");
    }
    k = key_find(name);
    if (k < 0 || (keys[k].homes & settings->home) == 0) {
        return key_refuse(call, settings->home, name);
    }
    if (settings->values[k] != NULL) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "settings: %s is given twice (\"%.64s\" and \"%.64s\")", name,
                           settings->values[k], value);
    }
    return value_put(call, settings, k, value, "host");
}

/* The text of HSDP_<KEY>. */
static const char *environment_find(const char *key, char name[64])
{
    snprintf(name, 64, "HSDP_%s", key);
    for (char *c = name; *c != '\0'; c++) {
        *c = (char)toupper((unsigned char)*c);
    }
    return getenv(name);
}

/* The host has never seen a value of the environment: a refusal says where it comes from. */
static int32_t environment_read(const struct call *call, struct settings *settings, int k,
                                const char *variable, const char *value)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    const struct call inner = {call->name, &error};
    int32_t status = value_put(&inner, settings, k, value, "environment");

    return status == HSDP_OK
               ? HSDP_OK
               : error_raise(call, status, "environment variable %s: %s", variable, error.message);
}

/* A key that the host has not given. */
static int32_t rest_read(const struct call *call, const struct settings *plan, int k,
                         struct settings *settings)
{
    char variable[64];
    const char *value;

    if (plan != NULL) {
        return plan->values[k] == NULL ? HSDP_OK
                                       : value_put(call, settings, k, plan->values[k], "plan");
    }
    value = environment_find(keys[k].name, variable);
    if (value != NULL) {
        return environment_read(call, settings, k, variable, value);
    }
    return keys[k].initial == NULL ? HSDP_OK
                                   : value_put(call, settings, k, keys[k].initial, "default");
}

int32_t settings_read(const struct call *call, uint32_t home, const struct hsdp_settings *given,
                      const struct settings *plan, struct settings *ret)
{
    uint64_t n_given = given == NULL ? 0 : given->n_settings;
    int32_t status = HSDP_OK;

    memset(ret, 0, sizeof(*ret));
    ret->home = home;
    if (n_given > 0 && (given->keys == NULL || given->values == NULL)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "settings: %" PRIu64 " settings without keys or without values",
                           n_given);
    }
    for (uint64_t i = 0; i < n_given && status == HSDP_OK; i++) {
        status = host_read(call, given, i, ret);
    }
    for (int k = 0; k < N_KEYS && status == HSDP_OK; k++) {
        if ((keys[k].homes & home) != 0 && ret->values[k] == NULL) {
            status = rest_read(call, plan, k, ret);
        }
    }
    if (status != HSDP_OK) {
        settings_free(ret);
    }
    return status;
}

void settings_free(struct settings *settings)
{
    for (int k = 0; k < N_KEYS; k++) {
        free(settings->values[k]);
        settings->values[k] = NULL;
    }
}

/* ------------------------------------------------------------------------------------- reading */

const char *settings_text(const struct settings *settings, const char *key)
{
    return settings->values[key_find(key)];
}

int64_t settings_number(const struct settings *settings, const char *key)
{
    const struct call silent = {"", NULL};
    struct range range = {key, INT64_MIN, INT64_MAX};
    const char *text = settings_text(settings, key);
    int64_t number = 0;

    if (text != NULL) {
        number_read(&silent, &range, text, &number); /* it was checked when it was put */
    }
    return number;
}

int32_t settings_put(const struct call *call, struct settings *settings, const char *key,
                     const char *value, const char *source)
{
    return value_put(call, settings, key_find(key), value, source);
}

int32_t settings_put_number(const struct call *call, struct settings *settings, const char *key,
                            int64_t value, const char *source)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    return settings_put(call, settings, key, text, source);
}

int32_t settings_tell(const struct call *call, const struct settings *settings, const char *key,
                      const char **ret_value, const char **ret_source)
{
    int k = key_find(key);

    if (k < 0 || (keys[k].homes & settings->home) == 0) {
        return key_refuse(call, settings->home, key);
    }
    *ret_value = settings->values[k] == NULL ? "" : settings->values[k];
    *ret_source = settings->values[k] == NULL ? "default" : settings->sources[k];
    return HSDP_OK;
}
