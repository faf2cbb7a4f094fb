/* SPDX-License-Identifier: Apache-2.0 */
/* Publishing: AdamW writes parameters where they rest, and masters in the host's hands come last.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "host.h"
#include "order_log.h"
#include "ranks.h"
#include "suite.h"

#define N_RANKS 4u

/* Two of one hyper group with padding between them, one of another, and a frozen one. */
static const char units[] = "unit a: w[5] x[37] y[9]@1 k[3]!; unit b: z[1100]@1";

static const char *const dtypes[] = {"shard_size=2", "shard_size=2 param_dtype=bf16",
                                     "shard_size=2 param_dtype=bf16 master_dtype=bf16"};
#define N_DTYPES 3

static double number(struct host_at at)
{
    return ldexp(1.0 + (double)(at.elem % 64) / 64.0, (int)(at.elem % 5) - 2);
}

/* ------------------------------------------------------------------------- what is touched when */

struct counting {
    struct probe probe;
    uint32_t n_master_reads;
    uint32_t n_param_writes;
};

static void access_count(struct probe *probe, const struct probe_access *access)
{
    struct counting *counting = (struct counting *)probe;

    counting->n_master_reads += access->area == PROBE_MASTER && !access->is_write;
    counting->n_param_writes += access->area == PROBE_PARAMS && access->is_write;
}

static void raise_ignore(struct probe *probe, const _Atomic uint64_t *counter, uint64_t value)
{
    (void)probe;
    (void)counter;
    (void)value;
}

static void expect_ignore(struct probe *probe, struct wait_entry *entries, uint32_t n_entries)
{
    (void)probe;
    (void)entries;
    (void)n_entries;
}

static void met_ignore(struct probe *probe, const struct wait_entry *entries, uint32_t n_entries)
{
    (void)probe;
    (void)entries;
    (void)n_entries;
}

static void reduction_ignore(struct probe *probe, uint32_t unit, enum probe_reduction what)
{
    (void)probe;
    (void)unit;
    (void)what;
}

/* The values that a class's copies of a unit's step shards get. */
static uint64_t dp_traffic(struct host *host)
{
    uint64_t n_bytes = 0;
    const char *name = NULL;

    for (uint64_t i = 0; host->api->diag->counter_name(host->job, i, &name, &host->err) == HSDP_OK;
         i++) {
        uint64_t value = 0;

        if (strncmp(name, "traffic.", 8) == 0) {
            host_must(host, host->api->diag->counter(host->job, name, &value, &host->err));
            n_bytes += value;
        }
    }
    return n_bytes;
}

static void masters_take(struct host *host)
{
    struct hsdp_tensor master;

    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        host_must(host, host->api->model->flat_view(host->model, unit, 0, HSDP_FLAT_MASTER, &master,
                                                    &host->err));
    }
}

struct found {
    uint32_t n_in_adamw; /* writes of parameters */
    uint32_t n_in_end;
    uint32_t n_reads_in_end; /* of masters */
    uint64_t n_bytes;        /* of traffic */
};

static void step_watch(struct host *host, struct counting *counting, struct found *ret)
{
    uint64_t before;

    host_backward(host, HSDP_SCOPE_FULL, 0, number);
    host_step(host, 0.0);
    before = dp_traffic(host);
    counting->n_param_writes = counting->n_master_reads = 0;
    host_must(host, host_adamw(host, 0.125, 0.25));
    ret->n_in_adamw = counting->n_param_writes;
    counting->n_param_writes = counting->n_master_reads = 0;
    host_step_end(host);
    ret->n_in_end = counting->n_param_writes;
    ret->n_reads_in_end = counting->n_master_reads;
    ret->n_bytes = dp_traffic(host) - before;
}

/* What all ranks read is the master, rounded to the parameters' dtype. */
static void params_expect(struct host *host, uint32_t param)
{
    const float *masters = host_export(host, param, HSDP_FLAT_MASTER);
    struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);
    uint32_t unit = host->params[param].unit;

    host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        host_expect_number(host, host->params[param].name, elem, host_read(&view, elem),
                           host_round((double)masters[elem],
                                      view.dtype_code == HSDP_DTYPE_BFLOAT ? "bf16" : "fp32"));
    }
    host_must(host, host_release(host, unit));
}

static void once_rank(uint32_t rank, void *shared)
{
    struct counting counting = {
        .probe = {access_count, raise_ignore, expect_ignore, met_ignore, reduction_ignore}};
    struct order_map map;
    struct found fused;
    struct found apart;
    struct host host;

    (void)shared;
    host_join(&host, rank, "dp=4", host_settings);
    order_probe_set(&host, &counting.probe, &map);
    host_plan(&host, host_settings, units);
    host_model(&host);
    host_load(&host, number);
    step_watch(&host, &counting, &fused);
    ck_assert_uint_eq(fused.n_in_end, 0);
    ck_assert_uint_eq(fused.n_reads_in_end, 0);
    for (uint32_t param = 0; param < host.n_params; param++) {
        params_expect(&host, param);
    }
    masters_take(&host);
    step_watch(&host, &counting, &apart);
    ck_assert_uint_eq(apart.n_in_adamw, 0);
    ck_assert_uint_eq(apart.n_in_end, fused.n_in_adamw);
    ck_assert_uint_eq(apart.n_reads_in_end, fused.n_in_adamw);
    ck_assert_uint_eq(apart.n_bytes, fused.n_bytes);
    for (uint32_t param = 0; param < host.n_params; param++) {
        params_expect(&host, param);
    }
    host_close(&host);
}

