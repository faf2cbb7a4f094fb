/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that disagree, die, leave or stay away: what the others are told. */
#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static const char same_units[] = "unit a: w[5]; unit b: x[7]";

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

/* ---------------------------------------------------------------------------- other plans */

/* What the last rank has instead, and both lines in part. */
struct difference {
    const char *settings;
    const char *units;
    const char *theirs;
    const char *ours;
};

static const struct difference differences[] = {
    {"", "unit a: w[5]; unit b: x[8]", "shape=[8]", "shape=[7]"},
    {"", "unit a: w[5]; unit b: x[70000]", "shape=[70000]", "shape=[7]"},
    {"", "unit a: w[5]; unit b: y[7]", "param \"y\"", "param \"x\""},
    {"", "unit a: w[5]; unit c: x[7]", "unit \"c\"", "unit \"b\""},
    {"slots=1", "unit a: w[5]; unit b: x[7]; unit c: z[1]", "slots=1", "slots=2"},
    {"", "unit a: w[5]; unit b: x[7] z[1]", "param \"z\"", "no more parameters"},
    {"", "unit a: w[5] y[1]!; unit b: x[7]", "param \"y\"", "param \"x\""},
    {"", "unit a: w[5]; unit b: x[7]/7", "block_elems=7", "block_elems=0"},
    {"", "unit a: w[5] x[7]", "no more units", "unit \"b\""},
    {"", "unit a: w[5]; unit b: x[7]!", "frozen=1", "frozen=0"},
    {"", "unit a: w[5]; unit b: x[7]; unit c: z[1]", "unit \"c\"", "no more units"},
    {"", "unit z: y[1]; unit a: w[5]; unit b: x[7]", "unit \"z\"", "unit \"a\""},
    {"", "unit a: w[5]", "no more units", "unit \"b\""},
    {"", "unit b: x[7]", "unit \"b\"", "unit \"a\""},
    {"", "unit b: x[7]; unit a: w[5]", "unit \"b\"", "unit \"a\""},
    {"", "unit a: w[5]; unit b: x[7]@1", "hyper_group=1", "hyper_group=0"},
    {"", "unit a: w[5]; class expert; unit b: x[7]", "class \"expert\"", "no more classes"},
    {"sharding_strategy=ddp", same_units, "sharding_strategy=ddp", "sharding_strategy=fsdp"},
    {"param_dtype=bf16", same_units, "param_dtype=bf16", "param_dtype=fp32"},
    {"master_dtype=bf16", same_units, "master_dtype=bf16", "master_dtype=fp32"},
    {"reduce_dtype=bf16", same_units, "reduce_dtype=bf16", "reduce_dtype=fp32"},
    {"gradient_dtype=bf16", same_units, "gradient_dtype=bf16", "gradient_dtype=fp32"},
    {"gradient_divisor=7", same_units, "gradient_divisor=7", "gradient_divisor=3"},
    {"gradient_op=sum", same_units, "gradient_op=sum", "gradient_op=mean"},
    {"slots=3", same_units, "slots=3", "slots=2"},
    {"accumulation_scope=full", same_units, "accumulation_scope=full", "accumulation_scope=none"},
};

