/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks in different calls that wait for each other: told at once, on all of them, with both names.
 */
#include <check.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* Calls that wait for other ranks. */
enum meeting_call {
    SETTING_SET,
    GROUP_CONNECT,
    MODEL_CREATE,
    EDIT_BEGIN,
    SYNC,
    IMPORT,
    EXPORT,
    UNSHARD,
    REDUCE,
    COLLECTIVE,
    STEP,
    CLOSE,
    N_CALLS,
};

static const char *const call_names[N_CALLS] = {"setting_set",
                                                "group.connect",
                                                "model.create",
                                                "model.edit_begin",
                                                "model.sync",
                                                "model.import_param",
                                                "model.export_param",
                                                "unshard",
                                                "reduce",
                                                "barrier",
                                                "step",
                                                "close"};

/* A deadline is far away: who is in time has not waited for one. */
#define IN_TIME_MS 15000u

/* One model in an edit, one at rest, and a group. */
struct party {
    struct host host;
    hsdp_model *edited;
    hsdp_group *group;
    float values[5];
};

static void party_open(struct party *party, uint32_t rank, uint32_t n_ranks)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    struct host *host = &party->host;
    char dims[16];

    snprintf(dims, sizeof(dims), "dp=%u", n_ranks);
    host_open(host, rank, dims, "nccl_timeout_seconds=60", "unit a: w[5]");
    host_must(host, host->api->model->create(host->job, host->plan, &party->edited, &host->err));
    host_must(host, host->api->model->edit_begin(party->edited, NULL, &host->err));
    spec.selector = "dp";
    host_must(host,
              host->api->group->create(host->job, host->mesh, &spec, &party->group, &host->err));
    host_must(host, host->api->group->connect(host->job, &host->err));
}

static void party_leave(struct party *party)
{
    party->host.api->group->destroy(party->group);
    party->host.api->model->destroy(party->edited);
    host_leave(&party->host);
}

static int32_t barrier_wait(struct host *host, hsdp_group *group)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    uint64_t ticket = 0;
    int32_t status;

    spec.kind = HSDP_COLL_BARRIER;
    status = host->api->group->start(group, &spec, sizeof(spec), 1, NULL, &ticket, &host->err);
    return status != HSDP_OK
               ? status
               : host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err);
}

static int32_t reduce_wait(struct host *host)
{
    uint32_t unit = 0;
    uint64_t ticket = 0;

    int32_t status = host_backward_begin(host, &unit, 1, HSDP_SCOPE_FULL, &host->pass);

    if (status == HSDP_OK) {
        status = host->api->unit->backward_end(host->model, host->pass, NULL, &ticket, &host->err);
    }
    return status != HSDP_OK
               ? status
               : host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err);
}

static int32_t step_wait(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    int32_t status = host->api->step->begin(host->model, &spec, NULL, &host->err);

    return status != HSDP_OK ? status : host->api->step->result(host->model, &result, &host->err);
}

/* Behind an edit: until everyone's edit has ended. */
static int32_t unshard_wait(struct party *party)
{
    struct host *host = &party->host;

    host_must(host, host->api->model->edit_end(party->edited, NULL, &host->err));
    return host->api->unit->unshard(party->edited, 0, HSDP_USE_FORWARD, NULL, NULL, &host->err);
}

static int32_t call_make(struct party *party, enum meeting_call call)
{
    struct host *host = &party->host;
    struct hsdp_tensor full = host_tensor(host, 0, party->values, "fp32");
    hsdp_model *model;

    switch (call) {
    case SETTING_SET:
        return host->api->job->setting_set(host->job, "nccl_timeout_seconds", "59", &host->err);
    case GROUP_CONNECT:
        return host->api->group->connect(host->job, &host->err);
    case MODEL_CREATE:
        return host->api->model->create(host->job, host->plan, &model, &host->err);
    case EDIT_BEGIN:
        return host->api->model->edit_begin(host->model, NULL, &host->err);
    case SYNC:
        return host->api->model->sync(party->edited, NULL, &host->err);
    case IMPORT:
        return host->api->model->import_param(party->edited, 0, HSDP_FLAT_MASTER, &full, 0, NULL,
                                              &host->err);
    case EXPORT:
        return host->api->model->export_param(party->edited, 0, HSDP_FLAT_MASTER, &full,
                                              HSDP_ALL_RANKS, NULL, &host->err);
    case UNSHARD:
        return unshard_wait(party);
    case REDUCE:
        return reduce_wait(host);
    case COLLECTIVE:
        return barrier_wait(host, party->group);
    case STEP:
        return step_wait(host);
    default:
        return host->api->job->close(host->job, &host->err);
    }
}

