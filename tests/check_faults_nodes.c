/* SPDX-License-Identifier: Apache-2.0 */
/* The judge of the fault campaign, on jobs of several nodes: who is named where. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "faults/example.h"
#include "faults/judge.h"
#include "faults/link.h"
#include "faults/play.h"
#include "suite.h"

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

/* Rank 0 on the first node, the victim and rank 2 on the second, which it leads. */
struct node_right {
    enum fault_kind kind;
    struct {
        int32_t status; /* HSDP_OK = it tells nothing */
        uint64_t end_ms;
        uint64_t missing; /* mask */
    } ranks[EXAMPLE_RANKS];
};

static const struct node_right node_rights[] = {
    {FAULT_KILL, {{HSDP_ERR_PEER_LOST, 1050, 2}, {0, 0, 0}, {HSDP_ERR_PEER_LOST, 1050, 2}}},
    {FAULT_STOP, {{HSDP_ERR_PEER_LOST, 2100, 6}, {0, 0, 0}, {HSDP_ERR_TIMEOUT, 2100, 2}}},
    {FAULT_STALL, {{HSDP_ERR_TIMEOUT, 2100, 2}, {0, 0, 0}, {HSDP_ERR_TIMEOUT, 2100, 2}}},
    {FAULT_DROP,
     {{HSDP_ERR_PEER_LOST, 1050, 2}, {HSDP_ERR_PEER_LOST, 1050, 1}, {HSDP_ERR_PEER_LOST, 1050, 1}}},
    {FAULT_CUT,
     {{HSDP_ERR_PEER_LOST, 2100, 6}, {HSDP_ERR_PEER_LOST, 2100, 1}, {HSDP_ERR_PEER_LOST, 2100, 1}}},
};

static void missing_fill(uint32_t rank, uint64_t mask)
{
    struct hsdp_error *err = &record->ranks[rank].calls[record->ranks[rank].n_calls - 2].error;

    err->n_missing_ranks = 0;
    for (uint32_t r = 0; r < EXAMPLE_RANKS; r++) {
        if ((mask >> r & 1u) != 0) {
            err->missing_ranks[err->n_missing_ranks++] = r;
        }
    }
    record->ranks[rank].first = *err;
}

static void nodes_fill(const struct node_right *right)
{
    example_fill(&trial, record, right->kind, HSDP_OK, 0);
    trial.n_nodes = 2;
    trial.node_ranks[0] = 1;
    trial.node_ranks[1] = 2;
    trial.silence_ms = 1000;
    for (uint32_t rank = 0; rank < EXAMPLE_RANKS; rank++) {
        record->ranks[rank].n_calls = 1;
        record->ranks[rank].first_status = HSDP_OK;
        record->ranks[rank].n_told[0] = 0;
        if (right->ranks[rank].status != HSDP_OK) {
            example_failure(record, rank, right->ranks[rank].status, right->ranks[rank].end_ms, 0);
            missing_fill(rank, right->ranks[rank].missing);
        }
    }
}

START_TEST(judge_of_nodes_that_keep_their_promises_finds_nothing)
{
    nodes_fill(&node_rights[_i]);
    expect_found(FINDING_NAME, 0);
}
END_TEST

/* The names that are right on the other side of the link, or one too many. */
START_TEST(judge_of_other_names_on_a_node_finds_a_wrong_name)
{
    const struct node_right *right = &node_rights[_i / 2];
    uint32_t rank = _i % 2 == 0 ? 0 : 2;

    for (uint64_t mask = 0; mask < 8; mask++) {
        nodes_fill(right);
        missing_fill(rank, mask);
        expect_found(FINDING_NAME, mask == right->ranks[rank].missing ? 0 : 1);
    }
}
END_TEST

START_TEST(judge_of_nodes_that_know_late_finds_it)
{
    struct node_right late = node_rights[_i];
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < EXAMPLE_RANKS; rank++) {
        late.ranks[rank].end_ms += 1500;
        n += late.ranks[rank].status != HSDP_OK;
    }
    nodes_fill(&late);
    expect_found(FINDING_LATE, n);
}
END_TEST

/* Each node tells what it has seen; the ranks of one tell the same. */
START_TEST(judge_of_different_reasons_finds_them_on_one_node_only)
{
    nodes_fill(&node_rights[4]);
    snprintf(record->ranks[0].first.message, 32, "the reason of the root");
    snprintf(record->ranks[0].calls[2].error.message, 64, "aborted: the reason of the root");
    expect_found(FINDING_REPEAT, 0);
    snprintf(record->ranks[2].first.message, 32, "the reason of rank 2");
    snprintf(record->ranks[2].calls[2].error.message, 64, "aborted: the reason of rank 2");
    expect_found(FINDING_REPEAT, 1);
}
END_TEST