static void difference_rank(uint32_t rank, void *shared)
{
    const struct difference *other = shared;
    hsdp_model *model = NULL;
    struct host host;
    int32_t status;

    host_join(&host, rank, "dp=3", "");
    if (rank == 2) {
        host_plan(&host, other->settings, other->units);
    } else {
        host_plan(&host, "", same_units);
    }
    status = host.api->model->create(host.job, host.plan, &model, &host.err);
    ck_assert_msg(status == HSDP_ERR_MISMATCH, "%d: %s", status, host.err.message);
    ck_assert_ptr_null(model);
    ck_assert_msg(strstr(host.err.message, "plans differ: rank 0 has ") != NULL &&
                      strstr(host.err.message, "; rank 2 has ") != NULL,
                  "%s", host.err.message);
    ck_assert_int_eq(host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
    host_must_refuse(&host, host.api->model->create(host.job, host.plan, &model, &host.err),
                     HSDP_ERR_ABORTED, "plans differ");
    host_leave(&host);
}

START_TEST(create_with_another_plan_on_one_rank_tells_all)
{
    ranks_run(3, RANKS_LIMIT_MS, difference_rank, (void *)(uintptr_t)&differences[_i]);
}
END_TEST

static void lines_rank(uint32_t rank, void *shared)
{
    const struct difference *other = shared;
    hsdp_model *model = NULL;
    struct host host;

    host_join(&host, rank, "dp=3", "");
    host_plan(&host, rank == 2 ? other->settings : "", rank == 2 ? other->units : same_units);
    ck_assert_int_eq(host.api->model->create(host.job, host.plan, &model, &host.err),
                     HSDP_ERR_MISMATCH);
    ck_assert_msg(strstr(host.err.message, other->theirs) != NULL, "\"%s\" lacks %s",
                  host.err.message, other->theirs);
    ck_assert_msg(strstr(host.err.message, other->ours) != NULL, "\"%s\" lacks %s",
                  host.err.message, other->ours);
    host_leave(&host);
}

START_TEST(create_with_another_plan_shows_both_lines)
{
    ranks_run(3, RANKS_LIMIT_MS, lines_rank, (void *)(uintptr_t)&differences[_i]);
}
END_TEST

/* Stages of a pipeline hold other units, and need not agree. */
static void stages_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=2,dp=2", host_settings,
              rank < 2 ? "unit a: w[5]; unit b: x[7]" : "unit c: y[1031]");
    host_load(&host, one);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    ck_assert_double_eq(host_step(&host, 0.0).norm, sqrt(5.0 + 7.0 + 1031.0));
    host_step_end(&host);
    host_close(&host);
}

START_TEST(create_with_other_plans_on_other_stages_succeeds)
{
    snprintf(host_settings, sizeof(host_settings), "sharding_strategy=%s", host_strategies[_i]);
    ranks_run(4, RANKS_LIMIT_MS, stages_rank, NULL);
}
END_TEST

/* But all have the same data peers, over whom token weights are summed. */
static void data_dims_rank(uint32_t rank, void *shared)
{
    hsdp_model *model = NULL;
    struct host host;

    (void)shared;
    host_join(&host, rank, rank < 2 ? "pp=2,dp=2" : "pp=2,dp=2 data=pp,dp", "");
    host_plan(&host, "gradient_op=sum", "class dense(dp); unit a: w[5]");
    host_must_refuse(&host, host.api->model->create(host.job, host.plan, &model, &host.err),
                     HSDP_ERR_MISMATCH, "rank 2 has mesh pp=2 ... data_dims=pp,dp");
    ck_assert_ptr_null(model);
    host_leave(&host);
}

START_TEST(create_with_other_data_dimensions_on_another_stage_tells_all)
{
    ranks_run(4, RANKS_LIMIT_MS, data_dims_rank, NULL);
}
END_TEST

/* Of one plan, and of another stage's. */
static void verify_rank(uint32_t rank, void *shared)
{
    hsdp_model *model = NULL;
    struct host host;

    (void)shared;
    host_join(&host, rank, "pp=2,dp=2", "");
    host_plan(&host, rank == 3 ? "verify=access,step:3" : "verify=off", "unit a: w[5]");
    host_must_refuse(&host, host.api->model->create(host.job, host.plan, &model, &host.err),
                     HSDP_ERR_MISMATCH,
                     "verify differs: rank 0 has \"off\", rank 3 has \"step:3\"");
    ck_assert_int_eq(host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
    host_leave(&host);
}

START_TEST(create_with_another_verify_on_one_rank_tells_all)
{
    ranks_run(4, RANKS_LIMIT_MS, verify_rank, NULL);
}
END_TEST

static void access_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", rank == 0 ? "verify=access" : "verify=off", "unit a: w[5]");
    host_close(&host);
}

