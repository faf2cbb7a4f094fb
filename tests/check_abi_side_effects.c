/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin leaves alone in the process of its host: environment, output, signals, threads. */
#include <check.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "host.h"
#include "node_ranks.h"
#include "process_state.h"
#include "ranks.h"
#include "suite.h"

/* ------------------------------------------------------------------------------ what is noticed */

static void handler(int number)
{
    (void)number;
}

static void environment_change(void)
{
    setenv("HSDP_LEFT_BEHIND", "1", 1);
}

static void handler_change(void)
{
    signal(SIGSEGV, handler);
}

static void mask_change(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void stack_change(void)
{
    static char memory[65536];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof(memory)};

    sigaltstack(&stack, NULL);
}

static void folder_change(void)
{
    ck_assert_int_eq(chdir("/"), 0);
}

static void umask_change(void)
{
    umask(umask(0) ^ 077);
}

static void rounding_change(void)
{
    fesetround(FE_UPWARD);
}

static void limit_change(void)
{
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){100, 100});
}

static void timer_change(void)
{
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_sec = 1000}}, NULL);
}

static void name_change(void)
{
    prctl(PR_SET_NAME, "another");
}

static void descriptor_change(void)
{
    ck_assert_int_ge(dup(0), 0);
}

static const struct {
    const char *line;
    void (*change)(void);
} changes[] = {
    {"HSDP_LEFT_BEHIND=1", environment_change},
    {"signal 11: handler", handler_change},
    {"blocked signals 10", mask_change},
    {"signal stack", stack_change},
    {"working directory /\"", folder_change},
    {"umask", umask_change},
    {"rounding", rounding_change},
    {"limit 7: 100 of 100", limit_change},
    {"timer 0: runs", timer_change},
    {"name another", name_change},
    {"descriptors", descriptor_change},
};

#define N_CHANGES ((int)(sizeof(changes) / sizeof(changes[0])))

START_TEST(state_that_changed_is_noticed)
{
    char *before = process_state();
    char *after;
    const char *difference;

    changes[_i].change();
    after = process_state();
    difference = process_state_difference(before, after);
    ck_assert_ptr_nonnull(difference);
    ck_assert_msg(strstr(difference, changes[_i].line) != NULL, "%s", difference);
    free(before);
    free(after);
}
END_TEST

START_TEST(state_that_did_not_change_is_the_same)
{
    process_state_expect(process_state());
}
END_TEST

START_TEST(output_of_each_kind_is_noticed)
{
    struct captured captured;

    captured_begin(&captured);
    printf("to stdout");
    fflush(stdout);
    ck_assert_int_eq(write(2, "to stderr", 9), 9);
    ck_assert_uint_eq(captured_end(&captured), 18);
}
END_TEST

/* ------------------------------------------------------------------------------- what is called */

static double one(struct host_at at)
{
    return 1.0 + 0.5 * at.rank;
}

static void told(void *user, const struct hsdp_error *reason)
{
    (void)user;
    (void)reason;
}

/* One of everything that a report may be asked for. */
static void reports_read(struct host *host)
{
    static const char *const names[] = {"settings", "ledger", "memory", "traffic",
                                        "flight",   "plan",   "error",  "none"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        static char text[65536];
        uint64_t n_bytes;

        host->api->diag->report(host->job, names[i], text, sizeof(text), &n_bytes, &host->err);
    }
}

static void barrier_run(struct host *host)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_coll_spec coll = HSDP_COLL_SPEC_INIT;
    hsdp_group *group = NULL;
    uint64_t ticket;

    spec.selector = "dp";
    coll.kind = HSDP_COLL_BARRIER;
    host_must(host, host->api->group->create(host->job, host->mesh, &spec, &group, &host->err));
    host_must(host, host->api->group->connect(host->job, &host->err));
    host_must(host,
              host->api->group->start(group, &coll, sizeof(coll), 1, NULL, &ticket, &host->err));
    host_must(host, host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err));
    host->api->group->destroy(group);
}

static void step_run(struct host *host)
{
    host_forward(host);
    host_backward(host, HSDP_SCOPE_FULL, 0, one);
    host_step(host, 1.0);
    host_must(host, host_adamw(host, 0.5, 0.0));
    host_step_end(host);
}

