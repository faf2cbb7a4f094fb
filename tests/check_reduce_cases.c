/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction, accumulation and clipping: inputs on which other systems were silently wrong. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static const char *test_dims; /* of the running case; ranks inherit it */

/* --------------------------------------------------------------------------- microbatches */

/* Gradients 1 and 3, then 2 and 6: the means are 2 and 4. */
static double two_batches(struct host_at at)
{
    return (at.rank == 0 ? 1.0 : 3.0) * (at.microbatch + 1);
}

static void batches_run(uint32_t rank, uint32_t n_batches, int32_t scope, double expected)
{
    struct host host;

    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5]; unit b: x[4]");
    for (uint32_t batch = 0; batch < n_batches; batch++) {
        host_forward(&host);
        host_backward(&host, batch + 1 == n_batches ? HSDP_SCOPE_FULL : scope, batch, two_batches);
    }
    host_step(&host, 0.0);
    host_expect_grad(&host, "w", expected);
    host_expect_grad(&host, "x", expected);
    host_step_end(&host);
    host_close(&host);
}

static void batches_rank(uint32_t rank, void *scope)
{
    batches_run(rank, 2, *(int *)scope, 6.0);
}

/* Case C1 of tests/cases/README.md. */
START_TEST(reduce_over_two_microbatches_adds_their_means)
{
    int scope = _i % 3;
    char more[64];

    snprintf(more, sizeof(more), "accumulation_scope=%s", host_scopes[scope]);
    host_settings_set(_i / 3, more);
    ranks_run(2, RANKS_LIMIT_MS, batches_rank, &scope);
}
END_TEST

static void one_batch_rank(uint32_t rank, void *shared)
{
    (void)shared;
    batches_run(rank, 1, HSDP_SCOPE_FULL, 2.0);
}

/* Case C1 of tests/cases/README.md. */
START_TEST(reduce_of_one_microbatch_is_its_mean)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, one_batch_rank, NULL);
}
END_TEST

static void three_batches_rank(uint32_t rank, void *scope)
{
    batches_run(rank, 3, *(int *)scope, 12.0);
}

START_TEST(reduce_over_three_microbatches_adds_their_means)
{
    int scope = _i % 3;
    char more[64];

    snprintf(more, sizeof(more), "accumulation_scope=%s", host_scopes[scope]);
    host_settings_set(_i / 3, more);
    ranks_run(2, RANKS_LIMIT_MS, three_batches_rank, &scope);
}
END_TEST

/* -------------------------------------------------------------------------------- divisors */

struct constant {
    double gradient;
    double expected;
    uint32_t n_elems;
};
static const struct constant *constant;

static double constant_gradient(struct host_at at)
{
    (void)at;
    return constant->gradient;
}

static void constant_rank(uint32_t rank, void *shared)
{
    struct host host;

    constant = shared;
    host_open(&host, rank, test_dims, host_settings, "unit a: w[3]");
    host_backward(&host, HSDP_SCOPE_FULL, 0, constant_gradient);
    host_step(&host, 0.0);
    host_expect_grad(&host, "w", constant->expected);
    host_step_end(&host);
    host_close(&host);
}

/* Case C3 of tests/cases/README.md. */
START_TEST(reduce_by_a_large_divisor_keeps_the_sum)
{
    static struct constant numbers = {.gradient = 300.0, .expected = 8.0};

    host_settings_set(_i / 2, "gradient_divisor=300");
    test_dims = _i % 2 == 0 ? "dp=8" : "dp=2,cp=4";
    ranks_run(8, RANKS_LIMIT_MS, constant_rank, &numbers);
}
END_TEST

/* Case C3 of tests/cases/README.md. */
START_TEST(reduce_by_the_default_divisor_is_the_mean)
{
    static struct constant numbers = {.gradient = 300.0, .expected = 300.0};

    host_settings_set(_i / 2, "");
    test_dims = _i % 2 == 0 ? "dp=8" : "dp=2,cp=4";
    ranks_run(8, RANKS_LIMIT_MS, constant_rank, &numbers);
}
END_TEST

/* The sum of eight is beyond fp16; only contributions are rounded to the wire. */
START_TEST(reduce_over_a_narrow_wire_does_not_overflow)
{
    static struct constant numbers = {.gradient = 60000.0, .expected = 60000.0};

    host_settings_set(_i / 2, "reduce_dtype=fp16");
    test_dims = _i % 2 == 0 ? "dp=8" : "dp=2,cp=4";
    ranks_run(8, RANKS_LIMIT_MS, constant_rank, &numbers);
}
END_TEST

