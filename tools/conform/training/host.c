/* SPDX-License-Identifier: Apache-2.0 */
/* A training host in short verbs: the calls of the ABI in the order in which hosts make them. */
#include "host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "host_text.h"

const char *const host_strategies[HOST_N_STRATEGIES] = {"ddp",  "zero1",      "zero2", "fsdp",
                                                        "hsdp", "hsdp_zero2", "hfsdp"};
const char *const host_scopes[HOST_N_SCOPES] = {"none", "inner", "full"};
const char *const host_dtypes[HOST_N_DTYPES] = {"fp32", "bf16", "fp16"};
char host_settings[256];

void host_settings_set(int strategy, const char *more)
{
    int n_bytes = snprintf(host_settings, sizeof(host_settings), "sharding_strategy=%s %s",
                           host_strategies[strategy], more);

    host_expect(n_bytes < (int)sizeof(host_settings));
}

/* What this host has written is there before the plugin looks. */
void host_begin(const char *call)
{
    device_flush();
    host_enter(call);
}

void host_succeeded(const struct host *host, const char *call, int32_t found)
{
    host_enter("");
    if (found == HSDP_ERR_UNSUPPORTED) {
        host_unsupported(call, host->err.message);
    }
    if (found != HSDP_OK) {
        host_fail("rank %u: %s returned %d: %s", host->rank, call, (int)found, host->err.message);
    }
}

void host_refused(const struct host *host, const char *call, int32_t found, int32_t expected,
                  const char *text)
{
    host_enter("");
    if (found != expected) {
        host_fail("rank %u: %s returned %d, not %d", host->rank, call, (int)found, (int)expected);
    }
    if (strstr(host->err.message, text) == NULL) {
        host_fail("\"%s\" does not say \"%s\"", host->err.message, text);
    }
}

/* ------------------------------------------------------------------------------- to a model */

static void plugin_load(struct host *host)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;

    spec.path = host_plugin_path();
    host_must(host, hsdp_plugin_load(&spec, &host->plugin, &host->err));
    host->api = hsdp_plugin_api(host->plugin);
}

static void mesh_make(struct host *host)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;
    const char *names[HOST_MAX_DIMS];
    int64_t sizes[HOST_MAX_DIMS];
    char data_dims[64];

    for (uint32_t d = 0; d < host->n_dims; d++) {
        names[d] = host->dims[d].name;
        sizes[d] = host->dims[d].size;
    }
    host_data_dims(host, data_dims);
    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.data_dims = data_dims;
    spec.n_dims = host->n_dims;
    spec.world_ranks = host->n_ranks;
    spec.rank = host->rank;
    host_must(host, host->api->mesh->create(&spec, &host->mesh, &host->err));
}

/* Without a name, who we are comes from the environment, which is set by who starts the ranks. */
static void job_connect(struct host *host, const char *settings, const char *name)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct host_settings own;

    host_settings_read(&own, settings, true);
    spec.settings = own.settings;
    spec.name = name;
    spec.rank = host->rank;
    spec.world_ranks = name == NULL ? 0 : host->n_ranks;
    spec.local_rank = host->rank;
    host_needs(HOST_TRANSPORT, "");
    device_place(&spec);
    host_must(host, host->api->job->create(&spec, &host->job, &host->err));
    host_must(host, host->api->job->connect(host->job, &host->err));
    host_must(host, host->api->job->info(host->job, &info, &host->err));
    host_expect(info.rank == host->rank);
    host_expect(info.world_ranks == host->n_ranks);
}

void host_arrange(struct host *host, uint32_t rank, const char *dims)
{
    memset(host, 0, sizeof(*host));
    host->err = (struct hsdp_error)HSDP_ERROR_INIT;
    host->rank = rank;
    host_dims_read(host, dims);
    plugin_load(host);
    mesh_make(host);
}

void host_join_as(struct host *host, uint32_t rank, const char *dims, const char *settings,
                  const char *job_name)
{
    host_arrange(host, rank, dims);
    job_connect(host, settings, job_name);
}

void host_join(struct host *host, uint32_t rank, const char *dims, const char *settings)
{
    host_join_as(host, rank, dims, settings, NULL);
}

void host_plan(struct host *host, const char *settings, const char *units)
{
    struct host_settings own;

    host_settings_read(&own, settings, false);
    host_needs(HOST_PLAN, settings);
    host_must(host, host->api->plan->create(host->mesh, &own.settings, &host->plan, &host->err));
    host_units_add(host, units);
    host_must(host, host->api->plan->finish(host->plan, &host->err));
}

