/* SPDX-License-Identifier: Apache-2.0 */
/* One microbatch over the units of a session. */
#include "compute.h"

#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "convert.h"

#define CACHE_LINE_BYTES 64u

static size_t unit_elems(const struct session_unit *unit)
{
    size_t n_elems = 0;

    for (uint32_t i = 0; i < unit->n_params; i++) {
        n_elems += model_param_elems(&unit->table[i]);
    }
    return n_elems;
}

/* Zeroed, and so aligned that no result can depend on where the memory lies. */
static float *floats_alloc(size_t n_elems)
{
    const size_t bytes = (n_elems * sizeof(float) / CACHE_LINE_BYTES + 1) * CACHE_LINE_BYTES;
    float *floats = aligned_alloc(CACHE_LINE_BYTES, bytes);

    if (floats != NULL) {
        memset(floats, 0, bytes);
    }
    return floats;
}

/* Scratch for one unit, where the plugin's views are not fp32, or not in the host's memory. */
static int scratch_init(struct compute *compute)
{
    const int is_apart = compute->session->device != NULL;
    size_t largest = 0;

    for (uint32_t unit = 0; unit < compute->session->n_units; unit++) {
        const size_t n_elems = unit_elems(&compute->session->units[unit]);

        largest = n_elems > largest ? n_elems : largest;
    }
    if (is_apart || !convert_is_fp32(&compute->session->units[0].values[0])) {
        compute->values = floats_alloc(largest);
        if (compute->values == NULL) {
            return -1;
        }
    }
    if (is_apart || !convert_is_fp32(&compute->session->units[0].grads[0])) {
        compute->grads = floats_alloc(largest);
        if (compute->grads == NULL) {
            return -1;
        }
    }
    return 0;
}

int compute_init(struct compute *compute, struct session *session, struct fault *ret_fault)
{
    const struct model_shape *shape = &session->shape;
    const size_t n_elems = model_arena_elems(shape);
    const size_t n_tokens = (size_t)shape->n_batch * shape->n_positions;

    memset(compute, 0, sizeof(*compute));
    compute->session = session;
    if (!convert_is_known(&session->units[0].values[0]) ||
        !convert_is_known(&session->units[0].grads[0])) {
        return fault_set(ret_fault, FAULT_PLACE,
                         "the plugin's parameters or gradients have a dtype that hsdp-gpt cannot "
                         "read; fp32, bf16 and fp16 are allowed");
    }
    compute->arena_base = floats_alloc(n_elems);
    compute->inputs = calloc(n_tokens, 1);
    compute->targets = calloc(n_tokens, 1);
    compute->tickets = calloc(session->n_units, sizeof(*compute->tickets));
    compute->is_started = calloc(session->n_units, 1);
    compute->backward = calloc(session->n_units, sizeof(*compute->backward));
    if (compute->arena_base == NULL || compute->inputs == NULL || compute->targets == NULL ||
        compute->tickets == NULL || compute->is_started == NULL || compute->backward == NULL ||
        scratch_init(compute) != 0) {
        return fault_set(ret_fault, FAULT_RUN, "no memory for the %zu bytes of activations",
                         n_elems * sizeof(float));
    }
    for (uint32_t i = 0; i < session->n_units; i++) {
        compute->backward[i] = session->n_units - 1 - i;
    }
    model_arena_init(shape, compute->arena_base, &compute->arena);
    return 0;
}

void compute_fini(struct compute *compute)
{
    free(compute->arena_base);
    free(compute->values);
    free(compute->grads);
    free(compute->inputs);
    free(compute->targets);
    free(compute->tickets);
    free(compute->is_started);
    free(compute->backward);
    memset(compute, 0, sizeof(*compute));
}

static struct model_pass pass_of(const struct compute *compute)
{
    return (struct model_pass){.shape = &compute->session->shape,
                               .arena = &compute->arena,
                               .inputs = compute->inputs,
                               .targets = compute->targets};
}

int compute_forward(struct compute *compute, int keep_head, struct fault *ret_fault)
{
    const struct model_pass pass = pass_of(compute);
    const uint32_t n_units = compute->session->n_units;
    const float *values[MODEL_MAX_PARAMS];

    for (uint32_t unit = 0; unit < n_units; unit++) {
        const uint32_t next = unit + 1;
        int status = access_acquire(compute, unit, next < n_units ? &next : NULL, HSDP_USE_FORWARD,
                                    ret_fault);

        if (status != 0) {
            return status;
        }
        status = access_values(compute, unit, values, ret_fault);
        if (status != 0) {
            return status;
        }
        model_forward(&pass, unit, values);
        if (unit + 1 == n_units && keep_head) {
            break;
        }
        status = access_release(compute, unit, ret_fault);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

/* One unit of an open pass: its gradients are set, handed over, and its parameters released. */
static int unit_backward(struct compute *compute, uint64_t open_pass, const uint32_t *unit,
                         const uint32_t *next, struct fault *ret_fault)
{
    struct session *session = compute->session;
    const struct model_pass pass = pass_of(compute);
    const float *values[MODEL_MAX_PARAMS];
    float *grads[MODEL_MAX_PARAMS];
    struct hsdp_error error = HSDP_ERROR_INIT;
    int status = access_acquire(compute, *unit, next, HSDP_USE_BACKWARD_SET, ret_fault);

    if (status == 0 && *unit == session->n_units - 1) {
        status = access_release(compute, *unit, ret_fault); /* the use that the forward kept */
    }
    if (status != 0) {
        return status;
    }
    status = access_values(compute, *unit, values, ret_fault);
    if (status != 0) {
        return status;
    }
    access_grads(compute, *unit, grads);
    model_backward(&pass, *unit, values, grads);
    status = access_store(compute, *unit, grads, ret_fault);
    if (status != 0) {
        return status;
    }
    laps_end(&session->laps, LAPS_COMPUTE);
    if (session->api->unit->reduce(session->model, open_pass, *unit, session->stream, NULL,
                                   &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    laps_end(&session->laps, LAPS_COMMUNICATION);
    return access_release(compute, *unit, ret_fault);
}

int compute_backward(struct compute *compute, int32_t scope, struct fault *ret_fault)
{
    struct session *session = compute->session;
    const struct hsdp_unit_ops *unit = session->api->unit;
    const uint32_t n_units = session->n_units;
    struct hsdp_error error = HSDP_ERROR_INIT;
    uint64_t open_pass;

    laps_end(&session->laps, LAPS_COMPUTE);
    if (unit->backward_begin(session->model, compute->backward, n_units, scope, &open_pass,
                             &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    laps_end(&session->laps, LAPS_COMMUNICATION);
    for (uint32_t i = 0; i < n_units; i++) {
        const uint32_t *next = i + 1 < n_units ? &compute->backward[i + 1] : NULL;
        const int status =
            unit_backward(compute, open_pass, &compute->backward[i], next, ret_fault);

        if (status != 0) {
            return status;
        }
    }
    laps_end(&session->laps, LAPS_COMPUTE);
    if (unit->backward_end(session->model, open_pass, session->stream, NULL, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    laps_end(&session->laps, LAPS_COMMUNICATION);
    return 0;
}

double compute_loss(const struct compute *compute, uint32_t n_sequences)
{
    const struct model_pass pass = pass_of(compute);

    return n_sequences == 0 ? 0 : model_loss(&pass, n_sequences);
}
