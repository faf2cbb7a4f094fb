/* SPDX-License-Identifier: Apache-2.0 */
/* Layout: shapes, frozen and tied parameters, padding and loading, where other systems failed. */
#include <check.h>
#include <math.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

/* ---------------------------------------------------------------------------------- scalars */

static double scalar_weight(struct host_at at)
{
    return at.param == 0 ? 7.5 : 1.0 + (double)at.elem;
}

static void scalar_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: s[] w[4]");
    host_load(&host, scalar_weight);
    ck_assert_int_eq(host_view(&host, 0, HSDP_VIEW_PARAM).n_dims, 0);
    host_expect_param(&host, "s", 7.5);
    ck_assert_float_eq(host_export(&host, 0, HSDP_FLAT_MASTER)[0], 7.5f);
    for (uint64_t elem = 0; elem < 4; elem++) {
        ck_assert_float_eq(host_export(&host, 1, HSDP_FLAT_MASTER)[elem], 1.0f + (float)elem);
    }
    host_close(&host);
}

/* Case B3 of tests/cases/README.md. */
START_TEST(unshard_of_a_scalar_beside_a_vector_returns_both)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "param_dtype=bf16");
    ranks_run(2, RANKS_LIMIT_MS, scalar_rank, NULL);
}
END_TEST

/* Nothing but a scalar: all ranks but one hold only padding. */
static void lone_scalar_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_info result;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: s[]");
    host_load(&host, scalar_weight);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    result = host_step(&host, 0.0);
    ck_assert_double_eq(result.norm, 1.0);
    host_descend(&host, 0.5, result.factor);
    host_step_end(&host);
    host_expect_param(&host, "s", 7.0);
    host_close(&host);
}

/* Case B3 of tests/cases/README.md. */
START_TEST(step_of_a_lone_scalar_moves_it)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "param_dtype=bf16");
    ranks_run(2, RANKS_LIMIT_MS, lone_scalar_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- frozen */

static double frozen_weight(struct host_at at)
{
    return at.param == 0 ? 2.0 : -3.0;
}

static void frozen_rank(uint32_t rank, void *units)
{
    struct hsdp_step_info result;
    struct hsdp_tensor view;
    struct host host;
    uint32_t frozen;

    host_open(&host, rank, "dp=2", host_settings, units);
    frozen = host_param(&host, "b");
    host_load(&host, frozen_weight);
    host_must_refuse(
        &host, host.api->model->param_view(host.model, frozen, HSDP_VIEW_GRAD, &view, &host.err),
        HSDP_ERR_INVALID, "frozen");
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    result = host_step(&host, 0.0);
    ck_assert_double_eq(result.norm, 2.0);
    host_expect_grad(&host, "w", 1.0);
    host_must(&host, host_adamw(&host, 0.5, 0.1));
    host_step_end(&host);
    host_expect_param(&host, "b", -3.0);
    host_close(&host);
}

/* Case B5 of tests/cases/README.md. */
START_TEST(step_of_a_frozen_parameter_leaves_it)
{
    static const char *const units[] = {"unit a: w[4] b[4]!", "unit a: w[4]; unit f: b[7]!"};

    host_settings_set(_i / 2 % HOST_N_STRATEGIES,
                      _i / 2 < HOST_N_STRATEGIES ? "" : "param_dtype=bf16");
    ranks_run(2, RANKS_LIMIT_MS, frozen_rank, (void *)units[_i % 2]);
}
END_TEST

/* ----------------------------------------------------------------------------------- blocks */

static double place_weight(struct host_at at)
{
    return (double)(1 + at.param) * 1000.0 + (double)(at.elem % 251);
}

static double block_gradient(struct host_at at)
{
    return (double)(1 + at.rank) * (double)(1 + at.elem % 3);
}

/* The mean of 1, 2, 3 times 1, 2, 3: gradients arrive at their elements, whatever the order. */
static void block_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=3", host_settings,
              "unit a: w[3,10007]/10007 x[3,10009]/10009 s[5]; unit b: y[40,96]/96 z[7,1000]/1000");
    host_load(&host, place_weight);
    host_backward(&host, HSDP_SCOPE_FULL, 0, block_gradient);
    host_step(&host, 0.0);
    for (uint32_t param = 0; param < host.n_params; param++) {
        const float *grads = host_export(&host, param, HSDP_FLAT_GRAD);

        for (uint64_t elem = 0; elem < host.params[param].n_elems; elem++) {
            host_expect_number(&host, "gradient", elem, (double)grads[elem],
                               2.0 * (double)(1 + elem % 3));
        }
    }
    host_descend(&host, 1.0, 1.0);
    host_step_end(&host);
    for (uint32_t param = 0; param < host.n_params; param++) {
        const float *values = host_export(&host, param, HSDP_FLAT_MASTER);

        for (uint64_t elem = 0; elem < host.params[param].n_elems; elem++) {
            struct host_at at = {rank, 0, param, elem};

            host_expect_number(&host, "weight", elem, (double)values[elem],
                               place_weight(at) - 2.0 * (double)(1 + elem % 3));
        }
    }
    host_close(&host);
}

