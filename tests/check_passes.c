/* SPDX-License-Identifier: Apache-2.0 */
/* Backward passes: what is refused, that nothing has changed then, and what is not. */
#include <check.h>
#include <math.h>
#include <stdatomic.h>

#include "four_units.h"
#include "suite.h"

static int32_t step_begin(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    return host->api->step->begin(host->model, &spec, NULL, &host->err);
}

/* --------------------------------------------------------------------------- backward_begin */

static void begin_wrong_rank(uint32_t rank, void *shared)
{
    static const uint32_t twice[] = {D, C, D};
    static const uint32_t unknown[] = {D, 9};
    static const uint32_t alone[] = {B};
    struct host host;
    uint64_t pass = 77;

    (void)shared;
    four_open(&host, rank);
    host_must_refuse(&host, host_backward_begin(&host, twice, 3, HSDP_SCOPE_FULL, &pass),
                     HSDP_ERR_INVALID, "unit \"d\" is listed twice");
    host_must_refuse(&host, host_backward_begin(&host, unknown, 2, HSDP_SCOPE_FULL, &pass),
                     HSDP_ERR_INVALID, "unit 9 of 4");
    host_must_refuse(&host, host_backward_begin(&host, alone, 1, 3, &pass), HSDP_ERR_INVALID,
                     "scope 3");
    ck_assert_uint_eq(pass, 77);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_must_refuse(&host, host_backward_begin(&host, alone, 1, HSDP_SCOPE_FULL, &pass),
                     HSDP_ERR_STATE, "unit \"b\" is in pass");
    ck_assert_uint_eq(pass, 77);
    four_finish_pass(&host, "");
}

START_TEST(backward_begin_with_wrong_units_is_refused)
{
    four_run(_i, "", begin_wrong_rank, NULL);
}
END_TEST

static int32_t planned_scope;

static void begin_scope_rank(uint32_t rank, void *shared)
{
    static const uint32_t alone[] = {B};
    struct host host;
    uint64_t pass;

    (void)shared;
    four_open(&host, rank);
    for (int32_t scope = HSDP_SCOPE_NONE; scope < HSDP_SCOPE_FULL; scope++) {
        if (scope != planned_scope) {
            host_must_refuse(&host, host_backward_begin(&host, alone, 1, scope, &pass),
                             HSDP_ERR_STATE, "accumulation_scope");
        }
    }
    four_finish(&host);
}

