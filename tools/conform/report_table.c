/* SPDX-License-Identifier: Apache-2.0 */
/* A run for people: a line for each chapter, then each failure with how to repeat it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

#define TABLE_COLUMNS 96u /* where sentences are broken */
#define TABLE_INDENT  11u

enum colour { PLAIN, BOLD, GREEN, RED, YELLOW, DIM };

static bool is_terminal(void)
{
    static const char *const none[] = {"dumb", ""};
    const char *term = getenv("TERM");

    for (size_t i = 0; term != NULL && i < sizeof(none) / sizeof(none[0]); i++) {
        if (strcmp(term, none[i]) == 0) {
            return false;
        }
    }
    return term != NULL && isatty(STDOUT_FILENO) == 1;
}

/* What to print before a text of a colour; "" where there are none. */
static const char *colour_begin(enum colour colour)
{
    static const char *const codes[] = {
        "\033[0m", "\033[1m", "\033[32m", "\033[1;31m", "\033[33m", "\033[2m",
    };
    const char *refused = getenv("NO_COLOR");

    return is_terminal() && (refused == NULL || refused[0] == '\0') ? codes[colour] : "";
}

/* A text in a colour, padded to a width while it has none. */
static void cell_print(enum colour colour, int width, const char *text)
{
    printf("%s%*s%s", colour_begin(colour), width, text, colour_begin(PLAIN));
}

static void progress_clear(void)
{
    if (is_terminal()) {
        fputs("\r\033[K", stdout);
    }
}

