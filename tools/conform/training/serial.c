/* SPDX-License-Identifier: Apache-2.0 */
/* What training must compute, without any sharding. */
#include "serial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool param_is_trained(const struct host *host, uint32_t param)
{
    return !host->params[param].is_frozen && host->params[param].storage == param;
}

/* A setting of the parameter's class. */
static const char *setting_of(const struct host *host, uint32_t param, const char *key)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const char *value = NULL;
    const char *source;

    host_expect(host->api->plan->class_setting(host->plan,
                                               host->unit_classes[host->params[param].unit], key,
                                               &value, &source, &err) == HSDP_OK);
    return value;
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
        serial->slacks[param] = calloc(n_elems + 1, sizeof(double));
        serial->grads[param] = calloc(n_elems + 1, sizeof(double));
        serial->masses[param] = calloc(n_elems + 1, sizeof(double));
        for (at.elem = 0; at.elem < n_elems; at.elem++) {
            serial->weights[param][at.elem] =
                host_round(weight(at), setting_of(host, param, "master_dtype"));
        }
    }
}

void serial_fini(struct serial *serial)
{
    for (uint32_t param = 0; param < serial->host->n_params; param++) {
        free(serial->weights[param]);
        free(serial->slacks[param]);
        free(serial->grads[param]);
        free(serial->masses[param]);
    }
}

/* Whether the host has given the divisor of a class; what the plan derives is not believed. */
static bool has_divisor(const struct host *host, uint32_t class_index, const char **ret_value)
{
    const struct hsdp_plan_ops *ops = host->api->plan;
    const char *source = "";

    if (ops->class_setting(host->plan, class_index, "gradient_divisor", ret_value, &source, NULL) ==
            HSDP_OK &&
        strncmp(source, "host", 4) == 0) {
        return true;
    }
    return ops->setting(host->plan, "gradient_divisor", ret_value, &source, NULL) == HSDP_OK &&
           strncmp(source, "host", 4) == 0;
}

/* What the sum of a parameter's gradients is divided by. */
static double divisor_of(const struct serial *serial, uint32_t param)
{
    const char *divisor;

    if (strcmp(setting_of(serial->host, param, "gradient_op"), "sum") == 0) {
        return 1.0;
    }
    return has_divisor(serial->host, serial->host->unit_classes[serial->host->params[param].unit],
                       &divisor)
               ? strtod(divisor, NULL)
               : serial->divisor;
}

/* What a rank has added up since its last contribution, and by how much it may be another number:
 * in which order names and late gradients join is nobody's promise. */
struct local {
    float sum;
    double mass;
    uint32_t n_added;
};

static void local_add(struct local *local, double value)
{
    local->sum += (float)value;
    local->mass += fabs(value);
    local->n_added += value != 0.0;
}

/* What the names of a storage in other units add to it; each has a view of its own. */
static void aliases_add(const struct serial *serial, struct host_at at, const char *dtype,
                        struct local *local)
{
    uint32_t storage = at.param;

    for (at.param = storage + 1; at.param < serial->host->n_params; at.param++) {
        if (serial->host->params[at.param].storage == storage &&
            host_is_alias(serial->host, at.param)) {
            local_add(local, host_round(serial->gradient(at), dtype));
        }
    }
}

/* The sum of contributions to an element. */
struct total {
    double sum;
    double mass;
    double doubt; /* what the roundings of contributions may differ by */
};

/* Hands over what a rank has: rounded once. */
static void contribution_send(const struct serial *serial, struct local *local, const char *dtype,
                              struct total *total)
{
    double sent = host_round((double)local->sum, dtype);

    total->sum += sent;
    total->mass += fabs(sent);
    if (!serial->is_exact && local->n_added > 1) {
        double off = local->n_added * 0x1p-24 * local->mass;
        double more = host_round((double)local->sum + off, dtype);
        double less = host_round((double)local->sum - off, dtype);

        total->doubt += more - less;
    }
    *local = (struct local){0.0f, 0.0, 0};
}

