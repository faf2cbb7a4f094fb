/* SPDX-License-Identifier: Apache-2.0 */
/* verify=step:N: one flipped bit on one rank is named on all, at the next step that is checked. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host.h"
#include "ranks.h"
#include "suite.h"

static double one(struct host_at at)
{
    (void)at;
    return 1.0;
}

/* Something else for every element, microbatch and rank; 24 bits, so that sums round. */
static double scattered(struct host_at at)
{
    uint64_t x = at.elem * 2654435761u + at.param * 40503u + at.microbatch * 69069u + at.rank + 1;

    x = (x ^ x >> 15) * UINT64_C(0x2c1b3c6d297a2d39);
    return (double)((x >> 20) & 0xffffff) / 0x1p20 - 8.0;
}

/* ------------------------------------------------------------------------------------- steps */

static void window(struct host *host, uint32_t batch)
{
    host_forward(host);
    host_backward(host, HSDP_SCOPE_FULL, batch, scattered);
}

static void begin(struct host *host)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
}

static int32_t result(struct host *host)
{
    struct hsdp_step_info info = HSDP_STEP_INFO_INIT;

    return host->api->step->result(host->model, &info, &host->err);
}

/* A whole step; nobody has found anything. */
static void good_step(struct host *host, uint32_t batch)
{
    window(host, batch);
    begin(host);
    host_must(host, result(host));
    host_must(host, host_adamw(host, 0.01, 0.1));
    host_step_end(host);
}

/* A window and its step, which is refused; the step stays open. */
static void bad_step(struct host *host, uint32_t batch, const char *found)
{
    window(host, batch);
    begin(host);
    host_must_refuse(host, result(host), HSDP_ERR_DRIFT, found);
}

static int32_t discard(struct host *host)
{
    return host->api->step->discard(host->model, NULL, &host->err);
}

static void sync_all(struct host *host)
{
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
    host_must(host, host->api->model->sync(host->model, NULL, &host->err));
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
}

/* Runs a case in which every step is checked. */
static void replicas_run(const char *strategy, uint32_t n_ranks,
                         void (*function)(uint32_t rank, void *shared))
{
    snprintf(host_settings, sizeof(host_settings), "sharding_strategy=%s verify=step:1", strategy);
    ranks_run(n_ranks, RANKS_LIMIT_MS, function, NULL);
}

/* ------------------------------------------------------------------------------------- flips */

/* The first element of a unit that this rank holds in a shard, and where. */
static struct hsdp_segment segment_of(struct host *host, uint32_t unit, int32_t shard)
{
    struct hsdp_segment segments[8];
    uint64_t n = 0;

    host_must(host, host->api->plan->segments(host->plan, unit, shard, host->rank, segments,
                                              sizeof(segments[0]), 8, &n, &host->err));
    ck_assert_uint_gt(n, 0);
    return segments[0];
}

static void flat_flip(struct host *host, uint32_t unit, int32_t flat)
{
    struct hsdp_segment segment = segment_of(host, unit, HSDP_SHARD_STEP);
    struct hsdp_tensor view;

    host_must(host, host->api->model->flat_view(host->model, unit, segment.buffer, flat, &view,
                                                &host->err));
    ((uint8_t *)device_window(&view, true))[segment.shard_offset_elems * view.dtype_bits / 8u] ^=
        1u;
}

/* Its own parameter shard, through the view, which is read-only on a CPU. */
static void param_flip(struct host *host, uint32_t unit)
{
    struct hsdp_segment segment = segment_of(host, unit, HSDP_SHARD_PARAM);
    struct hsdp_tensor view = host_view(host, segment.param, HSDP_VIEW_PARAM);
    uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    uint8_t *byte =
        (uint8_t *)device_window(&view, true) + segment.param_offset_elems * view.dtype_bits / 8u;
    void *page = byte - (uintptr_t)byte % page_bytes;

    if (device_is_used()) {
        *byte ^= 1u;
        return;
    }
    ck_assert_int_eq(mprotect(page, page_bytes, PROT_READ | PROT_WRITE), 0);
    *byte ^= 1u;
    ck_assert_int_eq(mprotect(page, page_bytes, PROT_READ), 0);
}

enum what { MASTER, FIRST_STATE, SECOND_STATE, PARAM };

