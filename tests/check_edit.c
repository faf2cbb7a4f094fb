/* SPDX-License-Identifier: Apache-2.0 */
/* Edits: loading, saving, slices, replicas; and what is refused. */
#include <check.h>
#include <stdlib.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* Exact in every dtype. */
static double small(struct host_at at)
{
    return (double)((at.elem * 7 + at.param * 3 + at.rank) % 64) - 32.0;
}

static void edit_begin(struct host *host)
{
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
}

static void edit_end(struct host *host)
{
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
}

static int32_t import(struct host *host, uint32_t param, int32_t flat,
                      const struct hsdp_tensor *full, uint32_t source)
{
    return host->api->model->import_param(host->model, param, flat, full, source, NULL, &host->err);
}

static int32_t export(struct host *host, uint32_t param, int32_t flat,
                      const struct hsdp_tensor *full, uint32_t target)
{
    return host->api->model->export_param(host->model, param, flat, full, target, NULL, &host->err);
}

/* A parameter, unsharded and exported, has these values. */
static void param_expect(struct host *host, uint32_t param, host_value value)
{
    const float *values = host_export(host, param, HSDP_FLAT_MASTER);
    struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);
    const struct host_param *p = &host->params[param];
    struct host_at at = {host_holder(host, param, host->rank), 0, p->storage, 0};

    host_must(host, host_unshard(host, p->unit, HSDP_USE_FORWARD));
    for (at.elem = 0; at.elem < p->n_elems; at.elem++) {
        host_expect_number(host, p->name, at.elem, (double)values[at.elem], value(at));
        host_expect_number(host, p->name, at.elem, host_read(&view, at.elem), value(at));
    }
    host_must(host, host_release(host, p->unit));
}

/* --------------------------------------------------------------------------------- refusals */

static void order_rank(uint32_t rank, void *shared)
{
    float values[5] = {0};
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    const struct hsdp_model_ops *ops;
    struct hsdp_tensor full;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5]; unit b: x[5]");
    ops = host.api->model;
    full = host_tensor(&host, 0, values, "fp32");
    host_must_refuse(&host, ops->edit_end(host.model, NULL, &host.err), HSDP_ERR_STATE, "no edit");
    host_must_refuse(&host, ops->sync(host.model, NULL, &host.err), HSDP_ERR_STATE, "no edit");
    host_must_refuse(&host, import(&host, 0, 0, &full, HSDP_ALL_RANKS), HSDP_ERR_STATE, "no edit");
    host_must(&host, host_unshard(&host, 1, HSDP_USE_FORWARD));
    host_must_refuse(&host, ops->edit_begin(host.model, NULL, &host.err), HSDP_ERR_STATE,
                     "unit \"b\" is still unsharded");
    host_must(&host, host_release(&host, 1));
    host_pass_begin(&host, HSDP_SCOPE_FULL);
    host_must_refuse(&host, ops->edit_begin(host.model, NULL, &host.err), HSDP_ERR_STATE,
                     "in an open backward pass");
    host_pass_end(&host);
    edit_begin(&host);
    host_must(&host, ops->info(host.model, &info, &host.err));
    ck_assert_uint_eq(info.is_editing, 1);
    host_must_refuse(&host, ops->edit_begin(host.model, NULL, &host.err), HSDP_ERR_STATE,
                     "an edit is open");
    host_must_refuse(&host, host_unshard(&host, 0, HSDP_USE_FORWARD), HSDP_ERR_STATE,
                     "an edit is open");
    edit_end(&host);
    host_load(&host, small);
    param_expect(&host, 0, small);
    host_close(&host);
}

START_TEST(edit_calls_out_of_order_are_refused)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, order_rank, NULL);
}
END_TEST

