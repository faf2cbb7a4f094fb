/* SPDX-License-Identifier: Apache-2.0 */
/* Uses of units: counting them, and who may occupy a slot. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>

#include "four_units.h"
#include "suite.h"

/* --------------------------------------------------------------------------------- unshard */

static void unshard_wrong_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_must_refuse(&host, host_unshard(&host, 4, HSDP_USE_FORWARD), HSDP_ERR_INVALID,
                     "unit 4 of 4");
    host_must_refuse(&host, host_unshard(&host, A, 3), HSDP_ERR_INVALID, "use 3");
    host_must_refuse(&host, host_unshard(&host, A, HSDP_USE_BACKWARD), HSDP_ERR_STATE,
                     "unit \"a\": no open backward pass");
    ck_assert_str_eq(host.err.unit, "a");
    host_must_refuse(&host, host_release(&host, A), HSDP_ERR_STATE, "unit \"a\" is not unsharded");
    host_must_refuse(&host, host_release(&host, 77), HSDP_ERR_INVALID, "unit 77 of 4");
    four_finish(&host);
}

START_TEST(unshard_of_what_is_not_there_is_refused)
{
    four_run(_i, "", unshard_wrong_rank, NULL);
}
END_TEST

static void counted_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_must(&host, host_unshard(&host, A, HSDP_USE_FORWARD));
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_must(&host, host_unshard(&host, A, HSDP_USE_FORWARD)); /* a recomputation */
    host_must(&host, host_release(&host, A));
    host_must(&host, host_unshard(&host, D, HSDP_USE_BACKWARD));
    host_must(&host, host_unshard(&host, D, HSDP_USE_FORWARD));
    host_must(&host, host_release(&host, D));
    host_must_refuse(&host, host_release(&host, D), HSDP_ERR_STATE, "unit \"d\" holds a gradient");
    host_must_refuse(&host, host_unshard(&host, D, HSDP_USE_BACKWARD), HSDP_ERR_STATE,
                     "unit \"d\": its gradient buffer is acquired already");
    host_fill(&host, D, 0, four_gradient);
    host_hand_over(&host, D);
    host_must_refuse(&host, host_unshard(&host, D, HSDP_USE_BACKWARD), HSDP_ERR_STATE,
                     "unit \"d\": it has been reduced in this pass");
    host_must_refuse(&host, host_release(&host, D), HSDP_ERR_STATE, "unit \"d\" is not unsharded");
    host_must(&host, host_release(&host, A));
    four_finish_pass(&host, "d");
}

START_TEST(unshard_is_counted_and_ends_with_as_many_releases)
{
    four_run(_i, "slots=4", counted_rank, NULL);
}
END_TEST

/* d and b take turns in one slot of two. */
static void param_slot_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_must(&host, host_unshard(&host, B, HSDP_USE_FORWARD));
    host_must(&host, host_unshard(&host, C, HSDP_USE_FORWARD));
    host_must_refuse(&host, host_unshard(&host, D, HSDP_USE_FORWARD), HSDP_ERR_STATE,
                     "of unit \"d\" is occupied by unit \"b\"");
    host_must(&host, host_release(&host, B));
    host_must(&host, host_unshard(&host, D, HSDP_USE_FORWARD));
    host_must(&host, host_release(&host, D));
    host_must(&host, host_release(&host, C));
    four_finish(&host);
}

START_TEST(unshard_of_two_units_in_one_parameter_slot_names_both)
{
    four_run(_i == 0 ? 3 : 6, _i == 0 ? "" : "shard_size=2", param_slot_rank, NULL);
}
END_TEST

static void grad_slot_rank(uint32_t rank, void *shared)
{
    static const uint32_t units[] = {D, B, A};
    static const uint32_t rest[] = {C, A};
    struct host host;

    (void)shared;
    four_open(&host, rank);
    host_must(&host, host_backward_begin(&host, units, 3, HSDP_SCOPE_FULL, &host.pass));
    host_acquire(&host, D);
    host_must_refuse(&host, host_unshard(&host, B, HSDP_USE_BACKWARD), HSDP_ERR_STATE,
                     "of unit \"b\" is occupied by unit \"d\"");
    host_fill(&host, D, 0, four_gradient);
    host_hand_over(&host, D);
    four_backward(&host, B);
    host_pass_end(&host);
    host_must(&host, host_backward_begin(&host, rest, 2, HSDP_SCOPE_FULL, &host.pass));
    four_backward(&host, C);
    four_backward(&host, A);
    host_pass_end(&host);
    four_step(&host, 2.0);
    host_close(&host);
}

START_TEST(unshard_of_two_units_in_one_gradient_slot_names_both)
{
    four_run(_i % HOST_N_STRATEGIES, _i < HOST_N_STRATEGIES ? "" : "accumulation_scope=full",
             grad_slot_rank, NULL);
}
END_TEST

