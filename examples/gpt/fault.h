/* SPDX-License-Identifier: Apache-2.0 */
/* How hsdp-gpt reports what went wrong: one sentence, and the exit status that goes with it. */
#ifndef GPT_FAULT_H
#define GPT_FAULT_H

#define FAULT_NONE   0
#define FAULT_RUN    1 /* exit status: the run failed after it was set up */
#define FAULT_CONFIG 2 /* exit status: what the user asked for cannot be done */

struct fault {
    char text[1024]; /* one sentence: where, what, what is allowed */
};

/* Writes the sentence and returns `exit_status`, so that raising and returning are one expression.
 */
int fault_set(struct fault *ret_fault, int exit_status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
