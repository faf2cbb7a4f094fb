/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of hsdp-run: parsing, refusals, help. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nodes.h"
#include "run.h"
#include "token.h"

#define OPTIONS_MAX_SECONDS 31536000 /* a year */

static const char help_text[] =
    "Usage: hsdp-run [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
    "Starts PROGRAM as several ranks on this host, watches them and leaves nothing running.\n"
    "On several nodes hsdp-run is started on each, with the same options but --node-rank.\n"
    "\n"
    "  -n, --ranks=N          how many ranks to start, 1 to 1024 (default: 1); -np N is the same\n"
    "      --nnodes=N         on how many nodes hsdp-run is started (default: 1); with more:\n"
    "      --node-rank=I      which of them this is, 0 to N - 1; node 0 has rank 0\n"
    "      --master-addr=HOST the host of node 0, by a name or address that all nodes reach\n"
    "      --master-port=PORT a port that is free there\n"
    "      --run-id=ID        tells runs at one address and port apart; equal on all nodes\n"
    "      --token-file=FILE  the secret that ranks of several hosts prove to know\n"
    "      --make-token=FILE  write such a secret, 32 random bytes, to a new file and exit\n"
    "      --prefix           begin each line of output with \"[RANK] \" and keep lines whole\n"
    "      --log-dir=DIR      write the output of each rank to DIR/rank-N.log instead;\n"
    "                         with --prefix: as well\n"
    "  -x, --env=KEY=VALUE    set a variable for every rank; may be given many times\n"
    "      --bind-cores       give each rank its own share of the cores\n"
    "      --timeout=SECONDS  kill everything and exit with 124 when the run takes longer\n"
    "      --grace=SECONDS    from SIGTERM to SIGKILL when ending a failed run (default: 5)\n"
    "      --keep-going       let the other ranks run on when one has failed\n"
    "  -q, --quiet            print nothing but the output of the ranks\n"
    "  -h, --help             print this text and exit\n"
    "  -V, --version          print the version and exit\n"
    "\n"
    "Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK,\n"
    "GROUP_WORLD_SIZE, HSDP_NODE_RANK, MASTER_ADDR, MASTER_PORT (if not given: free on this\n"
    "host, another for each run), HSDP_RUN_ID (random; of several nodes: address, port and\n"
    "--run-id), HSDP_RUN_MARK (random), with --token-file HSDP_TOKEN_FILE and, where it is not\n"
    "set already, OMP_NUM_THREADS=1.\n"
    "Standard input goes to rank 0, the others read end of file.\n"
    "\n"
    "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP and SIGCONT go on to all\n"
    "ranks and what they started; a second SIGINT kills them. When a rank fails, the others\n"
    "have 2 seconds (at most the grace time) to fail by themselves and to say why; then\n"
    "they get SIGTERM and, after the grace time, SIGKILL. Only the ranks of this node do;\n"
    "those of other nodes fail by themselves, and their hsdp-run ends them.\n"
    "\n"
    "Exit status: 0 when all ranks ended with 0; otherwise that of the rank that failed\n"
    "first, 128 + N when signal N killed it; 2 bad options, 124 timeout, 125 hsdp-run\n"
    "itself failed, 126 PROGRAM cannot be run, 127 PROGRAM not found, 130 second SIGINT.\n";

enum {
    OPTION_PREFIX = 256,
    OPTION_LOG_DIR,
    OPTION_BIND_CORES,
    OPTION_TIMEOUT,
    OPTION_GRACE,
    OPTION_KEEP_GOING,
    OPTION_N_NODES,
    OPTION_NODE_RANK,
    OPTION_MASTER_ADDR,
    OPTION_MASTER_PORT,
    OPTION_RUN_ID,
    OPTION_TOKEN_FILE,
    OPTION_MAKE_TOKEN
};

