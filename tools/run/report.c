/* SPDX-License-Identifier: Apache-2.0 */
/* Telling how ranks ended. */
#include "report.h"

#include <stdio.h>
#include <sys/wait.h>

#include "run.h"

#define REPORT_TEXT_BYTES 128
#define REPORT_MAX_ROWS   64 /* of ranks that ended in different ways */

/* Whether it failed, and not of what the user or hsdp-run has sent to it. */
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
    int number = report->ranks->first_rank + rank;

    if (!failure_is_its_own(report, failed)) {
        return;
    }
    rank_describe_end(failed, end, sizeof(end));
    if (n_others == 1) {
        snprintf(others, sizeof(others), "; %s the other rank%s", fate, options->node_text);
    } else if (n_others > 1) {
        snprintf(others, sizeof(others), "; %s the other %d ranks%s", fate, n_others,
                 options->node_text);
    }
    if (options->log_dir != NULL) {
        output_say(report->output, "rank %d (pid %d) %s%s; its output is in %s/rank-%d.log", number,
                   (int)failed->pid, end, others, options->log_dir, number);
    } else {
        output_say(report->output, "rank %d (pid %d) %s%s", number, (int)failed->pid, end, others);
    }
}

/* How many ranks ended as this one did, and from when to when; 0 if an earlier one did, too. */
static int alike_count(const struct report *report, int i, int64_t *ret_first_ns,
                       int64_t *ret_last_ns)
{
    const struct rank *all = report->ranks->all;
    int n_alike = 0;
    int other;

    *ret_first_ns = *ret_last_ns = all[i].end_ns;
    for (other = 0; other < report->ranks->n_ranks; other++) {
        if (!rank_is_alike(&all[other], &all[i])) {
            continue;
        }
        if (other < i) {
            return 0;
        }
        n_alike++;
        *ret_first_ns = all[other].end_ns < *ret_first_ns ? all[other].end_ns : *ret_first_ns;
        *ret_last_ns = all[other].end_ns > *ret_last_ns ? all[other].end_ns : *ret_last_ns;
    }
    return n_alike;
}

/* One row for a rank and all that ended as it did; false if an earlier row tells of it. */
static bool row_print(const struct report *report, int i)
{
    const struct rank *rank = &report->ranks->all[i];
    char end[REPORT_TEXT_BYTES];
    char list[REPORT_TEXT_BYTES];
    int64_t first_ns;
    int64_t last_ns;
    int n_alike = alike_count(report, i, &first_ns, &last_ns);

    rank_describe_end(rank, end, sizeof(end));
    if (n_alike == 1) {
        output_row(report->output, "  rank %d: %s (pid %d, after %.3f s)",
                   report->ranks->first_rank + i, end, (int)rank->pid,
                   (double)(first_ns - report->start_ns) / (double)RUN_NS_PER_S);
    } else if (n_alike > 1) {
        ranks_describe_alike(report->ranks, rank, list, sizeof(list));
        output_row(report->output, "  ranks %s: %s (after %.3f to %.3f s)", list, end,
                   (double)(first_ns - report->start_ns) / (double)RUN_NS_PER_S,
                   (double)(last_ns - report->start_ns) / (double)RUN_NS_PER_S);
    }
    return n_alike > 0;
}

/* Where all ranks ended in the same way one sentence is enough. */
static bool sentence_is_enough(const struct report *report)
{
    const struct rank *all = report->ranks->all;
    char end[REPORT_TEXT_BYTES];
    int i;

    for (i = 1; i < report->ranks->n_ranks; i++) {
        if (!rank_is_alike(&all[i], &all[0])) {
            return false;
        }
    }
    rank_describe_end(&all[0], end, sizeof(end));
    output_say(report->output, "%d of %d ranks%s%s %s", report->ranks->n_ranks,
               report->ranks->n_ranks, report->output->options->node_text,
               all[0].end_code == CLD_EXITED ? "" : ": each", end);
    return true;
}

void report_table(const struct report *report)
{
    int n_failed = 0;
    int n_rows = 0;
    int i;

    for (i = 0; i < report->ranks->n_ranks; i++) {
        n_failed += failure_is_its_own(report, &report->ranks->all[i]) ? 1 : 0;
    }
    if (n_failed < 2 || sentence_is_enough(report)) {
        return;
    }
    output_say(report->output, "%d of %d ranks%s failed, rank %d first:", n_failed,
               report->ranks->n_ranks, report->output->options->node_text,
               report->ranks->first_rank + report->first_failed);
    for (i = 0; i < report->ranks->n_ranks && n_rows < REPORT_MAX_ROWS; i++) {
        const struct rank *rank = &report->ranks->all[i];

        if (failure_is_its_own(report, rank) || rank_was_ended(rank)) {
            n_rows += row_print(report, i) ? 1 : 0;
        }
    }
}
