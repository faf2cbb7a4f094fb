/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous: who meets, who is kept out, and what everybody hears when it fails. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/job_internal.h"
#include "comm/wire.h"
#include "jobs.h"
#include "ranks.h"
#include "suite.h"

/* ------------------------------------------------------------------------------ it comes up */

static void meeting_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *job = test_job_open("20");
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)shared;
    ck_assert_int_eq(job_info(job, &info, &err), HSDP_OK);
    ck_assert_uint_eq(info.rank, rank);
    ck_assert_uint_eq(info.is_connected, 1);
    test_job_end(job);
}

START_TEST(job_connect_of_any_number_of_ranks_succeeds)
{
    static const uint32_t n_ranks[] = {1, 2, 3, 7, 64};

    ranks_run(n_ranks[_i], RANKS_LIMIT_MS, meeting_rank, NULL);
}
END_TEST

static void repeating_rank(uint32_t rank, void *shared)
{
    uint32_t n_descriptors = ranks_n_descriptors();

    for (int i = 0; i < 20; i++) {
        meeting_rank(rank, shared);
    }
    ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
}

START_TEST(job_connect_again_and_again_leaves_no_descriptor)
{
    ranks_run(3, RANKS_LIMIT_MS, repeating_rank, NULL);
}
END_TEST

static struct hsdp_job *named_create(const char *name)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    spec.name = name;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    return job;
}

/* The ranks live in two jobs at once, and hear only those of the same name. */
static void two_jobs_rank(uint32_t rank, void *shared)
{
    struct hsdp_job *jobs[2] = {named_create("left"), named_create("right")};
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)shared;
    for (uint32_t i = 0; i < 2; i++) {
        status_assert(job_connect(jobs[i], &err), HSDP_OK, &err);
    }
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t mine = 10 * i + rank;
        uint32_t all[2];

        status_assert(job_exchange(jobs[i], "test", &mine, sizeof(mine), all, &err), HSDP_OK, &err);
        ck_assert_uint_eq(all[1 - rank], 10 * i + 1 - rank);
    }
    test_job_end(jobs[0]);
    test_job_end(jobs[1]);
}

START_TEST(job_connect_two_names_under_one_launcher_are_two_jobs)
{
    ranks_run(2, RANKS_LIMIT_MS, two_jobs_rank, NULL);
}
END_TEST

/* -------------------------------------------------------------------- the host's own store */

/* A store of one key that is the shared memory of the test. */
struct store {
    _Atomic uint32_t is_there;
    char key[128];
    uint64_t n_bytes;
    uint8_t bytes[255];
    int32_t answer; /* of kv_get; 0 = as it should be */
};

static int32_t store_put(void *user, const char *key, const void *value, uint64_t n_bytes)
{
    struct store *store = user;

    snprintf(store->key, sizeof(store->key), "%s", key);
    memcpy(store->bytes, value, n_bytes);
    store->n_bytes = n_bytes;
    atomic_store(&store->is_there, 1u);
    return 0;
}

static int32_t store_get(void *user, const char *key, void *ret_value, uint64_t max_bytes,
                         uint64_t *ret_bytes, uint32_t wait_ms)
{
    struct store *store = user;

    ck_assert_uint_le(wait_ms, 1000);
    if (store->answer != 0) {
        return store->answer;
    }
    if (atomic_load(&store->is_there) == 0) {
        ranks_sleep_ms(5);
        return 1;
    }
    ck_assert_str_eq(key, store->key);
    ck_assert_uint_le(store->n_bytes, max_bytes);
    memcpy(ret_value, store->bytes, store->n_bytes);
    *ret_bytes = store->n_bytes;
    return 0;
}

