/* SPDX-License-Identifier: Apache-2.0 */
/* The campaign: a process for each trial, and sums. */
#include "faults/campaign.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults/host.h"
#include "faults/play.h"
#include "faults/story.h"

#define AT_ONCE_PER_PROCESSOR 3

/* What the process of a trial leaves for the campaign. */
struct outcome {
    uint32_t n_found[FINDING_N];
    enum fault_kind kind;
    enum call_kind at_call;
    bool has_happened;
    bool is_inside;
    bool has_moment;
    bool is_complete;
    uint64_t latest_ns;
};

static uint64_t number_from(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text == NULL || text[0] == '\0' ? fallback : strtoull(text, NULL, 10);
}

static enum fault_kind kind_from(const char *name)
{
    const char *text = getenv(name);
    uint32_t kind = 0;

    if (text == NULL || text[0] == '\0') {
        return FAULT_N_KINDS;
    }
    while (kind < FAULT_N_KINDS && strcmp(fault_names[kind], text) != 0) {
        kind++;
    }
    if (kind == FAULT_N_KINDS) { /* it would be looked for for ever */
        fprintf(stderr, "faults: %s: no fault is called \"%s\"\n", name, text);
        exit(2);
    }
    return (enum fault_kind)kind;
}

void campaign_init(struct campaign *ret, uint64_t default_seed, uint32_t default_trials)
{
    long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t one = number_from("HSDP_TEST_TRIAL", UINT64_MAX);

    memset(ret, 0, sizeof(*ret));
    ret->seed = number_from("HSDP_TEST_SEED", default_seed);
    ret->n_trials = (uint32_t)number_from("HSDP_TEST_TRIALS", default_trials);
    ret->n_at_once = AT_ONCE_PER_PROCESSOR * (n_processors < 1 ? 1u : (uint32_t)n_processors);
    ret->only = kind_from("HSDP_TEST_FAULT");
    ret->nodes = (int)number_from("HSDP_TEST_NODES", UINT64_MAX);
    ret->file = stdout;
    if (one != UINT64_MAX) {
        ret->first = (uint32_t)one;
        ret->n_trials = 1;
        ret->is_telling = true;
    }
}

/* ------------------------------------------------------------------------- one trial */

static void outcome_add(struct outcome *outcome, const struct judgement *judgement)
{
    for (uint32_t i = 0; i < FINDING_N; i++) {
        outcome->n_found[i] += judgement->n_found[i];
    }
}

static void run_judge(const struct campaign *campaign, const struct trial *trial,
                      const struct record *record, bool has_fault, FILE *file,
                      struct outcome *outcome)
{
    struct judgement judgement;

    trial_judge(trial, record, has_fault, &judgement);
    outcome_add(outcome, &judgement);
    outcome->latest_ns = judgement.latest_ns;
    if (judgement_count(&judgement) > 0 || (campaign->is_telling && has_fault)) {
        story_write(file, trial, record, has_fault, &judgement);
    }
}

/* First without the fault: how long it takes, and that all of it succeeds. */
static void trial_run(const struct campaign *campaign, struct trial *trial, FILE *file,
                      struct outcome *outcome)
{
    struct record *without = record_create();
    struct record *with = record_create();
    uint32_t at_occurrence;

    if (without == NULL || with == NULL) {
        fprintf(stderr, "faults: no memory for a record\n");
        exit(2);
    }
    trial_play(trial, without, false, 0, 0);
    run_judge(campaign, trial, without, false, file, outcome);
    if (trial->kind != FAULT_NONE) {
        at_occurrence = trial_aim(trial, without);
        trial_play(trial, with, true, without->end_ns - without->start_ns, at_occurrence);
        run_judge(campaign, trial, with, true, file, outcome);
        outcome->has_happened = record_fault_ns(with) != 0;
        outcome->has_moment = record_moment(with, trial, &outcome->at_call, &outcome->is_inside);
    }
    record_destroy(without);
    record_destroy(with);
}

static void trial_process(const struct campaign *campaign, uint32_t number, struct outcome *outcome)
{
    struct trial trial;
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    trial_draw(&trial, campaign->seed, number);
    outcome->kind = trial.kind;
    play_isolate();
    trial_run(campaign, &trial, file, outcome);
    play_end();
    outcome->is_complete = true;
    fclose(file);
    fwrite(text, 1, n_bytes, campaign->file); /* in one piece: other trials write too */
    fflush(campaign->file);
    _exit(0);
}

/* ------------------------------------------------------------------------- all of them */

