/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: what is refused, norms, clipping, weights, skipping, and the optimizer of the plugin. */
#include <check.h>
#include <math.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* Means of 3 and 4 in a unit's two elements. */
static double three_four(struct host_at at)
{
    return (at.elem == 0 ? 3.0 : 4.0) + (at.rank % 2 == 0 ? -1.0 : 1.0);
}

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

static int32_t begin(struct host *host, const struct hsdp_step_spec *spec)
{
    return host->api->step->begin(host->model, spec, NULL, &host->err);
}

static int32_t discard(struct host *host)
{
    return host->api->step->discard(host->model, NULL, &host->err);
}

static struct hsdp_step_info result_of(struct host *host)
{
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;

    host_must(host, host->api->step->result(host->model, &result, &host->err));
    return result;
}

static void two_open(struct host *host, uint32_t rank)
{
    host_open(host, rank, "dp=2", host_settings, "unit a: w[2]; unit b: x[2] k[3]!");
}

/* A full window and a step, as if nothing had been refused. */
static void window_finish(struct host *host)
{
    double n_added = strstr(host_settings, "gradient_op=sum") != NULL ? 2.0 : 1.0;

    host_backward(host, HSDP_SCOPE_FULL, 0, three_four);
    ck_assert_double_eq(host_step(host, 0.0).norm, n_added * sqrt(50.0));
    host_step_end(host);
    host_close(host);
}

/* ----------------------------------------------------------------------------------- begin */

static void numbers_rank(uint32_t rank, void *shared)
{
    static const struct {
        double max_norm, norm_p, gradient_scale, weight;
        uint32_t has_weight, error_if_nonfinite;
        int32_t status;
        const char *text;
    } rows[] = {
        {-1.0, 0, 0, 0, 0, 0, HSDP_ERR_INVALID, "max_norm -1"},
        {NAN, 0, 0, 0, 0, 0, HSDP_ERR_INVALID, "max_norm nan"},
        {INFINITY, 0, 0, 0, 0, 0, HSDP_ERR_INVALID, "max_norm inf"},
        {1.0, 8.001, 0, 0, 0, 0, HSDP_ERR_INVALID, "norm_p 8.001"},
        {1.0, 0.5, 0, 0, 0, 0, HSDP_ERR_INVALID, "norm_p 0.5"},
        {1.0, 9.0, 0, 0, 0, 0, HSDP_ERR_INVALID, "norm_p 9"},
        {1.0, -INFINITY, 0, 0, 0, 0, HSDP_ERR_INVALID, "norm_p -inf"},
        {1.0, NAN, 0, 0, 0, 0, HSDP_ERR_INVALID, "norm_p nan"},
        {1.0, 0, -0.5, 0, 0, 0, HSDP_ERR_INVALID, "gradient_scale -0.5"},
        {1.0, 0, INFINITY, 0, 0, 0, HSDP_ERR_INVALID, "gradient_scale inf"},
        {1.0, 0, 0, 4.0, 0, 0, HSDP_ERR_INVALID, "has_weight is 0"},
        {1.0, 0, 0, 4.0, 1, 0, HSDP_ERR_INVALID, "gradient_op = sum"},
        {1.0, 0, 0, -1.0, 1, 0, HSDP_ERR_INVALID, "weight -1"},
        {1.0, 0, 0, NAN, 1, 0, HSDP_ERR_INVALID, "weight nan"},
        {1.0, 0, 0, 0, 2, 0, HSDP_ERR_INVALID, "has_weight"},
        {1.0, 0, 0, 0, 0, 2, HSDP_ERR_INVALID, "error_if_nonfinite"},
    };
    struct host host;

    (void)shared;
    two_open(&host, rank);
    for (int i = 0; i < N_OF(rows); i++) {
        struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

        spec.max_norm = rows[i].max_norm;
        spec.norm_p = rows[i].norm_p;
        spec.gradient_scale = rows[i].gradient_scale;
        spec.weight = rows[i].weight;
        spec.has_weight = rows[i].has_weight;
        spec.error_if_nonfinite = rows[i].error_if_nonfinite;
        host_must_refuse(&host, begin(&host, &spec), rows[i].status, rows[i].text);
    }
    window_finish(&host);
}

