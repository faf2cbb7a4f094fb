/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp-gpt: a host that trains a small GPT with a sharding plugin. Options, and how it ends. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "fault.h"
#include "help.h"
#include "trainer.h"

#ifndef GPT_VERSION
#define GPT_VERSION "unknown"
#endif

enum option_code { OPTION_CONFIG = 256, OPTION_SET, OPTION_LOG_JSON };

static const struct option option_table[] = {
    {"config", required_argument, NULL, OPTION_CONFIG},
    {"set", required_argument, NULL, OPTION_SET},
    {"log-json", required_argument, NULL, OPTION_LOG_JSON},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* Who this process is, as the launcher says; 0 of 1 where there is none. */
struct launch {
    unsigned long rank;
    unsigned long world_ranks;
};

static int number_of(const char *name, unsigned long *ret_number)
{
    const char *text = getenv(name);

    if (text == NULL || text[0] == '\0' || strlen(text) > 9 ||
        text[strspn(text, "0123456789")] != '\0') {
        return 0;
    }
    *ret_number = strtoul(text, NULL, 10);
    return 1;
}

/* The first complete and sane pair of the known launchers. */
static struct launch launch_read(void)
{
    static const char *const names[][2] = {{"RANK", "WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"SLURM_PROCID", "SLURM_NTASKS"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct launch launch;

        if (number_of(names[i][0], &launch.rank) && number_of(names[i][1], &launch.world_ranks) &&
            launch.rank < launch.world_ranks) {
            return launch;
        }
    }
    return (struct launch){0, 1};
}

/* All ranks share arguments and configuration, so rank 0 speaks for all about those. */
static void fault_print(int kind, const struct fault *fault)
{
    const struct launch launch = launch_read();

    if (kind == FAULT_CONFIG && launch.rank != 0) {
        return;
    }
    fflush(stdout);
    if (launch.world_ranks > 1) {
        fprintf(stderr, "hsdp-gpt: rank %lu: %s\n", launch.rank, fault->text);
    } else {
        fprintf(stderr, "hsdp-gpt: %s\n", fault->text);
    }
}

/* What the command line asks for, beside the configuration. */
struct request {
    const char *config_path;
    const char *log_path;
    const char **overrides; /* argc entries */
    int n_overrides;
    int is_help;
    int is_version;
};

static int option_wrong(char **argv, int option, struct fault *ret_fault)
{
    const char *text = argv[optind - 1];

    return fault_set(ret_fault, FAULT_CONFIG, "option \"%.64s\" %s; --help lists what is", text,
                     option == ':' ? "lacks its value" : "is not allowed");
}

static int request_read(struct request *request, int argc, char **argv, struct fault *ret_fault)
{
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":hV", option_table, NULL)) != -1) {
        switch (option) {
        case OPTION_CONFIG:
            request->config_path = optarg;
            break;
        case OPTION_SET:
            request->overrides[request->n_overrides++] = optarg;
            break;
        case OPTION_LOG_JSON:
            request->log_path = optarg;
            break;
        case 'h':
            request->is_help = 1;
            break;
        case 'V':
            request->is_version = 1;
            break;
        default:
            return option_wrong(argv, option, ret_fault);
        }
    }
    if (optind < argc) {
        return fault_set(ret_fault, FAULT_CONFIG,
                         "argument \"%.64s\" is not allowed; --help lists "
                         "what is",
                         argv[optind]);
    }
    return 0;
}

/* File first, then the overrides. */
static int config_read(struct config *config, const struct request *request,
                       struct fault *ret_fault)
{
    int status = 0;

    config_init(config);
    if (request->config_path != NULL) {
        status = config_load(config, request->config_path, ret_fault);
    }
    for (int i = 0; i < request->n_overrides && status == 0; i++) {
        status = config_override(config, request->overrides[i], ret_fault);
    }
    return status == 0 ? config_finish(config, ret_fault) : status;
}

static int request_run(const struct request *request, struct config *config,
                       struct fault *ret_fault)
{
    int status;

    if (request->is_help) {
        help_print();
        return 0;
    }
    if (request->is_version) {
        puts("hsdp-gpt (libhsdp) " GPT_VERSION);
        return 0;
    }
    status = config_read(config, request, ret_fault);
    return status == 0 ? trainer_run(config, request->log_path, ret_fault) : status;
}

int main(int argc, char **argv)
{
    struct request request = {.overrides = calloc((size_t)argc + 1, sizeof(char *))};
    struct config *config = calloc(1, sizeof(*config));
    struct fault fault;
    int status;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (request.overrides == NULL || config == NULL) {
        status = fault_set(&fault, FAULT_RUN, "no memory to start");
    } else {
        status = request_read(&request, argc, argv, &fault);
    }
    if (status == 0) {
        status = request_run(&request, config, &fault);
    }
    if (status == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        status = fault_set(&fault, FAULT_RUN, "the output cannot be written");
    }
    if (status != 0) {
        fault_print(status, &fault);
    }
    free(request.overrides);
    free(config);
    return fault_exit_status(status);
}