static const struct option long_options[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"nnodes", required_argument, NULL, OPTION_N_NODES},
    {"node-rank", required_argument, NULL, OPTION_NODE_RANK},
    {"master-addr", required_argument, NULL, OPTION_MASTER_ADDR},
    {"master-port", required_argument, NULL, OPTION_MASTER_PORT},
    {"run-id", required_argument, NULL, OPTION_RUN_ID},
    {"token-file", required_argument, NULL, OPTION_TOKEN_FILE},
    {"make-token", required_argument, NULL, OPTION_MAKE_TOKEN},
    {"prefix", no_argument, NULL, OPTION_PREFIX},
    {"log-dir", required_argument, NULL, OPTION_LOG_DIR},
    {"env", required_argument, NULL, 'x'},
    {"bind-cores", no_argument, NULL, OPTION_BIND_CORES},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"grace", required_argument, NULL, OPTION_GRACE},
    {"keep-going", no_argument, NULL, OPTION_KEEP_GOING},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {NULL, 0, NULL, 0},
};

/* Variables that tell the ranks apart and find them: with another value nothing would work. */
static const char *const fixed_variables[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "HSDP_NODE_RANK",
    RUN_ID_VARIABLE,
    RUN_MARK_VARIABLE,
};

static int seconds_parse(int64_t *ret_ns, const char *name, const char *text, int64_t least_ns)
{
    char *end = NULL;
    double seconds = -1.0;

    if (text[0] != '\0' && strspn(text, "0123456789.") == strlen(text)) {
        seconds = strtod(text, &end);
    }
    if (end == NULL || *end != '\0' || seconds > OPTIONS_MAX_SECONDS ||
        seconds * (double)RUN_NS_PER_S < (double)least_ns) {
        run_complain("--%s is '%s'; allowed is a number of seconds from %g to %d", name, text,
                     (double)least_ns / (double)RUN_NS_PER_S, OPTIONS_MAX_SECONDS);
        return RUN_EXIT_USAGE;
    }
    *ret_ns = (int64_t)(seconds * (double)RUN_NS_PER_S);
    return -1;
}

static int variable_add(struct options *options, char *text)
{
    const char *equals = strchr(text, '=');
    size_t i;

    if (equals == NULL || equals == text) {
        run_complain("--env is '%s'; allowed is KEY=VALUE", text);
        return RUN_EXIT_USAGE;
    }
    for (i = 0; i < sizeof(fixed_variables) / sizeof(fixed_variables[0]); i++) {
        if (strlen(fixed_variables[i]) == (size_t)(equals - text) &&
            strncmp(text, fixed_variables[i], (size_t)(equals - text)) == 0) {
            run_complain("--env is '%s'; %s is set by hsdp-run itself, any other variable is "
                         "allowed",
                         text, fixed_variables[i]);
            return RUN_EXIT_USAGE;
        }
    }
    options->variables = run_realloc(options->variables, ((size_t)options->n_variables + 1) *
                                                             sizeof(options->variables[0]));
    options->variables[options->n_variables] = text;
    options->n_variables++;
    return -1;
}

static int log_dir_set(struct options *options, const char *text)
{
    if (text[0] == '\0') {
        run_complain("--log-dir is empty; allowed is the name of a directory");
        return RUN_EXIT_USAGE;
    }
    options->log_dir = text;
    return -1;
}

/* getopt has consumed the word that it does not understand. */
static int unknown_complain(int answer, char **argv)
{
    const char *word = argv[optind - 1];

    if (answer == ':') {
        run_complain("option '%s' needs a value; 'hsdp-run --help' says which", word);
    } else if (optopt == 0) {
        run_complain("there is no option '%s'; 'hsdp-run --help' lists those allowed", word);
    } else if (optopt < OPTION_PREFIX && strchr("nxqhV", optopt) == NULL) {
        run_complain("there is no option '-%c'; 'hsdp-run --help' lists those allowed", optopt);
    } else {
        run_complain("option '%s' takes no value; 'hsdp-run --help' lists what is allowed", word);
    }
    return RUN_EXIT_USAGE;
}