/* Each rank has its own experts, so a source must be one of the dp peers. */
static void tensors_rank(uint32_t rank, void *shared)
{
    float values[8] = {0};
    int64_t shape[] = {8};
    struct hsdp_tensor full;
    struct host host;
    uint32_t stranger = rank ^ 1u;

    (void)shared;
    host_open(&host, rank, "dp=2,ep=2", host_settings,
              "unit a: w[5] k[3]!; class expert(dp); unit e: x[5]");
    full = host_tensor(&host, 0, values, "fp32");
    edit_begin(&host);
    host_must_refuse(&host, import(&host, 9, 0, &full, 0), HSDP_ERR_INVALID, "parameter 9 of 3");
    host_must_refuse(&host, import(&host, 0, HSDP_FLAT_GRAD, &full, 0), HSDP_ERR_INVALID,
                     "unit.grad_add");
    host_must_refuse(&host, import(&host, 0, HSDP_FLAT_STATE, &full, 0), HSDP_ERR_INVALID,
                     "flat 16");
    host_must_refuse(&host, import(&host, 0, 0, NULL, HSDP_ALL_RANKS), HSDP_ERR_INVALID,
                     "must pass a tensor");
    host_must_refuse(&host, import(&host, 0, 0, &full, 4), HSDP_ERR_INVALID, "source_rank 4");
    host_must_refuse(&host, import(&host, 2, 0, &full, stranger), HSDP_ERR_INVALID,
                     "along its reduced_over, \"dp\"");
    host_must_refuse(&host, export(&host, 2, 0, &full, stranger), HSDP_ERR_INVALID, "target_rank");
    host_must_refuse(&host, export(&host, 0, HSDP_FLAT_GRAD, &full, 0), HSDP_ERR_STATE, "step");
    host_must_refuse(&host, export(&host, 0, 0, NULL, HSDP_ALL_RANKS), HSDP_ERR_INVALID,
                     "must pass a tensor");
    full.shape = shape;
    host_must_refuse(&host, import(&host, 0, 0, &full, HSDP_ALL_RANKS), HSDP_ERR_INVALID, "size 8");
    full.n_dims = 0;
    host_must_refuse(&host, import(&host, 0, 0, &full, HSDP_ALL_RANKS), HSDP_ERR_INVALID,
                     "0 dimensions");
    full = host_tensor(&host, 0, NULL, "fp32");
    host_must_refuse(&host, import(&host, 0, 0, &full, HSDP_ALL_RANKS), HSDP_ERR_INVALID,
                     "no memory");
    full.device_type = HSDP_DEVICE_CUDA;
    full.device_id = 9;
    host_must_refuse(&host, import(&host, 0, 0, &full, HSDP_ALL_RANKS),
                     device_is_used() ? HSDP_ERR_INVALID : HSDP_ERR_UNSUPPORTED, "device type 2");
    edit_end(&host);
    host_load(&host, small);
    param_expect(&host, 2, small);
    host_close(&host);
}

