/* SPDX-License-Identifier: Apache-2.0 */
/* The judge of the fault campaign: fed a wrong record of each kind, it says what is wrong. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "faults/example.h"
#include "faults/judge.h"
#include "faults/play.h"
#include "suite.h"

/* A trial in which rank 1 fails while all are in step.result, and what its survivors wrote. */
static struct trial trial;
static struct record *record;
static struct judgement judgement;

static void setup(void)
{
    record = record_create();
    ck_assert_ptr_nonnull(record);
}

static void teardown(void)
{
    record_destroy(record);
}

/* Exactly so many findings of one kind, and none of any other. */
static void expect_found(enum finding finding, uint32_t n)
{
    trial_judge(&trial, record, true, &judgement);
    ck_assert_msg(judgement.n_found[finding] == n && judgement_count(&judgement) == n,
                  "not %u %s: %s", n, finding_names[finding], judgement.text);
}

/* ------------------------------------------------------------------------- what is right */

struct right {
    enum fault_kind kind;
    int32_t status;
    uint64_t end_ms;
};

static const struct right rights[] = {
    {FAULT_KILL, HSDP_ERR_PEER_LOST, 1050},  {FAULT_FORK, HSDP_ERR_PEER_LOST, 1900},
    {FAULT_EXIT, HSDP_ERR_PEER_LOST, 1001},  {FAULT_LEAVE, HSDP_ERR_PEER_LOST, 1001},
    {FAULT_STOP, HSDP_ERR_TIMEOUT, 2000},    {FAULT_STALL, HSDP_ERR_TIMEOUT, 2900},
    {FAULT_ABORT, HSDP_ERR_ABORTED, 1001},   {FAULT_MEMORY, HSDP_ERR_NO_MEMORY, 1001},
    {FAULT_MAPPING, HSDP_ERR_ABORTED, 1001},
};

START_TEST(judge_of_promises_kept_finds_nothing)
{
    example_fill(&trial, record, rights[_i].kind, rights[_i].status, rights[_i].end_ms);
    expect_found(FINDING_NAME, 0);
}
END_TEST

/* ------------------------------------------------------------------------- what is wrong */

START_TEST(judge_of_another_rank_finds_a_wrong_name)
{
    example_fill(&trial, record, rights[_i % 6].kind, rights[_i % 6].status, rights[_i % 6].end_ms);
    record->ranks[2].calls[1].error.missing_ranks[0] = 0;
    record->ranks[2].first.missing_ranks[0] = 0;
    expect_found(FINDING_NAME, 1);
}
END_TEST

START_TEST(judge_of_one_rank_too_many_finds_a_wrong_name)
{
    example_fill(&trial, record, FAULT_STOP, HSDP_ERR_TIMEOUT, 2000);
    record->ranks[0].calls[1].error.n_missing_ranks = 2;
    record->ranks[0].calls[1].error.missing_ranks[1] = 2;
    expect_found(FINDING_NAME, 1);
}
END_TEST

START_TEST(judge_of_another_status_finds_wrong_names)
{
    example_fill(&trial, record, rights[_i].kind, HSDP_ERR_DEVICE, rights[_i].end_ms);
    expect_found(FINDING_NAME, 2);
}
END_TEST

START_TEST(judge_of_an_empty_sentence_finds_a_wrong_name)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->ranks[0].calls[1].error.message[0] = '\0';
    expect_found(FINDING_NAME, 1);
}
END_TEST

START_TEST(judge_of_an_error_that_is_not_filled_finds_a_wrong_name)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->ranks[0].calls[1].error.status = HSDP_OK;
    expect_found(FINDING_NAME, 1);
}
END_TEST

START_TEST(judge_of_a_late_return_finds_it)
{
    uint64_t late_ms = rights[_i].status == HSDP_ERR_TIMEOUT ? 3500 : 2500;

    example_fill(&trial, record, rights[_i].kind, rights[_i].status, late_ms);
    expect_found(FINDING_LATE, 2);
}
END_TEST

START_TEST(judge_of_a_loaded_machine_allows_more)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 2500);
    record->overshoot_ns = 200 * EXAMPLE_MS;
    expect_found(FINDING_LATE, 0);
}
END_TEST