START_TEST(end_behind_adamw_copies_nothing_again)
{
    host_settings_set(_i / N_DTYPES, dtypes[_i % N_DTYPES]);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, once_rank, NULL);
}
END_TEST

/* -------------------------------------------------------------------- masters the host writes */

/* This rank's step shards, all elements of them. */
static void masters_set(struct host *host, double value)
{
    struct hsdp_tensor master;

    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_segment segments[4];
        uint64_t n_segments;

        host_must(host,
                  host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, host->rank, segments,
                                            sizeof(segments[0]), 4, &n_segments, &host->err));
        host_must(host, host->api->model->flat_view(host->model, unit, 0, HSDP_FLAT_MASTER, &master,
                                                    &host->err));
        for (uint64_t i = 0; i < n_segments; i++) {
            for (uint64_t e = 0; segments[i].buffer == 0 && e < segments[i].n_elems; e++) {
                host_write(&master, segments[i].shard_offset_elems + e, value);
            }
        }
    }
}

static void last_word_rank(uint32_t rank, void *shared)
{
    struct host host;

    (void)shared;
    host_open(&host, rank, "dp=4", host_settings, units);
    host_load(&host, number);
    for (int step = 1; step <= 3; step++) { /* in the first the views are taken behind adamw */
        host_backward(&host, HSDP_SCOPE_FULL, 0, number);
        host_step(&host, 0.0);
        host_must(&host, host_adamw(&host, 0.125, 0.25));
        masters_set(&host, step);
        host_step_end(&host);
        host_expect_param(&host, "w", step);
        host_expect_param(&host, "y", step);
        host_expect_param(&host, "z", step);
    }
    host_close(&host);
}

START_TEST(end_publishes_what_the_host_writes_behind_adamw)
{
    host_settings_set(_i / N_DTYPES, dtypes[_i % N_DTYPES]);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, last_word_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- padding */

enum trouble {
    NO_TROUBLE,
    NAN_GRADIENT,
    INFINITE_FACTOR,
    NEGATIVE_DECAY, /* makes -0 of 0 */
    N_TROUBLES,
};

static double not_a_number(struct host_at at)
{
    return at.rank == 1 && at.elem == 2 ? NAN : 1.0;
}

static void trouble_step(struct host *host, enum trouble trouble)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;

    host_backward(host, HSDP_SCOPE_FULL, 0, trouble == NAN_GRADIENT ? not_a_number : number);
    spec.gradient_scale = trouble == INFINITE_FACTOR ? 1e300 : 1.0; /* in fp32 */
    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
    host_must(host, host_adamw(host, trouble == NEGATIVE_DECAY ? 4.0 : 0.125, 0.5));
    host_step_end(host);
}

/* Every element of a flat shard that is no parameter's is +0, to the last bit. */
static void padding_expect(struct host *host, uint32_t unit, int32_t flat)
{
    struct hsdp_segment segments[4];
    struct hsdp_tensor shard;
    uint64_t n_segments;

    host_must(host,
              host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, host->rank, segments,
                                        sizeof(segments[0]), 4, &n_segments, &host->err));
    host_must(host, host->api->model->flat_view(host->model, unit, 0, flat, &shard, &host->err));
    for (uint64_t elem = 0; elem < (uint64_t)shard.shape[0]; elem++) {
        bool is_padding = true;
        double value = host_read(&shard, elem);

        for (uint64_t i = 0; i < n_segments; i++) {
            is_padding &= segments[i].buffer != 0 || elem < segments[i].shard_offset_elems ||
                          elem >= segments[i].shard_offset_elems + segments[i].n_elems;
        }
        if (is_padding && !(value == 0.0 && !signbit(value))) {
            ck_abort_msg("flat %d of unit %u has %g in its padding, at %u", (int)flat,
                         (unsigned)unit, value, (unsigned)elem);
        }
    }
}

static void padding_rank(uint32_t rank, void *shared)
{
    enum trouble trouble = *(enum trouble *)shared;
    struct host host;

    host_open(&host, rank, "dp=4", host_settings, units);
    host_load(&host, number);
    trouble_step(&host, NO_TROUBLE);
    trouble_step(&host, trouble);
    for (uint32_t unit = 0; unit < host.n_units; unit++) {
        padding_expect(&host, unit, HSDP_FLAT_MASTER);
        padding_expect(&host, unit, HSDP_FLAT_STATE);
        padding_expect(&host, unit, HSDP_FLAT_STATE + 1);
    }
    host_close(&host);
}

START_TEST(adamw_keeps_padding_zero_whatever_the_factor)
{
    enum trouble *trouble = ranks_memory(sizeof(*trouble));

    *trouble = (enum trouble)(_i % N_TROUBLES);
    host_settings_set(_i / N_TROUBLES, dtypes[_i % N_DTYPES]);
    ranks_run(N_RANKS, RANKS_LIMIT_MS, padding_rank, trouble);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("publish");
    TCase *tcase = tcase_create("publish");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, end_behind_adamw_copies_nothing_again, 0,
                        HOST_N_STRATEGIES * N_DTYPES);
    tcase_add_loop_test(tcase, end_publishes_what_the_host_writes_behind_adamw, 0,
                        HOST_N_STRATEGIES * N_DTYPES);
    tcase_add_loop_test(tcase, adamw_keeps_padding_zero_whatever_the_factor, 0,
                        HOST_N_STRATEGIES * N_TROUBLES);
    suite_add_tcase(suite, tcase);
    return suite;
}
