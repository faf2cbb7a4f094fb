/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of hsdp-conform. */
#ifndef CONFORM_OPTIONS_H
#define CONFORM_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPTIONS_MAX_FILTERS  32u
#define OPTIONS_MAX_SETTINGS 32u
#define OPTIONS_MAX_JOBS     64u
#define OPTIONS_OWN_JOBS     16u  /* at most, unless the user says otherwise */
#define OPTIONS_MAX_SECONDS  3600 /* of --limit */

/* What a run of the kit ends with. */
#define CONFORM_EXIT_PASSED 0
#define CONFORM_EXIT_FAILED 1
#define CONFORM_EXIT_UNABLE 2

enum options_format { OPTIONS_TABLE, OPTIONS_TAP, OPTIONS_JSON };

struct options {
    const char *plugin_path;
    const char *chapters[OPTIONS_MAX_FILTERS];  /* names; none = all */
    const char *checks[OPTIONS_MAX_FILTERS];    /* parts of names; none = all */
    const char *settings[OPTIONS_MAX_SETTINGS]; /* KEY=VALUE, of all jobs and plans */
    uint64_t seed;
    uint32_t n_chapters;
    uint32_t n_checks;
    uint32_t n_settings;
    uint32_t n_ranks;
    uint32_t n_jobs;
    uint32_t limit_ms; /* of each check; 0 = its own */
    enum options_format format;
    bool is_listing;
    bool is_cuda; /* jobs are on devices */
};

/** Returns -1 to go on; else what the program ends with, everything being said. */
int options_parse(struct options *ret, int argc, char **argv);

/** Tells the user why there is no result: "hsdp-conform: ..." on standard error. */
void options_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* CONFORM_OPTIONS_H */
