/* SPDX-License-Identifier: Apache-2.0 */
/* Telling how ranks ended. */
#include "report.h"

#include <stdio.h>
#include <sys/wait.h>

#include "run.h"

#define REPORT_TEXT_BYTES 128
#define REPORT_MAX_ROWS   64

/* Whether it failed by itself: not of what the user or hsdp-run has sent to it. */
static bool failure_is_its_own(const struct report *report, const struct rank *rank)
{
    return rank_has_failed(rank) && !rank_was_ended(rank) &&
           (rank->end_code == CLD_EXITED ||
            ((report->sent_on_signals >> rank->end_status) & 1) == 0);
}

void report_failure(const struct report *report, int rank)
{
    const struct rank *failed = &report->ranks->all[rank];
    const struct options *options = report->output->options;
    int n_others = report->ranks->n_running;
    char end[REPORT_TEXT_BYTES];
    char others[REPORT_TEXT_BYTES] = "";
    const char *fate = options->keep_going ? "going on with" : "ending";

    if (!failure_is_its_own(report, failed)) {
        return;
    }
    rank_describe_end(failed, end, sizeof(end));
    if (n_others == 1) {
        snprintf(others, sizeof(others), "; %s the other rank", fate);
    } else if (n_others > 1) {
        snprintf(others, sizeof(others), "; %s the other %d ranks", fate, n_others);
    }
    if (options->log_dir != NULL) {
        output_say(report->output, "rank %d (pid %d) %s%s; its output is in %s/rank-%d.log", rank,
                   (int)failed->pid, end, others, options->log_dir, rank);
    } else {
        output_say(report->output, "rank %d (pid %d) %s%s", rank, (int)failed->pid, end, others);
    }
}

static void row_print(const struct report *report, int i)
{
    const struct rank *rank = &report->ranks->all[i];
    char end[REPORT_TEXT_BYTES];

    rank_describe_end(rank, end, sizeof(end));
    output_row(report->output, "  %4d  %7d  %9.3f  %s", i, (int)rank->pid,
               (double)(rank->end_ns - report->start_ns) / (double)RUN_NS_PER_S, end);
}

void report_table(const struct report *report)
{
    int n_failed = 0;
    int n_rows = 0;
    int i;

    for (i = 0; i < report->ranks->n_ranks; i++) {
        n_failed += failure_is_its_own(report, &report->ranks->all[i]) ? 1 : 0;
    }
    if (n_failed < 2) {
        return;
    }
    output_say(report->output, "%d of %d ranks failed by themselves, first rank %d:", n_failed,
               report->ranks->n_ranks, report->first_failed);
    output_row(report->output, "  rank      pid  after [s]  what happened");
    for (i = 0; i < report->ranks->n_ranks; i++) {
        const struct rank *rank = &report->ranks->all[i];

        if (failure_is_its_own(report, rank) || rank_was_ended(rank)) {
            n_rows++;
            if (n_rows <= REPORT_MAX_ROWS) {
                row_print(report, i);
            }
        }
    }
    if (n_rows > REPORT_MAX_ROWS) {
        output_row(report->output, "  ... and %d more", n_rows - REPORT_MAX_ROWS);
    }
}