static struct hsdp_job *stored_job(uint32_t rank, uint32_t n_ranks, struct store *store)
{
    static const char *const keys[] = {"nccl_timeout_seconds"};
    static const char *const values[] = {"2"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    ranks_environment_clear();
    spec.settings = (struct hsdp_settings){keys, values, 1};
    spec.rank = rank;
    spec.world_ranks = n_ranks;
    spec.kv_put = store_put;
    spec.kv_get = store_get;
    spec.user = store;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    return job;
}

static void storing_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = stored_job(rank, 3, shared);

    if (rank == 0) {
        ranks_sleep_ms(50); /* the others ask before it is there */
    }
    status_assert(job_connect(job, &err), HSDP_OK, &err);
    test_job_end(job);
}

START_TEST(job_connect_through_the_hosts_store_needs_no_environment)
{
    ranks_run(3, RANKS_LIMIT_MS, storing_rank, ranks_memory(sizeof(struct store)));
}
END_TEST

/* What an earlier attempt has left in the store leads nowhere, and is asked for again. */
START_TEST(job_connect_stale_value_in_the_store_does_not_disturb)
{
    static const char stale[] = "hsdp1 00112233445566778899aabbccddeeff 0";
    struct store *store = ranks_memory(sizeof(*store));

    snprintf(store->key, sizeof(store->key), "hsdp/default/meeting");
    store->n_bytes = strlen(stale);
    memcpy(store->bytes, stale, store->n_bytes);
    atomic_store(&store->is_there, 1u);
    ranks_run(3, RANKS_LIMIT_MS, storing_rank, store);
}
END_TEST

static void refused_rank(uint32_t rank, void *shared)
{
    const struct store *store = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    if (rank == 0) {
        return;
    }
    job = stored_job(rank, 2, shared);
    status_assert(job_connect(job, &err), HSDP_ERR_UNAVAILABLE, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "kv_get"));
    ck_assert_ptr_nonnull(
        strstr(err.message, store->answer != 0 ? "-7" : "9 bytes that are no meeting point"));
    ck_assert_int_eq(job_status(job, NULL), HSDP_ERR_UNAVAILABLE);
    test_job_drop(job);
}

START_TEST(job_connect_failing_store_fails_the_job)
{
    struct store *store = ranks_memory(sizeof(*store));

    store->answer = -7;
    ranks_run(2, RANKS_LIMIT_MS, refused_rank, store);
}
END_TEST

START_TEST(job_connect_store_with_another_value_fails_the_job)
{
    struct store *store = ranks_memory(sizeof(*store));

    snprintf(store->key, sizeof(store->key), "hsdp/default/meeting");
    store->n_bytes = 9;
    memcpy(store->bytes, "not ours!", 9);
    atomic_store(&store->is_there, 1u);
    ranks_run(2, RANKS_LIMIT_MS, refused_rank, store);
}
END_TEST

/* ----------------------------------------------------------------------------- who is missing */

/* Ranks given in the mask stay away; the others name them, no sooner than the timeout. */
static void missing_expect(uint32_t rank, uint32_t missing)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    uint64_t start_ms = ranks_now_ms();
    char name[16];

    if (rank == missing) {
        return;
    }
    job = test_job_create("1");
    status_assert(job_connect(job, &err), HSDP_ERR_TIMEOUT, &err);
    snprintf(name, sizeof(name), "rank %u", missing);
    ck_assert_msg(strstr(err.message, name) != NULL, "%s", err.message);
    ck_assert_str_eq(err.operation, "connect");
    ck_assert_uint_eq(err.n_missing_ranks, 1);
    ck_assert_uint_eq(err.missing_ranks[0], missing);
    ck_assert_uint_ge(ranks_now_ms() - start_ms, 900); /* less what started the others later */
    ck_assert_uint_ge(err.waited_ms, 900);
    ck_assert_int_eq(job_status(job, NULL), HSDP_ERR_TIMEOUT);
    job_destroy(job);
}

static void last_is_missing_rank(uint32_t rank, void *shared)
{
    (void)shared;
    missing_expect(rank, 2);
}