/* What one rank contributes to an element in a window. */
static void contribution_add(const struct serial *serial, struct host_at at,
                             const char *const dtypes[2], struct total *total)
{
    struct local local = {0.0f, 0.0, 0};

    for (uint32_t batch = 0; batch < serial->n_batches; batch++) {
        at.microbatch = serial->first_batch + batch;
        if (serial->has_pass != NULL && !serial->has_pass(at.microbatch, at.param)) {
            continue;
        }
        local_add(&local, host_round(serial->gradient(at), dtypes[0]));
        aliases_add(serial, at, dtypes[0], &local);
        /* in fp32, whatever the dtype of the views */
        local_add(&local, serial->late == NULL ? 0.0 : (double)(float)serial->late(at));
        if (!serial->is_local || serial->scopes[batch] == HSDP_SCOPE_FULL) {
            contribution_send(serial, &local, dtypes[1], total);
        }
    }
}

/* Two norms at once: of the gradients, and of their masses. */
struct norms {
    double grads;
    double masses;
};

/* Adds one element to a norm that norm_root ends. */
static void norm_add(double *norm, double p, double magnitude)
{
    if (isinf(p)) {
        *norm = magnitude > *norm || isnan(magnitude) ? magnitude : *norm;
    } else {
        *norm += p == 1.0 ? magnitude : p == 2.0 ? magnitude * magnitude : pow(magnitude, p);
    }
}

static double norm_root(double norm, double p)
{
    return isinf(p) || p == 1.0 ? norm : p == 2.0 ? sqrt(norm) : pow(norm, 1.0 / p);
}

/* The same rank of the first stage that holds a parameter. */
static uint32_t first_holder(const struct serial *serial, uint32_t param, uint32_t rank)
{
    return serial->first_holder == NULL ? rank : serial->first_holder(param, rank);
}

/* The gradient of a parameter as `holder` and its peers hold it, on all stages. */
static void holder_reduce(struct serial *serial, uint32_t param, uint32_t holder, bool is_mine,
                          struct norms *norms)
{
    const struct host *host = serial->host;
    const char *dtypes[2] = {setting_of(host, param, "gradient_dtype"),
                             setting_of(host, param, "reduce_dtype")};
    double p = serial->norm_p == 0.0 ? 2.0 : serial->norm_p;
    double divisor = divisor_of(serial, param);
    uint32_t peers[SERIAL_MAX_RANKS];
    uint32_t n_peers = 0;

    for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
        if (host_reducer(host, param, first_holder(serial, param, rank)) == holder) {
            peers[n_peers++] = rank;
        }
    }
    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        struct total total = {0.0, 0.0, 0.0};

        for (uint32_t i = 0; i < n_peers; i++) {
            struct host_at at = {peers[i], 0, param, elem};

            contribution_add(serial, at, dtypes, &total);
        }
        total.sum /= divisor;
        total.mass = serial->is_exact ? fabs(total.sum)
                                      : (total.mass + total.doubt / serial->rounding) / divisor;
        norm_add(&norms->grads, p, fabs(total.sum));
        norm_add(&norms->masses, p, total.mass);
        if (is_mine) {
            serial->grads[param][elem] = total.sum;
            serial->masses[param][elem] = total.mass;
        }
    }
}

void serial_reduce(struct serial *serial)
{
    const struct host *host = serial->host;
    double p = serial->norm_p == 0.0 ? 2.0 : serial->norm_p;
    struct norms norms = {0.0, 0.0};

    serial->rounding =
        serial->is_exact ? 0x1p-24 : (double)(host->n_ranks * serial->n_batches + 1) * 0x1p-24;
    for (uint32_t param = 0; param < host->n_params; param++) {
        if (!param_is_trained(host, param)) {
            continue;
        }
        for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
            uint32_t own = first_holder(serial, param, host->rank);

            if (host_holder(host, param, first_holder(serial, param, rank)) == rank) {
                holder_reduce(serial, param, rank, host_holder(host, param, own) == rank, &norms);
            }
        }
    }
    serial->norm = norm_root(norms.grads, p);
    serial->norm_slack = serial->rounding * norm_root(norms.masses, p);
}

/* The model's own sums round, too, far below. */
bool serial_has_norm(const struct serial *serial, double norm, double scale)
{
    return fabs(norm - serial->norm * scale) <= (serial->norm_slack + 1e-12 * serial->norm) * scale;
}