static void flip(struct host *host, uint32_t unit, enum what what)
{
    if (what == PARAM) {
        param_flip(host, unit);
    } else {
        flat_flip(host, unit, what == MASTER ? HSDP_FLAT_MASTER : HSDP_FLAT_STATE + (int)what - 1);
    }
}

/* Every strategy whose replicas hold such a thing; rank 2 is the one that is changed. */
static const struct {
    const char *settings;
    enum what what;
    const char *found;
} flips[] = {
    {"sharding_strategy=ddp", MASTER, "parameters differ between rank 2 and rank 0; 3 of 4"},
    {"sharding_strategy=ddp", SECOND_STATE, "values of state \"exp_avg_sq\" differ"},
    {"sharding_strategy=ddp param_dtype=bf16", MASTER, "masters differ between rank 2 and rank 0"},
    {"sharding_strategy=ddp param_dtype=bf16", PARAM, "parameters differ between rank 2 and"},
    {"sharding_strategy=ddp param_dtype=fp16", FIRST_STATE, "values of state \"exp_avg\" differ"},
    {"sharding_strategy=zero1", PARAM, "parameters differ between rank 2 and rank 0; 3 of 4"},
    {"sharding_strategy=zero1", MASTER, "parameters differ between rank 2 and rank 0; 3 of 4"},
    {"sharding_strategy=zero1 param_dtype=bf16", PARAM, "parameters differ between rank 2 and"},
    {"sharding_strategy=zero2", PARAM, "parameters differ between rank 2 and rank 0; 3 of 4"},
    {"sharding_strategy=zero2 param_dtype=bf16", PARAM, "parameters differ between rank 2 and"},
    {"sharding_strategy=hsdp", MASTER, "parameters differ between rank 2 and rank 0; which of"},
    {"sharding_strategy=hsdp", PARAM, "parameters differ between rank 2 and rank 0; which of"},
    {"sharding_strategy=hsdp", FIRST_STATE,
     "values of state \"exp_avg\" differ between rank 2 and rank 0"},
    {"sharding_strategy=hsdp param_dtype=bf16", MASTER, "masters differ between rank 2 and rank"},
    {"sharding_strategy=hsdp_zero2", SECOND_STATE,
     "values of state \"exp_avg_sq\" differ between rank 2"},
    {"sharding_strategy=hsdp_zero2", PARAM, "parameters differ between rank 2 and rank 0; 3 of"},
    {"sharding_strategy=hfsdp", PARAM, "parameters differ between rank 2 and rank 0; which of"},
    {"sharding_strategy=hfsdp param_dtype=bf16", PARAM, "parameters differ between rank 2 and"},
};

/* On a device the view of a parameter that is gathered is not where its shards rest. */
static bool is_out_of_reach(int row)
{
    return getenv("HSDP_TEST_DEVICE") != NULL && flips[row].what == PARAM &&
           strstr(flips[row].settings, "sdp") != NULL && !strstr(flips[row].settings, "zero");
}

static const char units[] = "unit a: w[7] k[3]!; unit b: x[9000] y[5]; unit c: z[100]";

/* Two good steps of AdamW, and then another bit on rank 2. */
static void flipped_open(struct host *host, uint32_t rank, const char *verify, int row)
{
    char settings[128];

    snprintf(settings, sizeof(settings), "verify=%s %s", verify, flips[row].settings);
    host_open(host, rank, "dp=2,cp=2", settings, units);
    host_load(host, scattered);
    good_step(host, 1);
    good_step(host, 2);
    host_forward(host); /* whoever publishes has done so */
    if (rank == 2) {
        flip(host, 1, flips[row].what);
    }
}

static void flip_rank(uint32_t rank, void *row)
{
    const char *found = flips[*(int *)row].found;
    struct host host;

    flipped_open(&host, rank, "step:2", *(int *)row);
    window(&host, 3);
    begin(&host);
    host_must(&host, result(&host)); /* the third step is not checked */
    host_must(&host, discard(&host));
    bad_step(&host, 4, found);
    host_must_refuse(&host, result(&host), HSDP_ERR_DRIFT, "step.result: step 4: ");
    ck_assert_str_eq(host.err.unit, "b");
    host_close(&host);
}

START_TEST(result_behind_a_flipped_bit_names_it_on_every_rank)
{
    if (!is_out_of_reach(_i)) {
        ranks_run(4, RANKS_LIMIT_MS, flip_rank, &_i);
    }
}
END_TEST

