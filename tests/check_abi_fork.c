/* SPDX-License-Identifier: Apache-2.0 */
/* Children of a rank: every call there answers "forked"; the rank and its peers go on. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "every_call.h"
#include "host.h"
#include "node_ranks.h"
#include "process_state.h"
#include "ranks.h"
#include "suite.h"

/* A rank in the middle of a pass, with one of everything. */
struct parent {
    struct every_call on;
    struct process_size size_before; /* of the process, before there was a plugin */
    char *complaint;                 /* of a child; the memory is shared */
};

#define COMPLAINT_BYTES 512u

/* A child cannot fail the test by itself: it says why, and ends with 1. */
static int complain(struct parent *parent, const char *table, uint64_t index, int32_t status)
{
    snprintf(parent->complaint, COMPLAINT_BYTES, "%s, call %u answers %d", table, (unsigned)index,
             (int)status);
    return 1;
}

static int table_call(struct parent *parent, const struct every_call_table *table)
{
    uint64_t index = 0;

    for (;; index++) {
        int32_t status;

        parent->on.host.err.status = 0;
        parent->on.host.err.message[0] = '\0';
        status = table->call(&parent->on, index);
        if (status == EVERY_CALL_MADE) {
            break;
        }
        if (status != HSDP_ERR_FORKED || parent->on.host.err.status != HSDP_ERR_FORKED ||
            strstr(parent->on.host.err.message, "child") == NULL) {
            return complain(parent, table->name, index, status);
        }
    }
    return index == every_call_n(table) ? 0 : complain(parent, table->name, index, EVERY_CALL_MADE);
}

/* ----------------------------------------------------------------------------- what children do */

static int child_calls(struct parent *parent)
{
    int failed = 0;

    for (size_t i = 0; i < EVERY_CALL_N_TABLES && failed == 0; i++) {
        failed = table_call(parent, &every_call_tables[i]);
    }
    return failed;
}

static int child_forks(struct parent *parent)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        _exit(child_calls(parent));
    }
    return waitpid(pid, &status, 0) == pid && status == 0 ? child_calls(parent) : 1;
}

static void parent_destroy(struct parent *parent)
{
    parent->on.host.api->group->destroy(parent->on.group);
    host_leave(&parent->on.host);
}

/* Afterwards it has not more than its parent had before there was a plugin. */
static int child_destroys(struct parent *parent)
{
    const char *growth;

    parent_destroy(parent);
    growth = process_size_growth(parent->size_before, process_size());
    snprintf(parent->complaint, COMPLAINT_BYTES, "%s", growth == NULL ? "" : growth);
    return growth == NULL ? 0 : 1;
}

static double gradient(struct host_at at)
{
    return 1.0 + 4.0 * at.rank; /* the mean of two ranks is 3, of one 1 */
}

/* A job of its own, before and after it gives up that of its parent. */
static int child_trains(struct parent *parent)
{
    ranks_environment_clear();
    for (int i = 0; i < 2; i++) {
        struct host host;

        host_open(&host, 0, "dp=1", "sharding_strategy=fsdp", "unit a: w[64]");
        host_backward(&host, HSDP_SCOPE_FULL, 0, gradient);
        host_step(&host, 0.0);
        host_expect_grad(&host, "w", 1.0);
        host_step_end(&host);
        host_close(&host);
        if (i == 0) {
            parent_destroy(parent);
        }
    }
    return 0;
}

static int child_executes(struct parent *parent)
{
    (void)parent;
    execl("/bin/sh", "sh", "-c", "exit 0", (char *)NULL);
    return 1;
}

static int child_returns(struct parent *parent)
{
    (void)parent;
    return 0;
}

static int child_is_killed(struct parent *parent)
{
    (void)parent;
    raise(SIGKILL);
    return 1;
}

static const struct {
    int (*run)(struct parent *parent);
    bool ends_by_exit; /* with all that a program does at its end, or by _exit */
    int wait_status;
} children[] = {
    {child_calls, false, 0},           {child_calls, true, 0},    {child_forks, false, 0},
    {child_destroys, false, 0},        {child_destroys, true, 0}, {child_trains, true, 0},
    {child_executes, false, 0},        {child_returns, false, 0}, {child_returns, true, 0},
    {child_is_killed, false, SIGKILL},
};

#define N_CHILDREN ((int)(sizeof(children) / sizeof(children[0])))

/* ------------------------------------------------------------------------------------ the ranks */

static void parent_open(struct parent *ret, uint32_t rank)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct host *host = &ret->on.host;

    ret->complaint = ranks_memory(COMPLAINT_BYTES);
    host_join(host, rank, "dp=2", ""); /* the C library keeps the stack of a thread */
    host_close(host);
    ret->size_before = process_size();
    host_open(host, rank, "dp=2", host_settings, "unit a: w[64]; unit b: x[5]");
    spec.selector = "dp";
    host_must(host,
              host->api->group->create(host->job, host->mesh, &spec, &ret->on.group, &host->err));
    host_must(host, host->api->group->connect(host->job, &host->err));
}

static pid_t child_start(struct parent *parent, int kind)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        int failed = children[kind].run(parent);

        if (children[kind].ends_by_exit) {
            exit(failed);
        }
        _exit(failed);
    }
    return pid;
}

static void child_end(struct parent *parent, int kind, pid_t pid)
{
    int status = -1;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == children[kind].wait_status, "child %d ended with %x: %s", kind,
                  (unsigned)status, parent->complaint);
}

