/* SPDX-License-Identifier: Apache-2.0 */
/* Who may call when: a second thread, a forked child, a failed job; and what a failure leaves. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi_host.h"
#include "ranks.h"
#include "suite.h"

static struct abi_host host;
static struct hsdp_error err;

static void host_open(void)
{
    abi_host_init(&host);
    err = (struct hsdp_error)HSDP_ERROR_INIT;
}

static void host_close(void)
{
    abi_host_fini(&host);
}

/* Everything that takes the job, or something made from it, and enters it; in the order of names.
 */
static int32_t call_in_turn(int index, struct hsdp_error *reterr)
{
    struct hsdp_step_spec step = HSDP_STEP_SPEC_INIT;
    struct hsdp_tensor view;
    const uint32_t units[] = {0};
    uint64_t pass;

    switch (index) {
    case 0:
        return host.api->group->connect(host.job, reterr);
    case 1:
        return host.api->model->edit_begin(host.model, NULL, reterr);
    case 2:
        return host.api->model->param_view(host.model, 0, HSDP_VIEW_PARAM, &view, reterr);
    case 3:
        return host.api->unit->unshard(host.model, 0, HSDP_USE_FORWARD, NULL, NULL, reterr);
    case 4:
        return host.api->unit->backward_begin(host.model, units, 1, HSDP_SCOPE_FULL, &pass, reterr);
    case 5:
        return host.api->step->begin(host.model, &step, NULL, reterr);
    case 6:
        return host.api->job->phase_push(host.job, "save", 1000, reterr);
    default:
        return host.api->job->setting_set(host.job, "nccl_timeout_seconds", "7", reterr);
    }
}

#define N_TURNS 8

/* ---------------------------------------------------------------------------------------- abort */

START_TEST(call_after_abort_repeats_the_first_reason)
{
    abi_must(host.api->job->abort(host.job, "the first reason", &err), &err);
    abi_must(host.api->job->abort(host.job, "the second", &err), &err);
    ck_assert_int_eq(call_in_turn(_i, &err), HSDP_ERR_ABORTED);
    ck_assert_int_eq(err.status, HSDP_ERR_ABORTED);
    ck_assert_msg(strstr(err.message, "the first reason") != NULL, "%s", err.message);
    ck_assert_int_eq(call_in_turn(_i, NULL), HSDP_ERR_ABORTED);
}
END_TEST

START_TEST(question_after_abort_is_answered)
{
    struct hsdp_job_info job = HSDP_JOB_INFO_INIT;
    struct hsdp_model_info model = HSDP_MODEL_INFO_INIT;
    struct hsdp_group_info group = HSDP_GROUP_INFO_INIT;
    const char *value;
    const char *source;

    abi_must(host.api->job->abort(host.job, NULL, &err), &err);
    ck_assert_int_eq(host.api->job->status(host.job, &err), HSDP_ERR_ABORTED);
    ck_assert_msg(strstr(err.message, "abort called by the host") != NULL, "%s", err.message);
    abi_must(host.api->job->info(host.job, &job, &err), &err);
    abi_must(host.api->model->info(host.model, &model, &err), &err);
    abi_must(host.api->group->info(host.group, &group, &err), &err);
    abi_must(host.api->job->setting(host.job, "backend", &value, &source, &err), &err);
}
END_TEST

START_TEST(destroy_in_any_order_is_accepted)
{
    host.api->mesh->destroy(host.mesh);
    host.api->job->destroy(host.job);
    host.api->plan->destroy(host.plan);
    host.api->group->destroy(host.group);
    host.api->model->destroy(host.model);
    memset(&host.mesh, 0, sizeof(host) - offsetof(struct abi_host, mesh));
}
END_TEST

/* -------------------------------------------------------------------------------- second thread */

/* A job whose peer never comes, so that a thread stays inside of connect until somebody aborts. */
struct stuck {
    const struct hsdp_api *api;
    hsdp_job *job;
    int32_t status;
    struct hsdp_error err;
};

static void *stuck_connect(void *argument)
{
    struct stuck *stuck = argument;

    do { /* it may be this thread that comes while the other one is inside */
        stuck->status = stuck->api->job->connect(stuck->job, &stuck->err);
    } while (stuck->status == HSDP_ERR_BUSY);
    return NULL;
}

static void stuck_init(struct stuck *ret)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;

    ranks_environment_clear();
    setenv("HSDP_RUN_ID", "check_abi_guard", 1);
    spec.world_ranks = 2;
    memset(ret, 0, sizeof(*ret));
    ret->err = (struct hsdp_error)HSDP_ERROR_INIT;
    ret->api = abi_load();
    abi_must(ret->api->job->create(&spec, &ret->job, &ret->err), &ret->err);
}

/* Asks until the other thread is inside; the limit of the test bounds it. */
static int32_t stuck_info(const struct stuck *stuck)
{
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    int32_t status = HSDP_OK;

    while (status == HSDP_OK) {
        ranks_sleep_ms(1);
        status = stuck->api->job->info(stuck->job, &info, &err);
    }
    return status;
}