/* ------------------------------------------------------------------------- one call each */

/* The calls of two ranks, and of those behind them, which do as the second. */
struct pair {
    enum meeting_call calls[2];
    uint32_t n_ranks;
};

/* A pass and a step are told apart when the pass begins, even before the step is waited for. */
static bool is_told_sooner(const struct pair *pair)
{
    return pair->calls[0] == REDUCE ? pair->calls[1] == STEP
                                    : pair->calls[0] == STEP && pair->calls[1] == REDUCE;
}

static const char *call_text(const struct pair *pair, int side)
{
    bool is_pass = pair->calls[side] == REDUCE && is_told_sooner(pair);

    return is_pass ? "unit.backward_begin" : call_names[pair->calls[side]];
}

/* So a rank may come to the step's result when the job has failed. */
static int32_t expected_status(const struct pair *pair, int32_t status)
{
    return is_told_sooner(pair) && status == HSDP_ERR_ABORTED ? status : HSDP_ERR_MISMATCH;
}

static void pair_rank(uint32_t rank, void *shared)
{
    const struct pair *pair = shared;
    struct party party;
    uint64_t start_ms;
    int32_t status;

    party_open(&party, rank, pair->n_ranks);
    start_ms = ranks_now_ms();
    status = call_make(&party, pair->calls[rank == 0 ? 0 : 1]);
    ck_assert_uint_le(ranks_now_ms() - start_ms, IN_TIME_MS);
    for (int side = 0; side < 2; side++) {
        host_must_refuse(&party.host, status, expected_status(pair, status), call_text(pair, side));
    }
    ck_assert_ptr_nonnull(strstr(party.host.err.message, "rank 0"));
    ck_assert_ptr_nonnull(strstr(party.host.err.message, "rank 1"));
    ck_assert_str_ne(party.host.err.operation, "");
    ck_assert_int_eq(call_make(&party, MODEL_CREATE), HSDP_ERR_ABORTED);
    party_leave(&party);
}

/* All pairs of different calls, by number; the lower one is rank 0's in every other. */
static struct pair pair_of(int number)
{
    struct pair pair = {.n_ranks = 2};
    int first = 0;

    for (int left = number; left >= N_CALLS - 1 - first; first++) {
        left -= N_CALLS - 1 - first;
        number = left;
    }
    pair.calls[number % 2] = (enum meeting_call)first;
    pair.calls[1 - number % 2] = (enum meeting_call)(first + 1 + number);
    return pair;
}

START_TEST(different_calls_of_two_ranks_are_a_mismatch_that_names_both)
{
    struct pair *pair = ranks_memory(sizeof(*pair));

    *pair = pair_of(_i);
    ranks_run(2, RANKS_LIMIT_MS, pair_rank, pair);
}
END_TEST

START_TEST(different_call_of_one_rank_of_four_is_a_mismatch)
{
    struct pair *pair = ranks_memory(sizeof(*pair));

    *pair = (struct pair){{CLOSE, SYNC}, 4};
    ranks_run(4, RANKS_LIMIT_MS, pair_rank, pair);
}
END_TEST

/* --------------------------------------------------------------------------- in a circle */

