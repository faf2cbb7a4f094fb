/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that hold the token and say anything: the others drop them or fail, with a sentence. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "comm/nodes_message.h"
#include "hostile.h"
#include "jobs.h"
#include "node_ranks.h"
#include "ranks.h"
#include "suite.h"

#define N_SEEDS 12

struct fight {
    struct nodes_case nodes;
    uint64_t seed;
};

/* How far the other side comes before it says anything. */
enum { STAGE_STRANGER, STAGE_JOINED, STAGE_AGREED, STAGE_CONNECTED, N_STAGES };

/* Whatever comes of it, it comes in time and with a sentence. */
static void honest_rank(uint32_t rank, const struct fight *fight)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    int32_t status;
    uint64_t all[4];

    node_ranks_environment(&fight->nodes, rank);
    job = test_job_create(HOSTILE_SECONDS);
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status = job_connect(job, &err);
    for (int i = 0; i < 3 && status == HSDP_OK; i++) {
        status = job_exchange(job, "test", &(uint64_t){0}, 8, all, &err);
    }
    ck_assert_int_lt(status, 0);
    ck_assert_uint_gt(strlen(err.message), 0);
    test_job_drop(job);
}

static void hostile_leader(struct hostile *hostile)
{
    uint64_t stage = hostile_draw(hostile, N_STAGES);

    if (stage >= STAGE_JOINED) {
        hostile_join(hostile);
        hostile_serve(hostile, UINT32_MAX, 1, 5000); /* the welcome */
    }
    for (uint64_t exchange = 1; exchange + STAGE_JOINED <= stage; exchange++) {
        hostile_board(hostile, exchange, 1, 1, "connect");
        hostile_serve(hostile, UINT32_MAX, 1 + (uint32_t)exchange, 5000);
    }
}

static void hostile_root(struct hostile *hostile)
{
    uint64_t stage = hostile_draw(hostile, N_STAGES);

    hostile_serve(hostile, UINT32_MAX, 2, 5000); /* join, ranks */
    if (stage >= STAGE_JOINED) {
        hostile_send(hostile, NODES_WELCOME, NULL, 0);
    }
    for (uint64_t exchange = 1; exchange + STAGE_JOINED <= stage; exchange++) {
        hostile_serve(hostile, UINT32_MAX, 2 + (uint32_t)exchange, 5000);
        hostile_board(hostile, exchange, 0, 2, "connect");
    }
}

static void hostile_run(uint32_t rank, const struct fight *fight)
{
    struct hostile hostile;

    node_ranks_environment(&fight->nodes, rank);
    if (rank == 0) {
        hostile_root_init(&hostile, fight->nodes.port, fight->seed);
        hostile_root(&hostile);
    } else {
        hostile_leader_init(&hostile, fight->nodes.port, fight->seed);
        hostile_leader(&hostile);
    }
    for (int i = 0; i < 60 && !hostile.has_ended; i++) {
        hostile_say_anything(&hostile);
        hostile_serve(&hostile, UINT32_MAX, UINT32_MAX, hostile_draw(&hostile, 3));
    }
    hostile_fini(&hostile);
}

static void leader_fight(uint32_t rank, void *shared)
{
    if (rank == 0) {
        honest_rank(rank, shared);
    } else {
        hostile_run(rank, shared);
    }
}

static void root_fight(uint32_t rank, void *shared)
{
    if (rank == 1) {
        honest_rank(rank, shared);
    } else {
        hostile_run(rank, shared);
    }
}

START_TEST(root_of_a_leader_that_says_anything_fails_in_time)
{
    struct fight fight = {{.sizes = "1,1", .port = node_ranks_port()}, (uint64_t)_i};

    ranks_run(2, RANKS_LIMIT_MS, leader_fight, &fight);
}
END_TEST

START_TEST(leader_of_a_root_that_says_anything_fails_in_time)
{
    struct fight fight = {{.sizes = "1,1", .port = node_ranks_port()}, (uint64_t)_i};

    ranks_run(2, RANKS_LIMIT_MS, root_fight, &fight);
}
END_TEST

