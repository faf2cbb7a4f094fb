/* SPDX-License-Identifier: Apache-2.0 */
/* A report for people: the plugin, strategies, transports, extensions. */
#include "print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "print_settings.h"
#include "report.h"

#define INDENT 2

/* The parts of a sentence, with ", " between them; what does not fit is left out. */
struct phrase {
    char text[1024];
};

static void phrase_add(struct phrase *phrase, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void phrase_add(struct phrase *phrase, const char *format, ...)
{
    size_t n = strlen(phrase->text);
    va_list args;

    n += (size_t)snprintf(phrase->text + n, sizeof(phrase->text) - n, "%s", n == 0 ? "" : ", ");
    va_start(args, format);
    if (n < sizeof(phrase->text)) {
        vsnprintf(phrase->text + n, sizeof(phrase->text) - n, format, args);
    }
    va_end(args);
}

static void row_add(json_t *rows, const char *first, const char *second, const char *third)
{
    json_array_append_new(rows, json_pack("[s, s, o]", first, second, report_text(third)));
}

/* --------------------------------------------------------------------------------- the plugin */

static void identity_print(const struct page *page, const json_t *report)
{
    char title[256];

    snprintf(title, sizeof(title), "%.80s %.80s, ABI %" PRId64 ".%" PRId64,
             member_text(report, "plugin_name"), member_text(report, "plugin_version"),
             (int64_t)json_integer_value(json_object_get(report, "abi_major")),
             (int64_t)json_integer_value(json_object_get(report, "abi_minor")));
    page_heading(page, title);
    page_line(INDENT, member_text(report, "file"));
    page_paragraph(page, INDENT, 0, member_text(report, "found_by"));
    if (json_object_get(report, "job_refusal") != NULL) {
        page_paragraph(page, INDENT, 3, "-> with this environment no job can be created:");
        page_paragraph(page, INDENT + 3, 0, member_text(report, "job_refusal"));
    }
}

/* ----------------------------------------------------------------------------------- strategies */

static void aliases_join(const json_t *strategy, struct phrase *ret)
{
    const json_t *aliases = json_object_get(strategy, "aliases");

    ret->text[0] = '\0';
    for (size_t i = 0; i < json_array_size(aliases); i++) {
        const char *alias = json_string_value(json_array_get(aliases, i));

        if (alias != NULL) {
            phrase_add(ret, "%s", alias);
        }
    }
}

static void strategies_print(const struct page *page, const json_t *strategies)
{
    json_t *rows =
        json_pack("[[s, s, s, s, s]]", "", "parameters", "gradients", "optimizer", "also called");

    for (size_t i = 0; i < json_array_size(strategies); i++) {
        const json_t *strategy = json_array_get(strategies, i);
        struct phrase aliases;

        aliases_join(strategy, &aliases);
        json_array_append_new(rows, json_pack("[s, s, s, s, o]", member_text(strategy, "name"),
                                              member_text(strategy, "parameters_sharded_over"),
                                              member_text(strategy, "gradients_sharded_over"),
                                              member_text(strategy, "optimizer_sharded_over"),
                                              report_text(aliases.text)));
    }
    page_heading(page, "Strategies, and over which of the reduced ranks each shards");
    if (json_array_size(strategies) > 0) {
        table_print(page, rows, INDENT);
    } else {
        page_paragraph(page, INDENT, 0, "none");
    }
    json_decref(rows);
}

/* ----------------------------------------------------------------------------------- transports */

/* The reason, and every other number or text of a transport under its own name. */
static void remarks_join(json_t *transport, struct phrase *ret)
{
    const char *reason = member_text(transport, "reason");
    const char *name;
    json_t *value;

    ret->text[0] = '\0';
    if (reason[0] != '\0') {
        phrase_add(ret, "%s", reason);
    }
    json_object_foreach(transport, name, value)
    {
        if (strcmp(name, "name") == 0 || strcmp(name, "reason") == 0) {
            continue;
        }
        if (json_is_integer(value)) {
            phrase_add(ret, "%s %" PRId64, name, (int64_t)json_integer_value(value));
        } else if (json_is_string(value)) {
            phrase_add(ret, "%s %s", name, json_string_value(value));
        }
    }
}

static const char *usable_word(const json_t *object)
{
    return json_is_true(json_object_get(object, "usable")) ? "usable" : "not usable";
}

/* Its name, whether it works, and where it is, on a line of its own to be copied. */
static void library_print(const struct page *page, const json_t *library)
{
    const json_t *n_devices = json_object_get(library, "n_devices");
    const char *name = member_text(library, "name");
    const char *path = member_text(library, "path");
    const char *version = member_text(library, "version");
    bool is_good = json_is_true(json_object_get(library, "works"));
    struct phrase words = {""};

    phrase_add(&words, "%s%s%s: %s", name, version[0] == '\0' ? "" : " ", version,
               is_good ? "works" : member_text(library, "reason"));
    if (n_devices != NULL) {
        phrase_add(&words, "%" PRId64 " device%s", (int64_t)json_integer_value(n_devices),
                   json_integer_value(n_devices) == 1 ? "" : "s");
    }
    page_paragraph(page, 3 * INDENT, INDENT, words.text);
    if (path[0] != '\0' && strcmp(path, name) != 0) {
        page_line(4 * INDENT, path);
    }
}

/* Below a library: what newer versions of it would bring, and the devices that it has found. */
static void details_print(const struct page *page, const json_t *library)
{
    const json_t *newer = json_object_get(library, "newer");
    const json_t *devices = json_object_get(library, "devices");
    char line[512];

    for (size_t i = 0; i < json_array_size(newer); i++) {
        const json_t *row = json_array_get(newer, i);
        bool is_found = json_is_true(json_object_get(row, "is_found"));

        snprintf(line, sizeof(line), "%.80s (since %.32s): %s%.256s", member_text(row, "name"),
                 member_text(row, "since"), is_found ? "found" : "not there; instead ",
                 is_found ? "" : member_text(row, "instead"));
        page_paragraph(page, 4 * INDENT, INDENT, line);
    }
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *row = json_array_get(devices, i);
        const json_t *is_served = json_object_get(row, "is_served");

        snprintf(line, sizeof(line), "device %zu: %.200s%s", i, member_text(row, "name"),
                 is_served == NULL         ? ""
                 : json_is_true(is_served) ? ", which this plugin has code for"
                                           : ", WHICH THIS PLUGIN HAS NO CODE FOR");
        page_paragraph(page, 4 * INDENT, INDENT, line);
    }
}

