/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: the plan's word on who owns what, and where it lies. */
#include "model.h"

void walk_begin(const hsdp_model *model, uint32_t unit, int32_t cut, uint32_t rank,
                struct walk *ret)
{
    *ret = (struct walk){.at = {.plan = model->plan, .unit = unit, .cut = cut, .rank = rank}};
}

const struct hsdp_segment *walk_next(struct walk *walk)
{
    struct plan_walk *at = &walk->at;

    while (at->buffer < at->plan->units[at->unit].n_buffers) {
        if (plan_walk_next(at, &walk->segment)) {
            return &walk->segment;
        }
        at->buffer++;
        at->param = 0;
    }
    return NULL;
}

uint64_t segment_whole(const hsdp_model *model, const struct hsdp_segment *segment)
{
    return model->params[segment->param].info.offset_elems + segment->param_offset_elems;
}

uint64_t segment_packed(const hsdp_model *model, const struct hsdp_segment *segment)
{
    return model->params[segment->param].packed + segment->param_offset_elems;
}

bool flat_find(const hsdp_model *model, uint32_t unit, uint32_t buffer, int32_t flat,
               struct flat *ret)
{
    const struct unit *u = &model->units[unit];
    const struct buffer *b = &u->buffers[buffer];

    if (flat == HSDP_FLAT_MASTER) {
        *ret = (struct flat){b->master, u->master_dtype};
    } else if (flat == HSDP_FLAT_GRAD) {
        *ret = (struct flat){(unsigned char *)b->step_grad, DTYPE_FP32};
    } else if (flat >= HSDP_FLAT_STATE && (uint32_t)(flat - HSDP_FLAT_STATE) < model->n_states) {
        uint32_t state = (uint32_t)(flat - HSDP_FLAT_STATE);

        *ret = (struct flat){b->states[state], model->states[state].dtype};
    } else {
        return false;
    }
    return flat == HSDP_FLAT_MASTER || b->info.is_frozen == 0;
}