START_TEST(import_and_export_of_what_does_not_fit_are_refused)
{
    host_settings_set(_i, "");
    ranks_run(4, RANKS_LIMIT_MS, tensors_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------- loading and saving */

/* In each dtype, with and without strides, and beside the base. */
static void round_trip_rank(uint32_t rank, void *dtype)
{
    const char *name = dtype;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings,
              "unit a: w[5,3] k[3]! s[] none[0]; unit b: x[97]");
    edit_begin(&host);
    for (uint32_t param = 0; param < host.n_params; param++) {
        float memory[128] = {0};
        int64_t strides[] = {host.params[param].n_dims == 2 ? 3 : 1, 1};
        struct hsdp_tensor full = host_tensor(&host, param, memory, name);

        full.byte_offset = 16;
        full.strides = param % 2 == 0 ? strides : NULL;
        for (uint64_t elem = 0; elem < host.params[param].n_elems; elem++) {
            host_write(&full, elem, small((struct host_at){0, 0, param, elem}));
        }
        host_must(&host, import(&host, param, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
    }
    edit_end(&host);
    for (uint32_t param = 0; param < host.n_params; param++) {
        float memory[128] = {0};
        struct hsdp_tensor full = host_tensor(&host, param, memory, name);

        host_must(&host, export(&host, param, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
        for (uint64_t elem = 0; elem < host.params[param].n_elems; elem++) {
            host_expect_number(&host, "exported", elem, host_read(&full, elem),
                               small((struct host_at){0, 0, param, elem}));
        }
        param_expect(&host, param, small);
    }
    host_close(&host);
}

START_TEST(import_then_export_returns_the_values)
{
    host_settings_set(_i / 3, _i % 2 == 0 ? "" : "param_dtype=bf16");
    ranks_run(4, RANKS_LIMIT_MS, round_trip_rank, (void *)(uintptr_t)host_dtypes[_i % 3]);
}
END_TEST

/* From one rank to all, and from all to one; larger than what passes in one piece. */
static void one_rank_rank(uint32_t rank, void *peer)
{
    uint32_t one = (uint32_t) * (int *)peer;
    uint64_t n_elems = 150001;
    float *values = calloc(n_elems, sizeof(*values));
    struct hsdp_tensor full;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, "unit a: w[150001]");
    full = host_tensor(&host, 0, values, "fp32");
    for (uint64_t elem = 0; rank == one && elem < n_elems; elem++) {
        values[elem] = (float)small((struct host_at){0, 0, 0, elem});
    }
    edit_begin(&host);
    host_must(&host, import(&host, 0, HSDP_FLAT_MASTER, rank == one ? &full : NULL, one));
    edit_end(&host);
    param_expect(&host, 0, small);
    memset(values, 0, n_elems * sizeof(*values));
    host_must(&host, export(&host, 0, HSDP_FLAT_MASTER, rank == one ? &full : NULL, one));
    for (uint64_t elem = 0; elem < n_elems; elem++) {
        double expected = rank == one ? small((struct host_at){0, 0, 0, elem}) : 0.0;

        host_expect_number(&host, "w", elem, (double)values[elem], expected);
    }
    free(values);
    host_close(&host);
}

START_TEST(import_from_and_export_to_one_rank_move_large_parameters)
{
    int peer = _i % 4;

    host_settings_set(_i / 4, "shard_size=2");
    ranks_run(4, RANKS_LIMIT_MS, one_rank_rank, &peer);
}
END_TEST

/* Many pieces in a row: none may be overwritten before all have read it. */
static void pieces_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=3", host_settings, "unit a: w[1000003]");
    host_load(&host, small);
    for (int i = 0; i < 3; i++) {
        const float *values = host_export(&host, 0, HSDP_FLAT_MASTER);

        for (uint64_t elem = 0; elem < host.params[0].n_elems; elem++) {
            double expected = small((struct host_at){0, 0, 0, elem});

            host_expect_number(&host, "w", elem, (double)values[elem], expected);
        }
    }
    host_close(&host);
}

START_TEST(export_of_many_pieces_returns_each)
{
    host_settings_set(_i, "");
    ranks_run(3, RANKS_LIMIT_MS, pieces_rank, NULL);
}
END_TEST

/* Experts differ between ep ranks; each takes its own from the dp peer with dp = 1. */
static void expert_rank(uint32_t rank, void *shared)
{
    float values[37];
    struct hsdp_tensor full;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2,ep=2", host_settings,
              "unit a: w[5]; class expert(dp); unit e: x[37]");
    full = host_tensor(&host, 1, values, "fp32");
    for (uint64_t elem = 0; elem < 37; elem++) {
        values[elem] = rank < 2 ? -99.0f : (float)small((struct host_at){rank % 2, 0, 1, elem});
    }
    edit_begin(&host);
    host_must(&host, import(&host, 1, HSDP_FLAT_MASTER, &full, 2 + rank % 2));
    edit_end(&host);
    param_expect(&host, 1, small);
    host_close(&host);
}

START_TEST(import_of_experts_comes_from_each_own_peer)
{
    host_settings_set(_i, "");
    ranks_run(4, RANKS_LIMIT_MS, expert_rank, NULL);
}
END_TEST

/* Each rank fills only what it owns, in memory. */
static void slices_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, "unit a: w[1031] k[7]!; unit b: x[2,1500] s[]");
    edit_begin(&host);
    for (uint32_t unit = 0; unit < host.n_units; unit++) {
        struct hsdp_segment segments[8];
        struct hsdp_tensor view;
        uint64_t n_segments;

        host_must(&host, host.api->plan->segments(host.plan, unit, HSDP_SHARD_STEP, rank, segments,
                                                  sizeof(segments[0]), 8, &n_segments, &host.err));
        for (uint64_t i = 0; i < n_segments; i++) {
            const struct hsdp_segment *s = &segments[i];

            host_must(&host, host.api->model->flat_view(host.model, unit, s->buffer,
                                                        HSDP_FLAT_MASTER, &view, &host.err));
            for (uint64_t k = 0; k < s->n_elems; k++) {
                struct host_at at = {0, 0, s->param, s->param_offset_elems + k};

                host_write(&view, s->shard_offset_elems + k, small(at));
            }
        }
    }
    edit_end(&host);
    for (uint32_t param = 0; param < host.n_params; param++) {
        param_expect(&host, param, small);
    }
    host_close(&host);
}

