/* SPDX-License-Identifier: Apache-2.0 */
/* Making a secret, and looking at one before any rank is started. */
#include "token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

#define TOKEN_BYTES 32
#define HEX_DIGITS  64 /* the same in hexadecimal, with a line end or without */

int token_make(const char *path)
{
    unsigned char bytes[TOKEN_BYTES];
    int status = 0;
    int fd;

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        run_complain("cannot get random bytes: %s", strerror(errno));
        return RUN_EXIT_LAUNCHER;
    }
    /* a new file: one that is there may be in use, or be somebody's trap */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        run_complain("--make-token: cannot make '%s': %s", path, strerror(errno));
        return RUN_EXIT_USAGE;
    }
    if (fchmod(fd, 0600) != 0 || write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes)) {
        status = RUN_EXIT_LAUNCHER;
    }
    if (close(fd) != 0) {
        status = RUN_EXIT_LAUNCHER;
    }
    if (status != 0) {
        run_complain("--make-token: cannot write '%s': %s", path, strerror(errno));
        unlink(path);
    }
    explicit_bzero(bytes, sizeof(bytes));
    return status;
}

static bool is_size(off_t n_bytes)
{
    return n_bytes == TOKEN_BYTES || (n_bytes >= HEX_DIGITS && n_bytes <= HEX_DIGITS + 2);
}

int token_find(const char *path, char **ret_path)
{
    struct stat file;
    int fd;

    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &file) != 0) {
        run_complain("--token-file: cannot read '%s': %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return RUN_EXIT_USAGE;
    }
    close(fd);
    if (!S_ISREG(file.st_mode) || !is_size(file.st_size)) {
        run_complain("--token-file: '%s' is no file of %d bytes or %d hexadecimal digits", path,
                     TOKEN_BYTES, HEX_DIGITS);
        return RUN_EXIT_USAGE;
    }
    if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        run_complain("--token-file: others may use '%s' (mode %04o); allowed is 0600", path,
                     (unsigned)(file.st_mode & 07777));
        return RUN_EXIT_USAGE;
    }
    *ret_path = realpath(path, NULL); /* a rank may have another working directory */
    if (*ret_path == NULL) {
        run_complain("--token-file: cannot find '%s': %s", path, strerror(errno));
        return RUN_EXIT_USAGE;
    }
    return -1;
}
