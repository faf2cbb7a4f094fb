/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines: one key reaches every group and operation, and the ledger says what holds and why. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi_host.h"
#include "host.h"
#include "host_text.h"
#include "json.h"
#include "ranks.h"
#include "suite.h"

#define DERIVED "derived from nccl_timeout_seconds"

/* A host that stands still on purpose here is none that has to be noticed. */
#define STILL "nccl_timeout_seconds=2 heartbeat_timeout_seconds=60 "

static hsdp_group *group_make(struct host *host, const char *selector, uint64_t timeout_ms)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    hsdp_group *group = NULL;

    spec.selector = selector;
    spec.timeout_ms = timeout_ms;
    host_must(host, host->api->group->create(host->job, host->mesh, &spec, &group, &host->err));
    return group;
}

/* A barrier of the group; timeout_ms 0 = the group's. */
static int32_t barrier_run(struct host *host, hsdp_group *group, uint64_t timeout_ms)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    uint64_t ticket = 0;

    spec.kind = HSDP_COLL_BARRIER;
    spec.timeout_ms = timeout_ms;
    host_must(host,
              host->api->group->start(group, &spec, sizeof(spec), 1, NULL, &ticket, &host->err));
    return host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err);
}

/* In [seconds, seconds + 1], but for what a loaded machine adds. */
static void expect_in_time(uint64_t start_ms, uint64_t timeout_ms)
{
    uint64_t ms = ranks_now_ms() - start_ms;

    ck_assert_msg(ms >= timeout_ms - 100 && ms <= timeout_ms + 4000, "%u ms", (unsigned)ms);
}

static void expect_missing(const struct host *host, const char *operation, const char *group,
                           uint32_t rank)
{
    ck_assert_msg(strstr(host->err.message, "timeout after ") != NULL, "%s", host->err.message);
    ck_assert_str_eq(host->err.operation, operation);
    ck_assert_str_eq(host->err.group, group);
    ck_assert_uint_eq(host->err.n_missing_ranks, 1);
    ck_assert_uint_eq(host->err.missing_ranks[0], rank);
}

static void expect_ledger(struct host *host, const char *part)
{
    static char text[16384];
    uint64_t n_bytes = 0;

    host_must(host, host->api->diag->report(host->job, "ledger", text, sizeof(text), &n_bytes,
                                            &host->err));
    ck_assert_ptr_null(json_fault(text));
    ck_assert_msg(strstr(text, part) != NULL, "no %s in %s", part, text);
}

/* -------------------------------------------------------------------------------- every group */

static const char *const selectors[] = {"dp", "ep", "dp,ep", ""};

struct away {
    _Atomic uint32_t n_done;
    int group; /* of the selectors; 3 = none */
};

/* Ranks 0 to 3 are (dp, ep); rank 3 stays away. */
static bool is_with_rank_3(uint32_t rank, int group)
{
    return group == 2 || (group == 0 ? rank % 2 == 1 : rank / 2 == 1);
}

static void group_rank(uint32_t rank, void *shared)
{
    struct away *away = shared;
    struct host host;
    hsdp_group *groups[4];
    uint64_t start_ms;

    host_join(&host, rank, "dp=2,ep=2", STILL);
    for (int i = 0; i < 4; i++) {
        groups[i] = group_make(&host, selectors[i], 0);
    }
    host_must(&host, host.api->group->connect(host.job, &host.err));
    expect_ledger(&host, "\"name\":\"dp\",\"timeout_ms\":2000,\"source\":\"" DERIVED "\"");
    expect_ledger(&host, "\"name\":\"ep\",\"timeout_ms\":2000,\"source\":\"" DERIVED "\"");
    expect_ledger(&host, "\"name\":\"dp,ep\",\"timeout_ms\":2000,\"source\":\"" DERIVED
                         "\",\"ranks\":[0,1,2,3]");
    expect_ledger(&host, "\"name\":\"self\",\"timeout_ms\":2000,\"source\":\"" DERIVED "\"");
    start_ms = ranks_now_ms();
    if (rank != 3 && is_with_rank_3(rank, away->group)) {
        ck_assert_int_eq(barrier_run(&host, groups[away->group], 0), HSDP_ERR_TIMEOUT);
        expect_in_time(start_ms, 2000);
        expect_missing(&host, "barrier", selectors[away->group], 3);
    }
    ranks_meet(&away->n_done, 4);
    for (int i = 0; i < 4; i++) {
        host.api->group->destroy(groups[i]);
    }
    host_leave(&host);
}

