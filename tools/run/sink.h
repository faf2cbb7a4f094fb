/* SPDX-License-Identifier: Apache-2.0 */
/* Where hsdp-run writes: a queue before a descriptor, so that a slow reader never blocks it. */
#ifndef RUN_SINK_H
#define RUN_SINK_H

#include <stdbool.h>
#include <stddef.h>

struct sink {
    int fd;
    bool owns_fd;   /* fd was opened here and does not block */
    bool is_broken; /* nobody reads any more; what is put is dropped */
    int lost_errno; /* why bytes were dropped, 0 while none were */
    char *bytes;    /* the queue: n_bytes of it, the first n_written are out */
    size_t n_bytes;
    size_t n_written;
    size_t n_allocated;
};

/* Writes to what fd (1 or 2) is open on, without changing how others see it. */
void sink_init(struct sink *sink, int fd);
void sink_fini(struct sink *sink);

void sink_put(struct sink *sink, const char *bytes, size_t n_bytes);

/* Writes as much as can be written now. */
void sink_flush(struct sink *sink);

size_t sink_pending_bytes(const struct sink *sink);

#endif /* RUN_SINK_H */
