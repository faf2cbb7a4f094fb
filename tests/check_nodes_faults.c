/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes on one machine: leaving, aborting, forking and growing at the wrong moment. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "jobs.h"
#include "node_ranks.h"
#include "ranks.h"
#include "suite.h"

struct scene {
    struct nodes_case nodes;
    uint32_t victim;
    _Atomic uint32_t n_ready;
    _Atomic uint32_t has_child;
};

static struct scene *scene_of(const char *sizes, uint32_t victim)
{
    struct scene *scene = ranks_memory(sizeof(*scene));

    scene->nodes = (struct nodes_case){.sizes = sizes, .port = node_ranks_port()};
    scene->victim = victim;
    return scene;
}

static void scene_run(const char *sizes, uint32_t victim,
                      void (*function)(uint32_t rank, void *shared))
{
    ranks_run(node_ranks_world(sizes), 2 * RANKS_LIMIT_MS, function, scene_of(sizes, victim));
}

static struct hsdp_job *scene_job(const struct scene *scene, uint32_t rank, const char *seconds)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    node_ranks_environment(&scene->nodes, rank);
    job = test_job_create(seconds);
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    return job;
}

static struct hsdp_job *scene_open(const struct scene *scene, uint32_t rank, const char *seconds)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = scene_job(scene, rank, seconds);

    status_assert(job_connect(job, &err), HSDP_OK, &err);
    return job;
}

/* --------------------------------------------------------------------------------- large worlds */

/* More than the ranks of one host, which is what fits into many a place. */
static void large_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = scene_open(shared, rank, "35");
    struct hsdp_error err = HSDP_ERROR_INIT;

    status_assert(job_setting_set(job, "peer_silence_seconds", "30", &err), HSDP_OK, &err);
    status_assert(job_setting_set(job, "heartbeat_timeout_seconds", rank == 65 ? "8" : "9", &err),
                  HSDP_ERR_MISMATCH, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "\"9\" on rank 0"));
    ck_assert_ptr_nonnull(strstr(err.message, "\"8\" on rank 65"));
    test_job_drop(job);
}

START_TEST(job_setting_set_of_more_ranks_than_a_host_holds_agrees)
{
    scene_run("33,33", 0, large_rank);
}
END_TEST

static void small_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = scene_open(shared, rank, "30");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t mine = rank;
    uint64_t all[16];

    for (int i = 0; i < 50; i++) {
        status_assert(job_exchange(job, "test", &mine, 8, all, &err), HSDP_OK, &err);
        ck_assert_uint_eq(all[15], 15);
    }
    test_job_end(job);
}

START_TEST(job_exchange_of_many_nodes_of_one_rank_is_exact)
{
    scene_run("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", 0, small_rank);
}
END_TEST

/* -------------------------------------------------------------------------------------- leaving */

/* Without close: whoever waits for it, on any node, hears it long before the deadline. */
static void left_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(scene, rank, "20");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t start_ms = ranks_now_ms();
    uint64_t all[4];

    if (rank == scene->victim) {
        ranks_sleep_ms(300);
        test_job_drop(job);
        ranks_sleep_ms(4000); /* it lives on */
        return;
    }
    status_assert(job_exchange(job, "test", &(uint64_t){0}, 8, all, &err), HSDP_ERR_PEER_LOST,
                  &err);
    ck_assert_msg(err.n_missing_ranks == 1 && err.missing_ranks[0] == scene->victim, "%s",
                  err.message);
    ck_assert_ptr_nonnull(strstr(err.message, "left the job"));
    ck_assert_uint_lt(ranks_now_ms() - start_ms, 15000);
    test_job_drop(job);
}

START_TEST(job_destroy_without_close_is_heard_on_all_nodes)
{
    scene_run("2,2", (uint32_t)_i, left_rank);
}
END_TEST

