/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of hsdp-conform: parsing, refusals, help. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chapters.h"
#include "conform.h"

static const char help_text[] =
    "Usage: hsdp-conform --plugin=FILE [OPTION...]\n"
    "Checks a plugin against what the headers of the hsdp ABI promise, and prints a table of\n"
    "what was kept and what was not.\n"
    "\n"
    "  -p, --plugin=FILE   the shared object to check\n"
    "  -n, --ranks=N       how many ranks play where a check leaves it open, 1 to 16\n"
    "                      (default: 4)\n"
    "  -s, --seed=N        of everything that is drawn at random (default: from the clock;\n"
    "                      it is always printed, and the same seed draws the same)\n"
    "  -c, --chapter=NAME  run this chapter only; may be given several times\n"
    "  -k, --check=TEXT    run only checks with TEXT in their names; likewise\n"
    "  -j, --jobs=N        how many checks may run at a time, 1 to 64 (default: two for each\n"
    "                      processor, since many wait; at most 16)\n"
    "  -t, --limit=SECONDS end each check after so long, 1 to 3600 (default: the check's own\n"
    "                      limit, mostly 20 seconds)\n"
    "  -d, --device=NAME   where jobs are: cpu, or cuda with a device for each rank (default: "
    "cpu)\n"
    "  -S, --set=KEY=VALUE a setting of every job or plan that leaves it open, by the "
    "environment;\n"
    "                      may be given several times\n"
    "  -l, --list          print the names of chapters and checks, and run none\n"
    "      --tap           print the Test Anything Protocol instead of the table\n"
    "      --json          print one JSON object instead of the table\n"
    "  -h, --help          print this text and exit\n"
    "  -V, --version       print the version and exit\n"
    "\n"
    "Each check runs in processes of its own, one for each rank, and is ended at a limit of\n"
    "time; so a plugin that crashes or hangs fails a check, and the others run on. Under each\n"
    "failure stands the command that repeats it alone.\n"
    "\n"
    "Exit status: 0 when no check failed, 1 when one did, 2 when there is nothing to check\n"
    "with: bad options, or a file that the loader does not take for a plugin.\n";

enum { OPTION_TAP = 256, OPTION_JSON };