/* Both ranks fork in the middle of a pass, again in a step, and train to the right end. */
static void forking_rank(uint32_t rank, void *shared)
{
    const int kind = *(const int *)shared;
    struct parent parent;
    struct host *host = &parent.on.host;

    parent_open(&parent, rank);
    host_pass_begin(host, HSDP_SCOPE_FULL);
    host_acquire(host, 1);
    child_end(&parent, kind, child_start(&parent, kind));
    host_fill(host, 1, 0, gradient);
    host_hand_over(host, 1);
    host_acquire(host, 0);
    host_fill(host, 0, 0, gradient);
    host_hand_over(host, 0);
    host_pass_end(host);
    host_step(host, 0.0);
    child_end(&parent, kind, child_start(&parent, kind));
    host_expect_grad(host, "w", 3.0);
    host_expect_grad(host, "x", 3.0);
    host_step_end(host);
    host_must(host, host->api->job->close(host->job, &host->err));
    parent_destroy(&parent);
}

START_TEST(fork_of_ranks_that_train_is_noticed_by_nobody)
{
    static const int strategies[] = {0, 3, 6};
    int kind = _i / 3;

    host_settings_set(strategies[_i % 3], "");
    ranks_run(2, RANKS_LIMIT_MS, forking_rank, &kind);
}
END_TEST

/* A child that is there until the job has ended, and gone on to another plugin. */
static void outliving_rank(uint32_t rank, void *shared)
{
    struct parent parent;
    int gate[2];
    pid_t pid;
    char byte;

    (void)shared;
    ck_assert_int_eq(pipe(gate), 0);
    parent_open(&parent, rank);
    pid = fork();
    if (pid == 0) {
        close(gate[1]);
        _exit(read(gate[0], &byte, 1) == 0 ? child_calls(&parent) + child_destroys(&parent) : 1);
    }
    close(gate[0]);
    host_backward(&parent.on.host, HSDP_SCOPE_FULL, 0, gradient);
    host_step(&parent.on.host, 0.0);
    host_expect_grad(&parent.on.host, "w", 3.0);
    host_step_end(&parent.on.host);
    host_must(&parent.on.host,
              parent.on.host.api->job->close(parent.on.host.job, &parent.on.host.err));
    parent_destroy(&parent);
    close(gate[1]);
    child_end(&parent, 0, pid);
}

START_TEST(fork_that_outlives_the_job_changes_nothing)
{
    host_settings_set(4, "");
    ranks_run(2, RANKS_LIMIT_MS, outliving_rank, NULL);
}
END_TEST

/* A child, when other threads of its parent are anywhere, gives back all that it has. */
static void leaving_child_run(struct parent *parent)
{
    int status = -1;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        alarm(10);
        parent_destroy(parent);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

static void often_rank(uint32_t rank, void *shared)
{
    struct parent parent;

    (void)shared;
    parent_open(&parent, rank);
    for (int i = 0; i < 50; i++) {
        host_backward(&parent.on.host, HSDP_SCOPE_FULL, 0, gradient);
        leaving_child_run(&parent);
        host_step(&parent.on.host, 0.0);
        host_step_end(&parent.on.host);
    }
    host_must(&parent.on.host,
              parent.on.host.api->job->close(parent.on.host.job, &parent.on.host.err));
    parent_destroy(&parent);
}

START_TEST(fork_at_any_moment_leaves_a_child_that_can_give_all_back)
{
    host_settings_set(3, "");
    ranks_run(2, RANKS_LIMIT_MS, often_rank, NULL);
}
END_TEST

/* Between nodes there are connections, which the watchdog's thread serves. */
static void node_rank(uint32_t rank, void *shared)
{
    struct parent parent = {0};

    node_ranks_environment(shared, rank);
    host_join(&parent.on.host, rank, "dp=2", "nccl_timeout_seconds=15");
    for (int i = 0; i < 50; i++) {
        leaving_child_run(&parent);
        host_must(&parent.on.host, parent.on.host.api->job->setting_set(
                                       parent.on.host.job, "nccl_timeout_seconds",
                                       i % 2 == 0 ? "16" : "15", &parent.on.host.err));
    }
    host_close(&parent.on.host);
}

START_TEST(fork_of_ranks_on_two_nodes_is_noticed_by_nobody)
{
    struct nodes_case nodes = {"1,1", node_ranks_port()};

    ranks_run(2, RANKS_LIMIT_MS, node_rank, &nodes);
}
END_TEST

/* Programs that are started in other ways. */
static void starting_rank(uint32_t rank, void *shared)
{
    struct parent parent;
    FILE *program;

    (void)shared;
    parent_open(&parent, rank);
    ck_assert_int_eq(system("exit 0"), 0);
    program = popen("exit 0", "r");
    ck_assert_ptr_nonnull(program);
    ck_assert_int_eq(pclose(program), 0);
    host_backward(&parent.on.host, HSDP_SCOPE_FULL, 0, gradient);
    host_step(&parent.on.host, 0.0);
    host_expect_grad(&parent.on.host, "w", 3.0);
    host_step_end(&parent.on.host);
    host_must(&parent.on.host,
              parent.on.host.api->job->close(parent.on.host.job, &parent.on.host.err));
    parent_destroy(&parent);
}

START_TEST(programs_started_by_ranks_change_nothing)
{
    host_settings_set(4, "");
    ranks_run(2, RANKS_LIMIT_MS, starting_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_fork");
    TCase *tcase = tcase_create("fork");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, fork_of_ranks_that_train_is_noticed_by_nobody, 0, 3 * N_CHILDREN);
    tcase_add_test(tcase, fork_that_outlives_the_job_changes_nothing);
    tcase_add_test(tcase, fork_at_any_moment_leaves_a_child_that_can_give_all_back);
    tcase_add_test(tcase, fork_of_ranks_on_two_nodes_is_noticed_by_nobody);
    tcase_add_test(tcase, programs_started_by_ranks_change_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
