/* SPDX-License-Identifier: Apache-2.0 */
/* Units that a rank skips: they count as zeros, take no slot, and hold up nobody. */
#include <check.h>
#include <stdio.h>

#include "four_units.h"
#include "suite.h"

/* -------------------------------------------------------------------------------- refusals */

static void wrong_rank(uint32_t rank, void *shared)
{
    static const uint32_t some[] = {D, C, B};
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host.pass = 1;
    host_must_refuse(&host, host_skip(&host, D), HSDP_ERR_INVALID, "unit.skip: pass 1 is not open");
    host_must(&host, host_backward_begin(&host, some, 3, HSDP_SCOPE_NONE, &host.pass));
    host_must_refuse(&host, host_skip(&host, 4), HSDP_ERR_INVALID, "unit.skip: unit 4 of 4");
    host_must_refuse(&host, host_skip(&host, A), HSDP_ERR_STATE,
                     "unit.skip: unit \"a\" is not in pass 1; a unit of unit.backward_begin's list "
                     "was expected");
    host_acquire(&host, D);
    host_must_refuse(&host, host_skip(&host, D), HSDP_ERR_STATE,
                     "unit.skip: unit \"d\" has acquired its gradient buffer; unit.reduce was "
                     "expected");
    ck_assert_str_eq(host.err.unit, "d");
    ck_assert_str_eq(host.err.operation, "unit.skip");
    host_hand_over(&host, D);
    host_must_refuse(&host, host_skip(&host, D), HSDP_ERR_STATE,
                     "unit.skip: unit \"d\" was handed over already in pass 1");
    host_pass_end(&host);
    host_must_refuse(&host, host_skip(&host, D), HSDP_ERR_STATE, "pass 1 is not open");
    four_finish(&host);
}

START_TEST(skip_of_what_is_not_due_is_refused)
{
    four_run(_i, "", wrong_rank, NULL);
}
END_TEST

static void twice_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_must(&host, host_skip(&host, D));
    host_must_refuse(&host, host_skip(&host, D), HSDP_ERR_STATE,
                     "unit.skip: unit \"d\" was skipped already in pass 1");
    host_must_refuse(&host, host_reduce(&host, D), HSDP_ERR_STATE,
                     "unit.reduce: unit \"d\" was skipped already in pass 1");
    host_must_refuse(&host, host_unshard(&host, D, HSDP_USE_BACKWARD), HSDP_ERR_STATE,
                     "unit \"d\": it was skipped in this pass; unit.backward_end was expected");
    host_pass_end(&host);
    four_finish(&host); /* the pass before is of the same window: what it skipped adds nothing */
}