START_TEST(create_with_access_verified_on_one_rank_succeeds)
{
    ranks_run(2, RANKS_LIMIT_MS, access_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------- who stays away */

/* What the present ranks do last, and what the error calls it. */
enum moment { IN_BACKWARD, IN_STEP, IN_EDIT, IN_EXPORT, IN_UNSHARD, IN_CREATE, N_MOMENTS };
static const char *const operations[N_MOMENTS] = {
    "reduce", "step", "model.edit_begin", "model.export_param", "unshard", "model.create"};

/* What a test shares with its ranks. */
struct meeting {
    _Atomic uint32_t n_there;
    _Atomic uint32_t n_told;
    enum moment moment;
    uint32_t n_ranks;
    uint32_t absent;
};

/* A pass, as far as it goes without failing; answers the status of the last call. */
static int32_t pass_try(struct host *host)
{
    static const uint32_t units[] = {1, 0};
    uint64_t ticket;
    int32_t status = host_backward_begin(host, units, 2, HSDP_SCOPE_FULL, &host->pass);

    for (int i = 0; status == HSDP_OK && i < 2; i++) {
        status = host_unshard(host, units[i], HSDP_USE_BACKWARD);
        if (status == HSDP_OK) {
            status = host_reduce(host, units[i]);
        }
        if (status == HSDP_OK) {
            status = host_release(host, units[i]);
        }
    }
    if (status == HSDP_OK) {
        status = host->api->unit->backward_end(host->model, host->pass, NULL, &ticket, &host->err);
    }
    if (status == HSDP_OK) {
        status = host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err);
    }
    return status;
}

/* More passes than a rank that dies or leaves takes part in. */
static int32_t backward_try(struct host *host)
{
    int32_t status = HSDP_OK;

    for (int batch = 0; status == HSDP_OK && batch < 3; batch++) {
        status = pass_try(host);
    }
    return status;
}

static int32_t moment_try(struct host *host, enum moment moment)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct hsdp_tensor full;
    hsdp_model *model;
    float values[8];
    int32_t status;

    switch (moment) {
    case IN_BACKWARD:
        return backward_try(host);
    case IN_STEP:
        status = host->api->step->begin(host->model, &spec, NULL, &host->err);
        return status != HSDP_OK ? status
                                 : host->api->step->result(host->model, &result, &host->err);
    case IN_EDIT:
        return host->api->model->edit_begin(host->model, NULL, &host->err);
    case IN_EXPORT:
        full = host_tensor(host, 0, values, "fp32");
        return host->api->model->export_param(host->model, 0, 0, &full, HSDP_ALL_RANKS, NULL,
                                              &host->err);
    case IN_UNSHARD:
        return host_unshard(host, 0, HSDP_USE_FORWARD);
    default:
        return host->api->model->create(host->job, host->plan, &model, &host->err);
    }
}

/* Where the next unshard waits for everyone's step.end. */
static void moment_prepare(struct host *host, const struct meeting *meeting)
{
    if (meeting->moment != IN_UNSHARD) {
        return;
    }
    host_step(host, 0.0);
    if (host->rank != meeting->absent) {
        host_step_end(host);
    }
}

static void missing_expect(const struct host *host, const struct meeting *meeting)
{
    char name[16];

    snprintf(name, sizeof(name), "rank %u", meeting->absent);
    ck_assert_msg(strstr(host->err.message, name) != NULL, "\"%s\" does not name %s",
                  host->err.message, name);
}

