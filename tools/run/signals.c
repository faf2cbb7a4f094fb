/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving signals through a descriptor. */
#include "signals.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "run.h"

static const int forwarded_signals[] = {
    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT,
};

int signals_open(struct launch *launch)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t received;
    size_t i;
    int fd;

    sigemptyset(&received);
    sigaddset(&received, SIGCHLD);
    for (i = 0; i < sizeof(forwarded_signals) / sizeof(forwarded_signals[0]); i++) {
        struct sigaction found;

        sigaction(forwarded_signals[i], NULL, &found);
        if (found.sa_handler != SIG_IGN) {
            sigaddset(&received, forwarded_signals[i]);
        }
    }
    sigaction(SIGCHLD, &action, &launch->on_child); /* ignored, it would hide how ranks end */
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &launch->on_broken_pipe);
    sigprocmask(SIG_BLOCK, &received, &launch->mask);
    fd = signalfd(-1, &received, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        run_complain("cannot receive signals: %s", strerror(errno));
    }
    return fd;
}

int signals_next(int fd)
{
    struct signalfd_siginfo info;

    if (read(fd, &info, sizeof(info)) != sizeof(info)) {
        return 0;
    }
    return (int)info.ssi_signo;
}

bool signal_is_ending(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}
