/* SPDX-License-Identifier: Apache-2.0 */
/* The settings for people: a table for each home; key, default, what is allowed, the meaning. */
#include "print_settings.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

#define INDENT       2
#define MEANING      6
#define LONG_DEFAULT 20 /* a longer one does not stand in the table but below */
#define MAX_NOTE     2048

static const char *default_text(const json_t *setting)
{
    const char *fixed = json_string_value(json_object_get(setting, "default"));

    return fixed != NULL ? fixed : member_text(setting, "default_rule");
}

static bool default_is_long(const json_t *setting)
{
    return strlen(default_text(setting)) > LONG_DEFAULT;
}

/* "1 to 64", "mean, sum", or the type. */
static void range_write(const json_t *setting, char ret_text[MAX_NOTE])
{
    const json_t *choices = json_object_get(setting, "choices");
    const json_t *min = json_object_get(setting, "min");
    const json_t *max = json_object_get(setting, "max");
    const char *type = member_text(setting, "type");
    size_t n = 0;

    if (json_array_size(choices) > 0) {
        n = (size_t)snprintf(ret_text, MAX_NOTE, "%s", strcmp(type, "list") == 0 ? "list of " : "");
        for (size_t i = 0; i < json_array_size(choices) && n < MAX_NOTE; i++) {
            const char *choice = json_string_value(json_array_get(choices, i));

            n += (size_t)snprintf(ret_text + n, MAX_NOTE - n, "%s%s", i == 0 ? "" : ", ",
                                  choice == NULL ? "?" : choice);
        }
    } else if (json_is_integer(min) && json_is_integer(max)) {
        snprintf(ret_text, MAX_NOTE, "%" PRId64 " to %" PRId64, (int64_t)json_integer_value(min),
                 (int64_t)json_integer_value(max));
    } else if (json_is_integer(min)) {
        snprintf(ret_text, MAX_NOTE, "from %" PRId64, (int64_t)json_integer_value(min));
    } else {
        snprintf(ret_text, MAX_NOTE, "%s", type);
    }
}

/* What the environment sets of it, NULL = nothing. */
static const json_t *environment_find(const json_t *report, const char *key)
{
    const json_t *list = json_object_get(report, "environment");

    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(member_text(json_array_get(list, i), "key"), key) == 0) {
            return json_array_get(list, i);
        }
    }
    return NULL;
}

static void value_print(const struct page *page, const json_t *set)
{
    char note[MAX_NOTE];

    snprintf(note, sizeof(note), "-> %s, by %s%s", member_text(set, "value"),
             member_text(set, "variable"),
             json_is_true(json_object_get(set, "is_allowed")) ? "" : ", WHICH IS NOT ALLOWED");
    page_paragraph(page, MEANING - 3, 3, note);
}

/* "job", "plan, class": the settings of one group have the same homes. */
static void homes_write(const json_t *setting, char ret_text[64])
{
    const json_t *homes = json_object_get(setting, "homes");
    size_t n = 0;

    ret_text[0] = '\0';
    for (size_t i = 0; i < json_array_size(homes) && n < 64; i++) {
        const char *home = json_string_value(json_array_get(homes, i));

        n += (size_t)snprintf(ret_text + n, 64 - n, "%s%s", i == 0 ? "" : ", ",
                              home == NULL ? "?" : home);
    }
}

static json_t *row_make(const json_t *setting)
{
    char range[MAX_NOTE];

    range_write(setting, range);
    return json_pack("[s, s, o]", member_text(setting, "key"),
                     default_is_long(setting) ? "(below)" : default_text(setting),
                     report_text(range));
}

static void setting_print(const struct page *page, const json_t *report, const json_t *setting,
                          const struct columns *columns)
{
    const json_t *set = environment_find(report, member_text(setting, "key"));
    json_t *row = row_make(setting);
    char note[MAX_NOTE];

    columns_print(columns, row);
    page_paragraph(page, MEANING, 0, member_text(setting, "meaning"));
    if (default_is_long(setting)) {
        snprintf(note, sizeof(note), "default: %s", default_text(setting));
        page_paragraph(page, MEANING, 2, note);
    }
    if (set != NULL) {
        value_print(page, set);
    }
    json_decref(row);
}

/* The settings whose homes are those of the first-th, unless an earlier one had them. */
static void group_print(const struct page *page, const json_t *report, const json_t *settings,
                        size_t first, const struct columns *columns)
{
    char homes[64];
    char others[64];
    char title[128];

    homes_write(json_array_get(settings, first), homes);
    for (size_t i = 0; i < first; i++) {
        homes_write(json_array_get(settings, i), others);
        if (strcmp(homes, others) == 0) {
            return;
        }
    }
    snprintf(title, sizeof(title), "Settings of: %s (name, default, allowed)", homes);
    page_heading(page, title);
    for (size_t i = first; i < json_array_size(settings); i++) {
        homes_write(json_array_get(settings, i), others);
        if (strcmp(homes, others) == 0) {
            setting_print(page, report, json_array_get(settings, i), columns);
        }
    }
}

void settings_print(const struct page *page, const json_t *report, const json_t *settings)
{
    json_t *rows = json_array();
    struct columns columns;

    for (size_t i = 0; i < json_array_size(settings); i++) {
        json_array_append_new(rows, row_make(json_array_get(settings, i)));
    }
    columns_fit(page, rows, INDENT, &columns);
    for (size_t i = 0; i < json_array_size(settings); i++) {
        group_print(page, report, settings, i, &columns);
    }
    json_decref(rows);
}