START_TEST(begin_with_impossible_numbers_is_refused)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, numbers_rank, NULL);
}
END_TEST

static void busy_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_must(&host, host_unshard(&host, 1, HSDP_USE_FORWARD));
    host_must_refuse(&host, begin(&host, &spec), HSDP_ERR_STATE, "unit \"b\" is still unsharded");
    ck_assert_str_eq(host.err.unit, "b");
    host_must(&host, host_release(&host, 1));
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_must_refuse(&host, begin(&host, &spec), HSDP_ERR_STATE, "in an open backward pass");
    host_pass_end(&host);
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    host_must_refuse(&host, begin(&host, &spec), HSDP_ERR_STATE, "an edit is open");
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    window_finish(&host);
}

START_TEST(begin_while_units_are_in_use_names_one)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, busy_rank, NULL);
}
END_TEST

/* Every strategy asks for a last pass of scope full, also where inner has reduced everything; and
 * so does every rank, whether it has contributed or not. */
static void unclosed_rank(uint32_t rank, void *scope)
{
    static const uint32_t second[] = {1};
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;

    two_open(&host, rank);
    host_must(&host, host.api->unit->backward_begin(host.model, second, 1, *(int32_t *)scope,
                                                    &host.pass, &host.err));
    if (rank == 0) {
        host_acquire(&host, 1);
        host_fill(&host, 1, 0, three_four);
        host_hand_over(&host, 1);
    } else {
        host_attend(&host, 1);
    }
    host_pass_end(&host);
    host_must_refuse(&host, begin(&host, &spec), HSDP_ERR_STATE, "unit \"b\"");
    ck_assert_str_eq(host.err.unit, "b");
    host_backward(&host, HSDP_SCOPE_FULL, 0, three_four);
    host_step(&host, 0.0);
    ck_assert_float_eq(host_export(&host, 0, HSDP_FLAT_GRAD)[0], 3.0f);
    ck_assert_float_eq(host_export(&host, 1, HSDP_FLAT_GRAD)[0], 4.0f);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(begin_with_an_unclosed_window_names_the_unit)
{
    int32_t scope = _i % 2;

    host_settings_set(_i / 2, scope == 0 ? "" : "accumulation_scope=inner");
    ranks_run(2, RANKS_LIMIT_MS, unclosed_rank, &scope);
}
END_TEST

/* ------------------------------------------------------------------------ in and out of a step */

static void within_rank(uint32_t rank, void *shared)
{
    static const uint32_t units[] = {1};
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    float values[2] = {0};
    struct hsdp_tensor grad;
    struct host host;
    uint64_t pass;

    (void)shared;
    two_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, three_four);
    host_must(&host, begin(&host, &spec));
    host_must(&host, host.api->model->info(host.model, &info, &host.err));
    ck_assert_uint_eq(info.is_stepping, 1);
    host_must_refuse(&host, begin(&host, &spec), HSDP_ERR_STATE, "a step is open");
    host_must_refuse(&host, host_unshard(&host, 0, HSDP_USE_FORWARD), HSDP_ERR_STATE,
                     "a step is open");
    host_must_refuse(
        &host,
        host.api->unit->backward_begin(host.model, units, 1, HSDP_SCOPE_FULL, &pass, &host.err),
        HSDP_ERR_STATE, "a step is open");
    host_must_refuse(&host, host.api->model->edit_begin(host.model, NULL, &host.err),
                     HSDP_ERR_STATE, "a step is open");
    grad = host_tensor(&host, 0, values, "fp32");
    host_must_refuse(&host, host.api->unit->grad_add(host.model, 0, &grad, NULL, &host.err),
                     HSDP_ERR_STATE, "a step is open");
    ck_assert_double_eq(result_of(&host).norm, sqrt(50.0));
    ck_assert_double_eq(result_of(&host).norm, sqrt(50.0)); /* again */
    host_must(&host, host_adamw(&host, 0.1, 0.0));
    host_must_refuse(&host, host_adamw(&host, 0.1, 0.0), HSDP_ERR_STATE, "twice");
    host_step_end(&host);
    host_must(&host, host.api->model->info(host.model, &info, &host.err));
    ck_assert_uint_eq(info.is_stepping, 0);
    ck_assert_uint_eq(info.step, 1);
    window_finish(&host);
}

