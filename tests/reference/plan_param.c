/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: what a host says of one, and what it is tied to. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

#define MOST_PARAM_ELEMS (UINT64_C(1) << 60) /* 2^62 bytes as fp32 */

static const char *spec_name(const struct hsdp_param_spec *spec)
{
    return spec->name == NULL ? "" : spec->name;
}

static int32_t name_read(const struct call *call, const struct hsdp_plan *plan,
                         const struct hsdp_param_spec *spec, struct plan_param *param)
{
    if (spec_name(spec)[0] == '\0') {
        return error_raise(call, HSDP_ERR_INVALID, "plan: parameter %" PRIu32 " has no name",
                           plan->n_params);
    }
    for (uint32_t p = 0; p < plan->n_params; p++) {
        if (strcmp(plan->params[p].name, spec->name) == 0) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "plan: parameter \"%.128s\" is there already, as number %" PRIu32,
                               spec->name, p);
        }
    }
    param->name = strdup(spec->name);
    return param->name != NULL
               ? HSDP_OK
               : error_raise(call, HSDP_ERR_NO_MEMORY, "plan: no memory for a name");
}

static int32_t shape_read(const struct call *call, const struct hsdp_param_spec *spec,
                          struct plan_param *param)
{
    bool is_empty = false;
    bool is_large = false;

    if (spec->n_dims > HSDP_PARAM_MAX_DIMS || (spec->n_dims > 0 && spec->shape == NULL)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "plan: parameter \"%.128s\" has %" PRIu32 " dimensions, at most %u are "
                           "allowed, and %s",
                           spec_name(spec), spec->n_dims, HSDP_PARAM_MAX_DIMS,
                           spec->shape == NULL ? "no shape" : "a shape");
    }
    param->n_dims = spec->n_dims;
    param->n_elems = 1;
    for (uint32_t d = 0; d < spec->n_dims; d++) {
        int64_t size = spec->shape[d];

        if (size < 0) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "plan: parameter \"%.128s\" has size %" PRId64
                               " in dimension %" PRIu32,
                               spec_name(spec), size, d);
        }
        param->shape[d] = size;
        is_empty = is_empty || size == 0;
        is_large = is_large || (size > 0 && param->n_elems > MOST_PARAM_ELEMS / (uint64_t)size);
        param->n_elems *= is_large ? 1 : (uint64_t)size;
    }
    if (is_large && !is_empty) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "plan: parameter \"%.128s\" is larger than 2^62 bytes", spec_name(spec));
    }
    param->n_elems = is_empty ? 0 : param->n_elems;
    return HSDP_OK;
}

/* ---------------------------------------------------------------------------------- tied to one */

static bool shapes_agree(const struct plan_param *a, const struct plan_param *b)
{
    return a->n_dims == b->n_dims &&
           memcmp(a->shape, b->shape, a->n_dims * sizeof(a->shape[0])) == 0;
}

static int32_t tied_to_read(const struct call *call, const struct hsdp_plan *plan,
                            const struct hsdp_param_spec *spec, struct plan_param *param)
{
    const struct plan_param *storage = NULL;
    const char *differs = NULL;

    param->storage = plan->n_params; /* itself */
    for (uint32_t p = 0; p < plan->n_params && spec->tied_to != NULL; p++) {
        if (strcmp(plan->params[p].name, spec->tied_to) == 0) {
            param->storage = plan->params[p].storage; /* where the name is tied itself, its own */
            storage = &plan->params[param->storage];
        }
    }
    if (spec->tied_to == NULL) {
        return HSDP_OK;
    }
    if (storage == NULL) {
        differs = "does not exist";
    } else if (!shapes_agree(storage, param)) {
        differs = "has another shape";
    } else if (plan->units[storage->unit].class_index != plan->units[param->unit].class_index) {
        differs = "is of another class";
    } else if (storage->flags != param->flags) {
        differs = "is frozen, or this one is";
    } else if (storage->hyper_group != param->hyper_group) {
        differs = "has another hyper_group";
    } else if (param->block_elems != 0 && storage->block_elems != param->block_elems) {
        differs = "has other block_elems";
    }
    if (differs != NULL) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "plan: parameter \"%.128s\" is tied to \"%.128s\", which %s", spec->name,
                           spec->tied_to, differs);
    }
    param->block_elems = storage->block_elems;
    return HSDP_OK;
}

/* ----------------------------------------------------------------------------- tied over stages */

/* A selector in the one form that any two of the same ranks share: "pp[0,3]", or "pp" for all. */
static char *selector_write(const struct hsdp_mesh *mesh, const struct selector *selector)
{
    char text[DIMS_TEXT_BYTES + MOST_COORDS * 11u];
    uint32_t n_coords = selector->n_coords;

    if (n_coords == mesh_count(mesh, selector->dims)) {
        n_coords = 0;
    }
    mesh_dims_write(mesh, selector->dims, text);
    for (uint32_t i = 0; i < n_coords; i++) {
        size_t n = strlen(text);

        snprintf(text + n, sizeof(text) - n, "%c%" PRIu32 "%s", i == 0 ? '[' : ',',
                 selector->coords[i], i + 1 == n_coords ? "]" : "");
    }
    return strdup(text);
}

