/* SPDX-License-Identifier: Apache-2.0 */
/* The output of the ranks and of hsdp-run itself: where it goes, prefixes, whole lines. */
#ifndef RUN_OUTPUT_H
#define RUN_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "options.h"
#include "sink.h"
#include "stream.h"

struct output {
    const struct options *options;
    struct sink sinks[2];
    struct sink *error_sink; /* sinks[0] as well where both are the same file: lines stay whole */
    struct stream *streams;  /* two a rank; NULL without --prefix */
    int *log_fds;            /* one a rank; NULL without --log-dir */
};

/* Opens all log files. Answers 0, or complains and answers hsdp-run's exit status. */
int output_init(struct output *output, const struct options *options);
void output_fini(struct output *output);

/* The descriptors for standard output and error of a rank; valid until output_rank_release. */
int output_rank_files(struct output *output, int rank, int ret_fds[2]);

/* After the rank has been started (or has not): closes what only the rank needs. */
void output_rank_release(struct output *output, int rank, const int fds[2]);

/* At most this many descriptors are filled in. */
size_t output_max_polled(const struct output *output);
size_t output_poll_fill(struct output *output, struct pollfd *fds);
void output_poll_take(struct output *output);

/* Takes what a rank has written so far; finish: also the line that it has begun. */
void output_rank_drain(struct output *output, int rank, bool finish);

/* "hsdp-run: " and one sentence on standard error, unless --quiet. */
void output_say(struct output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same without "hsdp-run: ", for the rows of a table. */
void output_row(struct output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

size_t output_pending_bytes(const struct output *output);

/* Says what output was lost. Answers whether any was, but for readers that went away. */
bool output_report_lost(struct output *output);

#endif /* RUN_OUTPUT_H */
