/* SPDX-License-Identifier: Apache-2.0 */
/* Judging jobs of several nodes: who is named where, for each kind of fault. */
#include <string.h>

#include "faults/judge_internal.h"

/* Whom a rank names that has no way to know who leads its node. */
#define OWN_LEADER "local rank 0 of this host"

/* What a leader met that had none for a connection. */
#define NO_MEMORY "Cannot allocate memory"

/* Who reads, and who it is about. */
struct sight {
    const struct judge *judge;
    struct answers *answers;
    const struct call_record *call;
    uint32_t rank;
    uint64_t victim; /* masks */
    uint64_t node;   /* all ranks of the victim's node */
    bool is_beside;  /* on the victim's node */
    bool is_root;    /* the victim is rank 0 */
    bool is_leader;  /* the victim leads its node */
    bool is_early;   /* ranks are meeting, and the victim may not have come yet */
};

static uint64_t node_mask(const struct trial *trial, uint32_t node)
{
    uint64_t mask = 0;

    for (uint32_t rank = 0; rank < trial->n_ranks; rank++) {
        mask |= (uint64_t)(trial_node_of(trial, rank) == node) << rank;
    }
    return mask;
}

static void text_add(struct sight *sight, int32_t status, enum answer_time time)
{
    struct answers *answers = sight->answers;

    answer_add(answers, status, 0, time);
    answers->rows[answers->n_rows - 1].text = OWN_LEADER;
}

/* ------------------------------------------------------------------------- while ranks meet */

/*
 * Who has not come is missing: on all nodes the victim; where it leads its node, nobody of that
 * node has come to the root, which names them all, and the others of it miss their leader.
 */
static void absence_expect(struct sight *sight)
{
    answer_add(sight->answers, HSDP_ERR_TIMEOUT, sight->victim, ANSWER_TIMEOUT);
    if (sight->is_leader && sight->is_beside) {
        text_add(sight, HSDP_ERR_TIMEOUT, ANSWER_TIMEOUT);
    } else if (sight->is_leader && !sight->is_root) {
        answer_add(sight->answers, HSDP_ERR_TIMEOUT, sight->node, ANSWER_TIMEOUT);
    }
}

/* A death of the leader is seen on its node without knowing which rank that is. */
static void early_death_expect(struct sight *sight)
{
    absence_expect(sight);
    if (sight->is_leader && sight->is_beside) {
        text_add(sight, HSDP_ERR_PEER_LOST, ANSWER_PROMPT);
    }
}

/* A leader serves its link itself while ranks meet: when it stands still, it is silent. */
static void early_standstill_expect(struct sight *sight)
{
    absence_expect(sight);
    if (sight->is_leader && !sight->is_beside) {
        answer_add(sight->answers, HSDP_ERR_PEER_LOST, sight->victim, ANSWER_SILENCE);
        answer_add(sight->answers, HSDP_ERR_PEER_LOST, sight->is_root ? 1 : sight->node,
                   ANSWER_SILENCE);
    }
}

/* Its node hears that it belongs elsewhere; who is left misses them. */
static void attempt_expect(struct sight *sight)
{
    const struct trial *trial = sight->judge->trial;
    uint64_t others = ((UINT64_C(1) << trial->n_ranks) - 1) & ~UINT64_C(1);

    answer_add(sight->answers, HSDP_ERR_MISMATCH, 0, ANSWER_PROMPT);
    absence_expect(sight);
    if (sight->is_root) {
        answer_add(sight->answers, HSDP_ERR_TIMEOUT, others, ANSWER_TIMEOUT);
    }
}

/* Who comes when those whom it looks for have given the meeting up finds nobody. */
static void lateness_expect(struct sight *sight)
{
    const struct judge *judge = sight->judge;
    uint32_t leader = trial_leader_of(judge->trial, trial_node_of(judge->trial, sight->rank));
    uint64_t root_end_ns = connect_end_ns(judge, 0, sight->call->job);
    uint64_t leader_end_ns = connect_end_ns(judge, leader, sight->call->job);

    if (root_end_ns != 0 && root_end_ns < sight->call->start_ns) {
        answer_add(sight->answers, HSDP_ERR_TIMEOUT, 1, ANSWER_TIMEOUT);
    }
    if (leader_end_ns != 0 && leader_end_ns < sight->call->start_ns) {
        text_add(sight, HSDP_ERR_TIMEOUT, ANSWER_TIMEOUT);
    }
}

/* ------------------------------------------------------------------------- afterwards */

static void death_expect(struct sight *sight)
{
    answer_add(sight->answers, HSDP_ERR_PEER_LOST, sight->victim, ANSWER_PROMPT);
    if (sight->is_early) {
        early_death_expect(sight);
    }
}

