/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding in /proc, and killing, what a run has left: processes that moved to a process group or a
 * session of their own and outlived the rank that started them. A process is held by a pidfd
 * before it is looked at, so that a number that is used again is never hit.
 */
#include "sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

#define SWEEP_CHUNK_BYTES 65536
#define SWEEP_WORD_BYTES  128
#define SWEEP_LIMIT_NS    (5 * RUN_NS_PER_S) /* a process blocked in the kernel does not die */

/* What the kernel tells in /proc/PID/stat; false when there is no such process any more. */
static bool process_stat(pid_t pid, char *ret_state, pid_t *ret_parent)
{
    char path[64];
    char line[1024];
    const char *after_name;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    n = read(fd, line, sizeof(line) - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    after_name = strrchr(line, ')'); /* the name may itself hold blanks and brackets */
    return after_name != NULL && sscanf(after_name, ") %c %d", ret_state, ret_parent) == 2;
}

/* Whether the process was started with the variable word = KEY=VALUE. */
static bool process_has_word(pid_t pid, const char *word)
{
    char chunk[SWEEP_WORD_BYTES + SWEEP_CHUNK_BYTES];
    size_t word_bytes = strlen(word);
    size_t kept = 0;
    bool has_word = false;
    ssize_t n;
    int fd;

    snprintf(chunk, sizeof(chunk), "/proc/%d/environ", (int)pid);
    fd = open(chunk, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    while (!has_word && (n = read(fd, chunk + kept, SWEEP_CHUNK_BYTES)) > 0) {
        kept += (size_t)n;
        has_word = memmem(chunk, kept, word, word_bytes) != NULL;
        if (kept >= word_bytes) { /* the word may go on in the next chunk */
            memmove(chunk, chunk + kept - (word_bytes - 1), word_bytes - 1);
            kept = word_bytes - 1;
        }
    }
    close(fd);
    return has_word;
}

/* Kills one process if it is alive and meant; parent 0 and word NULL mean any. */
static bool process_kill(pid_t pid, pid_t parent, const char *word)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    bool is_meant;
    char state;
    pid_t its_parent;

    if (fd < 0) {
        return false;
    }
    is_meant = process_stat(pid, &state, &its_parent) && state != 'Z' && state != 'X' &&
               (parent == 0 || its_parent == parent) &&
               (word == NULL || process_has_word(pid, word));
    if (is_meant) {
        syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    }
    close(fd);
    return is_meant;
}

static int processes_kill(pid_t parent, const char *mark)
{
    char word[SWEEP_WORD_BYTES];
    struct dirent *entry;
    int n_found = 0;
    DIR *folder = opendir("/proc");

    if (folder == NULL) {
        return 0;
    }
    snprintf(word, sizeof(word), "%s=%s", RUN_MARK_VARIABLE, mark != NULL ? mark : "");
    while ((entry = readdir(folder)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10); /* 0 for what is no process */

        if (pid > 0 && pid != getpid() && process_kill(pid, parent, mark != NULL ? word : NULL)) {
            n_found++;
        }
    }
    closedir(folder);
    return n_found;
}

/* Reaps the children that have ended. Answers how many, -1 when there are no children at all. */
static int children_reap(void)
{
    int n_reaped = 0;
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        n_reaped++;
    }
    return pid < 0 && n_reaped == 0 ? -1 : n_reaped;
}

bool sweep_children(const char *mark)
{
    struct timespec pause = {.tv_nsec = 2 * 1000 * 1000};
    int64_t end_ns = run_clock_ns() + SWEEP_LIMIT_NS;
    int n_reaped;

    while ((n_reaped = children_reap()) >= 0) {
        int n_found = processes_kill(getpid(), mark);

        /* one that died during the search may have left us children that the search has passed */
        if (mark != NULL && n_reaped == 0 && n_found == 0 && children_reap() <= 0) {
            break;
        }
        if (run_clock_ns() > end_ns) {
            return false;
        }
        if (n_found > 0) {
            nanosleep(&pause, NULL);
        }
    }
    return true;
}

int sweep_run(const char *mark)
{
    return processes_kill(0, mark);
}
