/* SPDX-License-Identifier: Apache-2.0 */
/* What the plugin's counters say of memory and traffic, step by step. */
#ifndef GPT_METRICS_H
#define GPT_METRICS_H

#include "report.h"
#include "session.h"

#define METRICS_MAX_GROUPS 64u

struct metrics {
    struct report_traffic traffic[METRICS_MAX_GROUPS]; /* since the reading before */
    uint64_t totals[METRICS_MAX_GROUPS];
    size_t n_groups;
};

/* Reads the counters into the memory and traffic fields of a step; `metrics` starts as zeros. */
int metrics_read(struct metrics *metrics, const struct session *session, struct report_step *step,
                 struct fault *ret_fault);
/* Largest memory that this process has had, in bytes. */
uint64_t metrics_peak_bytes(void);

#endif
