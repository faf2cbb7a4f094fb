/* SPDX-License-Identifier: Apache-2.0 */
/* Judging: what the first call that fails is promised to say, for each kind of fault. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "faults/judge_internal.h"

/* So long after a death, a departure, an abort or a wrong call its consequences are known. */
#define PROMPT_MS 1000u

/* A timeout comes no sooner than T, and no later than T and this. */
#define TIMEOUT_MS 1000u

/* A silence is known no later than peer_silence_seconds and this. */
#define SILENCE_MS 500u

/* Survivors may have waited for the victim a little before the fault: so much less than T. */
#define SKEW_MS 500u

void answer_add(struct answers *answers, int32_t status, uint64_t missing, enum answer_time time)
{
    if (answers->n_rows < MAX_ANSWERS) {
        answers->rows[answers->n_rows++] =
            (struct answer){.status = status, .missing = missing, .time = time};
    }
}

static uint64_t bit(uint32_t rank)
{
    return UINT64_C(1) << rank;
}

uint64_t connect_end_ns(const struct judge *judge, uint32_t rank, uint32_t job)
{
    const struct rank_record *own = &judge->record->ranks[rank];

    for (uint32_t i = 0; i < record_n_calls(own); i++) {
        if (own->calls[i].job == job && strcmp(own->calls[i].name, "job.connect") == 0) {
            return own->calls[i].end_ns;
        }
    }
    return 0;
}

bool victim_had_not_met(const struct judge *judge, uint32_t job)
{
    uint64_t end_ns = connect_end_ns(judge, judge->trial->victim, job);

    return end_ns == 0 || end_ns >= judge->fault_ns;
}

/* ------------------------------------------------------------------------- what is right */

/* Those who wait for the victim and for whom it waits: its group, or in a step all. */
static uint64_t circle_ranks(const struct judge *judge)
{
    const struct trial *trial = judge->trial;
    uint64_t mask = 0;

    for (uint32_t rank = 0; rank < trial->n_ranks; rank++) {
        if (trial->wrong == WRONG_EXTRA_STEP || rank % trial->ep == trial->victim % trial->ep) {
            mask |= bit(rank);
        }
    }
    return mask;
}

static void wrong_expect(const struct judge *judge, struct answers *ret)
{
    enum wrong_call wrong = judge->trial->wrong;

    answer_add(ret, HSDP_ERR_MISMATCH, 0, ANSWER_PROMPT);
    if (wrong == WRONG_MISSING || wrong == WRONG_EXTRA_STEP) {
        /* The victim waits elsewhere: a circle, of which some ranks are named. */
        answer_add(ret, HSDP_ERR_TIMEOUT, 0, ANSWER_TIMEOUT);
        ret->rows[ret->n_rows - 1].within = circle_ranks(judge);
    }
    if (wrong == WRONG_EXTRA_STEP) {
        /* It may be refused on the victim, whose host then gives up. */
        answer_add(ret, HSDP_ERR_ABORTED, 0, ANSWER_PROMPT);
        answer_add(ret, HSDP_ERR_PEER_LOST, bit(judge->trial->victim), ANSWER_PROMPT);
    }
}

/* The host of the victim gives up: it aborts, or leaves. */
static void allocation_expect(const struct judge *judge, struct answers *ret)
{
    uint64_t victim = bit(judge->trial->victim);

    answer_add(ret, HSDP_ERR_NO_MEMORY, 0, ANSWER_PROMPT);
    answer_add(ret, HSDP_ERR_UNAVAILABLE, 0, ANSWER_PROMPT);
    answer_add(ret, HSDP_ERR_ABORTED, 0, ANSWER_PROMPT);
    answer_add(ret, HSDP_ERR_PEER_LOST, victim, ANSWER_PROMPT);
}