/* All ranks of a node: the others have nobody there who could tell. */
static void alone_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = scene_open(shared, rank, "20");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t all[4];

    if (rank < 2) {
        status_assert(job_exchange(job, "test", &(uint64_t){0}, 8, all, &err), HSDP_ERR_PEER_LOST,
                      &err);
    }
    test_job_drop(job);
}

START_TEST(job_destroy_of_a_whole_node_is_heard)
{
    scene_run("2,2", 0, alone_rank);
}
END_TEST

static void unlike_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = scene_open(shared, rank, "20");
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status;

    status = rank == ((struct scene *)shared)->victim
                 ? job_close(job, &err)
                 : job_setting_set(job, "peer_silence_seconds", "3", &err);
    status_assert(status, HSDP_ERR_MISMATCH, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "close"));
    ck_assert_ptr_nonnull(strstr(err.message, "setting_set"));
    test_job_drop(job);
}

START_TEST(job_close_of_one_while_others_agree_mismatches_on_all)
{
    scene_run("2,2", (uint32_t)_i, unlike_rank);
}
END_TEST

/* ------------------------------------------------------------------------------------- aborting */

static void *abort_soon(void *job)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    ranks_sleep_ms(500);
    ck_assert_int_eq(job_abort(job, "enough", &err), HSDP_OK);
    return NULL;
}

/* Rank 4 never comes. */
static void aborting_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t start_ms = ranks_now_ms();
    struct hsdp_job *job;
    pthread_t thread;

    if (rank == 4) {
        return;
    }
    job = scene_job(scene, rank, "20");
    if (rank == scene->victim) {
        ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon, job), 0);
    }
    status_assert(job_connect(job, &err), HSDP_ERR_ABORTED, &err);
    ck_assert_msg(strstr(err.message, "enough") != NULL, "%s", err.message);
    ck_assert_uint_lt(ranks_now_ms() - start_ms, 15000);
    if (rank == scene->victim) {
        pthread_join(thread, NULL);
    }
    test_job_drop(job);
}

START_TEST(job_abort_inside_of_connect_ends_it_on_all_nodes)
{
    scene_run("2,2,1", (uint32_t)_i, aborting_rank);
}
END_TEST

/* ------------------------------------------------------------------------------ what is silent */

/* Once it is set to 1: far less than it was. */
static void silent_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = scene_open(shared, rank, "60");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t start_ms;
    uint64_t all[2];

    status_assert(job_setting_set(job, "peer_silence_seconds", "60", &err), HSDP_OK, &err);
    status_assert(job_setting_set(job, "peer_silence_seconds", "1", &err), HSDP_OK, &err);
    atomic_fetch_add(&((struct scene *)shared)->n_ready, 1u);
    if (rank == 1) {
        raise(SIGSTOP);
    }
    start_ms = ranks_now_ms();
    status_assert(job_exchange(job, "test", &(uint64_t){0}, 8, all, &err), HSDP_ERR_PEER_LOST,
                  &err);
    ck_assert_ptr_nonnull(strstr(err.message, "silent"));
    ck_assert_uint_lt(ranks_now_ms() - start_ms, 15000);
    test_job_drop(job);
}

START_TEST(job_setting_set_of_peer_silence_counts_at_once)
{
    struct scene *scene = scene_of("1,1", 1);
    struct ranks ranks;

    ranks_start(&ranks, 2, RANKS_LIMIT_MS, silent_rank, scene);
    while (ranks_running(&ranks) == 2) {
        ranks_sleep_ms(5);
    }
    ranks_kill(&ranks, 1);
    ranks_wait(&ranks);
}
END_TEST

