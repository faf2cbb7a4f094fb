/* SPDX-License-Identifier: Apache-2.0 */
/* What training must compute, without any sharding. */
#include "serial.h"

#include <math.h>
#include <stdlib.h>

static bool param_is_trained(const struct host *host, uint32_t param)
{
    return !host->params[param].is_frozen && host->params[param].storage == param;
}

void serial_init(struct serial *serial, const struct host *host, host_value weight)
{
    memset(serial, 0, sizeof(*serial));
    serial->host = host;
    serial->divisor = 1.0;
    for (uint32_t d = 0; d < host->n_dims; d++) {
        serial->divisor *= host->dims[d].is_data ? host->dims[d].size : 1;
    }
    for (uint32_t param = 0; param < host->n_params; param++) {
        uint64_t n_elems = host->params[param].n_elems;
        struct host_at at = {host_holder(host, param, host->rank), 0, host->params[param].storage,
                             0};

        serial->weights[param] = calloc(n_elems + 1, sizeof(double));
        serial->grads[param] = calloc(n_elems + 1, sizeof(double));
        serial->masses[param] = calloc(n_elems + 1, sizeof(double));
        for (at.elem = 0; at.elem < n_elems; at.elem++) {
            serial->weights[param][at.elem] = (double)(float)weight(at);
        }
    }
}

void serial_fini(struct serial *serial)
{
    for (uint32_t param = 0; param < serial->host->n_params; param++) {
        free(serial->weights[param]);
        free(serial->grads[param]);
        free(serial->masses[param]);
    }
}

/* A dtype setting of the parameter's class. */
static const char *dtype_of(const struct host *host, uint32_t param, const char *key)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const char *value = NULL;
    const char *source;

    ck_assert_int_eq(host->api->plan->class_setting(host->plan,
                                                    host->unit_classes[host->params[param].unit],
                                                    key, &value, &source, &err),
                     HSDP_OK);
    return value;
}

/* What one rank contributes to an element in a window. */
static void contribution_add(const struct serial *serial, struct host_at at,
                             const char *const dtypes[2], double *ret_sum, double *ret_mass)
{
    float local = 0.0f; /* since the last contribution */

    for (uint32_t batch = 0; batch < serial->n_batches; batch++) {
        double late;
        double sent;

        at.microbatch = serial->first_batch + batch;
        late = serial->late == NULL ? 0.0 : (double)(float)serial->late(at);
        local += (float)host_round(serial->gradient(at), dtypes[0]);
        local += (float)late; /* in fp32, whatever the dtype of the views */
        if (serial->is_local && serial->scopes[batch] != HSDP_SCOPE_FULL) {
            continue;
        }
        sent = host_round((double)local, dtypes[1]);
        *ret_sum += sent;
        *ret_mass += fabs(sent);
        local = 0.0f;
    }
}

/* Sums of squares. */
struct squares {
    double grads;
    double masses;
};

/* The gradient of a parameter as `holder` and its peers hold it. */
static void holder_reduce(struct serial *serial, uint32_t param, uint32_t holder, bool is_mine,
                          struct squares *squares)
{
    const struct host *host = serial->host;
    const char *dtypes[2] = {dtype_of(host, param, "gradient_dtype"),
                             dtype_of(host, param, "reduce_dtype")};

    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        double sum = 0.0;
        double mass = 0.0;

        for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
            if (host_reducer(host, param, rank) == holder) {
                struct host_at at = {rank, 0, param, elem};

                contribution_add(serial, at, dtypes, &sum, &mass);
            }
        }
        sum /= serial->divisor;
        mass /= serial->divisor;
        squares->grads += sum * sum;
        squares->masses += mass * mass;
        if (is_mine) {
            serial->grads[param][elem] = sum;
            serial->masses[param][elem] = mass;
        }
    }
}

void serial_reduce(struct serial *serial)
{
    const struct host *host = serial->host;
    struct squares squares = {0.0, 0.0};

    for (uint32_t param = 0; param < host->n_params; param++) {
        if (!param_is_trained(host, param)) {
            continue;
        }
        for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
            if (host_holder(host, param, rank) == rank) {
                holder_reduce(serial, param, rank, host_holder(host, param, host->rank) == rank,
                              &squares);
            }
        }
    }
    serial->norm = sqrt(squares.grads);
    serial->norm_slack = 1e-6 * sqrt(squares.masses);
}

void serial_expect_norm(const struct serial *serial, double norm)
{
    if (!(fabs(norm - serial->norm) <= serial->norm_slack)) {
        ck_abort_msg("rank %u: the norm is %.9g, serially it is %.9g (slack %.3g)",
                     serial->host->rank, norm, serial->norm, serial->norm_slack);
    }
}

void serial_descend(struct serial *serial, double rate, double factor)
{
    for (uint32_t param = 0; param < serial->host->n_params; param++) {
        uint32_t storage = serial->host->params[param].storage;

        for (uint64_t elem = 0; elem < serial->host->params[param].n_elems; elem++) {
            serial->weights[param][elem] -= rate * factor * serial->grads[storage][elem];
        }
    }
}

static void close_expect(const struct serial *serial, const char *what, struct host_at at,
                         double found, double expected, double slack)
{
    const struct host *host = serial->host;

    if (!(fabs(found - expected) <= slack)) {
        ck_abort_msg("rank %u: %s %s[%u] is %.9g, serially it is %.9g (slack %.3g)", host->rank,
                     what, host->params[at.param].name, (unsigned)at.elem, found, expected, slack);
    }
}

void serial_expect_grads(const struct serial *serial, struct host *host)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *values;
        struct host_at at = {host->rank, 0, param, 0};

        if (!param_is_trained(host, param)) {
            continue;
        }
        values = host_export(host, param, HSDP_FLAT_GRAD);
        for (at.elem = 0; at.elem < host->params[param].n_elems; at.elem++) {
            close_expect(serial, "gradient", at, (double)values[at.elem],
                         serial->grads[param][at.elem],
                         1e-6 * serial->masses[param][at.elem] + 1e-30);
        }
    }
}

static double dtype_slack(const char *dtype)
{
    return strcmp(dtype, "bf16") == 0 ? 0x1p-8 : strcmp(dtype, "fp16") == 0 ? 0x1p-11 : 0.0;
}

void serial_expect_weights(const struct serial *serial, struct host *host)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *masters = host_export(host, param, HSDP_FLAT_MASTER);
        double slack = 4e-6 + dtype_slack(dtype_of(host, param, "param_dtype"));
        struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);
        uint32_t unit = host->params[param].unit;
        struct host_at at = {host->rank, 0, param, 0};

        host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
        for (at.elem = 0; at.elem < host->params[param].n_elems; at.elem++) {
            double expected = serial->weights[param][at.elem];

            close_expect(serial, "master", at, (double)masters[at.elem], expected,
                         4e-6 * (1.0 + fabs(expected)));
            close_expect(serial, "parameter", at, host_read(&view, at.elem), expected,
                         slack * (1.0 + fabs(expected)));
        }
        host_must(host, host_release(host, unit));
    }
}
