/* SPDX-License-Identifier: Apache-2.0 */
/* Training under a probe: the host's own reads and writes are told where they are made. */
#include "order_train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define RATE      0.125
#define MAX_NORM  0.5
#define N_BATCHES 3u

/* Small and large, frozen, tied and empty ones; four units, so that slots are reused. */
static const char dense[] =
    "unit a: w[5,3] k[3]! e[0,4]; unit b: x[70]@1; unit c: y[]; unit d: z[1031]";
static const char experts[] = "unit a: w[5,3] k[3]! e[0,4]; class expert(dp); unit b: x[70]@1; "
                              "unit c: y[2,9]; unit d: z[1031]";

/* The same with ties: "v" and "x" have names in unit d, which hands its gradients over before or
 * behind c; "t" and "u" lie in both stages at other places, and slices of "t" end elsewhere. */
static const char first_stage[] =
    "unit a: w[5,3]@1 k[3]! e[0,4]; unit b: x[70] t[1100]~pp; unit c: y[] v[37] u[9]!~pp; "
    "unit d: z[31] m[37]=v n[70]=x o[3]!=k";
static const char last_stage[] =
    "unit a: w[5,3] t[1100]~pp; unit b: x[70]@1 f[900]; unit c: y[] v[37]; "
    "unit d: z[1031] m[37]=v g[]! u[9]!~pp s[1100]=t";

/* ------------------------------------------------------------------------------------- runs */

struct order_run order_run_named(const char *strategy, int32_t scope, uint32_t slots)
{
    struct order_run run = {.dims = "dp=4", .units = dense, .n_ranks = 4, .slots = slots};

    run.scope = scope;
    snprintf(run.settings, sizeof(run.settings),
             "shard_size=2 sharding_strategy=%s accumulation_scope=%s slots=%u", strategy,
             host_scopes[scope], slots);
    return run;
}

struct order_run order_run_tied(const char *strategy, int32_t scope, uint32_t slots,
                                uint32_t stage_ranks)
{
    struct order_run run = {.units = first_stage, .last_units = last_stage, .scope = scope};

    run.n_ranks = 2 * stage_ranks;
    run.slots = slots;
    snprintf(run.dims, sizeof(run.dims), "pp=2,dp=%u", stage_ranks);
    snprintf(run.settings, sizeof(run.settings),
             "shard_size=%u sharding_strategy=%s accumulation_scope=%s slots=%u verify=step:2",
             stage_ranks / (stage_ranks > 2 ? 2 : 1), strategy, host_scopes[scope], slots);
    return run;
}

struct order_run order_run_of(uint32_t job, uint32_t number)
{
    static const char *const dtypes[] = {"param_dtype=fp32", "param_dtype=bf16",
                                         "param_dtype=bf16 gradient_dtype=bf16 master_dtype=bf16"};
    static const struct {
        const char *dims;
        uint32_t n_ranks;
        uint32_t shard_size;
        const char *units;
    } meshes[] = {{"dp=4", 4, 2, dense},
                  {"dp=2,ep=2", 4, 1, experts},
                  {"dp=6", 6, 2, dense},
                  {"dp=2", 2, 1, dense},
                  {"dp=4,ep=2", 8, 2, experts}};
    struct order_run run = {.slots = 1 + number % 3, .is_set = number / 3 == 1};
    uint32_t mesh = job % 5;

    run.scope = (int32_t)(job / HOST_N_STRATEGIES);
    run.is_varied = true;
    run.has_adamw = true;
    run.units = meshes[mesh].units;
    run.n_ranks = meshes[mesh].n_ranks;
    strcpy(run.dims, meshes[mesh].dims);
    snprintf(run.settings, sizeof(run.settings),
             "shard_size=%u sharding_strategy=%s accumulation_scope=%s slots=%u %s verify=step:2",
             meshes[mesh].shard_size, host_strategies[job % HOST_N_STRATEGIES],
             host_scopes[run.scope], run.slots, dtypes[(job / HOST_N_STRATEGIES + number) % 3]);
    return run;
}

/* ----------------------------------------------------------------------------------- values */

static uint64_t mixed(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) + b;

    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9) + c;
    x = (x ^ x >> 32) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t load_seed;

static double weight(struct host_at at)
{
    return (double)(mixed(at.rank + 1 + 64 * load_seed, at.param, at.elem) >> 11) * 0x1p-52 - 1.0;
}