static int32_t tied_over_refuse(const struct call *call, int32_t status,
                                const struct hsdp_param_spec *spec, const char *why)
{
    return error_raise(call, status, "plan: parameter \"%.128s\" is tied over \"%.64s\", %s",
                       spec->name, spec->tied_over, why);
}

static int32_t tied_over_read(const struct call *call, const struct hsdp_plan *plan,
                              const struct hsdp_param_spec *spec, struct plan_param *param)
{
    const struct hsdp_mesh *mesh = plan->mesh;
    const struct plan_class *klass = &plan->classes[plan->units[param->unit].class_index];
    struct selector selector;
    char what[192];
    uint32_t first;
    int32_t status;

    if (spec->tied_over == NULL) {
        return HSDP_OK;
    }
    snprintf(what, sizeof(what), "plan: parameter \"%.128s\": tied_over", spec->name);
    status = selector_read(call, mesh, what, spec->tied_over, &selector);
    if (status != HSDP_OK) {
        return status;
    }
    if (!selector_picks(mesh, &selector, mesh->rank)) {
        return tied_over_refuse(call, HSDP_ERR_NOT_MEMBER, spec, "where this rank is not");
    }
    if (selector_list(mesh, &selector, mesh->rank, &first, 1) == 1) {
        return HSDP_OK; /* this rank alone */
    }
    if ((selector.dims & klass->replicated) != 0) {
        return tied_over_refuse(call, HSDP_ERR_INVALID, spec, "where its class is replicated");
    }
    param->is_copy = first != mesh->rank;
    param->tied_over = selector_write(mesh, &selector);
    if (param->tied_over == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "plan: no memory for a selector");
    }
    return HSDP_OK;
}

/* A second name may be tied over stages too, if it says the same as its storage. */
static int32_t ties_check(const struct call *call, const struct hsdp_plan *plan,
                          const struct hsdp_param_spec *spec, const struct plan_param *param)
{
    const char *theirs;

    if (param->storage == plan->n_params || param->tied_over == NULL) {
        return HSDP_OK;
    }
    theirs = plan->params[param->storage].tied_over;
    if (theirs == NULL || strcmp(theirs, param->tied_over) != 0) {
        return tied_over_refuse(call, HSDP_ERR_INVALID, spec,
                                "and what it is tied to is not tied over the same ranks");
    }
    return HSDP_OK;
}

/* ---------------------------------------------------------------------------------- a parameter */

int32_t plan_param_read(const struct call *call, const struct hsdp_plan *plan,
                        const struct hsdp_param_spec *spec, struct plan_param *ret)
{
    struct plan_param param = {.unit = spec->unit,
                               .block_elems = spec->block_elems,
                               .hyper_group = spec->hyper_group,
                               .flags = spec->flags};
    int32_t status;

    if (spec->unit >= plan->n_units) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "plan: parameter \"%.128s\" wants unit %" PRIu32 " of %" PRIu32,
                           spec_name(spec), spec->unit, plan->n_units);
    }
    if ((spec->flags & ~HSDP_PARAM_FROZEN) != 0) {
        return error_raise(call, HSDP_ERR_UNSUPPORTED,
                           "plan: parameter \"%.128s\" has flags 0x%" PRIx32 ", known is 0x%x",
                           spec_name(spec), spec->flags, HSDP_PARAM_FROZEN);
    }
    status = shape_read(call, spec, &param);
    if (status == HSDP_OK) {
        status = name_read(call, plan, spec, &param);
    }
    if (status == HSDP_OK) {
        status = tied_to_read(call, plan, spec, &param);
    }
    if (status == HSDP_OK) {
        status = tied_over_read(call, plan, spec, &param);
    }
    if (status == HSDP_OK) {
        status = ties_check(call, plan, spec, &param);
    }
    if (status == HSDP_OK && spec->tied_over != NULL) {
        param.given_tied_over = strdup(spec->tied_over);
        status = param.given_tied_over != NULL
                     ? HSDP_OK
                     : error_raise(call, HSDP_ERR_NO_MEMORY, "plan: no memory for a selector");
    }
    if (status != HSDP_OK) {
        plan_param_free(&param);
        return status;
    }
    *ret = param;
    return HSDP_OK;
}

void plan_param_free(struct plan_param *param)
{
    free(param->name);
    free(param->tied_over);
    free(param->given_tied_over);
}

bool plan_is_alias(const struct hsdp_plan *plan, uint32_t param)
{
    return plan->params[plan->params[param].storage].unit != plan->params[param].unit;
}