START_TEST(calls_that_have_no_place_in_a_step_are_refused)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, within_rank, NULL);
}
END_TEST

static void without_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_must_refuse(&host, host.api->step->result(host.model, &result, &host.err), HSDP_ERR_STATE,
                     "step.result: no step is open");
    host_must_refuse(&host, host.api->step->end(host.model, NULL, NULL, &host.err), HSDP_ERR_STATE,
                     "step.end: no step is open");
    host_must_refuse(&host, discard(&host), HSDP_ERR_STATE, "step.discard: no step is open");
    host_must_refuse(&host, host_adamw(&host, 0.1, 0.1), HSDP_ERR_STATE,
                     "adamw.step: no step is open");
    window_finish(&host);
}

START_TEST(calls_of_a_step_without_a_step_are_refused)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, without_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- norms */

struct norm_case {
    double p, scale, max_norm, norm, clip;
};

/* Gradients (3, 4) in each of two units: (14, sqrt 50, 4). */
static const struct norm_case norm_cases[] = {
    {0.0, 0.0, 0.0, 7.0710678118654755, 1.0},
    {2.0, 1.0, 100.0, 7.0710678118654755, 1.0},
    {1.0, 1.0, 7.0, 14.0, 7.0 / (14.0 + 1e-6)},
    {INFINITY, 1.0, 1.0, 4.0, 1.0 / (4.0 + 1e-6)},
    {2.0, 0.5, 1.0, 3.5355339059327378, 1.0 / (3.5355339059327378 + 1e-6)},
    {1.0, 0.25, 3.5, 3.5, 3.5 / (3.5 + 1e-6)},
    {INFINITY, 8.0, 64.0, 32.0, 1.0},
};

static void norm_rank(uint32_t rank, void *shared)
{
    const struct norm_case *row = shared;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result;
    struct hsdp_tensor view;
    struct host host;
    double scale = row->scale == 0.0 ? 1.0 : row->scale;

    host_open(&host, rank, "dp=4", host_settings, "unit a: w[2]; unit b: x[2] k[3]!");
    host_backward(&host, HSDP_SCOPE_FULL, 0, three_four);
    spec.norm_p = row->p;
    spec.max_norm = row->max_norm;
    spec.gradient_scale = row->scale;
    host_must(&host, begin(&host, &spec));
    result = result_of(&host);
    ck_assert_double_eq(result.norm, row->norm);
    ck_assert_double_eq(result.clip, row->clip);
    ck_assert_double_eq(result.factor, scale * row->clip);
    ck_assert_uint_eq(result.is_nonfinite, 0);
    ck_assert_uint_eq(result.step, 1);
    host_must(&host, host.api->step->factor_view(host.model, &view, &host.err));
    ck_assert_double_eq(host_read(&view, 0), (double)(float)result.norm);
    ck_assert_double_eq(host_read(&view, 1), (double)(float)result.factor);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(norm_and_clip_are_what_the_gradients_say)
{
    host_settings_set(_i % HOST_N_STRATEGIES, "shard_size=2");
    ranks_run(4, RANKS_LIMIT_MS, norm_rank, (void *)(uintptr_t)&norm_cases[_i / HOST_N_STRATEGIES]);
}
END_TEST

/* ----------------------------------------------------------------------------------- weights */

/* Data ranks are two, whatever stands inside or outside of dp. */
static const char *weight_dims;

static uint32_t data_rank(uint32_t rank)
{
    return strcmp(weight_dims, "pp=2,dp=2") == 0 ? rank % 2 : rank / 2;
}

static double tokens_of(struct host_at at)
{
    return 10.0 + 20.0 * data_rank(at.rank);
}

/* 10 and 30 tokens: sums of 40, over 40 tokens. */
static void weight_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result;
    struct host host;

    (void)shared;
    host_open(&host, rank, weight_dims, host_settings, "unit a: w[8]");
    host_load(&host, one);
    host_backward(&host, HSDP_SCOPE_FULL, 0, tokens_of);
    spec.has_weight = 1;
    spec.weight = 10.0 + 20.0 * data_rank(rank);
    host_must(&host, begin(&host, &spec));
    result = result_of(&host);
    ck_assert_double_eq(result.weight, 40.0);
    ck_assert_double_eq(result.factor, 1.0 / 40.0);
    ck_assert_double_eq_tol(result.norm, 4.0, 1e-15);
    host_descend(&host, 0.5, result.factor);
    host_step_end(&host);
    host_expect_param(&host, "w", 0.5);
    host_close(&host);
}