/* mpirun's -np N: getopt takes the 'p' for the value of -n. */
static int ranks_take(struct options *options, char **argv)
{
    if (strcmp(argv[optind - 1], "-np") != 0) {
        return nodes_number_parse("ranks", optarg, 1, OPTIONS_MAX_RANKS, &options->n_ranks);
    }
    if (argv[optind] == NULL) {
        return unknown_complain(':', argv);
    }
    return nodes_number_parse("ranks", argv[optind++], 1, OPTIONS_MAX_RANKS, &options->n_ranks);
}

/* Options without a value, and what is none. */
static int flag_apply(struct options *options, int option, char **argv)
{
    switch (option) {
    case OPTION_PREFIX:
        options->prefix = true;
        return -1;
    case OPTION_BIND_CORES:
        options->bind_cores = true;
        return -1;
    case OPTION_KEEP_GOING:
        options->keep_going = true;
        return -1;
    case 'q':
        options->quiet = true;
        return -1;
    case 'h':
        fputs(help_text, stdout);
        return 0;
    case 'V':
        puts("hsdp-run (libhsdp) " PACKAGE_VERSION);
        return 0;
    default:
        return unknown_complain(option, argv);
    }
}

/* Answers as options_parse does; -1 goes on with the next option. */
static int option_apply(struct options *options, int option, char **argv)
{
    switch (option) {
    case 'n':
        return ranks_take(options, argv);
    case 'x':
        return variable_add(options, optarg);
    case OPTION_LOG_DIR:
        return log_dir_set(options, optarg);
    case OPTION_TIMEOUT:
        return seconds_parse(&options->timeout_ns, "timeout", optarg, RUN_NS_PER_S / 1000);
    case OPTION_GRACE:
        return seconds_parse(&options->grace_ns, "grace", optarg, 0);
    case OPTION_N_NODES:
        return nodes_number_parse("nnodes", optarg, 1, OPTIONS_MAX_NODES, &options->n_nodes);
    case OPTION_NODE_RANK:
        return nodes_number_parse("node-rank", optarg, 0, OPTIONS_MAX_NODES - 1,
                                  &options->node_rank);
    case OPTION_MASTER_PORT:
        return nodes_number_parse("master-port", optarg, 1, 65535, &options->master_port);
    case OPTION_MASTER_ADDR:
        return nodes_addr_take(options, optarg);
    case OPTION_RUN_ID:
        return nodes_run_id_take(options, optarg);
    case OPTION_TOKEN_FILE:
        free(options->token_file);
        options->token_file = NULL;
        return token_find(optarg, &options->token_file);
    case OPTION_MAKE_TOKEN:
        return token_make(optarg);
    default:
        return flag_apply(options, option, argv);
    }
}

/* A full disk or a closed pipe must not look like a printed text. */
static int output_close(int status)
{
    if (status == 0 && (ferror(stdout) || fclose(stdout) != 0)) {
        run_complain("cannot write to standard output: %s", strerror(errno));
        return RUN_EXIT_LAUNCHER;
    }
    return status;
}

int options_parse(struct options *options, int argc, char **argv)
{
    int option;
    int status;

    *options =
        (struct options){.n_ranks = 1, .n_nodes = 1, .node_rank = -1, .grace_ns = 5 * RUN_NS_PER_S};
    opterr = 0;
    /* '+': the first word that is no option is the program; ':': missing values are told apart */
    while ((option = getopt_long(argc, argv, "+:n:x:qhV", long_options, NULL)) != -1) {
        status = option_apply(options, option, argv);
        if (status >= 0) {
            return output_close(status);
        }
    }
    if (optind >= argc) {
        run_complain("no program is given; usage: hsdp-run [OPTION...] [--] PROGRAM "
                     "[ARGUMENT...]");
        return RUN_EXIT_USAGE;
    }
    options->program = argv + optind;
    return nodes_check(options);
}

int options_first_rank(const struct options *options)
{
    return options->node_rank * options->n_ranks;
}

int options_world_ranks(const struct options *options)
{
    return options->n_nodes * options->n_ranks;
}

void options_fini(struct options *options)
{
    free(options->token_file);
    options->token_file = NULL;
    free(options->variables);
    options->variables = NULL;
}