START_TEST(judge_of_an_early_timeout_finds_it)
{
    example_fill(&trial, record, FAULT_STOP, HSDP_ERR_TIMEOUT, 1050);
    expect_found(FINDING_EARLY, 2);
}
END_TEST

START_TEST(judge_of_a_timeout_that_waited_less_finds_it)
{
    example_fill(&trial, record, FAULT_STOP, HSDP_ERR_TIMEOUT, 2000);
    record->ranks[0].calls[1].error.waited_ms = 700;
    expect_found(FINDING_EARLY, 1);
}
END_TEST

START_TEST(judge_of_a_rank_that_was_ended_finds_a_hang)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->has_hung[2] = true;
    record->wait_status[2] = SIGKILL;
    expect_found(FINDING_HANG, 1);
}
END_TEST

START_TEST(judge_of_a_survivor_that_crashes_finds_a_death)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->wait_status[0] = SIGABRT;
    record->wait_status[2] = 1 << 8; /* exit status 1 */
    expect_found(FINDING_DEATH, 2);
}
END_TEST

START_TEST(judge_of_a_victim_that_dies_of_its_fault_finds_nothing)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->wait_status[EXAMPLE_VICTIM] = SIGKILL;
    record->ranks[EXAMPLE_VICTIM].has_finished = false;
    expect_found(FINDING_DEATH, 0);
}
END_TEST

START_TEST(judge_of_what_a_process_still_holds_finds_leaks)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->ranks[0].after.n_descriptors++;
    record->ranks[2].after.n_mappings++;
    expect_found(FINDING_LEAK, 2);
}
END_TEST

START_TEST(judge_of_what_is_left_outside_finds_leaks)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->n_processes_left = 1;
    snprintf(record->left, sizeof(record->left), "/dev/shm/something");
    expect_found(FINDING_LEAK, 2);
}
END_TEST

START_TEST(judge_of_a_wrong_value_finds_it)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    snprintf(record->ranks[0].wrong_number, 16, "1, not 2");
    expect_found(FINDING_NUMBER, 1);
}
END_TEST

START_TEST(judge_of_another_reason_afterwards_finds_it)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    example_error(&record->ranks[0].calls[2].error, HSDP_ERR_ABORTED, "no idea why", 0);
    record->ranks[2].calls[2].status = HSDP_ERR_STATE;
    expect_found(FINDING_REPEAT, 2);
}
END_TEST

START_TEST(judge_of_a_slow_refusal_finds_a_late_return)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->ranks[0].calls[2].end_ns += 1000 * EXAMPLE_MS;
    expect_found(FINDING_LATE, 1);
}
END_TEST

START_TEST(judge_of_on_abort_not_called_once_finds_it)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->ranks[0].n_told[0] = 0;
    record->ranks[2].n_told[0] = 2;
    expect_found(FINDING_REPEAT, 2);
}
END_TEST

START_TEST(judge_of_ranks_that_tell_different_reasons_finds_it)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    snprintf(record->ranks[2].first.message, 32, "the reason of rank 2");
    snprintf(record->ranks[2].calls[2].error.message, 64, "aborted: the reason of rank 2");
    expect_found(FINDING_REPEAT, 1);
}
END_TEST

START_TEST(judge_of_a_failure_without_a_fault_finds_it)
{
    example_fill(&trial, record, FAULT_DELAY, HSDP_ERR_TIMEOUT, 2000);
    expect_found(FINDING_UNTRUE, 2);
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    trial_judge(&trial, record, false, &judgement);
    ck_assert_uint_eq(judgement.n_found[FINDING_UNTRUE], 2);
}
END_TEST

START_TEST(judge_of_a_close_that_not_all_came_to_finds_it)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    example_call(record, 0, CALL_CLOSE, "job.close", 1050, 1060);
    expect_found(FINDING_UNTRUE, 1);
}
END_TEST

START_TEST(judge_of_a_wrong_call_that_succeeds_finds_it)
{
    example_fill(&trial, record, FAULT_WRONG, HSDP_ERR_MISMATCH, 1001);
    example_failure(record, EXAMPLE_VICTIM, HSDP_ERR_MISMATCH, 1001, 0);
    expect_found(FINDING_UNTRUE, 0);
    record->ranks[2].n_calls = 1;
    record->ranks[2].first_status = HSDP_OK;
    record->ranks[2].n_told[0] = 0;
    expect_found(FINDING_UNTRUE, 1);
}
END_TEST