/* The failure itself, for ranks that were in a call; a rank that came later hears of it. */
static void failure_expect(struct host *host, struct meeting *meeting, int32_t status,
                           int32_t expected, const char *text)
{
    ck_assert_msg(status == expected || status == HSDP_ERR_ABORTED, "%d: %s", status,
                  host->err.message);
    ck_assert_msg(strstr(host->err.message, text) != NULL, "\"%s\" does not say \"%s\"",
                  host->err.message, text);
    missing_expect(host, meeting);
    if (status == expected) {
        ck_assert_uint_eq(host->err.n_missing_ranks, 1);
        ck_assert_uint_eq(host->err.missing_ranks[0], meeting->absent);
        ck_assert_str_eq(host->err.operation, operations[meeting->moment]);
        atomic_fetch_add(&meeting->n_told, 1);
    }
    ck_assert_int_eq(host->api->job->status(host->job, &host->err), expected);
    ck_assert_int_eq(moment_try(host, IN_STEP), HSDP_ERR_ABORTED);
    missing_expect(host, meeting);
}

/* The absent rank sleeps outside of any call until the others have given up. */
static void timeout_rank(uint32_t rank, void *shared)
{
    struct meeting *meeting = shared;
    uint64_t start_ms;
    struct host host;
    int32_t status;

    host_open(&host, rank, "dp=3", host_settings, same_units);
    moment_prepare(&host, meeting);
    start_ms = ranks_now_ms();
    if (rank == meeting->absent) {
        ranks_meet(&meeting->n_there, meeting->n_ranks);
        host_leave(&host);
        return;
    }
    status = moment_try(&host, meeting->moment);
    ck_assert_uint_le(ranks_now_ms() - start_ms, 8000);
    if (status == HSDP_ERR_TIMEOUT) {
        ck_assert_uint_ge(host.err.waited_ms, 1000);
        ck_assert_uint_le(host.err.waited_ms, 8000);
    }
    failure_expect(&host, meeting, status, HSDP_ERR_TIMEOUT, "timeout after");
    ranks_meet(&meeting->n_there, meeting->n_ranks);
    host_leave(&host);
}

static struct meeting *meeting_make(int moment, uint32_t absent)
{
    struct meeting *meeting = ranks_memory(sizeof(*meeting));

    meeting->moment = (enum moment)moment;
    meeting->n_ranks = 3;
    meeting->absent = absent;
    return meeting;
}

/* Where only a few ranks write a rank's parameters, its unshard waits for those alone. */
static void strategy_set(int strategy, int moment, int seconds)
{
    snprintf(
        host_settings, sizeof(host_settings), "sharding_strategy=%s nccl_timeout_seconds=%d",
        host_strategies[moment == IN_UNSHARD ? 1 + strategy % 3 : strategy % HOST_N_STRATEGIES],
        seconds);
}

START_TEST(rank_that_stays_away_is_named_after_the_timeout)
{
    struct meeting *meeting = meeting_make(_i, 1 + (uint32_t)_i % 2);

    strategy_set(_i, _i, 1);
    ranks_run(3, RANKS_LIMIT_MS, timeout_rank, meeting);
    ck_assert_uint_ge(meeting->n_told, 1);
}
END_TEST

/* ------------------------------------------------------------------------------ who is gone */

/* A minute would be granted, but the death of a process is known at once. */
static void lost_rank(uint32_t rank, void *shared)
{
    struct meeting *meeting = shared;
    uint64_t start_ms;
    struct host host;
    int32_t status;

    host_open(&host, rank, "dp=3", host_settings, same_units);
    moment_prepare(&host, meeting);
    atomic_fetch_add(&meeting->n_there, 1);
    if (rank == meeting->absent) {
        for (;;) {
            pause(); /* until it is killed */
        }
    }
    start_ms = ranks_now_ms();
    status = moment_try(&host, meeting->moment);
    ck_assert_uint_le(ranks_now_ms() - start_ms, 8000);
    failure_expect(&host, meeting, status, HSDP_ERR_PEER_LOST, "died");
    host_leave(&host);
}