/* The step can only be discarded; then replicas are made equal, and training goes on. */
static void repair_rank(uint32_t rank, void *row)
{
    struct host host;

    flipped_open(&host, rank, "step:1", *(int *)row);
    bad_step(&host, 3, "unit \"b\"");
    host_must_refuse(&host, host_adamw(&host, 0.01, 0.1), HSDP_ERR_DRIFT, "adamw.step: step 3");
    host_must_refuse(&host, host.api->step->end(host.model, NULL, NULL, &host.err), HSDP_ERR_DRIFT,
                     "step.end: step 3");
    host_must(&host, discard(&host));
    ck_assert_int_eq(host.api->job->status(host.job, &host.err), HSDP_OK);
    sync_all(&host);
    good_step(&host, 4);
    good_step(&host, 5);
    host_close(&host);
}

START_TEST(sync_behind_a_refused_step_lets_training_go_on)
{
    if (!is_out_of_reach(_i)) {
        ranks_run(4, RANKS_LIMIT_MS, repair_rank, &_i);
    }
}
END_TEST

/* Without it, the next checked step says the same again. */
static void again_rank(uint32_t rank, void *row)
{
    struct host host;

    flipped_open(&host, rank, "step:1", *(int *)row);
    for (uint32_t batch = 3; batch < 5; batch++) {
        window(&host, batch);
        begin(&host);
        if (rank % 2 == 0) { /* the others go straight to discard */
            host_must_refuse(&host, result(&host), HSDP_ERR_DRIFT, "unit \"b\"");
        }
        host_must(&host, discard(&host));
    }
    host_close(&host);
}

START_TEST(step_behind_drift_without_sync_is_refused_again)
{
    ranks_run(4, RANKS_LIMIT_MS, again_rank, &_i);
}
END_TEST

/* Every N-th step is checked, and only those: a flip after step 1 is found at step N, or 2. */
static void every_rank(uint32_t rank, void *shared)
{
    uint32_t n = *(uint32_t *)shared;
    uint32_t expected = n == 1 ? 2 : n;
    char settings[64];
    struct host host;

    snprintf(settings, sizeof(settings), "sharding_strategy=ddp verify=step:%u", n);
    host_open(&host, rank, "dp=3", settings, "unit a: w[70]");
    host_load(&host, one);
    for (uint32_t step = 1; step <= 2 * n + 2; step++) {
        window(&host, step);
        begin(&host);
        if (step % n == 0 && step >= expected) {
            host_must_refuse(&host, result(&host), HSDP_ERR_DRIFT, "rank 1 and rank 0; 2 of 3");
        } else {
            host_must(&host, result(&host));
        }
        host_must(&host, discard(&host));
        if (step == 1 && rank == 1) {
            flip(&host, 0, MASTER);
        }
    }
    host_close(&host);
}

START_TEST(begin_compares_every_nth_step)
{
    uint32_t n = (uint32_t)_i;

    ranks_run(3, RANKS_LIMIT_MS, every_rank, &n);
}
END_TEST

/* --------------------------------------------------------------------------- who is compared */

/* Stages have other units; drift in one of them stops all. */
static void stages_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "pp=2,dp=2", host_settings,
              rank < 2 ? "unit a: w[5]; unit b: x[7]"
                       : "unit c: y[1031]; unit d: z[3]; unit e: v[]");
    host_load(&host, one);
    good_step(&host, 1);
    if (rank == 3) {
        flip(&host, 2, FIRST_STATE);
    }
    bad_step(&host, 2, "unit \"e\": values of state \"exp_avg\" differ between rank 3 and rank 2");
    host_close(&host);
}

START_TEST(drift_in_one_stage_is_told_to_all)
{
    replicas_run("ddp", 4, stages_rank);
}
END_TEST

/* Experts have replicas over dp only: another value on another ep rank is no drift. */
static void experts_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2,ep=2", host_settings,
              "unit a: w[9]; class expert(dp); unit e: x[37]");
    host_load(&host, scattered);
    good_step(&host, 1);
    good_step(&host, 2);
    if (rank == 1) {
        flip(&host, 1, MASTER);
    }
    bad_step(&host, 3, "unit \"e\": parameters differ between rank 3 and rank 1; which");
    host_close(&host);
}

