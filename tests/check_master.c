/* SPDX-License-Identifier: Apache-2.0 */
/* Masters of every dtype beside parameters of every dtype: rounded once wherever they are stored.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "device/adamw.h"
#include "host.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS   4u
#define N_STEPS   3
#define N_PAIRS   9
#define MAX_ELEMS 2048
#define RATE      0.03125
#define DECAY     0.25
#define UNITS     "unit a: w[1031] s[]; unit b: x[37,5] k[9]!; unit c: y[3]"

/* Which of the nine pairs, and of the strategies, a test runs: ranks inherit them. */
static const char *master_dtype;
static const char *param_dtype;

static void pair_set(int pair, int strategy)
{
    char more[96];

    master_dtype = host_dtypes[pair / 3];
    param_dtype = host_dtypes[pair % 3];
    snprintf(more, sizeof(more), "shard_size=2 master_dtype=%s param_dtype=%s", master_dtype,
             param_dtype);
    host_settings_set(strategy, more);
}

static uint64_t mixed(struct host_at at)
{
    uint64_t x = at.elem * UINT64_C(0x9e3779b97f4a7c15) + 7919u * at.param + 104729u * at.rank +
                 31u * at.microbatch;

    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

/* Full 24-bit numbers of many sizes, and halfway between neighbours of bf16 and of fp16. */
static double weight(struct host_at at)
{
    uint64_t bits = mixed((struct host_at){0, 0, at.param, at.elem});
    double value = ldexp(1.0 + (double)(bits >> 41) * 0x1p-23, (int)(bits % 30u) - 22);

    if (at.elem % 5 == 0) {
        value = 1.0 + (double)(bits % 128u) * 0x1p-7 + 0x1p-8;
    } else if (at.elem % 5 == 1) {
        value = 1.0 + (double)(bits % 1024u) * 0x1p-10 + 0x1p-11;
    }
    return (bits >> 20 & 1u) != 0 ? -value : value;
}

static double gradient(struct host_at at)
{
    uint64_t bits = mixed(at);

    return ldexp((double)(bits >> 40) * 0x1p-23 - 1.0, (int)(bits % 12u) - 6);
}

/* ------------------------------------------------------------------------------ one parameter */

static void elem_expect(struct host *host, const char *what, uint32_t param, uint64_t elem,
                        double found, double expected)
{
    if (found != expected) {
        ck_abort_msg("rank %u, master %s, parameters %s: %s of %s[%u] is %a, not %a", host->rank,
                     master_dtype, param_dtype, what, host->params[param].name, (unsigned)elem,
                     found, expected);
    }
}

/* What is read in a pass is the master, rounded once more to param_dtype. */
static void views_expect(struct host *host)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *masters = host_export(host, param, HSDP_FLAT_MASTER);
        struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);

        host_must(host, host_unshard(host, host->params[param].unit, HSDP_USE_FORWARD));
        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            elem_expect(host, "the view", param, elem, host_read(&view, elem),
                        host_round((double)masters[elem], param_dtype));
        }
        host_must(host, host_release(host, host->params[param].unit));
    }
}

/* ------------------------------------------------------------------------------------ loading */

static void load_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, UNITS);
    host_load(&host, weight);
    for (uint32_t param = 0; param < host.n_params; param++) {
        const float *masters = host_export(&host, param, HSDP_FLAT_MASTER);

        for (uint64_t elem = 0; elem < host.params[param].n_elems; elem++) {
            double loaded = weight((struct host_at){0, 0, param, elem});

            elem_expect(&host, "the master", param, elem, (double)masters[elem],
                        host_round(loaded, master_dtype));
        }
    }
    views_expect(&host);
    host_close(&host);
}

START_TEST(load_rounds_to_the_master_and_then_to_the_parameter)
{
    pair_set(_i / HOST_N_STRATEGIES, _i % HOST_N_STRATEGIES);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, load_rank, NULL);
}
END_TEST

static void flat_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor master;
    struct hsdp_model_info info = HSDP_MODEL_INFO_INIT;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, UNITS);
    host_must(&host,
              host.api->model->flat_view(host.model, 1, 1, HSDP_FLAT_MASTER, &master, &host.err));
    ck_assert_uint_eq(master.dtype_bits, strcmp(master_dtype, "fp32") == 0 ? 32 : 16);
    ck_assert_uint_eq(master.dtype_code,
                      strcmp(master_dtype, "bf16") == 0 ? HSDP_DTYPE_BFLOAT : HSDP_DTYPE_FLOAT);
    host_must(&host, host.api->model->info(host.model, &info, &host.err));
    ck_assert_int_eq(info.master_bytes == 0, strcmp(master_dtype, param_dtype) == 0);
    host_close(&host);
}

