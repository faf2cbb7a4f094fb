/* SPDX-License-Identifier: Apache-2.0 */
/* Judging: processes, leaks, numbers, successes, and what comes after a failure. */
#include "faults/judge.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "faults/judge_internal.h"

/* The slack: so much always, and so many times the longest that a sleep took too long. */
#define SLACK_MS        400u
#define SLACK_OVERSHOOT 8u

/* How long a call may take on a job that has failed already, and destroy. */
#define LATER_MS 500u

/* The part of the first reason that every later sentence has to contain. */
#define REASON_BYTES 60

const char *const finding_names[FINDING_N] = {
    "wrong names",   "late returns", "early timeouts",       "hangs",          "leaks",
    "wrong numbers", "deaths",       "reasons not repeated", "untrue answers",
};

void judge_find(struct judge *judge, enum finding finding, uint32_t rank, const char *format, ...)
{
    struct judgement *j = judge->judgement;
    size_t n_bytes = strlen(j->text);
    va_list args;

    j->n_found[finding]++;
    if (n_bytes + 128 > sizeof(j->text)) {
        return;
    }
    n_bytes += (size_t)snprintf(j->text + n_bytes, sizeof(j->text) - n_bytes,
                                "  %s, rank %" PRIu32 ": ", finding_names[finding], rank);
    va_start(args, format);
    vsnprintf(j->text + n_bytes, sizeof(j->text) - n_bytes - 1, format, args);
    va_end(args);
    strcat(j->text, "\n");
}

uint32_t judgement_count(const struct judgement *judgement)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < FINDING_N; i++) {
        n += judgement->n_found[i];
    }
    return n;
}

uint64_t judge_slack_ns(const struct record *record)
{
    return SLACK_MS * JUDGE_MS + SLACK_OVERSHOOT * record->overshoot_ns;
}

bool judge_is_victim(const struct judge *judge, uint32_t rank)
{
    return judge->fault_ns != 0 && rank == judge->trial->victim;
}

/* ------------------------------------------------------------------------- the process */

/* True for the victim of a fault that ends it before its end. */
static bool rank_dies(const struct judge *judge, uint32_t rank)
{
    enum fault_kind kind = judge->trial->kind;

    return (judge->fault_ns != 0 && trial_is_absent(judge->trial, rank)) ||
           (judge_is_victim(judge, rank) &&
            (kind == FAULT_KILL || kind == FAULT_FORK || kind == FAULT_EXIT));
}

static void process_judge(struct judge *judge, uint32_t rank)
{
    const struct rank_record *own = &judge->record->ranks[rank];
    int status = judge->record->wait_status[rank];
    uint32_t n_calls = record_n_calls(own);
    const char *last = n_calls == 0 ? "no call" : own->calls[n_calls - 1].name;

    if (judge->record->has_hung[rank]) {
        judge_find(judge, FINDING_HANG, rank, "had to be ended in %s", last);
        return;
    }
    if (rank_dies(judge, rank)) {
        return;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !own->has_finished) {
        judge_find(judge, FINDING_DEATH, rank, "ended with wait status 0x%x in %s",
                   (unsigned)status, last);
    }
}

static void holdings_judge(struct judge *judge, uint32_t rank)
{
    const struct rank_record *own = &judge->record->ranks[rank];
    const struct holdings *a = &own->before;
    const struct holdings *b = &own->after;

    if (own->has_measured && (a->n_descriptors != b->n_descriptors ||
                              a->n_threads != b->n_threads || a->n_mappings != b->n_mappings)) {
        judge_find(judge, FINDING_LEAK, rank,
                   "descriptors %" PRIu32 " -> %" PRIu32 ", threads %" PRIu32 " -> %" PRIu32
                   ", shared mappings %" PRIu32 " -> %" PRIu32,
                   a->n_descriptors, b->n_descriptors, a->n_threads, b->n_threads, a->n_mappings,
                   b->n_mappings);
    }
}

/* ------------------------------------------------------------------------- calls */

/* All ranks have come to close, as far as the record knows. */
static bool all_came_to_close(const struct judge *judge, const struct call_record *close)
{
    for (uint32_t rank = 0; rank < judge->trial->n_ranks; rank++) {
        const struct rank_record *other = &judge->record->ranks[rank];
        bool has_come = false;

        for (uint32_t i = 0; i < record_n_calls(other); i++) {
            has_come = has_come ||
                       (other->calls[i].kind == CALL_CLOSE && other->calls[i].job == close->job);
        }
        if (!has_come) {
            return false;
        }
    }
    return true;
}

