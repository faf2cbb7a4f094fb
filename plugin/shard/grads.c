/* SPDX-License-Identifier: Apache-2.0 */
/* Reduced gradients: what the norm counts of them on this rank, and dividing once. */
#include "shard/grads.h"

#include <math.h>
#include <string.h>

#include "comm/probe.h"
#include "device/fpmode.h"
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

/* Sums that are only read are divided in blocks that stay in the cache. */
#define BLOCK_ELEMS 2048u

/* How the elements of one unit are settled. */
struct settling {
    const struct kernels *kernels;
    struct step_words *words; /* NULL: the norm is there, or other ranks count */
    double p;
    float divisor;
    bool is_divided;       /* in place */
    struct plan_part part; /* what this rank counts, unless another stage does */
    float *grads;
};

/* The largest quotient is that of the largest sum; NaN is above infinity as a pattern. */
static void largest_take(const struct settling *settling, const float *grads, uint64_t n_elems)
{
    float largest = settling->kernels->max_abs(grads, n_elems) / settling->divisor;
    uint64_t *max_bits = &settling->words->max_bits;
    uint32_t bits;

    memcpy(&bits, &largest, sizeof(bits));
    *max_bits = bits > *max_bits ? bits : *max_bits;
}

/* Adds the quotients to the norm, and leaves the sums. */
static void quotients_add(const struct settling *settling, const float *grads, uint64_t n_elems)
{
    float quotients[BLOCK_ELEMS];

    for (uint64_t first = 0; first < n_elems; first += BLOCK_ELEMS) {
        uint64_t n_block = n_elems - first < BLOCK_ELEMS ? n_elems - first : BLOCK_ELEMS;

        memcpy(quotients, grads + first, n_block * sizeof(*quotients));
        settling->kernels->norm_divide_add(&settling->words->sum, quotients, settling->divisor,
                                           n_block, settling->p);
    }
}

static void elems_settle(const struct settling *settling, uint64_t first, uint64_t end,
                         bool is_of_part)
{
    const struct kernels *kernels = settling->kernels;
    bool is_counted_here = is_of_part && settling->words != NULL;
    float *grads = settling->grads + first;

    if (first >= end) {
        return;
    }
    if (is_counted_here && isinf(settling->p)) {
        largest_take(settling, grads, end - first);
    } else if (is_counted_here && !settling->is_divided) {
        quotients_add(settling, grads, end - first);
    } else if (is_counted_here) {
        kernels->norm_divide_add(&settling->words->sum, grads, settling->divisor, end - first,
                                 settling->p);
        return;
    }
    if (settling->is_divided) {
        kernels->divide(grads, settling->divisor, end - first);
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

/* Range by range: other stages count copies of what is tied over them. */
static void ranges_settle(const struct hsdp_model *model, uint32_t unit,
                          const struct settling *settling, uint64_t n_elems)
{
    for (uint64_t at = 0; at < n_elems;) {
        struct tied_range copy = ties_next_copy(model, unit, at);
        uint64_t end = copy.n_elems == 0 ? n_elems : copy.first_elem;

        range_settle(settling, at, end);
        elems_settle(settling, end, end + copy.n_elems, false);
        at = end + copy.n_elems;
    }
}

static void unit_settle(struct hsdp_model *model, uint32_t unit, double p, struct step_words *words)
{
    uint64_t n_elems = model->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];
    uint32_t divisor = class_of(model, unit)->divisor;
    struct settling settling = {.kernels = job_kernels(model->job), .p = p};
    struct model_unit *u = &model->units[unit];
    struct probe *probe = job_probe(model->job);

    settling.grads = model->ops->step_grads(model->store, unit);
    u->grads_divisor = 0.0f;
    if (!model->ops->has_step_grads(model->store, unit) && !ties_has_unit(model, unit)) {
        probe_write(probe, PROBE_GRADS, unit, settling.grads, n_elems * sizeof(*settling.grads));
        memset(settling.grads, 0, n_elems * sizeof(*settling.grads)); /* in no pass of the window */
        return;
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
        return; /* as in most steps */
    }
    settling.part = plan_step_part(model->plan, unit);
    ranges_settle(model, unit, &settling, n_elems);
}

void grads_settle(struct hsdp_model *model, double p, struct step_words *words)
{
    for (uint32_t unit = 0; unit < model->plan->n_units; unit++) {
        if (plan_is_trainable(model->plan, unit)) {
            unit_settle(model, unit, p, words);
        }
    }
}

/* ------------------------------------------------------------------------------- dividing late */

float grads_divisor(const struct hsdp_model *model, uint32_t unit)
{
    return model->units[unit].grads_divisor;
}

void grads_divide(struct hsdp_model *model, uint32_t unit)
{
    uint64_t n_elems = model->plan->units[unit].buffers[0].shard_elems[HSDP_SHARD_STEP];
    float *grads = model->ops->step_grads(model->store, unit);
    struct model_unit *u = &model->units[unit];
    struct fp_mode mode;

    if (!model->step.is_open || u->grads_divisor == 0.0f) {
        return;
    }
    probe_write(job_probe(model->job), PROBE_GRADS, unit, grads, n_elems * sizeof(*grads));
    mode = fp_mode_enter();
    job_kernels(model->job)->divide(grads, u->grads_divisor, n_elems);
    fp_mode_leave(mode);
    u->grads_divisor = 0.0f;
}
