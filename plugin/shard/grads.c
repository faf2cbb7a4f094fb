/* SPDX-License-Identifier: Apache-2.0 */
/* Reduced gradients: what the norm counts of them on this rank, and dividing once. */
#include "shard/grads.h"

#include <math.h>

#include "comm/probe.h"
#include "device/space.h"
#include "hsdp/unit.h"

/* ---------------------------------------------------------------- the norm of what is reduced */

static const struct plan_class *class_of(const struct hsdp_model *model, uint32_t unit)
{
    return &model->plan->classes[model->plan->units[unit].class_index];
}

static bool is_counted(const struct hsdp_model *model, uint32_t unit)
{
    return placement_is_counted(&class_of(model, unit)->place, model->plan->mesh,
                                model->plan->mesh->rank);
}

double grads_norm_p(struct hsdp_model *model, uint32_t unit, int32_t scope)
{
    struct model_unit *u = &model->units[unit];
    uint64_t n_expected = u->n_full_before == 0 ? 1 : u->n_full_before;
    bool is_sum = !isinf(model->norm_p); /* no maximum */

    if (scope != HSDP_SCOPE_FULL) {
        return 0.0;
    }
    u->n_full++;
    /* What is tied over stages changes once more, in the step. */
    return u->n_full == n_expected && is_sum && is_counted(model, unit) &&
                   !ties_has_unit(model, unit)
               ? model->norm_p
               : 0.0;
}

void grads_close(struct hsdp_model *model, double p)
{
    model->norm_p = p;
    for (uint32_t unit = 0; unit < model->plan->n_units; unit++) {
        struct model_unit *u = &model->units[unit];

        if (u->n_full != 0) {
            u->n_full_before = u->n_full;
            u->n_full = 0;
        }
    }
}

/* ------------------------------------------------------------------------------- settling */

/* How the elements of one unit are settled. */
struct settling {
    struct space *space;
    struct step_words *words; /* NULL: the norm is there, or other ranks count */
    double p;
    float divisor;
    bool is_divided;       /* in place */
    struct plan_part part; /* what this rank counts, unless another stage does */
    float *grads;
};

static int32_t elems_settle(const struct settling *settling, uint64_t first, uint64_t end,
                            bool is_of_part, struct hsdp_error *reterr)
{
    const struct space_ops *ops = settling->space->ops;
    struct space_norm norm = {.values = settling->grads + first, .n_elems = end - first};

    if (first >= end) {
        return HSDP_OK;
    }
    if (is_of_part && settling->words != NULL) {
        norm.p = settling->p;
        norm.divisor = settling->divisor;
        norm.is_divided = settling->is_divided;
        norm.sum = &settling->words->sum;
        norm.max_bits = &settling->words->max_bits;
        return ops->norm(settling->space, &norm, reterr);
    }
    return settling->is_divided
               ? ops->divide(settling->space, norm.values, settling->divisor, norm.n_elems, reterr)
               : HSDP_OK;
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Elements that no other stage counts: those of this rank's part it counts itself. */
static int32_t range_settle(const struct settling *settling, uint64_t first, uint64_t end,
                            struct hsdp_error *reterr)
{
    uint64_t part_first = clamp(settling->part.first_elem, first, end);
    uint64_t part_end = clamp(settling->part.first_elem + settling->part.n_elems, part_first, end);
    int32_t status = elems_settle(settling, first, part_first, false, reterr);

    if (status == HSDP_OK) {
        status = elems_settle(settling, part_first, part_end, true, reterr);
    }
    return status == HSDP_OK ? elems_settle(settling, part_end, end, false, reterr) : status;
}

/* Range by range: other stages count copies of what is tied over them. */
static int32_t ranges_settle(const struct hsdp_model *model, uint32_t unit,
                             const struct settling *settling, struct hsdp_error *reterr)
{
    uint64_t n_elems = model->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];
    int32_t status = HSDP_OK;

    for (uint64_t at = 0; status == HSDP_OK && at < n_elems;) {
        struct tied_range copy = ties_next_copy(model, unit, at);
        uint64_t end = copy.n_elems == 0 ? n_elems : copy.first_elem;

        status = range_settle(settling, at, end, reterr);
        if (status == HSDP_OK) {
            status = elems_settle(settling, end, end + copy.n_elems, false, reterr);
        }
        at = end + copy.n_elems;
    }
    return status;
}

static int32_t unit_settle(struct hsdp_model *model, uint32_t unit, double p,
                           struct step_words *words, struct hsdp_error *reterr)
{
    uint64_t n_elems = model->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];
    uint32_t divisor = class_of(model, unit)->divisor;
    struct settling settling = {.space = model->space, .p = p};
    struct model_unit *u = &model->units[unit];
    struct probe *probe = job_probe(model->job);

    settling.grads = model->ops->step_grads(model->store, unit);
    u->grads_divisor = 0.0f;
    if (!model->ops->has_step_grads(model->store, unit) && !ties_has_unit(model, unit)) {
        probe_write(probe, PROBE_GRADS, unit, settling.grads, n_elems * sizeof(*settling.grads));
        return model->space->ops->zero(model->space, settling.grads, /* in no pass of the window */
                                       n_elems * sizeof(*settling.grads), reterr);
    }
    settling.divisor = (float)divisor;
    settling.is_divided = divisor != 1 && u->are_grads_viewed;
    if (is_counted(model, unit) &&
        (isinf(p) || !model->ops->step_norm(model->store, unit, p, &words->sum))) {
        settling.words = words;
    }
    u->grads_divisor = divisor == 1 || settling.is_divided ? 0.0f : settling.divisor;
    if (settling.is_divided) {
        probe_write(probe, PROBE_GRADS, unit, settling.grads, n_elems * sizeof(*settling.grads));
    } else if (settling.words != NULL) {
        probe_read(probe, PROBE_GRADS, unit, settling.grads, n_elems * sizeof(*settling.grads));
    } else {
        return HSDP_OK; /* as in most steps */
    }
    settling.part = plan_step_part(model->plan, unit);
    return ranges_settle(model, unit, &settling, reterr);
}

int32_t grads_settle(struct hsdp_model *model, double p, struct step_words *words,
                     struct hsdp_error *reterr)
{
    struct space *space = model->space;
    int32_t status = HSDP_OK;

    if (!space->ops->is_host) {
        status = space->ops->zero(space, space->norm, sizeof(*space->norm), reterr);
    }
    for (uint32_t unit = 0; status == HSDP_OK && unit < model->plan->n_units; unit++) {
        if (plan_is_trainable(model->plan, unit)) {
            status = unit_settle(model, unit, p, words, reterr);
        }
    }
    return status;
}

/* ------------------------------------------------------------------------------- dividing late */

float grads_divisor(const struct hsdp_model *model, uint32_t unit)
{
    return model->units[unit].grads_divisor;
}

int32_t grads_divide(struct hsdp_model *model, uint32_t unit, struct hsdp_error *reterr)
{
    uint64_t n_elems = model->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];
    float *grads = model->ops->step_grads(model->store, unit);
    struct model_unit *u = &model->units[unit];
    int32_t status;

    if (!model->step.is_open || u->grads_divisor == 0.0f) {
        return HSDP_OK;
    }
    probe_write(job_probe(model->job), PROBE_GRADS, unit, grads, n_elems * sizeof(*grads));
    status = model->ops->settle(model->store, reterr);
    if (status == HSDP_OK) {
        status = model->space->ops->divide(model->space, grads, u->grads_divisor, n_elems, reterr);
    }
    if (status == HSDP_OK) {
        u->grads_divisor = 0.0f;
    }
    return status;
}