void host_model(struct host *host)
{
    host_must(host, host->api->model->create(host->job, host->plan, &host->model, &host->err));
}

void host_open(struct host *host, uint32_t rank, const char *dims, const char *settings,
               const char *units)
{
    host_join(host, rank, dims, settings);
    host_plan(host, settings, units);
    host_model(host);
}

void host_leave(struct host *host)
{
    if (host->model != NULL) {
        host->api->model->destroy(host->model);
    }
    if (host->job != NULL) { /* it may have joined none */
        host->api->job->destroy(host->job);
    }
    host->api->plan->destroy(host->plan);
    host->api->mesh->destroy(host->mesh);
    hsdp_plugin_unload(host->plugin);
    free(host->scratch);
    memset(host, 0, sizeof(*host));
}

void host_close(struct host *host)
{
    host_must(host, host->api->job->close(host->job, &host->err));
    host_leave(host);
}

/* ------------------------------------------------------------------------- elements of views */

/* Rounds to so many significant bits, the least of them no less than 2^min_exponent. */
static double bits_round(double value, int n_bits, int min_exponent, double limit)
{
    int exponent;
    double unit;
    double rounded;

    if (value == 0.0 || !isfinite(value)) {
        return value;
    }
    frexp(value, &exponent);
    exponent = exponent - n_bits < min_exponent ? min_exponent : exponent - n_bits;
    unit = ldexp(1.0, exponent);
    rounded = rint(value / unit) * unit; /* half to even */
    return fabs(rounded) >= limit ? copysign(INFINITY, value) : rounded;
}

double host_round(double value, const char *dtype)
{
    if (strcmp(dtype, "bf16") == 0) {
        return bits_round((double)(float)value, 8, -133, ldexp(1.0, 128));
    }
    if (strcmp(dtype, "fp16") == 0) {
        return bits_round((double)(float)value, 11, -24, 65520.0);
    }
    return (double)(float)value;
}