static void first_is_missing_rank(uint32_t rank, void *shared)
{
    (void)shared;
    missing_expect(rank, 0);
}

START_TEST(job_connect_without_the_last_rank_names_it)
{
    ranks_run(3, RANKS_LIMIT_MS, last_is_missing_rank, NULL);
}
END_TEST

START_TEST(job_connect_without_rank_0_names_it)
{
    ranks_run(3, RANKS_LIMIT_MS, first_is_missing_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- mismatch */

static void mismatch_expect(const char *seconds, const char *first, const char *second)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = test_job_create(seconds);

    status_assert(job_connect(job, &err), HSDP_ERR_MISMATCH, &err);
    ck_assert_msg(strstr(err.message, first) != NULL, "%s", err.message);
    ck_assert_msg(strstr(err.message, second) != NULL, "%s", err.message);
    ck_assert_int_eq(job_status(job, NULL), HSDP_ERR_MISMATCH);
    job_destroy(job);
}

static void other_world_rank(uint32_t rank, void *shared)
{
    (void)shared;
    if (rank == 1) {
        setenv("WORLD_SIZE", "3", 1);
        setenv("LOCAL_WORLD_SIZE", "3", 1);
    }
    mismatch_expect("5", "2 ranks on rank 0", "3 on rank 1");
}

START_TEST(job_connect_worlds_of_other_sizes_mismatch_on_all)
{
    ranks_run(2, RANKS_LIMIT_MS, other_world_rank, NULL);
}
END_TEST

/* Rank 0 waits for a rank that nobody else knows of; what is wrong is said all the same. */
static void larger_world_rank(uint32_t rank, void *shared)
{
    (void)shared;
    if (rank == 0) {
        setenv("WORLD_SIZE", "3", 1);
        setenv("LOCAL_WORLD_SIZE", "3", 1);
    }
    mismatch_expect("2", "3 ranks on rank 0", "2 on rank 1");
}

START_TEST(job_connect_a_larger_world_of_rank_0_mismatches_before_the_timeout)
{
    ranks_run(2, RANKS_LIMIT_MS, larger_world_rank, NULL);
}
END_TEST

static void twin_rank(uint32_t rank, void *shared)
{
    (void)shared;
    if (rank == 2) {
        setenv("RANK", "1", 1);
        setenv("LOCAL_RANK", "1", 1);
    }
    mismatch_expect("5", "rank 1 came twice", "processes");
}

START_TEST(job_connect_a_rank_that_comes_twice_mismatches_on_all)
{
    ranks_run(3, RANKS_LIMIT_MS, twin_rank, NULL);
}
END_TEST

static void other_timeout_rank(uint32_t rank, void *shared)
{
    (void)shared;
    mismatch_expect(rank == 2 ? "6" : "5", "nccl_timeout_seconds is \"5\" on rank 0",
                    "\"6\" on rank 2");
}

START_TEST(job_connect_other_settings_mismatch_on_all)
{
    ranks_run(3, RANKS_LIMIT_MS, other_timeout_rank, NULL);
}
END_TEST

static void rank_0_twice(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_refused = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    int32_t status;

    (void)rank;
    setenv("RANK", "0", 1);
    setenv("LOCAL_RANK", "0", 1);
    job = test_job_create("1");
    status = job_connect(job, &err);
    if (status == HSDP_ERR_ADDRESS_IN_USE) {
        atomic_fetch_add(n_refused, 1u);
        ck_assert_int_eq(job_status(job, NULL), HSDP_OK); /* it may try again */
    } else {
        status_assert(status, HSDP_ERR_TIMEOUT, &err);
    }
    job_destroy(job);
}

START_TEST(job_connect_of_a_second_rank_0_finds_the_address_in_use)
{
    _Atomic uint32_t *n_refused = ranks_memory(sizeof(*n_refused));

    ranks_run(2, RANKS_LIMIT_MS, rank_0_twice, (void *)n_refused);
    ck_assert_uint_eq(atomic_load(n_refused), 1);
}
END_TEST

/* ----------------------------------------------------------------------------------- strangers */

static int stranger_connect(void)
{
    struct hsdp_job *job = test_job_create("20");
    struct sockaddr_un address;
    socklen_t n_bytes = wire_address(job->identity, job->name, &address);
    int fd = wire_socket();

    while (connect(fd, (struct sockaddr *)&address, n_bytes) != 0) {
        ranks_sleep_ms(1);
    }
    job_destroy(job);
    return fd;
}

/* Rank 1 first behaves like strangers: half open, garbage, too short, too long. */
static void stranger_rank(uint32_t rank, void *shared)
{
    static const char garbage[4096] = "GET / HTTP/1.0\r\n\r\n";
    int fds[4];

    (void)shared;
    if (rank == 1) {
        for (int i = 0; i < 4; i++) {
            fds[i] = stranger_connect();
        }
        wire_send(fds[1], garbage, 18, -1);
        wire_send(fds[2], garbage, sizeof(struct wire_hello), fds[1]);
        wire_send(fds[3], garbage, sizeof(garbage), fds[2]);
    }
    meeting_rank(rank, NULL);
    for (int i = 0; rank == 1 && i < 4; i++) {
        close(fds[i]);
    }
}

START_TEST(job_connect_strangers_do_not_disturb)
{
    ranks_run(3, RANKS_LIMIT_MS, stranger_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------- abort, death */

static void *aborting_thread(void *job)
{
    ranks_sleep_ms(100);
    ck_assert_int_eq(job_abort(job, "enough", NULL), HSDP_OK);
    ck_assert_int_eq(job_abort(job, "again", NULL), HSDP_OK);
    return NULL;
}

static void lonely_rank(uint32_t rank, uint32_t absent)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    pthread_t thread;

    if (rank == absent) {
        return;
    }
    job = test_job_create("60");
    ck_assert_int_eq(job_enter(job, &err), HSDP_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, aborting_thread, job), 0);
    status_assert(job_connect(job, &err), HSDP_ERR_ABORTED, &err);
    ck_assert_str_eq(err.message, "enough");
    pthread_join(thread, NULL);
    ck_assert_int_eq(job_status(job, &err), HSDP_ERR_ABORTED);
    test_job_drop(job);
}

static void lonely_root(uint32_t rank, void *shared)
{
    (void)shared;
    lonely_rank(rank, 1);
}

static void lonely_guest(uint32_t rank, void *shared)
{
    (void)shared;
    lonely_rank(rank, 0);
}

START_TEST(job_abort_during_connect_ends_it)
{
    ranks_run(2, 5000, _i == 0 ? lonely_root : lonely_guest, NULL);
}
END_TEST

/* Rank 3 never comes; rank 1 aborts, and the others hear of it. */
static void heard_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    (void)shared;
    if (rank == 1) {
        lonely_rank(rank, 2);
    } else if (rank != 3) {
        job = test_job_create("60");
        status_assert(job_connect(job, &err), HSDP_ERR_ABORTED, &err);
        ck_assert_str_eq(err.message, "rank 1 has aborted: enough");
        job_destroy(job);
    }
}