START_TEST(reduce_with_op_sum_divides_by_nothing)
{
    static struct constant numbers = {.gradient = 300.0, .expected = 2400.0};

    host_settings_set(_i, "gradient_op=sum gradient_divisor=7");
    test_dims = "dp=2,cp=4";
    ranks_run(8, RANKS_LIMIT_MS, constant_rank, &numbers);
}
END_TEST

/* ------------------------------------------------------------------------------ two ranks */

static double low_and_high[2];

static double by_rank(struct host_at at)
{
    return low_and_high[at.rank];
}

static void sizes_rank(uint32_t rank, void *shared)
{
    static const char *const names[] = {"w1", "w2", "w3", "w6", "w0"};
    double mean = (low_and_high[0] + low_and_high[1]) / 2.0;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings,
              "unit a: w1[1] w2[2]; unit b: w3[3] w6[6] w0[]; unit c: odd[1031]");
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_rank);
    host_step(&host, 0.0);
    for (int i = 0; i < N_OF(names); i++) {
        host_expect_grad(&host, names[i], mean);
    }
    host_expect_grad(&host, "odd", mean);
    host_step_end(&host);
    host_close(&host);
}

/* Case C4 of tests/cases/README.md. */
START_TEST(reduce_of_any_size_is_the_mean)
{
    static const double pairs[][2] = {{1.0, 3.0}, {3.0, 5.0}, {-7.0, 7.0}, {0.0, -1.0}};

    memcpy(low_and_high, pairs[_i % 4], sizeof(low_and_high));
    host_settings_set(_i / 4, "");
    ranks_run(2, RANKS_LIMIT_MS, sizes_rank, NULL);
}
END_TEST

/* Replicated twice and not sharded, and the reverse. */
/* Case C13 of tests/cases/README.md. */
START_TEST(reduce_over_a_dimension_of_one_still_reduces)
{
    low_and_high[0] = 1.0;
    low_and_high[1] = 3.0;
    host_settings_set(_i / 2, _i % 2 == 0 ? "shard_size=1" : "shard_size=2");
    ranks_run(2, RANKS_LIMIT_MS, sizes_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------- alone, in 16 bits */

/* Every finite pattern class of bf16: large, small, below normal, negative. */
static double odd_values(struct host_at at)
{
    static const int exponents[] = {0, -133, 127, -126, 5, -130};
    double value = ldexp(1.0 + (double)(at.elem % 128u) / 128.0, exponents[at.elem % 6u]);

    return host_round(at.elem % 2u == 0 ? value : -value, "bf16");
}

static void alone_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=1", host_settings,
              "unit a: w1[1] w2[2] w7[7] w8[8]; unit b: w9[9] w1023[1023] w1025[1025]");
    host_load(&host, odd_values);
    host_backward(&host, HSDP_SCOPE_FULL, 0, odd_values);
    host_step(&host, 0.0);
    for (uint32_t param = 0; param < host.n_params; param++) {
        const float *grad = host_export(&host, param, HSDP_FLAT_GRAD);
        struct hsdp_tensor view = host_view(&host, param, HSDP_VIEW_PARAM);

        for (uint64_t elem = 0; elem < host.params[param].n_elems; elem++) {
            double expected = odd_values((struct host_at){rank, 0, param, elem});

            host_expect_number(&host, "gradient", elem, (double)grad[elem], expected);
            host_expect_number(&host, "parameter", elem, host_read(&view, elem), expected);
        }
    }
    host_step_end(&host);
    host_close(&host);
}

/* Case C6 of tests/cases/README.md. */
START_TEST(reduce_of_one_rank_returns_every_element_as_it_was)
{
    host_settings_set(_i / 2,
                      _i % 2 == 0 ? "param_dtype=bf16 reduce_dtype=bf16" : "reduce_dtype=bf16");
    ranks_run(1, RANKS_LIMIT_MS, alone_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- empty */

static void empty_rank(uint32_t rank, void *shared)
{
    const char *units = shared;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, units);
    host_load(&host, by_rank);
    host_forward(&host);
    host_backward(&host, HSDP_SCOPE_FULL, 0, by_rank);
    ck_assert_double_eq(host_step(&host, 1.0).norm, 0.0);
    host_must(&host, host_adamw(&host, 0.1, 0.1));
    host_step_end(&host);
    host_forward(&host);
    host_close(&host);
}

/* Case C8 of tests/cases/README.md. */
START_TEST(reduce_of_nothing_but_an_empty_parameter_succeeds)
{
    static const char *const units[] = {"unit a: none[1,0,2]",
                                        "unit a: none[0]; unit b: no[0,7] ne[3,0]"};

    host_settings_set(_i / 2, "");
    ranks_run(4, RANKS_LIMIT_MS, empty_rank, (void *)units[_i % 2]);
}
END_TEST

/* ----------------------------------------------------------------- late, absent, never used */

static double five_then_four(struct host_at at)
{
    return at.microbatch == 0 ? 5.0 : 4.0;
}

static void late_rank(uint32_t rank, void *scope)
{
    struct host host;

    host_open(&host, rank, "dp=2", host_settings, "unit a: p[6]; unit b: q[6]; unit c: r[6]");
    host_pass_begin(&host, *(int *)scope);
    host_acquire(&host, host_unit(&host, "c")); /* nothing is written: zeros */
    host_hand_over(&host, host_unit(&host, "c"));
    host_acquire(&host, host_unit(&host, "a"));
    host_fill(&host, host_unit(&host, "a"), 0, five_then_four);
    host_hand_over(&host, host_unit(&host, "a"));
    host_pass_end(&host);
    host_grad_add(&host, "p", 2.0, "bf16");
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_acquire(&host, host_unit(&host, "b"));
    host_fill(&host, host_unit(&host, "b"), 1, five_then_four);
    host_hand_over(&host, host_unit(&host, "b"));
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "p", 7.0);
    host_expect_grad(&host, "q", 4.0);
    host_expect_grad(&host, "r", 0.0);
    host_step_end(&host);
    host_close(&host);
}

