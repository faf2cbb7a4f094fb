/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training: a case from loading to the last step, against the serial model. */
#include "random_train.h"

#include <math.h>
#include <stdio.h>

/* ----------------------------------------------------------------------------- bits of two runs */

static uint64_t bits_digest(struct host *host, uint32_t param, int32_t flat)
{
    const float *values = host_export(host, param, flat);
    uint64_t digest = 0;

    for (uint64_t elem = 0; elem < host->params[param].n_elems; elem++) {
        uint32_t bits;

        memcpy(&bits, &values[elem], sizeof(bits));
        digest = random_mix(digest, bits, elem, 0);
    }
    return digest;
}

static void grads_note(struct host *host, struct random_trace *trace, uint32_t step)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        if (!host->params[param].is_frozen && host->params[param].storage == param) {
            trace->grads[step][param] = bits_digest(host, param, HSDP_FLAT_GRAD);
        }
    }
}

static void masters_note(struct host *host, struct random_trace *trace)
{
    for (uint32_t param = 0; param < host->n_params; param++) {
        trace->masters[param] = bits_digest(host, param, HSDP_FLAT_MASTER);
    }
}

bool random_traces_agree(const struct random_case *random, const struct host *host,
                         const struct random_trace traces[RANDOM_RUNS],
                         char ret_text[SERIAL_TEXT_BYTES])
{
    for (uint32_t step = 0; step < random->n_steps; step++) {
        for (uint32_t param = 0; param < host->n_params; param++) {
            if (traces[0].grads[step][param] != traces[1].grads[step][param]) {
                snprintf(ret_text, SERIAL_TEXT_BYTES,
                         "rank %u: step %u: gradients of %s have other bits in run 1", host->rank,
                         step, host->params[param].name);
                return false;
            }
        }
        if (memcmp(&traces[0].norms[step], &traces[1].norms[step], sizeof(double)) != 0) {
            snprintf(ret_text, SERIAL_TEXT_BYTES,
                     "rank %u: step %u: the norm is %.17g, in run 1 %.17g", host->rank, step,
                     traces[0].norms[step], traces[1].norms[step]);
            return false;
        }
    }
    for (uint32_t param = 0; param < host->n_params; param++) {
        if (traces[0].masters[param] != traces[1].masters[param]) {
            snprintf(ret_text, SERIAL_TEXT_BYTES, "rank %u: %s has other bits in run 1", host->rank,
                     host->params[param].name);
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------------- steps */

static double weight_sum(const struct host *host, uint32_t step)
{
    double sum = 0.0;

    for (uint32_t rank = 0; rank < host->n_ranks; rank++) { /* the first of each data rank */
        uint32_t stride = 1;
        bool is_first = true;

        for (uint32_t d = host->n_dims; d-- > 0;) {
            is_first =
                is_first && (host->dims[d].is_data || rank / stride % host->dims[d].size == 0);
            stride *= host->dims[d].size;
        }
        sum += is_first ? random_tokens(rank, step) : 0.0;
    }
    return sum;
}

struct hsdp_step_info random_step_open(const struct random_case *random, struct host *host,
                                       uint32_t step)
{
    struct hsdp_step_spec spec = HSDP_STEP_SPEC_INIT;
    struct hsdp_step_info result = HSDP_STEP_INFO_INIT;

    spec.max_norm = random->max_norm;
    spec.norm_p = random->norm_p;
    spec.gradient_scale = random->scale;
    spec.has_weight = random->has_weight;
    spec.weight = random->has_weight ? random_tokens(host->rank, step) : 0.0;
    host_must(host, host->api->step->begin(host->model, &spec, NULL, &host->err));
    host_must(host, host->api->step->result(host->model, &result, &host->err));
    return result;
}

/* What the step says, as a function of what the gradients are. */
static void result_expect(const struct random_case *random, const struct serial *serial,
                          uint32_t step, const struct hsdp_step_info *result)
{
    const struct host *host = serial->host;
    double weight = random->has_weight ? weight_sum(host, step) : 0.0;
    double scale =
        (random->scale == 0.0 ? 1.0 : random->scale) / (random->has_weight ? weight : 1.0);
    bool is_finite = isfinite(serial->norm) && isfinite(scale);
    double clip = random->max_norm == 0.0 || !is_finite
                      ? 1.0
                      : fmin(1.0, random->max_norm / (result->norm + 1e-6));

    host_expect(result->is_nonfinite == !is_finite);
    host_expect(result->weight == weight);
    if (!is_finite) {
        host_expect(!isfinite(result->norm));
        host_expect(result->clip == 1.0);
        return;
    }
    if (!serial_has_norm(serial, result->norm, scale)) {
        host_fail("rank %u: the norm is %.9g, serially it is %.9g (slack %.3g)", host->rank,
                  result->norm, serial->norm * scale, serial->norm_slack * scale);
    }
    host_expect(fabs(result->clip - clip) <= 1e-15 * clip);
    host_expect(fabs(result->factor - scale * clip) <= 1e-15 * scale * clip);
}

/* Exports every parameter, and imports it again from a rank that is not always the first. */
static void params_copy(struct host *host, uint32_t step)
{
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
    for (uint32_t param = 0; param < host->n_params; param++) {
        uint32_t source = host_reducer(host, param, host->rank);
        struct hsdp_tensor full;
        const float *values = host_export(host, param, HSDP_FLAT_MASTER);

        if (step % 2 != 0) { /* the last one instead: the others have nothing to give */
            for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
                source = host_reducer(host, param, rank) == host_reducer(host, param, host->rank)
                             ? rank
                             : source;
            }
        }
        full = host_tensor(host, param, (void *)(uintptr_t)values, "fp32");
        host_must(host, host->api->model->import_param(host->model, param, HSDP_FLAT_MASTER,
                                                       source == host->rank ? &full : NULL, source,
                                                       NULL, &host->err));
    }
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
}

/* Whether this rank has the first of the replicas of its step shard of a unit. */
static bool is_first_replica(struct host *host, uint32_t unit)
{
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;
    struct hsdp_segment own[HOST_MAX_PARAMS];
    uint64_t n_own = 0;

    host_must(host, host->api->plan->unit_info(host->plan, unit, &info, &host->err));
    host_must(host, host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, host->rank, own,
                                              sizeof(own[0]), HOST_MAX_PARAMS, &n_own, &host->err));
    for (uint32_t rank = 0; rank < host->rank; rank++) {
        struct hsdp_segment others[HOST_MAX_PARAMS];
        uint64_t n_others = 0;

        if (host_holder(host, info.first_param, rank) !=
            host_holder(host, info.first_param, host->rank)) {
            continue;
        }
        host_must(host, host->api->plan->segments(host->plan, unit, HSDP_SHARD_STEP, rank, others,
                                                  sizeof(others[0]), HOST_MAX_PARAMS, &n_others,
                                                  &host->err));
        if (n_own == n_others && memcmp(own, others, n_own * sizeof(own[0])) == 0) {
            return false;
        }
    }
    return true;
}

/* Spoils what every replica but the first holds, which sync must mend. */
static void params_sync(struct host *host)
{
    host_must(host, host->api->model->edit_begin(host->model, NULL, &host->err));
    for (uint32_t unit = 0; unit < host->n_units; unit++) {
        struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;

        host_must(host, host->api->plan->unit_info(host->plan, unit, &info, &host->err));
        if (is_first_replica(host, unit)) {
            continue;
        }
        for (uint32_t b = 0; b < info.n_buffers; b++) {
            struct hsdp_tensor flat;

            host_must(host, host->api->model->flat_view(host->model, unit, b, HSDP_FLAT_MASTER,
                                                        &flat, &host->err));
            for (uint64_t i = 0; i < (uint64_t)flat.shape[0]; i++) {
                host_write(&flat, i, 2.0 * host_read(&flat, i)); /* padding stays 0 */
            }
        }
    }
    host_must(host, host->api->model->sync(host->model, NULL, &host->err));
    host_must(host, host->api->model->edit_end(host->model, NULL, &host->err));
}

/* ----------------------------------------------------------------------------------------- runs */

static void step_close(const struct random_case *random, struct host *host, struct serial *serial,
                       uint32_t step, const struct hsdp_step_info *result)
{
    enum random_step kind = random->steps[step];

    if (result->is_nonfinite || kind == RANDOM_STEP_DISCARD || kind == RANDOM_STEP_NONFINITE) {
        host_must(host, host->api->step->discard(host->model, NULL, &host->err));
        return;
    }
    host_descend(host, 0.125, result->factor);
    if (serial != NULL) {
        serial_descend(serial, 0.125, result->factor);
    }
    host_step_end(host);
    if (kind == RANDOM_STEP_COPY) {
        params_copy(host, step);
    } else if (kind == RANDOM_STEP_SYNC) {
        params_sync(host);
    }
}

/* A window and its step; against the model where there is one. */
static void window_run(const struct random_case *random, struct host *host, struct serial *serial,
                       uint32_t step, struct random_trace *trace)
{
    struct hsdp_step_info result;

    for (uint32_t i = 0; i < random->n_batches; i++) {
        if ((random->seed + i) % 4 == 0) {
            host_forward(host);
        }
        random_backward(host, step * random->n_batches + i);
    }
    result = random_step_open(random, host, step);
    if (serial != NULL) {
        serial->first_batch = step * random->n_batches;
        serial_reduce(serial);
        result_expect(random, serial, step, &result);
        if (isfinite(serial->norm)) {
            serial_expect_grads(serial, host);
        }
    }
    if (trace != NULL) { /* NaNs may have any payload */
        trace->norms[step] = result.is_nonfinite ? INFINITY : result.norm;
        if (!result.is_nonfinite) {
            grads_note(host, trace, step);
        }
    }
    step_close(random, host, serial, step, &result);
}

void random_serial_init(struct serial *serial, const struct random_case *random,
                        const struct host *host)
{
    serial_init(serial, host, random_weight);
    serial->gradient = random_gradient;
    serial->late = random_late;
    serial->has_pass = random_has_pass;
    serial->first_holder = random_holder;
    serial->scopes = random->scopes;
    serial->n_batches = random->n_batches;
    serial->is_local = random->is_local;
    serial->is_exact = random->is_exact;
    serial->norm_p = random->norm_p;
}

void random_train(const struct random_case *random, int run, struct host *host,
                  struct random_trace *trace)
{
    char units[RANDOM_TEXT_BYTES];
    struct serial serial;

    random_case_units(random, run, host->rank, units);
    host_plan(host, random->settings[run], units);
    host_model(host);
    random_values_set(random, host);
    host_load(host, random_weight);
    if (run == 0) {
        random_serial_init(&serial, random, host);
    }
    for (uint32_t step = 0; step < random->n_steps; step++) {
        window_run(random, host, run == 0 ? &serial : NULL, step, trace);
    }
    if (run == 0) {
        serial_expect_weights(&serial, host);
        serial_fini(&serial);
    }
    if (trace != NULL) {
        masters_note(host, trace);
    }
}
