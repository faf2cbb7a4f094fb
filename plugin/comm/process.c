/* SPDX-License-Identifier: Apache-2.0 */
/* Processes: descriptors that become readable when another process ends, and what it is doing. */
#include "comm/process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STATE_UNKNOWN = '?', STATE_NONE = '-' };

int process_open(uint32_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0); /* closed on exec by itself */
}

/* The kernel's letter for what a process is doing. */
static char process_state(uint32_t pid)
{
    char path[32];
    char line[256];
    ssize_t n_bytes;
    const char *name_end;
    int fd;

    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return access("/proc/self/stat", R_OK) == 0 && access(path, F_OK) != 0 ? STATE_NONE
                                                                               : STATE_UNKNOWN;
    }
    n_bytes = read(fd, line, sizeof(line) - 1);
    close(fd);
    line[n_bytes < 0 ? 0 : n_bytes] = '\0';
    name_end = strrchr(line, ')'); /* the name before it may hold anything */
    return name_end != NULL && strlen(name_end) > 2 ? name_end[2] : STATE_UNKNOWN;
}

bool process_has_ended(uint32_t pid)
{
    char state = process_state(pid);

    return state == STATE_NONE || state == 'Z' || state == 'X';
}

bool process_is_stopped(uint32_t pid)
{
    char state = process_state(pid);

    return state == 'T' || state == 't';
}

/* In a program that has the engine linked in there is nothing to keep. */
void process_keep_plugin(void)
{
    static const char anchor = 0;
    Dl_info info;
    void *library = NULL;

    if (dladdr(&anchor, &info) != 0 && info.dli_fname != NULL) {
        library = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
    if (library != NULL) {
        dlclose(library); /* what was asked for stays */
    }
}
