/* SPDX-License-Identifier: Apache-2.0 */
/* All strategies, on all splits of the data ranks, train with identical bits. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

#define N_STEPS   4
#define MAX_ELEMS 8192

/* One way of training; all ways of a test end with the same parameters. */
struct training {
    const char *dims;
    const char *units;
    const char *wire;
    const char *param_dtype;
    int32_t scope;       /* of all microbatches but a window's last */
    uint32_t shard_size; /* 0 = dp stays whole */
    const char *strategy;
    /* What comes out, of the first and the last rank: masters, then a double for each step. */
    uint32_t n_elems;
    float elems[2][MAX_ELEMS];
    double norms[2][N_STEPS];
};

static const char dense[] = "unit a: w[1031] s[]; unit b: x[37,5]@1 y[3]; unit c: z[2,1024]";
static const char experts[] =
    "unit a: w[1031] s[]; class expert(dp); unit e: x[37,5]@1 y[3]; unit f: z[2,1024]";

/* A number without pattern; the exponents of gradients spread over 40 binary orders. */
static uint64_t mixed(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b;

    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9) + c;
    x = (x ^ x >> 32) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static double weight(struct host_at at)
{
    return (double)(mixed(at.rank + 1, at.param, at.elem) >> 11) * 0x1p-52 - 1.0;
}

static double gradient(struct host_at at)
{
    uint64_t bits = mixed(at.rank + 64u * at.microbatch + 100, at.param, at.elem);

    return ldexp((double)(bits >> 11) * 0x1p-52 - 1.0, (int)(bits % 41u) - 20);
}

static void values_take(struct host *host, struct training *training, int row)
{
    uint32_t n_elems = 0;

    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *values = host_export(host, param, HSDP_FLAT_MASTER);

        memcpy(training->elems[row] + n_elems, values, host->params[param].n_elems * sizeof(float));
        n_elems += (uint32_t)host->params[param].n_elems;
    }
    ck_assert_uint_le(n_elems, MAX_ELEMS);
    training->n_elems = n_elems;
}

static void training_rank(uint32_t rank, void *shared)
{
    struct training *training = shared;
    bool is_last = rank != 0;
    char settings[256];
    char split[32] = "";
    struct host host;

    if (training->shard_size != 0) {
        snprintf(split, sizeof(split), "shard_size=%u", training->shard_size);
    }
    snprintf(settings, sizeof(settings),
             "sharding_strategy=%s reduce_dtype=%s param_dtype=%s accumulation_scope=%s %s",
             training->strategy, training->wire, training->param_dtype,
             training->scope == HSDP_SCOPE_INNER ? "inner" : "none", split);
    host_open(&host, rank, training->dims, settings, training->units);
    host_load(&host, weight);
    for (uint32_t step = 0; step < N_STEPS; step++) {
        struct hsdp_step_info result;

        host_forward(&host);
        host_backward(&host, training->scope, 2 * step, gradient);
        host_forward(&host);
        host_backward(&host, HSDP_SCOPE_FULL, 2 * step + 1, gradient);
        result = host_step(&host, 1.0);
        training->norms[is_last][step] = result.norm;
        host_must(&host, host_adamw(&host, 1e-2, 0.1));
        host_step_end(&host);
    }
    if (rank == 0 || rank == host.n_ranks - 1) {
        values_take(&host, training, is_last);
    } else {
        static struct training ignored;

        values_take(&host, &ignored, 0); /* exporting is collective */
    }
    host_close(&host);
}

static struct training *training_run(const struct training *spec, const char *strategy,
                                     uint32_t shard_size, uint32_t n_ranks)
{
    struct training *training = ranks_memory(sizeof(*training));

    *training = *spec;
    training->strategy = strategy;
    training->shard_size = shard_size;
    ranks_run(n_ranks, RANKS_LIMIT_MS, training_rank, training);
    return training;
}

static bool is_same(const struct training *a, const struct training *b)
{
    return a->n_elems == b->n_elems && a->n_elems > 0 &&
           memcmp(a->elems[0], b->elems[0], a->n_elems * sizeof(float)) == 0 &&
           memcmp(a->elems[1], b->elems[1], a->n_elems * sizeof(float)) == 0 &&
           memcmp(a->norms[0], b->norms[0], sizeof(a->norms[0])) == 0;
}

static void same_expect(const struct training *a, const struct training *b)
{
    ck_assert_msg(is_same(a, b), "%s with shard_size %u ends with other bits than %s with %u",
                  b->strategy, b->shard_size, a->strategy, a->shard_size);
}

/* Every strategy on every split, 0 = none, against the first. */
static void splits_run(const struct training *spec, const uint32_t *shard_sizes, int n_shard_sizes,
                       uint32_t n_ranks)
{
    struct training *first = training_run(spec, "ddp", shard_sizes[0], n_ranks);

    for (int i = 0; i < n_shard_sizes * HOST_N_STRATEGIES; i++) {
        same_expect(first, training_run(spec, host_strategies[i % HOST_N_STRATEGIES],
                                        shard_sizes[i / HOST_N_STRATEGIES], n_ranks));
    }
}

