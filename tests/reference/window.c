/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: the passes from one step to the next, and what they leave. */
#include <string.h>

#include "model.h"

void window_clear(hsdp_model *model)
{
    for (uint32_t u = 0; u < model->n_units; u++) {
        struct unit *unit = &model->units[u];

        unit->has_local = unit->has_rest = unit->has_extra = unit->has_sum = false;
        memset(unit->local, 0, unit->n_packed * sizeof(float));
        memset(unit->rest, 0, unit->n_packed * sizeof(float));
        memset(unit->extra, 0, unit->n_packed * sizeof(float));
        memset(unit->sum, 0, unit->n_packed * sizeof(double));
    }
}

int32_t units_rest_check(const struct call *call, const hsdp_model *model)
{
    for (uint32_t u = 0; u < model->n_units; u++) {
        if (model->units[u].pass != NULL) {
            return unit_refuse(call, model, u, HSDP_ERR_STATE,
                               "is in an open backward pass; unit.backward_end was expected");
        }
        if (model->units[u].n_uses != 0) {
            return unit_refuse(call, model, u, HSDP_ERR_STATE,
                               "is still unsharded; unit.release was expected");
        }
    }
    return HSDP_OK;
}

int32_t window_check(const struct call *call, const hsdp_model *model)
{
    for (uint32_t u = 0; u < model->n_units; u++) {
        const struct unit *unit = &model->units[u];

        if (unit->has_local || unit->has_rest || unit->has_extra) {
            return unit_refuse(call, model, u, HSDP_ERR_STATE,
                               "holds gradients that no pass of scope full has taken up; such a "
                               "pass was expected as the last one of the window");
        }
    }
    return HSDP_OK;
}
