/* SPDX-License-Identifier: Apache-2.0 */
/* The report about one plugin: what it says, what its libraries are, what the environment sets. */
#include "report.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "backend.h"
#include "child.h"
#include "environment.h"
#include "hsdp/abi.h"
#include "libraries.h"
#include "shape.h"

json_t *report_text(const char *text)
{
    json_t *made = json_string(text);
    char *copy = made == NULL && text != NULL ? strdup(text) : NULL;

    for (char *c = copy; c != NULL && *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    }
    if (copy != NULL) {
        made = json_string(copy);
    }
    free(copy);
    return made;
}

const char *member_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text == NULL ? "" : text;
}

static void fault_add(json_t *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void fault_add(json_t *report, const char *format, ...)
{
    char text[4096];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    json_array_append_new(json_object_get(report, "faults"), report_text(text));
}

void text_set(json_t *object, const char *name, const char *text)
{
    if (text != NULL) {
        json_object_set_new(object, name, report_text(text));
    }
}

void number_set(json_t *object, const char *name, const char *digits)
{
    if (digits != NULL) {
        json_object_set_new(object, name, json_integer(strtoll(digits, NULL, 10)));
    }
}

/* -------------------------------------------------------------------------- the plugin's file */

static bool folder_holds(const char *folder, const char *file)
{
    char path[PATH_MAX];
    char *real = NULL;
    bool holds;

    if (snprintf(path, sizeof(path), "%s/hsdp.so", folder) < (int)sizeof(path)) {
        real = realpath(path, NULL);
    }
    holds = real != NULL && strcmp(real, file) == 0;
    free(real);
    return holds;
}

/* Why it is this file, by the rules of hsdp/loader.h. */
static const char *found_by(const char *argument, const char *file)
{
    const char *named = getenv("HSDP_PLUGIN");
    const char *path = getenv("HSDP_PLUGIN_PATH");

    if (argument != NULL) {
        return "named on the command line";
    }
    if (named != NULL && named[0] != '\0') {
        return "named by HSDP_PLUGIN";
    }
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":");
        char folder[PATH_MAX] = "";

        memcpy(folder, path, n < sizeof(folder) ? n : 0);
        if (n > 0 && folder_holds(folder, file)) {
            return "the first hsdp.so in the folders of HSDP_PLUGIN_PATH";
        }
        path += n;
        path += strspn(path, ":");
    }
    if (folder_holds(HSDP_PLUGIN_DIR, file)) {
        return "in the folder of plugins of this installation";
    }
    return "in ../lib/hsdp beside this program";
}

/* --------------------------------------------------------------------------------- the report */

static void identity_take(json_t *report, const char *argument, const struct child *child)
{
    const char *file = child_fact(child, "file");

    if (file != NULL) {
        text_set(report, "file", file);
        text_set(report, "found_by", found_by(argument, file));
    }
    text_set(report, "plugin_name", child_fact(child, "plugin_name"));
    text_set(report, "plugin_version", child_fact(child, "plugin_version"));
    number_set(report, "abi_major", child_fact(child, "abi_major"));
    number_set(report, "abi_minor", child_fact(child, "abi_minor"));
}

/* What the plugin says of itself twice, in its table and in describe(), has to be the same. */
static void identity_compare(json_t *report, const json_t *description)
{
    static const char *const names[] = {"plugin_name", "plugin_version", "abi_major", "abi_minor"};
    const char *who = member_text(report, "file");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!json_equal(json_object_get(report, names[i]),
                        json_object_get(description, names[i]))) {
            fault_add(report, "%s: describe() says another %s than the table of the plugin", who,
                      names[i]);
        }
    }
}

/* Takes what describe() said; NULL when it cannot be read. */
static json_t *description_take(json_t *report, const char *who, const struct child *child)
{
    const char *text = child_fact(child, "description");
    const char *refusal = child_fact(child, "description_refusal");
    json_error_t error;
    json_t *description;
    char why[192];

    if (refusal != NULL) {
        fault_add(report, "%s: describe() %s", who, refusal);
    }
    if (text == NULL) {
        return NULL;
    }
    description = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (description == NULL) {
        fault_add(report, "%s: describe() is no JSON: line %d: %s", who, error.line, error.text);
        return NULL;
    }
    if (!shape_check(description, why, sizeof(why))) {
        fault_add(report, "%s: describe(): %s", who, why);
    } else {
        identity_compare(report, description);
    }
    json_object_set_new(report, "description", description);
    return description;
}

static void faults_take(json_t *report, const char *who, const struct child *child)
{
    if (child_fact(child, "refusal") != NULL) {
        fault_add(report, "%s", child_fact(child, "refusal"));
    }
    if (child->fault[0] != '\0') {
        fault_add(report, "%s: %s", who, child->fault);
    }
    if (child->noise_bytes > 0) {
        fault_add(report, "%s: writes to standard output, which belongs to the host: \"%.*s\"%s",
                  who, (int)strcspn(child->noise, "\n"), child->noise,
                  strlen(child->noise) < child->noise_bytes ||
                          strcspn(child->noise, "\n") + 1 < child->noise_bytes
                      ? " ..."
                      : "");
    }
}

json_t *report_make(const char *plugin, int64_t timeout_ms)
{
    json_t *report = json_object();
    json_t *description;
    struct child child;
    const char *who;

    json_object_set_new(report, "argument", plugin == NULL ? json_null() : report_text(plugin));
    json_object_set_new(report, "faults", json_array());
    child_run(ask_plugin, plugin, timeout_ms, &child);
    identity_take(report, plugin, &child);
    who = json_object_get(report, "file") != NULL ? member_text(report, "file")
          : plugin != NULL                        ? plugin
                                                  : "the plugin";
    faults_take(report, who, &child);
    description = description_take(report, who, &child);
    if (description != NULL) {
        json_object_set_new(report, "backend_auto", backend_conclude(description));
        json_object_set_new(report, "libraries", libraries_ask(description, timeout_ms));
        environment_take(report, description, &child);
    }
    child_clear(&child);
    return report;
}
