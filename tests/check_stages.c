/* SPDX-License-Identifier: Apache-2.0 */
/* Ties across pipeline stages: copies of a parameter in other units of other ranks. */
#include <math.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

#define N_TIED 1033 /* elements of "emb" */

/* Stages of their own layout: the parameter lies in another unit, at another offset. A '*' stands
 * for the ranks that hold it. */
static const char first_units[] = "unit e: emb[1033]* pos[5]; unit a: w[31]";
static const char inner_units[] = "unit b: v[64]; unit c: x[700]";
static const char last_units[] = "unit d: u[2050]; unit h: ln[2100] k[3]! emb[1033]* z[7]";
static const char between_units[] = "unit m: y[900] emb[1033]*; unit n: q[3]";

/* What a rank's stage has: the shared parameter where it is a holder. */
struct pipeline {
    const char *dims; /* pp first */
    const char *holders;
    const char *settings;
    uint32_t n_stages;
    uint32_t n_ranks;
    bool is_holder[4];
};

static const struct pipeline pipelines[] = {
    {"pp=2,dp=1", "~pp[0,-1]", "", 2, 2, {true, true}},
    {"pp=2,dp=2", "~pp[0,-1]", "", 2, 4, {true, true}},
    {"pp=2,dp=2,cp=2", "~pp", "", 2, 8, {true, true}},
    {"pp=4,dp=2", "~pp[-1,0]", "", 4, 8, {true, false, false, true}},
    {"pp=4,dp=1", "~pp[0,2,-1]", "", 4, 4, {true, false, true, true}},
    {"pp=4,dp=2", "~pp[1,3]", "", 4, 8, {false, true, false, true}},
    {"pp=2,dp=3", "~pp[0,1]", "", 2, 6, {true, true}},
};
#define N_PIPELINES ((int)(sizeof(pipelines) / sizeof(pipelines[0])))

static const char *const scopes[] = {"none", "inner", "full"};

static uint32_t stage_of(const struct pipeline *p, uint32_t rank)
{
    return rank / (p->n_ranks / p->n_stages);
}

static void stage_open(struct host *host, const struct pipeline *p, uint32_t rank)
{
    uint32_t stage = stage_of(p, rank);
    const char *format = stage == 0                 ? first_units
                         : stage == p->n_stages - 1 ? last_units
                         : p->is_holder[stage]      ? between_units
                                                    : inner_units;
    size_t n_front;
    char units[256];

    if (stage == 0 && !p->is_holder[0]) {
        format = inner_units;
    }
    n_front = strcspn(format, "*");
    snprintf(units, sizeof(units), "%.*s%s%s", (int)n_front, format,
             format[n_front] == '*' ? p->holders : "", format + n_front + (format[n_front] == '*'));
    host_open(host, rank, p->dims, host_settings, units);
}

static bool is_tied(const struct host *host, uint32_t param)
{
    return strcmp(host->params[param].name, "emb") == 0;
}

static const struct host *at_host; /* this rank's: gradients depend on what is tied */

/* Small multiples of 1/8: any sum of them is exact. */
static double tied_gradient(uint32_t rank, uint32_t microbatch, uint64_t elem)
{
    return ((double)((rank * 31 + microbatch * 17 + elem * 7) % 61) - 30.0) / 8.0;
}

static double stage_gradient(struct host_at at)
{
    return is_tied(at_host, at.param) ? tied_gradient(at.rank, at.microbatch, at.elem)
                                      : ((double)(at.elem % 5) - 2.0) / 4.0;
}

/* The sum over all ranks of the holders' stages, which is divided by the data ranks of one. */
static double tied_expected(const struct pipeline *p, uint32_t n_batches, uint64_t elem)
{
    float sum = 0.0f;

    for (uint32_t rank = 0; rank < p->n_ranks; rank++) {
        for (uint32_t b = 0; b < n_batches && p->is_holder[stage_of(p, rank)]; b++) {
            sum += (float)tied_gradient(rank, b, elem);
        }
    }
    return (double)(sum / (float)(p->n_ranks / p->n_stages));
}

/* What all parameters of a stage but the tied one have in a norm, of one microbatch on each rank;
 * parameters that data ranks hold count once. */
