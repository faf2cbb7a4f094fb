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

void judge_find(struct judge *judge, enum finding finding, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Judges the first call of a rank that failed. */
void judge_failure(struct judge *judge, uint32_t rank, const struct call_record *call);

/** True for the victim of a fault that it survives. */
bool judge_is_victim(const struct judge *judge, uint32_t rank);

#endif /* FAULTS_JUDGE_INTERNAL_H */
