/* SPDX-License-Identifier: Apache-2.0 */
/* verify=step:N over stages: copies of a parameter that differ are named on all ranks. */
#include <check.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* Three stages: "t" and "f" are in the first and the last, at other places, in other slices; "s" is
 * in all of them, and has another name in a unit of the last. */
static const char *const units[] = {
    "unit a: t[3000]~pp[0,-1] s[9]~pp; unit b: w[31] f[17]!~pp[0,-1]",
    "unit c: x[700]; unit d: s[9]~pp",
    "unit e: y[900] t[3000]~pp[0,-1]; unit h: f[17]!~pp[0,-1] s[9]~pp; unit i: z[5] r[9]=s",
};

static double scattered(struct host_at at)
{
    uint64_t x = at.elem * 2654435761u + at.microbatch * 69069u + at.rank + 1;

    x = (x ^ x >> 15) * UINT64_C(0x2c1b3c6d297a2d39);
    return (double)((x >> 20) & 0xffffff) / 0x1p20 - 8.0;
}

/* The same on all stages. */
static double weight(struct host_at at)
{
    at.rank = 0;
    return scattered(at);
}

static void stage_open(struct host *host, uint32_t rank)
{
    host_open(host, rank, "pp=3,dp=2", host_settings, units[rank / 2]);
    host_load(host, weight);
}

static int32_t step_open(struct host *host, uint32_t batch)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;

    host_forward(host);
    host_backward(host, HSDP_SCOPE_FULL, batch, scattered);
    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
    return host->api->step->result(host->model, &info, &host->err);
}

static void good_step(struct host *host, uint32_t batch)
{
    host_must(host, step_open(host, batch));
    host_must(host, host_adamw(host, 0.01, 0.1));
    host_step_end(host);
}

/* Changes an element in this rank's step shard, if it is there. */
static void elem_flip(struct host *host, const char *name, uint64_t elem, int32_t flat)
{
    uint32_t param = host_param(host, name);
    struct hsdp_segment segments[8];
    struct hsdp_tensor view;
    uint64_t n = 0;

    host_must(host, host->api->plan->segments(host->plan, host->params[param].unit, HSDP_SHARD_STEP,
                                              host->rank, segments, sizeof(segments[0]), 8, &n,
                                              &host->err));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = elem - segments[i].param_offset_elems;

        if (segments[i].param == param && at < segments[i].n_elems) {
            host_must(host,
                      host->api->model->flat_view(host->model, host->params[param].unit,
                                                  segments[i].buffer, flat, &view, &host->err));
            ((uint8_t *)device_window(
                &view, true))[(segments[i].shard_offset_elems + at) * view.dtype_bits / 8u] ^= 1u;
        }
    }
}

/* What is changed on all ranks of the last stage, and how it is called. */
static const struct {
    const char *param;
    uint64_t elem;
    int32_t flat;
    const char *settings;
    const char *found;
} flips[] = {
    {"t", 0, HSDP_FLAT_STATE, "", "values of state \"exp_avg\" of tied \"t\" differ"},
    {"t", 1500, HSDP_FLAT_STATE + 1, "", "values of state \"exp_avg_sq\" of tied \"t\" differ"},
    {"t", 2999, HSDP_FLAT_MASTER, "param_dtype=bf16", "masters of tied \"t\" differ"},
    {"s", 8, HSDP_FLAT_MASTER, "param_dtype=bf16", "masters of tied \"s\" differ"},
    {"f", 16, HSDP_FLAT_MASTER, "param_dtype=bf16", "masters of tied \"f\" differ"},
};

static void flip_rank(uint32_t rank, void *shared)
{
    int row = *(int *)shared;
    struct host host;

    stage_open(&host, rank);
    good_step(&host, 1);
    good_step(&host, 2);
    if (rank >= 4) {
        elem_flip(&host, flips[row].param, flips[row].elem, flips[row].flat);
    }
    host_must_refuse(&host, step_open(&host, 3), HSDP_ERR_DRIFT, flips[row].found);
    host_must_refuse(&host, host_adamw(&host, 0.01, 0.1), HSDP_ERR_DRIFT,
                     flips[row].param[0] == 's'
                         ? "the stage of rank 4 and that of rank 0; 2 of 3 replicas are as the"
                         : "the stage of rank 4 and that of rank 0; which of them is right");
    ck_assert_str_eq(host.err.unit, flips[row].param[0] == 'f' ? "b" : "a");
    host_must(&host, host.api->step->discard(host.model, NULL, &host.err));
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    host_must(&host, host.api->model->sync(host.model, NULL, &host.err));
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    good_step(&host, 4);
    good_step(&host, 5);
    host_close(&host);
}

/* Every strategy with every row. */
START_TEST(copies_that_differ_are_named_on_all_ranks_and_mended_by_sync)
{
    char settings[64];
    int row = _i / HOST_N_STRATEGIES;

    snprintf(settings, sizeof(settings), "verify=step:1 %s", flips[row].settings);
    host_settings_set(_i % HOST_N_STRATEGIES, settings);
    ranks_run(6, RANKS_LIMIT_MS, flip_rank, &row);
}
END_TEST