/* A collective that the victim left out: a circle of its group, and nobody else. */
START_TEST(judge_of_a_circle_that_names_a_stranger_finds_wrong_names)
{
    example_fill(&trial, record, FAULT_WRONG, HSDP_ERR_TIMEOUT, 2000);
    trial.wrong = WRONG_MISSING;
    trial.n_ranks = 2;
    example_failure(record, EXAMPLE_VICTIM, HSDP_ERR_TIMEOUT, 2000, 0);
    expect_found(FINDING_NAME, 0);
    trial.ep = 2; /* now rank 0 is in another group */
    record->ranks[0].calls[1].error.missing_ranks[0] = 0;
    record->ranks[0].first.missing_ranks[0] = 0;
    expect_found(FINDING_NAME, 2);
}
END_TEST

START_TEST(judge_of_a_wrong_argument_that_is_taken_finds_it)
{
    example_fill(&trial, record, FAULT_WRONG, HSDP_OK, 1001);
    trial.wrong = WRONG_ARGUMENT;
    for (uint32_t rank = 0; rank < EXAMPLE_RANKS; rank++) {
        record->ranks[rank].n_calls = 1;
        record->ranks[rank].n_told[0] = 0;
    }
    example_call(record, EXAMPLE_VICTIM, CALL_UNSHARD, "unit.unshard", 990, 991)->is_local = true;
    expect_found(FINDING_UNTRUE, 1);
}
END_TEST

START_TEST(judge_of_a_second_thread_that_is_let_in_finds_it)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_PEER_LOST, 1050);
    record->ranks[EXAMPLE_VICTIM].busy_status = HSDP_ERR_INVALID;
    record->ranks[EXAMPLE_VICTIM].child_status = HSDP_PENDING;
    expect_found(FINDING_NAME, 2);
}
END_TEST

START_TEST(judge_of_a_slow_abort_finds_it)
{
    example_fill(&trial, record, FAULT_ABORT, HSDP_ERR_ABORTED, 1001);
    record->ranks[EXAMPLE_VICTIM].abort_start_ns = EXAMPLE_FAULT_NS;
    record->ranks[EXAMPLE_VICTIM].abort_end_ns = EXAMPLE_FAULT_NS + 3000 * EXAMPLE_MS;
    expect_found(FINDING_LATE, 1);
}
END_TEST

/* While ranks meet, a death of one that had not come is a timeout; later it is not. */
START_TEST(judge_of_a_death_told_as_a_timeout_is_right_only_while_ranks_meet)
{
    example_fill(&trial, record, FAULT_KILL, HSDP_ERR_TIMEOUT, 2000);
    expect_found(FINDING_NAME, 2);
    for (uint32_t rank = 0; rank < EXAMPLE_RANKS; rank++) {
        if (rank != EXAMPLE_VICTIM) {
            record->ranks[rank].calls[1].name = "job.connect";
            record->ranks[rank].calls[1].kind = CALL_CONNECT;
        }
        record->ranks[rank].calls[0].name = "job.create";
    }
    record->ranks[EXAMPLE_VICTIM].calls[1].name = "job.connect";
    expect_found(FINDING_NAME, 0);
}
END_TEST

/* ------------------------------------------------------------------------- drawing */

START_TEST(draw_of_the_same_seed_is_the_same_trial)
{
    struct trial again;
    struct trial other;

    memset(&trial, 0x55, sizeof(trial));
    trial_draw(&trial, 7, (uint32_t)_i);
    trial_draw(&again, 7, (uint32_t)_i);
    trial_draw(&other, 8, (uint32_t)_i);
    ck_assert_mem_eq(&trial, &again, sizeof(trial));
    ck_assert_int_ne(memcmp(&trial, &other, sizeof(trial)), 0);
}
END_TEST

