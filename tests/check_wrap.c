/* SPDX-License-Identifier: Apache-2.0 */
/* verify=wrap on models that are right: it finds nothing, and leaves nothing behind. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

/* What a case runs on; ranks inherit it. */
static char dims[64];
static char units[256];

static uint32_t n_ranks_of(const char *text)
{
    uint32_t n_ranks = 1;

    for (const char *at = strchr(text, '='); at != NULL; at = strchr(at + 1, '=')) {
        n_ranks *= (uint32_t)atoi(at + 1);
    }
    return n_ranks;
}

/* ---------------------------------------------------------------------------- as if unproved */

static bool is_of_calls(const char *name)
{
    return strcmp(name, "steps") == 0 || strcmp(name, "unshards") == 0 ||
           strcmp(name, "reductions") == 0 || strncmp(name, "traffic.", 8) == 0 ||
           strncmp(name, "operations.", 11) == 0;
}

static void counters_expect_zero(struct host *host)
{
    const char *name;
    uint64_t n_of_calls = 0;
    uint64_t value;

    for (uint64_t i = 0; host->api->diag->counter_name(host->job, i, &name, NULL) == HSDP_OK; i++) {
        if (is_of_calls(name)) {
            host_must(host, host->api->diag->counter(host->job, name, &value, &host->err));
            ck_assert_msg(value == 0, "counter %s is %u", name, (unsigned)value);
            n_of_calls++;
        }
    }
    ck_assert_uint_ge(n_of_calls, 3);
}

static void masters_expect_zero(struct host *host)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *values = host_export(host, param, HSDP_FLAT_MASTER);

        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            host_expect_number(host, "master", elem, (double)values[elem], 0.0);
        }
        host_expect_param(host, host->params[param].name, 0.0);
    }
}

/* A first window and step, as of any model; `one` from every rank. */
static void first_step(struct host *host)
{
    struct hsdp_step_info result;

    host_backward(host, HSDP_SCOPE_FULL, 0, one);
    result = host_step(host, 0.0);
    ck_assert_uint_eq(result.step, 1);
    ck_assert(isfinite(result.norm));
    host_step_end(host);
}

static void wrap_rank(uint32_t rank, void *shared)
{
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct host host;

    (void)shared;
    host_open(&host, rank, dims, host_settings, units);
    counters_expect_zero(&host);
    host_must(&host, host.api->model->info(host.model, &info, &host.err));
    ck_assert_uint_eq(info.step, 0);
    ck_assert_uint_eq(info.n_states, 0);
    ck_assert_uint_eq(info.is_stepping + info.is_editing, 0);
    masters_expect_zero(&host);
    first_step(&host);
    host_close(&host);
}

/* ------------------------------------------------------------------------------ every model */

static const struct {
    const char *dims;
    const char *expert_over;
} meshes[] = {
    {"dp=1", "dp"},           {"dp=2", "dp"},
    {"dp=3", "dp"},           {"dp=8", "dp"},
    {"dp=2,cp=1,ep=1", "dp"}, {"dp=1,cp=2,ep=1", "dp,cp"},
    {"dp=1,cp=1,ep=2", "dp"}, {"dp=2,cp=2", "dp"},
    {"dp=2,ep=2", "ep"},      {"dp=2,cp=1,ep=2", "dp"},
    {"pp=2,dp=2", "dp"},      {"dp=2,tp=2", "dp"},
    {"dp=2,cp=2,ep=2", "dp"}, {"dp=5", ""},
};

static const char shapes[] = "unit a: s[] w[7,3]@1 none[0,4] b[5]!; unit f: froz[31]!; "
                             "unit t: emb[11,3] head[11,3]=emb big[1031]; unit n: nil[0]; "
                             "class expert(%s); unit e: x[3000] y[2,2]@1; unit g: z[1021]";

/* Dtypes, scopes and slots take turns; every strategy on every mesh. */
START_TEST(create_of_a_right_model_proves_it_and_leaves_nothing)
{
    int mesh = _i / HOST_N_STRATEGIES;
    char more[200];

    snprintf(dims, sizeof(dims), "%s", meshes[mesh].dims);
    snprintf(units, sizeof(units), shapes, meshes[mesh].expert_over);
    snprintf(more, sizeof(more),
             "verify=wrap param_dtype=%s reduce_dtype=%s gradient_dtype=%s accumulation_scope=%s "
             "slots=%d",
             host_dtypes[_i % 3], host_dtypes[_i / 2 % 3], host_dtypes[(_i / 3 + _i) % 3],
             host_scopes[_i / 5 % 3], 1 + _i % 3);
    host_settings_set(_i % HOST_N_STRATEGIES, more);
    ranks_run(n_ranks_of(dims), RANKS_LIMIT_MS, wrap_rank, NULL);
}
END_TEST

