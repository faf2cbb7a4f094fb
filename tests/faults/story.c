/* SPDX-License-Identifier: Apache-2.0 */
/* Stories: telling a run of a trial. */
#include "faults/story.h"

#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>

/* So many calls of a rank are told: the last ones. */
#define TOLD_CALLS 14u

static double ms_since(const struct record *record, uint64_t at_ns)
{
    return ((double)at_ns - (double)record->start_ns) / 1e6;
}

static void call_write(FILE *file, const struct record *record, uint32_t i,
                       const struct call_record *call)
{
    fprintf(file, "    %3u %-18s %9.2f ms ", i + 1, call->name, ms_since(record, call->start_ns));
    if (call->end_ns == 0) {
        fprintf(file, "         - did not return\n");
        return;
    }
    fprintf(file, "%+9.2f  %" PRId32 "%s", (double)(call->end_ns - call->start_ns) / 1e6,
            call->status, call->job == 1 ? " (second job)" : "");
    if (call->status < 0) {
        fprintf(file, "  %s", call->error.message);
        for (uint32_t m = 0; m < call->error.n_missing_ranks && m < HSDP_ERROR_MAX_RANKS; m++) {
            fprintf(file, "%s%" PRIu32, m == 0 ? " [missing " : ", ", call->error.missing_ranks[m]);
        }
        fprintf(file, "%s", call->error.n_missing_ranks > 0 ? "]" : "");
    }
    fprintf(file, "\n");
}

static void rank_write(FILE *file, const struct record *record, uint32_t rank)
{
    const struct rank_record *own = &record->ranks[rank];
    uint32_t n_calls = record_n_calls(own);
    int status = record->wait_status[rank];

    fprintf(file, "  rank %" PRIu32 ": %s %d%s, %" PRIu32 " calls\n", rank,
            WIFSIGNALED(status) ? "signal" : "exit",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
            record->has_hung[rank] ? " (it was ended)" : "", n_calls);
    for (uint32_t i = n_calls > TOLD_CALLS ? n_calls - TOLD_CALLS : 0; i < n_calls; i++) {
        call_write(file, record, i, &own->calls[i]);
    }
    if (own->first_status != HSDP_OK) {
        fprintf(file, "    job.status: %" PRId32 " %s\n", own->first_status, own->first.message);
    }
}

void story_write(FILE *file, const struct trial *trial, const struct record *record, bool has_fault,
                 const struct judgement *judgement)
{
    char line[640];
    uint64_t at_ns = record_fault_ns(record);

    trial_describe(trial, line, sizeof(line));
    fprintf(file, "\n%s\n", line);
    fprintf(file,
            "  again: HSDP_TEST_SEED=%" PRIu64 " HSDP_TEST_TRIAL=%" PRIu32 " make check-faults\n",
            trial->seed, trial->number);
    if (!has_fault) {
        fprintf(file, "  in the run without the fault\n");
    } else if (at_ns != 0) {
        fprintf(file, "  the fault: %.2f ms after the start; slack %.0f ms\n",
                ms_since(record, at_ns), (double)judge_slack_ns(record) / 1e6);
    } else {
        fprintf(file, "  the fault did not happen: its moment did not come\n");
    }
    fputs(judgement->text, file);
    for (uint32_t rank = 0; rank < trial->n_ranks; rank++) {
        rank_write(file, record, rank);
    }
}
