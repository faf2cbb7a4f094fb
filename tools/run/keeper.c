/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When hsdp-run is killed with SIGKILL, the kernel kills the ranks (their parent death signal), but
 * not what the ranks have started, such as the program behind a wrapper script. The keeper waits
 * for that moment and kills all that carry the run's mark in their environment.
 */
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run.h"
#include "sweep.h"

#define KEEPER_N_SWEEPS 500 /* 5 s at most; more than one is needed only while processes fork */

#ifndef SYS_close_range
#define SYS_close_range 436 /* the same number on every architecture */
#endif

/* Holds none of hsdp-run's descriptors open, so that who reads its output sees the end of it. */
static void files_leave(int fd)
{
    int nothing = open("/dev/null", O_RDWR);
    int i;

    for (i = 0; i <= 2; i++) {
        dup2(nothing, i);
    }
    dup2(fd, 3);
    syscall(SYS_close_range, 4, UINT_MAX, 0);
}

/* The mark of an hsdp-run around this one must not make its keeper kill ours before our ranks. */
static void outer_mark_hide(void)
{
    char *outer = getenv(RUN_MARK_VARIABLE);

    if (outer != NULL) {
        memset(outer, '-', strlen(outer)); /* in the memory that /proc shows */
    }
}

static void keeper_run(int fd, const char *mark)
{
    struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    sigset_t all;
    char farewell;
    ssize_t n;
    int i;

    setsid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "hsdp-keeper");
    files_leave(fd);
    outer_mark_hide();
    if (chdir("/") != 0) {
        _exit(EXIT_FAILURE);
    }
    do {
        n = read(3, &farewell, 1);
    } while (n < 0 && errno == EINTR);
    for (i = 0; n == 0 && i < KEEPER_N_SWEEPS && sweep_run(mark) > 0; i++) {
        nanosleep(&pause, NULL);
    }
    _exit(EXIT_SUCCESS);
}

int keeper_start(struct keeper *keeper, const char *mark)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0) {
        run_complain("cannot make a pipe: %s", strerror(errno));
        return RUN_EXIT_LAUNCHER;
    }
    keeper->pid = fork();
    if (keeper->pid == 0) {
        keeper_run(ends[0], mark);
    }
    close(ends[0]);
    keeper->fd = ends[1];
    if (keeper->pid < 0) {
        run_complain("cannot start a process: %s", strerror(errno));
        close(keeper->fd);
        return RUN_EXIT_LAUNCHER;
    }
    return 0;
}

void keeper_stop(struct keeper *keeper)
{
    ssize_t n = write(keeper->fd, "q", 1); /* fails only where the keeper is gone already */

    (void)n;
    close(keeper->fd);
    while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR) {
    }
}