static void success_judge(struct judge *judge, uint32_t rank, const struct call_record *call)
{
    uint64_t took_ns = call->end_ns - call->start_ns;

    if (call->is_local || call->status != call->wanted) {
        judge_find(judge, FINDING_UNTRUE, rank, "%s succeeded where it was to be refused",
                   call->name);
    }
    if (call->kind == CALL_CLOSE && !all_came_to_close(judge, call)) {
        judge_find(judge, FINDING_UNTRUE, rank, "%s succeeded before all ranks had come",
                   call->name);
    }
    if (!judge_is_victim(judge, rank) &&
        took_ns > (call->timeout_ms + 1000) * JUDGE_MS + judge->slack_ns) {
        judge_find(judge, FINDING_LATE, rank, "%s took %" PRIu64 " ms to succeed", call->name,
                   took_ns / JUDGE_MS);
    }
}

/* A call on a job that has failed: refused at once, with the first reason. */
static void later_judge(struct judge *judge, uint32_t rank, const struct call_record *call)
{
    const struct rank_record *own = &judge->record->ranks[rank];
    char reason[REASON_BYTES + 1];
    uint64_t took_ns = call->end_ns - call->start_ns;

    if (call->end_ns == 0) {
        return; /* a hang, which is found elsewhere */
    }
    snprintf(reason, sizeof(reason), "%s", own->first.message);
    if (call->status != HSDP_ERR_ABORTED || strstr(call->error.message, reason) == NULL) {
        judge_find(judge, FINDING_REPEAT, rank,
                   "%s afterwards answers %" PRId32 " \"%s\", not \"%s\"", call->name, call->status,
                   call->error.message, own->first.message);
    }
    if (took_ns > LATER_MS * JUDGE_MS + judge->slack_ns) {
        judge_find(judge, FINDING_LATE, rank, "%s afterwards took %" PRIu64 " ms", call->name,
                   took_ns / JUDGE_MS);
    }
}

static void told_judge(struct judge *judge, uint32_t rank)
{
    const struct rank_record *own = &judge->record->ranks[rank];
    uint32_t wanted = own->first_status != HSDP_OK;

    if (judge->trial->kind == FAULT_ABORT || own->first_job == 1) {
        return; /* it may come later than the last call; the first job is aborted by the host */
    }
    if (own->n_told[0] > 1 || (wanted == 1 && own->n_told[0] == 0)) {
        judge_find(judge, FINDING_REPEAT, rank, "on_abort was called %" PRIu32 " times",
                   (uint32_t)own->n_told[0]);
    }
}

static void calls_judge(struct judge *judge, uint32_t rank)
{
    const struct rank_record *own = &judge->record->ranks[rank];
    bool has_failed = false;

    for (uint32_t i = 0; i < record_n_calls(own); i++) {
        const struct call_record *call = &own->calls[i];

        if (call->kind == CALL_LATER) {
            later_judge(judge, rank, call);
        } else if (call->kind == CALL_DESTROY) {
            if (call->end_ns > call->start_ns + LATER_MS * JUDGE_MS + judge->slack_ns &&
                !judge_is_victim(judge, rank)) {
                judge_find(judge, FINDING_LATE, rank, "destroy took %" PRIu64 " ms",
                           (call->end_ns - call->start_ns) / JUDGE_MS);
            }
        } else if (call->end_ns != 0 && (call->status >= 0 || call->status == call->wanted)) {
            success_judge(judge, rank, call);
        } else if (record_has_failed(call) && !has_failed) {
            has_failed = true;
            judge_failure(judge, rank, call);
        }
    }
}

/* ------------------------------------------------------------------------- between ranks */

static const struct call_record *first_failed(const struct rank_record *own)
{
    for (uint32_t i = 0; i < record_n_calls(own); i++) {
        if (record_has_failed(&own->calls[i])) {
            return &own->calls[i];
        }
    }
    return NULL;
}

