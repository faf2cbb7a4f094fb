/* SPDX-License-Identifier: Apache-2.0 */
/* Judging: what its files share. */
#ifndef FAULTS_JUDGE_INTERNAL_H
#define FAULTS_JUDGE_INTERNAL_H

#include "faults/judge.h"

#define JUDGE_MS UINT64_C(1000000)

struct judge {
    const struct trial *trial;
    const struct record *record;
    struct judgement *judgement;
    uint64_t fault_ns; /* 0 = nothing has happened */
    uint64_t slack_ns;
};

/* By when an answer comes. */
enum answer_time {
    ANSWER_PROMPT,     /* at once */
    ANSWER_SILENCE,    /* when a link has been silent for as long as is allowed */
    ANSWER_TIMEOUT,    /* at T */
    ANSWER_BY_TIMEOUT, /* at T, or sooner */
};

/* One answer that is right. */
struct answer {
    int32_t status;
    uint64_t missing; /* mask of ranks that are named; 0 = not looked at */
    uint64_t within;  /* mask of those of which some are named; 0 = not looked at */
    const char *text; /* what the sentence has to contain; then `missing` holds also when it is 0 */
    enum answer_time time;
};

#define MAX_ANSWERS 16u

struct answers {
    struct answer rows[MAX_ANSWERS];
    uint32_t n_rows;
};

/** What is right for a rank of a job of several nodes, whose first failing call this is. */
void nodes_expect(const struct judge *judge, uint32_t rank, const struct call_record *call,
                  struct answers *ret);

/** When a rank's connect of a job ended; 0 = it did not. */
uint64_t connect_end_ns(const struct judge *judge, uint32_t rank, uint32_t job);
/** Whether the fault found its victim before that: nobody may know it yet. */
bool victim_had_not_met(const struct judge *judge, uint32_t job);

void answer_add(struct answers *answers, int32_t status, uint64_t missing, enum answer_time time);

void judge_find(struct judge *judge, enum finding finding, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Judges the first call of a rank that failed. */
void judge_failure(struct judge *judge, uint32_t rank, const struct call_record *call);

/** True for the victim of a fault that it survives. */
bool judge_is_victim(const struct judge *judge, uint32_t rank);

#endif /* FAULTS_JUDGE_INTERNAL_H */
