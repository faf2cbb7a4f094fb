/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog of the plugin itself: unloading, forks and callbacks that never return. */
#include <check.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi_host.h"
#include "host.h"
#include "ranks.h"
#include "suite.h"

static bool plugin_is_loaded(void)
{
    void *library = dlopen(getenv("HSDP_TEST_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);

    if (library != NULL) {
        dlclose(library);
    }
    return library != NULL;
}

static void fork_expect_fine(void)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

/* The handlers of forks go with the plugin, and come again with it. */
static void unloading_rank(uint32_t rank, void *shared)
{
    uint32_t n_threads = 0;
    struct host host;

    (void)shared;
    for (int cycle = 0; cycle < 3; cycle++) {
        host_join(&host, rank, "dp=2", "");
        fork_expect_fine();
        host_close(&host);
        ck_assert(!plugin_is_loaded());
        fork_expect_fine();
        n_threads = cycle == 0 ? ranks_n_threads() : n_threads;
        ck_assert_uint_eq(ranks_n_threads(), n_threads);
    }
}

START_TEST(plugin_unloaded_after_a_job_of_two_ranks_leaves_no_fork_handler)
{
    ranks_run(2, RANKS_LIMIT_MS, unloading_rank, NULL);
}
END_TEST

struct keeper {
    _Atomic uint32_t is_inside;
    _Atomic uint32_t is_released;
};

static void keeper_told(void *user, const struct hsdp_error *reason)
{
    struct keeper *keeper = user;

    (void)reason;
    atomic_store(&keeper->is_inside, 1u);
    while (atomic_load(&keeper->is_released) == 0) {
        ranks_sleep_ms(1);
    }
}

static hsdp_job *keeper_join(const struct hsdp_api *api, struct keeper *keeper)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_job *job = NULL;

    spec.on_abort = keeper_told;
    spec.user = keeper;
    ck_assert_int_eq(api->job->create(&spec, &job, &err), HSDP_OK);
    ck_assert_int_eq(api->job->connect(job, &err), HSDP_OK);
    return job;
}

/* Rank 1's callback keeps the plugin's thread while rank 1 destroys the job and unloads. */
static void keeping_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_done = shared;
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct keeper keeper = {.is_released = rank == 0};
    hsdp_plugin *plugin = NULL;
    const struct hsdp_api *api;
    hsdp_job *job;

    spec.path = getenv("HSDP_TEST_PLUGIN");
    ck_assert_int_eq(hsdp_plugin_load(&spec, &plugin, &err), HSDP_OK);
    api = hsdp_plugin_api(plugin);
    job = keeper_join(api, &keeper);
    ranks_meet(n_done, 2);
    if (rank == 0) {
        ck_assert_int_eq(api->job->abort(job, NULL, &err), HSDP_OK);
    }
    while (atomic_load(&keeper.is_inside) == 0) {
        ranks_sleep_ms(1);
    }
    api->job->destroy(job);
    hsdp_plugin_unload(plugin);
    ck_assert_int_eq(plugin_is_loaded(), rank == 1);
    atomic_store(&keeper.is_released, 1u);
    ranks_sleep_ms(300); /* the thread comes back to code that is still there */
}