static uint16_t bf16_encode(double value)
{
    float rounded = (float)host_round(value, "bf16");
    uint32_t bits;

    memcpy(&bits, &rounded, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

static uint16_t fp16_encode(double value)
{
    double rounded = fabs(host_round(value, "fp16"));
    uint16_t sign = signbit(value) ? 0x8000u : 0u;
    int exponent;

    if (isnan(value)) {
        return 0x7e00u;
    }
    if (isinf(rounded)) {
        return sign | 0x7c00u;
    }
    if (rounded < ldexp(1.0, -14)) {
        return sign | (uint16_t)ldexp(rounded, 24);
    }
    frexp(rounded, &exponent);
    return (uint16_t)(sign | (uint16_t)((exponent + 14) << 10) |
                      ((uint16_t)ldexp(rounded, 11 - exponent) & 0x3ffu));
}

static double fp16_decode(uint16_t bits)
{
    int exponent = bits >> 10 & 0x1f;
    double fraction = bits & 0x3ff;
    double value = exponent == 0    ? ldexp(fraction, -24)
                   : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                    : ldexp(1024.0 + fraction, exponent - 25);

    return (bits & 0x8000u) != 0 ? -value : value;
}

static void *tensor_elem(const struct hsdp_tensor *view, uint64_t elem, bool is_written)
{
    return (char *)device_window(view, is_written) + elem * (view->dtype_bits / 8u);
}

double host_read(const struct hsdp_tensor *view, uint64_t elem)
{
    const void *source = tensor_elem(view, elem, false);
    uint32_t wide;
    uint16_t half;
    float value;

    if (view->dtype_bits == 32) {
        memcpy(&value, source, sizeof(value));
        return (double)value;
    }
    memcpy(&half, source, sizeof(half));
    if (view->dtype_code == HSDP_DTYPE_FLOAT) {
        return fp16_decode(half);
    }
    wide = (uint32_t)half << 16;
    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

void host_write(const struct hsdp_tensor *view, uint64_t elem, double value)
{
    void *target = tensor_elem(view, elem, true);
    float single = (float)value;
    uint16_t half;

    if (view->dtype_bits == 32) {
        memcpy(target, &single, sizeof(single));
        return;
    }
    half = view->dtype_code == HSDP_DTYPE_BFLOAT ? bf16_encode(value) : fp16_encode(value);
    memcpy(target, &half, sizeof(half));
}

struct hsdp_tensor host_tensor(struct host *host, uint32_t param, void *base, const char *dtype)
{
    struct hsdp_tensor tensor = {.base = base, .device_type = HSDP_DEVICE_CPU, .dtype_lanes = 1};

    tensor.dtype_code = strcmp(dtype, "bf16") == 0 ? HSDP_DTYPE_BFLOAT : HSDP_DTYPE_FLOAT;
    tensor.dtype_bits = strcmp(dtype, "fp32") == 0 ? 32 : 16;
    tensor.n_dims = (int32_t)host->params[param].n_dims;
    tensor.shape = host->params[param].shape;
    return tensor;
}

/* ------------------------------------------------------------------------- values of weights */

static float *scratch_take(struct host *host, uint32_t param)
{
    free(host->scratch);
    host->scratch = calloc(host->params[param].n_elems + 1, sizeof(float));
    host_expect(host->scratch != NULL);
    return host->scratch;
}

void host_load(struct host *host, host_value weight)
{
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
    for (uint32_t param = 0; param < host->n_params; param++) {
        float *values = scratch_take(host, param);
        struct hsdp_tensor full = host_tensor(host, param, values, "fp32");

        if (host->params[param].storage != param) {
            continue; /* its other name has the values */
        }
        for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
            struct host_at at = {host_holder(host, param, host->rank), 0, param, elem};

            values[elem] = (float)weight(at);
        }
        host_must(host, host->api->model->import_param(host->model, param, HSDP_FLAT_MASTER, &full,
                                                       HSDP_ALL_RANKS, NULL, &host->err));
    }
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
}

const float *host_export(struct host *host, uint32_t param, int32_t flat)
{
    float *values = scratch_take(host, param);
    struct hsdp_tensor full = host_tensor(host, param, values, "fp32");

    host_must(host, host->api->model->export_param(host->model, param, flat, &full, HSDP_ALL_RANKS,
                                                   NULL, &host->err));
    return values;
}

struct hsdp_tensor host_view(struct host *host, uint32_t param, int32_t view)
{
    struct hsdp_tensor tensor;

    host_must(host, host->api->model->param_view(host->model, param, view, &tensor, &host->err));
    return tensor;
}

/* ------------------------------------------------------------------------------- microbatches */

int32_t host_unshard(struct host *host, uint32_t unit, int32_t use)
{
    return host->api->unit->unshard(host->model, unit, use, NULL, NULL, &host->err);
}

int32_t host_release(struct host *host, uint32_t unit)
{
    return host->api->unit->release(host->model, unit, NULL, &host->err);
}

int32_t host_reduce(struct host *host, uint32_t unit)
{
    return host->api->unit->reduce(host->model, host->pass, unit, NULL, NULL, &host->err);
}

int32_t host_skip(struct host *host, uint32_t unit)
{
    return host->api->unit->skip(host->model, host->pass, unit, NULL, NULL, &host->err);
}

int32_t host_backward_begin(struct host *host, const uint32_t *units, uint64_t n_units,
                            int32_t scope, uint64_t *ret_pass)
{
    return host->api->unit->backward_begin(host->model, units, n_units, scope, ret_pass,
                                           &host->err);
}

int32_t host_backward_end(struct host *host, uint64_t pass)
{
    return host->api->unit->backward_end(host->model, pass, NULL, NULL, &host->err);
}

void host_forward(struct host *host)
{
    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
        host_must(host, host_release(host, unit));
    }
}

void host_pass_begin(struct host *host, int32_t scope)
{
    uint32_t units[HOST_MAX_UNITS];
    uint32_t n_units = 0;

    for (uint32_t unit = host->n_units; unit-- > 0;) {
        if (host_is_trainable(host, unit)) {
            units[n_units++] = unit;
        }
    }
    host_must(host, host_backward_begin(host, units, n_units, scope, &host->pass));
}

void host_acquire(struct host *host, uint32_t unit)
{
    host_must(host, host_unshard(host, unit, HSDP_USE_BACKWARD));
}

void host_fill(struct host *host, uint32_t unit, uint32_t microbatch, host_value gradient)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const struct host_param *p = &host->params[param];
        struct hsdp_tensor view;

        if (p->unit != unit || p->is_frozen ||
            (p->storage != param && !host_is_alias(host, param))) {
            continue; /* of names in one unit the first has the view */
        }
        view = host_view(host, param, HSDP_VIEW_GRAD);
        for (uint64_t elem = 0; elem < p->n_elems; elem++) {
            struct host_at at = {host->rank, microbatch, param, elem};

            host_write(&view, elem, gradient(at));
        }
    }
}

