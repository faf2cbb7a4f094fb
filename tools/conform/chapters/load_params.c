/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: parameters by import and export, and slice by slice. */
#include <math.h>
#include <stdlib.h>

#include "loading.h"

#define UNITS "unit a: w[5,3] k[3]! s[] none[0]; unit b: x[97] y[1031]"

static void params_expect(struct host *host, host_value value)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        load_expect(host, param, value);
    }
}

static double zero(struct host_at at)
{
    (void)at;
    return 0.0;
}

static void zeros_run(struct host *host)
{
    params_expect(host, zero);
}

void load_begins_with_zeros(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", UNITS, zeros_run};

    numbers_try(conform, &trial);
}

static void save_run(struct host *host)
{
    host_load(host, numbers_small);
    params_expect(host, numbers_small);
}

void load_then_save(struct conform *conform)
{
    static const char *const settings[] = {"", "param_dtype=bf16",
                                           "param_dtype=bf16 master_dtype=bf16"};
    struct host host;

    numbers_join(conform, &host, "dp=4", "");
    for (uint32_t i = 0; i < NUMBERS_N(settings); i++) {
        struct numbers_trial trial = {"dp=4", settings[i], UNITS, save_run};

        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* -------------------------------------------------------------------------------- one and all */

static uint32_t one_rank;

static double of_one_rank(struct host_at at)
{
    at.rank = one_rank;
    return numbers_small(at);
}

static void values_fill(struct host *host, uint32_t param, uint32_t rank, float *ret_values)
{
    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        ret_values[elem] = (float)numbers_small((struct host_at){rank, 0, param, elem});
    }
}

/* All but the source have nothing to give, or, every second time, something else. */
static void from_one_run(struct host *host)
{
    for (one_rank = 0; one_rank < host->n_ranks; one_rank++) {
        load_edit_begin(host);
        for (uint32_t param = 0; param < host->n_params; param++) {
            float values[2048] = {0};
            struct hsdp_tensor full = host_tensor(host, param, values, "fp32");
            bool has_tensor = host->rank == one_rank || param % 2 == 0;

            values_fill(host, param, host->rank, values);
            host_must(host, load_import(host, param, HSDP_FLAT_MASTER, has_tensor ? &full : NULL,
                                        one_rank));
        }
        load_edit_end(host);
        params_expect(host, of_one_rank);
    }
}

void load_from_one_rank(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2", UNITS, from_one_run};

    numbers_try(conform, &trial);
}

static void to_one_try(struct host *host, uint32_t param, uint32_t target)
{
    bool has_tensor = host->rank == target || param % 2 == 0;
    float values[2048], expected[2048] = {0};
    struct hsdp_tensor full = host_tensor(host, param, values, "fp32");

    for (uint32_t i = 0; i < 2048; i++) {
        values[i] = 77.0f;
    }
    values_fill(host, param, 0, expected);
    host_must(host, load_export(host, param, HSDP_FLAT_MASTER, has_tensor ? &full : NULL, target));
    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        host_expect_number(host, host->params[param].name, elem, (double)values[elem],
                           host->rank == target ? (double)expected[elem] : 77.0);
    }
}

static void to_one_run(struct host *host)
{
    host_load(host, numbers_small);
    for (uint32_t target = 0; target < host->n_ranks; target++) {
        for (uint32_t param = 0; param < host->n_params; param++) {
            to_one_try(host, param, target);
        }
    }
}

void load_to_one_rank(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2", UNITS, to_one_run};

    numbers_try(conform, &trial);
}

/* --------------------------------------------------------------------------------------- dtypes */