START_TEST(judge_of_data_that_crosses_nodes_finds_an_untrue_answer)
{
    struct call_record *call;

    nodes_fill(&node_rights[0]);
    call = example_call(record, 0, CALL_GROUP, "group.connect", 200, 201);
    call->wanted = HSDP_ERR_UNSUPPORTED;
    call->status = HSDP_ERR_UNSUPPORTED;
    expect_found(FINDING_UNTRUE, 0);
    call->status = HSDP_OK;
    expect_found(FINDING_UNTRUE, 1);
}
END_TEST

/* While ranks meet, those of the victim's node know their leader by its place alone. */
START_TEST(judge_of_a_leader_without_a_name_is_right_only_beside_it)
{
    nodes_fill(&node_rights[0]);
    for (uint32_t rank = 0; rank < EXAMPLE_RANKS; rank += 2) {
        struct rank_record *own = &record->ranks[rank];

        own->calls[0].name = "job.create";
        own->calls[1].name = "job.connect";
        snprintf(own->calls[1].error.message, 64, "the reason: local rank 0 of this host");
        own->calls[1].kind = CALL_CONNECT;
        missing_fill(rank, 0);
        snprintf(own->calls[2].error.message, 64, "aborted: the reason: local rank 0 of this host");
    }
    record->ranks[EXAMPLE_VICTIM].calls[0].end_ns = 0;
    expect_found(FINDING_NAME, 1);
    missing_fill(0, 2);
    expect_found(FINDING_NAME, 0);
    record->ranks[2].calls[1].name = "job.setting_set";
    expect_found(FINDING_NAME, 1);
}
END_TEST

/* ------------------------------------------------------------------------- the proxy */

START_TEST(link_redirect_of_a_meeting_point_leads_to_the_proxy)
{
    char value[256] = "hsdp1 0123456789abcdef0123456789abcdef 500 10.0.0.1 ::1";
    uint64_t n_bytes = strlen(value);

    record->proxy_port = 600;
    link_publish(record, value, n_bytes);
    ck_assert_uint_eq(record->root_port, 500);
    n_bytes = link_redirect(record, value, n_bytes, sizeof(value) - 1);
    value[n_bytes] = '\0';
    ck_assert_str_eq(value, "hsdp1 0123456789abcdef0123456789abcdef 600 127.0.0.1");
}
END_TEST

START_TEST(draw_of_a_thousand_trials_has_every_number_of_nodes)
{
    uint32_t n_of[TRIAL_MAX_NODES + 1] = {0};

    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t n_ranks = 0;

        trial_draw(&trial, 1, i);
        n_of[trial.n_nodes]++;
        for (uint32_t node = 0; trial.n_nodes > 1 && node < trial.n_nodes; node++) {
            n_ranks += trial.node_ranks[node];
            ck_assert_uint_ge(trial.node_ranks[node], 1);
        }
        ck_assert_uint_eq(n_ranks, trial.n_nodes > 1 ? trial.n_ranks : 0);
        if (trial.kind == FAULT_DROP || trial.kind == FAULT_CUT) {
            ck_assert_uint_gt(trial_node_of(&trial, trial.victim), 0);
        }
    }
    for (uint32_t n = 2; n <= TRIAL_MAX_NODES; n++) {
        ck_assert_msg(n_of[n] > 30, "%u trials of %u nodes", n_of[n], n);
    }
    ck_assert_uint_gt(n_of[1], 700);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("faults_nodes");
    TCase *tcase = tcase_create("nodes");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, judge_of_nodes_that_keep_their_promises_finds_nothing, 0,
                        N_OF(node_rights));
    tcase_add_loop_test(tcase, judge_of_other_names_on_a_node_finds_a_wrong_name, 0,
                        2 * N_OF(node_rights));
    tcase_add_loop_test(tcase, judge_of_nodes_that_know_late_finds_it, 0, N_OF(node_rights));
    tcase_add_test(tcase, judge_of_different_reasons_finds_them_on_one_node_only);
    tcase_add_test(tcase, judge_of_data_that_crosses_nodes_finds_an_untrue_answer);
    tcase_add_test(tcase, judge_of_a_leader_without_a_name_is_right_only_beside_it);
    tcase_add_test(tcase, link_redirect_of_a_meeting_point_leads_to_the_proxy);
    tcase_add_test(tcase, draw_of_a_thousand_trials_has_every_number_of_nodes);
    suite_add_tcase(suite, tcase);
    return suite;
}
