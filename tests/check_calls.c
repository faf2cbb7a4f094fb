/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in the wrong order: each error names the unit and the call that was expected. */
#include <check.h>

#include "four_units.h"
#include "suite.h"

/* A call is refused with exactly this sentence, and the error's fields name unit and operation. */
static void refusal_expect(const struct host *host, int32_t status, const char *operation,
                           const char *unit, const char *sentence)
{
    ck_assert_int_eq(status, HSDP_ERR_STATE);
    ck_assert_str_eq(host->err.message, sentence);
    ck_assert_str_eq(host->err.operation, operation);
    ck_assert_str_eq(host->err.unit, unit);
}

static int32_t step_begin(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    return host->api->step->begin(host->model, &spec, NULL, &host->err);
}

/* --------------------------------------------------------------------------------- windows */

static void window_rank(uint32_t rank, void *shared)
{
    static const uint32_t only[] = {C};
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_must(&host, host_backward_begin(&host, only, 1, HSDP_SCOPE_NONE, &host.pass));
    four_backward(&host, C);
    host_pass_end(&host);
    refusal_expect(&host, step_begin(&host), "step.begin", "c",
                   "step.begin: unit \"c\" holds gradients that no pass of scope full has taken "
                   "up; such a pass was expected as the last one of the window");
    host_must(&host, host_backward_begin(&host, only, 1, HSDP_SCOPE_FULL, &host.pass));
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "y", 2.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(step_behind_an_unclosed_window_names_the_unit)
{
    four_run(_i, "", window_rank, NULL);
}
END_TEST

static void open_pass_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    refusal_expect(&host, step_begin(&host), "step.begin", "a",
                   "step.begin: unit \"a\" is in an open backward pass; unit.backward_end was "
                   "expected");
    four_finish_pass(&host, "");
}

START_TEST(step_in_an_open_pass_names_a_unit)
{
    four_run(_i, "", open_pass_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------------------- passes */

static void second_begin_rank(uint32_t rank, void *shared)
{
    static const uint32_t only[] = {B};
    struct host host;
    uint64_t pass;

    (void)shared;
    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    refusal_expect(&host, host_backward_begin(&host, only, 1, HSDP_SCOPE_FULL, &pass),
                   "unit.backward_begin", "b",
                   "unit.backward_begin: unit \"b\" is in pass 1, which is open; "
                   "unit.backward_end was expected");
    four_finish_pass(&host, "");
}

START_TEST(second_begin_names_the_unit_and_the_open_pass)
{
    four_run(_i, "", second_begin_rank, NULL);
}
END_TEST

static void foreign_rank(uint32_t rank, void *shared)
{
    static const uint32_t first[] = {D};
    static const uint32_t second[] = {C};
    struct host host;
    uint64_t other;

    (void)shared;
    four_open(&host, rank);
    host_must(&host, host_backward_begin(&host, first, 1, HSDP_SCOPE_FULL, &host.pass));
    host_must(&host, host_backward_begin(&host, second, 1, HSDP_SCOPE_FULL, &other));
    host_acquire(&host, C);
    refusal_expect(&host, host_reduce(&host, C), "unit.reduce", "c",
                   "unit.reduce: unit \"c\" is not in pass 1; a unit of unit.backward_begin's list "
                   "was expected");
    refusal_expect(&host, host_reduce(&host, A), "unit.reduce", "a",
                   "unit.reduce: unit \"a\" is not in pass 1; a unit of unit.backward_begin's list "
                   "was expected");
    refusal_expect(&host, host_unshard(&host, B, HSDP_USE_BACKWARD), "unit.unshard", "b",
                   "unit.unshard: unit \"b\": no open backward pass holds it; "
                   "unit.backward_begin was expected");
    host_pass_end(&host);
    host.pass = other;
    host_hand_over(&host, C);
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(reduce_of_a_unit_of_another_pass_names_it)
{
    four_run(_i, "", foreign_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- units */

static void reduced_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    refusal_expect(&host, host_reduce(&host, D), "unit.reduce", "d",
                   "unit.reduce: unit \"d\" has no gradient buffer; unit.unshard for a backward "
                   "use was expected, or unit.skip");
    four_backward(&host, D);
    refusal_expect(&host, host_unshard(&host, D, HSDP_USE_BACKWARD), "unit.unshard", "d",
                   "unit.unshard: unit \"d\": it has been reduced in this pass; "
                   "unit.backward_end was expected");
    refusal_expect(&host, host_reduce(&host, D), "unit.reduce", "d",
                   "unit.reduce: unit \"d\" was handed over already in pass 1; "
                   "unit.backward_end was expected, or unit.grad_add for the next pass");
    four_finish_pass(&host, "d");
}

START_TEST(reduce_without_a_gradient_or_behind_it_names_the_unit)
{
    four_run(_i, "", reduced_rank, NULL);
}
END_TEST

static void release_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    refusal_expect(&host, host_release(&host, D), "unit.release", "d",
                   "unit.release: unit \"d\" is not unsharded; unit.unshard was expected");
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_acquire(&host, D);
    refusal_expect(&host, host_release(&host, D), "unit.release", "d",
                   "unit.release: unit \"d\" holds a gradient that was not handed over; "
                   "unit.reduce was expected");
    refusal_expect(&host, host_backward_end(&host, host.pass), "unit.backward_end", "d",
                   "unit.backward_end: unit \"d\" holds a gradient that was not handed over; "
                   "unit.reduce was expected");
    host_fill(&host, D, 0, four_gradient);
    host_hand_over(&host, D);
    four_finish_pass(&host, "d");
}

START_TEST(release_before_the_reduce_names_the_unit)
{
    four_run(_i, "", release_rank, NULL);
}
END_TEST

static void step_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_must(&host, host_unshard(&host, B, HSDP_USE_FORWARD));
    refusal_expect(&host, step_begin(&host), "step.begin", "b",
                   "step.begin: unit \"b\" is still unsharded; unit.release was expected");
    host_must(&host, host_release(&host, B));
    host_step(&host, 0.0);
    refusal_expect(&host, host_unshard(&host, B, HSDP_USE_FORWARD), "unit.unshard", "b",
                   "unit.unshard: a step is open; step.end or step.discard was expected");
    host_step_end(&host);
    four_finish(&host);
}

START_TEST(unshard_around_a_step_names_the_unit)
{
    four_run(_i, "", step_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("calls");
    TCase *tcase = tcase_create("calls");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, step_behind_an_unclosed_window_names_the_unit, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, step_in_an_open_pass_names_a_unit, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, second_begin_names_the_unit_and_the_open_pass, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_of_a_unit_of_another_pass_names_it, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_without_a_gradient_or_behind_it_names_the_unit, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, release_before_the_reduce_names_the_unit, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, unshard_around_a_step_names_the_unit, 0, HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
