/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting the bytes of a rank into lines, so that those of several ranks never mix in one. */
#include "stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

#define STREAM_CHUNK_BYTES    65536
#define STREAM_MAX_LINE_BYTES (1024 * 1024) /* a longer line is cut into several */

static void line_put(struct stream *stream, const char *line, size_t n_bytes)
{
    char prefix[16];
    int n = snprintf(prefix, sizeof(prefix), "[%d] ", stream->rank);

    sink_put(stream->sink, prefix, (size_t)n);
    sink_put(stream->sink, line, n_bytes);
    if (line[n_bytes - 1] != '\n') {
        sink_put(stream->sink, "\n", 1);
    }
}

static void line_extend(struct stream *stream, const char *bytes, size_t n_bytes)
{
    if (stream->n_line + n_bytes > stream->n_allocated) {
        stream->n_allocated = 2 * (stream->n_line + n_bytes);
        stream->line = run_realloc(stream->line, stream->n_allocated);
    }
    memcpy(stream->line + stream->n_line, bytes, n_bytes);
    stream->n_line += n_bytes;
}

static void line_finish(struct stream *stream)
{
    if (stream->n_line > 0) {
        line_put(stream, stream->line, stream->n_line);
        stream->n_line = 0;
    }
}

static void stream_take(struct stream *stream, const char *bytes, size_t n_bytes)
{
    while (n_bytes > 0) {
        const char *end = memchr(bytes, '\n', n_bytes);
        size_t n_part = end != NULL ? (size_t)(end - bytes) + 1 : n_bytes;

        if (end != NULL && stream->n_line == 0) {
            line_put(stream, bytes, n_part);
        } else {
            line_extend(stream, bytes, n_part);
            if (end != NULL || stream->n_line >= STREAM_MAX_LINE_BYTES) {
                line_finish(stream);
            }
        }
        bytes += n_part;
        n_bytes -= n_part;
    }
}

static void log_put(struct stream *stream, const char *bytes, size_t n_bytes)
{
    size_t n_written = 0;

    while (n_written < n_bytes) {
        ssize_t n = write(stream->log_fd, bytes + n_written, n_bytes - n_written);

        if (n < 0 && errno != EINTR) {
            stream->log_errno = errno;
            return;
        }
        n_written += n > 0 ? (size_t)n : 0;
    }
}

bool stream_read(struct stream *stream)
{
    char chunk[STREAM_CHUNK_BYTES];
    ssize_t n = read(stream->fd, chunk, sizeof(chunk));

    if (n < 0) {
        return errno == EINTR;
    }
    if (n == 0 || stream->sink->is_broken) {
        stream_close(stream); /* where nobody reads what the rank writes, its pipe tells it so */
        return false;
    }
    if (stream->log_fd >= 0) {
        log_put(stream, chunk, (size_t)n);
    }
    stream_take(stream, chunk, (size_t)n);
    return true;
}

void stream_close(struct stream *stream)
{
    line_finish(stream);
    free(stream->line);
    stream->line = NULL;
    stream->n_allocated = 0;
    close(stream->fd);
    stream->fd = -1;
}
