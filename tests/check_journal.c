/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that unshard or reduce in different orders: told before a deadline, with both sides. */
#include <check.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* A deadline is far away: who is in time has not waited for one. */
#define IN_TIME_MS 15000u

static const char three_units[] = "unit a: w[5]; unit b: x[7]; unit c: y[3]";

static void three_open(struct host *host, uint32_t rank)
{
    host_open(host, rank, "dp=3", host_settings, three_units);
}

static void settings_choose(int strategy)
{
    host_settings_set(strategy, "nccl_timeout_seconds=60");
}

/* This rank's call has failed as the job has, or has come to a job that had failed. */
static void mismatch_expect(struct host *host, int32_t status, const char *text)
{
    ck_assert_msg(status == HSDP_ERR_MISMATCH || status == HSDP_ERR_ABORTED, "%d: %s", status,
                  status == HSDP_OK ? "" : host->err.message);
    ck_assert_msg(strstr(host->err.message, text) != NULL, "\"%s\" does not say \"%s\"",
                  host->err.message, text);
    ck_assert_int_eq(host->api->job->status(host->job, &host->err), HSDP_ERR_MISMATCH);
    ck_assert_str_ne(host->err.operation, "");
    ck_assert_str_ne(host->err.group, "");
    ck_assert_uint_ne(host->err.sequence, 0);
}

static int32_t step_try(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    int32_t status = host->api->step->begin(host->model, &spec, NULL, &host->err);

    return status != HSDP_OK ? status : host->api->step->result(host->model, &result, &host->err);
}

/* A pass in which nothing is handed over, and the wait for its reductions. */
static int32_t pass_try(struct host *host, const char *order, int32_t scope)
{
    uint32_t units[3];
    uint64_t n_units = 0;
    uint64_t ticket = 0;
    int32_t status;

    for (const char *name = order; *name != '\0'; name++) {
        units[n_units++] = (uint32_t)(*name - 'a');
    }
    status = host_backward_begin(host, units, n_units, scope, &host->pass);
    if (status == HSDP_OK) {
        status = host->api->unit->backward_end(host->model, host->pass, NULL, &ticket, &host->err);
    }
    return status != HSDP_OK
               ? status
               : host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err);
}

/* ------------------------------------------------------------------------------------ passes */

/* What rank 2 declares instead of c, b, a with scope full, and what all say. */
struct other_pass {
    const char *order;
    int32_t scope;
    const char *place;
    const char *sides;
};

static const struct other_pass other_passes[] = {
    {"bca", HSDP_SCOPE_FULL, "position 1", "unit \"c\" on rank 0, unit \"b\" on rank 2"},
    {"cab", HSDP_SCOPE_FULL, "position 2", "unit \"b\" on rank 0, unit \"a\" on rank 2"},
    {"ca", HSDP_SCOPE_FULL, "position 2", "unit \"b\" on rank 0, unit \"a\" on rank 2"},
    {"cb", HSDP_SCOPE_FULL, "position 3", "unit \"a\" on rank 0, no more units on rank 2"},
    {"cba", HSDP_SCOPE_NONE, "pass 2 of group \"dp",
     "a pass of scope full on rank 0, a pass of scope none on rank 2"},
};

struct pass_test {
    const struct other_pass *other;
    _Atomic uint32_t n_there;
};

static void pass_rank(uint32_t rank, void *shared)
{
    struct pass_test *test = shared;
    const struct other_pass *other = test->other;
    uint64_t start_ms;
    struct host host;
    int32_t status;

    three_open(&host, rank);
    host_must(&host, pass_try(&host, "cba", HSDP_SCOPE_FULL));
    ranks_meet(&test->n_there, 3);
    start_ms = ranks_now_ms();
    status = pass_try(&host, rank == 2 ? other->order : "cba",
                      rank == 2 ? other->scope : HSDP_SCOPE_FULL);
    while (status == HSDP_OK) { /* a pass of scope none waits for nobody */
        ranks_sleep_ms(1);
        status = host.api->job->status(host.job, &host.err);
    }
    ck_assert_uint_le(ranks_now_ms() - start_ms, IN_TIME_MS);
    ck_assert_msg(strstr(host.err.message, "pass 2 of group \"dp") != NULL, "%s", host.err.message);
    ck_assert_msg(strstr(host.err.message, other->place) != NULL, "%s", host.err.message);
    /* another two of the three may be compared first */
    if (strstr(host.err.message, "rank 0") == NULL) {
        ck_assert_msg(strstr(host.err.message, "rank 1") != NULL, "%s", host.err.message);
        mismatch_expect(&host, status, "on rank 2");
    } else {
        mismatch_expect(&host, status, other->sides);
    }
    host_leave(&host);
}

