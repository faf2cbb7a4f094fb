/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: reading them from host and environment, reading them back. */
#include "base/settings.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static const char *home_name(uint32_t home)
{
    switch (home) {
    case SETTING_JOB:
        return "job";
    case SETTING_PLAN:
        return "plan";
    default:
        return "class";
    }
}

static int def_find(const char *key)
{
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        if (strcmp(setting_defs[i].key, key) == 0) {
            return i;
        }
    }
    return -1;
}

uint32_t setting_index(const char *key)
{
    int index = def_find(key);

    assert(index >= 0);
    return (uint32_t)index;
}

static int32_t key_refuse(const char *key, uint32_t home, struct hsdp_error *reterr)
{
    struct text known = TEXT_INIT;
    int32_t status;

    for (int i = 0; i < SETTINGS_COUNT; i++) {
        if ((setting_defs[i].homes & home) != 0) {
            text_add(&known, "%s%s", known.n_bytes == 0 ? "" : ", ", setting_defs[i].key);
        }
    }
    status =
        error_set(reterr, HSDP_ERR_INVALID, "settings: unknown key \"%.64s\" for a %s; known: %s",
                  key, home_name(home), known.is_failed ? "(no memory)" : known.chars);
    text_fini(&known);
    return status;
}

int32_t integer_parse(const char *key, const char *text, int64_t min, int64_t max,
                      int64_t *ret_value, struct hsdp_error *reterr)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    int64_t magnitude = 0;
    bool is_whole = digits[0] != '\0';

    for (const char *c = digits; is_whole && *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || magnitude > (INT64_MAX - (*c - '0')) / 10) {
            is_whole = false;
            break;
        }
        magnitude = magnitude * 10 + (*c - '0');
    }
    if (text[0] == '-') {
        magnitude = -magnitude;
    }
    if (!is_whole || magnitude < min || magnitude > max) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: \"%.64s\" is not a whole number from %" PRId64 " to %" PRId64, key,
                         text, min, max);
    }
    *ret_value = magnitude;
    return HSDP_OK;
}

/* True if the word of n bytes is one of the space-separated choices; "step:N" takes a number. */
static bool choice_matches(const char *choices, const char *word, size_t n)
{
    const char *c = choices;

    while (*c != '\0') {
        size_t n_choice = strcspn(c, " ");
        bool is_numbered = n_choice > 2 && strncmp(c + n_choice - 2, ":N", 2) == 0;
        size_t n_head = n_choice - is_numbered; /* without the N */

        if (!is_numbered && n_choice == n && strncmp(c, word, n) == 0) {
            return true;
        }
        if (is_numbered && n > n_head && strncmp(c, word, n_head) == 0 &&
            strspn(word + n_head, "0123456789") == n - n_head && n - n_head < 10 &&
            word[n_head] != '0') {
            return true;
        }
        c += n_choice;
        c += strspn(c, " ");
    }
    return false;
}

static int32_t choice_check(const struct setting_def *def, const char *value,
                            struct hsdp_error *reterr)
{
    const char *word = value;

    for (;;) {
        size_t n = def->type == SETTING_LIST ? strcspn(word, ",") : strlen(word);

        if (n == 0 || !choice_matches(def->choices, word, n)) {
            return error_set(reterr, HSDP_ERR_INVALID, "%s: \"%.64s\" is none of: %s", def->key,
                             value, def->choices);
        }
        word += n;
        if (*word == '\0') {
            return HSDP_OK;
        }
        word++; /* the comma */
    }
}

static int32_t value_check(const struct setting_def *def, const char *value,
                           struct hsdp_error *reterr)
{
    int64_t number;

    switch (def->type) {
    case SETTING_CHOICE:
    case SETTING_LIST:
        return choice_check(def, value, reterr);
    case SETTING_INTEGER:
        return integer_parse(def->key, value, def->min, def->max, &number, reterr);
    case SETTING_SELECTOR:
        return HSDP_OK; /* the mesh that it is used on checks it; "" is a selector */
    case SETTING_PATH:
        if (value[0] == '\0') {
            return error_set(reterr, HSDP_ERR_INVALID, "%s: the path is empty", def->key);
        }
        return HSDP_OK;
    }
    return HSDP_OK;
}

int32_t settings_put(struct settings *settings, const char *key, const char *value,
                     const char *source, struct hsdp_error *reterr)
{
    uint32_t index = setting_index(key);
    char *copy;
    int32_t status;

    status = value_check(&setting_defs[index], value, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    copy = strdup(value);
    if (copy == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "settings: no memory for %s", key);
    }
    free(settings->values[index]);
    settings->values[index] = copy;
    settings->sources[index] = source;
    return HSDP_OK;
}

int32_t settings_put_integer(struct settings *settings, const char *key, int64_t value,
                             const char *source, struct hsdp_error *reterr)
{
    char digits[24];

    snprintf(digits, sizeof(digits), "%" PRId64, value);
    return settings_put(settings, key, digits, source, reterr);
}

