/* SPDX-License-Identifier: Apache-2.0 */
/* Ties across units: one storage, names in several units, gradients that add. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"
#include "ranks.h"
#include "serial.h"
#include "suite.h"

static const char *const scopes[] = {"none", "inner", "full"};

/* What a GPT has: an embedding, blocks, and a head that is the embedding once more. */
static const char gpt_units[] =
    "unit emb: wte[50,7] wpe[9,7]; unit b0: q[31]@1 w[7,9]; unit b1: w1[1031]; "
    "unit head: ln[7] out[50,7]=wte";
/* A head without parameters of its own. */
static const char bare_units[] = "unit emb: wte[11,3]; unit b: w[7]; unit head: out[11,3]=wte";

enum { EMB, MIDDLE, HEAD };

/* The names of a chain have gradients 1, 2, 4: sums say who is in them. */
static double by_name(struct host_at at)
{
    return at.param == 0 ? 1.0 : at.param == 2 ? 2.0 : at.param == 3 ? 4.0 : 8.0;
}

static double counted(struct host_at at)
{
    return (double)at.elem;
}

static void unit_backward(struct host *host, uint32_t unit)
{
    host_acquire(host, unit);
    host_fill(host, unit, 0, by_name);
    host_hand_over(host, unit);
}

static int32_t step_begin(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    return host->api->step->begin(host->model, &spec, NULL, &host->err);
}

/* A step in which the gradient of the embedding is this. */
static void step_expect(struct host *host, double gradient)
{
    host_step(host, 0.0);
    host_expect_grad(host, "wte", gradient);
    host_expect_grad(host, "out", gradient);
    host_step_end(host);
}

static void ties_run(int i, const char *more, void (*function)(uint32_t rank, void *shared))
{
    char settings[200];

    snprintf(settings, sizeof(settings), "accumulation_scope=%s %s",
             scopes[i / HOST_N_STRATEGIES % 3], more);
    host_settings_set(i % HOST_N_STRATEGIES, settings);
    ranks_run(2, RANKS_LIMIT_MS, function, NULL);
}

static void bare_open(struct host *host, uint32_t rank)
{
    host_open(host, rank, "dp=2", host_settings, bare_units);
    host_load(host, counted);
}

/* ----------------------------------------------------------------------------------- values */

static void values_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor emb;
    struct hsdp_tensor head;
    struct host host;

    (void)shared;
    bare_open(&host, rank);
    emb = host_view(&host, 0, HSDP_VIEW_PARAM);
    head = host_view(&host, 2, HSDP_VIEW_PARAM);
    ck_assert_ptr_eq(emb.base, head.base);
    ck_assert_uint_eq(emb.byte_offset, head.byte_offset);
    for (uint64_t elem = 0; elem < 33; elem++) {
        ck_assert_float_eq(host_export(&host, 2, HSDP_FLAT_MASTER)[elem], (float)elem);
    }
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_name);
    host_descend(&host, 1.0, host_step(&host, 0.0).factor);
    host_step_end(&host);
    host_must(&host, host_unshard(&host, HEAD, HSDP_USE_FORWARD));
    for (uint64_t elem = 0; elem < 33; elem++) {
        host_expect_number(&host, "out", elem, host_read(&head, elem), (double)elem - 3.0);
    }
    host_must(&host, host_release(&host, HEAD));
    host_close(&host);
}

START_TEST(names_in_two_units_share_values)
{
    ties_run(_i, "", values_rank);
}
END_TEST

/* -------------------------------------------------------------------------------- gradients */

static void sum_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    bare_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_name);
    ck_assert_double_eq(host_step(&host, 0.0).norm, sqrt(33.0 * 9.0 + 7.0 * 64.0));
    host_expect_grad(&host, "wte", 3.0);
    host_expect_grad(&host, "w", 8.0);
    host_step_end(&host);
    host_grad_add(&host, "out", 16.0, "bf16");
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_name);
    step_expect(&host, 19.0);
    host_close(&host);
}