START_TEST(drift_of_experts_is_between_their_own_replicas)
{
    replicas_run("ddp", 4, experts_rank);
}
END_TEST

/* What is replicated over tp is compared there too, though it is not reduced over it. */
static void tensor_parallel_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2,tp=2", host_settings, "class ln(dp,tp)(dp); unit a: w[5000]");
    host_load(&host, one);
    if (rank == 3) {
        flip(&host, 0, MASTER);
    }
    bad_step(&host, 1, "parameters differ between rank 3 and rank 2; which");
    host_close(&host);
}

START_TEST(drift_over_tp_is_found_in_fully_sharded_parameters)
{
    replicas_run("fsdp", 4, tensor_parallel_rank);
}
END_TEST

/* Two bad replicas of five, each in its own way: the majority is still right. */
static void two_bad_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=5", host_settings, "unit a: w[70]");
    host_load(&host, one);
    if (rank == 0 || rank == 3) {
        flat_flip(&host, 0, HSDP_FLAT_MASTER);
    }
    if (rank == 3) {
        struct hsdp_tensor view;

        host_must(&host,
                  host.api->model->flat_view(host.model, 0, 0, HSDP_FLAT_MASTER, &view, &host.err));
        ((uint8_t *)device_window(&view, true))[200] ^= 64u;
    }
    bad_step(&host, 1, "parameters differ between rank 0 and rank 1; 3 of 5 replicas");
    host_close(&host);
}

START_TEST(majority_of_replicas_is_taken_for_right)
{
    replicas_run("ddp", 5, two_bad_rank);
}
END_TEST

/* More things to compare than one exchange carries, and the very last of them differs. */
static void many_rank(uint32_t rank, void *shared)
{
    uint32_t state = 0;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings,
              "unit a: a[1]; unit b: b[1]; unit c: c[1]; unit d: d[1]; unit e: e[1]; unit f: f[1]; "
              "unit g: g[1]; unit h: h[1]; unit i: i[1]; unit j: j[1]; unit k: k[1]; unit l: l[1]");
    for (int i = 0; i < 30; i++) {
        char name[16];

        snprintf(name, sizeof(name), "s%d", i);
        host_must(&host,
                  host.api->model->state_create(host.model, name, "bf16", &state, &host.err));
    }
    if (rank == 1) {
        flat_flip(&host, 11, HSDP_FLAT_STATE + (int32_t)state);
    }
    bad_step(&host, 1, "unit \"l\": values of state \"s29\" differ between rank 1 and rank 0");
    host_close(&host);
}

START_TEST(drift_of_the_last_of_many_is_named)
{
    replicas_run("ddp", 2, many_rank);
}
END_TEST

/* ------------------------------------------------------------------------- what is no drift */

/* A hundred steps of whatever strategy, none refused; and padding is nobody's. */
static void calm_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(
        &host, rank, "dp=2,cp=2", host_settings,
        "unit a: w[7,3]@1 none[0] k[5]!; unit f: froz[31]!; class expert(dp); unit e: x[1031]");
    host_load(&host, scattered);
    for (uint32_t step = 1; step <= 100; step++) {
        window(&host, step);
        begin(&host);
        host_must(&host, result(&host));
        if (step % 7 == 0) {
            host_must(&host, discard(&host));
            continue;
        }
        host_must(&host, host_adamw(&host, 0.01, 0.1));
        host_step_end(&host);
    }
    host_close(&host);
}

START_TEST(training_of_equal_replicas_is_never_refused)
{
    char more[64];

    snprintf(more, sizeof(more), "verify=step:1 param_dtype=%s reduce_dtype=%s",
             host_dtypes[_i / HOST_N_STRATEGIES], host_dtypes[_i % 3]);
    host_settings_set(_i % HOST_N_STRATEGIES, more);
    ranks_run(4, 2 * RANKS_LIMIT_MS, calm_rank, NULL);
}
END_TEST

/* A peer that publishes late writes this rank's copy late: it is awaited, not taken for drift. */
static void late_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=3", host_settings, "unit a: w[5000]");
    host_load(&host, scattered);
    good_step(&host, 1);
    for (int step = 2; step < 5; step++) { /* windows without a pass: nothing else waits */
        begin(&host);
        host_must(&host, result(&host));
        host_must(&host, host_adamw(&host, 0.01, 0.1));
        if (rank == 1) {
            ranks_sleep_ms(30);
        }
        host_step_end(&host);
    }
    host_close(&host);
}

