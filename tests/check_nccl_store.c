/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL store, on doubles of device and library: every strategy against the shm store. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hsdp/unit.h"
#include "ranks.h"
#include "store_pair.h"
#include "suite.h"

#define NONE  HSDP_SCOPE_NONE
#define INNER HSDP_SCOPE_INNER
#define FULL  HSDP_SCOPE_FULL

static const char *const rows[] = {"ddp", "zero1", "zero2", "fsdp", "hsdp", "hsdp_zero2", "hfsdp"};

#define N_STRATEGIES N_OF(rows)

/* What a strategy is run with. Sums of a narrow wire are in one order: in later stages, which are
 * NCCL's own sums, where these are of two ranks at most. */
struct variant {
    uint32_t n_ranks;
    const char *dims;
    const char *settings;
    const char *expert;
    int32_t scopes[3];
    bool is_exact;
};

static const struct variant variants[] = {
    {4, "dp=2,cp=2", "", "", {FULL, FULL, FULL}, false},
    {4, "dp=2,cp=2", "reduce_dtype=bf16 slots=1", "", {FULL, FULL, FULL}, true},
    {4, "dp=2,ep=2", "reduce_dtype=bf16 slots=3", "dp", {NONE, NONE, FULL}, true},
    {4,
     "dp=2,ep=2",
     "accumulation_scope=inner reduce_dtype=fp16",
     "dp",
     {INNER, INNER, FULL},
     true},
    {4, "dp=2,ep=2", "accumulation_scope=inner", "dp", {INNER, FULL, FULL}, false},
    {4, "dp=4", "param_dtype=bf16 reduce_dtype=bf16", "", {NONE, FULL, FULL}, true},
    {4, "dp=1,cp=4", "reduce_dtype=bf16 gradient_dtype=fp32", "", {NONE, NONE, FULL}, true},
    {3, "dp=3", "reduce_dtype=bf16", "", {NONE, NONE, FULL}, true},
    {1, "dp=1", "reduce_dtype=bf16 param_dtype=bf16", "", {NONE, FULL, FULL}, true},
    {2,
     "PP=1,dp=2",
     "gradient_dtype=bf16 master_dtype=fp32 param_dtype=fp16",
     "",
     {FULL, NONE, FULL},
     false},
    {4, "TP=2,dp=2", "reduce_dtype=bf16", "", {NONE, NONE, FULL}, true},
    {8, "dp=2,cp=4", "reduce_dtype=bf16", "", {FULL, FULL, FULL}, true},
    {8, "dp=4,ep=2", "", "dp", {NONE, FULL, FULL}, false},
    {8,
     "dp=2,cp=2,ep=2",
     "accumulation_scope=inner reduce_dtype=bf16",
     "dp,cp",
     {INNER, INNER, FULL},
     true},
};

#define N_VARIANTS N_OF(variants)

static void window_run(struct pair *pair, uint64_t seed)
{
    for (int m = 0; m < 3; m++) {
        pair_forward(pair);
        pair_backward(pair, pair->row->scopes[m], seed + (uint64_t)m);
    }
    pair_compare(pair);
    pair_step(pair, 0.75);
    pair_fill(pair, seed);
    pair_publish(pair, PUBLISHED_TRAINABLE);
}

static void training_rank(uint32_t rank, void *shared)
{
    const struct pair_case *row = shared;
    struct pair pair;

    (void)rank;
    pair_open(&pair, row);
    pair_forward(&pair); /* zeros */
    pair_fill(&pair, 99);
    pair_publish(&pair, PUBLISHED_ALL);
    for (uint64_t window = 0; window < 3; window++) {
        window_run(&pair, 10 * window);
    }
    pair_forward(&pair);
    pair_close(&pair);
}

START_TEST(windows_of_any_strategy_equal_those_of_shm)
{
    const struct variant *variant = &variants[_i / N_STRATEGIES];
    struct pair_case row = {.dims = variant->dims, .expert = variant->expert};
    char settings[256];

    snprintf(settings, sizeof(settings), "sharding_strategy=%s %s", rows[_i % N_STRATEGIES],
             variant->settings);
    row.settings = settings;
    row.is_exact = variant->is_exact;
    memcpy(row.scopes, variant->scopes, sizeof(row.scopes));
    ranks_run(variant->n_ranks, RANKS_LIMIT_MS, training_rank, &row);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nccl_store");
    TCase *stores = tcase_create("stores");

    tcase_set_timeout(stores, 60);
    tcase_add_loop_test(stores, windows_of_any_strategy_equal_those_of_shm, 0,
                        N_STRATEGIES * N_VARIANTS);
    suite_add_tcase(suite, stores);
    return suite;
}
