/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes on one machine: they meet over loopback, agree, fail and end together. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "jobs.h"
#include "node_ranks.h"
#include "ranks.h"
#include "suite.h"

static struct nodes_case nodes_case_of(const char *sizes)
{
    return (struct nodes_case){.sizes = sizes, .port = node_ranks_port()};
}

static struct hsdp_job *node_job_open(const struct nodes_case *nodes, uint32_t rank,
                                      const char *seconds)
{
    node_ranks_environment(nodes, rank);
    return test_job_open(seconds);
}

/* ------------------------------------------------------------------------------ connecting */

static void exchanging_rank(uint32_t rank, void *shared)
{
    const struct nodes_case *nodes = shared;
    struct hsdp_job *job = node_job_open(nodes, rank, "20");
    uint32_t n_ranks = node_ranks_world(nodes->sizes);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t all[16];

    for (uint64_t round = 0; round < 20; round++) {
        uint64_t mine = 1000 * round + rank;

        status_assert(job_exchange(job, "test", &mine, sizeof(mine), all, &err), HSDP_OK, &err);
        for (uint32_t r = 0; r < n_ranks; r++) {
            ck_assert_uint_eq(all[r], 1000 * round + r);
        }
    }
    test_job_end(job);
}

static const char *const shapes[] = {"1,1", "2,2", "1,3,1", "4,1", "1,1,1,1,1"};

START_TEST(job_exchange_over_nodes_of_any_size_is_exact)
{
    struct nodes_case nodes = nodes_case_of(shapes[_i]);

    ranks_run(node_ranks_world(nodes.sizes), RANKS_LIMIT_MS, exchanging_rank, &nodes);
}
END_TEST

static void setting_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = node_job_open(shared, rank, "20");
    struct hsdp_error err = HSDP_ERROR_INIT;

    status_assert(job_setting_set(job, "nccl_timeout_seconds", rank == 3 ? "7" : "8", &err),
                  HSDP_ERR_MISMATCH, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "rank 3"));
    test_job_drop(job);
}

START_TEST(job_setting_set_over_nodes_of_two_values_mismatches_on_all)
{
    struct nodes_case nodes = nodes_case_of("2,2");

    ranks_run(4, RANKS_LIMIT_MS, setting_rank, &nodes);
}
END_TEST

static void unequal_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    node_ranks_environment(shared, rank);
    job = test_job_create(rank >= 2 ? "21" : "20");
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status_assert(job_connect(job, &err), HSDP_ERR_MISMATCH, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "nccl_timeout_seconds"));
    test_job_drop(job);
}

START_TEST(job_connect_over_nodes_of_other_settings_mismatches_on_all)
{
    struct nodes_case nodes = nodes_case_of("2,2");

    ranks_run(4, RANKS_LIMIT_MS, unequal_rank, &nodes);
}
END_TEST

/* One node has failed before the other comes: it hears why. */
struct lateness {
    struct nodes_case nodes;
    uint32_t first_late; /* this rank and those after it */
    uint32_t n_late;
};

static void late_rank(uint32_t rank, void *shared)
{
    const struct lateness *lateness = shared;
    bool is_late = rank >= lateness->first_late && rank < lateness->first_late + lateness->n_late;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    node_ranks_environment(&lateness->nodes, rank);
    if (is_late) {
        ranks_sleep_ms(150);
    }
    job = test_job_create(rank == (lateness->first_late == 0 ? 2 : 1) ? "6" : "5");
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status_assert(job_connect(job, &err), HSDP_ERR_MISMATCH, &err);
    test_job_drop(job);
}

START_TEST(job_connect_of_a_node_that_comes_after_the_failure_hears_it)
{
    struct lateness lateness = {nodes_case_of("2,1"), 2, 1};

    ranks_run(3, RANKS_LIMIT_MS, late_rank, &lateness);
}
END_TEST

START_TEST(job_connect_of_a_root_that_comes_after_the_failure_hears_it)
{
    struct lateness lateness = {nodes_case_of("1,2"), 0, 1};

    ranks_run(3, RANKS_LIMIT_MS, late_rank, &lateness);
}
END_TEST

/* -------------------------------------------------------------------------------- missing */

static void without_rank(uint32_t rank, uint32_t absent, const void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    if (rank == absent) {
        return;
    }
    node_ranks_environment(shared, rank);
    job = test_job_create("2");
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status_assert(job_connect(job, &err), HSDP_ERR_TIMEOUT, &err);
    ck_assert_msg(err.n_missing_ranks == 1 && err.missing_ranks[0] == absent, "%s", err.message);
    test_job_drop(job);
}

