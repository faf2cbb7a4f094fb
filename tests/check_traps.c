/* SPDX-License-Identifier: Apache-2.0 */
/* Traps: what went wrong without a word before it was refused or mended. */
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

static void two_open(struct host *host, uint32_t rank)
{
    host_open(host, rank, "dp=2", host_settings, "unit a: w[64]; unit b: x[5]");
    host_load(host, one);
}

/* ------------------------------------------------------------- tickets that nobody waited for */

/* Writes the number of the step into every parameter. */
static void number_publish(struct host *host, float number)
{
    struct hsdp_tensor view;

    host_step(host, 0.0);
    for (uint32_t unit = 0; unit < 2; unit++) {
        host_must(host, host->api->model->flat_view(host->model, unit, 0, HSDP_FLAT_MASTER, &view,
                                                    &host->err));
        for (int64_t e = 0; e < view.shape[0]; e++) {
            ((float *)view.base)[e] = number;
        }
    }
    host_step_end(host);
}

static void abandon_rank(uint32_t rank, void *shared)
{
    struct host host;
    uint64_t ticket;

    (void)shared;
    two_open(&host, rank);
    for (int step = 1; step <= 2000; step++) {
        number_publish(&host, (float)step);
        for (uint32_t unit = 0; unit < 2; unit++) {
            struct hsdp_tensor view = host_view(&host, unit, HSDP_VIEW_PARAM);

            host_must(&host, host.api->unit->unshard(host.model, unit, HSDP_USE_FORWARD, NULL,
                                                     &ticket, &host.err));
            if (step % 2 == 0) { /* else the ticket is abandoned */
                host_must(&host,
                          host.api->job->ticket_wait(host.job, ticket, UINT64_MAX, &host.err));
                host_expect_number(&host, "w", 0, host_read(&view, 0), step);
                host_expect_number(&host, "w", 4, host_read(&view, 4), step);
            }
            host_must(&host, host_release(&host, unit));
        }
    }
    host_close(&host);
}

START_TEST(unshard_behind_an_abandoned_ticket_shows_the_new_values)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, abandon_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- steps */

static void discard_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    host_step(&host, 0.0);
    host_must(&host, host_adamw(&host, 0.5, 0.0));
    host_must_refuse(&host, host.api->step->discard(host.model, NULL, &host.err), HSDP_ERR_STATE,
                     "step.discard: adamw.step has updated the parameters");
    host_step_end(&host);
    host_expect_param(&host, "w", 0.5);
    host_expect_param(&host, "x", 0.5);
    host_close(&host);
}

START_TEST(discard_behind_adamw_is_refused)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "param_dtype=bf16");
    ranks_run(2, RANKS_LIMIT_MS, discard_rank, NULL);
}
END_TEST

/* Masters apart from the parameters: what was written there stays unpublished. */
static void unpublished_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    host_step(&host, 0.0);
    host_descend(&host, 0.25, 1.0);
    host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    host_expect_param(&host, "w", 1.0);
    host_close(&host);
}

START_TEST(discard_publishes_no_value)
{
    host_settings_set(_i, "param_dtype=bf16");
    ranks_run(2, RANKS_LIMIT_MS, unpublished_rank, NULL);
}
END_TEST

static double infinite(struct host_at at)
{
    return at.rank == 1 && at.elem == 3 ? INFINITY : 1.0;
}

static void nonfinite_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, infinite);
    spec.error_if_nonfinite = 1;
    host_must(&host, host.api->step->begin(host.model, &spec, NULL, &host.err));
    host_must_refuse(&host, host_adamw(&host, 0.5, 0.0), HSDP_ERR_NONFINITE,
                     "adamw.step: the gradient norm of step 1 is inf");
    host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    host_expect_param(&host, "w", 1.0);
    host_close(&host);
}

START_TEST(adamw_of_a_refused_norm_leaves_the_parameters)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, nonfinite_rank, NULL);
}
END_TEST

static void weight_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;

    (void)shared;
    two_open(&host, rank);
    spec.weight = 3.0;
    host_must_refuse(&host, host.api->step->begin(host.model, &spec, NULL, &host.err),
                     HSDP_ERR_INVALID, "weight is 3, but has_weight is 0");
    spec.has_weight = 1;
    host_must_refuse(&host, host.api->step->begin(host.model, &spec, NULL, &host.err),
                     HSDP_ERR_INVALID, "class \"dense\" has mean and is divided by 2 already");
    host_close(&host);
}

START_TEST(weight_of_a_mean_is_refused)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, weight_rank, NULL);
}
END_TEST