/* Case C10 of tests/cases/README.md. */
START_TEST(reduce_takes_up_late_and_first_seen_gradients)
{
    int scope = _i % 3;
    char more[64];

    snprintf(more, sizeof(more), "accumulation_scope=%s", host_scopes[scope]);
    host_settings_set(_i / 3, more);
    ranks_run(2, RANKS_LIMIT_MS, late_rank, &scope);
}
END_TEST

/* p is 1 and 3, q is 6 and missing; the neighbour is missing on both. */
static double one_sided(struct host_at at)
{
    return at.param == 0 ? 1.0 + 2.0 * at.rank : 6.0;
}

static void absent_rank(uint32_t rank, void *shared)
{
    bool is_on_nobody = *(bool *)shared;
    struct host host;

    host_open(&host, rank, "dp=2", host_settings, "unit a: p[5]; unit b: q[5]");
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    for (uint32_t unit = 2; unit-- > 0;) {
        if (unit == 0 || (rank == 0 && !is_on_nobody)) {
            host_acquire(&host, unit);
            host_fill(&host, unit, 0, one_sided);
            host_hand_over(&host, unit);
        } else {
            host_attend(&host, unit);
        }
    }
    host_pass_end(&host);
    host_step(&host, 0.0);
    host_expect_grad(&host, "p", 2.0);
    host_expect_grad(&host, "q", is_on_nobody ? 0.0 : 3.0);
    host_step_end(&host);
    host_close(&host);
}

/* Case C11 of tests/cases/README.md. */
START_TEST(reduce_of_a_unit_that_a_rank_lacks_counts_zeros)
{
    bool is_on_nobody = _i % 2 != 0;

    host_settings_set(_i / 2 % HOST_N_STRATEGIES,
                      _i / 2 < HOST_N_STRATEGIES ? ""
                                                 : "accumulation_scope=full reduce_dtype=bf16");
    ranks_run(2, RANKS_LIMIT_MS, absent_rank, &is_on_nobody);
}
END_TEST

/* --------------------------------------------------------------------------------- experts */

/* Dense 1, 2, 3, 4; experts 8 and 16 on ep 0, 4 and 12 on ep 1. */
static double of_experts(struct host_at at)
{
    static const double experts[] = {8.0, 4.0, 16.0, 12.0};

    return at.param == 0 ? 1.0 + at.rank : experts[at.rank];
}

static void experts_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_info result;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2,ep=2", host_settings,
              "unit a: w[1]; class expert(dp); unit e: x[1]");
    host_backward(&host, HSDP_SCOPE_FULL, 0, of_experts);
    result = host_step(&host, 0.0);
    host_expect_grad(&host, "w", 2.5);
    host_expect_grad(&host, "x", rank % 2 == 0 ? 6.0 : 4.0);
    ck_assert_double_eq(result.norm, sqrt(2.5 * 2.5 + 6.0 * 6.0 + 4.0 * 4.0));
    host_step_end(&host);
    host_close(&host);
}