void serial_expect_norm(const struct serial *serial, double norm)
{
    if (!serial_has_norm(serial, norm, 1.0)) {
        host_fail("rank %u: the norm is %.9g, serially it is %.9g (slack %.3g)", serial->host->rank,
                  norm, serial->norm, serial->norm_slack);
    }
}

/* Half a unit in the last place of a number below 1, and with it of any by its magnitude. */
static double dtype_rounding(const char *dtype)
{
    return strcmp(dtype, "bf16") == 0 ? 0x1p-8 : strcmp(dtype, "fp16") == 0 ? 0x1p-11 : 0x1p-24;
}

void serial_descend(struct serial *serial, double rate, double factor)
{
    for (uint32_t param = 0; param < serial->host->n_params; param++) {
        uint32_t storage = serial->host->params[param].storage;
        double rounding = dtype_rounding(setting_of(serial->host, param, "master_dtype"));

        for (uint64_t elem = 0; elem < serial->host->params[param].n_elems; elem++) {
            double change = rate * factor * serial->grads[storage][elem];
            double *slack = &serial->slacks[param][elem];

            serial->weights[param][elem] -= change;
            *slack += rate * factor * serial->rounding * serial->masses[storage][elem] +
                      0x1p-50 * fabs(change);
            *slack += rounding * (fabs(serial->weights[param][elem]) + *slack) + 0x1p-24;
        }
    }
}

/* A number of the engine, and what it should be. */
struct pair {
    const char *what;
    struct host_at at;
    double found;
    double expected;
    double slack;
};

/* Whether they are near enough; if not, ret_text says which number it is. */
static bool pair_is_close(const struct host *host, const struct pair *pair,
                          char ret_text[SERIAL_TEXT_BYTES])
{
    if (fabs(pair->found - pair->expected) <= pair->slack) {
        return true;
    }
    snprintf(ret_text, SERIAL_TEXT_BYTES,
             "rank %u: %s %s[%u] is %.9g, serially it is %.9g (slack %.3g)", host->rank, pair->what,
             host->params[pair->at.param].name, (unsigned)pair->at.elem, pair->found,
             pair->expected, pair->slack);
    return false;
}

bool serial_has_grads(const struct serial *serial, struct host *host,
                      char ret_text[SERIAL_TEXT_BYTES])
{
    bool is_same = true;

    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *values;
        struct host_at at = {host->rank, 0, param, 0};

        if (!param_is_trained(host, param)) {
            continue;
        }
        values = host_export(host, param, HSDP_FLAT_GRAD);
        for (at.elem = 0; is_same && at.elem < host->params[param].n_elems; at.elem++) {
            struct pair pair = {"gradient", at, (double)values[at.elem],
                                serial->grads[param][at.elem],
                                serial->rounding * serial->masses[param][at.elem] + 1e-30};

            is_same = pair_is_close(host, &pair, ret_text);
        }
    }
    return is_same;
}

void serial_expect_grads(const struct serial *serial, struct host *host)
{
    char text[SERIAL_TEXT_BYTES];

    if (!serial_has_grads(serial, host, text)) {
        host_fail("%s", text);
    }
}

void serial_expect_weights(const struct serial *serial, struct host *host)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        const float *masters = host_export(host, param, HSDP_FLAT_MASTER);
        double rounding = dtype_rounding(setting_of(host, param, "param_dtype"));
        struct hsdp_tensor view = host_view(host, param, HSDP_VIEW_PARAM);
        uint32_t unit = host->params[param].unit;
        struct host_at at = {host->rank, 0, param, 0};
        char text[SERIAL_TEXT_BYTES];

        host_must(host, host_unshard(host, unit, HSDP_USE_FORWARD));
        for (at.elem = 0; at.elem < host->params[param].n_elems; at.elem++) {
            double expected = serial->weights[param][at.elem];
            double slack = serial->slacks[param][at.elem];
            struct pair master = {"master", at, (double)masters[at.elem], expected, slack};
            struct pair whole = {"parameter", at, host_read(&view, at.elem), expected,
                                 slack + rounding * (fabs(expected) + slack) + 0x1p-24};

            if (!pair_is_close(host, &master, text) || !pair_is_close(host, &whole, text)) {
                host_fail("%s", text);
            }
        }
        host_must(host, host_release(host, unit));
    }
}