/* Case B6 of tests/cases/README.md, across units; they count once in the norm. */
START_TEST(gradients_of_names_in_two_units_add)
{
    ties_run(_i, "", sum_rank);
}
END_TEST

/* 256 + 1 is no bf16: each view holds its own, and the sum is of fp32. */
static double large_and_small(struct host_at at)
{
    return at.param == 0 ? 256.0 : 1.0;
}

static void wide_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    bare_open(&host, rank);
    ck_assert_uint_eq(host_view(&host, 2, HSDP_VIEW_GRAD).dtype_bits, 16);
    host_backward(&host, HSDP_SCOPE_FULL, 0, large_and_small);
    step_expect(&host, 257.0);
    host_close(&host);
}

START_TEST(gradients_of_bf16_views_add_in_fp32)
{
    ties_run(_i, "gradient_dtype=bf16", wide_rank);
}
END_TEST

/* 256 + 1 + 1 = 258 is a bf16; rounding before the last addition would lose it. */
static void chain_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings,
              "unit a: x[40]; unit b: y[40]=x; unit c: z[40]=y");
    host_backward(&host, HSDP_SCOPE_FULL, 0, large_and_small);
    host_step(&host, 0.0);
    host_expect_grad(&host, "x", 258.0);
    host_expect_grad(&host, "y", 258.0);
    host_expect_grad(&host, "z", 258.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(gradients_of_a_chain_are_rounded_once_for_the_wire)
{
    ties_run(_i, "reduce_dtype=bf16", chain_rank);
}
END_TEST

/* Two names in the second unit: each has a view of its own. */
static void twice_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: x[40] k[3]; unit b: y[40]=x z[40]=x");
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_name);
    host_step(&host, 0.0);
    host_expect_grad(&host, "x", 7.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(gradients_of_two_names_in_one_other_unit_add)
{
    ties_run(_i, "", twice_rank);
}
END_TEST

/* ----------------------------------------------------------------- orders, absent and late */

/* The storage is handed over first, and waits for the turn of the name. */
static void early_rank(uint32_t rank, void *shared)
{
    static const uint32_t units[] = {HEAD, EMB};
    struct host host;

    (void)shared;
    bare_open(&host, rank);
    for (int batch = 0; batch < 3; batch++) {
        host_must(&host, host_backward_begin(&host, units, 2, HSDP_SCOPE_FULL, &host.pass));
        unit_backward(&host, EMB);
        unit_backward(&host, HEAD);
        host_pass_end(&host);
    }
    step_expect(&host, 9.0);
    host_close(&host);
}

START_TEST(reduce_of_the_storage_first_waits_for_the_name)
{
    ties_run(_i, "slots=3", early_rank);
}
END_TEST

/* On rank 0 the head is absent, on rank 1 the embedding. */
static void absent_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    bare_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    if (rank == 1) {
        unit_backward(&host, HEAD);
    } else {
        host_attend(&host, HEAD);
    }
    unit_backward(&host, MIDDLE);
    if (rank == 0) {
        unit_backward(&host, EMB);
    } else {
        host_attend(&host, EMB);
    }
    host_pass_end(&host);
    step_expect(&host, 1.5);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_pass_end(&host);
    step_expect(&host, 0.0);
    host_close(&host);
}

START_TEST(absent_names_add_nothing)
{
    ties_run(_i, "slots=3", absent_rank);
}
END_TEST

/* A pass of the head alone, as a pipeline's last chunk has it; the embedding comes later. */
static void later_rank(uint32_t rank, void *shared)
{
    static const uint32_t back[] = {HEAD, MIDDLE};
    static const uint32_t front[] = {EMB};
    struct host host;

    (void)shared;
    bare_open(&host, rank);
    for (int batch = 0; batch < 2; batch++) {
        host_must(&host, host_backward_begin(&host, back, 2, HSDP_SCOPE_FULL, &host.pass));
        unit_backward(&host, HEAD);
        unit_backward(&host, MIDDLE);
        host_pass_end(&host);
    }
    host_must(&host, host_backward_begin(&host, front, 1, HSDP_SCOPE_FULL, &host.pass));
    unit_backward(&host, EMB);
    host_pass_end(&host);
    step_expect(&host, 5.0);
    host_close(&host);
}

