/* SPDX-License-Identifier: Apache-2.0 */
/* A run as Test Anything Protocol: the plan, then a line for each check, with what is to say. */
#include <inttypes.h>
#include <stdio.h>

#include "report.h"

/* A line of its own, also where a path has several. */
static void line_print(const char *label, const char *text)
{
    char line[8192];

    snprintf(line, sizeof(line), "%s", text);
    runner_plain(line);
    printf("# %s %s\n", label, line);
}

static void tap_begin(const struct report *report)
{
    printf("TAP version 13\n1..%zu\n# hsdp-conform " PACKAGE_VERSION "\n", report->n_items);
    line_print("plugin", report->options->plugin_path);
    printf("# seed %" PRIu64 "\n", report->options->seed);
    fflush(stdout);
}

static void tap_started(const struct report *report, const struct report_item *item)
{
    (void)report;
    (void)item;
}

/* '#' would begin a directive. */
static void name_print(const struct report_item *item)
{
    printf("%s: ", item->chapter->name);
    for (const char *at = item->check->name; *at != '\0'; at++) {
        putchar(*at == '#' ? '/' : *at);
    }
}

static void tap_done(const struct report *report, const struct report_item *item)
{
    const struct runner_result *result = &item->result;
    char command[8192];

    printf("%s %zu - ", result->status == RUNNER_FAILED ? "not ok" : "ok",
           (size_t)(item - report->items) + 1);
    name_print(item);
    if (result->status == RUNNER_SKIPPED) {
        printf(" # SKIP %s", result->message);
    }
    putchar('\n');
    if (result->status == RUNNER_FAILED) {
        printf("# promise: %s\n# found: %s\n", item->check->promise, result->message);
        if (report_command(report, item, command, sizeof(command))) {
            line_print("again:", command);
        }
    }
    fflush(stdout);
}

static void tap_end(const struct report *report)
{
    struct report_counts counts = report_count(report, NULL);

    printf("# passed %" PRIu32 ", failed %" PRIu32 ", skipped %" PRIu32 "\n",
           counts.n[RUNNER_PASSED], counts.n[RUNNER_FAILED], counts.n[RUNNER_SKIPPED]);
}

const struct report_form report_tap = {
    .begin = tap_begin,
    .started = tap_started,
    .done = tap_done,
    .end = tap_end,
};
