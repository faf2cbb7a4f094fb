/* SPDX-License-Identifier: Apache-2.0 */
/* Running a shell script as a child with a hard limit, and finding all processes that it left. */
#ifndef TESTS_SPAWN_H
#define TESTS_SPAWN_H

#include <stdio.h>
#include <sys/types.h>

#define SPAWN_TEXT_BYTES 65536

struct spawn {
    pid_t pid;
    FILE *out_file;
    FILE *err_file;
    char mark[64];              /* VARIABLE=VALUE in the environment of all that descends from it */
    char out[SPAWN_TEXT_BYTES]; /* what it has written, as of the last call */
    char err[SPAWN_TEXT_BYTES];
};

/* Each call fails the running test when its limit of a few seconds is reached. */

/* Starts sh -c script; standard input is empty. */
void spawn_start(struct spawn *spawn, const char *script);

/* Waits for the end. Answers the exit status, 128 + N after signal N. */
int spawn_wait(struct spawn *spawn);

/* Both; and then expects that nothing is left running. */
int spawn_run(struct spawn *spawn, const char *script);

/* Waits until text stands n times on standard output. */
void spawn_expect(struct spawn *spawn, const char *text, int n);

/* Waits until exactly n processes live among it and all that descends from it. */
void spawn_expect_alive(const struct spawn *spawn, int n);

/* How often part stands in text. */
int text_count(const char *text, const char *part);

#endif /* TESTS_SPAWN_H */
