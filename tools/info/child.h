/* SPDX-License-Identifier: Apache-2.0 */
/* A child process in which code of others runs, with a limit of time; it tells facts by a pipe. */
#ifndef INFO_CHILD_H
#define INFO_CHILD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What a child does. It tells what it finds out with child_tell, and may crash or hang. */
typedef void child_work(int out, const void *arg);

/** How it went. */
struct child {
    json_t *facts;        /* name -> text of any bytes; what was told before the end; owned */
    char fault[256];      /* "crashes in describe() (...)"; "" = it came to its end */
    char noise[128];      /* the beginning of what it wrote to standard output */
    uint64_t noise_bytes; /* all of that */
};

/** In the child: tells a fact. Names have at most 95 bytes; of one told twice the last counts. */
void child_tell(int out, const char *name, const char *text);

/** In the child: says what it is about to do, for the sentence about a crash or a hang. */
void child_begin(int out, const char *what);

/**
 * Runs `work` in a child; when it is not done in time it is killed, with what it has started.
 *
 * Ownership: give *ret to child_clear, whatever is returned.
 */
void child_run(child_work *work, const void *arg, int64_t timeout_ms, struct child *ret);
void child_clear(struct child *child);

/** A fact's text, NULL where it was not told. */
const char *child_fact(const struct child *child, const char *name);

#endif /* INFO_CHILD_H */
