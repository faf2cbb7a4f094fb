/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp-flight: what went wrong, from the files that the ranks of a failed job have left. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "run.h"
#include "summary.h"
#include "trace.h"

static const char help_text[] =
    "Usage: hsdp-flight [OPTION...] DIR\n"
    "Tells what went wrong in a job, from the files that its ranks have left in DIR\n"
    "(HSDP_FLIGHT_DIR): the failure, who came to the operation that failed and who did not,\n"
    "where each rank was, and the first operation that ranks of a group disagree about.\n"
    "\n"
    "      --job=NAME     the job, where DIR has files of several\n"
    "      --json         print the same as JSON\n"
    "      --trace=FILE   also write a trace that Perfetto and chrome://tracing open:\n"
    "                     a process for each rank, a track for each group\n"
    "  -h, --help         print this text and exit\n"
    "  -V, --version      print the version and exit\n"
    "\n"
    "Files that are cut off, of another kind, or of an earlier run of the job are skipped,\n"
    "each with a line on standard error.\n"
    "\n"
    "Exit status: 0 when all files were read, 3 when some were skipped, 1 when there is none\n"
    "to read or FILE cannot be written, 2 bad options.\n";

enum { OPTION_JOB = 256, OPTION_JSON, OPTION_TRACE };

static const struct option long_options[] = {
    {"job", required_argument, NULL, OPTION_JOB},
    {"json", no_argument, NULL, OPTION_JSON},
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

struct options {
    const char *folder; /* NULL = help or version have been printed */
    const char *job;
    const char *trace;
    bool is_json;
};

static int usage_complain(const char *what)
{
    complain("%s; hsdp-flight --help tells more", what);
    return FLIGHT_USAGE;
}

static int options_parse(int argc, char **argv, struct options *ret)
{
    int option;

    while ((option = getopt_long(argc, argv, "hV", long_options, NULL)) != -1) {
        switch (option) {
        case OPTION_JOB:
            ret->job = optarg;
            break;
        case OPTION_JSON:
            ret->is_json = true;
            break;
        case OPTION_TRACE:
            ret->trace = optarg;
            break;
        case 'h':
            fputs(help_text, stdout);
            return FLIGHT_OK;
        case 'V':
            puts("hsdp-flight (libhsdp) " PACKAGE_VERSION);
            return FLIGHT_OK;
        default:
            return usage_complain("bad option"); /* getopt has said which */
        }
    }
    if (argc - optind != 1) {
        return usage_complain(argc == optind ? "no folder is given" : "more than one folder");
    }
    ret->folder = argv[optind];
    return FLIGHT_OK;
}

static int run_tell(const struct run *run, const struct options *options)
{
    json_t *summary = summary_make(run);
    int status = options->trace == NULL ? FLIGHT_OK : trace_write(run, options->trace);

    if (summary == NULL) {
        complain("no memory for the summary");
        return FLIGHT_NOTHING;
    }
    if (options->is_json) {
        json_dumpf(summary, stdout, JSON_INDENT(2));
        printf("\n");
    } else {
        summary_print(summary);
    }
    json_decref(summary);
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        complain("cannot write all of the output");
        return FLIGHT_NOTHING;
    }
    return status == FLIGHT_OK && run->n_skipped > 0 ? FLIGHT_SKIPPED : status;
}

int main(int argc, char **argv)
{
    struct options options = {.folder = NULL};
    struct run run = {.n_ranks = 0};
    int status = options_parse(argc, argv, &options);

    if (status != FLIGHT_OK || options.folder == NULL) {
        return status;
    }
    status = run_read(options.folder, options.job, &run);
    if (status == FLIGHT_OK) {
        status = run_tell(&run, &options);
    }
    run_clear(&run);
    return status;
}
