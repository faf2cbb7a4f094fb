/* SPDX-License-Identifier: Apache-2.0 */
/* Passing on what the ranks write, line by line, and what hsdp-run has to say. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run.h"

#define OUTPUT_MAX_PENDING (256 * 1024) /* more unread bytes make the ranks wait */
#define OUTPUT_MAX_READS   64           /* more than a pipe holds: its writers may be alive */

/* All are opened before a rank starts, so that a path that cannot be written starts nothing. */
static int logs_open(struct output *output)
{
    const struct options *options = output->options;
    char path[4096];
    int rank;

    if (mkdir(options->log_dir, 0777) != 0 && errno != EEXIST) {
        run_complain("--log-dir: cannot make the directory '%s': %s", options->log_dir,
                     strerror(errno));
        return RUN_EXIT_USAGE;
    }
    output->log_fds = run_realloc(NULL, (size_t)options->n_ranks * sizeof(output->log_fds[0]));
    memset(output->log_fds, -1, (size_t)options->n_ranks * sizeof(output->log_fds[0]));
    for (rank = 0; rank < options->n_ranks; rank++) {
        int n = snprintf(path, sizeof(path), "%s/rank-%d.log", options->log_dir,
                         options_first_rank(options) + rank);

        if (n < 0 || (size_t)n >= sizeof(path)) {
            run_complain("--log-dir is too long; allowed are about %zu bytes", sizeof(path));
            return RUN_EXIT_USAGE;
        }
        /* O_APPEND: standard output and error of a rank do not overwrite each other */
        output->log_fds[rank] =
            open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
        if (output->log_fds[rank] < 0) {
            run_complain("--log-dir: cannot write '%s': %s", path, strerror(errno));
            return RUN_EXIT_USAGE;
        }
    }
    return 0;
}

