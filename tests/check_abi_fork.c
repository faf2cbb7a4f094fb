/* SPDX-License-Identifier: Apache-2.0 */
/* Children of a rank: every call there answers "forked"; the rank and its peers go on. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"
#include "process_state.h"
#include "ranks.h"
#include "suite.h"

/* A rank in the middle of a pass, with one of everything. */
struct parent {
    struct host host;
    hsdp_group *group;
    struct process_size size_before; /* of the process, before there was a plugin */
    char *complaint;                 /* of a child; the memory is shared */
};

#define COMPLAINT_BYTES 512u

/* ------------------------------------------------------------------------------- every function */

/* What is left out: destroy, which gives nothing back, and create of a job, which takes none. */
#define ALL_CALLED INT32_MAX

static int32_t job_call(struct parent *parent, uint64_t index)
{
    const struct hsdp_job_ops *ops = parent->host.api->job;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct hsdp_error *err = &parent->host.err;
    hsdp_job *job = parent->host.job;
    const char *value;
    const char *source;

    switch (index) {
    case 0:
        return ops->connect(job, err);
    case 1:
        return ops->close(job, err);
    case 2:
        return ops->abort(job, "by a child", err);
    case 3:
        return ops->status(job, err);
    case 4:
        return ops->info(job, &info, err);
    case 5:
        return ops->setting(job, "backend", &value, &source, err);
    case 6:
        return ops->setting_set(job, "nccl_timeout_seconds", "7", err);
    case 7:
        return ops->phase_push(job, "save", 1000, err);
    case 8:
        return ops->phase_pop(job, err);
    case 9:
        return ops->ticket_wait(job, 0, 0, err);
    case 10:
        return ops->ticket_order(job, 0, NULL, err);
    default:
        return ALL_CALLED;
    }
}

static int32_t group_call(struct parent *parent, uint64_t index)
{
    const struct hsdp_group_ops *ops = parent->host.api->group;
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;
    struct hsdp_coll_spec coll = HSDP_COLL_SPEC_INIT;
    struct hsdp_error *err = &parent->host.err;
    uint32_t members[2];
    hsdp_group *group;

    spec.selector = "dp";
    coll.kind = HSDP_COLL_BARRIER;
    switch (index) {
    case 0:
        return ops->create(parent->host.job, parent->host.mesh, &spec, &group, err);
    case 1:
        return ops->connect(parent->host.job, err);
    case 2:
        return ops->info(parent->group, &info, err);
    case 3:
        return ops->members(parent->group, members, 2, err);
    case 4:
        return ops->start(parent->group, &coll, sizeof(coll), 1, NULL, NULL, err);
    default:
        return ALL_CALLED;
    }
}

static int32_t model_call(struct parent *parent, uint64_t index)
{
    const struct hsdp_model_ops *ops = parent->host.api->model;
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct hsdp_error *err = &parent->host.err;
    hsdp_model *model = parent->host.model;
    float values[64] = {0};
    struct hsdp_tensor full = host_tensor(&parent->host, 0, values, "fp32");
    struct hsdp_tensor view;
    const char *name;
    const char *dtype;
    uint32_t state;

    switch (index) {
    case 0:
        return ops->create(parent->host.job, parent->host.plan, &model, err);
    case 1:
        return ops->info(model, &info, err);
    case 2:
        return ops->param_view(model, 0, HSDP_VIEW_PARAM, &view, err);
    case 3:
        return ops->flat_view(model, 0, 0, HSDP_FLAT_MASTER, &view, err);
    case 4:
        return ops->state_create(model, "m", "fp32", &state, err);
    case 5:
        return ops->state_info(model, 0, &name, &dtype, err);
    case 6:
        return ops->edit_begin(model, NULL, err);
    case 7:
        return ops->edit_end(model, NULL, err);
    case 8:
        return ops->import_param(model, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS, NULL, err);
    case 9:
        return ops->export_param(model, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS, NULL, err);
    case 10:
        return ops->sync(model, NULL, err);
    default:
        return ALL_CALLED;
    }
}

static int32_t unit_call(struct parent *parent, uint64_t index)
{
    const struct hsdp_unit_ops *ops = parent->host.api->unit;
    struct hsdp_error *err = &parent->host.err;
    hsdp_model *model = parent->host.model;
    uint64_t pass = parent->host.pass;
    float values[64] = {0};
    struct hsdp_tensor grad = host_tensor(&parent->host, 0, values, "fp32");
    const uint32_t units[] = {0};

    switch (index) {
    case 0:
        return ops->unshard(model, 0, HSDP_USE_FORWARD, NULL, NULL, err);
    case 1:
        return ops->release(model, 0, NULL, err);
    case 2:
        return ops->grad_add(model, 0, &grad, NULL, err);
    case 3:
        return ops->backward_begin(model, units, 1, HSDP_SCOPE_FULL, &pass, err);
    case 4:
        return ops->reduce(model, pass, 0, NULL, NULL, err);
    case 5:
        return ops->skip(model, pass, 0, NULL, NULL, err);
    case 6:
        return ops->backward_end(model, pass, NULL, NULL, err);
    default:
        return ALL_CALLED;
    }
}