/* Every dtype of parameters, masters, wire and gradients in every scope. */
START_TEST(create_in_any_dtype_proves_the_model)
{
    char more[200];

    snprintf(dims, sizeof(dims), "dp=2,cp=2");
    snprintf(units, sizeof(units), shapes, "cp");
    snprintf(more, sizeof(more),
             "verify=wrap param_dtype=%s master_dtype=%s reduce_dtype=%s gradient_dtype=%s "
             "accumulation_scope=%s",
             host_dtypes[_i / 3 % 3], host_dtypes[(_i / 3 + _i / 9 + _i) % 3],
             host_dtypes[_i / 9 % 3], host_dtypes[_i / 27], host_scopes[_i % 3]);
    host_settings_set(_i % HOST_N_STRATEGIES, more);
    ranks_run(4, RANKS_LIMIT_MS, wrap_rank, NULL);
}
END_TEST

/* Sums, divisors of the host's own, other checks beside it. */
static const char *const others[] = {
    "gradient_op=sum",
    "gradient_divisor=7",
    "gradient_divisor=16777216 reduce_dtype=fp16",
    "verify=access",
    "verify=step:1",
    "verify=access,step:2",
    "shard_size=2",
    "replicate_dims=dp slots=1",
};

START_TEST(create_with_other_settings_proves_the_model)
{
    const char *other = others[_i / HOST_N_STRATEGIES];
    char more[200];

    if (strncmp(other, "verify=", 7) == 0) {
        snprintf(more, sizeof(more), "verify=wrap,%s", other + 7);
    } else {
        snprintf(more, sizeof(more), "verify=wrap %s", other);
    }
    snprintf(dims, sizeof(dims), "dp=4");
    snprintf(units, sizeof(units), shapes, "dp");
    host_settings_set(_i % HOST_N_STRATEGIES, more);
    ranks_run(4, RANKS_LIMIT_MS, wrap_rank, NULL);
}
END_TEST