START_TEST(pass_of_the_name_alone_joins_a_later_one)
{
    ties_run(_i, "", later_rank);
}
END_TEST

static void leftover_rank(uint32_t rank, void *shared)
{
    static const uint32_t back[] = {HEAD};
    struct host host;

    (void)shared;
    bare_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_name);
    host_must(&host, host_backward_begin(&host, back, 1, HSDP_SCOPE_FULL, &host.pass));
    unit_backward(&host, HEAD);
    host_pass_end(&host);
    host_must_refuse(&host, step_begin(&host), HSDP_ERR_STATE, "unit \"emb\"");
    ck_assert_str_eq(host.err.unit, "emb");
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_pass_end(&host);
    step_expect(&host, 5.0);
    host_close(&host);
}

START_TEST(gradient_behind_the_last_pass_of_the_storage_is_left_over)
{
    ties_run(_i, "", leftover_rank);
}
END_TEST

static void order_rank(uint32_t rank, void *shared)
{
    static const uint32_t wrong[] = {EMB, MIDDLE, HEAD};
    struct host host;
    uint64_t other;

    (void)shared;
    bare_open(&host, rank);
    host_must_refuse(&host, host_backward_begin(&host, wrong, 3, HSDP_SCOPE_FULL, &other),
                     HSDP_ERR_INVALID,
                     "unit \"emb\" is listed before unit \"head\", whose \"out\" adds gradients to "
                     "its \"wte\"; \"head\" before \"emb\" was expected");
    host_must(&host, host_backward_begin(&host, wrong, 1, HSDP_SCOPE_FULL, &other));
    host_must(&host, host_backward_begin(&host, wrong + 1, 2, HSDP_SCOPE_FULL, &host.pass));
    unit_backward(&host, MIDDLE);
    unit_backward(&host, HEAD);
    host_pass_end(&host);
    host.pass = other;
    unit_backward(&host, EMB);
    host_pass_end(&host);
    step_expect(&host, 3.0);
    host_close(&host);
}

START_TEST(backward_begin_with_the_storage_first_is_refused)
{
    ties_run(_i, "", order_rank);
}
END_TEST

/* ------------------------------------------------------------------------------------- uses */

static void uses_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    bare_open(&host, rank);
    host_must(&host, host_unshard(&host, HEAD, HSDP_USE_FORWARD));
    host_must_refuse(&host, host_release(&host, EMB), HSDP_ERR_STATE, "\"emb\" is not unsharded");
    host_must(&host, host_unshard(&host, EMB, HSDP_USE_FORWARD));
    host_must(&host, host_unshard(&host, MIDDLE, HSDP_USE_FORWARD)); /* slots = 1 */
    host_must(&host, host_release(&host, EMB));
    host_must_refuse(&host, host_release(&host, EMB), HSDP_ERR_STATE, "\"emb\" is not unsharded");
    host_must_refuse(&host, step_begin(&host), HSDP_ERR_STATE, "unit \"b\" is still unsharded");
    host_must(&host, host_release(&host, MIDDLE));
    host_must_refuse(&host, step_begin(&host), HSDP_ERR_STATE, "unit \"head\" is still unsharded");
    host_must(&host, host_release(&host, HEAD));
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_name);
    step_expect(&host, 3.0);
    host_close(&host);
}

/* The head has no memory of its own to unshard, so that it takes no turn, and the block does. */
START_TEST(uses_of_the_name_are_no_uses_of_the_storage)
{
    snprintf(host_settings, sizeof(host_settings), "sharding_strategy=%s slots=2",
             host_strategies[_i]);
    ranks_run(2, RANKS_LIMIT_MS, uses_rank, NULL);
}
END_TEST