/* Rank 0 waits for 1, 1 for 2, 2 for 0, each in a group that the next one is not in yet. */
static void circle_rank(uint32_t rank, void *shared)
{
    static const char *const selectors[3] = {"dp[0,1]", "dp[1,2]", "dp[0,2]"};
    hsdp_group *groups[3] = {NULL, NULL, NULL};
    struct host host;

    (void)shared;
    host_join(&host, rank, "dp=3", "nccl_timeout_seconds=60");
    for (uint32_t i = 0; i < 3; i++) {
        struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;

        spec.selector = selectors[i];
        if (rank != (i + 2) % 3) {
            host_must(&host,
                      host.api->group->create(host.job, host.mesh, &spec, &groups[i], &host.err));
        }
    }
    host_must(&host, host.api->group->connect(host.job, &host.err));
    host_must_refuse(&host, barrier_wait(&host, groups[rank]), HSDP_ERR_MISMATCH,
                     "rank 1 is in barrier of group \"dp[1,2]\", sequence 1 and waits for rank 2, "
                     "rank 2 is in barrier of group \"dp[0,2]\", sequence 1 and waits for rank 0");
    for (uint32_t i = 0; i < 3; i++) {
        host.api->group->destroy(groups[i]);
    }
    host_leave(&host);
}

START_TEST(ranks_that_wait_in_a_circle_are_a_mismatch)
{
    ranks_run(3, RANKS_LIMIT_MS, circle_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------ what is none */

/* Rank 0 waits for 1 in a call while 1 waits for an open operation of 0, which goes on. */
static void crossing_rank(uint32_t rank, void *shared)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct party party;
    struct host *host = &party.host;

    (void)shared;
    party_open(&party, rank, 2);
    if (rank == 0) {
        spec.kind = HSDP_COLL_BARRIER;
        host_must(host, host->api->group->start(party.group, &spec, sizeof(spec), 1, NULL, NULL,
                                                &host->err));
        host_must(host, call_make(&party, SYNC));
    } else {
        ranks_sleep_ms(600);
        host_must(host, barrier_wait(host, party.group));
        ranks_sleep_ms(600);
        host_must(host, call_make(&party, SYNC));
    }
    host_must(host, host->api->model->edit_end(party.edited, NULL, &host->err));
    host_must(host, call_make(&party, CLOSE));
    party_leave(&party);
}

START_TEST(open_work_that_goes_on_inside_of_another_call_is_no_mismatch)
{
    ranks_run(2, RANKS_LIMIT_MS, crossing_rank, NULL);
}
END_TEST

/* A host that asks again and again may do something else in between. */
static void asking_rank(uint32_t rank, void *shared)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct party party;
    struct host *host = &party.host;
    uint64_t ticket = 0;

    (void)shared;
    party_open(&party, rank, 2);
    if (rank == 0) {
        host_must(host, call_make(&party, SYNC));
        host_must(host, barrier_wait(host, party.group));
    } else {
        spec.kind = HSDP_COLL_BARRIER;
        host_must(host, host->api->group->start(party.group, &spec, sizeof(spec), 1, NULL, &ticket,
                                                &host->err));
        ck_assert_int_eq(host->api->job->ticket_wait(host->job, ticket, 800, &host->err),
                         HSDP_PENDING);
        host_must(host, call_make(&party, SYNC));
        host_must(host, host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err));
    }
    party_leave(&party);
}

START_TEST(wait_that_ends_by_itself_is_no_mismatch)
{
    ranks_run(2, RANKS_LIMIT_MS, asking_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("standstill");
    TCase *calls = tcase_create("calls");
    TCase *others = tcase_create("others");

    tcase_set_timeout(calls, 60);
    tcase_add_loop_test(calls, different_calls_of_two_ranks_are_a_mismatch_that_names_both, 0,
                        N_CALLS * (N_CALLS - 1) / 2);
    suite_add_tcase(suite, calls);
    tcase_set_timeout(others, 60);
    tcase_add_test(others, different_call_of_one_rank_of_four_is_a_mismatch);
    tcase_add_test(others, ranks_that_wait_in_a_circle_are_a_mismatch);
    tcase_add_test(others, open_work_that_goes_on_inside_of_another_call_is_no_mismatch);
    tcase_add_test(others, wait_that_ends_by_itself_is_no_mismatch);
    suite_add_tcase(suite, others);
    return suite;
}
