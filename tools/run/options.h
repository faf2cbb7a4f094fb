/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line asks of hsdp-run. */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_MAX_RANKS 1024
#define OPTIONS_MAX_NODES 65536

struct options {
    int n_ranks; /* on this node, and on every other one */
    int n_nodes;
    int node_rank;
    const char *master_addr; /* NULL: this host */
    int master_port;         /* 0: one that is free on this host */
    const char *run_id;      /* NULL: none is given */
    char *token_file;        /* its absolute name, owned; NULL: none */
    char node_text[24];      /* " of node 3", for sentences; "" where there is one node */
    int64_t timeout_ns;      /* 0: none */
    int64_t grace_ns;        /* from SIGTERM to SIGKILL */
    const char *log_dir;     /* NULL: none */
    char **variables;        /* n_variables texts KEY=VALUE, owned by argv */
    int n_variables;
    char **program; /* the program and its arguments, ends with NULL, owned by argv */
    bool prefix;
    bool bind_cores;
    bool keep_going;
    bool quiet;
};

/* The rank of the first process on this node, and the ranks on all nodes. */
int options_first_rank(const struct options *options);
int options_world_ranks(const struct options *options);

/*
 * Reads the command line. Answers -1 when there is a program to run; otherwise everything has been
 * printed and the answer is hsdp-run's exit status: 0 after --help, --version and --make-token, 2
 * for bad input.
 */
int options_parse(struct options *options, int argc, char **argv);

void options_fini(struct options *options);

#endif /* RUN_OPTIONS_H */
