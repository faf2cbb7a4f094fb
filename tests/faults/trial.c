/* SPDX-License-Identifier: Apache-2.0 */
/* Trials: drawing one, and saying what it is. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "faults/trial_internal.h"

const char *const fault_names[FAULT_N_KINDS] = {
    "none",   "kill",    "stop",  "stall", "callback", "delay", "exit", "leave", "fork",
    "memory", "mapping", "wrong", "never", "abort",    "busy",  "drop", "cut",
};
static const char *const wrong_names[WRONG_N_CALLS] = {
    "count",    "dtype",   "reduction", "collective", "setting_set", "missing",    "shape",
    "strategy", "order",   "max_norm",  "discard",    "export",      "extra step", "world",
    "rank",     "timeout", "state",     "argument",   "attempt",
};
static const char *const moment_names[MOMENT_N] = {"before", "inside", "time"};
const char *const call_kind_names[CALL_N_KINDS + 2] = {
    "connect",    "group",  "model",   "unshard", "reduce", "step",
    "collective", "export", "setting", "close",   "later",  "destroy",
};

/* How often each kind is drawn on one host, in a hundred. */
static const uint32_t weights[FAULT_N_KINDS] = {3, 17, 9, 8, 3, 5, 8, 7, 6, 10, 5, 11, 2, 4, 2};

/* The wrong calls of one host: those before. */
#define N_WRONG_ON_ONE_HOST WRONG_ATTEMPT