static bool files_are_same(int one, int other)
{
    struct stat a;
    struct stat b;

    return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

int output_init(struct output *output, const struct options *options)
{
    int i;

    *output = (struct output){.options = options};
    sink_init(&output->sinks[0], STDOUT_FILENO);
    sink_init(&output->sinks[1], STDERR_FILENO);
    output->error_sink = &output->sinks[files_are_same(STDOUT_FILENO, STDERR_FILENO) ? 0 : 1];
    if (options->prefix) {
        output->streams =
            run_realloc(NULL, 2 * (size_t)options->n_ranks * sizeof(output->streams[0]));
        for (i = 0; i < 2 * options->n_ranks; i++) {
            output->streams[i] = (struct stream){
                .fd = -1,
                .rank = options_first_rank(options) + i / 2,
                .log_fd = -1,
                .sink = i % 2 == 0 ? &output->sinks[0] : output->error_sink,
            };
        }
    }
    return options->log_dir != NULL ? logs_open(output) : 0;
}

void output_fini(struct output *output)
{
    int i;

    for (i = 0; output->streams != NULL && i < 2 * output->options->n_ranks; i++) {
        if (output->streams[i].fd >= 0) {
            stream_close(&output->streams[i]);
        }
    }
    for (i = 0; output->log_fds != NULL && i < output->options->n_ranks; i++) {
        if (output->log_fds[i] >= 0) {
            close(output->log_fds[i]);
        }
    }
    free(output->streams);
    free(output->log_fds);
    sink_fini(&output->sinks[0]);
    sink_fini(&output->sinks[1]);
}

int output_rank_files(struct output *output, int rank, int ret_fds[2])
{
    int i;

    ret_fds[0] = output->log_fds != NULL ? output->log_fds[rank] : STDOUT_FILENO;
    ret_fds[1] = output->log_fds != NULL ? output->log_fds[rank] : STDERR_FILENO;
    for (i = 0; output->streams != NULL && i < 2; i++) {
        int ends[2];

        if (pipe2(ends, O_CLOEXEC) != 0) {
            run_complain("cannot make a pipe for the output of rank %d: %s",
                         options_first_rank(output->options) + rank, strerror(errno));
            return RUN_EXIT_LAUNCHER;
        }
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        output->streams[2 * rank + i].fd = ends[0];
        output->streams[2 * rank + i].log_fd = output->log_fds != NULL ? output->log_fds[rank] : -1;
        ret_fds[i] = ends[1];
    }
    return 0;
}

void output_rank_release(struct output *output, int rank, const int fds[2])
{
    if (output->streams != NULL) {
        close(fds[0]);
        close(fds[1]);
    } else if (output->log_fds != NULL) {
        close(output->log_fds[rank]);
        output->log_fds[rank] = -1;
    }
}

size_t output_max_polled(const struct output *output)
{
    return 2 + (output->streams != NULL ? 2 * (size_t)output->options->n_ranks : 0);
}

size_t output_poll_fill(struct output *output, struct pollfd *fds)
{
    size_t n = 0;
    int i;

    for (i = 0; i < 2; i++) {
        if (sink_pending_bytes(&output->sinks[i]) > 0) {
            fds[n] = (struct pollfd){.fd = output->sinks[i].fd, .events = POLLOUT};
            n++;
        }
    }
    for (i = 0; output->streams != NULL && i < 2 * output->options->n_ranks; i++) {
        struct stream *stream = &output->streams[i];

        stream->polled = NULL;
        if (stream->fd >= 0 && sink_pending_bytes(stream->sink) < OUTPUT_MAX_PENDING) {
            fds[n] = (struct pollfd){.fd = stream->fd, .events = POLLIN};
            stream->polled = &fds[n];
            n++;
        }
    }
    return n;
}

void output_poll_take(struct output *output)
{
    int i;

    for (i = 0; output->streams != NULL && i < 2 * output->options->n_ranks; i++) {
        struct stream *stream = &output->streams[i];

        if (stream->polled != NULL && stream->polled->revents != 0) {
            stream_read(stream);
        }
    }
    sink_flush(&output->sinks[0]);
    sink_flush(&output->sinks[1]);
}

void output_rank_drain(struct output *output, int rank, bool finish)
{
    int n_reads;
    int i;

    for (i = 0; output->streams != NULL && i < 2; i++) {
        struct stream *stream = &output->streams[2 * rank + i];

        for (n_reads = 0; stream->fd >= 0 && n_reads < OUTPUT_MAX_READS; n_reads++) {
            if (!stream_read(stream)) {
                break;
            }
        }
        if (stream->fd >= 0 && finish) {
            stream_close(stream);
        }
    }
}

static void __attribute__((format(printf, 3, 0)))
text_put(struct output *output, const char *start, const char *format, va_list values)
{
    char text[8192]; /* longer than any path in a sentence of ours */
    int n;

    if (output->options->quiet) {
        return;
    }
    n = snprintf(text, sizeof(text), "%s", start);
    n += vsnprintf(text + n, sizeof(text) - (size_t)n - 1, format, values);
    n = n < (int)sizeof(text) - 2 ? n : (int)sizeof(text) - 2;
    text[n] = '\n';
    sink_put(output->error_sink, text, (size_t)n + 1);
    sink_flush(output->error_sink);
}

void output_say(struct output *output, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    text_put(output, "hsdp-run: ", format, values);
    va_end(values);
}

void output_row(struct output *output, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    text_put(output, "", format, values);
    va_end(values);
}

size_t output_pending_bytes(const struct output *output)
{
    return sink_pending_bytes(&output->sinks[0]) + sink_pending_bytes(&output->sinks[1]);
}

bool output_report_lost(struct output *output)
{
    bool is_lost = false;
    int log_errno = 0;
    int i;

    for (i = 0; output->streams != NULL && i < 2 * output->options->n_ranks; i++) {
        log_errno = log_errno == 0 ? output->streams[i].log_errno : log_errno;
    }
    if (log_errno != 0) {
        output_say(output, "the log files in '%s' are incomplete: %s", output->options->log_dir,
                   strerror(log_errno));
    }
    for (i = 0; i < 2; i++) {
        if (output->sinks[i].lost_errno != 0 && !output->sinks[i].is_broken) {
            output_say(output, "standard %s is incomplete: %s", i == 0 ? "output" : "error",
                       strerror(output->sinks[i].lost_errno));
            is_lost = true;
        }
    }
    if (output_pending_bytes(output) > 0) {
        output_say(output, "%zu bytes of output are lost: nobody has read them in time",
                   output_pending_bytes(output));
        is_lost = true;
    }
    return is_lost || log_errno != 0;
}