void host_hand_over(struct host *host, uint32_t unit)
{
    host_must(host, host_reduce(host, unit));
    host_must(host, host_release(host, unit));
}

void host_attend(struct host *host, uint32_t unit)
{
    host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
    host_must(host, host_release(host, unit));
}

void host_pass_end(struct host *host)
{
    host_must(host, host_backward_end(host, host->pass));
}

void host_backward(struct host *host, int32_t scope, uint32_t microbatch, host_value gradient)
{
    host_pass_begin(host, scope);
    for (uint32_t unit = host->n_units; unit-- > 0;) {
        if (host_is_trainable(host, unit)) {
            host_acquire(host, unit);
            host_fill(host, unit, microbatch, gradient);
            host_hand_over(host, unit);
        }
    }
    host_pass_end(host);
}

void host_grad_add(struct host *host, const char *name, double value, const char *dtype)
{
    uint32_t param = host_param(host, name);
    struct hsdp_tensor grad = host_tensor(host, param, scratch_take(host, param), dtype);

    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        host_write(&grad, elem, value);
    }
    host_must(host, host->api->unit->grad_add(host->model, param, device_tensor(&grad), NULL,
                                              &host->err));
    device_land();
}

/* -------------------------------------------------------------------------------------- steps */

struct hsdp_step_info host_step(struct host *host, double max_norm)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;

    spec.max_norm = max_norm;
    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
    host_must(host, host->api->step->result(host->model, &result, &host->err));
    return result;
}

void host_descend(struct host *host, double rate, double factor)
{
    const struct hsdp_model_ops *ops = host->api->model;

    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_tensor master;
        struct hsdp_tensor grad;

        if (!host_is_stepped(host, unit)) {
            continue;
        }
        host_must(host,
                  ops->flat_view(host->model, unit, 0, HSDP_FLAT_MASTER, &master, &host->err));
        host_must(host, ops->flat_view(host->model, unit, 0, HSDP_FLAT_GRAD, &grad, &host->err));
        for (uint64_t i = 0; i < (uint64_t)master.shape[0]; i++) {
            double step = rate * factor * host_read(&grad, i);

            host_write(&master, i, host_read(&master, i) - step);
        }
    }
}

int32_t host_adamw(struct host *host, double rate, double decay)
{
    const double rates[] = {rate, rate * 0.5};
    const double decays[] = {decay, 0.0};
    struct hsdp_adamw_spec spec = HSDP_ADAMW_SPEC_INIT;
    const void *table;
    const struct hsdp_adamw_ops *adamw;

    host_needs(HOST_EXTENSION, HSDP_ADAMW_EXTENSION);
    host_must(host, host->api->extension(HSDP_ADAMW_EXTENSION, &table, &host->err));
    adamw = table;
    spec.learning_rate = rates;
    spec.weight_decay = decays;
    spec.n_hyper_groups = 2;
    spec.beta1 = 0.9;
    spec.beta2 = 0.95;
    spec.epsilon = 1e-8;
    return adamw->step(host->model, &spec, &host->err);
}

void host_step_end(struct host *host)
{
    host_must(host, host->api->step->end(host->model, NULL, NULL, &host->err));
}

/* ----------------------------------------------------------------------------------- checking */

void host_expect_number(const struct host *host, const char *name, uint64_t elem, double found,
                        double expected)
{
    if (found != expected && !(isnan(found) && isnan(expected))) {
        host_fail("rank %u: %s[%u] is %.9g, not %.9g", host->rank, name, (unsigned)elem, found,
                  expected);
    }
}

void host_expect_param(struct host *host, const char *name, double value)
{
    uint32_t param = host_param(host, name);
    struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);

    host_must(host, host_unshard(host, host->params[param].unit, HSDP_USE_FORWARD));
    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        host_expect_number(host, name, elem, host_read(&view, elem), value);
    }
    host_must(host, host_release(host, host->params[param].unit));
}

void host_expect_grad(struct host *host, const char *name, double value)
{
    uint32_t param = host_param(host, name);
    const float *values = host_export(host, param, HSDP_FLAT_GRAD);

    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        host_expect_number(host, name, elem, (double)values[elem], value);
    }
}
