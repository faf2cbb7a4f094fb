/* SPDX-License-Identifier: Apache-2.0 */
/* Leaks: a place of its own for a trial, and what is found there afterwards. */
#include "faults/leaks.h"

#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults/play.h"

#define SETTLE_MS 500

static struct {
    char folder[64];
    bool has_network; /* of its own: every socket in it is ours */
    bool has_shm;
} place;

/* ------------------------------------------------------------------------- the place */

static void file_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        if (write(fd, text, strlen(text)) < 0) {
            place.has_shm = false;
        }
        close(fd);
    }
}

/* A user who is not root is root in a namespace of users of its own. */
static bool namespaces_enter(void)
{
    char map[64];

    if (unshare(CLONE_NEWNET | CLONE_NEWNS) == 0) {
        return true;
    }
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0) {
        return false;
    }
    file_write("/proc/self/setgroups", "deny");
    file_write("/proc/self/uid_map", map);
    return true;
}

static void loopback_raise(void)
{
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    memcpy(request.ifr_name, "lo", 3);
    if (fd >= 0) {
        place.has_network = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
        close(fd);
    }
}

void play_isolate(void)
{
    const char *folder = getenv("TMPDIR");

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    snprintf(place.folder, sizeof(place.folder), "%.40s/faults-XXXXXX",
             folder == NULL || folder[0] == '\0' ? P_tmpdir : folder);
    if (mkdtemp(place.folder) == NULL || chdir(place.folder) != 0) {
        fprintf(stderr, "faults: no folder %s\n", place.folder);
        exit(2);
    }
    if (namespaces_enter()) {
        loopback_raise();
        place.has_shm = mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                        mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0;
    }
}

void play_end(void)
{
    if (chdir("/") == 0) {
        rmdir(place.folder);
    }
}

/* ------------------------------------------------------------------------- what is left */

uint32_t leaks_end_children(void)
{
    char path[64];
    FILE *file;
    long pid;
    uint32_t n = 0;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/children", (long)getpid());
    file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%ld", &pid) == 1) {
        kill((pid_t)pid, SIGKILL);
        n++;
    }
    if (file != NULL) {
        fclose(file);
    }
    while (waitpid(-1, NULL, 0) > 0) {
    }
    return n == 0 ? 1 : n; /* it was asked because there are some */
}

static bool entry_find(const char *folder_path, char *ret_name, size_t max_bytes)
{
    DIR *folder = opendir(folder_path);
    struct dirent *entry;
    bool is_found = false;

    while (folder != NULL && !is_found && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            snprintf(ret_name, max_bytes, "%.160s/%.80s", folder_path, entry->d_name);
            is_found = true;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return is_found;
}

/* The first line behind the head; of TCP none that only waits for stray packets. */
static bool socket_find(const char *path, bool is_tcp, char *ret_line, size_t max_bytes)
{
    FILE *file = fopen(path, "r");
    char line[512];
    bool is_found = false;

    if (file != NULL && fgets(line, sizeof(line), file) == NULL) {
        line[0] = '\0';
    }
    while (file != NULL && !is_found && fgets(line, sizeof(line), file) != NULL) {
        char state[8] = "";

        if (is_tcp && sscanf(line, "%*s %*s %*s %7s", state) == 1 && strcmp(state, "06") == 0) {
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        snprintf(ret_line, max_bytes, "%s: %.160s", path, line);
        is_found = true;
    }
    if (file != NULL) {
        fclose(file);
    }
    return is_found;
}

static bool leak_look(char *ret_text, uint64_t max_bytes)
{
    char folder[256];

    if (getcwd(folder, sizeof(folder)) != NULL && entry_find(folder, ret_text, max_bytes)) {
        return true;
    }
    if (place.has_shm && entry_find("/dev/shm", ret_text, max_bytes)) {
        return true;
    }
    return place.has_network && (socket_find("/proc/net/unix", false, ret_text, max_bytes) ||
                                 socket_find("/proc/net/tcp", true, ret_text, max_bytes) ||
                                 socket_find("/proc/net/tcp6", true, ret_text, max_bytes));
}

/* The system ends the connections of a process a moment after it. */
void leaks_find(char *ret_text, uint64_t max_bytes)
{
    for (int i = 0; i < SETTLE_MS && leak_look(ret_text, max_bytes); i++) {
        usleep(1000);
    }
    if (!leak_look(ret_text, max_bytes)) {
        ret_text[0] = '\0';
    }
}