/* How a child ends that reads one byte: the signal, or 0. */
static int read_signal(const struct hsdp_tensor *view)
{
    volatile char *byte = (volatile char *)view->base + view->byte_offset;
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        (void)*byte;
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void access_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor view;
    struct host host;

    (void)shared;
    bare_open(&host, rank);
    view = host_view(&host, 2, HSDP_VIEW_PARAM);
    ck_assert_int_eq(read_signal(&view), SIGSEGV);
    host_must(&host, host_unshard(&host, EMB, HSDP_USE_FORWARD));
    host_must(&host, host_unshard(&host, HEAD, HSDP_USE_FORWARD));
    host_must(&host, host_release(&host, EMB));
    ck_assert_int_eq(read_signal(&view), 0);
    host_must(&host, host_unshard(&host, EMB, HSDP_USE_FORWARD));
    host_must(&host, host_release(&host, HEAD));
    ck_assert_int_eq(read_signal(&view), 0);
    host_must(&host, host_release(&host, EMB));
    ck_assert_int_eq(read_signal(&view), SIGSEGV);
    host_close(&host);
}

START_TEST(storage_is_readable_while_a_name_is_in_use)
{
    host_settings_set(_i, "verify=access");
    ranks_run(2, RANKS_LIMIT_MS, access_rank, NULL);
}
END_TEST

static void frozen_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor view;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: x[9]! w[3]; unit b: y[9]!=x v[3]");
    host_load(&host, counted);
    host_must_refuse(&host,
                     host.api->model->param_view(host.model, 2, HSDP_VIEW_GRAD, &view, &host.err),
                     HSDP_ERR_INVALID, "\"x\" is frozen");
    view = host_view(&host, 2, HSDP_VIEW_PARAM);
    host_must(&host, host_unshard(&host, 1, HSDP_USE_FORWARD));
    host_expect_number(&host, "y", 8, host_read(&view, 8), 8.0);
    host_must(&host, host_release(&host, 1));
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_name);
    host_step(&host, 0.0);
    host_expect_grad(&host, "v", 4.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(frozen_names_share_values_and_have_no_gradient)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, frozen_rank, NULL);
}
END_TEST

static void mismatch_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_join(&host, rank, "dp=2", "");
    host_plan(&host, "",
              rank == 0 ? "unit a: x[0] y[0]; unit b: z[0]=x"
                        : "unit a: x[0] y[0]; unit b: z[0]=y");
    host_must_refuse(&host, host.api->model->create(host.job, host.plan, &host.model, &host.err),
                     HSDP_ERR_MISMATCH, "tied_to=\"x\"");
    host_leave(&host);
}