/* A frozen base model is a mean that divides nothing. */
static void adapter_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings,
              "unit base: w[64]!; class adapter(dp) gradient_op=sum; unit a: x[4]");
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    spec.has_weight = 1;
    spec.weight = 1.0;
    host_must(&host, host.api->step->begin(host.model, &spec, NULL, &host.err));
    host_must(&host, host.api->step->result(host.model, &result, &host.err));
    ck_assert_double_eq(result.norm, 2.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(weight_beside_a_frozen_mean_counts)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, adapter_rank, NULL);
}
END_TEST

/* --------------------------------------------------------------------- gradients that come late */

/* Beyond what fp16 can hold: late gradients are summed in fp32, whatever the views are. */
static void wide_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_grad_add(&host, "w", 1e6, "fp32");
    host_grad_add(&host, "x", 0.3333f, "fp32");
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "w", 1e6);
    host_expect_grad(&host, "x", (double)0.3333f);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(grad_add_is_summed_in_fp32_whatever_the_views_are)
{
    char more[96];

    snprintf(more, sizeof(more), "gradient_dtype=fp16 accumulation_scope=%s", host_scopes[_i % 3]);
    host_settings_set(_i / 3, more);
    ranks_run(2, RANKS_LIMIT_MS, wide_rank, NULL);
}
END_TEST

/* Each rank hands over first what the other has not, and adds to it: nobody waits for anybody. */
static void crossed_rank(uint32_t rank, void *shared)
{
    uint64_t passes[2];
    struct host host;

    (void)shared;
    two_open(&host, rank);
    for (uint32_t unit = 0; unit < 2; unit++) {
        host_must(&host, host_backward_begin(&host, &unit, 1, HSDP_SCOPE_FULL, &passes[unit]));
        host_must(&host, host_unshard(&host, unit, HSDP_USE_FORWARD));
    }
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t unit = rank == 0 ? k : 1 - k;

        host.pass = passes[unit];
        host_grad_add(&host, unit == 0 ? "w" : "x", 1.0, "fp32");
        host_acquire(&host, unit);
        host_fill(&host, unit, 0, one);
        host_hand_over(&host, unit);
        host_grad_add(&host, unit == 0 ? "w" : "x", 2.0, "fp32");
    }
    for (uint32_t unit = 0; unit < 2; unit++) {
        host_must(&host, host_backward_end(&host, passes[unit]));
        host_must(&host, host_release(&host, unit));
    }
    host_pass_begin(&host, HSDP_SCOPE_FULL); /* takes up what came behind the hand-over */
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "w", 4.0);
    host_expect_grad(&host, "x", 4.0);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(grad_add_behind_a_hand_over_waits_for_nobody)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "accumulation_scope=full");
    ranks_run(2, RANKS_LIMIT_MS, crossed_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------- ranks that disagree */

static void closing_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_step(&host, 0.0);
    if (rank == 0) {
        host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    } else {
        host_step_end(&host);
    }
    if (host.api->step->begin(host.model, &spec, NULL, &host.err) == HSDP_OK) {
        host.api->step->result(host.model, &result, &host.err);
    }
    ck_assert_ptr_nonnull(strstr(host.err.message, "the number of steps discarded before is 1 on "
                                                   "rank 0, 0 on rank 1"));
    ck_assert_int_eq(host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
    host_leave(&host);
}

START_TEST(discard_where_a_peer_ends_is_a_mismatch)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, closing_rank, NULL);
}
END_TEST

/* Two models with the same plan, which the ranks edit in another order. */
static void edits_rank(uint32_t rank, void *shared)
{
    hsdp_model *second = NULL;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[64]");
    host_must(&host, host.api->model->create(host.job, host.plan, &second, &host.err));
    host_must_refuse(&host,
                     host.api->model->edit_begin(rank == 0 ? host.model : second, NULL, &host.err),
                     HSDP_ERR_MISMATCH, "rank 0 edits model 1 of the job, rank 1 model 2");
    host.api->model->destroy(second);
    host_leave(&host);
}

START_TEST(edit_of_another_model_than_the_peer_is_a_mismatch)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, edits_rank, NULL);
}
END_TEST

static void import_rank(uint32_t rank, void *shared)
{
    struct host host;
    float values[64] = {0};
    struct hsdp_tensor full;
    uint32_t param;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[64]; unit b: x[64]");
    param = rank == 0 ? host_param(&host, "w") : host_param(&host, "x");
    full = host_tensor(&host, param, values, "fp32");
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    host_must_refuse(&host,
                     host.api->model->import_param(host.model, param, HSDP_FLAT_MASTER, &full, 0,
                                                   NULL, &host.err),
                     HSDP_ERR_MISMATCH, "rank 0 is in model.import_param of \"w\"");
    host_leave(&host);
}