START_TEST(weights_are_summed_over_data_ranks_once)
{
    weight_dims = _i % 2 == 0 ? "pp=2,dp=2" : "dp=2,tp=2";
    host_settings_set(_i / 2, "gradient_op=sum");
    ranks_run(4, RANKS_LIMIT_MS, weight_rank, NULL);
}
END_TEST

static void weight_zero_rank(uint32_t rank, void *shared)
{
    bool is_one_sided = *(bool *)shared;
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result;
    struct host host;

    two_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, three_four);
    spec.has_weight = 1;
    spec.max_norm = 1.0;
    spec.weight = is_one_sided && rank == 1 ? 4.0 : 0.0;
    host_must(&host, begin(&host, &spec));
    result = result_of(&host);
    if (is_one_sided) {
        ck_assert_double_eq(result.weight, 4.0);
        ck_assert_uint_eq(result.is_nonfinite, 0);
    } else {
        ck_assert(isnan(result.norm));
        ck_assert_uint_eq(result.is_nonfinite, 1);
        ck_assert_double_eq(result.clip, 1.0);
    }
    host_must(&host, discard(&host));
    window_finish(&host);
}

START_TEST(weights_that_sum_to_zero_make_the_norm_nan)
{
    bool is_one_sided = _i % 2 != 0;

    host_settings_set(_i / 2, "gradient_op=sum");
    ranks_run(2, RANKS_LIMIT_MS, weight_zero_rank, &is_one_sided);
}
END_TEST

/* --------------------------------------------------------------------------------- agreement */

static const char *const mismatches[5] = {
    "step.begin: step 1: max_norm is 1 on rank 0, 2 on rank 1",
    "step.begin: step 1: norm_p is 2 on rank 0, 1 on rank 1",
    "step.begin: step 1: gradient_scale is 1 on rank 0, 0.5 on rank 1",
    "step.begin: step 1: has_weight is 0 on rank 0, 1 on rank 1",
    "step.begin: step 1: error_if_nonfinite is 0 on rank 0, 1 on rank 1",
};

static void mismatch_rank(uint32_t rank, void *index)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;
    int field = *(int *)index % 5;

    two_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, three_four);
    spec.max_norm = field == 0 && rank == 1 ? 2.0 : 1.0;
    spec.norm_p = field == 1 && rank == 1 ? 1.0 : 2.0;
    spec.gradient_scale = field == 2 && rank == 1 ? 0.5 : 1.0;
    spec.has_weight = field == 3 && rank == 1;
    spec.error_if_nonfinite = field == 4 && rank == 1;
    if (begin(&host, &spec) == HSDP_OK) { /* else the other has found it out already */
        host.api->step->result(host.model, &result, &host.err);
    }
    ck_assert(host.err.status == HSDP_ERR_MISMATCH || host.err.status == HSDP_ERR_ABORTED);
    ck_assert_ptr_nonnull(strstr(host.err.message, mismatches[field]));
    ck_assert_int_eq(host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
    host_must_refuse(&host, host.api->step->end(host.model, NULL, NULL, &host.err),
                     HSDP_ERR_ABORTED, mismatches[field]);
    host_leave(&host);
}

START_TEST(begin_with_other_numbers_than_a_peer_fails_the_job)
{
    host_settings_set(_i / 5, "gradient_op=sum");
    ranks_run(2, RANKS_LIMIT_MS, mismatch_rank, &_i);
}
END_TEST

/* Nothing given, and what it means, are the same. */
static void default_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, three_four);
    spec.norm_p = rank == 0 ? 0.0 : 2.0;
    spec.gradient_scale = rank == 0 ? 1.0 : 0.0;
    host_must(&host, begin(&host, &spec));
    ck_assert_double_eq(result_of(&host).norm, sqrt(50.0));
    host_step_end(&host);
    window_finish(&host);
}

START_TEST(begin_with_defaults_spelled_out_on_one_rank_agrees)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, default_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------------------- discard */

static double second_batch(struct host_at at)
{
    return at.microbatch == 0 ? NAN : 1.0;
}