/* Two large units at the ends of the row: other slots, but the same bytes. */
static void overlap_rank(uint32_t rank, void *shared)
{
    static const uint32_t units[] = {D, A};
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings,
              "unit a: w[30000]; unit b: x[5]; unit c: y[5]; unit d: z[30000]");
    host_must(&host, host_backward_begin(&host, units, 2, HSDP_SCOPE_FULL, &host.pass));
    host_acquire(&host, D);
    host_fill(&host, D, 0, four_gradient);
    host_must_refuse(&host, host_unshard(&host, A, HSDP_USE_BACKWARD), HSDP_ERR_STATE,
                     "of unit \"a\" is occupied by unit \"d\"");
    host_hand_over(&host, D);
    four_backward(&host, A);
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "z", 2.0);
    host_expect_grad(&host, "w", 2.0);
    host_expect_grad(&host, "x", 0.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(unshard_of_two_units_in_the_same_bytes_names_both)
{
    four_run(_i % HOST_N_STRATEGIES, _i < HOST_N_STRATEGIES ? "" : "accumulation_scope=inner",
             overlap_rank, NULL);
}
END_TEST

/* c is handed over and waits for d; b and d share a slot, as c and a do. */
static void queued_slot_rank(uint32_t rank, void *shared)
{
    static const uint32_t first[] = {D, C};
    static const uint32_t second[] = {A};
    static const uint32_t rest[] = {B, A};
    struct host host;
    uint64_t other;

    (void)shared;
    four_open(&host, rank);
    host_must(&host, host_backward_begin(&host, first, 2, HSDP_SCOPE_FULL, &host.pass));
    host_must(&host, host_backward_begin(&host, second, 1, HSDP_SCOPE_FULL, &other));
    four_backward(&host, C);
    host_must_refuse(&host, host_unshard(&host, A, HSDP_USE_BACKWARD), HSDP_ERR_STATE,
                     "unit \"a\": its gradient slot is occupied by unit \"c\"");
    four_backward(&host, D);
    host_pass_end(&host);
    host_must(&host, host_backward_end(&host, other));
    host_must(&host, host_backward_begin(&host, rest, 2, HSDP_SCOPE_FULL, &host.pass));
    four_backward(&host, B);
    four_backward(&host, A);
    host_pass_end(&host);
    four_step(&host, 2.0);
    host_close(&host);
}

START_TEST(unshard_into_a_slot_that_waits_for_its_turn_names_both)
{
    four_run(_i % HOST_N_STRATEGIES, _i < HOST_N_STRATEGIES ? "" : "accumulation_scope=inner",
             queued_slot_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------- who is waited for */

/* Two of four ranks, an inner group, reuse a slot while the others have handed over nothing. */
static void ahead_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_there = shared;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, "unit a: w[5]; unit b: x[1031]");
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    if (rank < 2) {
        four_backward(&host, 1);
        host_acquire(&host, 0);
        ranks_meet(n_there, 4);
        host_fill(&host, 0, 0, four_gradient);
        host_hand_over(&host, 0);
    } else {
        ranks_meet(n_there, 4);
        four_backward(&host, 1);
        four_backward(&host, 0);
    }
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "x", 4.0);
    host_expect_grad(&host, "w", 4.0);
    host_step_end(&host);
    host_close(&host);
}

/* With scope none a contribution is copied; else it is read by the ranks of G, not of all of R,
 * unless G spans one rank: then all of R read it at once. */
START_TEST(unshard_waits_for_no_more_than_reading_the_slot)
{
    static const struct {
        int strategy;
        const char *more;
    } rows[] = {{0, "none"}, {1, "none"}, {2, "none"},  {3, "none"}, {4, "none"},
                {5, "none"}, {6, "none"}, {4, "inner"}, {5, "full"}, {6, "full"}};
    char more[128];

    snprintf(more, sizeof(more),
             "shard_size=2 slots=1 nccl_timeout_seconds=5 accumulation_scope=%s", rows[_i].more);
    host_settings_set(rows[_i].strategy, more);
    ranks_run(4, RANKS_LIMIT_MS, ahead_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("uses");
    TCase *tcase = tcase_create("uses");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, unshard_of_what_is_not_there_is_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, unshard_is_counted_and_ends_with_as_many_releases, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, unshard_of_two_units_in_one_parameter_slot_names_both, 0, 2);
    tcase_add_loop_test(tcase, unshard_of_two_units_in_one_gradient_slot_names_both, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, unshard_of_two_units_in_the_same_bytes_names_both, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, unshard_into_a_slot_that_waits_for_its_turn_names_both, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, unshard_waits_for_no_more_than_reading_the_slot, 0, 10);
    suite_add_tcase(suite, tcase);
    return suite;
}
