/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer of the plugin on the shards of a model: what is refused, and the formula. */
#include <check.h>
#include <math.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

static int32_t adamw(struct host *host, const struct hsdp_adamw_spec *spec)
{
    const struct hsdp_adamw_ops *ops;
    const void *table;

    host_must(host, host->api->extension(HSDP_ADAMW_EXTENSION, &table, &host->err));
    ops = table;
    return ops->step(host->model, spec, &host->err);
}

static void adamw_wrong_rank(uint32_t rank, void *shared)
{
    static const double rates[] = {0.1, NAN};
    static const double decays[] = {0.0, -1.0};
    struct hsdp_adamw_spec spec = HSDP_ADAMW_SPEC_INIT;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[2]; unit b: x[2]@1 k[3]!");
    host_load(&host, one);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    host_step(&host, 0.0);
    spec.learning_rate = rates;
    spec.weight_decay = decays;
    spec.beta1 = 1.0;
    spec.epsilon = 1e-8;
    spec.n_hyper_groups = 1;
    host_must_refuse(&host, adamw(&host, &spec), HSDP_ERR_INVALID, "beta1 1");
    spec.beta1 = 0.9;
    spec.beta2 = -0.1;
    host_must_refuse(&host, adamw(&host, &spec), HSDP_ERR_INVALID, "beta2 -0.1");
    spec.beta2 = 0.95;
    host_must_refuse(&host, adamw(&host, &spec), HSDP_ERR_INVALID, "\"x\" is in hyper group 1");
    spec.n_hyper_groups = 2;
    host_must_refuse(&host, adamw(&host, &spec), HSDP_ERR_INVALID, "hyper group 1 has");
    spec.epsilon = 0.0;
    host_must_refuse(&host, adamw(&host, &spec), HSDP_ERR_INVALID, "epsilon 0");
    host_must(&host, host_adamw(&host, 0.0, 0.0));
    host_step_end(&host);
    host_expect_param(&host, "w", 1.0);
    host_expect_param(&host, "x", 1.0);
    host_close(&host);
}

START_TEST(adamw_with_impossible_numbers_is_refused)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, adamw_wrong_rank, NULL);
}
END_TEST

static double not_a_number(struct host_at at)
{
    return at.rank == 1 ? NAN : 1.0;
}

/* A step that refuses such gradients is discarded; one that has updated is not. */
static void adamw_discard_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[2] k[3]!");
    host_load(&host, one);
    host_backward(&host, HSDP_SCOPE_FULL, 0, not_a_number);
    spec.error_if_nonfinite = 1;
    host_must(&host, host.api->step->begin(host.model, &spec, NULL, &host.err));
    host_must_refuse(&host, host_adamw(&host, 0.1, 0.1), HSDP_ERR_NONFINITE, "norm of step 1");
    host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    host_expect_param(&host, "w", 1.0);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    host_step(&host, 0.0);
    host_must(&host, host_adamw(&host, 0.5, 0.0));
    host_must_refuse(&host, host.api->step->discard(host.model, NULL, &host.err), HSDP_ERR_STATE,
                     "step.end was expected");
    host_step_end(&host);
    ck_assert_float_eq_tol(host_export(&host, 0, HSDP_FLAT_MASTER)[1], 0.5f, 1e-6f);
    host_close(&host);
}

START_TEST(adamw_and_discard_do_not_mix)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "param_dtype=bf16");
    ranks_run(2, RANKS_LIMIT_MS, adamw_discard_rank, NULL);
}
END_TEST

static double spread(struct host_at at)
{
    return ldexp(1.0 + (double)at.elem / 64.0, (int)(at.elem % 9) - 4) * (at.param % 2 ? -1 : 1);
}

/* One element by the formula of hsdp/adamw.h, in fp32. */
struct adam {
    float p, m, v;
};

static void adam_step(struct adam *adam, float grad, uint64_t step, double rate, double decay)
{
    float bias1 = (float)(rate / (1.0 - pow(0.9, (double)step)));
    float bias2 = (float)sqrt(1.0 - pow(0.95, (double)step));
    float first = (float)0.9 * adam->m;
    float second = (float)0.95 * adam->v;
    float decayed = adam->p * (float)(1.0 - rate * decay);
    float root;

    adam->m = first + (float)(1.0 - 0.9) * grad;
    adam->v = second + (float)(1.0 - 0.95) * grad * grad;
    root = sqrtf(adam->v) / bias2;
    adam->p = decayed - bias1 * adam->m / (root + 1e-8f);
}

/* One parameter after a step: its weights began as its gradients are. */
static void formula_expect(struct host *host, uint32_t param, struct adam *expected, uint64_t step,
                           double factor)
{
    const float *values = host_export(host, param, HSDP_FLAT_MASTER);
    bool is_second = host->params[param].hyper_group == 1; /* see host_adamw */

    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        struct adam *adam = &expected[elem];
        float grad = (float)spread((struct host_at){0, 0, param, elem});

        adam->p = step == 1 ? grad : adam->p;
        adam_step(adam, grad * (float)factor, step, is_second ? 0.0625 : 0.125,
                  is_second ? 0.0 : 0.25);
        if (fabsf(values[elem] - adam->p) > 1e-6f * (1.0f + fabsf(adam->p))) {
            ck_abort_msg("%s[%u] is %.9g, not %.9g", host->params[param].name, (unsigned)elem,
                         (double)values[elem], (double)adam->p);
        }
    }
}