START_TEST(flat_view_of_a_master_has_its_dtype)
{
    pair_set(_i, _i % HOST_N_STRATEGIES);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, flat_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- stepping */

/* The plugin's kernel in fp32 on whole parameters: what the masters are rounded from. */
struct model {
    float params[MAX_ELEMS];
    float exp_avg[MAX_ELEMS];
    float exp_avg_sq[MAX_ELEMS];
    float grads[MAX_ELEMS];
};

static void model_step(struct host *host, uint32_t param, struct model *model, uint64_t step,
                       double factor)
{
    const struct adamw_hyper hyper = {RATE, DECAY, 0.9, 0.95, 1e-8};
    struct adamw_constants constants = adamw_constants_compute(&hyper, step);
    uint64_t n_elems = host->params[param].n_elems;
    struct adamw_shard shard = {.params = model->params,
                                .exp_avg = model->exp_avg,
                                .exp_avg_sq = model->exp_avg_sq,
                                .grads = model->grads,
                                .n_elems = n_elems};

    memcpy(model->grads, host_export(host, param, HSDP_FLAT_GRAD), n_elems * sizeof(float));
    adamw_update(&constants, &shard, (float)factor);
    for (uint64_t elem = 0; elem < n_elems; elem++) {
        model->params[elem] = (float)host_round((double)model->params[elem], master_dtype);
    }
}

static void model_expect(struct host *host, uint32_t param, const struct model *model)
{
    const float *masters = host_export(host, param, HSDP_FLAT_MASTER);

    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        elem_expect(host, "the master", param, elem, (double)masters[elem],
                    (double)model->params[elem]);
    }
}

static void step_rank(uint32_t rank, void *shared)
{
    static struct model models[HOST_MAX_PARAMS];
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, UNITS);
    host_load(&host, weight);
    for (uint32_t param = 0; param < host.n_params; param++) {
        memcpy(models[param].params, host_export(&host, param, HSDP_FLAT_MASTER),
               host.params[param].n_elems * sizeof(float));
    }
    for (uint32_t step = 1; step <= N_STEPS; step++) {
        double factor;

        host_backward(&host, HSDP_SCOPE_FULL, step, gradient);
        factor = host_step(&host, 1.0).factor;
        for (uint32_t param = 0; param < host.n_params; param++) {
            if (!host.params[param].is_frozen) {
                model_step(&host, param, &models[param], step, factor);
            }
        }
        host_must(&host, host_adamw(&host, RATE, DECAY));
        host_step_end(&host);
        for (uint32_t param = 0; param < host.n_params; param++) {
            model_expect(&host, param, &models[param]);
        }
        views_expect(&host);
    }
    host_close(&host);
}

START_TEST(adamw_rounds_each_master_once_a_step)
{
    pair_set(_i / HOST_N_STRATEGIES, _i % HOST_N_STRATEGIES);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, step_rank, NULL);
}
END_TEST

/* An optimizer of the host's own, which writes the flat masters. */
static void descend_rank(uint32_t rank, void *shared)
{
    static float expected[1031];
    struct host host;
    const float *masters;
    const float *grads;
    uint32_t w;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, UNITS);
    host_load(&host, weight);
    w = host_param(&host, "w");
    memcpy(expected, host_export(&host, w, HSDP_FLAT_MASTER), sizeof(expected));
    host_backward(&host, HSDP_SCOPE_FULL, 0, gradient);
    host_step(&host, 0.0);
    grads = host_export(&host, w, HSDP_FLAT_GRAD);
    for (uint64_t elem = 0; elem < 1031; elem++) {
        double moved = (double)expected[elem] - RATE * (double)grads[elem];

        expected[elem] = (float)host_round(moved, master_dtype);
    }
    host_descend(&host, RATE, 1.0);
    host_step_end(&host);
    masters = host_export(&host, w, HSDP_FLAT_MASTER);
    for (uint64_t elem = 0; elem < 1031; elem++) {
        elem_expect(&host, "the master", w, elem, (double)masters[elem], (double)expected[elem]);
    }
    views_expect(&host);
    host_close(&host);
}

START_TEST(step_publishes_what_the_host_writes_to_a_master)
{
    pair_set(_i / HOST_N_STRATEGIES, _i % HOST_N_STRATEGIES);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, descend_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------- in place, or not */

static void training_rank(uint32_t rank, void *shared)
{
    float *elems = shared;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, UNITS);
    host_load(&host, weight);
    for (uint32_t step = 1; step <= N_STEPS; step++) {
        host_backward(&host, HSDP_SCOPE_FULL, step, gradient);
        host_step(&host, 1.0);
        host_must(&host, host_adamw(&host, RATE, DECAY));
        host_step_end(&host);
    }
    for (uint32_t param = 0; param < host.n_params; param++) {
        const float *masters = host_export(&host, param, HSDP_FLAT_MASTER);

        if (rank == 0) {
            memcpy(elems, masters, host.params[param].n_elems * sizeof(float));
        }
        elems += host.params[param].n_elems;
    }
    host_close(&host);
}

