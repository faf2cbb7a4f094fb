/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one rank: its environment, descriptors, session and program. */
#ifndef RUN_LAUNCH_H
#define RUN_LAUNCH_H

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "options.h"

struct launch {
    const struct options *options;
    const char *path; /* of the program */
    const char *run_id;
    const char *mark;
    int port;
    pid_t launcher;
    bool reads_stdin; /* rank 0 inherits standard input */
    /* how hsdp-run found these, and how the ranks shall find them */
    sigset_t mask;
    struct sigaction on_child;
    struct sigaction on_broken_pipe;
    struct rlimit files;
};

/* Raises the limit of open files to what the options need. Answers 0 or hsdp-run's exit status. */
int launch_init(struct launch *launch, const struct options *options, const char *path);

/*
 * Starts the i-th rank of this node with fds as standard output and error and waits until its
 * program is in place. Answers 0, or complains and answers hsdp-run's exit status; then nothing is
 * left of it.
 */
int launch_rank(const struct launch *launch, int i, const int fds[2], pid_t *ret_pid);

#endif /* RUN_LAUNCH_H */
