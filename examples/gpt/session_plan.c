/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a session: one class, one unit for each block, for the embedding and for the head. */
#include <string.h>

#include "session.h"

/* One unit with its parameters, added to the plan. */
static int unit_add(struct session *session, uint32_t unit, uint32_t class_index,
                    struct fault *ret_fault)
{
    const struct hsdp_plan_ops *plan = session->api->plan;
    struct session_unit *own = &session->units[unit];
    struct hsdp_error error = HSDP_ERROR_INIT;
    char name[MODEL_NAME_BYTES];
    uint32_t index;

    model_unit_name(&session->shape, unit, name, sizeof(name));
    if (plan->add_unit(session->plan, name, class_index, &index, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    own->n_params = model_unit_params(&session->shape, unit, own->table);
    for (uint32_t i = 0; i < own->n_params; i++) {
        struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;

        spec.name = own->table[i].name;
        spec.shape = own->table[i].shape;
        spec.n_dims = own->table[i].n_dims;
        spec.unit = index;
        spec.hyper_group = own->table[i].hyper_group;
        if (plan->add_param(session->plan, &spec, &own->params[i], &error) != HSDP_OK) {
            return session_fault(session, &error, ret_fault);
        }
    }
    return 0;
}

/* Learns what the finished plan has decided: the slots, and the scope of early microbatches. */
static int plan_read(struct session *session, struct fault *ret_fault)
{
    const struct hsdp_plan_ops *plan = session->api->plan;
    struct hsdp_error error = HSDP_ERROR_INIT;
    const char *scope, *source;

    for (uint32_t unit = 0; unit < session->n_units; unit++) {
        struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;

        if (plan->unit_info(session->plan, unit, &info, &error) != HSDP_OK) {
            return session_fault(session, &error, ret_fault);
        }
        session->units[unit].n_buffers = info.n_buffers;
        session->units[unit].param_slot = info.param_slot;
        session->units[unit].grad_slot = info.grad_slot;
    }
    if (plan->setting(session->plan, "accumulation_scope", &scope, &source, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    session->early_scope = strcmp(scope, "full") == 0    ? HSDP_SCOPE_FULL
                           : strcmp(scope, "inner") == 0 ? HSDP_SCOPE_INNER
                                                         : HSDP_SCOPE_NONE;
    return 0;
}

int session_plan(struct session *session, struct fault *ret_fault)
{
    const struct hsdp_plan_ops *plan = session->api->plan;
    const char *keys[CONFIG_MAX_KEYS], *values[CONFIG_MAX_KEYS];
    struct hsdp_settings settings = {keys, values, 0};
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct hsdp_error error = HSDP_ERROR_INIT;
    uint32_t class_index;

    settings.n_settings = config_settings(session->config, CONFIG_PLAN, keys, values);
    dense.name = "dense"; /* replicated over all data dimensions: the default */
    if (plan->create(session->mesh, &settings, &session->plan, &error) != HSDP_OK ||
        plan->add_class(session->plan, &dense, &class_index, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    for (uint32_t unit = 0; unit < session->n_units; unit++) {
        const int status = unit_add(session, unit, class_index, ret_fault);

        if (status != 0) {
            return status;
        }
    }
    if (plan->finish(session->plan, &error) != HSDP_OK) {
        return session_fault(session, &error, ret_fault);
    }
    return plan_read(session, ret_fault);
}
