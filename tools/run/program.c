/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the program before anything is started, so that a wrong name starts nothing. */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

/* 0 when path can be executed, else the errno that says why not. */
static int path_check(const char *path)
{
    struct stat info;

    if (stat(path, &info) != 0) {
        return errno;
    }
    if (S_ISDIR(info.st_mode)) {
        return EISDIR;
    }
    return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

static int path_complain(const char *name, int error)
{
    if (error == ENOENT || error == ENOTDIR) {
        run_complain("there is no program '%s'%s", name,
                     strchr(name, '/') == NULL ? " along PATH" : "");
        return RUN_EXIT_NOT_FOUND;
    }
    run_complain("program '%s' cannot be run: %s", name, strerror(error));
    return RUN_EXIT_NOT_EXECUTABLE;
}

/* Fills ret_path with the first file along PATH that runs; else answers the errno to complain of.
 */
static int path_search(const char *name, char *ret_path, size_t path_bytes)
{
    const char *folder = getenv("PATH");
    int error = ENOENT;

    if (folder == NULL) {
        folder = "/usr/bin:/bin";
    }
    for (;;) {
        size_t length = strcspn(folder, ":");
        int n = snprintf(ret_path, path_bytes, "%.*s/%s", length > 0 ? (int)length : 1,
                         length > 0 ? folder : ".", name);
        int found = n > 0 && (size_t)n < path_bytes ? path_check(ret_path) : ENAMETOOLONG;

        if (found == 0) {
            return 0;
        }
        if (found == EACCES) {
            error = EACCES; /* a later folder may still hold one that runs */
        }
        if (folder[length] == '\0') {
            return error;
        }
        folder += length + 1;
    }
}

int program_find(const char *name, char *ret_path, size_t path_bytes)
{
    int error;

    if (strchr(name, '/') == NULL && name[0] != '\0') {
        error = path_search(name, ret_path, path_bytes);
    } else if (strlen(name) < path_bytes) {
        error = path_check(name);
        snprintf(ret_path, path_bytes, "%s", name);
    } else {
        error = ENAMETOOLONG;
    }
    return error == 0 ? 0 : path_complain(name, error);
}
