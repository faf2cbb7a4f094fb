/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has of its own: what a plugin must leave as it found it, and what may not grow. */
#ifndef TESTS_PROCESS_STATE_H
#define TESTS_PROCESS_STATE_H

#include <stdint.h>

/**
 * The state of this process and thread as text, one thing a line: environment, signal handlers and
 * masks, working directory, umask, locale, arithmetic, limits, timers, name, priority, processors,
 * descriptors, threads. The caller frees it.
 */
char *process_state(void);

/** The first line that only one of two states has; NULL when they are the same. Until next time. */
const char *process_state_difference(const char *before, const char *after);

/** Fails the test at a difference between a state, which it frees, and that of now. */
void process_state_expect(char *before);

/** Lets a sanitizer start the thread of its own that comes with the first one of a program. */
void process_threads_settle(void);

/* Where the standard output and errors went, and where they go meanwhile. */
struct captured {
    int saved[2];
    int file;
};

/** From here on what this process writes to its standard output and errors is kept. */
void captured_begin(struct captured *ret);
/** Puts both back, and returns how many bytes came. */
uint64_t captured_end(struct captured *captured);

/* What grows in a process that leaks. */
struct process_size {
    uint64_t n_descriptors;
    uint64_t n_threads;
    uint64_t n_mappings;
    uint64_t heap_bytes; /* handed out by malloc; 0 under a sanitizer, which has its own */
    uint64_t resident_bytes;
};

struct process_size process_size(void);

/**
 * What has grown between two sizes by more than it may; NULL when nothing has. Until next time.
 *
 * Descriptors and threads may not grow at all. The others have a slack, since the C library keeps
 * some of what it was given back, above all for threads: 2 mappings, 32 KiB of the heap, 512 KiB in
 * memory. Measure over so many times that the least leak is more: 1100 of the smallest piece of
 * the heap, which takes 32 bytes.
 */
const char *process_size_growth(struct process_size before, struct process_size after);

#endif /* TESTS_PROCESS_STATE_H */