START_TEST(step_of_blocks_without_a_common_multiple_moves_them)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "param_dtype=bf16 accumulation_scope=full");
    ranks_run(3, RANKS_LIMIT_MS, block_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- ties */

static double emb_weight(struct host_at at)
{
    return (double)at.elem;
}

static void tied_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor emb;
    struct hsdp_tensor head;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: emb[3,2] w[5] head[3,2]=emb");
    host_load(&host, emb_weight);
    emb = host_view(&host, 0, HSDP_VIEW_PARAM);
    head = host_view(&host, 2, HSDP_VIEW_PARAM);
    ck_assert_ptr_eq(emb.base, head.base);
    ck_assert_uint_eq(emb.byte_offset, head.byte_offset);
    for (uint64_t elem = 0; elem < 6; elem++) {
        ck_assert_float_eq(host_export(&host, 2, HSDP_FLAT_MASTER)[elem], (float)elem);
    }
    host_backward(&host, HSDP_SCOPE_NONE, 0, one);
    host_grad_add(&host, "head", 2.0, "fp32");
    host_backward(&host, HSDP_SCOPE_FULL, 1, one);
    host_step(&host, 0.0);
    host_expect_grad(&host, "emb", 4.0);
    host_expect_grad(&host, "head", 4.0);
    host_expect_grad(&host, "w", 2.0);
    host_step_end(&host);
    host_close(&host);
}

/* Case B6 of tests/cases/README.md. */
START_TEST(tied_names_share_values_and_add_gradients)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, tied_rank, NULL);
}
END_TEST

/* Gradients 1 and 2 of the two names in one microbatch add to 3, and count once in the norm. */
static void tied_once_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: emb[3,2] head[3,2]=emb");
    host_grad_add(&host, "head", 2.0, "fp32");
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    ck_assert_double_eq(host_step(&host, 0.0).norm, sqrt(6.0 * 9.0));
    host_expect_grad(&host, "emb", 3.0);
    host_step_end(&host);
    host_close(&host);
}

/* Case B6 of tests/cases/README.md. */
START_TEST(tied_names_count_once_in_the_norm)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "" : "accumulation_scope=inner");
    ranks_run(2, RANKS_LIMIT_MS, tied_once_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------------------- padding */

/* What a careless host leaves in memory that it was lent: 16-bit NaNs, also behind the ends. */
static void buffers_poison(struct host *host)
{
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;
    struct hsdp_tensor view;

    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        host_must(host, host->api->plan->buffer_info(host->plan, unit, 0, &info, &host->err));
        view = host_view(host, unit, HSDP_VIEW_GRAD);
        for (uint64_t elem = 0; elem < info.n_elems; elem++) {
            host_write(&view, elem, NAN);
        }
    }
}

static void padding_check(struct host *host, int32_t flat, uint64_t n_elems)
{
    struct hsdp_tensor view;

    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_segment segments[2];
        uint64_t n_segments;
        uint64_t end = 0;

        host_must(host,
                  host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, host->rank, segments,
                                            sizeof(segments[0]), 2, &n_segments, &host->err));
        host_must(host, host->api->model->flat_view(host->model, unit, 0, flat, &view, &host->err));
        if (n_segments > 0) {
            end = segments[0].shard_offset_elems + segments[0].n_elems;
            ck_assert_uint_le(end, n_elems);
        }
        for (uint64_t elem = end; elem < (uint64_t)view.shape[0]; elem++) {
            host_expect_number(host, "padding", elem, host_read(&view, elem), 0.0);
        }
    }
}

static void poisoned_rank(uint32_t rank, void *use)
{
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, "unit a: w[5]; unit b: x[5]");
    host_load(&host, one);
    buffers_poison(&host);
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    for (uint32_t unit = 2; unit-- > 0;) {
        host_must(&host, host_unshard(&host, unit, *(int32_t *)use));
        host_fill(&host, unit, 0, one);
        host_hand_over(&host, unit);
    }
    host_pass_end(&host);
    ck_assert_double_eq(host_step(&host, 0.0).norm, sqrt(10.0));
    padding_check(&host, HSDP_FLAT_GRAD, 5);
    padding_check(&host, HSDP_FLAT_MASTER, 5);
    host_must(&host, host_adamw(&host, 0.1, 0.0));
    padding_check(&host, HSDP_FLAT_MASTER, 5);
    padding_check(&host, HSDP_FLAT_STATE, 5);
    padding_check(&host, HSDP_FLAT_STATE + 1, 5);
    host_step_end(&host);
    host_close(&host);
}

/* Case B8 of tests/cases/README.md. */
START_TEST(reduce_of_dirty_buffers_keeps_padding_zero)
{
    int32_t use = _i % 2 == 0 ? HSDP_USE_BACKWARD : HSDP_USE_BACKWARD_SET;
    const char *more = _i / 2 % 2 == 0 ? "param_dtype=bf16 gradient_dtype=bf16 reduce_dtype=bf16"
                                       : "gradient_dtype=bf16 accumulation_scope=inner";

    host_settings_set(_i / 4, more);
    ranks_run(4, RANKS_LIMIT_MS, poisoned_rank, &use);
}
END_TEST