static void kind_expect(const struct judge *judge, struct answers *ret)
{
    uint64_t victim = bit(judge->trial->victim);

    switch (judge->trial->kind) {
    case FAULT_KILL:
    case FAULT_FORK:
    case FAULT_EXIT:
    case FAULT_LEAVE:
        answer_add(ret, HSDP_ERR_PEER_LOST, victim, ANSWER_PROMPT);
        break;
    case FAULT_STOP:
    case FAULT_STALL:
    case FAULT_CALLBACK:
    case FAULT_NEVER:
        answer_add(ret, HSDP_ERR_TIMEOUT, victim, ANSWER_TIMEOUT);
        break;
    case FAULT_MEMORY:
    case FAULT_MAPPING:
        allocation_expect(judge, ret);
        break;
    case FAULT_WRONG:
        wrong_expect(judge, ret);
        break;
    case FAULT_ABORT:
        answer_add(ret, HSDP_ERR_ABORTED, 0, ANSWER_PROMPT);
        break;
    default:
        break;
    }
}

/*
 * While ranks meet there is less to know: who has not reached rank 0 is missed, not lost; and who
 * comes when rank 0 has given the meeting up finds nobody.
 */
static void connect_expect(const struct judge *judge, const struct call_record *call,
                           struct answers *ret)
{
    uint64_t root_end_ns = connect_end_ns(judge, 0, call->job);

    if (victim_had_not_met(judge, call->job)) {
        answer_add(ret, HSDP_ERR_TIMEOUT, bit(judge->trial->victim), ANSWER_TIMEOUT);
    }
    if (root_end_ns != 0 && root_end_ns < call->start_ns) {
        answer_add(ret, HSDP_ERR_TIMEOUT, bit(0), ANSWER_TIMEOUT);
    }
}

/* The victim of a fault that it survives may be told late: it was not there. */
static bool victim_is_excused(const struct judge *judge, uint32_t rank)
{
    enum fault_kind kind = judge->trial->kind;

    return judge_is_victim(judge, rank) &&
           (kind == FAULT_STOP || kind == FAULT_STALL || kind == FAULT_CALLBACK);
}

/* ------------------------------------------------------------------------- holding against */

static uint64_t missing_mask(const struct hsdp_error *err)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < err->n_missing_ranks && i < HSDP_ERROR_MAX_RANKS; i++) {
        mask |= err->missing_ranks[i] < 64 ? bit(err->missing_ranks[i]) : UINT64_MAX;
    }
    return mask;
}

static const struct answer *answer_match(const struct answers *answers,
                                         const struct hsdp_error *err)
{
    uint64_t mask = missing_mask(err);

    for (uint32_t i = 0; i < answers->n_rows; i++) {
        const struct answer *row = &answers->rows[i];

        if (row->text != NULL &&
            (mask != row->missing || strstr(err->message, row->text) == NULL)) {
            continue;
        }
        if (row->status == err->status && (row->missing == 0 || row->missing == mask) &&
            (row->within == 0 || (mask != 0 && (mask & ~row->within) == 0))) {
            return row;
        }
    }
    return NULL;
}

/* The least timeout of any operation in the trial: the earliest expiry decides for all. */
static uint64_t least_timeout_ms(const struct judge *judge, const struct call_record *call)
{
    const struct trial *t = judge->trial;
    uint64_t least = t->timeout_ms;

    if (call->kind == CALL_CONNECT) {
        return t->init_ms;
    }
    least = t->set_ms != 0 && t->set_ms < least ? t->set_ms : least;
    return t->group_ms != 0 && t->group_ms < least ? t->group_ms : least;
}