/* Case D7 of tests/cases/README.md. */
START_TEST(group_with_a_member_away_times_out_in_time)
{
    struct away *away = ranks_memory(sizeof(*away));

    away->group = _i;
    ranks_run(4, RANKS_LIMIT_MS, group_rank, away);
}
END_TEST

static double value_one(struct host_at at)
{
    (void)at;
    return 1;
}

/* Unit 0 is reduced over all ranks, unit 1 (an expert's) over dp, unit 2 over nobody. */
#define UNITS "unit d: w[64]; class expert(dp) ; unit e: x[64]; class own() ; unit s: y[64]"

static int32_t unit_reduce(struct host *host, uint32_t unit)
{
    uint64_t ticket = 0;

    host_acquire(host, unit);
    host_fill(host, unit, 0, value_one);
    host_must(host,
              host->api->unit->reduce(host->model, host->pass, unit, NULL, &ticket, &host->err));
    return host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err);
}

static void unit_rank(uint32_t rank, void *shared)
{
    struct away *away = shared;
    struct host host;
    uint32_t unit = away->group == 2 ? 0 : 1;
    uint32_t units[2] = {unit, 2};
    uint64_t start_ms;

    host_open(&host, rank, "dp=2,ep=2", STILL "sharding_strategy=fsdp slots=3", UNITS);
    host_load(&host, value_one);
    expect_ledger(&host, "\"class\":\"dense\",\"ranks\":[0,1,2,3],\"timeout_ms\":2000,\"source\":"
                         "\"" DERIVED "\"");
    expect_ledger(&host, "\"name\":\"dp\",\"class\":\"expert\"");
    expect_ledger(&host, "\"class\":\"own\"");
    start_ms = ranks_now_ms();
    if (rank != 3 && is_with_rank_3(rank, away->group)) {
        host_must(&host, host_backward_begin(&host, units, 2, HSDP_SCOPE_FULL, &host.pass));
        ck_assert_int_eq(unit_reduce(&host, unit), HSDP_ERR_TIMEOUT);
        expect_in_time(start_ms, 2000);
        expect_missing(&host, "reduce", selectors[away->group], 3);
    }
    ranks_meet(&away->n_done, 4);
    host_leave(&host);
}

/* Case D7 of tests/cases/README.md: the groups that nobody asked for by name. */
START_TEST(unit_with_a_rank_away_times_out_in_time)
{
    struct away *away = ranks_memory(sizeof(*away));

    away->group = _i == 0 ? 0 : 2;
    ranks_run(4, RANKS_LIMIT_MS, unit_rank, away);
}
END_TEST

/* ----------------------------------------------------------------------------------- overrides */

/* A group's own timeout, one of an operation, a phase: each in a job that would wait a minute. */
static void override_rank(uint32_t rank, void *shared)
{
    struct away *away = shared;
    struct host host;
    hsdp_group *group;
    uint64_t start_ms;

    host_join(&host, rank, "dp=2", "nccl_timeout_seconds=60");
    group = group_make(&host, "dp", away->group == 0 ? 1000 : 0);
    host_must(&host, host.api->group->connect(host.job, &host.err));
    if (away->group == 2) {
        host_must(&host, host.api->job->phase_push(host.job, "warm up", 1000, &host.err));
        expect_ledger(&host, "\"timeout_ms\":1000,\"source\":\"phase warm up\"");
        expect_ledger(&host, "\"name\":\"dp\",\"timeout_ms\":1000,\"source\":\"phase warm up\"");
    }
    if (away->group == 0) {
        expect_ledger(&host, "\"name\":\"dp\",\"timeout_ms\":1000,\"source\":\"group\"");
    }
    start_ms = ranks_now_ms();
    if (rank == 0) {
        ck_assert_int_eq(barrier_run(&host, group, away->group == 1 ? 1000 : 0), HSDP_ERR_TIMEOUT);
        expect_in_time(start_ms, 1000);
        expect_missing(&host, "barrier", "dp", 1);
    }
    ranks_meet(&away->n_done, 2);
    host.api->group->destroy(group);
    host_leave(&host);
}