/* A leader that stops while it waits itself; the absent one is on the other node. */
static void led_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job = scene_open(scene, rank, "3");
    struct hsdp_error err = HSDP_ERROR_INIT;
    int32_t status;
    uint64_t all[4];

    atomic_fetch_add(&scene->n_ready, 1u);
    if (rank == (scene->victim == 0 ? 3u : 1u)) {
        ranks_sleep_ms(6000);
    }
    status = job_exchange(job, "test", &(uint64_t){0}, 8, all, &err);
    ck_assert_int_lt(status, 0);
    if (rank == scene->victim + 1) {
        ck_assert_int_eq(status, HSDP_ERR_TIMEOUT);
        ck_assert_msg(err.n_missing_ranks == 1 && err.missing_ranks[0] == scene->victim, "%s",
                      err.message);
        ck_assert_msg(strstr(err.message, "is stopped") != NULL, "%s", err.message);
    }
    test_job_drop(job);
}

START_TEST(stop_of_a_leader_that_waits_is_named_on_its_node)
{
    struct scene *scene = scene_of("2,2", _i == 0 ? 0 : 2);
    struct ranks ranks;

    ranks_start(&ranks, 4, RANKS_LIMIT_MS, led_rank, scene);
    while (atomic_load(&scene->n_ready) < 4 && ranks_running(&ranks) == 4) {
        ranks_sleep_ms(5);
    }
    ranks_sleep_ms(500);
    kill(ranks.pids[scene->victim], SIGSTOP);
    while (ranks_running(&ranks) > 1) {
        ranks_sleep_ms(5);
    }
    ranks_kill(&ranks, scene->victim);
    ranks_wait(&ranks);
}
END_TEST

/* A leader that may start no thread. */
static void threadless_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct rlimit limit = {.rlim_cur = 1};
    struct rlimit before;
    struct hsdp_job *job = scene_job(scene, rank, "20");
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t start_ms = ranks_now_ms();

    if (rank == scene->victim) {
        ck_assert(geteuid() != 0 || setuid(61234) == 0); /* root has no such limit */
        ck_assert_int_eq(getrlimit(RLIMIT_NPROC, &before), 0);
        limit.rlim_max = before.rlim_max;
        ck_assert_int_eq(setrlimit(RLIMIT_NPROC, &limit), 0);
    }
    status_assert(job_connect(job, &err), HSDP_ERR_UNAVAILABLE, &err);
    ck_assert_msg(strstr(err.message, "thread") != NULL, "%s", err.message);
    if (rank == scene->victim) {
        setrlimit(RLIMIT_NPROC, &before); /* who looks for leaks at exit needs a thread, too */
    }
    ck_assert_uint_lt(ranks_now_ms() - start_ms, 15000);
    test_job_drop(job);
}

START_TEST(job_connect_of_a_leader_without_a_thread_fails_on_all)
{
    scene_run("1,1,1", (uint32_t)_i, threadless_rank);
}
END_TEST

/* ----------------------------------------------------------------------- several jobs, children */

static struct hsdp_job *named_open(const char *name)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    spec.name = name;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    return job;
}

static void two_jobs_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *jobs[2];
    uint64_t all[4];

    node_ranks_environment(&((struct scene *)shared)->nodes, rank);
    setenv("HSDP_NCCL_TIMEOUT_SECONDS", "20", 1);
    jobs[0] = named_open("one");
    jobs[1] = named_open("another");
    for (int i = 0; i < 20; i++) {
        uint64_t mine = (uint64_t)i * 100 + rank;

        status_assert(job_exchange(jobs[i % 2], "test", &mine, 8, all, &err), HSDP_OK, &err);
        ck_assert_uint_eq(all[3], (uint64_t)i * 100 + 3);
    }
    test_job_end(jobs[0]);
    status_assert(job_exchange(jobs[1], "test", all, 8, all, &err), HSDP_OK, &err);
    test_job_end(jobs[1]);
}

START_TEST(job_connect_of_two_jobs_of_a_process_over_nodes_keeps_them_apart)
{
    scene_run("2,2", 0, two_jobs_rank);
}
END_TEST