static void without_rank_3(uint32_t rank, void *shared)
{
    without_rank(rank, 3, shared);
}

static void without_rank_0(uint32_t rank, void *shared)
{
    without_rank(rank, 0, shared);
}

START_TEST(job_connect_without_a_rank_of_another_node_names_it)
{
    struct nodes_case nodes = nodes_case_of("2,2");

    ranks_run(4, RANKS_LIMIT_MS, without_rank_3, &nodes);
}
END_TEST

START_TEST(job_connect_without_the_root_names_it)
{
    struct nodes_case nodes = nodes_case_of("1,1,1");

    ranks_run(3, RANKS_LIMIT_MS, without_rank_0, &nodes);
}
END_TEST

static int32_t nothing_put(void *user, const char *key, const void *value, uint64_t n_bytes)
{
    (void)user, (void)key, (void)value, (void)n_bytes;
    return 0;
}

static int32_t nothing_get(void *user, const char *key, void *ret_value, uint64_t max_bytes,
                           uint64_t *ret_bytes, uint32_t wait_ms)
{
    (void)user, (void)key, (void)ret_value, (void)max_bytes, (void)ret_bytes;
    ranks_sleep_ms(wait_ms < 20 ? wait_ms : 20);
    return 1;
}

/* Rank 0 publishes nothing: a rank that leads no node misses it, not its leader. */
static void unpublished_rank(uint32_t rank, void *shared)
{
    static const char *const keys[] = {"nccl_timeout_seconds"};
    static const char *const values[] = {"1"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    (void)shared;
    if (rank == 0) {
        return;
    }
    ranks_environment_clear();
    setenv("HSDP_NODE_RANK", "1", 1);
    spec.settings = (struct hsdp_settings){keys, values, 1};
    spec.rank = rank;
    spec.world_ranks = 3;
    spec.local_rank = rank - 1;
    spec.local_ranks = 2;
    spec.kv_put = nothing_put;
    spec.kv_get = nothing_get;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status_assert(job_connect(job, &err), HSDP_ERR_TIMEOUT, &err);
    ck_assert_msg(err.n_missing_ranks == 1 && err.missing_ranks[0] == 0, "%s", err.message);
    test_job_drop(job);
}

START_TEST(job_connect_of_ranks_that_find_nothing_in_the_store_names_rank_0)
{
    ranks_run(3, RANKS_LIMIT_MS, unpublished_rank, NULL);
}
END_TEST

static void stopping_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = node_job_open(shared, rank, "2");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t all[4];

    if (rank == 3) {
        ranks_sleep_ms(4000);
        test_job_drop(job);
        return;
    }
    status_assert(job_exchange(job, "test", &(uint64_t){0}, 8, all, &err), HSDP_ERR_TIMEOUT, &err);
    ck_assert_msg(err.n_missing_ranks == 1 && err.missing_ranks[0] == 3, "%s", err.message);
    ck_assert_msg(strstr(err.message, "rank 3, which") != NULL, "%s", err.message);
    test_job_drop(job);
}

START_TEST(job_exchange_without_a_rank_of_another_node_names_it_and_what_it_does)
{
    struct nodes_case nodes = nodes_case_of("2,2");

    ranks_run(4, RANKS_LIMIT_MS, stopping_rank, &nodes);
}
END_TEST

/* ----------------------------------------------------------------------------------- deaths */

struct killing {
    struct nodes_case nodes;
    uint32_t victim;
    _Atomic uint32_t n_ready;
};

static void surviving_rank(uint32_t rank, void *shared)
{
    struct killing *killing = shared;
    struct hsdp_job *job = node_job_open(&killing->nodes, rank, "10");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t all[4];
    int32_t status = HSDP_OK;

    atomic_fetch_add(&killing->n_ready, 1u);
    if (rank == killing->victim) {
        ranks_sleep_ms(RANKS_LIMIT_MS);
    }
    status = job_exchange(job, "test", &(uint64_t){0}, 8, all, &err);
    status_assert(status, HSDP_ERR_PEER_LOST, &err);
    ck_assert_msg(err.n_missing_ranks == 1 && err.missing_ranks[0] == killing->victim, "%s",
                  err.message);
    test_job_drop(job);
}