/* One parameter of five: the norm of ones is the root of five, and padding counts for nothing. */
static void ones_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, "unit a: w[5]");
    host_load(&host, one);
    host_backward(&host, HSDP_SCOPE_FULL, 0, one);
    ck_assert_double_eq(host_step(&host, 0.0).norm, sqrt(5.0));
    host_step_end(&host);
    host_expect_param(&host, "w", 1.0);
    host_close(&host);
}

/* Case B8 of tests/cases/README.md. */
START_TEST(norm_of_five_ones_is_the_root_of_five)
{
    host_settings_set(_i, "param_dtype=bf16 reduce_dtype=bf16");
    ranks_run(4, RANKS_LIMIT_MS, ones_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------ loading, replicas */

/* Every rank passes its number; the source's counts. */
static void source_import(struct host *host, uint32_t source)
{
    float values[5];
    struct hsdp_tensor full = host_tensor(host, 0, values, "fp32");

    for (int elem = 0; elem < 5; elem++) {
        values[elem] = (float)host->rank;
    }
    host_must(host, host->api->model->import_param(host->model, 0, HSDP_FLAT_MASTER, &full, source,
                                                   NULL, &host->err));
}

/* This rank's step shard gets its number everywhere but in the padding. */
static void shard_fill(struct host *host, int32_t flat)
{
    struct hsdp_segment segment;
    struct hsdp_tensor view;
    uint64_t n_segments;

    host_must(host, host->api->plan->segments(host->plan, 0, HSDP_SHARD_STEP, host->rank, &segment,
                                              sizeof(segment), 1, &n_segments, &host->err));
    host_must(host, host->api->model->flat_view(host->model, 0, 0, flat, &view, &host->err));
    for (uint64_t elem = 0; n_segments > 0 && elem < segment.n_elems; elem++) {
        host_write(&view, segment.shard_offset_elems + elem, host->rank);
    }
}

static void replicas_rank(uint32_t rank, void *source)
{
    struct host host;
    int number = *(int *)source;

    host_open(&host, rank, "dp=4", host_settings, "unit a: w[5]");
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    source_import(&host, (uint32_t)number);
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    host_expect_param(&host, "w", number);
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    shard_fill(&host, HSDP_FLAT_MASTER);
    host_must(&host, host.api->model->sync(host.model, NULL, &host.err));
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    host_expect_param(&host, "w", 0.0); /* ranks 2 and 3 would have had 2 */
    host_close(&host);
}

/* Case B10 of tests/cases/README.md. */
START_TEST(sync_after_unequal_edits_takes_the_first_replica)
{
    int source = _i % 4;

    host_settings_set(4 + _i / 4 % 2,
                      _i / 8 == 0 ? "shard_size=2" : "shard_size=2 param_dtype=bf16");
    ranks_run(4, RANKS_LIMIT_MS, replicas_rank, &source);
}
END_TEST

/* As above with [2048] a shard: the halves are 0 and 1 on all four ranks. */
static void halves_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor view;
    const float *values;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, "unit a: w[4096]");
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    shard_fill(&host, HSDP_FLAT_MASTER);
    host_must(&host, host.api->model->sync(host.model, NULL, &host.err));
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    values = host_export(&host, 0, HSDP_FLAT_MASTER);
    for (int elem = 0; elem < 4096; elem++) {
        host_expect_number(&host, "w", (uint64_t)elem, (double)values[elem],
                           elem < 2048 ? 0.0 : 1.0);
    }
    host_must(&host, host_unshard(&host, 0, HSDP_USE_FORWARD));
    view = host_view(&host, 0, HSDP_VIEW_PARAM);
    ck_assert_double_eq(host_read(&view, 2047), 0.0);
    ck_assert_double_eq(host_read(&view, 2048), 1.0);
    host_must(&host, host_release(&host, 0));
    host_close(&host);
}

/* Case B10 of tests/cases/README.md. */
START_TEST(sync_of_two_shards_gives_both_replicas_the_first)
{
    host_settings_set(4 + _i, "shard_size=2");
    ranks_run(4, RANKS_LIMIT_MS, halves_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("layout_cases");
    TCase *tcase = tcase_create("layout_cases");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, unshard_of_a_scalar_beside_a_vector_returns_both, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, step_of_a_lone_scalar_moves_it, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, step_of_blocks_without_a_common_multiple_moves_them, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, step_of_a_frozen_parameter_leaves_it, 0, 4 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, tied_names_share_values_and_add_gradients, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, tied_names_count_once_in_the_norm, 0, 2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, reduce_of_dirty_buffers_keeps_padding_zero, 0,
                        4 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, norm_of_five_ones_is_the_root_of_five, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sync_after_unequal_edits_takes_the_first_replica, 0, 16);
    tcase_add_loop_test(tcase, sync_of_two_shards_gives_both_replicas_the_first, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