static void adamw_rank(uint32_t rank, void *shared)
{
    static struct adam expected[2][1031];
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, "unit a: w[1031] k[1]!; unit b: x[31]@1");
    host_load(&host, spread);
    for (uint64_t step = 1; step <= 3; step++) {
        double factor;

        host_backward(&host, HSDP_SCOPE_FULL, 0, spread);
        factor = host_step(&host, 1.0).factor;
        host_must(&host, host_adamw(&host, 0.125, 0.25));
        host_step_end(&host);
        formula_expect(&host, host_param(&host, "w"), expected[0], step, factor);
        formula_expect(&host, host_param(&host, "x"), expected[1], step, factor);
    }
    host_expect_param(&host, "k", spread((struct host_at){0, 0, 1, 0}));
    host_close(&host);
}

START_TEST(adamw_moves_parameters_by_the_formula)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "param_dtype=bf16");
    ranks_run(4, RANKS_LIMIT_MS, adamw_rank, NULL);
}
END_TEST

/* -------------------------------------------------------------------- other numbers on a rank */

#define N_GROUPS 10

enum other {
    RATE,
    DECAY,
    BETA1,
    BETA2,
    EPSILON,
    BIAS_STEP,
    LESS_GROUPS,
    LAST_RATE,
    NO_CALL,
    N_OTHERS
};

static const char *const other_texts[N_OTHERS] = {
    [RATE] = "learning_rate of hyper group 0 is 0.5 on rank 0, 0.25 on rank 1",
    [DECAY] = "weight_decay of hyper group 1 is 0 on rank 0, 0.25 on rank 1",
    [BETA1] = "beta1 is 0.5 on rank 0, 0.25 on rank 1",
    [BETA2] = "beta2 is 0.75 on rank 0, 0.25 on rank 1",
    [EPSILON] = "epsilon is 0.125 on rank 0, 0.25 on rank 1",
    [BIAS_STEP] = "step is 1 on rank 0, 7 on rank 1",
    [LESS_GROUPS] = "n_hyper_groups is 10 on rank 0, 9 on rank 1",
    [LAST_RATE] = "of a hyper group from 8 on differ between rank 0 and rank 1",
    [NO_CALL] = "the number of its calls is 1 on rank 0, 0 on rank 1",
};

static void other_step(struct host *host, enum other other)
{
    double rates[N_GROUPS] = {0.5};
    double decays[N_GROUPS] = {0.0};
    struct hsdp_adamw_spec spec = HSDP_ADAMW_SPEC_INIT;

    spec.learning_rate = rates;
    spec.weight_decay = decays;
    spec.n_hyper_groups = other == LESS_GROUPS ? N_GROUPS - 1 : N_GROUPS;
    spec.beta1 = other == BETA1 ? 0.25 : 0.5;
    spec.beta2 = other == BETA2 ? 0.25 : 0.75;
    spec.epsilon = other == EPSILON ? 0.25 : 0.125;
    spec.step = other == BIAS_STEP ? 7 : 0;
    rates[0] = other == RATE ? 0.25 : 0.5;
    rates[9] = other == LAST_RATE ? 0.25 : 0.0;
    decays[1] = other == DECAY ? 0.25 : 0.0;
    host_must(host, adamw(host, &spec));
}

static void other_rank(uint32_t rank, void *shared)
{
    enum other other = *(enum other *)shared;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;
    int32_t status;

    host_open(&host, rank, "dp=2", host_settings, "unit a: w[2]");
    host_step(&host, 0.0);
    if (rank == 0 || other != NO_CALL) {
        other_step(&host, rank == 0 ? N_OTHERS : other);
    }
    host_step_end(&host);
    status = host.api->step->begin(host.model, &spec, NULL, &host.err);
    if (status == HSDP_OK) { /* the other one has not come yet */
        status = host.api->step->result(host.model, &result, &host.err);
    }
    host_must_refuse(&host, status, HSDP_ERR_MISMATCH, other_texts[other]);
    ck_assert_str_eq(host.err.operation, "adamw.step");
    host_leave(&host);
}

START_TEST(adamw_with_other_numbers_on_a_rank_is_a_mismatch_of_the_next_step)
{
    enum other *other = ranks_memory(sizeof(*other));

    *other = (enum other)(_i % N_OTHERS);
    host_settings_set(_i % HOST_N_STRATEGIES, "");
    ranks_run(2, RANKS_LIMIT_MS, other_rank, other);
}
END_TEST

/* Stages have parameters, and so numbers, of their own. */
static void stages_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=2,dp=2", host_settings, rank < 2 ? "unit a: w[2]" : "unit b: x[2]");
    for (int step = 0; step < 3; step++) {
        host_step(&host, 0.0);
        host_must(&host, host_adamw(&host, rank < 2 ? 0.1 : 0.2, 0.0));
        host_step_end(&host);
    }
    host_close(&host);
}

START_TEST(adamw_with_other_numbers_on_another_stage_succeeds)
{
    host_settings_set(_i, "");
    ranks_run(4, RANKS_LIMIT_MS, stages_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("model_adamw");
    TCase *tcase = tcase_create("model_adamw");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, adamw_with_impossible_numbers_is_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, adamw_and_discard_do_not_mix, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, adamw_moves_parameters_by_the_formula, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, adamw_with_other_numbers_on_a_rank_is_a_mismatch_of_the_next_step, 0,
                        2 * N_OTHERS);
    tcase_add_loop_test(tcase, adamw_with_other_numbers_on_another_stage_succeeds, 0,
                        HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
