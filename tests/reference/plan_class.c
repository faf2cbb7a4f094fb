/* SPDX-License-Identifier: Apache-2.0 */
/* Classes: over which ranks their units are replicated, reduced and sharded. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

/* ---------------------------------------------------------------------------------------- names */

static int32_t name_read(const struct call *call, const struct hsdp_plan *plan, const char *name,
                         struct plan_class *klass)
{
    if (name == NULL || name[0] == '\0') {
        return error_raise(call, HSDP_ERR_INVALID, "a class has no name");
    }
    for (uint32_t c = 0; c < plan->n_classes; c++) {
        if (strcmp(plan->classes[c].name, name) == 0) {
            return error_raise(call, HSDP_ERR_INVALID, "it is there already, as number %" PRIu32,
                               c);
        }
    }
    klass->name = strdup(name);
    return klass->name != NULL
               ? HSDP_OK
               : error_raise(call, HSDP_ERR_NO_MEMORY, "there is no memory for its name");
}

/* ------------------------------------------------------------------------------------- settings */

static int32_t numbers_read(const struct call *call, struct plan_class *klass)
{
    struct settings *settings = &klass->settings;
    bool is_mean = strcmp(settings_text(settings, "gradient_op"), "mean") == 0;
    int32_t status = HSDP_OK;

    klass->divisor = is_mean ? (uint32_t)settings_number(settings, "gradient_divisor") : 1;
    if (settings_text(settings, "gradient_dtype") == NULL) {
        status = settings_put(call, settings, "gradient_dtype",
                              settings_text(settings, "reduce_dtype"), "derived from reduce_dtype");
    }
    klass->strategy = strategy_find(settings_text(settings, "sharding_strategy"));
    if (status == HSDP_OK && klass->strategy == NULL) { /* the settings let nothing else pass */
        return error_raise(call, HSDP_ERR_UNSUPPORTED,
                           "sharding_strategy auto needs a planner, which this plugin has not: "
                           "name a strategy");
    }
    return status;
}

/* ----------------------------------------------------------------------------------- dimensions */

static uint32_t span_dims(enum span span, uint32_t reduced, uint32_t outer)
{
    switch (span) {
    case SPAN_INNER:
        return reduced & ~outer;
    case SPAN_ALL:
        return reduced;
    default:
        return 0;
    }
}

/* The three cuts, and in which order their dimensions number the slices. */
static void cuts_fill(const struct hsdp_mesh *mesh, uint32_t outer, struct plan_class *klass)
{
    uint32_t done = 0; /* dimensions that have their place in the order */

    for (int cut = 0; cut < N_CUTS; cut++) {
        char *text = klass->cut_texts[cut];

        klass->cuts[cut] = span_dims(klass->strategy->cuts[cut], klass->reduced, outer);
        for (uint32_t d = 0; d < mesh->n_dims; d++) {
            if (dims_have(klass->cuts[cut] & ~done, d)) {
                klass->slice_dims[klass->n_slice_dims++] = d;
            }
        }
        done = klass->cuts[cut];
        for (uint32_t i = 0; i < klass->n_slice_dims; i++) { /* later ones are of later cuts */
            size_t n = strlen(text);

            snprintf(text + n, DIMS_TEXT_BYTES - n, "%s%s", n == 0 ? "" : ",",
                     mesh->names[klass->slice_dims[i]]);
        }
    }
    mesh_dims_write(mesh, klass->reduced, klass->reduced_text);
    mesh_dims_write(mesh, klass->replicated, klass->replicated_text);
}

static int32_t dims_read(const struct call *call, const struct hsdp_mesh *mesh,
                         const struct hsdp_class_spec *spec, struct plan_class *klass)
{
    const char *replicate = settings_text(&klass->settings, "replicate_dims");
    uint32_t outer = 0;
    int32_t status = HSDP_OK;

    klass->replicated = mesh->data_dims;
    if (spec->replicated_over != NULL) {
        status = selector_read_dims(call, mesh, "replicated_over", spec->replicated_over,
                                    &klass->replicated);
    }
    klass->reduced = klass->replicated;
    if (status == HSDP_OK && spec->reduced_over != NULL) {
        status =
            selector_read_dims(call, mesh, "reduced_over", spec->reduced_over, &klass->reduced);
    }
    if (status == HSDP_OK) {
        status = selector_read_dims(call, mesh, "replicate_dims", replicate, &outer);
    }
    if (status == HSDP_OK && (klass->reduced & ~klass->replicated) != 0) {
        char dims[DIMS_TEXT_BYTES];

        mesh_dims_write(mesh, klass->reduced & ~klass->replicated, dims);
        return error_raise(call, HSDP_ERR_INVALID,
                           "reduced_over has %s, which replicated_over has not", dims);
    }
    if (status == HSDP_OK) {
        cuts_fill(mesh, outer, klass);
    }
    return status;
}

/* -------------------------------------------------------------------------------------- a class */

int32_t plan_class_read(const struct call *call, const struct hsdp_plan *plan,
                        const struct hsdp_class_spec *spec, struct plan_class *ret)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    const struct call inner = {call->name, &error}; /* its sentence gets the name before it */
    struct plan_class klass = {0};
    int32_t status = name_read(&inner, plan, spec->name, &klass);

    if (status == HSDP_OK) {
        status =
            settings_read(&inner, HOME_CLASS, &spec->settings, &plan->settings, &klass.settings);
    }
    if (status == HSDP_OK) {
        status = numbers_read(&inner, &klass);
    }
    if (status == HSDP_OK) {
        status = dims_read(&inner, plan->mesh, spec, &klass);
    }
    if (status != HSDP_OK) {
        plan_class_free(&klass);
        return error_raise(call, status, "class \"%.40s\": %s",
                           spec->name == NULL ? "" : spec->name, error.message);
    }
    *ret = klass;
    return HSDP_OK;
}

void plan_class_free(struct plan_class *klass)
{
    free(klass->name);
    settings_free(&klass->settings);
}

uint32_t plan_slice(const struct hsdp_plan *plan, const struct plan_class *klass, int cut,
                    uint32_t rank)
{
    uint32_t slice = 0;

    for (uint32_t i = 0; i < klass->n_slice_dims; i++) {
        uint32_t d = klass->slice_dims[i];

        if (dims_have(klass->cuts[cut], d)) {
            slice = slice * plan->mesh->sizes[d] + mesh_coord(plan->mesh, rank, d);
        }
    }
    return slice;
}

uint32_t plan_slice_writer(const struct hsdp_plan *plan, const struct plan_class *klass, int cut,
                           uint32_t rank)
{
    return mesh_peer(plan->mesh, klass->replicated & ~klass->cuts[cut], rank, 0);
}