START_TEST(draw_of_a_thousand_trials_has_every_fault_in_every_size)
{
    bool has_kind[FAULT_N_KINDS] = {false};
    bool has_wrong[WRONG_N_CALLS] = {false};
    bool has_ranks[TRIAL_MAX_RANKS + 1] = {false};

    for (uint32_t i = 0; i < 1000; i++) {
        trial_draw(&trial, 1, i);
        has_kind[trial.kind] = true;
        has_wrong[trial.wrong] = has_wrong[trial.wrong] || trial.kind == FAULT_WRONG;
        has_ranks[trial.n_ranks] = true;
        ck_assert_uint_lt(trial.victim, trial.n_ranks);
    }
    for (uint32_t i = 0; i < FAULT_N_KINDS; i++) {
        ck_assert_msg(has_kind[i], "no %s", fault_names[i]);
    }
    for (uint32_t i = 0; i < WRONG_N_CALLS; i++) {
        ck_assert_msg(has_wrong[i], "no wrong call %u", i);
    }
    for (uint32_t i = 2; i <= TRIAL_MAX_RANKS; i++) {
        ck_assert_msg(has_ranks[i], "no %u ranks", i);
    }
}
END_TEST

static void wrong_add(TCase *tcase)
{
    tcase_add_loop_test(tcase, judge_of_another_rank_finds_a_wrong_name, 0, 6);
    tcase_add_test(tcase, judge_of_one_rank_too_many_finds_a_wrong_name);
    tcase_add_loop_test(tcase, judge_of_another_status_finds_wrong_names, 0, N_OF(rights));
    tcase_add_test(tcase, judge_of_an_empty_sentence_finds_a_wrong_name);
    tcase_add_test(tcase, judge_of_an_error_that_is_not_filled_finds_a_wrong_name);
    tcase_add_loop_test(tcase, judge_of_a_late_return_finds_it, 0, N_OF(rights));
    tcase_add_test(tcase, judge_of_a_loaded_machine_allows_more);
    tcase_add_test(tcase, judge_of_an_early_timeout_finds_it);
    tcase_add_test(tcase, judge_of_a_timeout_that_waited_less_finds_it);
    tcase_add_test(tcase, judge_of_a_rank_that_was_ended_finds_a_hang);
    tcase_add_test(tcase, judge_of_a_survivor_that_crashes_finds_a_death);
    tcase_add_test(tcase, judge_of_what_a_process_still_holds_finds_leaks);
    tcase_add_test(tcase, judge_of_what_is_left_outside_finds_leaks);
    tcase_add_test(tcase, judge_of_a_wrong_value_finds_it);
    tcase_add_test(tcase, judge_of_another_reason_afterwards_finds_it);
    tcase_add_test(tcase, judge_of_a_slow_refusal_finds_a_late_return);
    tcase_add_test(tcase, judge_of_on_abort_not_called_once_finds_it);
    tcase_add_test(tcase, judge_of_ranks_that_tell_different_reasons_finds_it);
}

static void untrue_add(TCase *tcase)
{
    tcase_add_test(tcase, judge_of_a_failure_without_a_fault_finds_it);
    tcase_add_test(tcase, judge_of_a_close_that_not_all_came_to_finds_it);
    tcase_add_test(tcase, judge_of_a_wrong_call_that_succeeds_finds_it);
    tcase_add_test(tcase, judge_of_a_circle_that_names_a_stranger_finds_wrong_names);
    tcase_add_test(tcase, judge_of_a_wrong_argument_that_is_taken_finds_it);
    tcase_add_test(tcase, judge_of_a_second_thread_that_is_let_in_finds_it);
    tcase_add_test(tcase, judge_of_a_slow_abort_finds_it);
}

Suite *module_suite(void)
{
    Suite *suite = suite_create("faults_judge");
    TCase *tcase = tcase_create("judge");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, judge_of_promises_kept_finds_nothing, 0, N_OF(rights));
    tcase_add_test(tcase, judge_of_a_victim_that_dies_of_its_fault_finds_nothing);
    tcase_add_test(tcase, judge_of_a_death_told_as_a_timeout_is_right_only_while_ranks_meet);
    wrong_add(tcase);
    untrue_add(tcase);
    tcase_add_loop_test(tcase, draw_of_the_same_seed_is_the_same_trial, 0, 20);
    tcase_add_test(tcase, draw_of_a_thousand_trials_has_every_fault_in_every_size);
    suite_add_tcase(suite, tcase);
    return suite;
}