/* A rank, a leader, the root. */
START_TEST(kill_of_a_rank_of_any_node_is_known_to_all)
{
    struct killing *killing = ranks_memory(sizeof(*killing));
    struct ranks ranks;

    killing->nodes = nodes_case_of("2,2");
    killing->victim = (uint32_t)_i;
    ranks_start(&ranks, 4, RANKS_LIMIT_MS, surviving_rank, killing);
    while (atomic_load(&killing->n_ready) < 4 && ranks_running(&ranks) == 4) {
        ranks_sleep_ms(2);
    }
    ranks_kill(&ranks, killing->victim);
    ranks_wait(&ranks);
}
END_TEST

struct orphaning {
    struct nodes_case nodes;
    _Atomic uint32_t may_come; /* the second node */
};

static void orphaned_rank(uint32_t rank, void *shared)
{
    struct orphaning *orphaning = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    while (rank >= 2 && atomic_load(&orphaning->may_come) == 0) {
        ranks_sleep_ms(2);
    }
    node_ranks_environment(&orphaning->nodes, rank);
    job = test_job_create("8");
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    status_assert(job_connect(job, &err), HSDP_ERR_PEER_LOST, &err);
    ck_assert_msg(err.n_missing_ranks == 1 && err.missing_ranks[0] == 2, "%s", err.message);
    test_job_drop(job);
}

/* All have met but rank 1, which is stopped, has not come to what ends connect: the others wait
 * for it, and rank 3 hears of it through rank 2, its leader, which dies. */
START_TEST(kill_of_a_leader_at_the_end_of_connect_is_known_on_its_node)
{
    struct orphaning *orphaning = ranks_memory(sizeof(*orphaning));
    struct ranks ranks;

    orphaning->nodes = nodes_case_of("2,2");
    ranks_start(&ranks, 4, RANKS_LIMIT_MS, orphaned_rank, orphaning);
    ranks_sleep_ms(600);
    kill(ranks.pids[1], SIGSTOP);
    atomic_store(&orphaning->may_come, 1u);
    ranks_sleep_ms(600);
    ranks_kill(&ranks, 2);
    ranks_sleep_ms(1500);
    kill(ranks.pids[1], SIGCONT);
    ranks_wait(&ranks);
}
END_TEST

static void aborting_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = node_job_open(shared, rank, "20");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t all[4];

    if (rank == 3) {
        ck_assert_int_eq(job_abort(job, "enough", &err), HSDP_OK);
    } else {
        status_assert(job_exchange(job, "test", &(uint64_t){0}, 8, all, &err), HSDP_ERR_ABORTED,
                      &err);
        ck_assert_ptr_nonnull(strstr(err.message, "rank 3 has aborted: enough"));
    }
    test_job_drop(job);
}

START_TEST(job_abort_on_one_node_ends_the_calls_of_all)
{
    struct nodes_case nodes = nodes_case_of("2,2");

    ranks_run(4, RANKS_LIMIT_MS, aborting_rank, &nodes);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nodes");
    TCase *tcase = tcase_create("nodes");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, job_exchange_over_nodes_of_any_size_is_exact, 0,
                        sizeof(shapes) / sizeof(shapes[0]));
    tcase_add_test(tcase, job_setting_set_over_nodes_of_two_values_mismatches_on_all);
    tcase_add_test(tcase, job_connect_over_nodes_of_other_settings_mismatches_on_all);
    tcase_add_test(tcase, job_connect_of_a_node_that_comes_after_the_failure_hears_it);
    tcase_add_test(tcase, job_connect_of_a_root_that_comes_after_the_failure_hears_it);
    tcase_add_test(tcase, job_connect_of_ranks_that_find_nothing_in_the_store_names_rank_0);
    tcase_add_test(tcase, job_connect_without_a_rank_of_another_node_names_it);
    tcase_add_test(tcase, job_connect_without_the_root_names_it);
    tcase_add_test(tcase, job_exchange_without_a_rank_of_another_node_names_it_and_what_it_does);
    tcase_add_loop_test(tcase, kill_of_a_rank_of_any_node_is_known_to_all, 0, 4);
    tcase_add_test(tcase, kill_of_a_leader_at_the_end_of_connect_is_known_on_its_node);
    tcase_add_test(tcase, job_abort_on_one_node_ends_the_calls_of_all);
    suite_add_tcase(suite, tcase);
    return suite;
}
