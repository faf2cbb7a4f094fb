/* SPDX-License-Identifier: Apache-2.0 */
/* How hsdp-gpt reports what went wrong: one sentence, and its kind. */
#ifndef GPT_FAULT_H
#define GPT_FAULT_H

/* What is wrong; 0 is nothing. */
#define FAULT_RUN    1 /* the run failed after it was set up */
#define FAULT_CONFIG 2 /* arguments or configuration, which all ranks share: rank 0 says it */
#define FAULT_PLACE  3 /* a file, the plugin, the environment: each rank that has it says it */

struct fault {
    char text[1024]; /* one sentence: where, what, what is allowed */
};

/* Writes the sentence and returns `kind`, so that raising and returning are one expression. */
int fault_set(struct fault *ret_fault, int kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* 0, 1 the run failed, 2 what the user asked for cannot be done. */
int fault_exit_status(int kind);

#endif