START_TEST(begin_waits_for_the_parameters_of_a_slow_peer)
{
    host_settings_set(_i, "verify=step:1");
    ranks_run(3, RANKS_LIMIT_MS, late_rank, NULL);
}
END_TEST

/* NaN is a value like any other: the same bits are no drift, other bits are. */
static void nan_rank(uint32_t rank, void *shared)
{
    const uint32_t bits[] = {0x7fc00001, 0x7fc00001, 0x7fc00002};
    struct hsdp_tensor view;
    struct host host;
    uint32_t state;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[70]");
    host_must(&host, host.api->model->state_create(host.model, "s", "fp32", &state, &host.err));
    host_must(&host,
              host.api->model->flat_view(host.model, 0, 0, HSDP_FLAT_STATE, &view, &host.err));
    memcpy(device_window(&view, true), &bits[0], sizeof(bits[0]));
    window(&host, 1);
    begin(&host);
    host_must(&host, result(&host));
    host_must(&host, discard(&host));
    memcpy(device_window(&view, true), &bits[1 + rank], sizeof(bits[0]));
    bad_step(&host, 2, "values of state \"s\" differ");
    host_close(&host);
}

START_TEST(drift_of_nan_is_of_its_bits)
{
    replicas_run("ddp", 2, nan_rank);
}
END_TEST

/* Padding is kept zero by the host, but it is in no checksum. */
static void padding_rank(uint32_t rank, void *shared)
{
    struct hsdp_tensor view;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[70]");
    host_must(&host,
              host.api->model->flat_view(host.model, 0, 0, HSDP_FLAT_MASTER, &view, &host.err));
    host_write(&view, 71, rank);
    window(&host, 1);
    begin(&host);
    host_must(&host, result(&host));
    host_step_end(&host);
    host_close(&host);
}

START_TEST(padding_is_not_compared)
{
    replicas_run("ddp", 2, padding_rank);
}
END_TEST

/* Everything rests on one rank: there is nothing to compare, and the plan says so. */
static void lonely_rank(uint32_t rank, void *shared)
{
    char text[8192];
    uint64_t n_bytes;
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=2", host_settings, "unit a: w[5000]");
    host_must(&host, host.api->plan->report(host.plan, text, sizeof(text), &n_bytes, &host.err));
    ck_assert_ptr_nonnull(strstr(text, "verify step:1: class dense has no replicas under fsdp"));
    host_load(&host, one);
    if (rank == 1) {
        flip(&host, 0, MASTER);
    }
    good_step(&host, 1);
    host_close(&host);
}

START_TEST(model_without_replicas_has_nothing_to_compare)
{
    replicas_run("fsdp", 2, lonely_rank);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("drift");
    TCase *tcase = tcase_create("drift");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, result_behind_a_flipped_bit_names_it_on_every_rank, 0, N_OF(flips));
    tcase_add_loop_test(tcase, sync_behind_a_refused_step_lets_training_go_on, 0, N_OF(flips));
    tcase_add_loop_test(tcase, step_behind_drift_without_sync_is_refused_again, 0, 1);
    tcase_add_loop_test(tcase, begin_compares_every_nth_step, 1, 4);
    tcase_add_test(tcase, drift_in_one_stage_is_told_to_all);
    tcase_add_test(tcase, drift_of_experts_is_between_their_own_replicas);
    tcase_add_test(tcase, drift_over_tp_is_found_in_fully_sharded_parameters);
    tcase_add_test(tcase, majority_of_replicas_is_taken_for_right);
    tcase_add_test(tcase, drift_of_the_last_of_many_is_named);
    tcase_add_loop_test(tcase, training_of_equal_replicas_is_never_refused, 0,
                        3 * HOST_N_STRATEGIES);
    tcase_add_loop_test(tcase, begin_waits_for_the_parameters_of_a_slow_peer, 0, HOST_N_STRATEGIES);
    tcase_add_test(tcase, drift_of_nan_is_of_its_bits);
    tcase_add_test(tcase, padding_is_not_compared);
    tcase_add_test(tcase, model_without_replicas_has_nothing_to_compare);
    suite_add_tcase(suite, tcase);
    return suite;
}