static void training_run(uint32_t rank)
{
    struct host host;

    host_open(&host, rank, "dp=3", host_settings, "unit a: w[64]; unit b: x[5]!; unit c: y[3,2]");
    host_load(&host, one);
    step_run(&host);
    step_run(&host);
    host_export(&host, host_param(&host, "w"), HSDP_FLAT_MASTER);
    barrier_run(&host);
    reports_read(&host);
    host_must_refuse(&host, host_unshard(&host, 9, HSDP_USE_FORWARD), HSDP_ERR_INVALID, "");
    host_close(&host);
}

/* ---------------------------------------------------------------------------------- and fails */

/* Wrong settings, a path that does not exist, an environment that makes no sense. */
static void job_refuse(struct host *host, const char *key, const char *value)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    hsdp_job *job = NULL;
    int32_t status;

    spec.settings = (struct hsdp_settings){&key, &value, 1};
    spec.on_abort = told;
    status = host->api->job->create(&spec, &job, &host->err);
    if (status == HSDP_OK) {
        status = host->api->job->connect(job, &host->err);
    }
    ck_assert_int_lt(status, 0);
    host->api->job->destroy(job);
}

/* A rank of two whose peer never comes. */
static void alone_refuse(struct host *host)
{
    static const char *const key = "nccl_timeout_seconds", *const value = "1";
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    hsdp_job *job = NULL;

    spec.name = "alone";
    spec.world_ranks = 2;
    spec.settings = (struct hsdp_settings){&key, &value, 1};
    host_must(host, host->api->job->create(&spec, &job, &host->err));
    ck_assert_int_eq(host->api->job->connect(job, &host->err), HSDP_ERR_TIMEOUT);
    host->api->job->destroy(job);
}

static void refused_run(uint32_t rank)
{
    struct host host;

    host_join(&host, rank, "dp=3", "nccl_timeout_seconds=5");
    job_refuse(&host, "nccl_timeout_seconds", "30s");
    job_refuse(&host, "no_such_key", "1");
    job_refuse(&host, "backend", "nccl");
    host_plan(&host, "", rank == 0 ? "unit a: w[64]" : "unit a: w[65]");
    host_must_refuse(&host, host.api->model->create(host.job, host.plan, &host.model, &host.err),
                     HSDP_ERR_MISMATCH, "");
    reports_read(&host);
    host_leave(&host);
}

/* Until the job has failed, for whatever reason. */
static void failure_await(struct host *host)
{
    const uint64_t start_ms = ranks_now_ms();

    while (host->api->job->status(host->job, &host->err) == HSDP_OK) {
        ck_assert_uint_lt(ranks_now_ms() - start_ms, 15000);
        ranks_sleep_ms(5);
    }
}

static void aborted_run(uint32_t rank)
{
    struct host host;

    host_open(&host, rank, "dp=3", "nccl_timeout_seconds=5", "unit a: w[64]");
    if (rank == 0) {
        alone_refuse(&host);
        host_must(&host, host.api->job->abort(host.job, "enough", &host.err));
    }
    failure_await(&host);
    host_leave(&host);
}

static void lost_run(uint32_t rank)
{
    struct host host;

    host_open(&host, rank, "dp=3", "nccl_timeout_seconds=5", "unit a: w[64]");
    if (rank == 2) {
        _exit(0);
    }
    failure_await(&host);
    ck_assert_int_eq(host.err.status, HSDP_ERR_PEER_LOST);
    host_leave(&host);
}

static void unwritable_run(uint32_t rank)
{
    struct host host;

    host_join(&host, rank, "dp=3", "flight_dir=/nonexistent/folder nccl_timeout_seconds=5");
    ranks_sleep_ms(rank == 1 ? 100 : 0);
    host.api->job->abort(host.job, "the flight record has no folder", &host.err);
    host_leave(&host);
}

static void nodes_run(uint32_t rank)
{
    struct host host;

    host_join(&host, rank, "dp=3", "nccl_timeout_seconds=10");
    host_plan(&host, "", "unit a: w[64]");
    host_must_refuse(&host, host.api->model->create(host.job, host.plan, &host.model, &host.err),
                     HSDP_ERR_UNSUPPORTED, "");
    host_close(&host);
}

/* --------------------------------------------------------------------------------- left alone */

/* What the ranks of a test do, and on which nodes. */
struct story {
    void (*run)(uint32_t rank);
    const struct nodes_case *nodes;
};

static void story_rank(uint32_t rank, void *shared)
{
    const struct story *story = shared;
    struct captured captured;
    char *before;

    if (story->nodes != NULL) {
        node_ranks_environment(story->nodes, rank);
    }
    process_threads_settle();
    before = process_state();
    captured_begin(&captured);
    story->run(rank);
    ck_assert_uint_eq(captured_end(&captured), 0);
    process_state_expect(before);
}

