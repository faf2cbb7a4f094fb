/* SPDX-License-Identifier: Apache-2.0 */
/* Reduced gradients: what the norm counts of them on this rank, and dividing once. */
#include "shard/grads.h"

#include <math.h>
#include <string.h>

#include "comm/probe.h"
#include "device/kernels.h"
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
    const struct kernels *kernels;
    struct step_words *words; /* NULL: the norm is there, or other ranks count */
    double p;
    float divisor;
    struct plan_part part; /* what this rank counts, unless another stage does */
    float *grads;
};

static void elems_settle(const struct settling *settling, uint64_t first, uint64_t end,
                         bool is_counted_here)
{
    float *grads = settling->grads + first;
    uint64_t n_elems = end - first;
    float largest;
    uint32_t bits;

    if (first >= end) {
        return;
    }
    if (!is_counted_here || settling->words == NULL) {
        settling->kernels->divide(grads, settling->divisor, n_elems);
    } else if (!isinf(settling->p)) {
        settling->kernels->norm_divide_add(&settling->words->sum, grads, settling->divisor, n_elems,
                                           settling->p);
    } else { /* the maximum; NaN is above infinity as a pattern */
        settling->kernels->divide(grads, settling->divisor, n_elems);
        largest = settling->kernels->max_abs(grads, n_elems);
        memcpy(&bits, &largest, sizeof(bits));
        settling->words->max_bits =
            bits > settling->words->max_bits ? bits : settling->words->max_bits;
    }
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* Elements that no other stage counts: those of this rank's part it counts itself. */
static void range_settle(const struct settling *settling, uint64_t first, uint64_t end)
{
    uint64_t part_first = clamp(settling->part.first_elem, first, end);
    uint64_t part_end = clamp(settling->part.first_elem + settling->part.n_elems, part_first, end);

    elems_settle(settling, first, part_first, false);
    elems_settle(settling, part_first, part_end, true);
    elems_settle(settling, part_end, end, false);
}

static void unit_settle(struct hsdp_model *model, uint32_t unit, double p, struct step_words *words)
{
    uint64_t n_elems = model->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];
    struct settling settling = {.kernels = job_kernels(model->job), .p = p};

    settling.grads = model->ops->step_grads(model->store, unit);
    settling.divisor = (float)class_of(model, unit)->divisor;
    settling.part = plan_step_part(model->plan, unit);
    probe_write(job_probe(model->job), PROBE_GRADS, unit, settling.grads,
                n_elems * sizeof(*settling.grads));
    if (!model->ops->has_step_grads(model->store, unit) && !ties_has_unit(model, unit)) {
        memset(settling.grads, 0, n_elems * sizeof(*settling.grads)); /* in no pass of the window */
        return;
    }
    if (is_counted(model, unit) &&
        (isinf(p) || !model->ops->step_norm(model->store, unit, p, &words->sum))) {
        settling.words = words;
    }
    for (uint64_t at = 0; at < n_elems;) {
        struct tied_range copy = ties_next_copy(model, unit, at);
        uint64_t end = copy.n_elems == 0 ? n_elems : copy.first_elem;

        range_settle(&settling, at, end);
        elems_settle(&settling, end, end + copy.n_elems, false);
        at = end + copy.n_elems;
    }
}

void grads_settle(struct hsdp_model *model, double p, struct step_words *words)
{
    for (uint32_t unit = 0; unit < model->plan->n_units; unit++) {
        if (plan_is_trainable(model->plan, unit)) {
            unit_settle(model, unit, p, words);
        }
    }
}