static int32_t given_read(struct settings *settings, const struct hsdp_settings *given,
                          struct hsdp_error *reterr)
{
    if (given == NULL || given->n_settings == 0) {
        return HSDP_OK;
    }
    if (given->keys == NULL || given->values == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "settings: %" PRIu64 " settings, but no %s",
                         given->n_settings, given->keys == NULL ? "keys" : "values");
    }
    for (uint64_t i = 0; i < given->n_settings; i++) {
        const char *key = given->keys[i];
        const char *value = given->values[i];
        int index = key == NULL ? -1 : def_find(key);
        int32_t status;

        if (key == NULL || value == NULL) {
            return error_set(reterr, HSDP_ERR_INVALID, "settings: entry %" PRIu64 " has no %s", i,
                             key == NULL ? "key" : "value");
        }
        if (index < 0 || (setting_defs[index].homes & settings->home) == 0) {
            return key_refuse(key, settings->home, reterr);
        }
        if (settings->values[index] != NULL) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "settings: %s is given twice (\"%.64s\" and \"%.64s\")", key,
                             settings->values[index], value);
        }
        status = settings_put(settings, key, value, "host", reterr);
        if (status != HSDP_OK) {
            return status;
        }
    }
    return HSDP_OK;
}

struct variable {
    char name[64]; /* HSDP_<KEY> */
};

static struct variable environment_variable(const char *key)
{
    struct variable variable = {"HSDP_"};
    size_t n = strlen(variable.name);

    for (const char *c = key; *c != '\0' && n + 1 < sizeof(variable.name); c++) {
        variable.name[n++] = (char)toupper((unsigned char)*c);
    }
    return variable;
}

/* Says that a refused value came from the environment: the host's author has never seen it. */
static int32_t environment_refuse(const struct variable *variable, const struct hsdp_error *err,
                                  struct hsdp_error *reterr)
{
    return error_set(reterr, err->status, "environment variable %s: %s", variable->name,
                     err->message);
}

/* What the host has left open: from the plan for a class, else environment, else the default. */
static int32_t rest_put(struct settings *settings, const struct setting_def *def,
                        const struct settings *parent, struct hsdp_error *reterr)
{
    struct variable variable = environment_variable(def->key);
    const char *value = getenv(variable.name);
    struct hsdp_error err;
    int32_t status;

    if (parent != NULL) {
        value = parent->values[setting_index(def->key)];
        return value == NULL ? HSDP_OK : settings_put(settings, def->key, value, "plan", reterr);
    }
    if (value != NULL) {
        status = settings_put(settings, def->key, value, "environment", &err);
        return status == HSDP_OK ? HSDP_OK : environment_refuse(&variable, &err, reterr);
    }
    if (def->initial == NULL) {
        return HSDP_OK;
    }
    return settings_put(settings, def->key, def->initial, "default", reterr);
}

static int32_t rest_fill(struct settings *settings, const struct settings *parent,
                         struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    for (int i = 0; status == HSDP_OK && i < SETTINGS_COUNT; i++) {
        const struct setting_def *def = &setting_defs[i];

        if ((def->homes & settings->home) != 0 && settings->values[i] == NULL) {
            status = rest_put(settings, def, parent, reterr);
        }
    }
    return status;
}

int32_t settings_init(struct settings *ret, uint32_t home, const struct hsdp_settings *given,
                      const struct settings *parent, struct hsdp_error *reterr)
{
    int32_t status;

    memset(ret, 0, sizeof(*ret));
    ret->home = home;
    status = given_read(ret, given, reterr);
    if (status == HSDP_OK) {
        status = rest_fill(ret, parent, reterr);
    }
    if (status != HSDP_OK) {
        settings_fini(ret);
    }
    return status;
}

void settings_fini(struct settings *settings)
{
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        free(settings->values[i]);
        settings->values[i] = NULL;
        settings->sources[i] = NULL;
    }
}

const char *settings_text(const struct settings *settings, const char *key)
{
    return settings->values[setting_index(key)];
}

int64_t settings_integer(const struct settings *settings, const char *key)
{
    uint32_t index = setting_index(key);
    int64_t value = 0;
    int32_t status;

    assert(settings->values[index] != NULL);
    status = integer_parse(key, settings->values[index], setting_defs[index].min,
                           setting_defs[index].max, &value, NULL);
    assert(status == HSDP_OK); /* it was checked when it was put */
    (void)status;
    return value;
}

int32_t settings_get(const struct settings *settings, const char *key, const char **ret_value,
                     const char **ret_source, struct hsdp_error *reterr)
{
    int index = def_find(key);

    if (index < 0 || (setting_defs[index].homes & settings->home) == 0) {
        return key_refuse(key, settings->home, reterr);
    }
    *ret_value = settings->values[index] == NULL ? "" : settings->values[index];
    *ret_source = settings->sources[index] == NULL ? "default" : settings->sources[index];
    return HSDP_OK;
}
