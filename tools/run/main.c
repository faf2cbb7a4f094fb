/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp-run: starts the ranks of a job on this node, watches them and leaves nothing running. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper.h"
#include "launch.h"
#include "nodes.h"
#include "options.h"
#include "output.h"
#include "port.h"
#include "program.h"
#include "ranks.h"
#include "report.h"
#include "run.h"
#include "signals.h"
#include "supervise.h"
#include "sweep.h"

#define MAIN_MARK_BYTES 16

/* So that no descriptor of ours becomes 0, 1 or 2 of a rank. */
static void standard_files_open(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        close(fd);
    }
}

static int mark_make(char ret_mark[2 * MAIN_MARK_BYTES + 1])
{
    unsigned char bytes[MAIN_MARK_BYTES];
    int i;

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        run_complain("cannot get random bytes: %s", strerror(errno));
        return RUN_EXIT_LAUNCHER;
    }
    for (i = 0; i < MAIN_MARK_BYTES; i++) {
        snprintf(ret_mark + 2 * i, 3, "%02x", bytes[i]);
    }
    return 0;
}

/* A shell that had started children and then became hsdp-run by exec: they are none of our
 * business. */
static bool children_exist(void)
{
    siginfo_t ended;

    return waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static int ranks_launch(const struct launch *launch, struct output *output, struct ranks *ranks)
{
    int status = 0;
    int i;

    for (i = 0; i < launch->options->n_ranks && status == 0; i++) {
        int fds[2];
        pid_t pid;

        status = output_rank_files(output, i, fds);
        if (status != 0) {
            break;
        }
        status = launch_rank(launch, i, fds, &pid);
        if (status == 0) {
            ranks_started(ranks, i, pid);
        }
        output_rank_release(output, i, fds);
    }
    return status;
}

/* Everything between the first started and the last ended process. */
static int run_ranks(const struct launch *launch, struct output *output, int signal_fd)
{
    bool had_children = children_exist();
    struct supervisor supervisor;
    struct keeper keeper;
    struct ranks ranks;
    int status;

    status = keeper_start(&keeper, launch->mark);
    if (status != 0) {
        return status;
    }
    ranks_init(&ranks, launch->options->n_ranks, options_first_rank(launch->options));
    supervise_init(&supervisor, launch->options, &ranks, output, signal_fd);
    status = ranks_launch(launch, output, &ranks);
    if (status == 0) {
        supervise_ranks(&supervisor);
        status = supervise_exit_status(&supervisor);
    }
    keeper_stop(&keeper);
    if (!sweep_children(had_children ? launch->mark : NULL)) {
        output_say(output,
                   "some processes of the run do not die; look for %s=%s in their "
                   "environment",
                   RUN_MARK_VARIABLE, launch->mark);
    }
    report_table(&supervisor.report);
    supervise_output(&supervisor);
    supervise_fini(&supervisor);
    ranks_fini(&ranks);
    return output_report_lost(output) && status == 0 ? RUN_EXIT_LAUNCHER : status;
}

static int run_program(const struct options *options)
{
    char mark[2 * MAIN_MARK_BYTES + 1];
    char run_id[NODES_RUN_ID_BYTES];
    char path[PATH_MAX];
    struct launch launch;
    struct output output;
    int port_fd = -1;
    int status;

    status = program_find(options->program[0], path, sizeof(path));
    if (status == 0) {
        status = launch_init(&launch, options, path);
    }
    if (status == 0) {
        status = mark_make(mark);
    }
    launch.port = options->master_port;
    if (status == 0 && launch.port == 0) {
        status = port_reserve(&port_fd, &launch.port);
    }
    if (status != 0) {
        return status;
    }
    nodes_run_id_write(options, launch.port, mark, run_id);
    launch.run_id = run_id;
    launch.mark = mark;
    status = output_init(&output, options);
    if (status == 0) {
        int signal_fd = signals_open(&launch);

        status = signal_fd >= 0 ? run_ranks(&launch, &output, signal_fd) : RUN_EXIT_LAUNCHER;
        close(signal_fd);
    }
    output_fini(&output);
    if (port_fd >= 0) {
        close(port_fd);
    }
    return status;
}

int main(int argc, char **argv)
{
    struct options options;
    int status;

    standard_files_open();
    status = options_parse(&options, argc, argv);
    if (status < 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans of the ranks come to us */
        status = run_program(&options);
    }
    options_fini(&options);
    return status;
}