/* Words up to the edge, the lines after the first one indented. */
static void sentence_print(const char *label, const char *text)
{
    size_t column = TABLE_INDENT;

    printf("  %-*s", (int)TABLE_INDENT - 2, label);
    while (*text != '\0') {
        size_t n_bytes = strcspn(text, " ");

        if (column > TABLE_INDENT && column + 1 + n_bytes > TABLE_COLUMNS) {
            printf("\n%*s", (int)TABLE_INDENT, "");
            column = TABLE_INDENT;
        } else if (column > TABLE_INDENT) {
            putchar(' ');
            column++;
        }
        fwrite(text, 1, n_bytes, stdout);
        column += n_bytes;
        text += n_bytes;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void table_begin(const struct report *report)
{
    const struct report_plugin *plugin = &report->plugin;

    cell_print(BOLD, 0, "hsdp-conform " PACKAGE_VERSION);
    printf("  %s\n", report->options->plugin_path);
    if (plugin->name[0] != '\0') {
        printf("%s %s, ABI %" PRIu32 ".%" PRIu32 "; ", plugin->name, plugin->version,
               plugin->abi_major, plugin->abi_minor);
    }
    printf("%" PRIu32 " rank%s, seed %" PRIu64 "\n\n", report->options->n_ranks,
           report->options->n_ranks == 1 ? "" : "s", report->options->seed);
    printf("  %-14s %-44s %7s %7s %7s  %s\n", "chapter", "", "passed", "failed", "skipped",
           "checks' time");
    fflush(stdout);
}

/* What goes on, in a line that the next one overwrites. */
static void table_started(const struct report *report, const struct report_item *item)
{
    if (is_terminal()) {
        printf("\r\033[K  %-14s %s%zu of %zu: %.60s%s", item->chapter->name, colour_begin(DIM),
               (size_t)(item - report->items) + 1, report->n_items, item->check->name,
               colour_begin(PLAIN));
        fflush(stdout);
    }
}

static void number_print(enum colour colour, uint32_t number)
{
    char digits[16];

    snprintf(digits, sizeof(digits), "%" PRIu32, number);
    putchar(' ');
    cell_print(number == 0 ? PLAIN : colour, 7, number == 0 ? "-" : digits);
}

static void row_print(const char *name, const char *title, const struct report_counts *counts,
                      uint64_t ms)
{
    printf("  %-14s %-44s", name, title);
    number_print(GREEN, counts->n[RUNNER_PASSED]);
    number_print(RED, counts->n[RUNNER_FAILED]);
    number_print(YELLOW, counts->n[RUNNER_SKIPPED]);
    printf("  %10.1f s\n", (double)ms / 1000.0);
}

static void table_done(const struct report *report, const struct report_item *item)
{
    const struct report_item *next = item + 1;

    if (next < report->items + report->n_items && next->chapter == item->chapter) {
        return;
    }
    struct report_counts counts = report_count(report, item->chapter);

    progress_clear();
    row_print(item->chapter->name, item->chapter->title, &counts, counts.ms);
    fflush(stdout);
}

/* Two checks of a chapter of which there is the same to say: it is said once. */
static bool is_alike(const struct report_item *a, const struct report_item *b)
{
    return a->chapter == b->chapter && a->result.status == b->result.status &&
           strcmp(a->result.message, b->result.message) == 0;
}

static bool is_said(const struct report *report, const struct report_item *item)
{
    for (const struct report_item *other = report->items; other < item; other++) {
        if (is_alike(other, item)) {
            return true;
        }
    }
    return false;
}

/* The next check of which there is the same to say; NULL = none. */
static const struct report_item *alike_next(const struct report *report,
                                            const struct report_item *item)
{
    const struct report_item *end = report->items + report->n_items;

    for (const struct report_item *other = item + 1; other < end; other++) {
        if (is_alike(other, item)) {
            return other;
        }
    }
    return NULL;
}

static void failure_print(const struct report *report, const struct report_item *item)
{
    const struct runner_result *result = &item->result;
    char command[8192];

    putchar('\n');
    cell_print(RED, 0, "FAILED");
    printf("  %s: ", item->chapter->name);
    cell_print(BOLD, 0, item->check->name);
    putchar('\n');
    sentence_print("promise", item->check->promise);
    sentence_print("found", result->message);
    if (result->rank != RUNNER_NO_RANK && result->n_ranks > 1) {
        printf("  %-*srank %" PRIu32 " of %" PRIu32 "\n", (int)TABLE_INDENT - 2, "where",
               result->rank, result->n_ranks);
    }
    if (report_command(report, item, command, sizeof(command))) {
        printf("  %-*s%s\n", (int)TABLE_INDENT - 2, "again", command);
    }
    while ((item = alike_next(report, item)) != NULL) {
        printf("  %-*s%s\n", (int)TABLE_INDENT - 2, "likewise", item->check->name);
    }
}

static void skips_print(const struct report *report)
{
    const char *before = "\n";

    for (size_t i = 0; i < report->n_items; i++) {
        const struct report_item *item = &report->items[i];

        if (item->result.status != RUNNER_SKIPPED || is_said(report, item)) {
            continue;
        }
        fputs(before, stdout);
        before = "";
        for (const struct report_item *one = item; one != NULL; one = alike_next(report, one)) {
            cell_print(YELLOW, 0, "skipped");
            printf(" %s: %s\n", one->chapter->name, one->check->name);
        }
        sentence_print("", item->result.message);
    }
}

static void table_end(const struct report *report)
{
    struct report_counts counts = report_count(report, NULL);
    uint64_t ms = conform_now_ms() - report->begin_ms;

    row_print("all", "(its time is by the clock)", &counts, ms);
    skips_print(report);
    for (size_t i = 0; i < report->n_items; i++) {
        const struct report_item *item = &report->items[i];

        if (item->result.status == RUNNER_FAILED && !is_said(report, item)) {
            failure_print(report, item);
        }
    }
    putchar('\n');
    if (counts.n[RUNNER_FAILED] == 0) {
        cell_print(GREEN, 0, "passed");
        printf(": %" PRIu32 " check%s", counts.n[RUNNER_PASSED],
               counts.n[RUNNER_PASSED] == 1 ? "" : "s");
    } else {
        cell_print(RED, 0, "failed");
        printf(": %" PRIu32 " of %zu checks", counts.n[RUNNER_FAILED], report->n_items);
    }
    if (counts.n[RUNNER_SKIPPED] != 0) {
        printf(", %" PRIu32 " skipped", counts.n[RUNNER_SKIPPED]);
    }
    printf(", seed %" PRIu64 "\n", report->options->seed);
}

const struct report_form report_table = {
    .begin = table_begin,
    .started = table_started,
    .done = table_done,
    .end = table_end,
};