static void story_run(void (*run)(uint32_t rank), const struct nodes_case *nodes)
{
    struct story story = {run, nodes};

    ranks_run(3, RANKS_LIMIT_MS, story_rank, &story);
}

START_TEST(training_leaves_the_process_as_it_was)
{
    host_settings_set(_i, "verify=wrap,step:1,access param_dtype=bf16");
    story_run(training_run, NULL);
}
END_TEST

static void (*const failures[])(uint32_t rank) = {refused_run, aborted_run, lost_run,
                                                  unwritable_run};

#define N_FAILURES ((int)(sizeof(failures) / sizeof(failures[0])))

START_TEST(failures_leave_the_process_as_it_was)
{
    story_run(failures[_i], NULL);
}
END_TEST

START_TEST(nodes_leave_the_process_as_it_was)
{
    const struct nodes_case nodes = {"2,1", node_ranks_port()};

    story_run(nodes_run, &nodes);
}
END_TEST

/* A host's own arithmetic and masks are kept, too, not set to what is usual. */
static void unusual_rank(uint32_t rank, void *shared)
{
    (void)shared;
    mask_change();
    handler_change();
    fesetround(FE_UPWARD);
    story_rank(rank, &(struct story){training_run, NULL});
}

START_TEST(training_keeps_what_a_host_has_set)
{
    host_settings_set(_i, "");
    ranks_run(3, RANKS_LIMIT_MS, unusual_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- threads */

/* The watchdog's thread comes with the connection and goes with the job. */
static void threads_rank(uint32_t rank, void *shared)
{
    struct host host;
    uint32_t n_before;

    (void)shared;
    process_threads_settle();
    n_before = ranks_n_threads();
    host_join(&host, rank, "dp=2", "");
    ck_assert_uint_eq(ranks_n_threads(), n_before + 1);
    host_must(&host, host.api->job->close(host.job, &host.err));
    host.api->job->destroy(host.job);
    host.job = NULL;
    ck_assert_uint_eq(ranks_n_threads(), n_before);
    host_leave(&host);
}

START_TEST(threads_do_not_outlive_the_last_job)
{
    ranks_run(2, RANKS_LIMIT_MS, threads_rank, NULL);
}
END_TEST

/* A thread of the host that trains and ends when the plugin is gone. */
struct trainer {
    struct host host;
    _Atomic uint32_t has_trained;
    _Atomic uint32_t may_end;
};

static void *trainer_run(void *argument)
{
    struct trainer *trainer = argument;

    step_run(&trainer->host);
    atomic_store(&trainer->has_trained, 1u);
    while (atomic_load(&trainer->may_end) == 0) {
        ranks_sleep_ms(1);
    }
    return NULL;
}

static void trainer_rank(uint32_t rank, void *shared)
{
    static struct trainer trainer;
    pthread_t thread;

    (void)shared;
    host_open(&trainer.host, rank, "dp=2", host_settings, "unit a: w[64]");
    ck_assert_int_eq(pthread_create(&thread, NULL, trainer_run, &trainer), 0);
    while (atomic_load(&trainer.has_trained) == 0) {
        ranks_sleep_ms(1);
    }
    host_close(&trainer.host);
    atomic_store(&trainer.may_end, 1u);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

START_TEST(threads_of_the_host_may_end_behind_the_plugin)
{
    host_settings_set(4, "");
    ranks_run(2, RANKS_LIMIT_MS, trainer_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_side_effects");
    TCase *noticed = tcase_create("noticed");
    TCase *plugin = tcase_create("plugin");

    tcase_add_loop_test(noticed, state_that_changed_is_noticed, 0, N_CHANGES);
    tcase_add_test(noticed, state_that_did_not_change_is_the_same);
    tcase_add_test(noticed, output_of_each_kind_is_noticed);
    suite_add_tcase(suite, noticed);
    tcase_set_timeout(plugin, 30);
    tcase_add_loop_test(plugin, training_leaves_the_process_as_it_was, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(plugin, failures_leave_the_process_as_it_was, 0, N_FAILURES);
    tcase_add_test(plugin, nodes_leave_the_process_as_it_was);
    tcase_add_loop_test(plugin, training_keeps_what_a_host_has_set, 3, 5);
    tcase_add_test(plugin, threads_do_not_outlive_the_last_job);
    tcase_add_test(plugin, threads_of_the_host_may_end_behind_the_plugin);
    suite_add_tcase(suite, plugin);
    return suite;
}