/* Stepped in place: the parameter itself, in the only copy of its stage. */
static void place_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    stage_open(&host, rank);
    good_step(&host, 1);
    host_forward(&host);
    if (rank < 2) {
        elem_flip(&host, "t", 2047, HSDP_FLAT_MASTER);
    }
    host_must_refuse(&host, step_open(&host, 2), HSDP_ERR_DRIFT,
                     "parameters of tied \"t\" differ between the stage of rank 4 and that of "
                     "rank 0");
    host_close(&host);
}

START_TEST(copies_stepped_in_place_that_differ_are_named)
{
    snprintf(host_settings, sizeof(host_settings), "sharding_strategy=%s verify=step:1",
             _i == 0 ? "ddp" : "fsdp");
    ranks_run(6, RANKS_LIMIT_MS, place_rank, NULL);
}
END_TEST

/* A replica that differs within its stage is named with its own rank, not only with its stage. */
static void replica_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    stage_open(&host, rank);
    good_step(&host, 1);
    if (rank == 4) {
        elem_flip(&host, "t", 7, HSDP_FLAT_STATE);
    }
    host_must_refuse(&host, step_open(&host, 2), HSDP_ERR_DRIFT,
                     "unit \"e\": values of state \"exp_avg\" differ between rank 5 and rank 4");
    host_close(&host);
}

START_TEST(copy_that_differs_from_its_replica_is_named_with_it)
{
    snprintf(host_settings, sizeof(host_settings), "sharding_strategy=ddp verify=step:1");
    ranks_run(6, RANKS_LIMIT_MS, replica_rank, NULL);
}
END_TEST

/* More tied things than one exchange carries: the last one's last state differs. */
static void many_rank(uint32_t rank, void *shared)
{
    uint32_t state = 0;
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=2,dp=1", host_settings,
              rank == 0 ? "unit a: a[1]~pp b[1]~pp c[1]~pp d[1]~pp; unit e: e[1]~pp"
                        : "unit a: e[1]~pp d[1]~pp; unit e: x[9] c[1]~pp b[1]~pp a[1]~pp");
    for (int i = 0; i < 30; i++) {
        char name[16];

        snprintf(name, sizeof(name), "s%d", i);
        host_must(&host,
                  host.api->model->state_create(host.model, name, "bf16", &state, &host.err));
    }
    if (rank == 1) {
        elem_flip(&host, "e", 0, HSDP_FLAT_STATE + (int32_t)state);
    }
    host_must_refuse(&host, step_open(&host, 1), HSDP_ERR_DRIFT,
                     "values of state \"s29\" of tied \"e\" differ");
    host_close(&host);
}

START_TEST(difference_of_the_last_of_many_ties_is_named)
{
    snprintf(host_settings, sizeof(host_settings), "sharding_strategy=ddp verify=step:1");
    ranks_run(2, RANKS_LIMIT_MS, many_rank, NULL);
}
END_TEST

/* Under fsdp only ties are compared, and the plan says so. */
static void note_rank(uint32_t rank, void *shared)
{
    char text[8192];
    uint64_t n_bytes;
    struct host host;

    (void)shared;
    stage_open(&host, rank);
    host_must(&host, host.api->plan->report(host.plan, text, sizeof(text), &n_bytes, &host.err));
    ck_assert_ptr_nonnull(strstr(text, "has no replicas under fsdp, so nothing of it but what is "
                                       "tied over other ranks is compared"));
    host_close(&host);
}

START_TEST(note_on_a_model_without_replicas_tells_of_ties)
{
    snprintf(host_settings, sizeof(host_settings), "sharding_strategy=fsdp verify=step:1");
    ranks_run(6, RANKS_LIMIT_MS, note_rank, NULL);
}
END_TEST

static void calm_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    stage_open(&host, rank);
    for (uint32_t step = 1; step <= 20; step++) {
        good_step(&host, step);
    }
    host_close(&host);
}

START_TEST(training_of_equal_copies_is_never_refused)
{
    static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
    char more[64];

    snprintf(more, sizeof(more), "verify=step:1 param_dtype=%s reduce_dtype=%s",
             dtypes[_i / HOST_N_STRATEGIES], dtypes[_i % 3]);
    host_settings_set(_i % HOST_N_STRATEGIES, more);
    ranks_run(6, RANKS_LIMIT_MS, calm_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("drift_ties");
    TCase *tcase = tcase_create("drift_ties");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, copies_that_differ_are_named_on_all_ranks_and_mended_by_sync, 0,
                        N_OF(flips) * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, copies_stepped_in_place_that_differ_are_named, 0, 2);
    tcase_add_test(tcase, copy_that_differs_from_its_replica_is_named_with_it);
    tcase_add_test(tcase, difference_of_the_last_of_many_ties_is_named);
    tcase_add_test(tcase, note_on_a_model_without_replicas_tells_of_ties);
    tcase_add_loop_test(tcase, training_of_equal_copies_is_never_refused, 0, 3 * HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