START_TEST(rank_that_is_killed_is_named_at_once)
{
    struct meeting *meeting = meeting_make(_i % N_MOMENTS, (uint32_t)(_i / N_MOMENTS));
    uint64_t start_ms = ranks_now_ms();
    struct ranks ranks;

    strategy_set(_i, meeting->moment, 60);
    ranks_start(&ranks, 3, RANKS_LIMIT_MS, lost_rank, meeting);
    while (atomic_load(&meeting->n_there) < 3 && ranks_now_ms() < start_ms + 5000) {
        ranks_sleep_ms(1);
    }
    ranks_sleep_ms(20); /* the others are waiting, most likely */
    ranks_kill(&ranks, meeting->absent);
    ranks_wait(&ranks);
    ck_assert_uint_ge(meeting->n_told, 1);
}
END_TEST

/* It kills itself while it trains: nobody can know where it is then. */
static void training_rank(uint32_t rank, void *shared)
{
    struct meeting *meeting = shared;
    struct host host;

    host_open(&host, rank, "dp=3", host_settings, same_units);
    if (rank == meeting->absent) {
        host_backward(&host, HSDP_SCOPE_FULL, 0, one);
        host_pass_begin(&host, HSDP_SCOPE_FULL);
        host_acquire(&host, 1);
        host_hand_over(&host, 1);
        host_acquire(&host, 0);
        kill(getpid(), SIGKILL);
    }
    failure_expect(&host, meeting, backward_try(&host), HSDP_ERR_PEER_LOST, "died");
    host_leave(&host);
}

START_TEST(rank_that_dies_within_a_backward_pass_is_named)
{
    struct meeting *meeting = meeting_make(IN_BACKWARD, (uint32_t)_i % 3);
    struct ranks ranks;

    strategy_set(_i, IN_BACKWARD, 60);
    ranks_start(&ranks, 3, RANKS_LIMIT_MS, training_rank, meeting);
    ranks.expected_signal[meeting->absent] = SIGKILL;
    ranks_wait(&ranks);
    ck_assert_uint_ge(meeting->n_told, 1);
}
END_TEST

/* It gives its job back, and lives. */
static void left_rank(uint32_t rank, void *shared)
{
    struct meeting *meeting = shared;
    struct host host;

    host_open(&host, rank, "dp=3", host_settings, same_units);
    moment_prepare(&host, meeting);
    ranks_meet(&meeting->n_there, meeting->n_ranks);
    if (rank == meeting->absent) {
        host_leave(&host);
        return;
    }
    failure_expect(&host, meeting, moment_try(&host, meeting->moment), HSDP_ERR_PEER_LOST,
                   "left the job");
    host_leave(&host);
}

START_TEST(rank_that_leaves_the_job_is_named)
{
    struct meeting *meeting = meeting_make(_i % N_MOMENTS, 2);

    strategy_set(_i, meeting->moment, 60);
    ranks_run(3, RANKS_LIMIT_MS, left_rank, meeting);
    ck_assert_uint_ge(meeting->n_told, 1);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("agreement");
    TCase *tcase = tcase_create("agreement");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, create_with_another_plan_on_one_rank_tells_all, 0,
                        N_OF(differences));
    tcase_add_loop_test(tcase, create_with_another_plan_shows_both_lines, 0, N_OF(differences));
    tcase_add_loop_test(tcase, create_with_other_plans_on_other_stages_succeeds, 0,
                        HOST_N_STRATEGIES);
    tcase_add_test(tcase, create_with_other_data_dimensions_on_another_stage_tells_all);
    tcase_add_test(tcase, create_with_another_verify_on_one_rank_tells_all);
    tcase_add_test(tcase, create_with_access_verified_on_one_rank_succeeds);
    tcase_add_loop_test(tcase, rank_that_stays_away_is_named_after_the_timeout, 0, N_MOMENTS);
    tcase_add_loop_test(tcase, rank_that_is_killed_is_named_at_once, 0, 3 * N_MOMENTS);
    tcase_add_loop_test(tcase, rank_that_dies_within_a_backward_pass_is_named, 0, 21);
    tcase_add_loop_test(tcase, rank_that_leaves_the_job_is_named, 0, 2 * N_MOMENTS);
    suite_add_tcase(suite, tcase);
    return suite;
}
