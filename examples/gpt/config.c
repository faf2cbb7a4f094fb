/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, checks and explains the configuration of hsdp-gpt. */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t key_find(const char *name)
{
    size_t i = 0;

    while (config_keys[i].name != NULL && strcmp(config_keys[i].name, name) != 0) {
        i++;
    }
    return i;
}

/* Where the value of a key lies. */
static void *value_at(struct config *config, const struct config_key *key)
{
    return (char *)config + key->offset;
}

static int key_unknown(const char *name, const char *where, struct fault *ret_fault)
{
    char list[CONFIG_TEXT_BYTES] = "";

    for (size_t i = 0; config_keys[i].name != NULL; i++) {
        const size_t used = strlen(list);

        snprintf(list + used, sizeof(list) - used, "%s%s", i == 0 ? "" : ", ", config_keys[i].name);
    }
    return fault_set(ret_fault, FAULT_CONFIG, "%s: unknown key \"%.64s\"; allowed are %s", where,
                     name, list);
}

/* A whole number in decimal digits, nothing around them. */
static int integer_read(const struct config_key *key, const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;

    if (*text == '\0' || strlen(text) > 18) {
        return -1;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (!isdigit((unsigned char)*at)) {
            return -1;
        }
        value = value * 10 + (uint64_t)(*at - '0');
    }
    *ret_value = value;
    return (double)value >= key->least && (double)value <= key->most ? 0 : -1;
}

/* A decimal number such as 3e-4, nothing around it; this program never leaves the C locale. */
static int number_read(const struct config_key *key, const char *text, double *ret_value)
{
    char *end;

    if (text[strspn(text, "0123456789.eE+-")] != '\0' || *text == '\0') {
        return -1;
    }
    *ret_value = strtod(text, &end);
    return *end == '\0' && isfinite(*ret_value) && *ret_value >= key->least &&
                   *ret_value <= key->most
               ? 0
               : -1;
}

static int choice_read(const struct config_key *key, const char *text, uint64_t *ret_value)
{
    const char *word = key->choices;

    for (uint64_t index = 0;; index++) {
        const size_t length = strcspn(word, "|");

        if (strlen(text) == length && strncmp(word, text, length) == 0) {
            *ret_value = index;
            return 0;
        }
        if (word[length] == '\0') {
            return -1;
        }
        word += length + 1;
    }
}

/* Puts the value where it belongs, or says what is allowed. */
static int value_read(struct config *config, const struct config_key *key, const char *text,
                      const char *where, struct fault *ret_fault)
{
    void *value = value_at(config, key);

    switch (key->type) {
    case CONFIG_JOB:
    case CONFIG_PLAN:
        return 0; /* the plugin reads it */
    case CONFIG_TEXT:
        strcpy(value, text); /* both have CONFIG_TEXT_BYTES, and config_set has measured */
        return 0;
    case CONFIG_INTEGER:
        if (integer_read(key, text, value) != 0) {
            return fault_set(
                ret_fault, FAULT_CONFIG,
                "%s: %s: \"%.64s\" is not allowed; a whole number from %.0f to %.0f is", where,
                key->name, text, key->least, key->most);
        }
        return 0;
    case CONFIG_NUMBER:
        if (number_read(key, text, value) != 0) {
            return fault_set(ret_fault, FAULT_CONFIG,
                             "%s: %s: \"%.64s\" is not allowed; a number from %g to %g is", where,
                             key->name, text, key->least, key->most);
        }
        return 0;
    case CONFIG_CHOICE:
        if (choice_read(key, text, value) != 0) {
            return fault_set(ret_fault, FAULT_CONFIG, "%s: %s: \"%.64s\" is not allowed; %s is",
                             where, key->name, text, key->choices);
        }
        return 0;
    }
    return 0;
}

void config_init(struct config *config)
{
    struct fault fault;

    memset(config, 0, sizeof(*config));
    for (size_t i = 0; config_keys[i].name != NULL; i++) {
        if (config_keys[i].default_text != NULL) {
            value_read(config, &config_keys[i], config_keys[i].default_text, "default", &fault);
        }
    }
}

int config_set(struct config *config, const char *key, const char *text, const char *where,
               int is_override, struct fault *ret_fault)
{
    const size_t index = key_find(key);
    struct config_entry *entry = &config->entries[index];

    if (config_keys[index].name == NULL) {
        return key_unknown(key, where, ret_fault);
    }
    if (entry->where[0] != '\0' && !entry->is_override && !is_override) {
        return fault_set(ret_fault, FAULT_CONFIG,
                         "%s: %s is given twice, the first time at %s; once is allowed", where, key,
                         entry->where);
    }
    if (strlen(text) >= CONFIG_TEXT_BYTES) {
        return fault_set(ret_fault, FAULT_CONFIG, "%s: %s: %zu bytes are too long; allowed are %d",
                         where, key, strlen(text), CONFIG_TEXT_BYTES - 1);
    }
    if (entry->is_override && !is_override) {
        return 0;
    }
    const int status = value_read(config, &config_keys[index], text, where, ret_fault);

    if (status != 0) {
        return status;
    }
    snprintf(entry->text, sizeof(entry->text), "%s", text);
    snprintf(entry->where, sizeof(entry->where), "%s", where);
    entry->is_override = is_override;
    return 0;
}

int config_override(struct config *config, const char *assignment, struct fault *ret_fault)
{
    const size_t length = strcspn(assignment, "=");
    char key[64];

    if (assignment[length] == '\0' || length == 0 || length >= sizeof(key)) {
        return fault_set(ret_fault, FAULT_CONFIG, "--set: \"%.64s\" is not of the form key=value",
                         assignment);
    }
    memcpy(key, assignment, length);
    key[length] = '\0';
    return config_set(config, key, assignment + length + 1, "--set", 1, ret_fault);
}

size_t config_settings(const struct config *config, enum config_type type,
                       const char *ret_keys[CONFIG_MAX_KEYS],
                       const char *ret_values[CONFIG_MAX_KEYS])
{
    size_t n_settings = 0;

    for (size_t i = 0; config_keys[i].name != NULL; i++) {
        if (config_keys[i].type == type && config->entries[i].where[0] != '\0') {
            ret_keys[n_settings] = config_keys[i].name;
            ret_values[n_settings] = config->entries[i].text;
            n_settings++;
        }
    }
    return n_settings;
}

const char *config_text(const struct config *config, const char *key)
{
    const struct config_entry *entry = &config->entries[key_find(key)];

    return entry->where[0] == '\0' ? NULL : entry->text;
}
