/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences and the table by which hsdp-run tells how a run ended. */
#ifndef RUN_REPORT_H
#define RUN_REPORT_H

#include <stdint.h>

#include "output.h"
#include "ranks.h"

struct report {
    struct output *output;
    const struct ranks *ranks;
    int64_t start_ns;
    int first_failed;         /* rank, -1: none has failed */
    uint64_t sent_on_signals; /* bit n: a user sent signal n to end the run */
};

/* One line about a rank that has failed and about what becomes of the others. */
void report_failure(const struct report *report, int rank);

/* When several ranks have failed: all of them, in order, one row for those that ended alike. */
void report_table(const struct report *report);

#endif /* RUN_REPORT_H */