START_TEST(timeout_of_a_group_an_operation_or_a_phase_goes_before_the_jobs)
{
    struct away *away = ranks_memory(sizeof(*away));

    away->group = _i;
    ranks_run(2, RANKS_LIMIT_MS, override_rank, away);
}
END_TEST

/* A barrier that waits already, of a group that exists. */
static void changing_rank(uint32_t rank, void *shared)
{
    struct away *away = shared;
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct host host;
    hsdp_group *group;
    uint64_t start_ms;
    uint64_t ticket = 0;

    host_join(&host, rank, "dp=2", "nccl_timeout_seconds=60 heartbeat_timeout_seconds=50");
    group = group_make(&host, "dp", 0);
    host_must(&host, host.api->group->connect(host.job, &host.err));
    spec.kind = HSDP_COLL_BARRIER;
    start_ms = ranks_now_ms();
    if (rank == 0) {
        host_must(&host,
                  host.api->group->start(group, &spec, sizeof(spec), 1, NULL, &ticket, &host.err));
    }
    host_must(&host, host.api->job->setting_set(host.job, "nccl_timeout_seconds", "2", &host.err));
    expect_ledger(&host, "\"name\":\"dp\",\"timeout_ms\":2000,\"source\":\"" DERIVED "\"");
    expect_ledger(&host, "\"heartbeat_timeout_seconds\":{\"seconds\":50,\"source\":\"host\"}");
    expect_ledger(&host, "\"init_timeout_seconds\":{\"seconds\":2,\"source\":\"" DERIVED "\"}");
    if (rank == 0) {
        ck_assert_int_eq(host.api->job->ticket_wait(host.job, ticket, UINT64_MAX, &host.err),
                         HSDP_ERR_TIMEOUT);
        expect_in_time(start_ms, 2000);
        expect_missing(&host, "barrier", "dp", 1);
    }
    ranks_meet(&away->n_done, 2);
    host.api->group->destroy(group);
    host_leave(&host);
}

START_TEST(setting_set_reaches_what_waits_already)
{
    ranks_run(2, RANKS_LIMIT_MS, changing_rank, ranks_memory(sizeof(struct away)));
}
END_TEST

/* ------------------------------------------------------------------------------ equal on all */

static void differing_rank(uint32_t rank, void *shared)
{
    struct host host;
    hsdp_group *group;

    (void)shared;
    host_join(&host, rank, "dp=2", "nccl_timeout_seconds=5");
    group = group_make(&host, "dp", 1000 * (rank + 1));
    host_must_refuse(&host, host.api->group->connect(host.job, &host.err), HSDP_ERR_MISMATCH,
                     "group \"dp\" has a timeout of 1000 ms on rank 0, 2000 ms on rank 1");
    host.api->group->destroy(group);
    host_leave(&host);
}

START_TEST(timeout_of_a_group_that_differs_is_a_mismatch)
{
    ranks_run(2, RANKS_LIMIT_MS, differing_rank, NULL);
}
END_TEST

/* What rank 1 sets beside nccl_timeout_seconds=5, and how all hear of it. */
static const char *const others[][2] = {
    {"nccl_timeout_seconds=6", "nccl_timeout_seconds is \"5\" on rank 0, \"6\" on rank 1"},
    {"nccl_timeout_seconds=5 init_timeout_seconds=6",
     "init_timeout_seconds is \"5\" on rank 0, \"6\" on rank 1"},
    {"nccl_timeout_seconds=5 heartbeat_timeout_seconds=7",
     "heartbeat_timeout_seconds is \"5\" on rank 0, \"7\" on rank 1"},
    {"nccl_timeout_seconds=5 peer_silence_seconds=2",
     "peer_silence_seconds is \"5\" on rank 0, \"2\" on rank 1"},
};

static void other_rank(uint32_t rank, void *shared)
{
    const char *const *other = others[*(int *)shared];
    const struct hsdp_api *api = abi_load();
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct host_settings own;
    hsdp_job *job = NULL;

    host_settings_read(&own, rank == 1 ? other[0] : "nccl_timeout_seconds=5", true);
    spec.settings = own.settings;
    abi_must(api->job->create(&spec, &job, &err), &err);
    ck_assert_int_eq(api->job->connect(job, &err), HSDP_ERR_MISMATCH);
    ck_assert_msg(strstr(err.message, other[1]) != NULL, "%s", err.message);
    api->job->destroy(job);
}

