/* SPDX-License-Identifier: Apache-2.0 */
/* A run as one JSON object; its members stand in report.h. */
#include <jansson.h>
#include <stdio.h>

#include "report.h"

static void json_begin(const struct report *report)
{
    (void)report;
}

static void json_step(const struct report *report, const struct report_item *item)
{
    (void)report;
    (void)item;
}

/* A plugin's own texts need not be UTF-8, which is all that JSON takes. */
static json_t *text_json(const char *text)
{
    json_t *value = text[0] == '\0' ? json_null() : json_string(text);
    char plain[RUNNER_MESSAGE_BYTES];
    size_t i;

    if (value != NULL) {
        return value;
    }
    for (i = 0; text[i] != '\0' && i + 1 < sizeof(plain); i++) {
        plain[i] = (char)((unsigned char)text[i] < 128 ? text[i] : '?');
    }
    plain[i] = '\0';
    return json_string(plain);
}

static json_t *rank_json(uint32_t rank)
{
    return rank == RUNNER_NO_RANK ? json_null() : json_integer(rank);
}

static json_t *check_json(const struct report *report, const struct report_item *item)
{
    static const char *const names[] = {"passed", "failed", "skipped"};
    const struct runner_result *result = &item->result;
    char command[8192];
    json_t *check = json_object();

    if (!report_command(report, item, command, sizeof(command))) {
        command[0] = '\0';
    }
    json_object_set_new(check, "name", json_string(item->check->name));
    json_object_set_new(check, "status", json_string(names[result->status]));
    json_object_set_new(check, "promise", json_string(item->check->promise));
    json_object_set_new(check, "ranks", json_integer(result->n_ranks));
    json_object_set_new(check, "seconds", json_real((double)result->ms / 1000.0));
    json_object_set_new(check, "message", text_json(result->message));
    json_object_set_new(check, "rank", rank_json(result->rank));
    json_object_set_new(check, "command", text_json(command));
    return check;
}

static void counts_set(json_t *object, const struct report_counts *counts, uint64_t ms)
{
    json_object_set_new(object, "passed", json_integer(counts->n[RUNNER_PASSED]));
    json_object_set_new(object, "failed", json_integer(counts->n[RUNNER_FAILED]));
    json_object_set_new(object, "skipped", json_integer(counts->n[RUNNER_SKIPPED]));
    json_object_set_new(object, "seconds", json_real((double)ms / 1000.0));
}

static json_t *chapter_json(const struct report *report, const struct conform_chapter *chapter)
{
    struct report_counts counts = report_count(report, chapter);
    json_t *object = json_object();
    json_t *checks = json_array();

    for (size_t i = 0; i < report->n_items; i++) {
        if (report->items[i].chapter == chapter) {
            json_array_append_new(checks, check_json(report, &report->items[i]));
        }
    }
    json_object_set_new(object, "name", json_string(chapter->name));
    json_object_set_new(object, "title", json_string(chapter->title));
    counts_set(object, &counts, counts.ms);
    json_object_set_new(object, "checks", checks);
    return object;
}

static json_t *chapters_json(const struct report *report)
{
    const struct conform_chapter *last = NULL;
    json_t *chapters = json_array();

    for (size_t i = 0; i < report->n_items; i++) {
        if (report->items[i].chapter != last) {
            last = report->items[i].chapter;
            json_array_append_new(chapters, chapter_json(report, last));
        }
    }
    return chapters;
}

static void json_end(const struct report *report)
{
    struct report_counts counts = report_count(report, NULL);
    const struct report_plugin *plugin = &report->plugin;
    bool is_known = plugin->name[0] != '\0';
    json_t *root = json_object();

    json_object_set_new(root, "plugin", text_json(report->options->plugin_path));
    json_object_set_new(root, "plugin_name", text_json(plugin->name));
    json_object_set_new(root, "plugin_version", text_json(plugin->version));
    json_object_set_new(root, "abi_major",
                        is_known ? json_integer(plugin->abi_major) : json_null());
    json_object_set_new(root, "abi_minor",
                        is_known ? json_integer(plugin->abi_minor) : json_null());
    json_object_set_new(root, "version", json_string(PACKAGE_VERSION));
    json_object_set_new(root, "seed", json_integer((json_int_t)report->options->seed));
    json_object_set_new(root, "ranks", json_integer(report->options->n_ranks));
    counts_set(root, &counts, conform_now_ms() - report->begin_ms);
    json_object_set_new(root, "chapters", chapters_json(report));
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(root);
}

const struct report_form report_json = {
    .begin = json_begin,
    .started = json_step,
    .done = json_step,
    .end = json_end,
};