static double untied_squares(const struct pipeline *p, uint32_t stage)
{
    static const uint64_t sizes[4][4] = {{5, 31}, {64, 700}, {2050, 2100, 7}, {900, 3}};
    int row = stage == 0 && p->is_holder[0] ? 0
              : stage == p->n_stages - 1    ? 2
              : p->is_holder[stage]         ? 3
                                            : 1;
    double squares = 0.0;

    for (int i = 0; i < 4; i++) {
        for (uint64_t elem = 0; elem < sizes[row][i]; elem++) {
            double value = ((double)(elem % 5) - 2.0) / 4.0;

            squares += value * value;
        }
    }
    return squares;
}

static void stages_run(int i, const char *more, void (*function)(uint32_t rank, void *shared))
{
    const struct pipeline *p = &pipelines[i / HOST_N_STRATEGIES % N_PIPELINES];
    char settings[128];

    snprintf(settings, sizeof(settings), "accumulation_scope=%s slots=%d %s", scopes[i % 3],
             1 + i % 2, more);
    host_settings_set(i % HOST_N_STRATEGIES, settings);
    ranks_run(p->n_ranks, RANKS_LIMIT_MS, function, (void *)p);
}

/* -------------------------------------------------------------------------------- gradients */

static void grads_expect(struct host *host, const struct pipeline *p, uint32_t n_batches)
{
    const float *values;

    if (!p->is_holder[stage_of(p, host->rank)]) {
        return;
    }
    values = host_export(host, host_param(host, "emb"), HSDP_FLAT_GRAD);
    for (uint64_t elem = 0; elem < N_TIED; elem++) {
        host_expect_number(host, "emb", elem, (double)values[elem],
                           tied_expected(p, n_batches, elem));
    }
}

static void sum_rank(uint32_t rank, void *shared)
{
    const struct pipeline *p = shared;
    double squares = 0.0;
    double norm;
    struct host host;

    stage_open(&host, p, rank);
    at_host = &host;
    for (uint32_t stage = 0; stage < p->n_stages; stage++) {
        squares += untied_squares(p, stage);
    }
    for (uint64_t elem = 0; elem < N_TIED; elem++) { /* once */
        squares += tied_expected(p, 1, elem) * tied_expected(p, 1, elem);
    }
    for (int step = 0; step < 3; step++) {
        host_backward(&host, HSDP_SCOPE_FULL, 0, stage_gradient);
        norm = host_step(&host, 0.0).norm;
        ck_assert_msg(fabs(norm - sqrt(squares)) <= 1e-6 * norm, "norm %.9g, not %.9g", norm,
                      sqrt(squares));
        grads_expect(&host, p, 1);
        host_step_end(&host);
    }
    host_close(&host);
}

START_TEST(gradients_of_copies_on_stages_add_and_count_once)
{
    stages_run(_i, "", sum_rank);
}
END_TEST