START_TEST(skip_ends_the_unit_in_its_pass)
{
    four_run(_i, "", twice_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------------------- values */

static int32_t first_scope; /* of the pass before the full one */

/* Rank 0 has gradients of 1 in all units, rank 1 of 3 in the last one of the order alone. */
static void sparse_pass(struct host *host, int32_t scope)
{
    host_pass_begin(host, scope);
    for (uint32_t unit = D; unit > A; unit--) {
        if (host->rank == 0) {
            four_backward(host, unit);
        } else {
            host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
            host_must(host, host_skip(host, unit));
            host_must(host, host_release(host, unit));
        }
    }
    four_backward(host, A);
    host_pass_end(host);
}

static void sparse_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    for (int window = 0; window < 2; window++) {
        sparse_pass(&host, first_scope);
        sparse_pass(&host, HSDP_SCOPE_FULL);
        host_step(&host, 0.0);
        host_expect_grad(&host, "z", 1.0);
        host_expect_grad(&host, "y", 1.0);
        host_expect_grad(&host, "x", 1.0);
        host_expect_grad(&host, "w", 4.0);
        host_step_end(&host);
    }
    host_close(&host);
}

/* However many units follow, and with whatever number of slots. */
START_TEST(skip_counts_as_zeros_in_every_scope)
{
    char more[64];

    first_scope = _i / 3 % 3;
    snprintf(more, sizeof(more), "slots=%d accumulation_scope=%s", 1 + _i % 3,
             host_scopes[first_scope]);
    four_run(_i / 9, more, sparse_rank, NULL);
}
END_TEST

/* In any order; a unit that is left out holds up the skipped ones behind it, and nothing else. */
static void order_rank(uint32_t rank, void *shared)
{
    static const uint32_t orders[2][3] = {{A, B, D}, {C, A, B}};
    struct host host;

    (void)shared;
    four_open(&host, rank);
    for (int window = 0; window < 3; window++) {
        host_pass_begin(&host, HSDP_SCOPE_FULL);
        for (int i = 0; i < 3; i++) {
            host_must(&host, host_skip(&host, orders[rank][i]));
        }
        if (rank == 0) {
            four_backward(&host, C);
        } else {
            host_attend(&host, C);
        }
        host_pass_end(&host);
        host_step(&host, 0.0);
        host_expect_grad(&host, "y", 0.5);
        host_expect_grad(&host, "z", 0.0);
        host_expect_grad(&host, "w", 0.0);
        host_step_end(&host);
    }
    host_close(&host);
}

START_TEST(skip_may_be_in_any_order)
{
    char more[64];

    snprintf(more, sizeof(more), "slots=%d accumulation_scope=%s", 1 + _i % 3,
             host_scopes[_i / 3 % 3]);
    four_run(_i / 9, more, order_rank, NULL);
}
END_TEST

/* What came before joins the reduction, what comes behind it the next one. */
static void late_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_pass_begin(&host, first_scope);
    host_grad_add(&host, "z", 2.0, "fp32");
    host_must(&host, host_skip(&host, D));
    host_grad_add(&host, "z", 4.0, "bf16");
    host_pass_end(&host);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    if (rank == 0) {
        four_backward(&host, D);
    } else {
        host_attend(&host, D);
        host_must(&host, host_skip(&host, D));
    }
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "z", 2.0 + 4.0 + 0.5);
    host_expect_grad(&host, "w", 0.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(skip_takes_late_gradients_along)
{
    char more[64];

    first_scope = _i / 3 % 3;
    snprintf(more, sizeof(more), "slots=%d accumulation_scope=%s", 1 + _i % 3,
             host_scopes[first_scope]);
    four_run(_i / 9, more, late_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- slots */

/* c is skipped and waits for d; a goes into the slot of both passes' c, which is not in use. */
static void slot_rank(uint32_t rank, void *shared)
{
    static const uint32_t first[] = {D, C};
    static const uint32_t second[] = {A};
    struct host host;
    uint64_t other;

    (void)shared;
    four_open(&host, rank);
    for (int window = 0; window < 3; window++) {
        host_backward(&host, HSDP_SCOPE_FULL, 0, four_gradient);
        host_must(&host, host_backward_begin(&host, first, 2, HSDP_SCOPE_FULL, &host.pass));
        host_must(&host, host_backward_begin(&host, second, 1, HSDP_SCOPE_FULL, &other));
        host_must(&host, host_skip(&host, C));
        host_acquire(&host, A);
        host_fill(&host, A, 0, four_gradient);
        four_backward(&host, D);
        host_pass_end(&host);
        host.pass = other;
        host_hand_over(&host, A);
        host_pass_end(&host);
        host_step(&host, 0.0);
        host_expect_grad(&host, "w", 4.0);
        host_expect_grad(&host, "x", 2.0);
        host_expect_grad(&host, "y", 2.0);
        host_expect_grad(&host, "z", 4.0);
        host_step_end(&host);
    }
    host_close(&host);
}

START_TEST(skip_of_a_unit_that_waits_leaves_its_slot_free)
{
    four_run(_i / 2, _i % 2 == 0 ? "" : "accumulation_scope=full", slot_rank, NULL);
}
END_TEST

/* Rank 1 waits for nobody's hand-over before it is through with its own. */
static void alone_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_there = shared;
    struct host host;

    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    if (rank == 0) {
        ranks_meet(n_there, 2);
    }
    for (uint32_t unit = D; unit > A; unit--) {
        if (rank == 1) {
            host_attend(&host, unit);
            host_must(&host, host_skip(&host, unit));
        } else {
            four_backward(&host, unit);
        }
    }
    four_backward(&host, A);
    if (rank == 1) {
        ranks_meet(n_there, 2);
    }
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "w", 2.0);
    host_expect_grad(&host, "z", 0.5);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(skip_waits_for_no_other_rank)
{
    four_run(_i / 2, _i % 2 == 0 ? "slots=1" : "slots=1 accumulation_scope=full", alone_rank,
             ranks_memory(sizeof(uint32_t)));
}
END_TEST

static void ticket_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_there = shared;
    struct host host;
    uint64_t ticket = 0;

    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    if (rank == 0) {
        host_must(&host, host.api->unit->skip(host.model, host.pass, D, NULL, &ticket, &host.err));
        ck_assert_int_eq(host.api->job->ticket_wait(host.job, ticket, 0, &host.err), HSDP_PENDING);
        ranks_meet(n_there, 2);
        host_must(&host, host.api->job->ticket_wait(host.job, ticket, UINT64_MAX, &host.err));
    } else {
        ranks_meet(n_there, 2);
        host_must(&host, host_skip(&host, D));
    }
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "z", 0.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(skip_ticket_is_done_with_the_reduction)
{
    four_run(1 + _i, "accumulation_scope=full", ticket_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("skip");
    TCase *tcase = tcase_create("skip");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, skip_of_what_is_not_due_is_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, skip_ends_the_unit_in_its_pass, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, skip_counts_as_zeros_in_every_scope, 0, 9 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, skip_may_be_in_any_order, 0, 9 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, skip_takes_late_gradients_along, 0, 9 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, skip_of_a_unit_that_waits_leaves_its_slot_free, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, skip_waits_for_no_other_rank, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, skip_ticket_is_done_with_the_reduction, 0, HOST_N_STRATEGIES - 1);
    suite_add_tcase(suite, tcase);
    return suite;
}