/* ---------------------------------------------------------------------------- one lie at a time */

/* Who joins, and says nothing more, is not waited for: neither in an exchange nor at close. */
static void idling_rank(uint32_t rank, void *shared)
{
    const struct fight *fight = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hostile hostile;
    struct hsdp_job *job;
    uint64_t all[3];

    if (rank == 2) { /* beyond the world: as a second leader of rank 1's node */
        setenv("WORLD_SIZE", "2", 1);
        node_ranks_environment(&fight->nodes, 1);
        setenv("RANK", "1", 1);
        hostile_leader_init(&hostile, fight->nodes.port, 0);
        hostile_serve(&hostile, UINT32_MAX, UINT32_MAX, 15000); /* until it is sent away */
        ck_assert(hostile.has_ended);
        hostile_fini(&hostile);
        return;
    }
    setenv("WORLD_SIZE", "2", 1);
    node_ranks_environment(&fight->nodes, rank);
    if (rank == 1) {
        ranks_sleep_ms(1500); /* the idler is there before */
    }
    job = test_job_open(HOSTILE_SECONDS);
    status_assert(job_exchange(job, "test", &(uint64_t){0}, 8, all, &err), HSDP_OK, &err);
    test_job_end(job);
}

START_TEST(root_with_a_guest_without_ranks_does_not_wait_for_it)
{
    struct fight fight = {{.sizes = "1,1", .port = node_ranks_port()}, 0};

    ranks_run(3, RANKS_LIMIT_MS, idling_rank, &fight);
}
END_TEST

/* What the root may not believe of a leader once all have met, and what it says then. */
static void board_lie(struct hostile *hostile, int lie)
{
    if (lie == 0) { /* an exchange that is not open */
        hostile_board(hostile, 7, 1, 1, "connect");
    } else if (lie == 1) { /* of a rank that is not its own */
        hostile_board(hostile, 1, 0, 1, "connect");
    } else if (lie == 2) { /* beyond the world */
        hostile_board(hostile, 1, 1, 2, "connect");
    } else { /* no board at all */
        hostile_send(hostile, NODES_BOARD, "xyz", 3);
    }
}

static void lying_rank(uint32_t rank, void *shared)
{
    const struct fight *fight = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hostile hostile;
    struct hsdp_job *job;

    node_ranks_environment(&fight->nodes, rank);
    if (rank == 0) {
        job = test_job_create(HOSTILE_SECONDS);
        ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
        status_assert(job_connect(job, &err), HSDP_ERR_MISMATCH, &err);
        ck_assert_msg(strstr(err.message, "what the node of rank 1 sent is not whole") != NULL,
                      "%s", err.message);
        test_job_drop(job);
        return;
    }
    hostile_leader_init(&hostile, fight->nodes.port, 0);
    hostile_join(&hostile);
    hostile_serve(&hostile, UINT32_MAX, 1, 5000);
    board_lie(&hostile, (int)fight->seed);
    hostile_serve(&hostile, UINT32_MAX, UINT32_MAX, 5000);
    hostile_fini(&hostile);
}

START_TEST(root_of_a_leader_with_another_board_mismatches_and_names_it)
{
    struct fight fight = {{.sizes = "1,1", .port = node_ranks_port()}, (uint64_t)_i};

    ranks_run(2, RANKS_LIMIT_MS, lying_rank, &fight);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nodes_hostile");
    TCase *tcase = tcase_create("nodes_hostile");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, root_of_a_leader_that_says_anything_fails_in_time, 0, N_SEEDS);
    tcase_add_loop_test(tcase, leader_of_a_root_that_says_anything_fails_in_time, 0, N_SEEDS);
    tcase_add_test(tcase, root_with_a_guest_without_ranks_does_not_wait_for_it);
    tcase_add_loop_test(tcase, root_of_a_leader_with_another_board_mismatches_and_names_it, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}
