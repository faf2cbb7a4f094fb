/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp-info: what plugins are, what they can do here, and what can be set. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hsdp/abi.h"
#include "page.h"
#include "print.h"
#include "report.h"

/* Exit statuses. */
enum { INFO_OK, INFO_FAULT, INFO_USAGE };

static const char help_text[] =
    "Usage: hsdp-info [OPTION...] [PLUGIN...]\n"
    "Tells what a plugin is and what it can do on this machine: versions, strategies,\n"
    "transports and the libraries that they need, extensions, and every setting with what\n"
    "the environment sets of it. Without PLUGIN it is the one that a program would load:\n"
    "HSDP_PLUGIN, then hsdp.so in the folders of HSDP_PLUGIN_PATH, then the installed one.\n"
    "\n"
    "      --json             print the same as JSON\n"
    "      --timeout=SECONDS  how long a plugin or a library may take, 1 to 3600 (default: 10)\n"
    "  -h, --help             print this text and exit\n"
    "  -V, --version          print the version and exit\n"
    "\n"
    "Plugins and libraries are loaded in processes of their own: one that crashes or hangs\n"
    "is told about, and harms nothing. No GPU is needed.\n"
    "\n"
    "Exit status: 0 when all plugins were described, 1 when one cannot be loaded or does not\n"
    "keep the rules of the ABI, each with a line on standard error, 2 bad options.\n";

enum { OPTION_JSON = 256, OPTION_TIMEOUT };

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPTION_JSON},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

struct options {
    int64_t timeout_ms;
    bool is_json;
    bool is_done; /* help or version have been printed */
};

static int usage_complain(const char *what, const char *value)
{
    fprintf(stderr, "hsdp-info: %s%s; hsdp-info --help tells more\n", what, value);
    return INFO_USAGE;
}

static int timeout_parse(const char *text, struct options *ret)
{
    char *end = NULL;
    long seconds = strtol(text, &end, 10);

    if (end == text || *end != '\0' || seconds < 1 || seconds > 3600) {
        return usage_complain("--timeout wants whole seconds from 1 to 3600, not ", text);
    }
    ret->timeout_ms = seconds * 1000;
    return INFO_OK;
}

/* What getopt_long has refused; answer is what it said. */
static int option_refuse(int answer, char **argv)
{
    const char *word = argv[optind - 1];
    char letter[3] = {'-', (char)optopt, '\0'};

    if (answer == ':') {
        return usage_complain("a value is missing behind ", word);
    }
    if (optopt == 0) {
        return usage_complain("there is no option ", word);
    }
    if (optopt < OPTION_JSON && strchr("hV", optopt) == NULL) {
        return usage_complain("there is no option ", letter);
    }
    return usage_complain("no value belongs to ", word);
}

static int options_parse(int argc, char **argv, struct options *ret)
{
    int status = INFO_OK;
    int option;

    opterr = 0; /* complaints are ours */
    while (status == INFO_OK &&
           (option = getopt_long(argc, argv, ":hV", long_options, NULL)) != -1) {
        switch (option) {
        case OPTION_JSON:
            ret->is_json = true;
            break;
        case OPTION_TIMEOUT:
            status = timeout_parse(optarg, ret);
            break;
        case 'h':
            fputs(help_text, stdout);
            ret->is_done = true;
            return INFO_OK;
        case 'V':
            printf("hsdp-info (libhsdp) " PACKAGE_VERSION ", ABI %u.%u\n", HSDP_ABI_MAJOR,
                   HSDP_ABI_MINOR);
            ret->is_done = true;
            return INFO_OK;
        default:
            return option_refuse(option, argv);
        }
    }
    return status;
}

static int faults_print(const json_t *report)
{
    const json_t *faults = json_object_get(report, "faults");

    fflush(stdout);
    for (size_t i = 0; i < json_array_size(faults); i++) {
        char text[4096];

        snprintf(text, sizeof(text), "%s", json_string_value(json_array_get(faults, i)));
        for (char *c = text; *c != '\0'; c++) {
            *c = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;
        }
        fprintf(stderr, "hsdp-info: %s\n", text);
    }
    return json_array_size(faults) == 0 ? INFO_OK : INFO_FAULT;
}

/* Prints text at once, plugin by plugin; JSON is collected. */
static int plugin_tell(const char *plugin, const struct options *options, json_t *plugins)
{
    json_t *report = report_make(plugin, options->timeout_ms);
    int status;

    if (!options->is_json) {
        struct page page;

        page_init(&page);
        report_print(&page, report);
    }
    status = faults_print(report);
    json_array_append_new(plugins, report);
    return status;
}

static int json_print(json_t *plugins)
{
    json_t *all =
        json_pack("{s:s, s:i, s:i, s:O}", "version", PACKAGE_VERSION, "abi_major",
                  (int)HSDP_ABI_MAJOR, "abi_minor", (int)HSDP_ABI_MINOR, "plugins", plugins);
    int status = json_dumpf(all, stdout, JSON_INDENT(2)) == 0 ? INFO_OK : INFO_FAULT;

    printf("\n");
    json_decref(all);
    return status;
}

int main(int argc, char **argv)
{
    struct options options = {.timeout_ms = 10000};
    int status = options_parse(argc, argv, &options);
    json_t *plugins;

    if (status != INFO_OK || options.is_done) {
        return status;
    }
    plugins = json_array();
    if (!options.is_json) {
        printf("hsdp-info " PACKAGE_VERSION ", for ABI %u.%u\n", HSDP_ABI_MAJOR, HSDP_ABI_MINOR);
    }
    if (optind == argc) {
        status = plugin_tell(NULL, &options, plugins);
    }
    for (int i = optind; i < argc; i++) {
        int one = plugin_tell(argv[i], &options, plugins);

        status = status == INFO_OK ? one : status;
    }
    if (options.is_json && json_print(plugins) != INFO_OK) {
        status = INFO_FAULT;
    }
    json_decref(plugins);
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        fprintf(stderr, "hsdp-info: cannot write all of the output\n");
        status = INFO_FAULT;
    }
    return status;
}
