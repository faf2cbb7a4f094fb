/* SPDX-License-Identifier: Apache-2.0 */
/* What all forms of a report need: counts, and the command that repeats a check. */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct report_counts report_count(const struct report *report,
                                  const struct conform_chapter *chapter)
{
    struct report_counts counts = {0};

    for (size_t i = 0; i < report->n_items; i++) {
        const struct report_item *item = &report->items[i];

        if (item->is_done && (chapter == NULL || item->chapter == chapter)) {
            counts.n[item->result.status]++;
            counts.ms += item->result.ms;
        }
    }
    return counts;
}

/* A text that grows; once it does not fit it stays too long. */
struct line {
    char *text;
    size_t max_bytes;
    size_t n_bytes;
};

static void line_add(struct line *line, const char *text)
{
    size_t n_bytes = strlen(text);

    if (line->n_bytes + n_bytes < line->max_bytes) {
        memcpy(line->text + line->n_bytes, text, n_bytes + 1);
    }
    line->n_bytes += n_bytes;
}

static void line_add_quoted(struct line *line, const char *text)
{
    static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                   "_-./,:+=@%";
    char letter[2] = "";

    if (text[0] != '\0' && strspn(text, harmless) == strlen(text)) {
        line_add(line, text);
        return;
    }
    line_add(line, "'");
    for (const char *at = text; *at != '\0'; at++) {
        letter[0] = *at;
        line_add(line, *at == '\'' ? "'\\''" : letter);
    }
    line_add(line, "'");
}

bool report_command(const struct report *report, const struct report_item *item, char *ret_text,
                    size_t max_bytes)
{
    struct line line = {ret_text, max_bytes, 0};
    char numbers[64];

    snprintf(numbers, sizeof(numbers),
             " --ranks=%" PRIu32 " --seed=%" PRIu64 " --chapter=", report->options->n_ranks,
             report->options->seed);
    line_add(&line, "hsdp-conform --plugin=");
    line_add_quoted(&line, report->options->plugin_path);
    line_add(&line, numbers);
    line_add_quoted(&line, item->chapter->name);
    line_add(&line, " --check=");
    line_add_quoted(&line, item->check->name);
    line_add(&line, report->options->is_cuda ? " --device=cuda" : "");
    for (uint32_t i = 0; i < report->options->n_settings; i++) {
        line_add(&line, " --set=");
        line_add_quoted(&line, report->options->settings[i]);
    }
    return line.n_bytes < max_bytes;
}