START_TEST(pass_that_differs_on_one_rank_is_a_mismatch)
{
    struct pass_test *test = ranks_memory(sizeof(*test));

    test->other = &other_passes[_i % N_OF(other_passes)];
    settings_choose(_i / N_OF(other_passes));
    ranks_run(3, RANKS_LIMIT_MS, pass_rank, test);
}
END_TEST

/* Rank 1 has one pass more before the step. */
static void surplus_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_there = shared;
    uint64_t start_ms;
    struct host host;
    int32_t status = HSDP_OK;

    host_open(&host, rank, "dp=2", host_settings, three_units);
    host_must(&host, pass_try(&host, "cba", HSDP_SCOPE_FULL));
    ranks_meet(n_there, 2);
    start_ms = ranks_now_ms();
    if (rank == 1) {
        status = pass_try(&host, "b", HSDP_SCOPE_FULL);
    }
    if (status == HSDP_OK) {
        status = step_try(&host);
    }
    ck_assert_uint_le(ranks_now_ms() - start_ms, IN_TIME_MS);
    mismatch_expect(&host, status, "step.begin on rank 0, a pass of scope full on rank 1");
    host_leave(&host);
}

START_TEST(pass_that_only_one_rank_opens_is_a_mismatch)
{
    settings_choose(_i);
    ranks_run(2, RANKS_LIMIT_MS, surplus_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

/* The experts of half of the ranks are in no pass, and unsharded by none of them. */
static void experts_rank(uint32_t rank, void *shared)
{
    static const uint32_t units[] = {1, 0};
    bool has_expert = rank % 2 == 0;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2,ep=2", host_settings,
              "unit a: w[5]; class expert(dp); unit e: x[7]");
    for (int window = 0; window < 2; window++) {
        if (has_expert) {
            host_attend(&host, 1);
        }
        host_must(&host, host_backward_begin(&host, has_expert ? units : &units[1],
                                             has_expert ? 2 : 1, HSDP_SCOPE_FULL, &host.pass));
        host_pass_end(&host);
        host_step(&host, 0.0);
        host_step_end(&host);
    }
    host_close(&host);
}

START_TEST(passes_of_other_reduction_groups_may_differ)
{
    settings_choose(_i);
    ranks_run(4, RANKS_LIMIT_MS, experts_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------------------- unshards */

static void units_attend(struct host *host, const char *order)
{
    for (const char *name = order; *name != '\0'; name++) {
        host_attend(host, (uint32_t)(*name - 'a'));
    }
}

struct other_unshards {
    const char *order; /* of rank 1; rank 0 has a, b, c */
    const char *text;
};

static const struct other_unshards other_unshards[] = {
    {"acb", "unit \"b\" on rank 0, unit \"c\" on rank 1"},
    {"aab", "unit \"b\" on rank 0, unit \"a\" on rank 1"},
    {"ab", "unit \"c\" on rank 0, step.begin on rank 1"},
    {"abca", "step.begin on rank 0, unit \"a\" on rank 1"},
    {"", "unit \"a\" on rank 0, step.begin on rank 1"},
};

/* Whether parameters are sharded at all: else an unshard is no collective. */
static bool is_sharded(int strategy)
{
    const char *name = host_strategies[strategy];

    return strcmp(name, "fsdp") == 0 || strcmp(name, "hsdp") == 0 || strcmp(name, "hfsdp") == 0;
}

static void unshards_rank(uint32_t rank, void *shared)
{
    const struct other_unshards *other = *(const struct other_unshards **)shared;
    uint64_t start_ms = ranks_now_ms();
    struct host host;

    host_open(&host, rank, "dp=2", host_settings, three_units);
    units_attend(&host, rank == 1 ? other->order : "abc");
    mismatch_expect(&host, step_try(&host), other->text);
    ck_assert_uint_le(ranks_now_ms() - start_ms, IN_TIME_MS);
    ck_assert_int_eq(host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
    ck_assert_str_eq(host.err.operation, "unit.unshard");
    host_leave(&host);
}

START_TEST(unshards_in_another_order_are_a_mismatch_of_the_step)
{
    const struct other_unshards **other = ranks_memory(sizeof(*other));
    int strategy = _i / N_OF(other_unshards);

    *other = &other_unshards[_i % N_OF(other_unshards)];
    snprintf(host_settings, sizeof(host_settings),
             "nccl_timeout_seconds=60 shard_size=2 sharding_strategy=%s",
             host_strategies[strategy]);
    if (is_sharded(strategy)) {
        ranks_run(2, RANKS_LIMIT_MS, unshards_rank, other);
    }
}
END_TEST

/* Before a pass they are compared, too: the ranks do not get as far as the step. */
static void unshards_pass_rank(uint32_t rank, void *shared)
{
    _Atomic uint32_t *n_there = shared;
    struct host host;
    int32_t status;

    host_open(&host, rank, "dp=2", "nccl_timeout_seconds=60", three_units);
    units_attend(&host, rank == 1 ? "acb" : "abc");
    ranks_meet(n_there, 2);
    status = pass_try(&host, "cba", HSDP_SCOPE_NONE);
    mismatch_expect(&host, status, "unit.unshard: number 2 in group \"dp");
    host_leave(&host);
}

START_TEST(unshards_in_another_order_are_a_mismatch_of_the_pass)
{
    ranks_run(2, RANKS_LIMIT_MS, unshards_pass_rank, ranks_memory(sizeof(uint32_t)));
}
END_TEST

/* More than are kept: the hash of all of them still tells. */
static void forgotten_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", "nccl_timeout_seconds=60", three_units);
    units_attend(&host, rank == 1 ? "ba" : "ab");
    for (int i = 0; i < 1000; i++) {
        units_attend(&host, "abc");
    }
    mismatch_expect(&host, step_try(&host), "too long ago to say which");
    host_leave(&host);
}

START_TEST(unshards_that_differed_long_ago_are_a_mismatch)
{
    ranks_run(2, RANKS_LIMIT_MS, forgotten_rank, NULL);
}
END_TEST

/* Only what makes a unit whole is a collective: a further use of it is this rank's business. */
static void overlapping_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, three_units);
    for (int window = 0; window < 3; window++) {
        host_must(&host, host_unshard(&host, 0, HSDP_USE_FORWARD));
        if (rank == 1) {
            host_attend(&host, 0);
        }
        host_must(&host, host_release(&host, 0));
        host_step(&host, 0.0);
        host_step_end(&host);
    }
    host_close(&host);
}

START_TEST(further_uses_of_a_unit_may_differ)
{
    settings_choose(_i);
    ranks_run(2, RANKS_LIMIT_MS, overlapping_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- steps */

static double ones(struct host_at at)
{
    (void)at;
    return 1.0;
}

/* The last step of a run: no next one would tell. What the ranks hold does not fit together. */
static void torn_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    three_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, ones);
    step_try(&host);
    if (rank == 2) {
        host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    } else {
        host_step_end(&host);
    }
    for (uint32_t unit = 0; unit < 3; unit++) { /* the others may be behind at first */
        int32_t status = host_unshard(&host, unit, HSDP_USE_FORWARD);

        if (status != HSDP_OK) {
            mismatch_expect(&host, status, "rank 2 has discarded the step that rank");
            host_leave(&host);
            return;
        }
    }
    ck_abort_msg("what was not published has been unsharded");
}

START_TEST(end_of_a_step_that_a_peer_discards_mismatches_at_the_next_unshard)
{
    static const int sharded[] = {1, 2, 3}; /* zero1, zero2, fsdp: what is read is of all */

    settings_choose(sharded[_i]);
    ranks_run(3, RANKS_LIMIT_MS, torn_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("journal");
    TCase *tcase = tcase_create("journal");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, pass_that_differs_on_one_rank_is_a_mismatch, 0,
                        N_OF(other_passes) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, pass_that_only_one_rank_opens_is_a_mismatch, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, passes_of_other_reduction_groups_may_differ, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, unshards_in_another_order_are_a_mismatch_of_the_step, 0,
                        N_OF(other_unshards) * HOST_N_STRATEGIES);
    tcase_add_test(tcase, unshards_in_another_order_are_a_mismatch_of_the_pass);
    tcase_add_test(tcase, unshards_that_differed_long_ago_are_a_mismatch);
    tcase_add_loop_test(tcase, end_of_a_step_that_a_peer_discards_mismatches_at_the_next_unshard, 0,
                        3);
    tcase_add_loop_test(tcase, further_uses_of_a_unit_may_differ, 0, HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