static void cycling_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t n_descriptors = 0;
    uint32_t n_threads = 0;
    uint64_t all[3];

    for (int i = 0; i < 30; i++) {
        struct hsdp_job *job = scene_open(shared, rank, "20");

        status_assert(job_exchange(job, "test", all, 8, all, &err), HSDP_OK, &err);
        test_job_end(job);
        if (i == 0) {
            n_descriptors = ranks_n_descriptors();
            n_threads = ranks_n_threads();
        }
    }
    ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
    ck_assert_uint_eq(ranks_n_threads(), n_threads);
}

START_TEST(job_destroy_over_nodes_leaves_no_descriptor_and_no_thread)
{
    scene_run("2,1", 0, cycling_rank);
}
END_TEST

static void *connect_run(void *job)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    status_assert(job_connect(job, &err), HSDP_OK, &err);
    return NULL;
}

/* A child of the leader that was forked while that waited for the others, and lives on. */
static pid_t child_of_connect(struct scene *scene, struct hsdp_job *job)
{
    uint32_t n_descriptors = ranks_n_descriptors();
    pthread_t thread;
    pid_t child;

    ck_assert_int_eq(pthread_create(&thread, NULL, connect_run, job), 0);
    ranks_sleep_ms(500); /* it listens, or looks for the root; where it does not, no harm is done */
    child = fork();
    if (child == 0) { /* it has closed what it had to before it comes here */
        atomic_store(&scene->has_child, 1u);
        if (ranks_n_descriptors() > n_descriptors) {
            _exit(1);
        }
        pause();
    }
    while (atomic_load(&scene->has_child) == 0) {
        ranks_sleep_ms(1);
    }
    atomic_fetch_add(&scene->n_ready, 1u);
    pthread_join(thread, NULL);
    return child;
}

static void forking_rank(uint32_t rank, void *shared)
{
    struct scene *scene = shared;
    struct hsdp_job *job;
    pid_t child = 0;

    if (rank == scene->victim) {
        job = scene_job(scene, rank, "20");
        child = child_of_connect(scene, job);
    } else {
        while (atomic_load(&scene->n_ready) == 0) {
            ranks_sleep_ms(5);
        }
        job = scene_open(scene, rank, "20");
    }
    test_job_end(job);
    test_job_end(scene_open(scene, rank, "20")); /* at the same places, with that child about */
    if (child != 0) {
        ck_assert_int_eq(waitpid(child, NULL, WNOHANG), 0);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

static const char *const fork_shapes[] = {"2", "2,1", "1,2"};

START_TEST(fork_inside_of_connect_holds_no_meeting_point)
{
    uint32_t victim = _i == 2 ? 1 : 0; /* a leader, the root where there are several nodes, too */

    scene_run(fork_shapes[_i], victim, forking_rank);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nodes_faults");
    TCase *tcase = tcase_create("nodes_faults");

    tcase_set_timeout(tcase, 90);
    tcase_add_test(tcase, job_setting_set_of_more_ranks_than_a_host_holds_agrees);
    tcase_add_test(tcase, job_exchange_of_many_nodes_of_one_rank_is_exact);
    tcase_add_loop_test(tcase, job_destroy_without_close_is_heard_on_all_nodes, 0, 4);
    tcase_add_test(tcase, job_destroy_of_a_whole_node_is_heard);
    tcase_add_loop_test(tcase, job_close_of_one_while_others_agree_mismatches_on_all, 0, 4);
    tcase_add_loop_test(tcase, job_abort_inside_of_connect_ends_it_on_all_nodes, 0, 4);
    tcase_add_test(tcase, job_setting_set_of_peer_silence_counts_at_once);
    tcase_add_loop_test(tcase, stop_of_a_leader_that_waits_is_named_on_its_node, 0, 2);
    tcase_add_loop_test(tcase, job_connect_of_a_leader_without_a_thread_fails_on_all, 0, 3);
    tcase_add_test(tcase, job_connect_of_two_jobs_of_a_process_over_nodes_keeps_them_apart);
    tcase_add_test(tcase, job_destroy_over_nodes_leaves_no_descriptor_and_no_thread);
    tcase_add_loop_test(tcase, fork_inside_of_connect_holds_no_meeting_point, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