static void standstill_expect(struct sight *sight)
{
    bool is_stopped = sight->judge->trial->kind == FAULT_STOP;

    if (is_stopped && sight->is_leader && !sight->is_beside) {
        answer_add(sight->answers, HSDP_ERR_PEER_LOST, sight->is_root ? 1 : sight->node,
                   ANSWER_SILENCE);
    } else {
        answer_add(sight->answers, HSDP_ERR_TIMEOUT, sight->victim, ANSWER_TIMEOUT);
    }
    if (sight->is_early) {
        early_standstill_expect(sight);
    }
}

/* Each side of the link names the other: the root its leader, or when it is silent its node. */
static void link_expect(struct sight *sight)
{
    bool is_cut = sight->judge->trial->kind == FAULT_CUT;
    enum answer_time time = is_cut ? ANSWER_SILENCE : ANSWER_PROMPT;
    uint64_t there = is_cut ? sight->node : sight->victim;

    answer_add(sight->answers, HSDP_ERR_PEER_LOST, sight->is_beside ? 1 : there, time);
    if (sight->is_early) { /* before it was let in, or with only its leader known */
        answer_add(sight->answers, HSDP_ERR_PEER_LOST, sight->is_beside ? 1 : sight->victim, time);
        answer_add(sight->answers, HSDP_ERR_TIMEOUT, sight->is_beside ? 1 : sight->node,
                   ANSWER_TIMEOUT);
    }
}

static void allocation_expect(struct sight *sight)
{
    struct answers *answers = sight->answers;

    answer_add(answers, HSDP_ERR_UNAVAILABLE, 0, ANSWER_PROMPT);
    answer_add(answers, HSDP_ERR_ABORTED, 0, ANSWER_PROMPT);
    death_expect(sight);
    if (!sight->is_early) {
        answer_add(answers, HSDP_ERR_NO_MEMORY, 0, ANSWER_PROMPT);
        return;
    }
    /* It may have tried to let others in, or to find the root, until the end. */
    answer_add(answers, HSDP_ERR_NO_MEMORY, 0, ANSWER_BY_TIMEOUT);
    if (sight->is_leader && sight->is_beside) {
        answer_add(answers, HSDP_ERR_TIMEOUT, 1, ANSWER_TIMEOUT);
        answers->rows[answers->n_rows - 1].text = NO_MEMORY;
    }
}

static void kind_expect(struct sight *sight)
{
    switch (sight->judge->trial->kind) {
    case FAULT_KILL:
    case FAULT_FORK:
    case FAULT_EXIT:
    case FAULT_LEAVE:
        death_expect(sight);
        break;
    case FAULT_STOP:
    case FAULT_STALL:
    case FAULT_CALLBACK:
        standstill_expect(sight);
        break;
    case FAULT_NEVER:
        absence_expect(sight);
        break;
    case FAULT_MEMORY:
    case FAULT_MAPPING:
        allocation_expect(sight);
        break;
    case FAULT_DROP:
    case FAULT_CUT:
        link_expect(sight);
        break;
    case FAULT_ABORT:
        answer_add(sight->answers, HSDP_ERR_ABORTED, 0, ANSWER_PROMPT);
        if (sight->is_early) {
            absence_expect(sight);
        }
        break;
    default:
        answer_add(sight->answers, HSDP_ERR_MISMATCH, 0, ANSWER_PROMPT);
        break;
    }
}

void nodes_expect(const struct judge *judge, uint32_t rank, const struct call_record *call,
                  struct answers *ret)
{
    const struct trial *trial = judge->trial;
    uint32_t node = trial_node_of(trial, trial->victim);
    bool is_connect = strcmp(call->name, "job.connect") == 0;
    struct sight sight = {.judge = judge, .answers = ret, .call = call, .rank = rank};

    sight.victim = UINT64_C(1) << trial->victim;
    sight.node = node_mask(trial, node);
    sight.is_beside = trial_node_of(trial, rank) == node;
    sight.is_root = trial->victim == 0;
    sight.is_leader = trial->takes_node || trial_leader_of(trial, node) == trial->victim;
    sight.is_early = is_connect && victim_had_not_met(judge, call->job);
    if (trial->takes_node) { /* without the root nobody knows who else is missing */
        sight.is_root = node == 0;
        sight.victim = sight.is_root ? 1 : sight.node;
    }
    if (trial->kind == FAULT_WRONG && trial->wrong == WRONG_ATTEMPT) {
        attempt_expect(&sight);
    } else {
        kind_expect(&sight);
    }
    if (is_connect) {
        lateness_expect(&sight);
    }
}