START_TEST(edit_of_own_slices_is_seen_by_all)
{
    host_settings_set(_i / 4, _i % 4 == 0   ? ""
                              : _i % 4 == 1 ? "shard_size=2"
                              : _i % 4 == 2 ? "param_dtype=bf16"
                                            : "param_dtype=bf16 shard_size=2");
    ranks_run(4, RANKS_LIMIT_MS, slices_rank, NULL);
}
END_TEST

/* Many edits in a row, read at once: none may be overtaken by the next. */
static uint32_t edit_number;

static double numbered(struct host_at at)
{
    (void)at;
    return edit_number;
}

static void many_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=3", host_settings, "unit a: w[3000]; unit b: x[5]");
    for (edit_number = 1; edit_number < 30; edit_number++) {
        host_load(&host, numbered);
        host_expect_param(&host, "w", edit_number);
        host_expect_param(&host, "x", edit_number);
    }
    host_close(&host);
}

START_TEST(edits_in_a_row_are_seen_one_by_one)
{
    host_settings_set(_i, "param_dtype=bf16");
    ranks_run(3, RANKS_LIMIT_MS, many_rank, NULL);
}
END_TEST

/* -------------------------------------------------------------- between passes and the step */

static double mean_of_two(struct host_at at)
{
    return at.rank == 0 ? 1.0 : 3.0;
}

static void between_rank(uint32_t rank, void *scope)
{
    struct host host;

    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5]; unit b: x[1031]");
    host_backward(&host, *(int32_t *)scope, 0, mean_of_two);
    host_load(&host, small);
    host_backward(&host, HSDP_SCOPE_FULL, 1, mean_of_two);
    host_load(&host, small);
    host_step(&host, 0.0);
    host_expect_grad(&host, "w", 4.0);
    host_expect_grad(&host, "x", 4.0);
    host_descend(&host, 0.0, 1.0);
    host_step_end(&host);
    param_expect(&host, 1, small);
    host_close(&host);
}

START_TEST(edit_in_a_window_keeps_its_gradients)
{
    static const char *const scopes[] = {"accumulation_scope=none", "accumulation_scope=inner",
                                         "accumulation_scope=full"};
    int32_t scope = _i % 3;

    host_settings_set(_i / 3, scopes[scope]);
    ranks_run(2, RANKS_LIMIT_MS, between_rank, &scope);
}
END_TEST

/* --------------------------------------------------------------------------------- replicas */

/* Replicas that were filled with their rank: masters, frozen ones, and states. */
static void sync_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor view;
    struct host host;
    uint32_t state;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, "unit a: w[5] k[3]!; unit b: x[100000]");
    host_must(&host, host.api->model->state_create(host.model, "m", "bf16", &state, &host.err));
    edit_begin(&host);
    for (uint32_t unit = 0; unit < 2; unit++) {
        for (uint32_t buffer = 0; buffer < 2 - unit; buffer++) {
            host_must(&host, host.api->model->flat_view(host.model, unit, buffer, HSDP_FLAT_MASTER,
                                                        &view, &host.err));
            for (uint64_t i = 0; i < (uint64_t)view.shape[0]; i++) {
                host_write(&view, i, rank + 1.0);
            }
        }
        host_must(&host, host.api->model->flat_view(host.model, unit, 0, HSDP_FLAT_STATE, &view,
                                                    &host.err));
        for (uint64_t i = 0; i < (uint64_t)view.shape[0]; i++) {
            host_write(&view, i, rank + 1.0);
        }
    }
    host_must(&host, host.api->model->sync(host.model, NULL, &host.err));
    for (uint32_t unit = 0; unit < 2; unit++) {
        uint32_t writer;

        host_must(&host, host.api->plan->writer(host.plan, unit, HSDP_SHARD_STEP, rank, &writer,
                                                &host.err));
        for (int kind = 0; kind < 3 - (int)unit; kind++) {
            host_must(&host, host.api->model->flat_view(
                                 host.model, unit, kind == 2 ? 1 : 0,
                                 kind == 1 ? HSDP_FLAT_STATE : HSDP_FLAT_MASTER, &view, &host.err));
            for (uint64_t i = 0; i < (uint64_t)view.shape[0]; i++) {
                host_expect_number(&host, "replica", i, host_read(&view, i), writer + 1.0);
            }
        }
    }
    edit_end(&host);
    host_close(&host);
}

