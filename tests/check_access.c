/* SPDX-License-Identifier: Apache-2.0 */
/* Access to views: what a host may not touch faults at the line that does it. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "four_units.h"
#include "suite.h"

static const char units[] = "unit a: w[5,3] k[3]!; unit b: x[1031] s[]; unit f: g[2]!";

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

/* How a child ends that touches one byte: the signal, or 0. */
static int touch_signal(const struct hsdp_tensor *view, bool is_write)
{
    volatile char *byte = (volatile char *)view->base + view->byte_offset;
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (is_write) {
            *byte = 1;
        } else {
            (void)*byte;
        }
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* The same for the gradient of a unit of four. */
static int grad_signal(struct host *host, uint32_t unit)
{
    static const char *const names[] = {"w", "x", "y", "z"};
    struct hsdp_tensor view = host_view(host, host_param(host, names[unit]), HSDP_VIEW_GRAD);

    return touch_signal(&view, true);
}

/* ------------------------------------------------------------------------------ parameters */

static void write_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor view;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, units);
    for (uint32_t param = 0; param < host.n_params; param++) {
        uint32_t unit = host.params[param].unit;

        view = host_view(&host, param, HSDP_VIEW_PARAM);
        host_must(&host, host_unshard(&host, unit, HSDP_USE_FORWARD));
        ck_assert_int_eq(touch_signal(&view, false), 0);
        ck_assert_int_eq(touch_signal(&view, true), SIGSEGV);
        host_must(&host, host_release(&host, unit));
    }
    host_close(&host);
}

START_TEST(write_to_an_unsharded_parameter_faults)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "param_dtype=bf16");
    ranks_run(2, RANKS_LIMIT_MS, write_rank, NULL);
}
END_TEST

static void access_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor view;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, units);
    host_load(&host, one);
    view = host_view(&host, 0, HSDP_VIEW_PARAM);
    ck_assert_int_eq(touch_signal(&view, false), SIGSEGV);
    host_expect_param(&host, "w", 1.0);
    ck_assert_int_eq(touch_signal(&view, false), SIGSEGV);
    host_must(&host, host_unshard(&host, 0, HSDP_USE_FORWARD));
    host_must(&host, host_unshard(&host, 0, HSDP_USE_FORWARD));
    host_must(&host, host_release(&host, 0));
    ck_assert_int_eq(touch_signal(&view, false), 0);
    host_must(&host, host_release(&host, 0));
    ck_assert_int_eq(touch_signal(&view, false), SIGSEGV);
    host_close(&host);
}

START_TEST(read_after_release_faults_where_access_is_verified)
{
    host_settings_set(_i, "verify=access");
    ranks_run(2, RANKS_LIMIT_MS, access_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------- gradients */

static void reduced_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor param;
    struct host host;

    (void)shared;
    four_open(&host, rank);
    param = host_view(&host, host_param(&host, "z"), HSDP_VIEW_PARAM);
    ck_assert_int_eq(grad_signal(&host, D), SIGSEGV); /* nobody has acquired it */
    for (int pass = 0; pass < 2; pass++) {
        host_pass_begin(&host, HSDP_SCOPE_FULL);
        host_acquire(&host, D);
        ck_assert_int_eq(grad_signal(&host, D), 0);
        ck_assert_int_eq(touch_signal(&param, true), SIGSEGV);
        host_fill(&host, D, 0, four_gradient);
        host_hand_over(&host, D);
        ck_assert_int_eq(grad_signal(&host, D), SIGSEGV);
        host_pass_end(&host);
        ck_assert_int_eq(grad_signal(&host, D), SIGSEGV);
    }
    host_step(&host, 0.0);
    host_expect_grad(&host, "z", 4.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(write_to_a_reduced_gradient_faults)
{
    char more[64];

    snprintf(more, sizeof(more), "verify=access slots=%d accumulation_scope=%s", 1 + _i % 3,
             host_scopes[_i / 3 % 3]);
    four_run(_i / 9, more, reduced_rank, NULL);
}
END_TEST

/* With two slots c and d are live together, and b comes where d was. */
static void neighbour_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_acquire(&host, D);
    host_acquire(&host, C);
    host_fill(&host, D, 0, four_gradient);
    host_hand_over(&host, D);
    ck_assert_int_eq(grad_signal(&host, D), SIGSEGV);
    ck_assert_int_eq(grad_signal(&host, C), 0);
    host_acquire(&host, B);
    host_fill(&host, C, 0, four_gradient);
    host_hand_over(&host, C);
    ck_assert_int_eq(grad_signal(&host, C), SIGSEGV);
    ck_assert_int_eq(grad_signal(&host, B), 0);
    host_fill(&host, B, 0, four_gradient);
    host_hand_over(&host, B);
    four_finish_pass(&host, "dcb");
}

START_TEST(write_to_the_gradient_of_a_neighbour_does_not_fault)
{
    four_run(_i / 2, _i % 2 == 0 ? "verify=access" : "verify=access accumulation_scope=full",
             neighbour_rank, NULL);
}
END_TEST

static void absent_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_must(&host, host_skip(&host, D));
    ck_assert_int_eq(grad_signal(&host, D), SIGSEGV);
    ck_assert_int_eq(grad_signal(&host, C), SIGSEGV);
    host_pass_end(&host);
    ck_assert_int_eq(grad_signal(&host, C), SIGSEGV);
    four_finish(&host);
}

START_TEST(write_to_a_skipped_gradient_faults)
{
    four_run(_i, "verify=access", absent_rank, NULL);
}
END_TEST

/* The host writes what it wants to; where nothing is verified, nobody stops it. */
static void unverified_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    four_backward(&host, D);
    host_pass_end(&host);
    ck_assert_int_eq(grad_signal(&host, D), 0);
    host_step(&host, 0.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(write_to_a_gradient_faults_only_where_access_is_verified)
{
    four_run(_i, "", unverified_rank, NULL);
}
END_TEST

/* A late gradient, and one of several dtypes, are the engine's to write. */
static void engine_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    for (int window = 0; window < 3; window++) {
        host_pass_begin(&host, HSDP_SCOPE_FULL);
        host_grad_add(&host, "z", 1.0, "bf16");
        for (uint32_t unit = D + 1; unit-- > A;) {
            four_backward(&host, unit);
        }
        host_pass_end(&host);
        host_step(&host, 0.0);
        host_expect_grad(&host, "z", 3.0);
        host_expect_grad(&host, "w", 2.0);
        host_must(&host, host_adamw(&host, 0.1, 0.0));
        host_step_end(&host);
        host_forward(&host);
    }
    host_close(&host);
}

START_TEST(training_with_verified_access_does_not_fault)
{
    static const char *const more[] = {
        "verify=access", "verify=access accumulation_scope=inner gradient_dtype=bf16",
        "verify=access,wrap,step:1 accumulation_scope=full param_dtype=bf16 slots=3"};

    four_run(_i / 3, more[_i % 3], engine_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("access");
    TCase *tcase = tcase_create("access");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, write_to_an_unsharded_parameter_faults, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, read_after_release_faults_where_access_is_verified, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, write_to_a_reduced_gradient_faults, 0, 9 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, write_to_the_gradient_of_a_neighbour_does_not_fault, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, write_to_a_skipped_gradient_faults, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, write_to_a_gradient_faults_only_where_access_is_verified, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, training_with_verified_access_does_not_fault, 0,
                        3 * HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
