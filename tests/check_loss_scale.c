/* SPDX-License-Identifier: Apache-2.0 */
/* Training in fp16 with a loss scale: exact where it should be, and overflow told to every rank. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS   4u
#define N_STEPS   3
#define MAX_ELEMS 2048
#define UNITS     "unit a: w[1031] s[]; unit b: x[37,5] k[9]!; unit c: y[3]"
#define HALF      " gradient_dtype=fp16 reduce_dtype=fp16"

/* The values that ranks are given; they inherit them. */
static double loss_scale; /* gradients are written times this */
static bool is_overflowing;

/* What rank 0 ends with: masters one after another. */
struct training {
    float elems[MAX_ELEMS];
    double norms[N_STEPS];
    double factors[N_STEPS];
};

/* 11 significant bits, about 2^-20 to 2^-8: unscaled, most are too small for fp16. */
static double gradient(struct host_at at)
{
    uint64_t x = at.elem * UINT64_C(0x9e3779b97f4a7c15) + 7919u * at.param + 104729u * at.rank +
                 31u * at.microbatch;

    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return ldexp((double)(int)(x % 2048u) - 1024.0, -(int)(x >> 20 & 7u) - 19);
}

static double gradient_scaled(struct host_at at)
{
    bool is_it = is_overflowing && at.rank == 2 && at.param == 0 && at.elem == 517;

    return is_it ? 3.0 * loss_scale : gradient(at) * loss_scale;
}

static double weight(struct host_at at)
{
    return (double)((at.elem * 37u + at.param) % 101u) / 64.0 - 0.75;
}

static struct hsdp_step_info step_begin(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;

    spec.max_norm = 0.5;
    spec.gradient_scale = 1.0 / loss_scale;
    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
    host_must(host, host->api->step->result(host->model, &info, &host->err));
    return info;
}

static void masters_take(struct host *host, float *ret_elems)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        uint64_t n_elems = host->params[param].n_elems;

        memcpy(ret_elems, host_export(host, param, HSDP_FLAT_MASTER), n_elems * sizeof(float));
        ret_elems += n_elems;
    }
}

/* ------------------------------------------------------------------------------------ scaling */

static void training_rank(uint32_t rank, void *shared)
{
    static struct training mine;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, UNITS);
    host_load(&host, weight);
    for (uint32_t step = 0; step < N_STEPS; step++) {
        struct hsdp_step_info info;

        host_backward(&host, HSDP_SCOPE_FULL, step, gradient_scaled);
        info = step_begin(&host);
        ck_assert_uint_eq(info.is_nonfinite, 0);
        mine.norms[step] = info.norm;
        mine.factors[step] = info.factor * loss_scale;
        host_must(&host, host_adamw(&host, 0.01, 0.1));
        host_step_end(&host);
    }
    masters_take(&host, mine.elems);
    if (rank == 0) {
        memcpy(shared, &mine, sizeof(mine));
    }
    host_close(&host);
}

static const struct training *training_run(int strategy, const char *more, double scale)
{
    struct training *training = ranks_memory(sizeof(*training));

    loss_scale = scale;
    host_settings_set(strategy, more);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, training_rank, training);
    return training;
}

START_TEST(step_of_scaled_fp16_gradients_is_the_unscaled_step_of_fp32)
{
    static const double scales[] = {0x1p11, 0x1p16};
    const struct training *unscaled = training_run(_i, "", 1.0);

    ck_assert_double_gt(unscaled->norms[0], 0.0);
    for (int i = 0; i < 2; i++) {
        const struct training *scaled = training_run(_i, "shard_size=2" HALF, scales[i]);

        ck_assert_mem_eq(scaled->norms, unscaled->norms, sizeof(scaled->norms));
        ck_assert_mem_eq(scaled->factors, unscaled->factors, sizeof(scaled->factors));
        ck_assert_mem_eq(scaled->elems, unscaled->elems, sizeof(scaled->elems));
    }
}
END_TEST

/* So the comparison above can fail: without a scale fp16 loses the small ones. */
START_TEST(step_of_unscaled_fp16_gradients_is_another)
{
    const struct training *unscaled = training_run(3, "", 1.0);
    const struct training *half = training_run(3, HALF, 1.0);

    ck_assert_double_ne(half->norms[0], unscaled->norms[0]);
    ck_assert_int_ne(memcmp(half->elems, unscaled->elems, sizeof(half->elems)), 0);
}
END_TEST

/* ----------------------------------------------------------------------------------- overflow */