START_TEST(create_with_other_ties_is_refused)
{
    ranks_run(2, RANKS_LIMIT_MS, mismatch_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------- against serial training */

struct run {
    char dims[32];
    const char *units;
    int32_t scope;
};

/* Multiples of 2^-12, so that sums of a few are exact in any order. */
static double exact_gradient(struct host_at at)
{
    uint32_t x = at.rank * 7919u + at.microbatch * 104729u + at.param * 1299709u +
                 (uint32_t)at.elem * 15485863u + 1u;

    x = (x ^ x >> 15) * 0x2c1b3c6du;
    x = (x ^ x >> 12) * 0x297a2d39u;
    return ((double)(x >> 16 & 0x1fffu) - 4096.0) / 4096.0;
}

static double exact_weight(struct host_at at)
{
    at.microbatch = 99;
    return exact_gradient(at);
}

static void window_run(struct host *host, struct serial *serial, uint32_t window)
{
    struct hsdp_step_info result;

    serial->first_batch = window * serial->n_batches;
    for (uint32_t batch = 0; batch < serial->n_batches; batch++) {
        host_forward(host);
        host_backward(host, serial->scopes[batch], serial->first_batch + batch, exact_gradient);
    }
    serial_reduce(serial);
    result = host_step(host, 0.5);
    serial_expect_norm(serial, result.norm);
    serial_expect_grads(serial, host);
    host_descend(host, 0.125, result.factor);
    serial_descend(serial, 0.125, fmin(1.0, 0.5 / (serial->norm + 1e-6)));
    host_step_end(host);
    serial_expect_weights(serial, host);
}

static void run_rank(uint32_t rank, void *shared)
{
    const struct run *run = shared;
    const int32_t batches[] = {run->scope, run->scope, HSDP_SCOPE_FULL};
    struct serial serial;
    struct host host;

    host_open(&host, rank, run->dims, host_settings, run->units);
    host_load(&host, exact_weight);
    serial_init(&serial, &host, exact_weight);
    serial.gradient = exact_gradient;
    serial.scopes = batches;
    serial.n_batches = 3;
    serial.is_local = run->scope == HSDP_SCOPE_NONE;
    window_run(&host, &serial, 0);
    window_run(&host, &serial, 1);
    serial_fini(&serial);
    host_close(&host);
}

/* Strategy, scope, slots and ranks are counted; units and dtypes take turns. */
START_TEST(training_with_ties_equals_serial_training)
{
    static const char *const dims[] = {"dp=1", "dp=2", "dp=3", "dp=2,cp=2"};
    static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
    static const char *const units[] = {
        gpt_units, bare_units,
        "unit a: s[] x[17,3]; unit b: y[17,3]=x f[5]!; unit c: z[17,3]=y none[0]; "
        "unit d: again[0]=none w[1031] t[]=s"};
    static const int32_t n_ranks[] = {1, 2, 3, 4};
    int mesh = _i / (HOST_N_STRATEGIES * 9);
    struct run run = {.scope = _i / HOST_N_STRATEGIES % 3, .units = units[_i % 3]};
    char settings[200];

    snprintf(run.dims, sizeof(run.dims), "%s", dims[mesh]);
    snprintf(settings, sizeof(settings),
             "accumulation_scope=%s slots=%d param_dtype=%s reduce_dtype=%s gradient_dtype=%s",
             scopes[run.scope], 1 + _i / (HOST_N_STRATEGIES * 3) % 3, dtypes[_i % 3],
             dtypes[_i / 3 % 3], dtypes[_i / 9 % 3]);
    host_settings_set(_i % HOST_N_STRATEGIES, settings);
    ranks_run((uint32_t)n_ranks[mesh], RANKS_LIMIT_MS, run_rank, &run);
}
END_TEST

Suite *module_suite(void)
{
    int n_cases = 3 * HOST_N_STRATEGIES; /* strategies and scopes */
    Suite *suite = suite_create("ties");
    TCase *tcase = tcase_create("ties");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, names_in_two_units_share_values, 0, n_cases);
    tcase_add_loop_test(tcase, gradients_of_names_in_two_units_add, 0, n_cases);
    tcase_add_loop_test(tcase, gradients_of_bf16_views_add_in_fp32, 0, n_cases);
    tcase_add_loop_test(tcase, gradients_of_a_chain_are_rounded_once_for_the_wire, 0, n_cases);
    tcase_add_loop_test(tcase, gradients_of_two_names_in_one_other_unit_add, 0, n_cases);
    tcase_add_loop_test(tcase, reduce_of_the_storage_first_waits_for_the_name, 0, n_cases);
    tcase_add_loop_test(tcase, absent_names_add_nothing, 0, n_cases);
    tcase_add_loop_test(tcase, pass_of_the_name_alone_joins_a_later_one, 0, n_cases);
    tcase_add_loop_test(tcase, gradient_behind_the_last_pass_of_the_storage_is_left_over, 0,
                        n_cases);
    tcase_add_loop_test(tcase, backward_begin_with_the_storage_first_is_refused, 0, n_cases);
    tcase_add_loop_test(tcase, uses_of_the_name_are_no_uses_of_the_storage, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, storage_is_readable_while_a_name_is_in_use, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, frozen_names_share_values_and_have_no_gradient, 0,
                        HOST_N_STRATEGIES);
    tcase_add_test(tcase, create_with_other_ties_is_refused);
    tcase_add_loop_test(tcase, training_with_ties_equals_serial_training, 0,
                        4 * 9 * HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