/* Index: scope none or full, times the wire. */
static struct training training_spec(int index, const char *dims, const char *units)
{
    struct training spec = {.dims = dims, .units = units, .param_dtype = "fp32"};

    spec.scope = index % 2 == 0 ? HSDP_SCOPE_NONE : HSDP_SCOPE_FULL;
    spec.wire = index / 2 == 0 ? "fp32" : "bf16";
    return spec;
}

START_TEST(training_on_every_split_of_four_ranks_gives_the_same_bits)
{
    static const uint32_t shard_sizes[] = {1, 2, 4};
    struct training spec = training_spec(_i, "dp=4", dense);

    splits_run(&spec, shard_sizes, N_OF(shard_sizes), 4);
}
END_TEST

START_TEST(training_on_every_split_of_eight_ranks_gives_the_same_bits)
{
    static const uint32_t shard_sizes[] = {2, 4};
    struct training spec = training_spec(_i, "dp=8", dense);

    splits_run(&spec, shard_sizes, N_OF(shard_sizes), 8);
}
END_TEST

/* The outermost dimension may be odd. */
START_TEST(training_on_every_split_of_six_ranks_gives_the_same_bits)
{
    static const uint32_t shard_sizes[] = {1, 2};
    struct training spec = training_spec(_i, "dp=6", dense);

    splits_run(&spec, shard_sizes, N_OF(shard_sizes), 6);
}
END_TEST

/* So may an inner one: then the strategies still agree with each other, and not with another split.
 */
START_TEST(training_on_an_odd_split_gives_the_same_bits_with_every_strategy)
{
    static const uint32_t three[] = {3};
    struct training spec = training_spec(_i, "dp=6", dense);

    splits_run(&spec, three, 1, 6);
    ck_assert(!is_same(training_run(&spec, "fsdp", 3, 6), training_run(&spec, "fsdp", 2, 6)));
}
END_TEST

/* Parts of the step shard that replicas sum up for each other: uneven, and some empty. */
START_TEST(training_on_an_odd_number_of_ranks_gives_the_same_bits)
{
    static const struct {
        const char *dims;
        uint32_t n_ranks;
    } rows[] = {{"dp=3", 3}, {"dp=5", 5}, {"dp=9", 9}};
    static const uint32_t one[] = {1};
    struct training spec = training_spec(_i % 4, rows[_i / 4].dims, dense);

    splits_run(&spec, one, 1, rows[_i / 4].n_ranks);
}
END_TEST

START_TEST(training_of_experts_with_every_strategy_gives_the_same_bits)
{
    static const uint32_t whole[] = {0};
    struct training spec = training_spec(_i, "dp=2,ep=2", experts);

    spec.param_dtype = "bf16";
    splits_run(&spec, whole, 1, 4);
}
END_TEST

START_TEST(training_gives_the_same_bits_on_every_rank)
{
    struct training spec = training_spec(0, "dp=4", dense);
    struct training *training = training_run(&spec, host_strategies[_i], 2, 4);

    ck_assert_mem_eq(training->elems[0], training->elems[1], training->n_elems * sizeof(float));
    ck_assert_mem_eq(training->norms[0], training->norms[1], sizeof(training->norms[0]));
}
END_TEST

/* Reducing over the inner ranks first is another order: equal within three classes, not between.
 * So the comparison above can fail. */
START_TEST(training_with_inner_scope_has_three_classes_of_bits)
{
    static const int classes[HOST_N_STRATEGIES] = {0, 0, 1, 1, 2, 2, 2};
    struct training spec = training_spec(0, "dp=4", dense);
    struct training *trainings[HOST_N_STRATEGIES];

    spec.scope = HSDP_SCOPE_INNER;
    for (int i = 0; i < HOST_N_STRATEGIES; i++) {
        trainings[i] = training_run(&spec, host_strategies[i], 2, 4);
        for (int j = 0; j < i; j++) {
            ck_assert_msg(is_same(trainings[i], trainings[j]) == (classes[i] == classes[j]),
                          "%s and %s", host_strategies[i], host_strategies[j]);
        }
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("same_bits");
    TCase *tcase = tcase_create("same_bits");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, training_on_every_split_of_four_ranks_gives_the_same_bits, 0, 4);
    tcase_add_loop_test(tcase, training_on_every_split_of_eight_ranks_gives_the_same_bits, 0, 4);
    tcase_add_loop_test(tcase, training_on_every_split_of_six_ranks_gives_the_same_bits, 0, 4);
    tcase_add_loop_test(tcase, training_on_an_odd_split_gives_the_same_bits_with_every_strategy, 0,
                        4);
    tcase_add_loop_test(tcase, training_on_an_odd_number_of_ranks_gives_the_same_bits, 0, 12);
    tcase_add_loop_test(tcase, training_of_experts_with_every_strategy_gives_the_same_bits, 0, 4);
    tcase_add_loop_test(tcase, training_gives_the_same_bits_on_every_rank, 0, HOST_N_STRATEGIES);
    tcase_add_test(tcase, training_with_inner_scope_has_three_classes_of_bits);
    suite_add_tcase(suite, tcase);
    return suite;
}