static void of_dtype_import(struct host *host, uint32_t param, uint32_t seed, const char *dtype)
{
    float memory[2048] = {0};
    struct hsdp_tensor full = host_tensor(host, param, memory, dtype);

    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        host_write(&full, elem, numbers_small((struct host_at){seed, 0, param, elem}));
    }
    host_must(host, load_import(host, param, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
}

static void of_dtype_export(struct host *host, uint32_t param, uint32_t seed, const char *dtype)
{
    float memory[2048] = {0};
    struct hsdp_tensor full = host_tensor(host, param, memory, dtype);

    host_must(host, load_export(host, param, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        host_expect_number(host, host->params[param].name, elem, host_read(&full, elem),
                           numbers_small((struct host_at){seed, 0, param, elem}));
    }
}

/* From a tensor of one dtype into masters of another one, and out into a third. */
static void dtypes_run(struct host *host)
{
    for (uint32_t i = 0; i < 9; i++) {
        load_edit_begin(host);
        for (uint32_t param = 0; param < host->n_params; param++) {
            of_dtype_import(host, param, i, host_dtypes[i % 3]);
        }
        load_edit_end(host);
        for (uint32_t param = 0; param < host->n_params; param++) {
            of_dtype_export(host, param, i, host_dtypes[i / 3]);
        }
    }
}

void load_dtypes(struct conform *conform)
{
    static const char *const settings[] = {"", "master_dtype=bf16", "master_dtype=fp16"};
    struct host host;

    numbers_join(conform, &host, "dp=2", "");
    for (uint32_t i = 0; i < NUMBERS_N(settings); i++) {
        struct numbers_trial trial = {"dp=2", settings[i], UNITS, dtypes_run};

        numbers_try_joined(&host, &trial);
    }
    host_close(&host);
}

/* No ties: a quarter of a unit in the last place to either side, of many magnitudes. */
static double beside(struct host_at at)
{
    double number = ldexp(1.0 + (double)(at.elem % 128) / 128.0, (int)(at.elem % 7) - 3);

    return number * (1.0 + (at.elem % 2 == 0 ? 0x1p-11 : -0x1p-11));
}

static double rounded(struct host_at at)
{
    return host_round(beside(at), "bf16");
}

static void rounds_run(struct host *host)
{
    host_load(host, beside);
    load_expect(host, 0, rounded);
}

void load_rounds_to_nearest(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "param_dtype=bf16 master_dtype=bf16",
                                               "unit a: w[1031]", rounds_run};

    numbers_try(conform, &trial);
}

static void offsets_run(struct host *host)
{
    int64_t strides[] = {3, 1};
    float memory[32] = {0};
    struct hsdp_tensor full = host_tensor(host, 0, memory, "fp32");

    full.byte_offset = 16;
    full.strides = strides;
    load_edit_begin(host);
    for (uint64_t elem = 0; elem < 15; elem++) {
        host_write(&full, elem, numbers_small((struct host_at){0, 0, 0, elem}));
    }
    host_must(host, load_import(host, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
    load_edit_end(host);
    load_expect(host, 0, numbers_small);
    memset(memory, 0, sizeof(memory));
    host_must(host, load_export(host, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
    for (uint64_t elem = 0; elem < 32; elem++) {
        host_expect_number(
            host, "memory", elem, (double)memory[elem],
            elem < 4 || elem >= 19 ? 0.0 : numbers_small((struct host_at){0, 0, 0, elem - 4}));
    }
}

void load_tensors_with_offsets(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[5,3]", offsets_run};

    numbers_try(conform, &trial);
}

/* ------------------------------------------------------------------------------- own slices */

/* What a rank's segments say is its own. */
static void unit_fill(struct host *host, uint32_t unit, host_value value)
{
    struct hsdp_segment segments[2 * HOST_MAX_PARAMS];
    uint64_t n_segments = 0;

    host_must(host, host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, host->rank,
                                              segments, sizeof(segments[0]), NUMBERS_N(segments),
                                              &n_segments, &host->err));
    for (uint64_t s = 0; s < n_segments; s++) {
        struct host_at at = {0, 0, segments[s].param, segments[s].param_offset_elems};
        struct hsdp_tensor master;

        host_must(host, host->api->model->flat_view(host->model, unit, segments[s].buffer,
                                                    HSDP_FLAT_MASTER, &master, &host->err));
        for (uint64_t i = 0; i < segments[s].n_elems; i++, at.elem++) {
            host_write(&master, segments[s].shard_offset_elems + i, value(at));
        }
    }
}

static void slices_run(struct host *host)
{
    load_edit_begin(host);
    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        unit_fill(host, unit, numbers_small);
    }
    load_edit_end(host);
    params_expect(host, numbers_small);
}

void load_own_slices(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=4", "shard_size=2", UNITS, slices_run};

    numbers_try(conform, &trial);
}

/* ----------------------------------------------------------------------------- whose they are */

static double three(struct host_at at)
{
    (void)at;
    return 3.0;
}

/* The storage gets 1, then its name 3; another storage only by its name. */
static void names_run(struct host *host)
{
    float values[8];
    struct hsdp_tensor full;

    load_edit_begin(host);
    for (uint32_t i = 0; i < 8; i++) {
        values[i] = 1.0f;
    }
    full = host_tensor(host, 0, values, "fp32");
    host_must(host, load_import(host, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
    for (uint32_t i = 0; i < 8; i++) {
        values[i] = 3.0f;
    }
    for (uint32_t param = 2; param < 4; param++) {
        full = host_tensor(host, param, values, "fp32");
        host_must(host, load_import(host, param, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
    }
    load_edit_end(host);
    params_expect(host, three);
}

void load_names(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2", "", "unit a: w[7] x[5]; unit b: v[7]=w u[5]=x", names_run};

    numbers_try(conform, &trial);
}

void load_frozen(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[97]! k[5]; unit b: x[1031]!",
                                               save_run};

    numbers_try(conform, &trial);
}

/* Each rank along ep has its own; the source is one of those along dp. */
static void experts_run(struct host *host)
{
    float values[97];
    struct hsdp_tensor full = host_tensor(host, 1, values, "fp32");
    uint32_t source = host_holder(host, 1, host->rank) + 2;

    host_load(host, numbers_small);
    params_expect(host, numbers_small);
    load_edit_begin(host);
    for (uint64_t elem = 0; elem < 97; elem++) {
        values[elem] =
            (float)numbers_small((struct host_at){host_holder(host, 1, host->rank), 0, 1, elem});
    }
    host_must(host,
              load_import(host, 1, HSDP_FLAT_MASTER, host->rank == source ? &full : NULL, source));
    load_edit_end(host);
    params_expect(host, numbers_small);
}

void load_experts(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2,ep=2", "", "unit a: w[5]; class expert(dp); unit e: x[97]", experts_run};

    numbers_try(conform, &trial);
}

static void large_run(struct host *host)
{
    uint64_t n_elems = host->params[0].n_elems;
    float *values = calloc(n_elems, sizeof(float));
    struct hsdp_tensor full = host_tensor(host, 0, values, "fp32");

    numbers_expect(values != NULL, "the kit has no memory");
    for (uint64_t elem = 0; elem < n_elems; elem++) {
        values[elem] = (float)(elem % 8191);
    }
    load_edit_begin(host);
    host_must(host, load_import(host, 0, HSDP_FLAT_MASTER, host->rank == 1 ? &full : NULL, 1));
    load_edit_end(host);
    memset(values, 0, n_elems * sizeof(float));
    host_must(host, load_export(host, 0, HSDP_FLAT_MASTER, &full, HSDP_ALL_RANKS));
    for (uint64_t elem = 0; elem < n_elems; elem++) {
        host_expect_number(host, "w", elem, (double)values[elem], (double)(elem % 8191));
    }
    free(values);
}

void load_large(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[300007]", large_run};

    numbers_try(conform, &trial);
}

static double one_less(struct host_at at)
{
    return numbers_small(at) - 1.0;
}

/* Inside a window, too: gradients that were handed over are still there. */
static void training_run(struct host *host)
{
    host_load(host, zero);
    host_backward(host, HSDP_SCOPE_NONE, 0, numbers_one);
    host_load(host, numbers_small);
    host_backward(host, HSDP_SCOPE_FULL, 1, zero);
    host_step(host, 0.0);
    numbers_expect_grad(host, "w", 1.0, 0.0);
    host_descend(host, 1.0, 1.0);
    host_step_end(host);
    params_expect(host, one_less);
}

void load_again_while_training(struct conform *conform)
{
    static const struct numbers_trial trial = {"dp=2", "", "unit a: w[97]; unit b: x[1031]",
                                               training_run};

    numbers_try(conform, &trial);
}

/* ------------------------------------------------------------------------------------ refusals */

/* A rank along ep has other experts: it cannot be the one that gives or takes. */
static void stranger_run(struct host *host)
{
    float values[5] = {0};
    struct hsdp_tensor full = host_tensor(host, 1, values, "fp32");
    uint32_t stranger = host->rank ^ 1u;

    load_edit_begin(host);
    numbers_refused(host, load_import(host, 1, 0, &full, stranger), HSDP_ERR_INVALID);
    numbers_refused(host, load_export(host, 1, 0, &full, stranger), HSDP_ERR_INVALID);
    load_edit_end(host);
    host_load(host, numbers_small);
    load_expect(host, 1, numbers_small);
}

void load_of_a_stranger(struct conform *conform)
{
    static const struct numbers_trial trial = {
        "dp=2,ep=2", "", "unit a: w[5]; class expert(dp); unit e: x[5]", stranger_run};

    numbers_try(conform, &trial);
}

void load_other_params(struct conform *conform)
{
    float values[5] = {0};
    struct hsdp_tensor full;
    struct host host;
    int32_t status;

    numbers_open(conform, &host, "dp=2", "", "unit a: w[5] x[5]");
    full = host_tensor(&host, 0, values, "fp32");
    load_edit_begin(&host);
    status = load_import(&host, host.rank, HSDP_FLAT_MASTER, &full, 0);
    numbers_expect(status == HSDP_ERR_MISMATCH || status == HSDP_ERR_ABORTED,
                   "imports of other parameters ended with %d", (int)status);
    numbers_refused(&host, host.api->job->status(host.job, &host.err), HSDP_ERR_MISMATCH);
    conform_meet(conform);
    host_leave(&host);
}