static double gradient(struct host_at at)
{
    uint64_t bits = mixed(at.rank + 64u * at.microbatch + 100, at.param, at.elem);

    return (double)(bits >> 11) * 0x1p-52 - 1.0;
}

static void hash_add(struct order_trainer *trainer, const void *base, uint64_t n_bytes)
{
    const uint8_t *bytes = base;

    for (uint64_t i = 0; i < n_bytes; i++) {
        trainer->hash = (trainer->hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
}

/* ---------------------------------------------------------------------------------- accesses */

static void *tensor_bytes(const struct hsdp_tensor *tensor, uint64_t n_elems, uint64_t *ret_bytes)
{
    *ret_bytes = n_elems * (tensor->dtype_bits / 8u);
    return (uint8_t *)tensor->base + tensor->byte_offset;
}

/* Names of a parameter in one unit are one memory: it is read and written by its first. A name for
 * one of another unit has a gradient of its own. */
static bool is_in(const struct host *host, uint32_t param, uint32_t unit)
{
    return host->params[param].unit == unit &&
           (host->params[param].storage == param || host_is_alias(host, param));
}

static void unit_read(struct order_trainer *trainer, uint32_t unit)
{
    struct host *host = &trainer->host;

    for (uint32_t param = 0; param < host->n_params; param++) {
        struct hsdp_tensor view;
        const void *base;
        uint64_t n_bytes;

        if (is_in(host, param, unit)) {
            view = host_view(host, param, HSDP_VIEW_PARAM);
            base = tensor_bytes(&view, host->params[param].n_elems, &n_bytes);
            probe_read(trainer->probe, PROBE_PARAMS, unit, base, n_bytes);
            hash_add(trainer, base, n_bytes);
        }
    }
}

static void unit_fill(struct order_trainer *trainer, uint32_t unit)
{
    struct host *host = &trainer->host;

    for (uint32_t param = 0; param < host->n_params; param++) {
        if (is_in(host, param, unit) && !host->params[param].is_frozen) {
            struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_GRAD);
            uint64_t n_bytes;
            const void *base = tensor_bytes(&view, host->params[param].n_elems, &n_bytes);

            probe_write(trainer->probe, PROBE_SLOT, unit, base, n_bytes);
        }
    }
    host_fill(host, unit, trainer->n_batches, gradient);
}

void order_train_read(struct order_trainer *trainer)
{
    for (uint32_t unit = 0; unit < trainer->host.n_units; unit++) {
        host_must(&trainer->host, host_unshard(&trainer->host, unit, HSDP_USE_FORWARD));
        unit_read(trainer, unit);
        host_must(&trainer->host, host_release(&trainer->host, unit));
    }
}

/* ------------------------------------------------------------------------------------ passes */

static void unit_backward(struct order_trainer *trainer, uint32_t unit)
{
    int32_t use = trainer->run->is_set ? HSDP_USE_BACKWARD_SET : HSDP_USE_BACKWARD;

    host_must(&trainer->host, host_unshard(&trainer->host, unit, use));
    unit_read(trainer, unit);
    unit_fill(trainer, unit);
    host_hand_over(&trainer->host, unit);
}

/* What differs between the microbatches of a varied run. */
enum variation {
    PLAIN,
    CROSSED, /* with two slots: odd ranks hand over the first two units the other way around */
    SKIPPED, /* one rank skips a unit in the middle */
    ABSENT,  /* one rank leaves out the last unit */
    LATE,    /* all but one rank have late gradients, one of them for an absent unit */
    CHUNKS,  /* two passes are open at once */
    ALONE,   /* then three passes over the last unit, in which one rank has only late gradients */
    N_VARIATIONS,
};

/* The first two units stay unsharded on all ranks, which then use them in any order. */
static void first_two_use(struct host *host, int32_t (*call)(struct host *host, uint32_t unit))
{
    host_must(host, call(host, host->n_units - 1));
    host_must(host, call(host, host->n_units - 2));
}

static int32_t unshard_forward(struct host *host, uint32_t unit)
{
    return host_unshard(host, unit, HSDP_USE_FORWARD);
}

/* One pass over the units from n_units - 1 down to 0. */
static void pass_run(struct order_trainer *trainer, int32_t scope, enum variation variation)
{
    struct host *host = &trainer->host;
    uint32_t order[HOST_MAX_UNITS];
    bool is_crossing = variation == CROSSED && trainer->run->slots > 1;
    bool is_crossed = is_crossing && host->rank % 2 == 1;
    bool is_absent = (variation == ABSENT || variation == LATE) && host->rank == 1;

    for (uint32_t i = 0; i < host->n_units; i++) {
        order[i] = host->n_units - 1 - i;
    }
    if (is_crossed) {
        order[0] = host->n_units - 2;
        order[1] = host->n_units - 1;
    }
    host_pass_begin(host, scope);
    for (uint32_t i = 0; i < host->n_units; i++) {
        if (is_crossing && i == 0) {
            first_two_use(host, unshard_forward);
        }
        if (variation == LATE && host->rank != 0 && i != 1) {
            host_grad_add(host, order[i] == 0 ? "w" : order[i] == 1 ? "x" : "z", 0.5, "bf16");
        }
        if (variation == SKIPPED && host->rank == 1 && order[i] == 2) {
            host_attend(host, order[i]);
            host_must(host, host_skip(host, order[i]));
        } else if (!is_absent || order[i] != 0) {
            unit_backward(trainer, order[i]);
        } else {
            host_attend(host, order[i]);
        }
        if (is_crossing && i == 1) {
            first_two_use(host, host_release);
        }
    }
    host_pass_end(host);
}

static void chunks_run(struct order_trainer *trainer, int32_t scope)
{
    static const uint32_t front[] = {1, 0};
    static const uint32_t back[] = {3, 2};
    struct host *host = &trainer->host;
    uint64_t first;

    host_must(host, host_backward_begin(host, front, 2, scope, &first));
    host_must(host, host_backward_begin(host, back, 2, scope, &host->pass));
    unit_backward(trainer, 3);
    unit_backward(trainer, 2);
    host_pass_end(host);
    host->pass = first;
    unit_backward(trainer, 1);
    unit_backward(trainer, 0);
    host_pass_end(host);
}

static void alone_run(struct order_trainer *trainer)
{
    static const uint32_t units[] = {0};
    struct host *host = &trainer->host;

    for (int pass = 0; pass < 3; pass++) {
        host_must(host, host_backward_begin(host, units, 1, HSDP_SCOPE_FULL, &host->pass));
        if (host->rank == 1) {
            host_attend(host, 0);
            host_grad_add(host, "w", 0.25, "fp32");
        } else {
            unit_backward(trainer, 0);
        }
        host_pass_end(host);
    }
}

static void batch_run(struct order_trainer *trainer, int32_t scope, enum variation variation)
{
    order_train_read(trainer);
    if (variation == CHUNKS) {
        chunks_run(trainer, scope);
    } else {
        pass_run(trainer, scope, variation);
    }
    if (variation == ALONE) {
        alone_run(trainer);
    }
    trainer->n_batches++;
}

/* ------------------------------------------------------------------------------------- steps */

static void unit_descend(struct order_trainer *trainer, uint32_t unit, double factor)
{
    struct host *host = &trainer->host;
    const struct hsdp_model_ops *ops = host->api->model;
    struct hsdp_tensor master;
    struct hsdp_tensor grad;
    const void *base;
    uint64_t n_bytes;

    host_must(host, ops->flat_view(host->model, unit, 0, HSDP_FLAT_MASTER, &master, &host->err));
    host_must(host, ops->flat_view(host->model, unit, 0, HSDP_FLAT_GRAD, &grad, &host->err));
    base = tensor_bytes(&grad, (uint64_t)grad.shape[0], &n_bytes);
    probe_read(trainer->probe, PROBE_GRADS, unit, base, n_bytes);
    base = tensor_bytes(&master, (uint64_t)master.shape[0], &n_bytes);
    probe_write(trainer->probe, PROBE_MASTER, unit, base, n_bytes);
    for (uint64_t i = 0; i < (uint64_t)master.shape[0]; i++) {
        double step = RATE * factor * host_read(&grad, i);

        host_write(&master, i, host_read(&master, i) - step);
    }
}

static void step_run(struct order_trainer *trainer, bool is_discarded, bool is_adamw)
{
    struct host *host = &trainer->host;
    struct hsdp_step_info result = host_step(host, MAX_NORM);

    hash_add(trainer, &result.norm, sizeof(result.norm));
    hash_add(trainer, &result.factor, sizeof(result.factor));
    if (is_discarded) {
        host_must(host, host->api->step->discard(host->model, NULL, &host->err));
        return;
    }
    if (is_adamw) {
        host_must(host, host_adamw(host, 1e-2, 0.1));
    } else {
        for (uint32_t unit = 0; unit < host->n_units; unit++) {
            unit_descend(trainer, unit, result.factor);
        }
    }
    host_step_end(host);
}

/* ------------------------------------------------------------------------------------- edits */

void order_train_export(struct order_trainer *trainer, uint32_t param)
{
    struct host *host = &trainer->host;
    const float *values = host_export(host, param, HSDP_FLAT_MASTER);

    hash_add(trainer, values, host->params[param].n_elems * sizeof(float));
}

/* One rank of those that share a parameter has new values for all of them; then replicas are made
 * equal. */
void order_train_edit(struct order_trainer *trainer)
{
    struct host *host = &trainer->host;
    const struct hsdp_model_ops *ops = host->api->model;
    uint32_t param = host_param(host, "z");
    uint32_t source = host_reducer(host, param, host->rank);
    float *values = calloc(host->params[param].n_elems, sizeof(float));
    struct hsdp_tensor full = host_tensor(host, param, values, "fp32");

    ck_assert_ptr_nonnull(values);
    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        struct host_at at = {source, 1, param, elem};

        values[elem] = (float)gradient(at);
    }
    host_must(host, ops->edit_begin(host->model, NULL, &host->err));
    host_must(host,
              ops->import_param(host->model, param, HSDP_FLAT_MASTER,
                                source == host->rank ? &full : NULL, source, NULL, &host->err));
    host_must(host, ops->sync(host->model, NULL, &host->err));
    host_must(host, ops->edit_end(host->model, NULL, &host->err));
    free(values);
}