START_TEST(second_thread_is_told_that_the_job_is_busy)
{
    struct stuck stuck;
    pthread_t thread;
    uint64_t n;

    stuck_init(&stuck);
    err = (struct hsdp_error)HSDP_ERROR_INIT;
    ck_assert_int_eq(pthread_create(&thread, NULL, stuck_connect, &stuck), 0);
    ck_assert_int_eq(stuck_info(&stuck), HSDP_ERR_BUSY);
    ck_assert_int_eq(err.status, HSDP_ERR_BUSY);
    ck_assert_int_eq(stuck.api->job->status(stuck.job, NULL), HSDP_OK); /* it may always be asked */
    ck_assert_int_eq(stuck.api->diag->report(stuck.job, "error", NULL, 0, &n, &err),
                     HSDP_ERR_BUFFER_TOO_SMALL);
    abi_must(stuck.api->job->abort(stuck.job, "enough", &err), &err);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(stuck.status, HSDP_ERR_ABORTED);
    ck_assert_msg(strstr(stuck.err.message, "enough") != NULL, "%s", stuck.err.message);
    stuck.api->job->destroy(stuck.job);
}
END_TEST

/* --------------------------------------------------------------------------------- forked child */

/* Runs a function in a child and expects that it ends with 0. */
static void expect_in_child(int (*function)(void))
{
    pid_t pid = fork();
    int status = -1;

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        _exit(function());
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status), "the child was ended by signal %d", WTERMSIG(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

static int child_calls(void)
{
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;

    for (int i = 0; i < N_TURNS; i++) {
        if (call_in_turn(i, &err) != HSDP_ERR_FORKED || err.status != HSDP_ERR_FORKED) {
            return i + 1;
        }
    }
    return host.api->job->info(host.job, &info, &err) == HSDP_ERR_FORKED ? 0 : N_TURNS + 1;
}

static int child_watches(void)
{
    uint64_t n;
    char text[64];

    if (host.api->job->status(host.job, &err) != HSDP_ERR_FORKED) {
        return 1;
    }
    if (host.api->job->abort(host.job, "by a child", &err) != HSDP_ERR_FORKED) {
        return 2;
    }
    if (host.api->diag->report(host.job, "error", text, 64, &n, &err) != HSDP_ERR_FORKED) {
        return 3;
    }
    return host.api->diag->counter(host.job, "steps", &n, &err) == HSDP_ERR_FORKED ? 0 : 4;
}

static int child_destroys(void)
{
    host_close();
    return 0;
}

START_TEST(call_in_a_child_is_refused)
{
    expect_in_child(child_calls);
    ck_assert_int_eq(call_in_turn(2, &err), HSDP_OK);
}
END_TEST

START_TEST(looking_and_abort_in_a_child_are_refused)
{
    expect_in_child(child_watches);
    ck_assert_int_eq(host.api->job->status(host.job, &err), HSDP_OK);
}
END_TEST

START_TEST(destroy_in_a_child_leaves_the_parent_alone)
{
    expect_in_child(child_destroys);
    for (int i = 1; i < 4; i++) {
        abi_must(call_in_turn(i, &err), &err);
        if (i == 1) {
            abi_must(host.api->model->edit_end(host.model, NULL, &err), &err);
        }
    }
    abi_must(host.api->unit->release(host.model, 0, NULL, &err), &err);
}
END_TEST

/* ------------------------------------------------------------------------ what a failure leaves */

START_TEST(failure_leaves_outputs_untouched)
{
    struct hsdp_tensor view;
    const char *texts[] = {"a", "b"};
    uint32_t index = 77;

    memset(&view, 0xaa, sizeof(view));
    ck_assert_int_lt(host.api->model->param_view(host.model, 9, 0, &view, &err), 0);
    ck_assert_int_lt(host.api->model->flat_view(host.model, 0, 9, 0, &view, &err), 0);
    ck_assert(abi_is_filled(&view, sizeof(view), 0xaa));
    ck_assert_int_lt(host.api->plan->param_find(host.plan, "none", &index, &err), 0);
    ck_assert_int_lt(host.api->model->state_create(host.model, "m", "fp8", &index, &err), 0);
    ck_assert_uint_eq(index, 77);
    ck_assert_int_lt(host.api->plan->setting(host.plan, "none", &texts[0], &texts[1], &err), 0);
    ck_assert_int_lt(host.api->job->setting(host.job, "none", &texts[0], &texts[1], &err), 0);
    ck_assert_str_eq(texts[0], "a");
    ck_assert_str_eq(texts[1], "b");
}
END_TEST

START_TEST(ticket_null_is_accepted_and_the_work_done)
{
    struct hsdp_tensor view;

    abi_must(host.api->unit->unshard(host.model, 0, HSDP_USE_FORWARD, NULL, NULL, &err), &err);
    abi_must(host.api->model->param_view(host.model, 0, HSDP_VIEW_PARAM, &view, &err), &err);
    ck_assert_int_eq(view.n_dims, 2);
    ck_assert(abi_is_filled((char *)view.base + view.byte_offset, 6 * sizeof(float), 0));
    abi_must(host.api->unit->release(host.model, 0, NULL, &err), &err);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_guard");
    TCase *one = tcase_create("one");
    TCase *two = tcase_create("two");

    tcase_add_checked_fixture(one, host_open, host_close);
    tcase_add_loop_test(one, call_after_abort_repeats_the_first_reason, 0, N_TURNS);
    tcase_add_test(one, question_after_abort_is_answered);
    tcase_add_test(one, destroy_in_any_order_is_accepted);
    tcase_add_test(one, call_in_a_child_is_refused);
    tcase_add_test(one, looking_and_abort_in_a_child_are_refused);
    tcase_add_test(one, destroy_in_a_child_leaves_the_parent_alone);
    tcase_add_test(one, failure_leaves_outputs_untouched);
    tcase_add_test(one, ticket_null_is_accepted_and_the_work_done);
    suite_add_tcase(suite, one);
    tcase_add_test(two, second_thread_is_told_that_the_job_is_busy);
    suite_add_tcase(suite, two);
    return suite;
}
