/* SPDX-License-Identifier: Apache-2.0 */
/* Expert parallelism changes no number: experts on 1, 2 or 4 ranks, or as dense parameters. */
#include <check.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS      4u
#define N_EXPERTS    4u
#define EXPERT_ELEMS 97u
#define DENSE_ELEMS  31u
#define N_STEPS      3u

/* What comes out: every expert in full, what is dense, and the norms, as the last rank sees them.
 */
struct outcome {
    float experts[N_EXPERTS][EXPERT_ELEMS];
    float dense[DENSE_ELEMS];
    double norms[N_STEPS];
};

/* How it is trained. */
struct training {
    const char *strategy;
    const char *scope;
    const char *expert_over; /* NULL: experts are dense parameters */
    uint32_t n_expert_ranks;
    struct outcome outcome;
};

/* Of the running training; ranks inherit both. */
static uint32_t n_expert_ranks;
static bool is_exact; /* numbers of so few bits that their sums round nowhere */

/* A number without pattern, -1 to 1. */
static float value(uint64_t who, uint64_t batch, uint64_t what, uint64_t elem)
{
    uint64_t x = (who << 40 | batch << 32 | what << 24 | elem) * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 32) >> 11;
    return is_exact ? (float)((int)(x & 127u) - 64) / 64.0f : (float)((double)x * 0x1p-52 - 1.0);
}

/* Parameter 0 is dense, the others are this rank's experts. */
static uint32_t expert_number(uint32_t rank, uint32_t param)
{
    uint32_t n_local = N_EXPERTS / n_expert_ranks;

    return rank % n_expert_ranks * n_local + param - 1;
}

static double weight(struct host_at at)
{
    return at.param == 0 ? value(99, 0, 0, at.elem)
                         : value(99, 0, 1 + expert_number(at.rank, at.param), at.elem);
}

/* An expert sees the tokens of all ranks that share it out: their gradients add up in pairs, as
 * they do where each rank has every expert. */
static double gradient(struct host_at at)
{
    uint32_t first = at.rank - at.rank % n_expert_ranks;
    float sums[N_RANKS];

    if (at.param == 0) {
        return value(at.rank, at.microbatch, 0, at.elem);
    }
    for (uint32_t i = 0; i < n_expert_ranks; i++) {
        sums[i] = value(first + i, at.microbatch, 1 + expert_number(at.rank, at.param), at.elem);
    }
    for (uint32_t gap = 1; gap < n_expert_ranks; gap *= 2) {
        for (uint32_t i = 0; i + gap < n_expert_ranks; i += 2 * gap) {
            sums[i] += sums[i + gap];
        }
    }
    return sums[0];
}

static void outcome_take(struct host *host, struct training *training)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *values = host_export(host, param, HSDP_FLAT_MASTER);

        if (param > 0) { /* replicas write the same */
            memcpy(training->outcome.experts[expert_number(host->rank, param)], values,
                   sizeof(training->outcome.experts[0]));
        } else if (host->rank == N_RANKS - 1) {
            memcpy(training->outcome.dense, values, sizeof(training->outcome.dense));
        }
    }
}

static void training_open(struct host *host, uint32_t rank, const struct training *training)
{
    char dims[32], settings[128], units[256] = "unit d: w[31]; ";

    snprintf(dims, sizeof(dims), "dp=%u,ep=%u", N_RANKS / n_expert_ranks, n_expert_ranks);
    snprintf(settings, sizeof(settings), "sharding_strategy=%s accumulation_scope=%s",
             training->strategy, training->scope);
    if (training->expert_over != NULL) {
        snprintf(units + strlen(units), sizeof(units) - strlen(units), "class expert(%s); ",
                 training->expert_over);
    }
    for (uint32_t i = 0; i < N_EXPERTS / n_expert_ranks; i++) {
        snprintf(units + strlen(units), sizeof(units) - strlen(units), "unit e%u: x%u[97]; ", i, i);
    }
    host_open(host, rank, dims, settings, units);
}

static void training_rank(uint32_t rank, void *shared)
{
    struct training *training = shared;
    bool is_full = strcmp(training->scope, "full") == 0;
    struct host host;

    training_open(&host, rank, training);
    host_load(&host, weight);
    for (uint32_t step = 0; step < N_STEPS; step++) {
        struct hsdp_step_info result;

        host_backward(&host, is_full ? HSDP_SCOPE_FULL : HSDP_SCOPE_NONE, 2 * step, gradient);
        host_backward(&host, HSDP_SCOPE_FULL, 2 * step + 1, gradient);
        result = host_step(&host, 1.0);
        if (rank == N_RANKS - 1) {
            training->outcome.norms[step] = result.norm;
        }
        host_must(&host, host_adamw(&host, 1e-2, 0.1));
        host_step_end(&host);
    }
    outcome_take(&host, training);
    host_close(&host);
}

static const struct training *training_run(struct training spec)
{
    struct training *training = ranks_memory(sizeof(*training));

    *training = spec;
    n_expert_ranks = spec.n_expert_ranks;
    is_exact = strcmp(spec.scope, "none") == 0;
    ranks_run(N_RANKS, RANKS_LIMIT_MS, training_rank, training);
    return training;
}

static bool is_same(const struct training *a, const struct training *b)
{
    return memcmp(&a->outcome, &b->outcome, sizeof(a->outcome)) == 0;
}

static const char *const scopes[] = {"none", "full"};

/* The experts as dense parameters, under ddp: nothing is sharded at all. */
static const struct training *dense_run(const char *scope)
{
    return training_run((struct training){.strategy = "ddp", .scope = scope, .n_expert_ranks = 1});
}

static const struct {
    const char *over;
    uint32_t n_ranks;
} placements[] = {{"dp", 1}, {"dp,ep", 1}, {NULL, 1}, {"dp", 2}, {"dp", 4}};

#define N_PLACEMENTS ((int)(sizeof(placements) / sizeof(placements[0])))

/* With scope none a rank adds up microbatches before ranks are added, or the peers of an expert
 * before microbatches: the same where sums are exact. */
START_TEST(training_of_experts_on_any_ranks_has_the_bits_of_dense_ones)
{
    const char *scope = scopes[_i % 2];
    const struct training *dense = dense_run(scope);

    for (int i = 0; i < N_PLACEMENTS; i++) {
        struct training spec = {.strategy = host_strategies[_i / 2], .scope = scope};

        spec.expert_over = placements[i].over;
        spec.n_expert_ranks = placements[i].n_ranks;
        ck_assert_msg(is_same(dense, training_run(spec)), "%s, %u ranks for the experts, over %s",
                      spec.strategy, spec.n_expert_ranks, spec.expert_over);
    }
}
END_TEST

/* Different experts added up have other numbers, so the comparison above can fail. */
START_TEST(training_of_experts_summed_over_too_many_ranks_has_other_bits)
{
    const struct training *dense = dense_run("none");

    ck_assert(!is_same(
        dense,
        training_run((struct training){
            .strategy = "fsdp", .scope = "none", .expert_over = "dp,ep", .n_expert_ranks = 2})));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("experts");
    TCase *tcase = tcase_create("experts");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, training_of_experts_on_any_ranks_has_the_bits_of_dense_ones, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_test(tcase, training_of_experts_summed_over_too_many_ranks_has_other_bits);
    suite_add_tcase(suite, tcase);
    return suite;
}
