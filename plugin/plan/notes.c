/* SPDX-License-Identifier: Apache-2.0 */
/* Notes: what a strategy comes to on this mesh, where its name would mislead. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hsdp/unit.h"
#include "plan/build.h"

#define NOTE_BYTES         512u
#define BLOCK_NOTE_PERCENT 5u

static int32_t note_add(struct hsdp_plan *plan, const char *note, struct hsdp_error *reterr)
{
    char **notes = realloc(plan->notes, (plan->n_notes + 1) * sizeof(*notes));
    char *copy = strdup(note);

    if (notes != NULL) {
        plan->notes = notes;
    }
    if (notes == NULL || copy == NULL) {
        free(copy);
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for a note");
    }
    plan->notes[plan->n_notes++] = copy;
    return HSDP_OK;
}

/* The dimensions of a set that have more than one rank: the others change nothing. */
static uint32_t wide_dims(const struct hsdp_mesh *mesh, uint32_t dims)
{
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if (mesh->sizes[d] == 1) {
            dims &= ~(1u << d);
        }
    }
    return dims;
}

/* The first row of the table that comes to the same on this mesh, if it stands before the own. */
static const struct strategy *simpler_strategy(const struct hsdp_mesh *mesh,
                                               const struct plan_class *klass)
{
    const struct placement *own = &klass->place;

    for (const struct strategy *row = strategies; row < klass->strategy; row++) {
        struct placement place;
        bool is_same = true;

        placement_init(&place, mesh, row, own->replicated, own->reduced, own->outer);
        for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
            is_same =
                is_same && wide_dims(mesh, place.cuts[cut]) == wide_dims(mesh, own->cuts[cut]);
        }
        if (is_same) {
            return row;
        }
    }
    return NULL;
}

static int32_t strategy_note(struct hsdp_plan *plan, const struct plan_class *klass,
                             struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = plan->mesh;
    const struct placement *place = &klass->place;
    const struct strategy *simpler = simpler_strategy(mesh, klass);
    uint32_t wide = wide_dims(mesh, place->reduced);
    char dims[PLAN_DIMS_TEXT_BYTES];
    char note[NOTE_BYTES];

    if (simpler == NULL) {
        return HSDP_OK;
    }
    mesh_dims_text(mesh, wide, dims, sizeof(dims));
    if (wide == 0) {
        snprintf(note, sizeof(note),
                 "%s: class %.64s has no other rank to reduce over; behaves as %s and exchanges "
                 "nothing",
                 klass->strategy->name, klass->name, simpler->name);
    } else if (placement_n_slices(place, mesh, HSDP_SHARD_STEP) == 1) {
        snprintf(note, sizeof(note),
                 "%s: nothing is left to shard in class %.64s; behaves as %s and still reduces "
                 "over %s",
                 klass->strategy->name, klass->name, simpler->name, dims);
    } else {
        bool is_outer_narrow = wide_dims(mesh, place->outer) == 0;

        snprintf(note, sizeof(note), "%s: class %.64s behaves as %s over %s: nothing is left to %s",
                 klass->strategy->name, klass->name, simpler->name, dims,
                 is_outer_narrow ? "replicate over" : "shard inside");
    }
    return note_add(plan, note, reterr);
}

/* Whole gradients between microbatches are what costs memory; say when it is so. */
static int32_t gradient_note(struct hsdp_plan *plan, const struct plan_class *klass,
                             struct hsdp_error *reterr)
{
    uint32_t n_slices = placement_n_slices(&klass->place, plan->mesh, HSDP_SHARD_GRAD);
    char note[NOTE_BYTES];

    if (wide_dims(plan->mesh, klass->place.reduced) == 0) {
        return HSDP_OK;
    }
    if (n_slices == 1) {
        snprintf(note, sizeof(note),
                 "%s: each rank keeps the whole fp32 gradient of class %.64s between microbatches",
                 klass->strategy->name, klass->name);
    } else if (plan->scope == HSDP_SCOPE_NONE) {
        snprintf(note, sizeof(note),
                 "accumulation_scope none: each rank keeps the whole fp32 gradient of class %.64s "
                 "between microbatches; inner and full keep 1/%" PRIu32 " of it",
                 klass->name, n_slices);
    } else {
        return HSDP_OK;
    }
    return note_add(plan, note, reterr);
}

static bool class_has_tie(const struct hsdp_plan *plan, const struct plan_class *klass)
{
    for (uint32_t t = 0; t < plan->n_ties; t++) {
        const struct plan_unit *unit = &plan->units[plan->params[plan->ties[t].param].unit];

        if (&plan->classes[unit->class_index] == klass) {
            return true;
        }
    }
    return false;
}