/* ------------------------------------------------------------------------------------ a run */

void order_train_join(struct order_trainer *trainer, uint32_t rank, const struct order_run *run,
                      struct probe *probe, struct order_map *map)
{
    memset(trainer, 0, sizeof(*trainer));
    trainer->probe = probe;
    host_join(&trainer->host, rank, run->dims, run->settings);
    order_probe_set(&trainer->host, probe, map);
}

void order_train_model(struct order_trainer *trainer, const struct order_run *run,
                       struct order_map *map)
{
    trainer->run = run;
    map->store = NULL;
    host_plan(&trainer->host, run->settings,
              run->last_units != NULL && 2 * trainer->host.rank >= run->n_ranks ? run->last_units
                                                                                : run->units);
    host_model(&trainer->host);
    order_probe_model(&trainer->host, map);
}

void order_train_drop(struct order_trainer *trainer, struct order_map *map)
{
    struct host *host = &trainer->host;

    map->store = NULL;
    host->api->model->destroy(host->model);
    host->api->plan->destroy(host->plan);
    host->model = NULL;
    host->plan = NULL;
}

void order_train_load(struct order_trainer *trainer, uint32_t seed)
{
    struct host *host = &trainer->host;
    const struct hsdp_model_ops *ops = host->api->model;

    load_seed = seed;
    host_load(host, weight);
    if (trainer->run->last_units != NULL) { /* then copies are equal, too */
        host_must(host, ops->edit_begin(host->model, NULL, &host->err));
        host_must(host, ops->sync(host->model, NULL, &host->err));
        host_must(host, ops->edit_end(host->model, NULL, &host->err));
    }
    trainer->n_batches = 0;
}

void order_train_window(struct order_trainer *trainer, uint32_t window)
{
    const struct host *host = &trainer->host;
    bool is_varied = trainer->run->is_varied;

    if (is_varied && window % 3 == 2) {
        order_train_edit(trainer);
    }
    for (uint32_t batch = 0; batch < N_BATCHES; batch++) {
        enum variation variation = (N_BATCHES * window + batch + 1) % N_VARIATIONS;

        batch_run(trainer, batch == 0 ? trainer->run->scope : HSDP_SCOPE_FULL,
                  is_varied ? variation : PLAIN);
    }
    order_train_read(trainer); /* nothing but the step's collective is behind it */
    step_run(trainer, is_varied && window % 3 == 1, trainer->run->has_adamw && window % 2 == 0);
    for (uint32_t param = 0; is_varied && window % 3 == 1 && param < host->n_params; param++) {
        order_train_export(trainer, param);
        order_train_export(trainer, param); /* of an empty one too: offers without bytes */
    }
}
