/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the units of the plugin: when they are whole, and where they are read and written. */
#include "access.h"

#include "convert.h"
#include "transfer.h"

/* Issues the unshard of a unit, unless that was done ahead. */
static int unit_start(struct compute *compute, uint32_t unit, int32_t use, struct fault *ret_fault)
{
    struct session *session = compute->session;
    struct hsdp_error error = HSDP_ERROR_INIT;

    if (compute->is_started[unit]) {
        return 0;
    }
    if (session->api->unit->unshard(session->model, unit, use, session->stream,
                                    &compute->tickets[unit], &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    compute->is_started[unit] = 1;
    return 0;
}

int access_acquire(struct compute *compute, uint32_t unit, const uint32_t *next, int32_t use,
                   struct fault *ret_fault)
{
    struct session *session = compute->session;
    const struct session_unit *own = &session->units[unit];
    struct hsdp_error error = HSDP_ERROR_INIT;
    int status;

    laps_end(&session->laps, LAPS_COMPUTE);
    status = unit_start(compute, unit, use, ret_fault);
    if (status == 0 && next != NULL) {
        const struct session_unit *other = &session->units[*next];
        const int shares_param =
            own->param_slot == other->param_slot && own->param_slot != HSDP_NO_SLOT;
        const int shares_grad = use != HSDP_USE_FORWARD && own->grad_slot == other->grad_slot &&
                                own->grad_slot != HSDP_NO_SLOT;

        if (!shares_param && !shares_grad) {
            status = unit_start(compute, *next, use, ret_fault);
        }
    }
    if (status != 0) {
        return status;
    }
    compute->is_started[unit] = 0;
    if (session->api->job->ticket_order(session->job, compute->tickets[unit], session->stream,
                                        &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    laps_end(&session->laps, LAPS_COMMUNICATION);
    return 0;
}

int access_release(struct compute *compute, uint32_t unit, struct fault *ret_fault)
{
    struct session *session = compute->session;
    struct hsdp_error error = HSDP_ERROR_INIT;

    laps_end(&session->laps, LAPS_COMPUTE);
    if (session->api->unit->release(session->model, unit, session->stream, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    laps_end(&session->laps, LAPS_COMMUNICATION);
    return 0;
}

int access_values(struct compute *compute, uint32_t unit, const float *ret_values[MODEL_MAX_PARAMS],
                  struct fault *ret_fault)
{
    const struct session_unit *own = &compute->session->units[unit];
    float *scratch = compute->values;
    int status = 0;

    for (uint32_t i = 0; i < own->n_params && status == 0; i++) {
        const size_t n_elems = model_param_elems(&own->table[i]);

        if (scratch == NULL) {
            ret_values[i] = convert_base(&own->values[i]);
        } else {
            status = transfer_load(compute->session, scratch, &own->values[i], n_elems, ret_fault);
            ret_values[i] = scratch;
            scratch += n_elems;
        }
    }
    return status;
}

void access_grads(const struct compute *compute, uint32_t unit, float *ret_grads[MODEL_MAX_PARAMS])
{
    const struct session_unit *own = &compute->session->units[unit];
    float *scratch = compute->grads;

    for (uint32_t i = 0; i < own->n_params; i++) {
        if (scratch == NULL) {
            ret_grads[i] = convert_base(&own->grads[i]);
        } else {
            ret_grads[i] = scratch;
            scratch += model_param_elems(&own->table[i]);
        }
    }
}

int access_store(struct compute *compute, uint32_t unit, float *const grads[MODEL_MAX_PARAMS],
                 struct fault *ret_fault)
{
    const struct session_unit *own = &compute->session->units[unit];
    int status = 0;

    for (uint32_t i = 0; compute->grads != NULL && i < own->n_params && status == 0; i++) {
        status = transfer_store(compute->session, &own->grads[i], 0, grads[i],
                                model_param_elems(&own->table[i]), ret_fault);
    }
    return status;
}
