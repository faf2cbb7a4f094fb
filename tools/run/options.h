/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line asks of hsdp-run. */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_MAX_RANKS 1024

struct options {
    int n_ranks;
    int64_t timeout_ns;  /* 0: none */
    int64_t grace_ns;    /* from SIGTERM to SIGKILL */
    const char *log_dir; /* NULL: none */
    char **variables;    /* n_variables texts KEY=VALUE, owned by argv */
    int n_variables;
    char **program; /* the program and its arguments, ends with NULL, owned by argv */
    bool prefix;
    bool bind_cores;
    bool keep_going;
    bool quiet;
};

/*
 * Reads the command line. Answers -1 when there is a program to run; otherwise everything has been
 * printed and the answer is hsdp-run's exit status: 0 after --help and --version, 2 for bad input.
 */
int options_parse(struct options *options, int argc, char **argv);

void options_fini(struct options *options);

#endif /* RUN_OPTIONS_H */