START_TEST(backward_begin_beyond_the_planned_scope_is_refused)
{
    static const char *const scopes[] = {"accumulation_scope=none", "accumulation_scope=inner",
                                         "accumulation_scope=full"};

    planned_scope = _i % 3;
    four_run(_i / 3, scopes[planned_scope], begin_scope_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------------------- reduce */

static void reduce_wrong_rank(uint32_t rank, void *shared)
{
    static const uint32_t some[] = {D, C};
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host.pass = 1;
    host_must_refuse(&host, host_reduce(&host, D), HSDP_ERR_INVALID, "pass 1 is not open");
    host_must(&host, host_backward_begin(&host, some, 2, HSDP_SCOPE_NONE, &host.pass));
    host_must_refuse(&host, host_reduce(&host, 4), HSDP_ERR_INVALID, "unit 4 of 4");
    host_must_refuse(&host, host_reduce(&host, A), HSDP_ERR_STATE, "unit \"a\" is not in pass");
    host_must_refuse(&host, host_reduce(&host, D), HSDP_ERR_STATE,
                     "unit \"d\" has no gradient buffer");
    host_must(&host, host_unshard(&host, D, HSDP_USE_FORWARD));
    host_must_refuse(&host, host_reduce(&host, D), HSDP_ERR_STATE,
                     "unit \"d\" has no gradient buffer");
    host_must(&host, host_release(&host, D));
    host_acquire(&host, D);
    host_hand_over(&host, D);
    host_must_refuse(&host, host_reduce(&host, D), HSDP_ERR_STATE,
                     "unit \"d\" was handed over already");
    host_pass_end(&host);
    host_must_refuse(&host, host_reduce(&host, D), HSDP_ERR_STATE, "is not open");
    host_must_refuse(&host, host_backward_end(&host, host.pass), HSDP_ERR_STATE, "is not open");
    host_must_refuse(&host, host_backward_end(&host, 0), HSDP_ERR_INVALID, "pass 0 is not open");
    four_finish(&host);
}

START_TEST(reduce_of_what_is_not_due_is_refused)
{
    four_run(_i, "", reduce_wrong_rank, NULL);
}
END_TEST

/* The order is d, c, b, a; with two slots c may go before d, with three b too. */
static void reduce_ahead_rank(uint32_t rank, void *slots)
{
    struct host host;
    int n_slots = *(int *)slots;

    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    four_backward(&host, C);
    if (n_slots == 2) { /* d can still come, and b after it */
        host_must_refuse(&host, host_unshard(&host, B, HSDP_USE_BACKWARD), HSDP_ERR_STATE,
                         "unit \"b\" is 2 units ahead of \"d\"");
        ck_assert_str_eq(host.err.unit, "b");
        four_backward(&host, D);
        four_backward(&host, B);
        four_finish_pass(&host, "dcb");
        return;
    }
    four_backward(&host, B);
    four_finish_pass(&host, "cb");
}

START_TEST(unshard_too_far_ahead_names_both_units)
{
    int n_slots = 2 + _i % 2;

    four_run(_i / 2, n_slots == 2 ? "slots=2" : "slots=3", reduce_ahead_rank, &n_slots);
}
END_TEST

/* Ranks hand over in other orders, and reduce in the one of the pass; they unshard in one. */
static void reduce_crossed_rank(uint32_t rank, void *shared)
{
    static const uint32_t orders[2][4] = {{C, D, A, B}, {D, C, B, A}};
    struct host host;

    (void)shared;
    four_open(&host, rank);
    for (int window = 0; window < 3; window++) {
        host_pass_begin(&host, HSDP_SCOPE_FULL);
        for (int i = 0; i < 4; i++) {
            if (i % 2 == 0) {
                host_must(&host, host_unshard(&host, orders[1][i], HSDP_USE_FORWARD));
                host_must(&host, host_unshard(&host, orders[1][i + 1], HSDP_USE_FORWARD));
            }
            four_backward(&host, orders[(rank + (uint32_t)window) % 2][i]);
            if (i % 2 == 1) {
                host_must(&host, host_release(&host, orders[1][i - 1]));
                host_must(&host, host_release(&host, orders[1][i]));
            }
        }
        host_pass_end(&host);
        four_step(&host, 2.0);
    }
    host_close(&host);
}

START_TEST(reduce_within_the_slots_may_be_in_any_order)
{
    four_run(_i % HOST_N_STRATEGIES, _i < HOST_N_STRATEGIES ? "" : "accumulation_scope=full",
             reduce_crossed_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------------- backward_end */

static void end_wrong_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_acquire(&host, D);
    host_must_refuse(&host, host_backward_end(&host, host.pass), HSDP_ERR_STATE,
                     "unit \"d\" holds a gradient that was not handed over");
    ck_assert_str_eq(host.err.unit, "d");
    host_fill(&host, D, 0, four_gradient);
    host_hand_over(&host, D);
    four_finish_pass(&host, "d");
}

START_TEST(backward_end_with_an_acquired_gradient_is_refused)
{
    four_run(_i, "", end_wrong_rank, NULL);
}
END_TEST

/* Whether both ranks have the same step shards: then each sums up a part of them for the other, and
 * no reduction is done before both have been in a call. */
static bool are_replicas(struct host *host)
{
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;

    host_must(host, host->api->plan->buffer_info(host->plan, 0, 0, &info, &host->err));
    return info.step_shard_elems == info.n_elems;
}

static void ticket_await(struct host *host, uint64_t ticket)
{
    host_must(host, host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err));
}

/* Hands over and ends, and waits for the reductions. */
static void backward_done(struct host *host, uint32_t unit)
{
    uint64_t ticket;

    host_acquire(host, unit);
    host_fill(host, unit, 0, four_gradient);
    host_must(host,
              host->api->unit->reduce(host->model, host->pass, unit, NULL, &ticket, &host->err));
    ticket_await(host, ticket);
    host_must(host, host_release(host, unit));
}

static void pass_end_done(struct host *host)
{
    uint64_t ticket;

    host_must(host,
              host->api->unit->backward_end(host->model, host->pass, NULL, &ticket, &host->err));
    ticket_await(host, ticket);
}

/* A pass is done when its own reductions are, also when the next one has begun to queue. */
static void ticket_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_queued = shared;
    struct host host;
    uint64_t ticket;

    four_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    for (uint32_t unit = D; unit > A; unit--) {
        if (rank == 1 && unit == C) { /* rank 0 will wait for it, and may need this rank for that */
            backward_done(&host, unit);
        } else {
            four_backward(&host, unit);
        }
    }
    if (rank == 1) {
        ranks_meet(n_queued, 2);
    }
    four_backward(&host, A);
    host_must(&host, host.api->unit->backward_end(host.model, host.pass, NULL, &ticket, &host.err));
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_acquire(&host, C);
    host_fill(&host, C, 0, four_gradient);
    host_hand_over(&host, C); /* waits for d */
    if (rank == 0) {
        ranks_meet(n_queued, 2);
    }
    ticket_await(&host, ticket);
    for (uint32_t unit = D + 1; unit-- > A;) {
        if (unit != C) {
            four_backward(&host, unit);
        }
    }
    host_pass_end(&host);
    four_step(&host, 4.0);
    host_close(&host);
}

START_TEST(ticket_of_a_pass_does_not_wait_for_the_next_pass)
{
    four_run(_i, "slots=4 nccl_timeout_seconds=3", ticket_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

/* -------------------------------------------------------------------------------- grad_add */

static int32_t grad_add(struct host *host, uint32_t param, const struct hsdp_tensor *grad)
{
    return host->api->unit->grad_add(host->model, param, grad, NULL, &host->err);
}

static void grad_wrong_rank(uint32_t rank, void *shared)
{
    float values[8] = {0.0f};
    int64_t shape[] = {6};
    struct hsdp_tensor grad;
    struct host host;

    (void)shared;
    four_open(&host, rank);
    grad = host_tensor(&host, host_param(&host, "w"), values, "fp32");
    host_must_refuse(&host, grad_add(&host, 9, &grad), HSDP_ERR_INVALID, "parameter 9 of 5");
    host_must_refuse(&host, grad_add(&host, 2, &grad), HSDP_ERR_INVALID, "size 5");
    grad.shape = shape;
    host_must_refuse(&host, grad_add(&host, 0, &grad), HSDP_ERR_INVALID, "size 6");
    grad = host_tensor(&host, host_param(&host, "k"), values, "fp32");
    host_must_refuse(&host, grad_add(&host, 1, &grad), HSDP_ERR_INVALID, "\"k\" is frozen");
    grad = host_tensor(&host, 0, values, "fp32");
    grad.dtype_code = HSDP_DTYPE_INT;
    host_must_refuse(&host, grad_add(&host, 0, &grad), HSDP_ERR_INVALID, "dtype");
    four_finish(&host);
}

START_TEST(grad_add_of_what_does_not_fit_is_refused)
{
    four_run(_i, "", grad_wrong_rank, NULL);
}
END_TEST

/* Behind the last full pass it is too late: the step says so, and another pass takes it up. */
static void grad_late_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, four_gradient);
    four_step(&host, 2.0);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    for (uint32_t unit = D + 1; unit-- > A;) {
        four_backward(&host, unit);
    }
    host_grad_add(&host, "x", 5.0, "fp16");
    host_pass_end(&host);
    host_must_refuse(&host, step_begin(&host), HSDP_ERR_STATE, "unit \"b\"");
    ck_assert_str_eq(host.err.unit, "b");
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "x", 7.0);
    host_expect_grad(&host, "w", 2.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(grad_add_behind_the_last_reduction_is_left_over)
{
    four_run(_i % HOST_N_STRATEGIES, _i < HOST_N_STRATEGIES ? "" : "accumulation_scope=inner",
             grad_late_rank, NULL);
}
END_TEST

/* Rank 0 hands over a second time while rank 1 has not read the first (where they are replicas:
 * has not come to the second): what is added then does not join that reduction, though it still
 * waits. */
static void grad_waiting_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_there = shared;
    struct host host;

    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5]");
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    if (rank == 0) {
        ranks_meet(&n_there[0], 2);
        four_backward(&host, 0);
        host_pass_end(&host);
        host_pass_begin(&host, HSDP_SCOPE_FULL);
        four_backward(&host, 0);
        ranks_meet(&n_there[1], 2);
        host_grad_add(&host, "w", 2.0, "fp32");
        host_pass_end(&host);
        host_must_refuse(&host, step_begin(&host), HSDP_ERR_STATE, "unit \"a\"");
    } else {
        four_backward(&host, 0);
        ranks_meet(&n_there[0], 2);
        if (are_replicas(&host)) {
            pass_end_done(&host);
        }
        ranks_meet(&n_there[1], 2);
        if (!are_replicas(&host)) {
            host_pass_end(&host);
        }
        host_backward(&host, HSDP_SCOPE_FULL, 0, four_gradient);
    }
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "w", 5.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(grad_add_behind_a_waiting_reduction_joins_the_next)
{
    four_run(_i, "", grad_waiting_rank, ranks_memory(2 * sizeof(uint32_t)));
}
END_TEST

/* Late gradients of an absent unit do not need its slot, which another pass occupies. */
static void grad_beside_rank(uint32_t rank, void *shared)
{
    static const uint32_t first[] = {D};
    static const uint32_t second[] = {B};
    struct host host;
    uint64_t other;

    (void)shared;
    four_open(&host, rank);
    host_must(&host, host_backward_begin(&host, first, 1, HSDP_SCOPE_FULL, &other));
    host_must(&host, host_backward_begin(&host, second, 1, HSDP_SCOPE_FULL, &host.pass));
    host_acquire(&host, B);
    host_fill(&host, B, 0, four_gradient);
    host_grad_add(&host, "z", 2.0, "fp32");
    host_must(&host, host_backward_end(&host, other));
    host_hand_over(&host, B);
    host_pass_end(&host);
    host_backward(&host, HSDP_SCOPE_FULL, 0, four_gradient);
    host_step(&host, 0.0);
    host_expect_grad(&host, "x", 4.0);
    host_expect_grad(&host, "z", 4.0);
    host_expect_grad(&host, "w", 2.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(grad_add_to_an_absent_unit_needs_no_slot)
{
    four_run(_i, "accumulation_scope=inner", grad_beside_rank, NULL);
}
END_TEST

/* D is absent but for what came late, and B waits for it in the slot that both have. */
static void grad_before_rank(uint32_t rank, void *shared)
{
    static const uint32_t units[] = {D, B};
    struct host host;

    (void)shared;
    four_open(&host, rank);
    for (int pass = 0; pass < 3; pass++) {
        host_must(&host, host_backward_begin(&host, units, 2, HSDP_SCOPE_FULL, &host.pass));
        host_grad_add(&host, "z", 1.0, "bf16");
        host_acquire(&host, B);
        host_fill(&host, B, 0, four_gradient);
        host_hand_over(&host, B);
        host_pass_end(&host);
    }
    host_step(&host, 0.0);
    host_expect_grad(&host, "x", 3.0 * 2.0);
    host_expect_grad(&host, "z", 3.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(grad_add_to_an_absent_unit_lets_those_behind_it_go)
{
    four_run(_i, "accumulation_scope=inner", grad_before_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- passes */

/* Two chunks of a pipeline, open together, closed in the other order. */
static void chunks_rank(uint32_t rank, void *shared)
{
    static const uint32_t front[] = {B, A};
    static const uint32_t back[] = {D, C};
    struct host host;
    uint64_t first;

    (void)shared;
    four_open(&host, rank);
    host_must(&host, host_backward_begin(&host, front, 2, HSDP_SCOPE_FULL, &first));
    host_must(&host, host_backward_begin(&host, back, 2, HSDP_SCOPE_FULL, &host.pass));
    four_backward(&host, D);
    four_backward(&host, C);
    host_pass_end(&host);
    host.pass = first;
    four_finish_pass(&host, "cd");
}

START_TEST(passes_with_disjoint_units_may_be_open_together)
{
    four_run(_i, "", chunks_rank, NULL);
}
END_TEST

/* With a frozen unit in the list, which has nothing to reduce. */
static void frozen_unit_rank(uint32_t rank, void *shared)
{
    static const uint32_t units[] = {2, 1, 0};
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5]; unit f: k[3]!; unit b: x[5]");
    host_must(&host, host_backward_begin(&host, units, 3, HSDP_SCOPE_FULL, &host.pass));
    for (uint32_t i = 0; i < 3; i++) {
        four_backward(&host, units[i]);
    }
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "w", 2.0);
    host_expect_grad(&host, "x", 2.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(pass_over_a_frozen_unit_reduces_the_others)
{
    four_run(_i, "", frozen_unit_rank, NULL);
}
END_TEST

/* It holds up nobody either: whether it is handed over, or not. */
static void frozen_first_rank(uint32_t rank, void *shared)
{
    static const uint32_t units[] = {2, 1, 0};
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5]; unit b: x[5]; unit f: k[3]!");
    host_must(&host, host_backward_begin(&host, units, 3, HSDP_SCOPE_FULL, &host.pass));
    four_backward(&host, 1);
    four_backward(&host, 0);
    if (rank == 0) {
        host_acquire(&host, 2);
        host_hand_over(&host, 2);
    } else {
        host_attend(&host, 2);
    }
    host_pass_end(&host);
    ck_assert_double_eq(host_step(&host, 0.0).norm, sqrt(40.0));
    host_step_end(&host);
    host_close(&host);
}

START_TEST(pass_with_a_frozen_unit_in_front_does_not_wait_for_it)
{
    four_run(_i, "slots=1", frozen_first_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("passes");
    TCase *tcase = tcase_create("passes");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, backward_begin_with_wrong_units_is_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, backward_begin_beyond_the_planned_scope_is_refused, 0,
                        3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_of_what_is_not_due_is_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, unshard_too_far_ahead_names_both_units, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_within_the_slots_may_be_in_any_order, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, backward_end_with_an_acquired_gradient_is_refused, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, ticket_of_a_pass_does_not_wait_for_the_next_pass, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, grad_add_of_what_does_not_fit_is_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, grad_add_behind_the_last_reduction_is_left_over, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, grad_add_behind_a_waiting_reduction_joins_the_next, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, grad_add_to_an_absent_unit_needs_no_slot, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, grad_add_to_an_absent_unit_lets_those_behind_it_go, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, passes_with_disjoint_units_may_be_open_together, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, pass_over_a_frozen_unit_reduces_the_others, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, pass_with_a_frozen_unit_in_front_does_not_wait_for_it, 0,
                        HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