static void transports_print(const struct page *page, const json_t *report,
                             const json_t *transports)
{
    const json_t *libraries = json_object_get(report, "libraries");
    json_t *rows = json_array();
    struct columns columns;

    for (size_t i = 0; i < json_array_size(transports); i++) {
        json_t *transport = json_array_get(transports, i);
        struct phrase remarks;

        remarks_join(transport, &remarks);
        row_add(rows, member_text(transport, "name"), usable_word(transport), remarks.text);
    }
    columns_fit(page, rows, INDENT, &columns);
    page_heading(page, "Transports, and the libraries that they need");
    if (json_array_size(rows) == 0) {
        page_paragraph(page, INDENT, 0, "none");
    }
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *name = member_text(json_array_get(transports, i), "name");

        columns_print(&columns, json_array_get(rows, i));
        for (size_t k = 0; k < json_array_size(libraries); k++) {
            const json_t *library = json_array_get(libraries, k);

            if (strcmp(member_text(library, "transport"), name) == 0) {
                library_print(page, library);
                details_print(page, library);
            }
        }
    }
    page_paragraph(page, INDENT, INDENT, member_text(report, "backend_auto"));
    json_decref(rows);
}

static void cpu_paths_print(const struct page *page, const json_t *paths)
{
    json_t *rows = json_array();

    for (size_t i = 0; i < json_array_size(paths); i++) {
        const json_t *path = json_array_get(paths, i);

        row_add(rows, member_text(path, "name"), usable_word(path), member_text(path, "reason"));
    }
    if (json_array_size(rows) > 0) {
        page_heading(page, "CPU paths");
        table_print(page, rows, INDENT);
    }
    json_decref(rows);
}

static void extensions_print(const struct page *page, const json_t *extensions)
{
    page_heading(page, "Extensions");
    for (size_t i = 0; i < json_array_size(extensions); i++) {
        const char *name = json_string_value(json_array_get(extensions, i));

        page_paragraph(page, INDENT, 0, name == NULL ? "" : name);
    }
    if (json_array_size(extensions) == 0) {
        page_paragraph(page, INDENT, 0, "none");
    }
}

/* ----------------------------------------------------------------------------------- the rest */

/* Members that only newer plugins, or those of others, have. */
static void others_print(const struct page *page, json_t *description)
{
    static const char known[] = " plugin_name plugin_version abi_major abi_minor strategies "
                                "transports cpu_paths extensions settings ";
    struct phrase others = {""};
    const char *name;
    json_t *value;

    json_object_foreach(description, name, value)
    {
        char word[128];

        snprintf(word, sizeof(word), " %.120s ", name);
        if (strstr(known, word) == NULL) {
            phrase_add(&others, "%s", name);
        }
    }
    if (others.text[0] != '\0') {
        page_heading(page, "Also described (--json has it)");
        page_paragraph(page, INDENT, 0, others.text);
    }
}

/* A misspelled setting has no effect, and nothing else would say so. */
static void strangers_print(const struct page *page, const json_t *names)
{
    struct phrase phrase = {""};

    for (size_t i = 0; i < json_array_size(names); i++) {
        phrase_add(&phrase, "%s", json_string_value(json_array_get(names, i)));
    }
    if (phrase.text[0] != '\0') {
        page_heading(page, "Variables HSDP_* that nobody reads: misspelled?");
        page_paragraph(page, INDENT, 0, phrase.text);
    }
}

void report_print(const struct page *page, const json_t *report)
{
    json_t *description = json_object_get(report, "description");

    if (json_object_get(report, "file") == NULL) {
        return; /* it was not loaded */
    }
    identity_print(page, report);
    if (description == NULL) {
        return;
    }
    strategies_print(page, json_object_get(description, "strategies"));
    transports_print(page, report, json_object_get(description, "transports"));
    cpu_paths_print(page, json_object_get(description, "cpu_paths"));
    extensions_print(page, json_object_get(description, "extensions"));
    settings_print(page, report, json_object_get(description, "settings"));
    others_print(page, description);
    strangers_print(page, json_object_get(report, "unknown_variables"));
}
