/* SPDX-License-Identifier: Apache-2.0 */
/* Every strategy against training without sharding, on a table of meshes. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "host.h"
#include "ranks.h"
#include "serial.h"
#include "suite.h"

/* ------------------------------------------------------------------------------ random numbers */

/* A number without pattern from a few others; the same on every rank that asks. */
static uint64_t mixed(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t x = a;

    x = (x ^ b) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 29 ^ c) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 32 ^ d) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t seed; /* of the running case; ranks inherit it */

/* -1 to 1 */
static double unit_value(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-52 - 1.0;
}

static double random_weight(struct host_at at)
{
    return unit_value(mixed(seed, 1, at.rank * 64u + at.param, at.elem));
}

static double random_gradient(struct host_at at)
{
    return unit_value(mixed(seed, at.microbatch * 64u + at.rank + 100, at.param, at.elem));
}

/* ---------------------------------------------------------------------------- a table of meshes */

struct run {
    char dims[64];
    char settings[256];
    char units[1024];
    int32_t scopes[4]; /* of a window's microbatches; the last is full */
    uint32_t n_batches;
    uint32_t n_slots;
    bool is_local;
};

/* A window, a step of gradient descent, and what is then in it. */
static void window_run(struct host *host, struct serial *serial, const struct run *run,
                       uint32_t window)
{
    struct hsdp_step_info result;

    serial->scopes = run->scopes;
    serial->n_batches = run->n_batches;
    serial->first_batch = window * run->n_batches;
    serial->is_local = run->is_local;
    serial->gradient = random_gradient;
    for (uint32_t batch = 0; batch < run->n_batches; batch++) {
        host_forward(host);
        host_backward(host, run->scopes[batch], serial->first_batch + batch, random_gradient);
    }
    serial_reduce(serial);
    result = host_step(host, 0.5);
    serial_expect_norm(serial, result.norm);
    serial_expect_grads(serial, host);
    host_descend(host, 0.125, result.factor);
    serial_descend(serial, 0.125, fmin(1.0, 0.5 / (serial->norm + 1e-6)));
    host_step_end(host);
}

static void run_rank(uint32_t rank, void *shared)
{
    const struct run *run = shared;
    struct serial serial;
    struct host host;

    host_open(&host, rank, run->dims, run->settings, run->units);
    host_load(&host, random_weight);
    serial_init(&serial, &host, random_weight);
    serial_expect_weights(&serial, &host);
    window_run(&host, &serial, run, 0);
    serial_expect_weights(&serial, &host);
    window_run(&host, &serial, run, 1);
    serial_expect_weights(&serial, &host);
    serial_fini(&serial);
    host_close(&host);
}

/* Scalars, empty and prime sizes, ties, frozen parameters and frozen units. */
static const char every_shape[] =
    "unit a: s[] w[7,3]@1 none[0,4] b[5]!; unit f: froz[31]!; "
    "unit t: emb[11,3] head[11,3]=emb big[1031]; unit z: one[1] ln[13]";
static const char with_experts[] =
    "unit a: w[7,3] b[5]!; class expert(%s); unit e: x[37] y[2,2]@1; unit g: z[1021]";

static const struct {
    const char *dims;
    uint32_t n_ranks;
    const char *expert_over;
} meshes[] = {
    {"dp=1", 1, "dp"},
    {"dp=2", 2, "dp"},
    {"dp=3", 3, "dp"},
    {"dp=4", 4, "dp"},
    {"dp=2,cp=1,ep=1", 2, "dp,cp"},
    {"dp=1,cp=2,ep=1", 2, "dp,cp"},
    {"dp=1,cp=1,ep=2", 2, "dp,cp"},
    {"dp=1,cp=1,ep=1", 1, "dp,cp"},
    {"dp=2,cp=2,ep=1", 4, "dp,cp"},
    {"dp=2,cp=1,ep=2", 4, "dp,cp"},
    {"dp=1,cp=2,ep=2", 4, "dp,cp"},
    {"dp=2,ep=2", 4, "ep"},
    {"pp=2,dp=2", 4, "dp"},
    {"ep=2,dp=2", 4, "dp"},
    {"dp=2,tp=2", 4, "dp"},
};

static uint32_t run_ranks_of(const char *dims)
{
    uint32_t n_ranks = 1;

    for (const char *at = strchr(dims, '='); at != NULL; at = strchr(at + 1, '=')) {
        n_ranks *= (uint32_t)atoi(at + 1);
    }
    return n_ranks;
}

