/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the environment: HSDP_<KEY>, its effective value, and whether it is allowed. */
#include "environment.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

/* "HSDP_" and the key in capitals. */
static void variable_name(const char *key, char *ret_name, size_t max_bytes)
{
    size_t n = (size_t)snprintf(ret_name, max_bytes, "HSDP_%s", key);

    for (size_t i = 0; i < n && i < max_bytes; i++) {
        ret_name[i] = (char)toupper((unsigned char)ret_name[i]);
    }
}

/* A choice "step:N" takes any number. */
static bool choice_is(const char *choice, const char *word, size_t n)
{
    size_t n_head = strlen(choice);

    if (n_head > 2 && strcmp(choice + n_head - 2, ":N") == 0) {
        n_head--;
        return n > n_head && strncmp(choice, word, n_head) == 0 &&
               strspn(word + n_head, "0123456789") >= n - n_head;
    }
    return n_head == n && strncmp(choice, word, n) == 0;
}

static bool word_is_allowed(const json_t *choices, const char *word, size_t n)
{
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const char *choice = json_string_value(json_array_get(choices, i));

        if (choice != NULL && choice_is(choice, word, n)) {
            return true;
        }
    }
    return false;
}

static bool words_are_allowed(const json_t *setting, const char *value)
{
    bool is_list = strcmp(member_text(setting, "type"), "list") == 0;
    const json_t *choices = json_object_get(setting, "choices");

    for (;;) {
        size_t n = is_list ? strcspn(value, ",") : strlen(value);

        if (!word_is_allowed(choices, value, n)) {
            return false;
        }
        if (value[n] == '\0') {
            return true;
        }
        value += n + 1;
    }
}

static bool number_is_allowed(const json_t *setting, const char *value)
{
    const json_t *min = json_object_get(setting, "min");
    const json_t *max = json_object_get(setting, "max");
    char *end = NULL;
    long long number;

    errno = 0;
    number = strtoll(value, &end, 10);
    return (isdigit((unsigned char)value[0]) || value[0] == '-') && *end == '\0' && errno == 0 &&
           (min == NULL || number >= json_integer_value(min)) &&
           (max == NULL || number <= json_integer_value(max));
}

static bool value_is_allowed(const json_t *setting, const char *value)
{
    if (strcmp(member_text(setting, "type"), "integer") == 0) {
        return number_is_allowed(setting, value);
    }
    return json_object_get(setting, "choices") == NULL || words_are_allowed(setting, value);
}

static void setting_take(json_t *list, const json_t *setting, const struct child *child)
{
    const char *key = member_text(setting, "key");
    char variable[128];
    char name[128];
    const char *value;
    const char *source;
    json_t *row;

    variable_name(key, variable, sizeof(variable));
    value = getenv(variable);
    if (key[0] == '\0' || value == NULL) {
        return;
    }
    row = json_object();
    json_object_set_new(row, "key", report_text(key));
    json_object_set_new(row, "variable", report_text(variable));
    json_object_set_new(row, "is_allowed", json_boolean(value_is_allowed(setting, value)));
    snprintf(name, sizeof(name), "source.%s", key);
    source = child_fact(child, name);
    snprintf(name, sizeof(name), "value.%s", key);
    value = child_fact(child, name) == NULL ? value : child_fact(child, name);
    json_object_set_new(row, "value", report_text(value));
    json_object_set_new(row, "source", report_text(source == NULL ? "environment" : source));
    json_array_append_new(list, row);
}

/* Variables that are read, but are no settings: the launcher's and the loader's. */
static bool variable_is_known(const char *variable, size_t n_bytes)
{
    static const char known[] = " HSDP_ATTEMPT HSDP_NODE_RANK HSDP_PLUGIN HSDP_PLUGIN_PATH "
                                "HSDP_RUN_ID HSDP_RUN_MARK ";
    char word[128];

    if (n_bytes + 3 > sizeof(word)) {
        return false;
    }
    snprintf(word, sizeof(word), " %.*s ", (int)n_bytes, variable);
    return strstr(known, word) != NULL;
}

static bool variable_is_setting(const json_t *list, const char *variable, size_t n_bytes)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = member_text(json_array_get(list, i), "variable");

        if (strlen(name) == n_bytes && strncmp(name, variable, n_bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Those that nobody reads; one of them may be a setting with a letter too many. */
static json_t *strangers_list(const json_t *list)
{
    json_t *strangers = json_array();

    for (char **variable = environ; *variable != NULL; variable++) {
        size_t n_bytes = strcspn(*variable, "=");

        if (strncmp(*variable, "HSDP_", strlen("HSDP_")) == 0 &&
            !variable_is_known(*variable, n_bytes) &&
            !variable_is_setting(list, *variable, n_bytes)) {
            json_array_append_new(strangers, json_stringn(*variable, n_bytes));
        }
    }
    return strangers;
}

void environment_take(json_t *report, const json_t *description, const struct child *child)
{
    const json_t *settings = json_object_get(description, "settings");
    const char *refusal = child_fact(child, "job_refusal");
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(settings); i++) {
        setting_take(list, json_array_get(settings, i), child);
    }
    json_object_set_new(report, "environment", list);
    json_object_set_new(report, "unknown_variables", strangers_list(list));
    if (refusal != NULL) {
        json_object_set_new(report, "job_refusal", report_text(refusal));
    }
}
