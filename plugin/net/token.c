/* SPDX-License-Identifier: Apache-2.0 */
/* Token: 32 bytes from a file or an inherited descriptor. */
#include "net/token.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

#define HEX_CHARS     (2u * NET_TOKEN_BYTES)
#define MAX_BYTES     (HEX_CHARS + 3u) /* with a line end, and one more to see that it is longer */
#define READ_MS       5000
#define FD_PREFIX     "fd:"
#define OTHERS_RIGHTS 077u

/* Reads up to MAX_BYTES, to the end: a file from its beginning, anything else as it comes. */
static int32_t bytes_read(int fd, const char *path, uint8_t *ret_bytes, size_t *ret_n,
                          struct hsdp_error *reterr)
{
    uint64_t deadline_ns = clock_deadline_ns(READ_MS);
    struct stat info;
    bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    size_t n_bytes = 0;

    while (n_bytes < MAX_BYTES) {
        struct pollfd poll_fd = {fd, POLLIN, 0};
        ssize_t n;

        if (!is_file && poll(&poll_fd, 1, clock_left_ms(deadline_ns, READ_MS)) == 0) {
            return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                             "token: \"%s\" has neither a token nor an end after %d s", path,
                             READ_MS / 1000);
        }
        n = is_file ? pread(fd, ret_bytes + n_bytes, MAX_BYTES - n_bytes, (off_t)n_bytes)
                    : read(fd, ret_bytes + n_bytes, MAX_BYTES - n_bytes);
        if (n == 0) {
            break;
        }
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return error_set(reterr, HSDP_ERR_UNAVAILABLE, "token: cannot read \"%s\": %s", path,
                             strerror(errno));
        }
        n_bytes += n > 0 ? (size_t)n : 0;
    }
    *ret_n = n_bytes;
    return HSDP_OK;
}

static int digit_value(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static size_t line_end_bytes(const uint8_t *bytes, size_t n_bytes)
{
    if (n_bytes == 1 && bytes[0] == '\n') {
        return 1;
    }
    return n_bytes == 2 && bytes[0] == '\r' && bytes[1] == '\n' ? 2 : 0;
}

static int32_t token_parse(const char *path, const uint8_t *bytes, size_t n_bytes,
                           uint8_t *ret_token, struct hsdp_error *reterr)
{
    size_t n_rest = n_bytes > HEX_CHARS ? n_bytes - HEX_CHARS : 0;

    if (n_bytes == NET_TOKEN_BYTES) {
        memcpy(ret_token, bytes, NET_TOKEN_BYTES);
    } else if (n_bytes >= HEX_CHARS && line_end_bytes(bytes + HEX_CHARS, n_rest) == n_rest) {
        for (size_t i = 0; i < NET_TOKEN_BYTES; i++) {
            int high = digit_value(bytes[2 * i]);
            int low = digit_value(bytes[2 * i + 1]);

            if (high < 0 || low < 0) {
                return error_set(reterr, HSDP_ERR_INVALID,
                                 "token: \"%s\" has 64 characters, but not all are hexadecimal",
                                 path);
            }
            ret_token[i] = (uint8_t)(16 * high + low);
        }
    } else {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "token: \"%s\" holds %s%zu bytes; 32 bytes or 64 hexadecimal digits are "
                         "a token",
                         path, n_bytes == MAX_BYTES ? "at least " : "", n_bytes);
    }
    if (sodium_is_zero(ret_token, NET_TOKEN_BYTES)) {
        return error_set(reterr, HSDP_ERR_INVALID, "token: \"%s\" is all zeros", path);
    }
    return HSDP_OK;
}

static int32_t token_take(int fd, const char *path, uint8_t *ret_token, struct hsdp_error *reterr)
{
    uint8_t bytes[MAX_BYTES];
    uint8_t token[NET_TOKEN_BYTES];
    size_t n_bytes = 0;
    int32_t status = bytes_read(fd, path, bytes, &n_bytes, reterr);

    if (status == HSDP_OK) {
        status = token_parse(path, bytes, n_bytes, token, reterr);
    }
    if (status == HSDP_OK) {
        memcpy(ret_token, token, sizeof(token));
    }
    sodium_memzero(bytes, sizeof(bytes));
    sodium_memzero(token, sizeof(token));
    return status;
}

static int32_t file_check(int fd, const char *path, struct hsdp_error *reterr)
{
    struct stat info;

    if (fstat(fd, &info) != 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "token: \"%s\": %s", path, strerror(errno));
    }
    if ((info.st_mode & OTHERS_RIGHTS) != 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "token: \"%s\" has mode %04o: others may read or write it; chmod 600 it, "
                         "and make a new token",
                         path, (unsigned)(info.st_mode & 07777u));
    }
    if (info.st_uid != geteuid() && info.st_uid != 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "token: \"%s\" belongs to user %u, this process to user %u", path,
                         (unsigned)info.st_uid, (unsigned)geteuid());
    }
    return HSDP_OK;
}

/* -1 when the text is none of "fd:N". */
static int descriptor_of(const char *path)
{
    const char *digits = path + sizeof(FD_PREFIX) - 1;
    int fd = 0;

    if (strncmp(path, FD_PREFIX, sizeof(FD_PREFIX) - 1) != 0 || digits[0] == '\0' ||
        strlen(digits) > 6) {
        return -1;
    }
    for (; *digits != '\0'; digits++) {
        if (*digits < '0' || *digits > '9') {
            return -1;
        }
        fd = 10 * fd + (*digits - '0');
    }
    return fd;
}

int32_t token_read(const char *path, uint8_t ret_token[NET_TOKEN_BYTES], struct hsdp_error *reterr)
{
    int fd = descriptor_of(path);
    int32_t status;

    if (fd >= 0) {
        return token_take(fd, path, ret_token, reterr);
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "token: cannot open \"%s\": %s", path,
                         strerror(errno));
    }
    status = file_check(fd, path, reterr);
    if (status == HSDP_OK) {
        status = token_take(fd, path, ret_token, reterr);
    }
    close(fd);
    return status;
}