static void run_start(struct run *run)
{
    ranks_run(run_ranks_of(run->dims), RANKS_LIMIT_MS, run_rank, run);
}

/* The loop index counts strategies and meshes; shapes and dtypes take turns. */
START_TEST(training_with_any_strategy_equals_serial_training)
{
    int mesh = _i / HOST_N_STRATEGIES;
    struct run run = {.n_batches = 2, .is_local = true, .scopes = {0, HSDP_SCOPE_FULL}};

    seed = (uint64_t)_i + 1;
    snprintf(run.dims, sizeof(run.dims), "%s", meshes[mesh].dims);
    snprintf(run.settings, sizeof(run.settings), "sharding_strategy=%s param_dtype=%s",
             host_strategies[_i % HOST_N_STRATEGIES], host_dtypes[_i % 3]);
    snprintf(run.units, sizeof(run.units), "%s", every_shape);
    run_start(&run);
}
END_TEST

START_TEST(training_of_experts_equals_serial_training)
{
    int mesh = _i / HOST_N_STRATEGIES;
    struct run run = {.n_batches = 2, .is_local = true, .scopes = {0, HSDP_SCOPE_FULL}};

    seed = (uint64_t)_i + 1000;
    snprintf(run.dims, sizeof(run.dims), "%s", meshes[mesh].dims);
    snprintf(run.settings, sizeof(run.settings),
             "sharding_strategy=%s reduce_dtype=%s gradient_dtype=%s",
             host_strategies[_i % HOST_N_STRATEGIES], host_dtypes[_i % 3], host_dtypes[_i / 3 % 3]);
    snprintf(run.units, sizeof(run.units), with_experts, meshes[mesh].expert_over);
    run_start(&run);
}
END_TEST

/* Layer norms under tensor parallelism: replicated over tp; their gradients are equal there, or,
 * with sequence parallelism, partial. */
static double by_data_rank(struct host_at at)
{
    return at.rank / 2 == 0 ? 1.0 : 3.0;
}

static void tensor_parallel_rank(uint32_t rank, void *shared)
{
    bool is_partial = *(bool *)shared;
    struct host host;

    host_open(&host, rank, "dp=2,tp=2", host_settings,
              is_partial ? "class ln(dp,tp); unit a: w[9]" : "class ln(dp,tp)(dp); unit a: w[9]");
    host_load(&host, random_weight);
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_data_rank);
    ck_assert_double_eq(host_step(&host, 0.0).norm, is_partial ? 12.0 : 6.0);
    host_expect_grad(&host, "w", is_partial ? 4.0 : 2.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(norm_of_what_is_replicated_over_tp_counts_once)
{
    bool is_partial = _i % 2 != 0;

    host_settings_set(_i / 2, "");
    ranks_run(4, RANKS_LIMIT_MS, tensor_parallel_rank, &is_partial);
}
END_TEST

/* Every dtype of parameters, wire and gradients, in every scope. */
START_TEST(training_in_any_dtype_equals_serial_training)
{
    struct run run = {.n_batches = 3, .dims = "dp=2,cp=2"};
    int scope = _i % 3;

    seed = (uint64_t)_i + 2000;
    run.is_local = scope == HSDP_SCOPE_NONE;
    run.scopes[0] = scope;
    run.scopes[1] = _i % 2 == 0 ? scope : HSDP_SCOPE_FULL;
    run.scopes[2] = HSDP_SCOPE_FULL;
    snprintf(run.settings, sizeof(run.settings),
             "sharding_strategy=%s param_dtype=%s reduce_dtype=%s gradient_dtype=%s "
             "accumulation_scope=%s slots=%d",
             host_strategies[_i % HOST_N_STRATEGIES], host_dtypes[_i / 3 % 3],
             host_dtypes[_i / 9 % 3], host_dtypes[_i / 27], host_scopes[scope], 1 + _i % 4);
    snprintf(run.units, sizeof(run.units), "%s", every_shape);
    run_start(&run);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("strategies");
    TCase *tcase = tcase_create("strategies");

    tcase_set_timeout(tcase, 90);
    tcase_add_loop_test(tcase, training_with_any_strategy_equals_serial_training, 0,
                        N_OF(meshes) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, training_of_experts_equals_serial_training, 0,
                        N_OF(meshes) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, norm_of_what_is_replicated_over_tp_counts_once, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, training_in_any_dtype_equals_serial_training, 0, 81);
    suite_add_tcase(suite, tcase);
    return suite;
}