START_TEST(sync_gives_all_replicas_the_values_of_the_first)
{
    host_settings_set(_i / 2, _i % 2 == 0 ? "shard_size=2" : "shard_size=2 param_dtype=fp16");
    ranks_run(4, RANKS_LIMIT_MS, sync_rank, NULL);
}
END_TEST

/* The second state is another one on the last rank. */
static void other_states_rank(uint32_t rank, void *shared)
{
    const struct hsdp_model_ops *ops;
    struct host host;
    uint32_t state;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5]");
    ops = host.api->model;
    host_must(&host, ops->state_create(host.model, "m", "fp32", &state, &host.err));
    host_must(&host,
              ops->state_create(host.model, "v", rank == 0 ? "fp32" : "bf16", &state, &host.err));
    edit_begin(&host);
    host_must_refuse(&host, ops->sync(host.model, NULL, &host.err), HSDP_ERR_INVALID,
                     "\"m fp32, v fp32\" on rank 0, \"m fp32, v bf16\" on rank 1");
    edit_end(&host);
    host_load(&host, small);
    param_expect(&host, 0, small);
    host_close(&host);
}

START_TEST(sync_of_other_states_on_a_rank_is_refused_on_all)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, other_states_rank, NULL);
}
END_TEST

static void other_param_rank(uint32_t rank, void *shared)
{
    float values[7];
    struct hsdp_tensor full;
    struct host host;
    int32_t status;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5] v[7]");
    full = host_tensor(&host, rank, values, "fp32");
    status = export(&host, rank, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS);
    ck_assert(status == HSDP_ERR_MISMATCH || status == HSDP_ERR_ABORTED);
    ck_assert_ptr_nonnull(strstr(host.err.message,
                                 "rank 0 is in model.export_param of \"w\" (master), rank 1 in "
                                 "model.export_param of \"v\" (master)"));
    ck_assert_int_eq(host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
    host_leave(&host);
}

/* Rank 1 imports from itself what rank 0 imports from rank 0, or exports it. */
static void other_movement_rank(uint32_t rank, void *shared)
{
    bool is_export = *(bool *)shared && rank == 1;
    float values[7] = {0};
    struct hsdp_tensor full;
    struct host host;
    int32_t status;

    host_open(&host, rank, "dp=2", host_settings, "unit a: w[7]");
    full = host_tensor(&host, 0, values, "fp32");
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    status = is_export ? export(&host, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS)
                       : host.api->model->import_param(host.model, 0, HSDP_FLAT_MASTER, &full, rank,
                                                       NULL, &host.err);
    ck_assert_msg(status == HSDP_ERR_MISMATCH || status == HSDP_ERR_ABORTED, "%d", status);
    ck_assert_ptr_nonnull(
        strstr(host.err.message, *(bool *)shared
                                     ? "rank 0 is in model.import_param of \"w\" (master), rank 1 "
                                       "in model.export_param of \"w\" (master)"
                                     : "rank 0 names rank 0, rank 1 names rank 1"));
    host_leave(&host);
}

START_TEST(import_from_another_rank_than_the_peer_fails_the_job)
{
    bool is_export = false;

    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, other_movement_rank, &is_export);
}
END_TEST

START_TEST(import_of_what_the_peer_exports_fails_the_job)
{
    bool is_export = true;

    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, other_movement_rank, &is_export);
}
END_TEST

START_TEST(export_of_another_parameter_on_a_rank_fails_the_job)
{
    host_settings_set(_i, "");
    ranks_run(2, RANKS_LIMIT_MS, other_param_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("edit");
    TCase *tcase = tcase_create("edit");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, edit_calls_out_of_order_are_refused, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, import_and_export_of_what_does_not_fit_are_refused, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, import_then_export_returns_the_values, 0, 3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, import_from_and_export_to_one_rank_move_large_parameters, 0,
                        4 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, export_of_many_pieces_returns_each, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, import_of_experts_comes_from_each_own_peer, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, edit_of_own_slices_is_seen_by_all, 0, 4 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, edits_in_a_row_are_seen_one_by_one, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, edit_in_a_window_keeps_its_gradients, 0, 3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sync_gives_all_replicas_the_values_of_the_first, 0,
                        2 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sync_of_other_states_on_a_rank_is_refused_on_all, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, import_from_another_rank_than_the_peer_fails_the_job, 0,
                        HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, import_of_what_the_peer_exports_fails_the_job, 0, HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, export_of_another_parameter_on_a_rank_fails_the_job, 0,
                        HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