/* Case C14 of tests/cases/README.md. */
START_TEST(reduce_of_experts_divides_by_all_data_ranks)
{
    host_settings_set(_i, "");
    ranks_run(4, RANKS_LIMIT_MS, experts_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------- not finite */

static double bad_value;

/* (1, 2) and (bad, 3) */
static double one_bad(struct host_at at)
{
    return at.elem == 0 ? (at.rank == 0 ? 1.0 : bad_value) : 2.0 + at.rank;
}

static void nonfinite_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_info result;
    const float *grad;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[2]");
    host_backward(&host, HSDP_SCOPE_FULL, 0, one_bad);
    result = host_step(&host, 1.0);
    ck_assert(isnan(bad_value) ? isnan(result.norm) : isinf(result.norm) && result.norm > 0);
    ck_assert_uint_eq(result.is_nonfinite, 1);
    ck_assert_double_eq(result.clip, 1.0);
    ck_assert_double_eq(result.factor, 1.0);
    grad = host_export(&host, 0, HSDP_FLAT_GRAD);
    ck_assert(isnan(bad_value) ? isnan(grad[0]) : (double)grad[0] == bad_value);
    ck_assert_float_eq(grad[1], 2.5f);
    host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    host_close(&host);
}

/* Case C19 of tests/cases/README.md. */
START_TEST(clip_of_a_norm_that_is_not_finite_changes_nothing)
{
    const double values[] = {INFINITY, -INFINITY, NAN};

    bad_value = values[_i % 3];
    host_settings_set(_i / 3, "");
    ranks_run(2, RANKS_LIMIT_MS, nonfinite_rank, NULL);
}
END_TEST

static double bad_on_rank_two(struct host_at at)
{
    return at.rank == 2 && at.elem == 1500 ? bad_value : 1.0;
}

static double weights(struct host_at at)
{
    return (double)(at.elem % 97u);
}

static void refused_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    const float *values;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, "unit a: w[4000]");
    host_load(&host, weights);
    host_backward(&host, HSDP_SCOPE_FULL, 0, bad_on_rank_two);
    spec.error_if_nonfinite = 1;
    host_must(&host, host.api->step->begin(host.model, &spec, NULL, &host.err));
    host_must_refuse(&host, host.api->step->result(host.model, &result, &host.err),
                     HSDP_ERR_NONFINITE, "norm");
    host_must_refuse(&host, host.api->step->end(host.model, NULL, NULL, &host.err), HSDP_ERR_STATE,
                     "discard");
    ck_assert_float_eq(host_export(&host, 0, HSDP_FLAT_GRAD)[1499], 1.0f);
    ck_assert(!isfinite(host_export(&host, 0, HSDP_FLAT_GRAD)[1500]));
    host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    values = host_export(&host, 0, HSDP_FLAT_MASTER);
    for (uint64_t elem = 0; elem < 4000; elem++) {
        host_expect_number(&host, "w", elem, (double)values[elem], (double)(elem % 97u));
    }
    host_close(&host);
}

/* Case C20 of tests/cases/README.md. */
START_TEST(result_with_an_error_if_nonfinite_says_so_on_every_rank)
{
    bad_value = _i % 2 == 0 ? NAN : INFINITY;
    host_settings_set(_i / 2, "shard_size=2");
    ranks_run(4, RANKS_LIMIT_MS, refused_rank, NULL);
}
END_TEST

/* Every gradient is finite, and so is each weight. */
static void huge_weights_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[4000]");
    host_backward(&host, HSDP_SCOPE_FULL, 0, weights);
    spec.error_if_nonfinite = spec.has_weight = 1;
    spec.weight = 1.5e308;
    host_must(&host, host.api->step->begin(host.model, &spec, NULL, &host.err));
    host_must_refuse(&host, host.api->step->result(host.model, &result, &host.err),
                     HSDP_ERR_NONFINITE, "is 0, the sum of the weights is inf");
    host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    host_close(&host);
}

START_TEST(result_with_weights_beyond_any_number_names_their_sum)
{
    host_settings_set(_i, "gradient_op=sum");
    ranks_run(2, RANKS_LIMIT_MS, huge_weights_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("reduce_cases");
    TCase *tcase = tcase_create("reduce_cases");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, reduce_over_two_microbatches_adds_their_means, 0,
                        3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_of_one_microbatch_is_its_mean, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_over_three_microbatches_adds_their_means, 0,
                        3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_by_a_large_divisor_keeps_the_sum, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_by_the_default_divisor_is_the_mean, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_over_a_narrow_wire_does_not_overflow, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_with_op_sum_divides_by_nothing, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_of_any_size_is_the_mean, 0, 4 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_over_a_dimension_of_one_still_reduces, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_of_one_rank_returns_every_element_as_it_was, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_of_nothing_but_an_empty_parameter_succeeds, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_takes_up_late_and_first_seen_gradients, 0,
                        3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_of_a_unit_that_a_rank_lacks_counts_zeros, 0,
                        4 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_of_experts_divides_by_all_data_ranks, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, clip_of_a_norm_that_is_not_finite_changes_nothing, 0,
                        3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, result_with_an_error_if_nonfinite_says_so_on_every_rank, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, result_with_weights_beyond_any_number_names_their_sum, 0,
                        HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