START_TEST(import_of_another_parameter_than_the_peer_is_a_mismatch)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, import_rank, NULL);
}
END_TEST

static void sync_rank(uint32_t rank, void *shared)
{
    const char *first = rank == 0 ? "fp32" : "bf16";
    const char *second = rank == 0 ? "bf16" : "fp32";
    struct host host;
    uint32_t state;

    (void)shared;
    two_open(&host, rank);
    host_must(&host, host.api->model->state_create(host.model, first, first, &state, &host.err));
    host_must(&host, host.api->model->state_create(host.model, second, second, &state, &host.err));
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    host_must_refuse(&host, host.api->model->sync(host.model, NULL, &host.err), HSDP_ERR_INVALID,
                     "states are \"fp32 fp32, bf16 bf16\" on rank 0, \"bf16 bf16, fp32 fp32\"");
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    host_close(&host);
}

START_TEST(sync_of_other_states_than_the_peers_is_refused)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, sync_rank, NULL);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* Sanitizers need more address space than any limit leaves. Rank 1 may not map what the model
 * needs; it says so, and so does rank 0. */
static void memory_rank(uint32_t rank, void *shared)
{
    struct rlimit limit = {.rlim_cur = (rlim_t)1 << 30, .rlim_max = (rlim_t)1 << 30};
    struct host host;

    (void)shared;
    host_join(&host, rank, "dp=2", host_settings);
    host_plan(&host, host_settings, "unit a: w[100000000]");
    if (rank == 1) {
        ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
    }
    host_must_refuse(&host, host.api->model->create(host.job, host.plan, &host.model, &host.err),
                     HSDP_ERR_NO_MEMORY, rank == 1 ? "cannot map" : "rank 1: shm: cannot map");
    host_close(&host);
}

START_TEST(model_that_one_rank_cannot_map_is_created_nowhere)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, memory_rank, NULL);
}
END_TEST

#endif

/* -------------------------------------------------------------------------- the wrong moment */

static void closed_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_must(&host, host.api->job->close(host.job, &host.err));
    host_must_refuse(&host, host_unshard(&host, 0, HSDP_USE_FORWARD), HSDP_ERR_STATE,
                     "unit.unshard: the job is closed");
    host_must_refuse(&host, host.api->step->begin(host.model, &spec, NULL, &host.err),
                     HSDP_ERR_STATE, "step.begin: the job is closed");
    host_must_refuse(&host, host.api->model->edit_begin(host.model, NULL, &host.err),
                     HSDP_ERR_STATE, "model.edit_begin: the job is closed");
    host_must_refuse(&host, host.api->job->phase_push(host.job, "save", 1000, &host.err),
                     HSDP_ERR_STATE, "job.phase_push: the job is closed");
    host_leave(&host);
}

START_TEST(calls_on_a_closed_job_are_refused)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, closed_rank, NULL);
}
END_TEST

static void stream_rank(uint32_t rank, void *shared)
{
    struct host host;
    int stream;

    (void)shared;
    two_open(&host, rank);
    host_must_refuse(
        &host, host.api->unit->unshard(host.model, 0, HSDP_USE_FORWARD, &stream, NULL, &host.err),
        HSDP_ERR_INVALID, "the only stream of a CPU is NULL");
    host_must_refuse(&host, host_release(&host, 0), HSDP_ERR_STATE, "is not unsharded");
    host_close(&host);
}

START_TEST(stream_of_no_device_is_refused_and_not_counted_as_a_use)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, stream_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("traps");
    TCase *tcase = tcase_create("traps");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, unshard_behind_an_abandoned_ticket_shows_the_new_values, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, discard_behind_adamw_is_refused, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, discard_publishes_no_value, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, adamw_of_a_refused_norm_leaves_the_parameters, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, weight_of_a_mean_is_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, weight_beside_a_frozen_mean_counts, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, grad_add_is_summed_in_fp32_whatever_the_views_are, 0,
                        3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, grad_add_behind_a_hand_over_waits_for_nobody, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, discard_where_a_peer_ends_is_a_mismatch, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, edit_of_another_model_than_the_peer_is_a_mismatch, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, import_of_another_parameter_than_the_peer_is_a_mismatch, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sync_of_other_states_than_the_peers_is_refused, 0,
                        HOST_N_STRATEGIES);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_loop_test(tcase, model_that_one_rank_cannot_map_is_created_nowhere, 0,
                        HOST_N_STRATEGIES);
#endif
    tcase_add_loop_test(tcase, calls_on_a_closed_job_are_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, stream_of_no_device_is_refused_and_not_counted_as_a_use, 0,
                        HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