static void plugin_expect(void)
{
    const char *path = getenv("HSDP_TEST_PLUGIN");

    if (path == NULL || access(path, R_OK) != 0) {
        fprintf(stderr, "faults: HSDP_TEST_PLUGIN names no plugin: %s\n", path == NULL ? "" : path);
        exit(2);
    }
}

static void outcomes_sum(const struct outcome *outcomes, uint32_t n, struct campaign_result *ret)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct outcome *outcome = &outcomes[i];
        uint32_t n_found = 0;

        for (uint32_t f = 0; f < FINDING_N; f++) {
            ret->n_found[f] += outcome->n_found[f];
            n_found += outcome->n_found[f];
        }
        if (!outcome->is_complete) {
            ret->n_found[FINDING_DEATH]++; /* of the trial's own process */
        }
        ret->n_failed += n_found > 0 || !outcome->is_complete;
        ret->n_happened += outcome->has_happened;
        if (outcome->has_happened && outcome->has_moment) {
            ret->n_hits[outcome->kind][outcome->at_call][outcome->is_inside]++;
        }
        if (outcome->latest_ns > ret->latest_ns[outcome->kind]) {
            ret->latest_ns[outcome->kind] = outcome->latest_ns;
        }
    }
}

static void table_write(const struct campaign *campaign, const struct campaign_result *result)
{
    FILE *file = campaign->file;

    fprintf(file,
            "\nhow often each fault happened before + inside of each kind of call, and how "
            "long after it the last survivor knew\n%-10s",
            "");
    for (uint32_t c = 0; c < CALL_N_KINDS; c++) {
        fprintf(file, "%11s", call_kind_names[c]);
    }
    fprintf(file, "\n");
    for (uint32_t k = 1; k < FAULT_N_KINDS; k++) {
        fprintf(file, "%-10s", fault_names[k]);
        for (uint32_t c = 0; c < CALL_N_KINDS; c++) {
            char cell[24];

            snprintf(cell, sizeof(cell), "%" PRIu32 "+%" PRIu32, result->n_hits[k][c][0],
                     result->n_hits[k][c][1]);
            fprintf(file, "%11s", cell);
        }
        fprintf(file, "%8.0f ms\n", (double)result->latest_ns[k] / 1e6);
    }
}

static void summary_write(const struct campaign *campaign, const struct campaign_result *result)
{
    fprintf(campaign->file, "%" PRIu32 " trials, %" PRIu32 " faults, seed %" PRIu64 ":",
            campaign->n_trials, result->n_happened, campaign->seed);
    for (uint32_t f = 0; f < FINDING_N; f++) {
        fprintf(campaign->file, " %" PRIu32 " %s%s", result->n_found[f], finding_names[f],
                f + 1 < FINDING_N ? "," : "\n");
    }
    fflush(campaign->file);
}

static bool is_wanted(const struct campaign *campaign, const struct trial *trial)
{
    return (campaign->only == FAULT_N_KINDS || trial->kind == campaign->only) &&
           (campaign->nodes < 0 || (trial->n_nodes > 1) == (campaign->nodes == 1));
}

/* The next trial that is wanted. */
static uint32_t number_next(const struct campaign *campaign, uint32_t number)
{
    struct trial trial;

    trial_draw(&trial, campaign->seed, number);
    while (!campaign->is_telling && !is_wanted(campaign, &trial)) {
        trial_draw(&trial, campaign->seed, ++number);
    }
    return number;
}

static void trial_await(uint32_t *n_running)
{
    if (wait(NULL) > 0) {
        (*n_running)--;
    }
}

void campaign_run(const struct campaign *campaign, struct campaign_result *ret)
{
    size_t n_bytes = (campaign->n_trials + 1) * sizeof(struct outcome);
    struct outcome *outcomes =
        mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint32_t number = campaign->first;
    uint32_t n_running = 0;

    plugin_expect();
    memset(ret, 0, sizeof(*ret));
    if (outcomes == MAP_FAILED) {
        fprintf(stderr, "faults: no memory for %zu bytes\n", n_bytes);
        exit(2);
    }
    for (uint32_t i = 0; i < campaign->n_trials; i++) {
        if (n_running == campaign->n_at_once) {
            trial_await(&n_running);
        }
        number = number_next(campaign, number);
        fflush(NULL);
        if (fork() == 0) {
            trial_process(campaign, number, &outcomes[i]);
        }
        number++;
        n_running++;
    }
    while (n_running > 0) {
        trial_await(&n_running);
    }
    outcomes_sum(outcomes, campaign->n_trials, ret);
    table_write(campaign, ret);
    summary_write(campaign, ret);
    munmap(outcomes, n_bytes);
}