static void discard_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_load(&host, one);
    host_backward(&host, HSDP_SCOPE_FULL, 0, second_batch);
    host_must(&host, begin(&host, &spec));
    ck_assert_uint_eq(result_of(&host).is_nonfinite, 1);
    host_must(&host, discard(&host));
    host_expect_param(&host, "w", 1.0);
    host_expect_param(&host, "k", 1.0);
    host_backward(&host, HSDP_SCOPE_FULL, 1, second_batch);
    host_must(&host, begin(&host, &spec));
    ck_assert_uint_eq(result_of(&host).step, 2);
    ck_assert_double_eq(result_of(&host).norm, 2.0);
    host_descend(&host, 0.25, 1.0);
    host_step_end(&host);
    host_expect_param(&host, "w", 0.75);
    host_expect_param(&host, "x", 0.75);
    host_expect_param(&host, "k", 1.0);
    host_close(&host);
}

START_TEST(discard_leaves_parameters_and_drops_gradients)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "param_dtype=bf16 accumulation_scope=inner");
    ranks_run(2, RANKS_LIMIT_MS, discard_rank, NULL);
}
END_TEST

/* What the last window has left behind does not count. */
static void no_pass_rank(uint32_t rank, void *shared)
{
    static const uint32_t first[] = {0};
    struct host host;

    (void)shared;
    two_open(&host, rank);
    host_backward(&host, HSDP_SCOPE_FULL, 0, three_four);
    host_step(&host, 0.0);
    host_step_end(&host);
    host_must(&host, host_backward_begin(&host, first, 1, HSDP_SCOPE_FULL, &host.pass));
    host_acquire(&host, 0);
    host_fill(&host, 0, 0, three_four);
    host_hand_over(&host, 0);
    host_pass_end(&host);
    ck_assert_double_eq(host_step(&host, 0.0).norm, 5.0);
    host_expect_grad(&host, "x", 0.0);
    host_step_end(&host);
    ck_assert_double_eq(host_step(&host, 0.0).norm, 0.0);
    host_expect_grad(&host, "w", 0.0);
    host_step_end(&host);
    window_finish(&host);
}

START_TEST(step_of_a_unit_in_no_pass_counts_zeros)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "accumulation_scope=full");
    ranks_run(2, RANKS_LIMIT_MS, no_pass_rank, NULL);
}
END_TEST

/* Without begin's result being asked for; many times, so that ranks run ahead of each other. */
static void unasked_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct host host;
    uint64_t ticket;

    (void)shared;
    two_open(&host, rank);
    host_load(&host, one);
    for (uint32_t step = 0; step < 20; step++) {
        host_backward(&host, HSDP_SCOPE_FULL, 1, second_batch);
        host_must(&host, host.api->step->begin(host.model, &spec, &ticket, &host.err));
        if (step % 2 == 0) {
            host_must(&host, discard(&host));
        } else {
            host_must(&host, host.api->job->ticket_wait(host.job, ticket, UINT64_MAX, &host.err));
            host_descend(&host, 0.0625, 1.0);
            host_step_end(&host);
        }
        host_expect_param(&host, "w", 1.0 - 0.0625 * ((step + 1) / 2));
    }
    host_close(&host);
}

START_TEST(steps_ended_and_discarded_in_turn_keep_count)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "param_dtype=bf16");
    ranks_run(2, RANKS_LIMIT_MS, unasked_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("step");
    TCase *tcase = tcase_create("step");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, begin_with_impossible_numbers_is_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, begin_while_units_are_in_use_names_one, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, begin_with_an_unclosed_window_names_the_unit, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, calls_that_have_no_place_in_a_step_are_refused, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, calls_of_a_step_without_a_step_are_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, norm_and_clip_are_what_the_gradients_say, 0,
                        N_OF(norm_cases) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, weights_are_summed_over_data_ranks_once, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, weights_that_sum_to_zero_make_the_norm_nan, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, begin_with_other_numbers_than_a_peer_fails_the_job, 0,
                        5 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, begin_with_defaults_spelled_out_on_one_rank_agrees, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, discard_leaves_parameters_and_drops_gradients, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, step_of_a_unit_in_no_pass_counts_zeros, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, steps_ended_and_discarded_in_turn_keep_count, 0,
                        2 * HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