/* A wrong call is told to every rank. Another order of units is not, where it changes no number. */
static void wrong_judge(struct judge *judge)
{
    if (judge->trial->kind != FAULT_WRONG || judge->fault_ns == 0 ||
        judge->trial->wrong == WRONG_ORDER || trial_is_harmless(judge->trial)) {
        return;
    }
    for (uint32_t rank = 0; rank < judge->trial->n_ranks; rank++) {
        if (first_failed(&judge->record->ranks[rank]) == NULL) {
            judge_find(judge, FINDING_UNTRUE, rank, "nothing failed after a wrong call");
        }
    }
}

/* Once connected, all ranks of a node tell the same first reason; the other nodes may have seen
 * the same from their side. */
static void reasons_compare(struct judge *judge, uint32_t node)
{
    const struct rank_record *first = NULL;

    for (uint32_t rank = 0; rank < judge->trial->n_ranks; rank++) {
        const struct rank_record *own = &judge->record->ranks[rank];
        const struct call_record *failed = first_failed(own);

        if (trial_node_of(judge->trial, rank) != node) {
            continue;
        }
        if (failed == NULL || failed->kind == CALL_CONNECT || failed->job != 0 ||
            own->first_status == HSDP_OK) {
            continue;
        }
        if (first != NULL && (first->first_status != own->first_status ||
                              strcmp(first->first.message, own->first.message) != 0)) {
            judge_find(judge, FINDING_REPEAT, rank,
                       "the first reason is \"%s\", on another rank \"%s\"", own->first.message,
                       first->first.message);
        }
        first = own;
    }
}

/* What the victim's second thread, or child, was answered. */
static void bystanders_judge(struct judge *judge)
{
    const struct trial *trial = judge->trial;
    const struct rank_record *own = &judge->record->ranks[trial->victim];
    uint64_t took_ns = own->abort_end_ns - own->abort_start_ns;

    if (own->busy_status != HSDP_OK) {
        judge_find(judge, FINDING_NAME, trial->victim, "a second thread was answered %" PRId32,
                   own->busy_status);
    }
    if (own->child_status != HSDP_OK && own->child_status != HSDP_ERR_FORKED) {
        judge_find(judge, FINDING_NAME, trial->victim, "a child was answered %" PRId32,
                   own->child_status);
    }
    if (own->abort_start_ns != 0 && (own->abort_status != HSDP_OK || own->abort_end_ns == 0)) {
        judge_find(judge, FINDING_NAME, trial->victim, "abort answered %" PRId32,
                   own->abort_status);
    }
    if (own->abort_end_ns != 0 && took_ns > 2000 * JUDGE_MS + judge->slack_ns) {
        judge_find(judge, FINDING_LATE, trial->victim, "abort took %" PRIu64 " ms",
                   took_ns / JUDGE_MS);
    }
}

/* A step that one rank has discarded is told of with the next one; until then it has its values. */
static bool number_is_excused(const struct judge *judge)
{
    return judge->fault_ns != 0 && judge->trial->kind == FAULT_WRONG &&
           judge->trial->wrong == WRONG_DISCARD;
}

void trial_judge(const struct trial *trial, const struct record *record, bool has_fault,
                 struct judgement *ret)
{
    struct judge judge = {.trial = trial, .record = record, .judgement = ret};

    memset(ret, 0, sizeof(*ret));
    judge.fault_ns = has_fault ? record_fault_ns(record) : 0;
    judge.slack_ns = judge_slack_ns(record);
    for (uint32_t rank = 0; rank < trial->n_ranks; rank++) {
        process_judge(&judge, rank);
        holdings_judge(&judge, rank);
        calls_judge(&judge, rank);
        told_judge(&judge, rank);
        if (record->ranks[rank].wrong_number[0] != '\0' && !number_is_excused(&judge)) {
            judge_find(&judge, FINDING_NUMBER, rank, "%s", record->ranks[rank].wrong_number);
        }
    }
    wrong_judge(&judge);
    reasons_compare(&judge, 0);
    for (uint32_t node = 1; node < trial->n_nodes; node++) {
        reasons_compare(&judge, node);
    }
    bystanders_judge(&judge);
    if (record->n_processes_left > 0) {
        judge_find(&judge, FINDING_LEAK, trial->victim, "%" PRIu32 " processes are left",
                   record->n_processes_left);
    }
    if (record->left[0] != '\0') {
        judge_find(&judge, FINDING_LEAK, trial->victim, "left: %s", record->left);
    }
}