static const float *training_run(int pair, int strategy)
{
    float *elems = ranks_memory(MAX_ELEMS * sizeof(float));

    pair_set(pair, strategy);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, training_rank, elems);
    return elems;
}

START_TEST(training_in_place_or_not_ends_with_the_same_masters)
{
    int master = _i / HOST_N_STRATEGIES;
    int strategy = _i % HOST_N_STRATEGIES;
    const float *in_place = training_run(3 * master + master, strategy);

    for (int param = 0; param < 3; param++) {
        ck_assert_mem_eq(training_run(3 * master + param, strategy), in_place,
                         MAX_ELEMS * sizeof(float));
    }
}
END_TEST

START_TEST(training_with_masters_of_other_dtypes_ends_elsewhere)
{
    const float *fp32 = training_run(0, 3);
    const float *bf16 = training_run(4, 3);
    const float *fp16 = training_run(8, 3);

    ck_assert_int_ne(memcmp(fp32, bf16, MAX_ELEMS * sizeof(float)), 0);
    ck_assert_int_ne(memcmp(fp32, fp16, MAX_ELEMS * sizeof(float)), 0);
    ck_assert_int_ne(memcmp(bf16, fp16, MAX_ELEMS * sizeof(float)), 0);
}
END_TEST

/* ------------------------------------------------------------------------------------ editing */

/* Replicas that were filled with values of their own, from a tensor that one rank has. */
static void sync_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor master;
    const float *masters;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, UNITS);
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    host_must(&host,
              host.api->model->flat_view(host.model, 0, 0, HSDP_FLAT_MASTER, &master, &host.err));
    for (uint64_t i = 0; i < (uint64_t)master.shape[0]; i++) {
        host_write(&master, i, 1.0 + rank);
    }
    host_must(&host, host.api->model->sync(host.model, NULL, &host.err));
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    masters = host_export(&host, 0, HSDP_FLAT_MASTER);
    for (uint64_t elem = 0; elem < 1031; elem += 103) {
        double value = (double)masters[elem];

        ck_assert(value == 1.0 || strstr(host_settings, "ddp") == NULL);
        ck_assert(value >= 1.0 && value <= 4.0 && value == floor(value));
    }
    views_expect(&host);
    host_close(&host);
}

START_TEST(sync_gives_replicas_the_masters_of_the_first)
{
    pair_set(_i / HOST_N_STRATEGIES, _i % HOST_N_STRATEGIES);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, sync_rank, NULL);
}
END_TEST

/* A 16-bit tensor of one rank: its patterns arrive where the master can hold them. */
static void import_rank(uint32_t rank, void *shared)
{
    static uint16_t stored[1031];
    struct hsdp_tensor full;
    struct host host;
    const float *masters;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, UNITS);
    full = host_tensor(&host, 0, stored, "fp16");
    for (uint64_t elem = 0; elem < 1031; elem++) {
        host_write(&full, elem, weight((struct host_at){0, 0, 0, elem}));
    }
    host_must(&host, host.api->model->edit_begin(host.model, NULL, &host.err));
    host_must(&host, host.api->model->import_param(host.model, 0, HSDP_FLAT_MASTER,
                                                   rank == 1 ? &full : NULL, 1, NULL, &host.err));
    host_must(&host, host.api->model->edit_end(host.model, NULL, &host.err));
    masters = host_export(&host, 0, HSDP_FLAT_MASTER);
    for (uint64_t elem = 0; elem < 1031; elem++) {
        elem_expect(&host, "the master", 0, elem, (double)masters[elem],
                    host_round(host_read(&full, elem), master_dtype));
    }
    views_expect(&host);
    host_close(&host);
}

START_TEST(import_of_a_narrow_tensor_rounds_to_the_master)
{
    pair_set(_i, _i % HOST_N_STRATEGIES);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, import_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("master");
    TCase *tcase = tcase_create("master");
    int n_rows = N_PAIRS * HOST_N_STRATEGIES;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, load_rounds_to_the_master_and_then_to_the_parameter, 0, n_rows);
    tcase_add_loop_test(tcase, flat_view_of_a_master_has_its_dtype, 0, N_PAIRS);
    tcase_add_loop_test(tcase, adamw_rounds_each_master_once_a_step, 0, n_rows);
    tcase_add_loop_test(tcase, step_publishes_what_the_host_writes_to_a_master, 0, n_rows);
    tcase_add_loop_test(tcase, training_in_place_or_not_ends_with_the_same_masters, 0,
                        3 * HOST_N_STRATEGIES);
    tcase_add_test(tcase, training_with_masters_of_other_dtypes_ends_elsewhere);
    tcase_add_loop_test(tcase, sync_gives_replicas_the_masters_of_the_first, 0, n_rows);
    tcase_add_loop_test(tcase, import_of_a_narrow_tensor_rounds_to_the_master, 0, N_PAIRS);
    suite_add_tcase(suite, tcase);
    return suite;
}
