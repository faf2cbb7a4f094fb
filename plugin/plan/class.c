/* SPDX-License-Identifier: Apache-2.0 */
/* Classes: what their units share, read from a spec and from settings. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/build.h"
#include "plan/names.h"
#include "plan/selector.h"

#define WHAT_BYTES 128u

static int32_t strategy_read(struct plan_class *klass, struct hsdp_error *reterr)
{
    const char *name = settings_text(&klass->settings, "sharding_strategy");

    klass->strategy = strategy_find(name);
    if (klass->strategy == NULL) { /* the settings let nothing else through */
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "sharding_strategy auto: needs the planner, not built in this version; "
                         "name a strategy");
    }
    return HSDP_OK;
}

static enum dtype dtype_read(const struct settings *settings, const char *key)
{
    enum dtype dtype = DTYPE_FP32;
    bool is_known = dtype_parse(settings_text(settings, key), &dtype);

    assert(is_known); /* the settings let nothing else through */
    (void)is_known;
    return dtype;
}

static int32_t numbers_read(const struct hsdp_plan *plan, struct plan_class *klass,
                            struct hsdp_error *reterr)
{
    struct settings *settings = &klass->settings;
    int32_t status = HSDP_OK;

    if (settings_text(settings, "gradient_dtype") == NULL) {
        status = settings_put(settings, "gradient_dtype", settings_text(settings, "reduce_dtype"),
                              "derived from reduce_dtype", reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    klass->param_dtype = dtype_read(settings, "param_dtype");
    klass->master_dtype = dtype_read(settings, "master_dtype");
    klass->reduce_dtype = dtype_read(settings, "reduce_dtype");
    klass->gradient_dtype = dtype_read(settings, "gradient_dtype");
    klass->is_mean = strcmp(settings_text(settings, "gradient_op"), "mean") == 0;
    klass->divisor = 1;
    if (klass->is_mean) {
        klass->divisor = settings_text(settings, "gradient_divisor") == NULL
                             ? plan->mesh->n_data_ranks
                             : (uint32_t)settings_integer(settings, "gradient_divisor");
    }
    return HSDP_OK;
}

/* A selector of the spec; where it is absent, `initial`. */
static int32_t dims_read(const struct hsdp_plan *plan, const char *class_name, const char *field,
                         const char *selector, uint32_t *dims, struct hsdp_error *reterr)
{
    char what[WHAT_BYTES];

    if (selector == NULL) {
        return HSDP_OK; /* *dims holds the default */
    }
    snprintf(what, sizeof(what), "class %.64s: %s", class_name, field);
    return selector_dims(plan->mesh, what, selector, dims, reterr);
}

static void texts_write(const struct hsdp_mesh *mesh, struct plan_class *klass)
{
    const struct placement *place = &klass->place;

    mesh_dims_text(mesh, place->reduced, klass->reduce_dims, sizeof(klass->reduce_dims));
    mesh_dims_text(mesh, place->replicated, klass->replicated_dims, sizeof(klass->replicated_dims));
    for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
        char *text = klass->cut_dims[cut];

        for (uint32_t i = 0; i < place->n_slice_dims; i++) {
            uint32_t d = place->slice_dims[i];
            size_t n_bytes = strlen(text);

            if ((place->cuts[cut] >> d & 1u) != 0) {
                snprintf(text + n_bytes, PLAN_DIMS_TEXT_BYTES - n_bytes, "%s%s",
                         n_bytes == 0 ? "" : ",", mesh->names[d]);
            }
        }
    }
}

static int32_t placement_read(const struct hsdp_plan *plan, const struct hsdp_class_spec *spec,
                              struct plan_class *klass, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = plan->mesh;
    uint32_t replicated = mesh->data_dims;
    uint32_t reduced;
    uint32_t outer = 0;
    int32_t status;

    status =
        dims_read(plan, spec->name, "replicated_over", spec->replicated_over, &replicated, reterr);
    reduced = replicated;
    if (status == HSDP_OK) {
        status = dims_read(plan, spec->name, "reduced_over", spec->reduced_over, &reduced, reterr);
    }
    if (status == HSDP_OK) {
        status = dims_read(plan, spec->name, "replicate_dims",
                           settings_text(&klass->settings, "replicate_dims"), &outer, reterr);
    }
    if (status == HSDP_OK && (reduced & ~replicated) != 0) {
        char replicated_text[PLAN_DIMS_TEXT_BYTES];
        char reduced_text[PLAN_DIMS_TEXT_BYTES];

        mesh_dims_text(mesh, replicated, replicated_text, sizeof(replicated_text));
        mesh_dims_text(mesh, reduced, reduced_text, sizeof(reduced_text));
        return error_set(reterr, HSDP_ERR_INVALID,
                         "class %.64s: reduced_over \"%.150s\" is not within replicated_over "
                         "\"%.150s\"",
                         spec->name, reduced_text, replicated_text);
    }
    if (status == HSDP_OK) {
        placement_init(&klass->place, mesh, klass->strategy, replicated, reduced, outer);
        texts_write(mesh, klass);
    }
    return status;
}

int32_t plan_class_init(const struct hsdp_plan *plan, const struct hsdp_class_spec *spec,
                        struct plan_class *ret, struct hsdp_error *reterr)
{
    struct plan_class klass = {0};
    int32_t status;

    status =
        plan_copy_name(plan->class_names, "class", spec->name, UINT64_MAX, &klass.name, reterr);
    if (status == HSDP_OK) {
        status =
            settings_init(&klass.settings, SETTING_CLASS, &spec->settings, &plan->settings, reterr);
    }
    if (status == HSDP_OK) {
        status = strategy_read(&klass, reterr);
    }
    if (status == HSDP_OK) {
        status = numbers_read(plan, &klass, reterr);
    }
    if (status == HSDP_OK) {
        status = placement_read(plan, spec, &klass, reterr);
    }
    if (status != HSDP_OK) {
        plan_class_fini(&klass);
        return status;
    }
    *ret = klass;
    return HSDP_OK;
}

void plan_class_fini(struct plan_class *klass)
{
    free(klass->name);
    settings_fini(&klass->settings);
}
