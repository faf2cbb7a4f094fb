/* SPDX-License-Identifier: Apache-2.0 */
/* What all parts of hsdp-run share: exit statuses, the clock, memory and plain complaints. */
#ifndef RUN_RUN_H
#define RUN_RUN_H

#include <stddef.h>
#include <stdint.h>

#define RUN_NS_PER_S INT64_C(1000000000)

/* What is equal on all ranks of a run, on every node. */
#define RUN_ID_VARIABLE "HSDP_RUN_ID"

/* What this hsdp-run's processes carry, and no other's: the keeper finds them by it. */
#define RUN_MARK_VARIABLE "HSDP_RUN_MARK"

/* Exit statuses of hsdp-run itself; any other is that of the rank that failed first. */
enum {
    RUN_EXIT_USAGE = 2,
    RUN_EXIT_TIMEOUT = 124,
    RUN_EXIT_LAUNCHER = 125,
    RUN_EXIT_NOT_EXECUTABLE = 126,
    RUN_EXIT_NOT_FOUND = 127,
    RUN_EXIT_SIGNAL = 128 /* plus the number of the signal */
};

/* Monotonic nanoseconds. */
int64_t run_clock_ns(void);

/* As realloc, but ends hsdp-run (and so, by their death signal, the ranks) where memory is out. */
void *run_realloc(void *memory, size_t n_bytes);

/* Writes "hsdp-run: " and one sentence to standard error; for everything before ranks are watched.
 */
void run_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* RUN_RUN_H */
