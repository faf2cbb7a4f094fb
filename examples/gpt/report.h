/* SPDX-License-Identifier: Apache-2.0 */
/* What rank 0 says of each step: a line, a JSON object, a progress bar. */
#ifndef GPT_REPORT_H
#define GPT_REPORT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define REPORT_LINE_BYTES 512

/* Bytes that this rank moved in one group since the step before. */
struct report_traffic {
    const char *group;
    uint64_t n_bytes;
};

struct report_step {
    uint64_t step; /* from 1 */
    uint64_t n_steps;
    double seconds;
    double compute_seconds; /* these three are all of `seconds`: see laps.h */
    double communication_seconds;
    double optimizer_seconds;
    double loss; /* mean over the global batch */
    double learning_rate;
    double gradient_norm; /* before clipping */
    double tokens_per_second;
    uint64_t peak_bytes; /* of this process */
    uint64_t parameter_bytes;
    uint64_t gradient_bytes;
    uint64_t optimizer_bytes;
    uint64_t unsharded_bytes;
    const struct report_traffic *traffic;
    size_t n_traffic;
    int has_validation;
    double validation_loss;
    int has_digest; /* of the last step */
    uint64_t parameters_digest;
};

/* The line of a step, without its end. */
void report_line(char ret_line[REPORT_LINE_BYTES], const struct report_step *step,
                 const struct tm *now);
/* One JSON object and a line end; returns 0, or -1 when the file does not take it. */
int report_json(FILE *out, const struct report_step *step);
/* A bar that stays on the last line of a terminal; report_bar_clear before the next line. */
void report_bar(FILE *terminal, uint64_t step, uint64_t n_steps);
void report_bar_clear(FILE *terminal);
/* The time of the next line. */
struct tm report_clock(void);
/* "YYYY-MM-DD HH:MM:SS | INFO | " and the text, after what a bar has left on a terminal. */
void report_note(FILE *out, const struct tm *now, const char *level, const char *text);

#endif
