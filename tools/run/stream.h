/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank writes to one descriptor, passed on line by line (--prefix). */
#ifndef RUN_STREAM_H
#define RUN_STREAM_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "sink.h"

struct stream {
    int fd; /* the end to read, which does not block; -1 before the start and after the end */
    int rank;
    int log_fd;    /* gets the bytes as they are; -1: none; not owned */
    int log_errno; /* why the log is incomplete, 0 if it is not */
    struct sink *sink;
    char *line; /* what has come since the last end of line */
    size_t n_line;
    size_t n_allocated;
    struct pollfd *polled; /* where the caller's poll array holds it, NULL if nowhere */
};

/* Reads once, without waiting; whether there may be more to read now. */
bool stream_read(struct stream *stream);

/* Passes on the line that has begun, with an end, and closes. */
void stream_close(struct stream *stream);

#endif /* RUN_STREAM_H */