START_TEST(plugin_unloaded_while_a_callback_keeps_its_thread_stays_in_memory)
{
    ranks_run(2, RANKS_LIMIT_MS, keeping_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

/* ---------------------------------------------------------------------------- abort, in order */

static hsdp_job *job_make(const struct hsdp_api *api, const char *seconds)
{
    static const char *const keys[] = {"nccl_timeout_seconds"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_job *job = NULL;

    spec.settings = (struct hsdp_settings){keys, &seconds, 1};
    ck_assert_int_eq(api->job->create(&spec, &job, &err), HSDP_OK);
    return job;
}

/* Case D11 of tests/cases/README.md. */
static void ordered_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct host host;

    (void)shared;
    host_join(&host, rank, "dp=2", "nccl_timeout_seconds=5");
    ck_assert_int_eq(host.api->job->abort(host.job, "first", &err), HSDP_OK);
    ck_assert_int_eq(host.api->job->abort(host.job, "second", &err), HSDP_OK);
    host_must_refuse(&host, host.api->job->close(host.job, &host.err), HSDP_ERR_ABORTED, "first");
    ck_assert_int_eq(host.api->job->abort(NULL, "nothing", &err), HSDP_ERR_INVALID);
    host.api->job->destroy(NULL);
    host_leave(&host);
}

START_TEST(abort_abort_close_destroy_is_clean)
{
    ranks_run(2, RANKS_LIMIT_MS, ordered_rank, NULL);
}
END_TEST

struct aborter {
    const struct hsdp_api *api;
    hsdp_job *job;
};

static void *aborter_run(void *user)
{
    struct aborter *aborter = user;
    uint64_t start_ms;

    ranks_sleep_ms(1000);
    start_ms = ranks_now_ms();
    ck_assert_int_eq(aborter->api->job->abort(aborter->job, "enough", NULL), HSDP_OK);
    ck_assert_uint_lt(ranks_now_ms() - start_ms, 2000);
    return NULL;
}

/* Case D4 of tests/cases/README.md: the other rank is never started. */
START_TEST(abort_during_connect_returns_and_ends_it)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct aborter aborter = {.api = abi_load()};
    uint64_t start_ms = ranks_now_ms();
    pthread_t thread;

    ranks_environment((uint32_t)_i, 2, "check_abi_watchdog");
    aborter.job = job_make(aborter.api, "60");
    ck_assert_int_eq(pthread_create(&thread, NULL, aborter_run, &aborter), 0);
    ck_assert_int_eq(aborter.api->job->connect(aborter.job, &err), HSDP_ERR_ABORTED);
    ck_assert_uint_ge(ranks_now_ms() - start_ms, 900);
    ck_assert_uint_lt(ranks_now_ms() - start_ms, 5000);
    ck_assert_str_eq(err.message, "enough");
    pthread_join(thread, NULL);
    ck_assert_int_eq(aborter.api->job->status(aborter.job, &err), HSDP_ERR_ABORTED);
    aborter.api->job->destroy(aborter.job);
}
END_TEST

/* Case D6 of tests/cases/README.md: codes with the true reason, and a process that ends by itself;
 * first an abort of a healthy job, then a timeout, then close with an operation in flight. */
static void reasons_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_done = shared;
    struct host host;

    for (int i = 0; i < 3; i++) {
        struct hsdp_coll_spec coll = HSDP_COLL_SPEC_INIT;
        struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
        hsdp_group *group = NULL;
        uint64_t ticket = 0;

        host_join(&host, rank, "dp=2", "nccl_timeout_seconds=1 heartbeat_timeout_seconds=60");
        spec.selector = "dp";
        coll.kind = HSDP_COLL_BARRIER;
        host_must(&host, host.api->group->create(host.job, host.mesh, &spec, &group, &host.err));
        host_must(&host, host.api->group->connect(host.job, &host.err));
        if (rank == 0 && i == 0) {
            host_must(&host, host.api->job->abort(host.job, "healthy", &host.err));
            ck_assert_int_eq(host.api->job->status(host.job, &host.err), HSDP_ERR_ABORTED);
        } else if (rank == 0) {
            host_must(&host, host.api->group->start(group, &coll, sizeof(coll), 1, NULL, &ticket,
                                                    &host.err));
            host_must_refuse(
                &host,
                i == 1 ? host.api->job->ticket_wait(host.job, ticket, UINT64_MAX, &host.err)
                       : host.api->job->close(host.job, &host.err),
                HSDP_ERR_TIMEOUT, "barrier of group \"dp\"");
        }
        ranks_meet(&n_done[i], 2);
        host.api->group->destroy(group);
        host_leave(&host);
    }
}

START_TEST(failure_of_each_kind_tells_the_true_reason)
{
    ranks_run(2, RANKS_LIMIT_MS, reasons_rank, ranks_memory(3 * sizeof(uint32_t)));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_watchdog");
    TCase *tcase = tcase_create("watchdog");

    tcase_set_timeout(tcase, 40);
    tcase_add_test(tcase, plugin_unloaded_after_a_job_of_two_ranks_leaves_no_fork_handler);
    tcase_add_test(tcase, plugin_unloaded_while_a_callback_keeps_its_thread_stays_in_memory);
    tcase_add_test(tcase, abort_abort_close_destroy_is_clean);
    tcase_add_loop_test(tcase, abort_during_connect_returns_and_ends_it, 0, 2);
    tcase_add_test(tcase, failure_of_each_kind_tells_the_true_reason);
    suite_add_tcase(suite, tcase);
    return suite;
}
