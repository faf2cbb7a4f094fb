/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed of a run: a table for people, TAP, or JSON. */
#ifndef CONFORM_REPORT_H
#define CONFORM_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conform.h"
#include "options.h"
#include "runner.h"

/* A check that was chosen, and what became of it. */
struct report_item {
    const struct conform_chapter *chapter;
    const struct conform_check *check;
    struct runner_result result;
    bool is_done;
};

/* Whom the plugin says it is; empty texts where it could not be asked. */
struct report_plugin {
    char name[128];
    char version[128];
    uint32_t abi_major;
    uint32_t abi_minor;
};

struct report {
    const struct options *options;
    struct report_plugin plugin;
    const struct report_item *items;
    size_t n_items;
    uint64_t begin_ms;
};

struct report_counts {
    uint32_t n[3]; /* by enum runner_status */
    uint64_t ms;   /* of the checks, added up */
};

/** Of one chapter; of all where chapter is NULL. */
struct report_counts report_count(const struct report *report,
                                  const struct conform_chapter *chapter);

/** The command that repeats one check alone, for a shell; false when it does not fit. */
bool report_command(const struct report *report, const struct report_item *item, char *ret_text,
                    size_t max_bytes);

/*
 * A form in which a run is printed. `begin` comes first, `started` when a check has been started,
 * `done` for each check in the order of the list, `end` when all are.
 */
struct report_form {
    void (*begin)(const struct report *report);
    void (*started)(const struct report *report, const struct report_item *item);
    void (*done)(const struct report *report, const struct report_item *item);
    void (*end)(const struct report *report);
};

extern const struct report_form report_table;
extern const struct report_form report_tap;

/*
 * JSON: one object with the members
 *
 *     plugin            the file, as given
 *     plugin_name, plugin_version, abi_major, abi_minor   what it says of itself; null = nothing
 *     version           of hsdp-conform
 *     seed, ranks       as given, or drawn
 *     passed, failed, skipped, seconds                    of the whole run
 *     chapters          a list of objects: name, title, passed, failed, skipped, seconds, and
 *       checks          a list of objects: name, status ("passed", "failed", "skipped"), promise
 *                       (where in the headers it is made), ranks, seconds, message (what was
 *                       promised and found, or why it was skipped; null when it has passed), rank
 *                       (who found it; null = nobody in particular) and command (repeats it alone)
 */
extern const struct report_form report_json;

#endif /* CONFORM_REPORT_H */