/* Norm weights under tensor parallelism: replicated over tp, reduced there or not. */
START_TEST(create_of_what_is_replicated_over_tp_proves_it)
{
    snprintf(dims, sizeof(dims), "dp=2,tp=2");
    snprintf(units, sizeof(units), "unit a: w[70]; class ln%s; unit b: x[5000]",
             _i % 2 == 0 ? "(dp,tp)(dp)" : "(dp,tp)");
    host_settings_set(_i / 2, "verify=wrap");
    ranks_run(4, RANKS_LIMIT_MS, wrap_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- stages */

static void stages_rank(uint32_t rank, void *shared)
{
    static const char *const plans[] = {"unit a: w[5]; unit b: x[7]", "unit c: y[1031]",
                                        "unit d: z[3]!"};
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=3,dp=2", host_settings, plans[rank / 2]);
    masters_expect_zero(&host);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    ck_assert_double_eq(host_step(&host, 0.0).norm, sqrt(5.0 + 7.0 + 1031.0));
    host_step_end(&host);
    host_close(&host);
}

START_TEST(create_with_other_plans_on_other_stages_proves_them)
{
    host_settings_set(_i, "verify=wrap");
    ranks_run(6, RANKS_LIMIT_MS, stages_rank, NULL);
}
END_TEST

/* Names for parameters of other units, and copies on other stages. */
static const char *const ties[][3] = {
    {"unit a: emb[40] w[3]; unit b: x[1031]; unit c: head[40]=emb t[5]; unit d: last[40]=emb",
     "unit e: z[3]", "unit f: y[7]! v[2]"},
    {"unit a: emb[5000]~pp[0,-1] w[3]", "unit b: x[1031]",
     "unit c: y[9]; unit d: emb[5000]~pp[0,-1]"},
    {"unit a: emb[50]~pp; unit b: out[50]=emb~pp", "unit b: emb[50]~pp", "unit c: emb[50]~pp y[9]"},
};

static void ties_rank(uint32_t rank, void *row)
{
    const char *const *plans = ties[*(int *)row];
    struct host host;

    host_open(&host, rank, "pp=3,dp=2", host_settings, plans[rank / 2]);
    counters_expect_zero(&host);
    masters_expect_zero(&host);
    first_step(&host);
    host_close(&host);
}

START_TEST(create_of_tied_parameters_proves_them)
{
    int row = _i / HOST_N_STRATEGIES;

    host_settings_set(_i % HOST_N_STRATEGIES,
                      _i % 2 == 0 ? "verify=wrap" : "verify=wrap reduce_dtype=bf16 slots=1");
    ranks_run(6, RANKS_LIMIT_MS, ties_rank, &row);
}
END_TEST

/* Two models on one job, one of them at work while the other is made. */
static void two_rank(uint32_t rank, void *shared)
{
    hsdp_model *second = NULL;
    uint64_t before;
    uint64_t after;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5000]");
    first_step(&host);
    host_must(&host, host.api->diag->counter(host.job, "reductions", &before, &host.err));
    ck_assert_uint_gt(before, 0);
    host_must(&host, host.api->model->create(host.job, host.plan, &second, &host.err));
    host_must(&host, host.api->diag->counter(host.job, "reductions", &after, &host.err));
    ck_assert_uint_eq(after, before);
    host.api->model->destroy(second);
    host_close(&host);
}

START_TEST(create_of_a_second_model_leaves_the_counters_of_the_first)
{
    host_settings_set(_i, "verify=wrap");
    ranks_run(2, RANKS_LIMIT_MS, two_rank, NULL);
}
END_TEST

/* Errors count from 1, as if there had been no proof. */
static void first_rank(uint32_t rank, void *shared)
{
    static const uint32_t order[] = {0};
    _Atomic uint32_t *n_done = shared;
    uint64_t ticket = 0;
    struct host host;

    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5]");
    if (rank == 1) { /* stays away */
        ranks_meet(n_done, 2);
        host_leave(&host);
        return;
    }
    host_must(&host, host_backward_begin(&host, order, 1, HSDP_SCOPE_FULL, &host.pass));
    host_must(&host, host.api->unit->backward_end(host.model, host.pass, NULL, &ticket, &host.err));
    host_must_refuse(&host, host.api->job->ticket_wait(host.job, ticket, UINT64_MAX, &host.err),
                     HSDP_ERR_TIMEOUT, "unit \"a\", sequence 1");
    ck_assert_uint_eq(host.err.sequence, 1);
    ranks_meet(n_done, 2);
    host_leave(&host);
}

START_TEST(create_leaves_the_numbers_of_operations_at_none)
{
    host_settings_set(_i, "verify=wrap nccl_timeout_seconds=1");
    ranks_run(2, RANKS_LIMIT_MS, first_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

static void first_unshard_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;
    int32_t status;

    (void)shared;
    host_open(&host, rank, "dp=2", "verify=wrap", "unit a: w[5]; unit b: x[7]");
    host_attend(&host, rank);
    status = host.api->step->begin(host.model, &spec, NULL, &host.err);
    if (status == HSDP_OK) { /* the other one has not come yet */
        status = host.api->step->result(host.model, &result, &host.err);
    }
    host_must_refuse(&host, status, HSDP_ERR_MISMATCH,
                     "number 1 in group \"dp\": unit \"a\" on rank 0, unit \"b\" on rank 1");
    host_leave(&host);
}

START_TEST(create_leaves_the_numbers_of_unshards_at_none)
{
    ranks_run(2, RANKS_LIMIT_MS, first_unshard_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("wrap");
    TCase *tcase = tcase_create("wrap");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, create_of_a_right_model_proves_it_and_leaves_nothing, 0,
                        N_OF(meshes) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, create_in_any_dtype_proves_the_model, 0, 81);
    tcase_add_loop_test(tcase, create_with_other_settings_proves_the_model, 0,
                        N_OF(others) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, create_of_what_is_replicated_over_tp_proves_it, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, create_with_other_plans_on_other_stages_proves_them, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, create_of_tied_parameters_proves_them, 0,
                        N_OF(ties) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, create_of_a_second_model_leaves_the_counters_of_the_first, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, create_leaves_the_numbers_of_operations_at_none, 0,
                        HOST_N_STRATEGIES);
    tcase_add_test(tcase, create_leaves_the_numbers_of_unshards_at_none);
    suite_add_tcase(suite, tcase);
    return suite;
}