START_TEST(timeout_that_differs_is_a_mismatch_at_connect)
{
    int *row = ranks_memory(sizeof(*row));

    *row = _i;
    ranks_run(2, RANKS_LIMIT_MS, other_rank, row);
}
END_TEST

/* --------------------------------------------------------------------- ways of initialising */

static int32_t store_put(void *user, const char *key, const void *value, uint64_t n_bytes)
{
    (void)user;
    (void)key;
    (void)value;
    (void)n_bytes;
    return 0;
}

static int32_t store_get(void *user, const char *key, void *ret_value, uint64_t max_bytes,
                         uint64_t *ret_bytes, uint32_t wait_ms)
{
    (void)user;
    (void)key;
    (void)ret_value;
    (void)max_bytes;
    (void)ret_bytes;
    (void)wait_ms;
    return 1;
}

static void expect_setting(const struct hsdp_api *api, hsdp_job *job, const char *key,
                           const char *value)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const char *found = NULL;
    const char *source = NULL;

    abi_must(api->job->setting(job, key, &found, &source, &err), &err);
    ck_assert_str_eq(found, value);
    ck_assert_str_eq(source, DERIVED);
}

/* Who a rank is, and where it hears of the timeout. */
enum way {
    WAY_ALONE,
    WAY_LAUNCHER,
    WAY_MPI,
    WAY_SPEC,
    WAY_CALLBACKS,
    N_WAYS,
};

static void way_take(enum way way, struct hsdp_job_spec *spec)
{
    ranks_environment_clear();
    if (way == WAY_LAUNCHER) {
        ranks_environment(1, 2, "check_deadlines");
    } else if (way == WAY_MPI) {
        setenv("OMPI_COMM_WORLD_RANK", "1", 1);
        setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
        setenv("PMIX_NAMESPACE", "check_deadlines", 1);
    } else if (way == WAY_SPEC || way == WAY_CALLBACKS) {
        setenv("HSDP_RUN_ID", "check_deadlines", 1);
        spec->rank = 1;
        spec->world_ranks = 2;
        spec->kv_put = way == WAY_CALLBACKS ? store_put : NULL;
        spec->kv_get = way == WAY_CALLBACKS ? store_get : NULL;
    }
}

START_TEST(timeouts_follow_the_one_key_on_every_way_of_initialising)
{
    static const char *const keys[] = {"nccl_timeout_seconds"};
    static const char *const values[] = {"7"};
    const struct hsdp_api *api = abi_load();
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_job *job = NULL;

    way_take((enum way)(_i / 3), &spec);
    if (_i % 3 == 0) { /* the host, the environment, or nobody says a number */
        spec.settings = (struct hsdp_settings){keys, values, 1};
    } else if (_i % 3 == 1) {
        setenv("HSDP_NCCL_TIMEOUT_SECONDS", "7", 1);
    }
    abi_must(api->job->create(&spec, &job, &err), &err);
    expect_setting(api, job, "init_timeout_seconds", _i % 3 == 2 ? "180" : "7");
    expect_setting(api, job, "heartbeat_timeout_seconds", _i % 3 == 2 ? "180" : "7");
    expect_setting(api, job, "peer_silence_seconds", "5");
    api->job->destroy(job);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("deadlines");
    TCase *tcase = tcase_create("deadlines");

    tcase_set_timeout(tcase, 40);
    tcase_add_loop_test(tcase, group_with_a_member_away_times_out_in_time, 0, 3);
    tcase_add_loop_test(tcase, unit_with_a_rank_away_times_out_in_time, 0, 2);
    tcase_add_loop_test(tcase, timeout_of_a_group_an_operation_or_a_phase_goes_before_the_jobs, 0,
                        3);
    tcase_add_test(tcase, setting_set_reaches_what_waits_already);
    tcase_add_test(tcase, timeout_of_a_group_that_differs_is_a_mismatch);
    tcase_add_loop_test(tcase, timeout_that_differs_is_a_mismatch_at_connect, 0, N_OF(others));
    tcase_add_loop_test(tcase, timeouts_follow_the_one_key_on_every_way_of_initialising, 0,
                        3 * N_WAYS);
    suite_add_tcase(suite, tcase);
    return suite;
}
