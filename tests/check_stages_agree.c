/* SPDX-License-Identifier: Apache-2.0 */
/* Ties across pipeline stages: what the holders have to agree on, and one that stays away. */
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

static const struct {
    const char *second; /* the units of the second stage; the first has "unit a: x[6,2]@1~pp" */
    const char *sentence;
} bad_stages[] = {
    {"unit b: x[4,3]@1~pp", "tied parameter \"x\": rank 0 has \"shape=[6,2]\", rank 1 has "
                            "\"shape=[4,3]\""},
    {"unit b: x[6,2]~pp", "rank 0 has \"hyper_group=1\", rank 1 has \"hyper_group=0\""},
    {"unit b: x[6,2]!~pp", "rank 0 has \"hyper_group=1\", rank 1 has \"hyper_group=0\""},
    {"unit b: w[5]", "rank 0 holds \"x\" tied with rank 1, which has no tied parameter of that "
                     "name"},
    {"unit b: x[6,2]@1", "rank 0 holds \"x\" tied with rank 1, which has no tied parameter"},
    {"class dense reduce_dtype=bf16; unit b: x[6,2]@1~pp",
     "rank 0 has \"reduce_dtype=fp32\", rank 1 has \"reduce_dtype=bf16\""},
    {"class dense gradient_divisor=3; unit b: x[6,2]@1~pp",
     "rank 0 has \"gradient_divisor=1\", rank 1 has \"gradient_divisor=3\""},
    {"class dense sharding_strategy=ddp; unit b: x[6,2]@1~pp",
     "rank 0 has \"param_dims=dp\", rank 1 has \"param_dims=\""},
    {"unit b: y[6,2]@1~pp", "rank 0 holds \"x\" tied with rank 1, which has no tied parameter"},
};

static void mismatch_rank(uint32_t rank, void *shared)
{
    int i = *(int *)shared;
    struct host host;

    host_join(&host, rank, "pp=2,dp=1", "");
    host_plan(&host, "", rank == 0 ? "unit a: x[6,2]@1~pp" : bad_stages[i].second);
    host_must_refuse(&host, host.api->model->create(host.job, host.plan, &host.model, &host.err),
                     HSDP_ERR_MISMATCH, bad_stages[i].sentence);
    ck_assert_str_eq(host.err.operation, "model.create");
    host_leave(&host);
}

START_TEST(create_with_copies_that_differ_is_refused)
{
    ranks_run(2, RANKS_LIMIT_MS, mismatch_rank, &_i);
}
END_TEST

/* The third stage is a holder for the first alone. */
static void selector_rank(uint32_t rank, void *shared)
{
    static const char *const units[] = {"unit a: x[9]~pp", "unit b: x[9]~pp[0,1]",
                                        "unit c: x[9]~pp"};
    struct host host;

    (void)shared;
    host_join(&host, rank, "pp=3,dp=1", "");
    host_plan(&host, "", units[rank]);
    host_must_refuse(&host, host.api->model->create(host.job, host.plan, &host.model, &host.err),
                     HSDP_ERR_MISMATCH,
                     "rank 0 has \"tied_over=pp\", rank 1 has \"tied_over=pp[0,1]\"");
    host_leave(&host);
}

START_TEST(create_with_other_holders_is_refused)
{
    ranks_run(3, RANKS_LIMIT_MS, selector_rank, NULL);
}
END_TEST

/* The last rank does not come to the step: who waits for its elements says so. */
struct meeting {
    _Atomic uint32_t n_told;
    const char *dims;
    uint32_t n_ranks;
    const char *sentence;
};

static void missing_rank(uint32_t rank, void *shared)
{
    struct meeting *meeting = shared;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;
    int32_t status;

    host_open(&host, rank, meeting->dims, host_settings,
              rank < meeting->n_ranks / 2 ? "unit a: x[9]~pp[0,1]" : "unit b: w[40] x[9]~pp[0,1]");
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    if (rank != meeting->n_ranks - 1) {
        status = host.api->step->begin(host.model, &spec, NULL, &host.err);
        if (status == HSDP_OK) { /* none of its elements are there */
            status = host.api->step->result(host.model, &result, &host.err);
        }
        ck_assert_msg(status == HSDP_ERR_TIMEOUT || status == HSDP_ERR_ABORTED, "%d: %s", status,
                      host.err.message);
        ck_assert_msg(strstr(host.err.message, meeting->sentence) != NULL, "\"%s\"",
                      host.err.message);
    }
    ranks_meet(&meeting->n_told, meeting->n_ranks);
    host_leave(&host);
}

START_TEST(step_without_a_holder_times_out_and_names_it)
{
    struct meeting *meeting = ranks_memory(sizeof(*meeting));
    bool is_alone = _i >= HOST_N_STRATEGIES;

    meeting->dims = is_alone ? "pp=2,dp=1" : "pp=2,dp=2";
    meeting->n_ranks = is_alone ? 2 : 4;
    meeting->sentence =
        is_alone ? "step of group \"pp\", unit \"a\", sequence 1: timeout after"
                 : " 3"; /* of "rank 3", or of "ranks 1, 3" where that one waits as well */
    host_settings_set(_i % HOST_N_STRATEGIES, "nccl_timeout_seconds=3");
    ranks_run(meeting->n_ranks, RANKS_LIMIT_MS, missing_rank, meeting);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("stages_agree");
    TCase *tcase = tcase_create("stages_agree");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, create_with_copies_that_differ_is_refused, 0,
                        (int)(sizeof(bad_stages) / sizeof(bad_stages[0])));
    tcase_add_test(tcase, create_with_other_holders_is_refused);
    tcase_add_loop_test(tcase, step_without_a_holder_times_out_and_names_it, 0, HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