static const struct option long_options[] = {
    {"plugin", required_argument, NULL, 'p'},
    {"ranks", required_argument, NULL, 'n'},
    {"seed", required_argument, NULL, 's'},
    {"chapter", required_argument, NULL, 'c'},
    {"check", required_argument, NULL, 'k'},
    {"jobs", required_argument, NULL, 'j'},
    {"limit", required_argument, NULL, 't'},
    {"device", required_argument, NULL, 'd'},
    {"set", required_argument, NULL, 'S'},
    {"list", no_argument, NULL, 'l'},
    {"tap", no_argument, NULL, OPTION_TAP},
    {"json", no_argument, NULL, OPTION_JSON},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

void options_complain(const char *format, ...)
{
    va_list args;

    fputs("hsdp-conform: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static int number_parse(const char *name, const char *text, uint64_t least, uint64_t most,
                        uint64_t *ret)
{
    char *end = NULL;
    uint64_t number = 0;

    errno = 0;
    if (text[0] >= '0' && text[0] <= '9') {
        number = strtoull(text, &end, 10);
    }
    if (end == NULL || *end != '\0' || errno != 0 || number < least || number > most) {
        options_complain("--%s is '%s'; allowed is a number from %" PRIu64 " to %" PRIu64, name,
                         text, least, most);
        return CONFORM_EXIT_UNABLE;
    }
    *ret = number;
    return -1;
}

static int small_number_parse(const char *name, uint64_t most, uint32_t *ret)
{
    uint64_t number = 0;
    int status = number_parse(name, optarg, 1, most, &number);

    if (status < 0) {
        *ret = (uint32_t)number;
    }
    return status;
}

static int limit_parse(uint32_t *ret_ms)
{
    uint32_t seconds = 0;
    int status = small_number_parse("limit", OPTIONS_MAX_SECONDS, &seconds);

    *ret_ms = seconds * 1000u;
    return status;
}

static int filter_add(const char *name, const char **filters, uint32_t *n_filters)
{
    if (*n_filters == OPTIONS_MAX_FILTERS) {
        options_complain("--%s is given more than %u times", name, OPTIONS_MAX_FILTERS);
        return CONFORM_EXIT_UNABLE;
    }
    if (optarg[0] == '\0') {
        options_complain("--%s is empty; 'hsdp-conform --list' prints all names", name);
        return CONFORM_EXIT_UNABLE;
    }
    filters[(*n_filters)++] = optarg;
    return -1;
}

static int chapter_add(struct options *options)
{
    char names[512] = "";
    size_t n_bytes = 0;

    for (uint32_t i = 0; i < chapters_n; i++) {
        if (strcmp(chapters_all[i]->name, optarg) == 0) {
            return filter_add("chapter", options->chapters, &options->n_chapters);
        }
        n_bytes += (size_t)snprintf(names + n_bytes, sizeof(names) - n_bytes, "%s%s",
                                    i == 0 ? "" : ", ", chapters_all[i]->name);
    }
    options_complain("--chapter is '%s'; allowed is one of %s", optarg, names);
    return CONFORM_EXIT_UNABLE;
}

static int device_set(struct options *options)
{
    options->is_cuda = strcmp(optarg, "cuda") == 0;
    if (!options->is_cuda && strcmp(optarg, "cpu") != 0) {
        options_complain("--device is '%s'; allowed is one of cpu, cuda", optarg);
        return CONFORM_EXIT_UNABLE;
    }
    return -1;
}

static int setting_add(struct options *options)
{
    const size_t n_bytes = strspn(optarg, "abcdefghijklmnopqrstuvwxyz0123456789_");

    if (n_bytes == 0 || optarg[n_bytes] != '=') {
        options_complain("--set is '%s'; allowed is KEY=VALUE, with a key like backend", optarg);
        return CONFORM_EXIT_UNABLE;
    }
    if (options->n_settings == OPTIONS_MAX_SETTINGS) {
        options_complain("--set is given more than %u times", OPTIONS_MAX_SETTINGS);
        return CONFORM_EXIT_UNABLE;
    }
    options->settings[options->n_settings++] = optarg;
    return -1;
}

static int format_set(struct options *options, enum options_format format)
{
    if (options->format != OPTIONS_TABLE && options->format != format) {
        options_complain("--tap and --json exclude each other");
        return CONFORM_EXIT_UNABLE;
    }
    options->format = format;
    return -1;
}

/* A full disk or a closed pipe must not look like a printed text. */
static int text_print(const char *text)
{
    fputs(text, stdout);
    if (ferror(stdout) || fflush(stdout) != 0) {
        options_complain("cannot write to standard output: %s", strerror(errno));
        return CONFORM_EXIT_UNABLE;
    }
    return CONFORM_EXIT_PASSED;
}

/* getopt has consumed the word that it does not understand. */
static int unknown_complain(int answer, char **argv)
{
    const char *word = argv[optind - 1];

    if (answer == ':') {
        options_complain("option '%s' needs a value; 'hsdp-conform --help' says which", word);
    } else if (optopt == 0) {
        options_complain("there is no option '%s'; 'hsdp-conform --help' lists those allowed",
                         word);
    } else if (optopt < OPTION_TAP && strchr("lhV", optopt) == NULL) {
        options_complain("there is no option '-%c'; 'hsdp-conform --help' lists those allowed",
                         optopt);
    } else {
        options_complain("option '%s' takes no value; 'hsdp-conform --help' lists what is allowed",
                         word);
    }
    return CONFORM_EXIT_UNABLE;
}

/* Answers as options_parse does; -1 goes on with the next option. */
static int option_apply(struct options *options, int option, char **argv)
{
    switch (option) {
    case 'p':
        options->plugin_path = optarg;
        return -1;
    case 'n':
        return small_number_parse("ranks", CONFORM_MAX_RANKS, &options->n_ranks);
    case 's':
        return number_parse("seed", optarg, 0, INT64_MAX, &options->seed);
    case 'c':
        return chapter_add(options);
    case 'k':
        return filter_add("check", options->checks, &options->n_checks);
    case 'j':
        return small_number_parse("jobs", OPTIONS_MAX_JOBS, &options->n_jobs);
    case 't':
        return limit_parse(&options->limit_ms);
    case 'd':
        return device_set(options);
    case 'S':
        return setting_add(options);
    case 'l':
        options->is_listing = true;
        return -1;
    case OPTION_TAP:
        return format_set(options, OPTIONS_TAP);
    case OPTION_JSON:
        return format_set(options, OPTIONS_JSON);
    case 'h':
        return text_print(help_text);
    case 'V':
        return text_print("hsdp-conform (libhsdp) " PACKAGE_VERSION "\n");
    default:
        return unknown_complain(option, argv);
    }
}

static uint64_t clock_seed(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u) % UINT32_MAX;
}

static uint32_t own_jobs(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    if (n < 1) {
        return 1;
    }
    return n > (long)OPTIONS_OWN_JOBS / 2 ? OPTIONS_OWN_JOBS : 2 * (uint32_t)n;
}

int options_parse(struct options *ret, int argc, char **argv)
{
    int option;

    *ret = (struct options){.n_ranks = 4, .n_jobs = own_jobs(), .seed = clock_seed()};
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":p:n:s:c:k:j:t:d:S:lhV", long_options, NULL)) != -1) {
        int status = option_apply(ret, option, argv);

        if (status >= 0) {
            return status;
        }
    }
    if (optind < argc) {
        options_complain("'%s' is no option; the file to check is named by --plugin", argv[optind]);
        return CONFORM_EXIT_UNABLE;
    }
    if (ret->is_listing) {
        return -1;
    }
    if (ret->plugin_path == NULL || ret->plugin_path[0] == '\0') {
        options_complain("no plugin is named; usage: hsdp-conform --plugin=FILE [OPTION...]");
        return CONFORM_EXIT_UNABLE;
    }
    return -1;
}