/* Where nothing is held twice there is nothing to compare: a host that asks for it should know. */
static int32_t verify_note(struct hsdp_plan *plan, const struct plan_class *klass,
                           struct hsdp_error *reterr)
{
    uint32_t twice = klass->place.replicated & ~klass->place.cuts[HSDP_SHARD_PARAM];
    char note[NOTE_BYTES];

    if (plan->verify.n_steps == 0 || wide_dims(plan->mesh, twice) != 0) {
        return HSDP_OK;
    }
    snprintf(note, sizeof(note),
             "verify step:%" PRIu32 ": class %.64s has no replicas under %s, so nothing of it%s is "
             "compared",
             plan->verify.n_steps, klass->name, klass->strategy->name,
             class_has_tie(plan, klass) ? " but what is tied over other ranks" : "");
    return note_add(plan, note, reterr);
}

/* Elements of a unit's parameters, and what blocks add to its padding. */
static void unit_count(const struct plan_unit *unit, double *ret_elems, double *ret_block_padding)
{
    uint64_t n_elems = 0;
    uint64_t n_block_padding = 0;

    for (uint32_t b = 0; b < unit->n_buffers; b++) {
        n_elems += unit->buffers[b].n_elems - unit->buffers[b].n_padding_elems;
        n_block_padding += unit->buffers[b].n_block_padding_elems;
    }
    *ret_elems = (double)n_elems;
    *ret_block_padding = (double)n_block_padding;
}

/* Blocks that are large beside a shard, or have no common multiple, may cost much. */
static int32_t block_note(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    uint32_t n_units = 0;
    uint32_t worst = 0;
    double most_percent = 0.0;
    char note[NOTE_BYTES];

    for (uint32_t u = 0; u < plan->n_units; u++) {
        double n_elems;
        double n_block_padding;

        unit_count(&plan->units[u], &n_elems, &n_block_padding);
        if (n_block_padding * 100.0 <= n_elems * BLOCK_NOTE_PERCENT) {
            continue;
        }
        n_units++;
        if (n_block_padding * 100.0 / n_elems > most_percent) {
            most_percent = n_block_padding * 100.0 / n_elems;
            worst = u;
        }
    }
    if (n_units == 0) {
        return HSDP_OK;
    }
    snprintf(note, sizeof(note),
             "block_elems: keeping blocks whole pads %" PRIu32 " of %" PRIu32
             " units by more than %u %%, unit %s by %.0f %% of its parameters; larger units, fewer "
             "shards, or blocks with a small common multiple take less",
             n_units, plan->n_units, BLOCK_NOTE_PERCENT, plan->units[worst].name, most_percent);
    return note_add(plan, note, reterr);
}

/* What it costs that other units have names for a unit's parameters. */
static int32_t storage_note(struct hsdp_plan *plan, uint32_t unit, struct hsdp_error *reterr)
{
    struct plan_accumulators sums = plan_accumulators(plan, unit);
    char note[NOTE_BYTES];

    if (!plan->units[unit].is_storage) {
        return HSDP_OK;
    }
    snprintf(note, sizeof(note),
             "unit %.64s is storage of names in other units: its parameters take turns in no slot, "
             "and %" PRIu64 " bytes are kept for the gradients that those units add",
             plan->units[unit].name, sums.late_elems * (uint64_t)sizeof(float));
    return note_add(plan, note, reterr);
}

int32_t plan_write_notes(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    int32_t status = HSDP_OK;

    if (plan->mesh->data_dims == 0 && plan->mesh->world_ranks > 1) {
        status = note_add(
            plan, "mesh: no dimension is data; a class that names none reduces over nothing",
            reterr);
    }
    for (uint32_t c = 0; c < plan->n_classes && status == HSDP_OK; c++) {
        status = strategy_note(plan, &plan->classes[c], reterr);
        if (status == HSDP_OK && plan_class_is_trainable(plan, c)) {
            status = gradient_note(plan, &plan->classes[c], reterr);
        }
        if (status == HSDP_OK) {
            status = verify_note(plan, &plan->classes[c], reterr);
        }
    }
    if (status == HSDP_OK) {
        status = block_note(plan, reterr);
    }
    for (uint32_t unit = 0; unit < plan->n_units && status == HSDP_OK; unit++) {
        status = storage_note(plan, unit, reterr);
    }
    return status;
}
