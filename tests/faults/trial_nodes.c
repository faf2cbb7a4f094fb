/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of several nodes: how many ranks each has, and what goes wrong with whom. */
#include "faults/trial_internal.h"

#define NODES_PERCENT 20u
#define T_MS          2000u /* twice the silence: so it is clear which of the two was first */
#define SILENCE_MS    1000u

static const uint32_t weights[FAULT_N_KINDS] = {
    [FAULT_NONE] = 2,  [FAULT_KILL] = 15, [FAULT_STOP] = 12,    [FAULT_STALL] = 7,
    [FAULT_EXIT] = 5,  [FAULT_LEAVE] = 6, [FAULT_CALLBACK] = 2, [FAULT_DELAY] = 4,
    [FAULT_FORK] = 6,  [FAULT_WRONG] = 9, [FAULT_MEMORY] = 4,   [FAULT_MAPPING] = 2,
    [FAULT_NEVER] = 6, [FAULT_ABORT] = 4, [FAULT_BUSY] = 2,     [FAULT_DROP] = 7,
    [FAULT_CUT] = 7,
};

/* The wrong calls that there are. */
static const enum wrong_call wrongs[] = {
    WRONG_SETTING_SET, WRONG_SETTING_SET, WRONG_MISSING, WRONG_WORLD,
    WRONG_RANK,        WRONG_TIMEOUT,     WRONG_ATTEMPT, WRONG_ATTEMPT,
};

/* When: mostly where ranks wait for each other. */
static const enum call_kind moments[] = {
    CALL_CONNECT, CALL_CONNECT, CALL_CONNECT, CALL_GROUP, CALL_MODEL,
    CALL_SETTING, CALL_SETTING, CALL_SETTING, CALL_CLOSE, CALL_CLOSE,
};

uint32_t trial_node_of(const struct trial *t, uint32_t rank)
{
    uint32_t node = 0;

    while (node + 1 < t->n_nodes && rank >= t->node_ranks[node]) {
        rank -= t->node_ranks[node++];
    }
    return node;
}

uint32_t trial_leader_of(const struct trial *t, uint32_t node)
{
    uint32_t rank = 0;

    for (uint32_t i = 0; i < node; i++) {
        rank += t->node_ranks[i];
    }
    return rank;
}

bool trial_is_absent(const struct trial *t, uint32_t rank)
{
    return t->kind == FAULT_NEVER &&
           (rank == t->victim ||
            (t->takes_node && trial_node_of(t, rank) == trial_node_of(t, t->victim)));
}

static void sizes_draw(struct trial *t, struct dice *dice)
{
    t->n_nodes = 2 + dice_below(dice, TRIAL_MAX_NODES - 1);
    t->n_ranks = 0;
    for (uint32_t node = 0; node < t->n_nodes; node++) {
        uint32_t room = TRIAL_MAX_RANKS - t->n_ranks - (t->n_nodes - node - 1);

        t->node_ranks[node] = 1 + dice_below(dice, room < 3 ? room : 3);
        t->n_ranks += t->node_ranks[node];
    }
}

/* The root, another leader, or anybody. */
static uint32_t victim_draw(const struct trial *t, struct dice *dice)
{
    uint32_t leader = trial_leader_of(t, 1 + dice_below(dice, t->n_nodes - 1));
    uint32_t role = dice_below(dice, 3);

    if (t->kind == FAULT_DROP || t->kind == FAULT_CUT) {
        return leader; /* whose link it is */
    }
    return role == 0 ? 0 : role == 1 ? leader : dice_below(dice, t->n_ranks);
}

static bool kind_is_brief(enum fault_kind kind)
{
    return kind == FAULT_KILL || kind == FAULT_EXIT || kind == FAULT_FORK || kind == FAULT_LEAVE ||
           kind == FAULT_NONE || kind == FAULT_DELAY || kind == FAULT_BUSY;
}

/* What the kind needs to exist. */
static void kind_fit(struct trial *t, struct dice *dice)
{
    if (t->kind == FAULT_STOP || t->kind == FAULT_STALL || t->kind == FAULT_CALLBACK ||
        t->kind == FAULT_CUT) {
        t->silence_ms = SILENCE_MS;
    }
    if (t->kind == FAULT_CUT || t->kind == FAULT_DROP) {
        t->has_proxy = t->kind == FAULT_CUT || dice_is(dice, 50);
        t->has_store = t->has_proxy;
    }
    if (t->kind == FAULT_WRONG) {
        t->wrong = wrongs[dice_below(dice, sizeof(wrongs) / sizeof(wrongs[0]))];
        if (t->wrong == WRONG_RANK && (t->n_ranks < 3 || t->victim == 0)) {
            t->wrong = WRONG_WORLD;
        }
        t->has_store = t->has_store && t->wrong != WRONG_ATTEMPT;
    }
    t->takes_node = t->kind == FAULT_NEVER && dice_is(dice, 40);
    t->has_second_job = t->has_second_job && kind_is_brief(t->kind);
    t->delay_ms = t->kind == FAULT_DELAY ? 10 + dice_below(dice, 140) : 4500;
}

static bool kind_is_timed(enum fault_kind kind)
{
    return kind == FAULT_KILL || kind == FAULT_STOP || kind == FAULT_STALL || kind == FAULT_DELAY ||
           kind == FAULT_EXIT || kind == FAULT_ABORT || kind == FAULT_DROP || kind == FAULT_CUT;
}

void nodes_draw(struct trial *t)
{
    struct dice dice = {.state = t->seed * UINT64_C(0xa0761d6478bd642f) +
                                 t->number * UINT64_C(0xe7037ed1a0b428db)};

    t->n_nodes = 1;
    if (!dice_is(&dice, NODES_PERCENT)) {
        return;
    }
    sizes_draw(t, &dice);
    t->ep = 1;
    t->n_experts = 0;
    t->timeout_ms = T_MS;
    t->init_ms = dice_is(&dice, 85) ? T_MS : T_MS + 1000;
    t->set_ms = T_MS + 1000;
    t->group_ms = 0;
    t->has_store = dice_is(&dice, 30);
    t->has_second_job = dice_is(&dice, 15);
    t->has_phase = dice_is(&dice, 50);
    t->has_export = false;
    t->kind = kind_draw(&dice, weights);
    t->victim = victim_draw(t, &dice);
    t->at_call = moments[dice_below(&dice, sizeof(moments) / sizeof(moments[0]))];
    t->moment = (enum fault_moment)dice_below(&dice, kind_is_timed(t->kind) ? MOMENT_N : 2);
    kind_fit(t, &dice);
}
