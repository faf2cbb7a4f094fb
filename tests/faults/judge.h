/* SPDX-License-Identifier: Apache-2.0 */
/* Judging: what the survivors of a trial were promised, held against what they wrote down. */
#ifndef FAULTS_JUDGE_H
#define FAULTS_JUDGE_H

#include "faults/record.h"
#include "faults/trial.h"

enum finding {
    FINDING_NAME,   /* the wrong status, the wrong ranks, or a sentence that says nothing */
    FINDING_LATE,   /* returned after the time promised */
    FINDING_EARLY,  /* a timeout before its time */
    FINDING_HANG,   /* did not return */
    FINDING_LEAK,   /* something was left */
    FINDING_NUMBER, /* a value that is not right */
    FINDING_DEATH,  /* the process of a survivor did not exit with 0 */
    FINDING_REPEAT, /* a later call did not repeat the first reason */
    FINDING_UNTRUE, /* failed where nothing was wrong, or succeeded where something was */
    FINDING_N,
};

extern const char *const finding_names[FINDING_N];

#define JUDGEMENT_TEXT_BYTES 4096u

struct judgement {
    uint32_t n_found[FINDING_N];
    uint64_t latest_ns; /* how long after the fault the last survivor knew of it; 0 = none did */
    char text[JUDGEMENT_TEXT_BYTES]; /* one line a finding */
};

/**
 * Judges a run from its record alone. has_fault false: the run without the fault, in which all is
 * to succeed.
 */
void trial_judge(const struct trial *trial, const struct record *record, bool has_fault,
                 struct judgement *ret);

/** How many findings of all kinds. */
uint32_t judgement_count(const struct judgement *judgement);

/** What is added to the times promised, for a machine that is loaded. */
uint64_t judge_slack_ns(const struct record *record);

#endif /* FAULTS_JUDGE_H */