START_TEST(job_abort_during_connect_is_heard_by_all_that_came)
{
    ranks_run(4, 5000, heard_rank, NULL);
}
END_TEST

/* Rank 0 is stopped when rank 1 has reached it, and rank 2 comes to a meeting that stands still. */
static void still_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_stopped = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = test_job_create("1");

    while (rank == 2 && atomic_load(n_stopped) == 0) {
        ranks_sleep_ms(1);
    }
    if (rank == 0) {
        job_connect(job, &err); /* it has been away: whatever it answers */
    } else {
        status_assert(job_connect(job, &err), HSDP_ERR_TIMEOUT, &err);
        ck_assert_uint_eq(err.n_missing_ranks, 1);
        ck_assert_uint_eq(err.missing_ranks[0], 0);
    }
    job_destroy(job);
}

START_TEST(job_connect_to_a_stopped_rank_0_names_it)
{
    _Atomic uint32_t *n_stopped = ranks_memory(sizeof(*n_stopped));
    struct ranks ranks;

    ranks_start(&ranks, 3, RANKS_LIMIT_MS, still_rank, (void *)n_stopped);
    ranks_sleep_ms(300);
    ck_assert_int_eq(kill(ranks.pids[0], SIGSTOP), 0);
    atomic_store(n_stopped, 1u);
    while (ranks_running(&ranks) > 1) {
        ranks_sleep_ms(2);
    }
    ck_assert_int_eq(kill(ranks.pids[0], SIGCONT), 0);
    ranks_wait(&ranks);
}
END_TEST