static void params_take(struct host *host, float *ret_elems)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);

        host_must(host, host_unshard(host, host->params[param].unit, HSDP_USE_FORWARD));
        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            *ret_elems++ = (float)host_read(&view, elem);
        }
        host_must(host, host_release(host, host->params[param].unit));
    }
}

/* Three times 2^15 is infinity in fp16. Nothing else is out of range. */
static void overflow_step(struct host *host)
{
    static float before[2][MAX_ELEMS];
    static float after[2][MAX_ELEMS];
    struct hsdp_step_info info;

    masters_take(host, before[0]);
    params_take(host, before[1]);
    is_overflowing = true;
    host_backward(host, HSDP_SCOPE_FULL, 7, gradient_scaled);
    is_overflowing = false;
    info = step_begin(host);
    ck_assert_uint_eq(info.is_nonfinite, 1);
    ck_assert(isinf(info.norm));
    ck_assert_double_eq(info.clip, 1.0);
    ck_assert_double_eq(info.factor, 1.0 / loss_scale);
    host_must(host, host->api->step->discard(host->model, NULL, &host->err));
    masters_take(host, after[0]);
    params_take(host, after[1]);
    ck_assert_mem_eq(after, before, sizeof(before));
}

static void scaler_rank(uint32_t rank, void *shared)
{
    struct training *training = shared;
    bool has_overflows = loss_scale > 0x1p14;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, UNITS);
    host_load(&host, weight);
    for (uint32_t step = 0; step < N_STEPS; step++) {
        if (has_overflows) { /* and go on with half the scale, as hosts do */
            loss_scale = 0x1p15;
            overflow_step(&host);
            loss_scale = 0x1p14;
        }
        host_backward(&host, HSDP_SCOPE_FULL, step, gradient_scaled);
        ck_assert_uint_eq(step_begin(&host).is_nonfinite, 0);
        host_must(&host, host_adamw(&host, 0.01, 0.1));
        host_step_end(&host);
    }
    if (rank == 0) {
        masters_take(&host, training->elems);
    } else {
        static float ignored[MAX_ELEMS];

        masters_take(&host, ignored); /* exporting is collective */
    }
    host_close(&host);
}

static const struct training *scaler_run(int strategy, const char *more, double scale)
{
    struct training *training = ranks_memory(sizeof(*training));
    char settings[160];

    snprintf(settings, sizeof(settings), "%s" HALF, more);
    loss_scale = scale;
    host_settings_set(strategy, settings);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, scaler_rank, training);
    return training;
}

/* Overflow on one rank is known to all, changes nothing, and leaves no trace in what follows. */
START_TEST(overflow_on_one_rank_is_discarded_by_all)
{
    static const char *const dtypes[] = {"", "param_dtype=fp16",
                                         "param_dtype=bf16 master_dtype=bf16",
                                         "param_dtype=fp16 master_dtype=fp16"};
    int strategy = _i % HOST_N_STRATEGIES;
    const char *more = dtypes[_i / HOST_N_STRATEGIES];
    const struct training *with = scaler_run(strategy, more, 0x1p15);
    const struct training *without = scaler_run(strategy, more, 0x1p14);

    ck_assert_mem_eq(with->elems, without->elems, sizeof(with->elems));
}
END_TEST

static double large(struct host_at at)
{
    (void)at;
    return 60000.0;
}

/* Only contributions have to fit: their sum is fp32. */
static void large_rank(uint32_t rank, void *shared)
{
    struct hsdp_step_info info;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, "unit a: w[4]");
    host_backward(&host, HSDP_SCOPE_NONE, 0, large);
    host_backward(&host, HSDP_SCOPE_FULL, 1, large);
    info = step_begin(&host);
    ck_assert_uint_eq(info.is_nonfinite, 0);
    host_expect_grad(&host, "w", 480000.0);
    ck_assert_double_eq(info.norm, 960000.0 / loss_scale);
    host_step_end(&host);
    host_close(&host);
}

START_TEST(sum_beyond_the_range_of_fp16_is_no_overflow)
{
    loss_scale = 0x1p10;
    host_settings_set(_i, "gradient_op=sum gradient_dtype=fp16 reduce_dtype=fp32");
    ranks_run(N_RANKS, RANKS_LIMIT_MS, large_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("loss_scale");
    TCase *tcase = tcase_create("loss_scale");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, step_of_scaled_fp16_gradients_is_the_unscaled_step_of_fp32, 0,
                        HOST_N_STRATEGIES);
    tcase_add_test(tcase, step_of_unscaled_fp16_gradients_is_another);
    tcase_add_loop_test(tcase, overflow_on_one_rank_is_discarded_by_all, 0, 4 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, sum_beyond_the_range_of_fp16_is_no_overflow, 0, HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