static int32_t step_call(struct parent *parent, uint64_t index)
{
    const struct hsdp_step_ops *ops = parent->host.api->step;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;
    struct hsdp_error *err = &parent->host.err;
    hsdp_model *model = parent->host.model;
    struct hsdp_tensor view;

    switch (index) {
    case 0:
        return ops->begin(model, &spec, NULL, err);
    case 1:
        return ops->result(model, &info, err);
    case 2:
        return ops->factor_view(model, &view, err);
    case 3:
        return ops->end(model, NULL, NULL, err);
    case 4:
        return ops->discard(model, NULL, err);
    default:
        return ALL_CALLED;
    }
}

static int32_t diag_call(struct parent *parent, uint64_t index)
{
    const struct hsdp_diag_ops *ops = parent->host.api->diag;
    struct hsdp_error *err = &parent->host.err;
    hsdp_job *job = parent->host.job;
    const char *name;
    uint64_t n;

    switch (index) {
    case 0:
        return ops->report(job, "error", NULL, 0, &n, err);
    case 1:
        return ops->counter(job, "steps", &n, err);
    case 2:
        return ops->counter_name(job, 0, &name, err);
    default:
        return ALL_CALLED;
    }
}

static int32_t adamw_call(struct parent *parent, uint64_t index)
{
    return index == 0 ? host_adamw(&parent->host, 0.5, 0.0) : ALL_CALLED;
}

struct table {
    const char *name;
    int32_t (*call)(struct parent *parent, uint64_t index);
    uint64_t n_left_out;
    size_t n_bytes;
};

static const struct table tables[] = {
    {"job", job_call, 2, sizeof(struct hsdp_job_ops)},
    {"group", group_call, 1, sizeof(struct hsdp_group_ops)},
    {"model", model_call, 1, sizeof(struct hsdp_model_ops)},
    {"unit", unit_call, 0, sizeof(struct hsdp_unit_ops)},
    {"step", step_call, 0, sizeof(struct hsdp_step_ops)},
    {"diag", diag_call, 0, sizeof(struct hsdp_diag_ops)},
    {"adamw", adamw_call, 0, sizeof(struct hsdp_adamw_ops)},
};

#define N_TABLES (sizeof(tables) / sizeof(tables[0]))

/* A child cannot fail the test by itself: it says why, and ends with 1. */
static int complain(struct parent *parent, const char *table, uint64_t index, int32_t status)
{
    snprintf(parent->complaint, COMPLAINT_BYTES, "%s, call %u answers %d", table, (unsigned)index,
             (int)status);
    return 1;
}

static int table_call(struct parent *parent, const struct table *table)
{
    const uint64_t n_calls = table->n_bytes / sizeof(void *) - 1 - table->n_left_out;
    uint64_t index = 0;

    for (;; index++) {
        int32_t status;

        parent->host.err.status = 0;
        parent->host.err.message[0] = '\0';
        status = table->call(parent, index);
        if (status == ALL_CALLED) {
            break;
        }
        if (status != HSDP_ERR_FORKED || parent->host.err.status != HSDP_ERR_FORKED ||
            strstr(parent->host.err.message, "child") == NULL) {
            return complain(parent, table->name, index, status);
        }
    }
    return index == n_calls ? 0 : complain(parent, table->name, index, ALL_CALLED);
}

/* ----------------------------------------------------------------------------- what children do */

static int child_calls(struct parent *parent)
{
    int failed = 0;

    for (size_t i = 0; i < N_TABLES && failed == 0; i++) {
        failed = table_call(parent, &tables[i]);
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
    parent->host.api->group->destroy(parent->group);
    host_leave(&parent->host);
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
    struct host *host = &ret->host;

    ret->complaint = ranks_memory(COMPLAINT_BYTES);
    host_join(host, rank, "dp=2", ""); /* the C library keeps the stack of a thread */
    host_close(host);
    ret->size_before = process_size();
    host_open(host, rank, "dp=2", host_settings, "unit a: w[64]; unit b: x[5]");
    spec.selector = "dp";
    host_must(host,
              host->api->group->create(host->job, host->mesh, &spec, &ret->group, &host->err));
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
    struct host *host = &parent.host;

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
    host_backward(&parent.host, HSDP_SCOPE_FULL, 0, gradient);
    host_step(&parent.host, 0.0);
    host_expect_grad(&parent.host, "w", 3.0);
    host_step_end(&parent.host);
    host_must(&parent.host, parent.host.api->job->close(parent.host.job, &parent.host.err));
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
    host_backward(&parent.host, HSDP_SCOPE_FULL, 0, gradient);
    host_step(&parent.host, 0.0);
    host_expect_grad(&parent.host, "w", 3.0);
    host_step_end(&parent.host);
    host_must(&parent.host, parent.host.api->job->close(parent.host.job, &parent.host.err));
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
    tcase_add_test(tcase, programs_started_by_ranks_change_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