uint64_t dice_next(struct dice *dice)
{
    uint64_t z = (dice->state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint32_t dice_below(struct dice *dice, uint32_t n)
{
    return (uint32_t)(dice_next(dice) % n);
}

bool dice_is(struct dice *dice, uint32_t percent)
{
    return dice_below(dice, 100) < percent;
}

static void scenario_draw(struct trial *t, struct dice *dice)
{
    t->n_ranks = 2 + dice_below(dice, TRIAL_MAX_RANKS - 1);
    t->ep = t->n_ranks % 2 == 0 && dice_is(dice, 50) ? 2 : 1;
    t->n_dense = 1 + dice_below(dice, 2);
    t->n_experts = t->ep > 1 ? 1 + dice_below(dice, 2) : 0;
    t->dense_strategy = dice_below(dice, 7);
    t->expert_strategy = dice_below(dice, 7);
    t->n_steps = 1 + dice_below(dice, 3);
    t->timeout_ms = dice_is(dice, 85) ? 1000 : 2000;
    t->init_ms = dice_is(dice, 85) ? t->timeout_ms : 2000;
    t->group_ms = dice_is(dice, 20) ? 1500 : 0;
    t->set_ms = dice_is(dice, 30) ? 3000 - t->timeout_ms : 0;
    t->has_store = dice_is(dice, 25);
    t->has_second_job = dice_is(dice, 15);
    t->has_phase = dice_is(dice, 20);
    t->has_export = dice_is(dice, 40);
    t->destroys_job_first = dice_is(dice, 30);
}

enum fault_kind kind_draw(struct dice *dice, const uint32_t weights_of[FAULT_N_KINDS])
{
    uint32_t left = dice_below(dice, 100);
    uint32_t kind = 0;

    while (kind + 1 < FAULT_N_KINDS && left >= weights_of[kind]) {
        left -= weights_of[kind++];
    }
    return (enum fault_kind)kind;
}

/* What a wrong call needs to exist. */
static void wrong_fit(struct trial *t)
{
    if (t->wrong == WRONG_RANK && (t->n_ranks < 3 || t->victim == 0)) {
        t->wrong = WRONG_WORLD;
    }
    if (t->wrong == WRONG_ORDER && t->n_dense + t->n_experts < 2) {
        t->n_dense = 2;
    }
    if (t->wrong == WRONG_DISCARD && t->n_steps < 2) {
        t->n_steps = 2; /* the next step tells */
    }
    if (t->wrong == WRONG_EXPORT) {
        t->has_export = true;
        t->n_dense = 2;
    }
    if (t->wrong == WRONG_SETTING_SET) {
        t->set_ms = 3000 - t->timeout_ms;
    }
    if (t->wrong == WRONG_WORLD || t->wrong == WRONG_RANK || t->wrong == WRONG_TIMEOUT) {
        t->has_second_job = false;
    }
    /* A group of one has nobody to disagree with. */
    if (t->wrong <= WRONG_MISSING && t->n_ranks / t->ep < 2) {
        t->ep = 1;
        t->n_experts = 0;
    }
}

static bool kind_is_timed(enum fault_kind kind)
{
    return kind == FAULT_KILL || kind == FAULT_STOP || kind == FAULT_STALL || kind == FAULT_DELAY ||
           kind == FAULT_EXIT || kind == FAULT_ABORT;
}

static void fault_draw(struct trial *t, struct dice *dice)
{
    uint32_t magnitude = dice_below(dice, 5);

    t->kind = kind_draw(dice, weights);
    t->wrong = (enum wrong_call)dice_below(dice, N_WRONG_ON_ONE_HOST);
    t->victim = dice_below(dice, t->n_ranks);
    t->moment = (enum fault_moment)dice_below(dice, kind_is_timed(t->kind) ? 3 : 2);
    t->at_call = (enum call_kind)dice_below(dice, CALL_N_KINDS);
    t->at_fraction = (double)(dice_next(dice) >> 11) / 9007199254740992.0;
    t->delta_us = 1;
    for (uint32_t i = 0; i < magnitude; i++) {
        t->delta_us *= 10;
    }
    t->delta_us = 1 + dice_below(dice, t->delta_us);
    t->delay_ms = t->kind == FAULT_DELAY ? 10 + dice_below(dice, 140) : 4000;
    t->nth = 1 + (dice_is(dice, 50) ? dice_below(dice, 3) : dice_below(dice, 40));
    t->nth = t->kind == FAULT_MAPPING ? 1 + dice_below(dice, 4) : t->nth;
    t->is_lasting = dice_is(dice, 50);
    t->aborts = dice_is(dice, 50);
    if (t->kind == FAULT_WRONG) {
        wrong_fit(t);
    }
    if (t->kind == FAULT_ABORT) {
        t->has_second_job = false; /* which would wait for those whose first one was aborted */
    }
}

void trial_draw(struct trial *ret, uint64_t seed, uint32_t number)
{
    struct dice dice = {.state = seed * UINT64_C(0xd1342543de82ef95) + number};

    memset(ret, 0, sizeof(*ret));
    ret->seed = seed;
    ret->number = number;
    scenario_draw(ret, &dice);
    fault_draw(ret, &dice);
    nodes_draw(ret);
}

bool trial_is_harmless(const struct trial *t)
{
    return t->kind == FAULT_NONE || t->kind == FAULT_DELAY || t->kind == FAULT_BUSY ||
           (t->kind == FAULT_WRONG && (t->wrong == WRONG_STATE || t->wrong == WRONG_ARGUMENT));
}

/* What is special about a kind. */
static void fault_describe(const struct trial *t, char *ret_text, uint64_t max_bytes)
{
    ret_text[0] = '\0';
    if (t->kind == FAULT_WRONG) {
        snprintf(ret_text, max_bytes, " (%s)", wrong_names[t->wrong]);
    } else if (t->kind == FAULT_MEMORY || t->kind == FAULT_MAPPING) {
        snprintf(ret_text, max_bytes, " (allocation %" PRIu32 "%s fails; the host %s)", t->nth,
                 t->is_lasting ? " and all after it" : "", t->aborts ? "aborts" : "leaves");
    } else if (t->kind == FAULT_DELAY) {
        snprintf(ret_text, max_bytes, " (%" PRIu32 " ms)", t->delay_ms);
    } else if (t->takes_node) {
        snprintf(ret_text, max_bytes, " (all of its node)");
    } else if (t->kind == FAULT_DROP) {
        snprintf(ret_text, max_bytes, " (%s)", t->has_proxy ? "between the two" : "at the leader");
    }
}

static void nodes_describe(const struct trial *t, char *ret_text, uint64_t max_bytes)
{
    size_t n_bytes = 0;

    ret_text[0] = '\0';
    for (uint32_t node = 0; t->n_nodes > 1 && node < t->n_nodes; node++) {
        n_bytes += (size_t)snprintf(ret_text + n_bytes, max_bytes - n_bytes, "%s%" PRIu32,
                                    node == 0 ? " on nodes of " : "+", t->node_ranks[node]);
    }
}

void trial_describe(const struct trial *t, char *ret_text, uint64_t max_bytes)
{
    char fault[96];
    char when[96];
    char nodes[64];

    nodes_describe(t, nodes, sizeof(nodes));
    fault_describe(t, fault, sizeof(fault));
    if (t->moment == MOMENT_TIME) {
        snprintf(when, sizeof(when), "at %.3f of the run", t->at_fraction);
    } else {
        snprintf(when, sizeof(when), "%s %s (%.3f of them), %" PRIu32 " us",
                 moment_names[t->moment], call_kind_names[t->at_call], t->at_fraction, t->delta_us);
    }
    snprintf(ret_text, max_bytes,
             "trial %" PRIu32 ": %s%s of rank %" PRIu32 " of %" PRIu32
             "%s, %s; T %u ms, init %u ms, group %u ms, set %u ms, ep %u, %u+%u units, "
             "strategies %u/%u, %u steps%s%s%s%s",
             t->number, fault_names[t->kind], fault, t->victim, t->n_ranks, nodes, when,
             t->timeout_ms, t->init_ms, t->group_ms, t->set_ms, t->ep, t->n_dense, t->n_experts,
             t->dense_strategy, t->expert_strategy, t->n_steps, t->has_store ? ", store" : "",
             t->has_second_job ? ", second job" : "", t->has_phase ? ", phase" : "",
             t->has_export ? ", export" : "");
}