static void window_rank(uint32_t rank, void *shared)
{
    const struct pipeline *p = shared;
    const char *scope = strstr(host_settings, "scope=") + 6;
    int32_t first = strncmp(scope, "none", 4) == 0    ? HSDP_SCOPE_NONE
                    : strncmp(scope, "inner", 5) == 0 ? HSDP_SCOPE_INNER
                                                      : HSDP_SCOPE_FULL;
    struct host host;

    stage_open(&host, p, rank);
    at_host = &host;
    host_backward(&host, first, 0, stage_gradient);
    host_backward(&host, HSDP_SCOPE_FULL, 1, stage_gradient);
    host_step(&host, 0.0);
    grads_expect(&host, p, 2);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(gradients_of_a_window_add_over_stages_once)
{
    stages_run(_i, "param_dtype=bf16", window_rank);
}
END_TEST

/* Several ties, in another order on each stage, and one that only two of them have. */
static double named_gradient(struct host_at at)
{
    const char *name = at_host->params[at.param].name;

    return (double)((at.elem * 3 + (uint64_t)name[0] + at.rank) % 29);
}

static void several_expect(struct host *host, const char *name, uint64_t n_elems,
                           uint32_t n_holders)
{
    const float *values = host_export(host, host_param(host, name), HSDP_FLAT_GRAD);

    for (uint64_t elem = 0; elem < n_elems; elem++) {
        double sum = 0.0;

        for (uint32_t rank = 0; rank < 2 * n_holders; rank++) { /* the first stages hold it */
            sum += (double)((elem * 3 + (uint64_t)name[0] + rank) % 29);
        }
        host_expect_number(host, name, elem, (double)values[elem], sum / 2.0);
    }
}

static void several_rank(uint32_t rank, void *shared)
{
    static const char *const units[] = {
        "unit a: x[9]~pp y[1031]~pp; unit b: z[70]~pp[0,1]",
        "unit c: z[70]~pp[0,1]; unit d: w[2050] y[1031]~pp; unit e: x[9]~pp",
        "unit f: y[1031]~pp k[31]!; unit g: x[9]~pp"};
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=3,dp=2", host_settings, units[rank / 2]);
    at_host = &host;
    host_backward(&host, HSDP_SCOPE_FULL, 0, named_gradient);
    host_step(&host, 0.0);
    several_expect(&host, "x", 9, 3);
    several_expect(&host, "y", 1031, 3);
    if (rank < 4) {
        several_expect(&host, "z", 70, 2);
    }
    host_step_end(&host);
    host_close(&host);
}

START_TEST(several_ties_find_each_other_by_name)
{
    host_settings_set(_i, "");
    ranks_run(6, RANKS_LIMIT_MS, several_rank, NULL);
}
END_TEST

/* Three holders, of which the pairs are added first: 1 + 2^-24 is 1, and so again. */
static double tree_gradient(struct host_at at)
{
    return at.rank == 0 ? 1.0 : 0x1p-24;
}

static void tree_rank(uint32_t rank, void *shared)
{
    static const char *const units[] = {"unit a: x[9]~pp", "unit b: w[40] x[9]~pp",
                                        "unit c: x[9]~pp; unit d: v[3]"};
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=3,dp=1", host_settings, units[rank]);
    host_backward(&host, HSDP_SCOPE_FULL, 0, tree_gradient);
    host_step(&host, 0.0);
    host_expect_grad(&host, "x", 1.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(sum_over_stages_is_the_tree_in_their_order)
{
    host_settings_set(_i, "");
    ranks_run(3, RANKS_LIMIT_MS, tree_rank, NULL);
}
END_TEST

/* Over two dimensions the inner one is summed first: 1 and 2^-24, three times, one by one. In pairs
 * across both, two of the small ones would come first, and count. */
static double plane_gradient(struct host_at at)
{
    return at.rank == 0 ? 1.0 : at.rank <= 3 ? 0x1p-24 : 0.0;
}

static void plane_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=2,tp=3,dp=1", host_settings,
              rank < 3 ? "unit a: x[9]~pp,tp" : "unit b: w[40] x[9]~pp,tp");
    host_backward(&host, HSDP_SCOPE_FULL, 0, plane_gradient);
    host_step(&host, 0.0);
    host_expect_grad(&host, "x", 1.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(sum_over_two_dimensions_goes_along_the_inner_first)
{
    host_settings_set(_i, "");
    ranks_run(6, RANKS_LIMIT_MS, plane_rank, NULL);
}
END_TEST

/* The largest element of all is tied, and each p counts it once. */
static double steep_gradient(struct host_at at)
{
    return at.elem == 0 ? 2.0 : 0.0;
}

static void p_norm_rank(uint32_t rank, void *shared)
{
    const double p = *(double *)shared;
    double expected;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;

    host_open(&host, rank, "pp=2,dp=2", host_settings,
              rank < 2 ? "unit a: x[9]~pp" : "unit b: w[40] x[9]~pp");
    host_backward(&host, HSDP_SCOPE_FULL, 0, steep_gradient);
    spec.norm_p = p;
    host_must(&host, host.api->step->begin(host.model, &spec, NULL, &host.err));
    host_must(&host, host.api->step->result(host.model, &result, &host.err));
    /* "x" has 2 + 2 on two stages, "w" 2 */
    expected = isinf(p) ? 4.0 : pow(pow(4.0, p) + pow(2.0, p), 1.0 / p);
    ck_assert_msg(fabs(result.norm - expected) <= 1e-12, "%.17g", result.norm);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(norms_count_what_is_tied_over_stages_once)
{
    static double ps[] = {1.0, 2.0, 3.5, INFINITY};

    host_settings_set(_i / 4, "");
    ranks_run(4, RANKS_LIMIT_MS, p_norm_rank, &ps[_i % 4]);
}
END_TEST

/* The last stage has no gradient of its copy, in the second step in no pass at all. */
static void absent_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=2,dp=2", host_settings,
              rank < 2 ? "unit a: x[9]~pp" : "unit b: x[9]~pp; unit c: w[40]");
    for (int step = 0; step < 2; step++) {
        if (rank < 2) {
            host_backward(&host, HSDP_SCOPE_FULL, 0, steep_gradient);
        } else if (step == 0) {
            host_pass_begin(&host, HSDP_SCOPE_FULL);
            host_pass_end(&host);
        }
        ck_assert_double_eq(host_step(&host, 0.0).norm, 2.0);
        ck_assert_float_eq(host_export(&host, 0, HSDP_FLAT_GRAD)[0], 2.0f);
        ck_assert_float_eq(host_export(&host, 0, HSDP_FLAT_GRAD)[1], 0.0f);
        host_step_end(&host);
    }
    host_close(&host);
}

START_TEST(stage_without_a_gradient_adds_zeros)
{
    host_settings_set(_i, "");
    ranks_run(4, RANKS_LIMIT_MS, absent_rank, NULL);
}
END_TEST

/* Names within units, across units and over stages at once: three and one add to four. */
static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

static void names_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=2,dp=2", host_settings,
              rank < 2 ? "unit a: x[9]~pp y[9]=x; unit b: z[9]=x~pp; unit c: w[5] t[9]=y"
                       : "unit d: w[2100] x[9]~pp");
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    ck_assert_double_eq(host_step(&host, 0.0).norm, sqrt(9.0 * 16.0 + 5.0 + 2100.0));
    host_expect_grad(&host, "x", 4.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(ties_within_and_over_stages_add)
{
    host_settings_set(_i, "");
    ranks_run(4, RANKS_LIMIT_MS, names_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------ copies stay copies */

/* What the stages compare, through memory of the test. */
struct shown {
    _Atomic uint32_t n_there[16];
    float values[2][8][N_TIED]; /* of two steps in turn, by rank */
};

static double awkward_gradient(struct host_at at)
{
    uint32_t x = at.rank * 7919u + at.microbatch * 104729u + (uint32_t)at.elem * 15485863u + 1u;

    x = (x ^ x >> 15) * 0x2c1b3c6du;
    x = (x ^ x >> 12) * 0x297a2d39u;
    return (double)(int32_t)x / 3e9;
}

static double awkward_weight(struct host_at at)
{
    at.rank = 0; /* equal on all stages */
    at.microbatch = 77;
    return awkward_gradient(at);
}

static void copies_compare(struct host *host, struct shown *shown, uint32_t step, int32_t flat)
{
    float(*values)[N_TIED] = shown->values[step % 2];
    const float *mine = host_export(host, host_param(host, "emb"), flat);

    memcpy(values[host->rank], mine, sizeof(values[0]));
    ranks_meet(&shown->n_there[step], host->n_ranks);
    for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
        ck_assert_msg(memcmp(values[rank], values[host->rank], sizeof(values[0])) == 0,
                      "step %u: the copy of rank %u differs from that of rank %u", step, rank,
                      host->rank);
    }
}

static void adamw_rank(uint32_t rank, void *shared)
{
    struct shown *shown = shared;
    struct host host;

    stage_open(&host, &pipelines[1], rank);
    host_load(&host, awkward_weight);
    for (uint32_t step = 0; step < 4; step++) {
        host_forward(&host);
        host_backward(&host, HSDP_SCOPE_FULL, step, awkward_gradient);
        host_step(&host, 0.5);
        host_must(&host, host_adamw(&host, 0.01, 0.1));
        host_step_end(&host);
        copies_compare(&host, shown, step, HSDP_FLAT_MASTER);
    }
    copies_compare(&host, shown, 4, HSDP_FLAT_STATE);
    host_close(&host);
}

START_TEST(copies_on_stages_stay_equal_over_steps)
{
    char settings[128];

    snprintf(settings, sizeof(settings), "accumulation_scope=%s param_dtype=%s reduce_dtype=bf16",
             scopes[_i % 3], _i % 2 == 0 ? "fp32" : "bf16");
    host_settings_set(_i % HOST_N_STRATEGIES, settings);
    ranks_run(4, RANKS_LIMIT_MS, adamw_rank, ranks_memory(sizeof(struct shown)));
}
END_TEST

static double by_rank(struct host_at at)
{
    return 100.0 * at.rank + (double)at.elem;
}

/* Every rank fills its own shard with its number, and the first copies win. */
static void state_fill(struct host *host, int32_t flat)
{
    uint32_t param = host_param(host, "emb");
    float values[N_TIED];
    struct hsdp_tensor full = host_tensor(host, param, values, "fp32");

    for (uint64_t elem = 0; elem < N_TIED; elem++) {
        values[elem] = (float)(host->rank * 2 + (uint32_t)(elem % 64)); /* bf16 holds it */
    }
    host_must(host, host->api->model->import_param(host->model, param, flat, &full, HSDP_ALL_RANKS,
                                                   NULL, &host->err));
}

static void sync_rank(uint32_t rank, void *shared)
{
    const struct hsdp_model_ops *ops;
    struct shown *shown = shared;
    uint32_t states[2];
    struct host host;

    stage_open(&host, &pipelines[1], rank);
    ops = host.api->model;
    host_must(&host, ops->state_create(host.model, "a", "bf16", &states[0], &host.err));
    host_must(&host, ops->state_create(host.model, "b", "fp32", &states[1], &host.err));
    host_load(&host, by_rank);
    host_must(&host, ops->edit_begin(host.model, NULL, &host.err));
    state_fill(&host, HSDP_FLAT_STATE);
    state_fill(&host, HSDP_FLAT_STATE + 1);
    host_must(&host, ops->sync(host.model, NULL, &host.err));
    host_must(&host, ops->edit_end(host.model, NULL, &host.err));
    for (int i = 0; i < 3; i++) {
        copies_compare(&host, shown, (uint32_t)i, i == 0 ? HSDP_FLAT_MASTER : 15 + i);
    }
    ck_assert_float_eq(host_export(&host, host_param(&host, "emb"), HSDP_FLAT_MASTER)[1], 1.0f);
    host_close(&host);
}

START_TEST(sync_gives_the_first_holders_values_to_all)
{
    host_settings_set(_i % HOST_N_STRATEGIES, _i < HOST_N_STRATEGIES ? "" : "param_dtype=bf16");
    ranks_run(4, RANKS_LIMIT_MS, sync_rank, ranks_memory(sizeof(struct shown)));
}
END_TEST

/* Frozen copies are synchronised, and have no gradient. */
static void frozen_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=2,dp=2", host_settings,
              rank < 2 ? "unit a: x[9]!~pp" : "unit b: w[40]; unit c: v[31]! x[9]!~pp");
    host_load(&host, by_rank);
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    host_must(&host, host.api->model->sync(host.model, NULL, &host.err));
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    ck_assert_float_eq(host_export(&host, host_param(&host, "x"), HSDP_FLAT_MASTER)[8], 8.0f);
    if (rank >= 2) {
        host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    }
    ck_assert_double_eq(host_step(&host, 0.0).norm, sqrt(40.0));
    host_step_end(&host);
    host_close(&host);
}

START_TEST(frozen_copies_are_synchronised)
{
    host_settings_set(_i, "");
    ranks_run(4, RANKS_LIMIT_MS, frozen_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("stages");
    TCase *tcase = tcase_create("stages");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, gradients_of_copies_on_stages_add_and_count_once, 0,
                        N_PIPELINES * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, gradients_of_a_window_add_over_stages_once, 0,
                        N_PIPELINES * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, several_ties_find_each_other_by_name, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sum_over_stages_is_the_tree_in_their_order, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sum_over_two_dimensions_goes_along_the_inner_first, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, norms_count_what_is_tied_over_stages_once, 0, 3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, stage_without_a_gradient_adds_zeros, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, ties_within_and_over_stages_add, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, copies_on_stages_stay_equal_over_steps, 0, 3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sync_gives_the_first_holders_values_to_all, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, frozen_copies_are_synchronised, 0, HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
