/* SPDX-License-Identifier: Apache-2.0 */
/* The campaign: many trials, several at a time, and what was found in them. */
#ifndef FAULTS_CAMPAIGN_H
#define FAULTS_CAMPAIGN_H

#include <stdio.h>

#include "faults/judge.h"

struct campaign {
    uint64_t seed;
    uint32_t first; /* trials are numbered from here */
    uint32_t n_trials;
    uint32_t n_at_once;
    enum fault_kind only; /* trials of other kinds are left out; FAULT_N_KINDS = none is */
    int nodes;            /* 1: only trials of several nodes; 0: only of one host; -1: all */
    FILE *file;           /* for stories, the table and the summary */
    bool is_telling;      /* tells the story of each trial, also where nothing was found */
};

struct campaign_result {
    uint32_t n_found[FINDING_N];
    uint32_t n_failed;                               /* trials in which something was found */
    uint32_t n_happened;                             /* trials in which the fault happened */
    uint32_t n_hits[FAULT_N_KINDS][CALL_N_KINDS][2]; /* before and inside of calls */
    uint64_t latest_ns[FAULT_N_KINDS];
};

/** Runs it, writes the story of each trial in which something is wrong, a table, and a summary. */
void campaign_run(const struct campaign *campaign, struct campaign_result *ret);

/** Numbers from the environment: HSDP_TEST_TRIALS, HSDP_TEST_SEED, HSDP_TEST_TRIAL; and
 *  HSDP_TEST_FAULT, the name of a kind, and HSDP_TEST_NODES, 0 or 1. */
void campaign_init(struct campaign *ret, uint64_t default_seed, uint32_t default_trials);

#endif /* FAULTS_CAMPAIGN_H */
