/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries of all transports: each is asked, and what it says becomes a verdict. */
#include "libraries.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "child.h"
#include "report.h"

/* Whether a version is at least another: numbers between dots, as many as the other has. */
static bool version_reaches(const char *version, const char *least)
{
    while (*least != '\0') {
        char *version_end;
        char *least_end;
        long number = strtol(version, &version_end, 10);
        long wanted = strtol(least, &least_end, 10);

        if (number != wanted || least_end == least) {
            return number >= wanted;
        }
        version = *version_end == '.' ? version_end + 1 : version_end;
        least = *least_end == '.' ? least_end + 1 : least_end;
    }
    return true;
}

/* Says in a sentence why a library does not serve; "" if it does. */
static void verdict_write(const json_t *described, const struct child *child, char *ret_why,
                          size_t max_bytes)
{
    const char *refusal = child_fact(child, "refusal");
    const char *missing = child_fact(child, "missing");
    const char *version = child_fact(child, "version");
    const char *least = member_text(described, "min_version");

    ret_why[0] = '\0';
    if (refusal != NULL) {
        snprintf(ret_why, max_bytes, "%s", refusal);
    } else if (child->fault[0] != '\0') {
        snprintf(ret_why, max_bytes, "%s", child->fault);
    } else if (version != NULL && !version_reaches(version, least)) {
        snprintf(ret_why, max_bytes, "is too old, %s is needed", least);
    } else if (missing != NULL) {
        snprintf(ret_why, max_bytes, "lacks %s", missing);
    } else if (child_fact(child, "remark") != NULL) {
        snprintf(ret_why, max_bytes, "%s", child_fact(child, "remark"));
    }
}

/* Which of the functions that only newer versions have are there, and what is done without. */
static json_t *newer_list(const json_t *described, const struct child *child)
{
    const json_t *newer = json_object_get(described, "newer_symbols");
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(newer); i++) {
        const json_t *symbol = json_array_get(newer, i);
        const char *answer;
        char name[96];
        json_t *row;

        snprintf(name, sizeof(name), "newer.%.80s", member_text(symbol, "name"));
        answer = child_fact(child, name);
        if (answer == NULL) {
            continue; /* it was not loaded */
        }
        row = json_object();
        text_set(row, "name", member_text(symbol, "name"));
        text_set(row, "since", member_text(symbol, "since"));
        json_object_set_new(row, "is_found", json_boolean(strcmp(answer, "found") == 0));
        text_set(row, "instead", member_text(symbol, "instead"));
        json_array_append_new(list, row);
    }
    return list;
}

/* Whether one of the words is code for a device: "sm_80" runs on 8.0 to 8.9, "compute_80" is
 * translated by the driver for whatever is newer. */
static bool code_serves(const char *words, int architecture)
{
    const char *word = words;

    while (*word != '\0') {
        const char *digits = strpbrk(word, "0123456789");
        bool is_binary = strncmp(word, "sm_", strlen("sm_")) == 0;
        int wanted = digits == NULL ? 0 : (int)strtol(digits, NULL, 10);

        if (wanted > 0 && wanted <= architecture &&
            (!is_binary || wanted / 10 == architecture / 10)) {
            return true;
        }
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    return false;
}

/* The devices that a driver has found; is_served where the plugin says which code it has. */
static json_t *devices_list(const char *code, const struct child *child)
{
    json_t *list = json_array();
    const char *fact;
    char name[32];

    for (int i = 0; snprintf(name, sizeof(name), "device.%d", i) > 0 &&
                    (fact = child_fact(child, name)) != NULL;
         i++) {
        const char *architecture = strstr(fact, ", sm_");
        json_t *row = json_object();

        text_set(row, "name", fact);
        if (code[0] != '\0' && architecture != NULL) {
            json_object_set_new(row, "is_served",
                                json_boolean(code_serves(
                                    code, (int)strtol(architecture + strlen(", sm_"), NULL, 10))));
        }
        json_array_append_new(list, row);
    }
    return list;
}

static void list_set(json_t *object, const char *name, json_t *list)
{
    if (json_array_size(list) > 0) {
        json_object_set(object, name, list);
    }
    json_decref(list);
}

static json_t *library_ask(const json_t *transport, const json_t *described, int64_t timeout_ms)
{
    json_t *library = json_object();
    struct child child;
    char why[2048];

    child_run(ask_library, described, timeout_ms, &child);
    text_set(library, "transport", member_text(transport, "name"));
    text_set(library, "name", member_text(described, "name"));
    text_set(library, "path", child_fact(&child, "path"));
    text_set(library, "version", child_fact(&child, "version"));
    number_set(library, "n_devices", child_fact(&child, "n_devices"));
    verdict_write(described, &child, why, sizeof(why));
    json_object_set_new(library, "works", json_boolean(why[0] == '\0'));
    if (why[0] != '\0') {
        text_set(library, "reason", why);
    }
    list_set(library, "newer", newer_list(described, &child));
    list_set(library, "devices", devices_list(member_text(transport, "device_code"), &child));
    child_clear(&child);
    return library;
}

json_t *libraries_ask(const json_t *description, int64_t timeout_ms)
{
    const json_t *transports = json_object_get(description, "transports");
    json_t *all = json_array();

    for (size_t i = 0; i < json_array_size(transports); i++) {
        const json_t *transport = json_array_get(transports, i);
        const json_t *list = json_object_get(transport, "libraries");

        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *described = json_array_get(list, k);

            if (member_text(described, "name")[0] != '\0') {
                json_array_append_new(all, library_ask(transport, described, timeout_ms));
            }
        }
    }
    return all;
}
