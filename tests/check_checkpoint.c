/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: saved with one strategy, resumed with another, as if nothing had happened. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

/* Exact in every dtype. */
static double small(struct host_at at)
{
    return (double)((at.elem * 7 + at.param * 3 + at.rank) % 64) - 32.0;
}

/* A checkpoint, as a host would write it: full tensors of masters and both states. */
#define SAVED_ELEMS 1100
struct saved {
    float values[3][SAVED_ELEMS];
    double norm;
};

static double uneven(struct host_at at)
{
    return ldexp((double)((at.elem * 31 + at.rank * 17 + at.microbatch * 5) % 128) - 64.0,
                 (int)(at.elem % 7) - 3);
}

static void steps_run(struct host *host, uint32_t first, uint32_t n_steps)
{
    for (uint32_t step = first; step < first + n_steps; step++) {
        host_backward(host, HSDP_SCOPE_FULL, step, uneven);
        host_step(host, 1.0);
        host_must(host, host_adamw(host, 0.01, 0.1));
        host_step_end(host);
    }
}

static void checkpoint_save(struct host *host, struct saved *saved)
{
    static const int32_t flats[] = {HSDP_FLAT_MASTER, HSDP_FLAT_STATE, HSDP_FLAT_STATE + 1};

    for (int kind = 0; kind < 3; kind++) {
        uint64_t at = 0;

        for (uint32_t param = 0; param < host->n_params; param++) {
            uint64_t n_elems = host->params[param].n_elems;
            const float *values = host_export(host, param, flats[kind]);

            memcpy(saved->values[kind] + at, values, n_elems * sizeof(float));
            at += n_elems;
        }
        ck_assert_uint_le(at, SAVED_ELEMS);
    }
}

static void checkpoint_load(struct host *host, struct saved *saved)
{
    static const int32_t flats[] = {HSDP_FLAT_MASTER, HSDP_FLAT_STATE, HSDP_FLAT_STATE + 1};
    uint32_t state;

    host_must(host,
              host->api->model->state_create(host->model, "exp_avg", "fp32", &state, &host->err));
    host_must(host, host->api->model->state_create(host->model, "exp_avg_sq", "fp32", &state,
                                                   &host->err));
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
    for (int kind = 0; kind < 3; kind++) {
        float *values = saved->values[kind];

        for (uint32_t param = 0; param < host->n_params; param++) {
            struct hsdp_tensor full = host_tensor(host, param, values, "fp32");

            host_must(host, host->api->model->import_param(host->model, param, flats[kind], &full,
                                                           HSDP_ALL_RANKS, NULL, &host->err));
            values += host->params[param].n_elems;
        }
    }
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
}

/* Two steps here, two more with another strategy and split; the adamw of the second counts on. */
static void resume_rank(uint32_t rank, void *index)
{
    static struct saved half;
    static struct saved resumed;
    static struct saved straight;
    const char *plan = "unit a: w[1031] s[]; unit b: x[5,3]";
    const char *other = host_strategies[(*(int *)index + 3) % HOST_N_STRATEGIES];
    char settings[64];
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, plan);
    host_load(&host, small);
    steps_run(&host, 0, 2);
    checkpoint_save(&host, &half);
    steps_run(&host, 2, 2);
    checkpoint_save(&host, &straight);
    host.api->model->destroy(host.model);
    host.api->plan->destroy(host.plan);
    snprintf(settings, sizeof(settings), "sharding_strategy=%s shard_size=2", other);
    host_plan(&host, settings, plan);
    host_model(&host);
    steps_run(&host, 0, 2); /* any two, for the number of the step */
    checkpoint_load(&host, &half);
    steps_run(&host, 2, 2);
    checkpoint_save(&host, &resumed);
    ck_assert_mem_eq(&resumed, &straight, sizeof(resumed));
    host_close(&host);
}

START_TEST(training_resumed_with_another_strategy_has_the_same_bits)
{
    host_settings_set(_i, "");
    ranks_run(4, RANKS_LIMIT_MS, resume_rank, &_i);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tcase = tcase_create("checkpoint");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, training_resumed_with_another_strategy_has_the_same_bits, 0,
                        HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