static void times_judge(struct judge *judge, uint32_t rank, const struct call_record *call,
                        const struct answer *answer, const struct hsdp_error *reason)
{
    uint64_t from_ns = call->start_ns > judge->fault_ns ? call->start_ns : judge->fault_ns;
    uint64_t least_ms = least_timeout_ms(judge, call);
    uint64_t inexact_ms = call->kind == CALL_CONNECT ? SKEW_MS : 5; /* it waits several times */
    bool is_timeout = answer->time == ANSWER_TIMEOUT;
    uint64_t allowed_ms = answer->time == ANSWER_PROMPT    ? PROMPT_MS
                          : answer->time == ANSWER_SILENCE ? judge->trial->silence_ms + SILENCE_MS
                                                           : call->timeout_ms + TIMEOUT_MS;
    uint64_t took_ns = call->end_ns > from_ns ? call->end_ns - from_ns : 0;

    if (took_ns > judge->judgement->latest_ns) {
        judge->judgement->latest_ns = took_ns;
    }
    if (took_ns > allowed_ms * JUDGE_MS + judge->slack_ns) {
        judge_find(judge, FINDING_LATE, rank,
                   "%s returned %" PRIu64 " ms after the fault or its "
                   "begin, promised are %" PRIu64,
                   call->name, took_ns / JUDGE_MS, allowed_ms);
    }
    if (is_timeout && judge->trial->kind != FAULT_WRONG &&
        (reason->waited_ms + inexact_ms < least_ms ||
         call->end_ns + SKEW_MS * JUDGE_MS + judge->slack_ns <
             judge->fault_ns + least_ms * JUDGE_MS)) {
        judge_find(judge, FINDING_EARLY, rank,
                   "%s timed out %" PRIu64 " ms after the fault, having "
                   "waited %" PRIu64 " ms; T is %" PRIu64,
                   call->name, (call->end_ns - judge->fault_ns) / JUDGE_MS, reason->waited_ms,
                   least_ms);
    }
}

static void name_find(struct judge *judge, uint32_t rank, const struct call_record *call,
                      const struct hsdp_error *err)
{
    judge_find(judge, FINDING_NAME, rank, "%s answers %" PRId32 ", missing 0x%" PRIx64 ": %s",
               call->name, err->status, missing_mask(err), err->message);
}

/* A call that came when the job had failed already. */
static bool call_was_refused(const struct rank_record *own, const struct call_record *call)
{
    char reason[61];

    snprintf(reason, sizeof(reason), "%s", own->first.message);
    return call->status == HSDP_ERR_ABORTED && own->first_status != HSDP_OK &&
           strstr(call->error.message, reason) != NULL;
}

/* The other job failed first, and the host of some rank aborted this one for it. */
static bool other_job_failed(const struct judge *judge, const struct call_record *call)
{
    bool has_failed = false;

    for (uint32_t rank = 0; rank < judge->trial->n_ranks; rank++) {
        has_failed = has_failed || judge->record->ranks[rank].first_job == 1;
    }
    return has_failed && call->status == HSDP_ERR_ABORTED &&
           strstr(call->error.message, "the host gives up") != NULL;
}

void judge_failure(struct judge *judge, uint32_t rank, const struct call_record *call)
{
    const struct rank_record *own = &judge->record->ranks[rank];
    const struct hsdp_error *reason = call_was_refused(own, call) ? &own->first : &call->error;
    struct answers answers = {.n_rows = 0};
    const struct answer *answer;

    if (judge->fault_ns == 0 || trial_is_harmless(judge->trial)) {
        judge_find(judge, FINDING_UNTRUE, rank, "%s failed though nothing is wrong: %" PRId32 " %s",
                   call->name, call->status, call->error.message);
        return;
    }
    if (call->error.message[0] == '\0' || call->error.status != call->status) {
        name_find(judge, rank, call, &call->error);
        return;
    }
    if (victim_is_excused(judge, rank) || other_job_failed(judge, call)) {
        return;
    }
    if (judge->trial->n_nodes > 1) {
        nodes_expect(judge, rank, call, &answers);
    } else {
        kind_expect(judge, &answers);
    }
    if (judge->trial->n_nodes <= 1 && strcmp(call->name, "job.connect") == 0) {
        connect_expect(judge, call, &answers);
    }
    answer = answer_match(&answers, reason);
    if (answer == NULL) {
        name_find(judge, rank, call, reason);
        return;
    }
    times_judge(judge, rank, call, answer, reason);
}
