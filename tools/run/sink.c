/* SPDX-License-Identifier: Apache-2.0 */
/* Writing without ever waiting for who reads. */
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

/*
 * O_NONBLOCK belongs to the open file, which the ranks and our parent share, so pipes and terminals
 * are opened once more. Where that is not possible, what_fits goes by poll and small writes.
 */
void sink_init(struct sink *sink, int fd)
{
    struct stat info;
    char path[32];

    *sink = (struct sink){.fd = fd};
    if (fstat(fd, &info) != 0 || (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode))) {
        return;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0) {
        sink->fd = fd;
        sink->owns_fd = true;
    }
}

void sink_fini(struct sink *sink)
{
    if (sink->owns_fd) {
        close(sink->fd);
    }
    free(sink->bytes);
    *sink = (struct sink){.fd = -1};
}

void sink_put(struct sink *sink, const char *bytes, size_t n_bytes)
{
    if (sink->is_broken || n_bytes == 0) {
        return;
    }
    if (sink->n_bytes + n_bytes > sink->n_allocated && sink->n_written > 0) {
        sink->n_bytes -= sink->n_written;
        memmove(sink->bytes, sink->bytes + sink->n_written, sink->n_bytes);
        sink->n_written = 0;
    }
    if (sink->n_bytes + n_bytes > sink->n_allocated) {
        sink->n_allocated = 2 * (sink->n_bytes + n_bytes);
        sink->bytes = run_realloc(sink->bytes, sink->n_allocated);
    }
    memcpy(sink->bytes + sink->n_bytes, bytes, n_bytes);
    sink->n_bytes += n_bytes;
}

/* How many of n_bytes a write takes without blocking; it may still say that it takes none. */
static size_t what_fits(const struct sink *sink, size_t n_bytes)
{
    struct pollfd writable = {.fd = sink->fd, .events = POLLOUT};

    if (sink->owns_fd) {
        return n_bytes;
    }
    if (poll(&writable, 1, 0) <= 0) {
        return 0;
    }
    return n_bytes < PIPE_BUF ? n_bytes : PIPE_BUF; /* a pipe that is writable holds as much */
}

void sink_flush(struct sink *sink)
{
    while (sink_pending_bytes(sink) > 0) {
        size_t n_bytes = what_fits(sink, sink_pending_bytes(sink));
        ssize_t n;

        if (n_bytes == 0) {
            return;
        }
        n = write(sink->fd, sink->bytes + sink->n_written, n_bytes);
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n < 0 && errno != EINTR) {
            sink->is_broken = errno == EPIPE;
            sink->lost_errno = errno;
            break;
        }
        sink->n_written += n > 0 ? (size_t)n : 0;
    }
    sink->n_bytes = 0;
    sink->n_written = 0;
}

size_t sink_pending_bytes(const struct sink *sink)
{
    return sink->n_bytes - sink->n_written;
}
