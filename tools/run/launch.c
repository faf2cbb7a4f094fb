/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one rank. What goes wrong in the child comes back through a pipe that exec closes. */
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cores.h"
#include "nodes.h"
#include "run.h"

#define LAUNCH_OTHER_FILES 128 /* hsdp-run's own and inherited ones */

/* What failed in the child. */
struct child_failure {
    int error;
    bool is_program; /* exec failed, not what comes before it */
};

/* What an outer torchrun has set for hsdp-run: it does not hold for ranks that hsdp-run starts. */
static const char *const stale_variables[] = {
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
};

/* From a terminal in whose background hsdp-run runs, rank 0 would take what is meant for others. */
static bool stdin_is_ours(void)
{
    return !isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp();
}

int launch_init(struct launch *launch, const struct options *options, const char *path)
{
    rlim_t n_files = LAUNCH_OTHER_FILES;
    struct rlimit raised;

    *launch = (struct launch){.options = options, .path = path, .launcher = getpid()};
    launch->reads_stdin = stdin_is_ours();
    if (getrlimit(RLIMIT_NOFILE, &launch->files) != 0) {
        run_complain("cannot read the limit of open files: %s", strerror(errno));
        return RUN_EXIT_LAUNCHER;
    }
    n_files += (rlim_t)options->n_ranks * (options->prefix ? 2 : 0);
    n_files += (rlim_t)options->n_ranks * (options->log_dir != NULL ? 1 : 0);
    if (launch->files.rlim_cur >= n_files) {
        return 0;
    }
    raised = (struct rlimit){.rlim_cur = n_files, .rlim_max = launch->files.rlim_max};
    if (raised.rlim_max < n_files || setrlimit(RLIMIT_NOFILE, &raised) != 0) {
        run_complain("%d ranks with these options need %ju open files; the limit is %ju "
                     "(ulimit -Hn)",
                     options->n_ranks, (uintmax_t)n_files, (uintmax_t)launch->files.rlim_max);
        return RUN_EXIT_LAUNCHER;
    }
    return 0;
}

static int number_set(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", value);
    return setenv(name, text, 1);
}

/* Answers 0 or -1 with errno. */
static int environment_set(const struct launch *launch, int local_rank)
{
    const struct options *options = launch->options;
    int failed = 0;
    size_t s;
    int i;

    for (s = 0; s < sizeof(stale_variables) / sizeof(stale_variables[0]); s++) {
        failed |= unsetenv(stale_variables[s]);
    }
    failed |= number_set("RANK", options_first_rank(options) + local_rank);
    failed |= number_set("WORLD_SIZE", options_world_ranks(options));
    failed |= number_set("LOCAL_RANK", local_rank);
    failed |= number_set("LOCAL_WORLD_SIZE", options->n_ranks);
    failed |= number_set("GROUP_RANK", options->node_rank);
    failed |= number_set("HSDP_NODE_RANK", options->node_rank);
    failed |= number_set("GROUP_WORLD_SIZE", options->n_nodes);
    failed |= setenv("MASTER_ADDR", nodes_addr(options), 1);
    failed |= number_set("MASTER_PORT", launch->port);
    failed |= setenv(RUN_ID_VARIABLE, launch->run_id, 1);
    failed |= setenv(RUN_MARK_VARIABLE, launch->mark, 1);
    if (options->token_file != NULL) {
        failed |= setenv("HSDP_TOKEN_FILE", options->token_file, 1);
    }
    /* ranks share the cores: a pool of threads as large as the machine in each would thrash */
    failed |= setenv("OMP_NUM_THREADS", "1", 0);
    for (i = 0; i < options->n_variables; i++) {
        failed |= putenv(options->variables[i]);
    }
    return failed != 0 ? -1 : 0;
}

static int files_set(const struct launch *launch, int local_rank, const int fds[2])
{
    if (options_first_rank(launch->options) + local_rank > 0 || !launch->reads_stdin) {
        int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

        if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) {
            return -1;
        }
    }
    return dup2(fds[0], STDOUT_FILENO) < 0 || dup2(fds[1], STDERR_FILENO) < 0 ? -1 : 0;
}

/* Undoes what hsdp-run has changed for itself. */
static int process_restore(const struct launch *launch)
{
    if (sigaction(SIGCHLD, &launch->on_child, NULL) != 0 ||
        sigaction(SIGPIPE, &launch->on_broken_pipe, NULL) != 0 ||
        setrlimit(RLIMIT_NOFILE, &launch->files) != 0) {
        return -1;
    }
    return sigprocmask(SIG_SETMASK, &launch->mask, NULL);
}

/* The child, up to exec; comes back only when something failed. */
static struct child_failure child_run(const struct launch *launch, int local_rank, const int fds[2])
{
    struct child_failure failure = {.is_program = false};

    if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        failure.error = errno;
        return failure;
    }
    if (getppid() != launch->launcher) { /* it died before the kernel knew what to do then */
        _exit(RUN_EXIT_LAUNCHER);
    }
    if (files_set(launch, local_rank, fds) != 0 || environment_set(launch, local_rank) != 0 ||
        (launch->options->bind_cores && cores_bind(local_rank, launch->options->n_ranks) != 0) ||
        process_restore(launch) != 0) {
        failure.error = errno;
        return failure;
    }
    execv(launch->path, launch->options->program);
    failure.error = errno;
    failure.is_program = true;
    return failure;
}

static int failure_complain(const struct launch *launch, int rank,
                            const struct child_failure *failure)
{
    if (!failure->is_program) {
        run_complain("cannot start rank %d: %s", rank, strerror(failure->error));
        return RUN_EXIT_LAUNCHER;
    }
    run_complain("program '%s' cannot be run: %s%s", launch->path, strerror(failure->error),
                 failure->error == ENOEXEC  ? " (a script needs a first line such as #!/bin/sh)"
                 : failure->error == ENOENT ? " (the interpreter that it names is missing)"
                                            : "");
    return RUN_EXIT_NOT_EXECUTABLE;
}

int launch_rank(const struct launch *launch, int i, const int fds[2], pid_t *ret_pid)
{
    struct child_failure failure = {.is_program = false};
    int ends[2];
    int rank = options_first_rank(launch->options) + i;
    ssize_t n;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        failure.error = errno;
        return failure_complain(launch, rank, &failure);
    }
    pid = fork();
    if (pid == 0) {
        failure = child_run(launch, i, fds);
        n = write(ends[1], &failure, sizeof(failure));
        _exit(n == sizeof(failure) ? RUN_EXIT_NOT_EXECUTABLE : RUN_EXIT_LAUNCHER);
    }
    failure.error = errno;
    close(ends[1]);
    n = pid > 0 ? read(ends[0], &failure, sizeof(failure)) : -1;
    close(ends[0]);
    if (n == 0) { /* exec has closed the pipe */
        *ret_pid = pid;
        return 0;
    }
    if (pid > 0) {
        waitpid(pid, NULL, 0);
    }
    return failure_complain(launch, rank, &failure);
}