/* One is killed while it waits in connect, for a rank that never comes. */
struct death {
    _Atomic uint32_t n_here;
    uint32_t victim;
};

static void widowed_rank(uint32_t rank, void *shared)
{
    struct death *death = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    if (rank == 3) {
        return;
    }
    job = test_job_create("60");
    atomic_fetch_add(&death->n_here, 1u);
    status_assert(job_connect(job, &err), HSDP_ERR_PEER_LOST, &err);
    ck_assert_uint_eq(err.n_missing_ranks, 1);
    ck_assert_uint_eq(err.missing_ranks[0], death->victim);
    job_destroy(job);
}

START_TEST(job_connect_a_rank_that_dies_is_named)
{
    struct death *death = ranks_memory(sizeof(*death));
    struct ranks ranks;

    death->victim = (uint32_t)_i;
    ranks_start(&ranks, 4, 5000, widowed_rank, death);
    while (atomic_load(&death->n_here) < 3) {
        ranks_sleep_ms(1);
    }
    ranks_sleep_ms(1000); /* until they have met */
    ranks_kill(&ranks, death->victim);
    ranks_wait(&ranks);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("rendezvous");
    TCase *tcase = tcase_create("rendezvous");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, job_connect_of_any_number_of_ranks_succeeds, 0, 5);
    tcase_add_test(tcase, job_connect_again_and_again_leaves_no_descriptor);
    tcase_add_test(tcase, job_connect_two_names_under_one_launcher_are_two_jobs);
    tcase_add_test(tcase, job_connect_through_the_hosts_store_needs_no_environment);
    tcase_add_test(tcase, job_connect_stale_value_in_the_store_does_not_disturb);
    tcase_add_test(tcase, job_connect_failing_store_fails_the_job);
    tcase_add_test(tcase, job_connect_store_with_another_value_fails_the_job);
    tcase_add_test(tcase, job_connect_without_the_last_rank_names_it);
    tcase_add_test(tcase, job_connect_without_rank_0_names_it);
    tcase_add_test(tcase, job_connect_worlds_of_other_sizes_mismatch_on_all);
    tcase_add_test(tcase, job_connect_a_larger_world_of_rank_0_mismatches_before_the_timeout);
    tcase_add_test(tcase, job_connect_a_rank_that_comes_twice_mismatches_on_all);
    tcase_add_test(tcase, job_connect_other_settings_mismatch_on_all);
    tcase_add_test(tcase, job_connect_of_a_second_rank_0_finds_the_address_in_use);
    tcase_add_test(tcase, job_connect_strangers_do_not_disturb);
    tcase_add_loop_test(tcase, job_abort_during_connect_ends_it, 0, 2);
    tcase_add_test(tcase, job_abort_during_connect_is_heard_by_all_that_came);
    tcase_add_test(tcase, job_connect_to_a_stopped_rank_0_names_it);
    tcase_add_loop_test(tcase, job_connect_a_rank_that_dies_is_named, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite;
}
