/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: checking what a host says of one, and its ties. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/arith.h"
#include "plan/build.h"
#include "plan/names.h"

/* What an error calls a parameter that may have no name. */
static const char *spec_name(const struct hsdp_param_spec *spec)
{
    return spec->name == NULL ? "" : spec->name;
}

static int32_t shape_read(const struct hsdp_param_spec *spec, struct plan_param *param,
                          struct hsdp_error *reterr)
{
    uint64_t n_elems = 1;
    bool is_empty = false;
    bool is_small = true;

    if (spec->n_dims > HSDP_PARAM_MAX_DIMS) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: param \"%.128s\" has %" PRIu32 " dimensions, at most %u are "
                         "allowed",
                         spec_name(spec), spec->n_dims, HSDP_PARAM_MAX_DIMS);
    }
    if (spec->n_dims > 0 && spec->shape == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: param \"%.128s\" has %" PRIu32 " dimensions, but no shape",
                         spec_name(spec), spec->n_dims);
    }
    for (uint32_t d = 0; d < spec->n_dims; d++) {
        if (spec->shape[d] < 0) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "plan: param \"%.128s\" has size %" PRId64 " in dimension %" PRIu32,
                             spec_name(spec), spec->shape[d], d);
        }
        param->shape[d] = spec->shape[d];
        is_empty = is_empty || spec->shape[d] == 0;
        is_small = is_small && arith_mul(n_elems, (uint64_t)spec->shape[d], &n_elems) &&
                   n_elems <= PLAN_MAX_PARAM_ELEMS;
    }
    if (!is_small && !is_empty) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: param \"%.128s\" is larger than 2^62 bytes", spec_name(spec));
    }
    param->n_elems = is_empty ? 0 : n_elems;
    param->n_dims = spec->n_dims;
    return HSDP_OK;
}

static int32_t tie_shape_check(const struct plan_param *param, const struct hsdp_param_spec *spec,
                               const struct plan_param *storage, struct hsdp_error *reterr)
{
    if (storage->n_dims != param->n_dims) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: param \"%.128s\" has %" PRIu32 " dimensions, \"%.128s\", to which "
                         "it is tied, has %" PRIu32,
                         spec_name(spec), param->n_dims, spec->tied_to, storage->n_dims);
    }
    for (uint32_t d = 0; d < param->n_dims; d++) {
        if (storage->shape[d] != param->shape[d]) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "plan: param \"%.128s\" has size %" PRId64 " in dimension %" PRIu32
                             ", \"%.128s\", to which it is tied, has %" PRId64,
                             spec_name(spec), param->shape[d], d, spec->tied_to, storage->shape[d]);
        }
    }
    return HSDP_OK;
}

/* Two names of one storage must agree on everything that the storage has. */
static int32_t tie_check(const struct hsdp_plan *plan, const struct plan_param *param,
                         const struct hsdp_param_spec *spec, const struct plan_param *storage,
                         struct hsdp_error *reterr)
{
    const char *differs = NULL;
    int32_t status = tie_shape_check(param, spec, storage, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    if (plan->units[storage->unit].class_index != plan->units[param->unit].class_index) {
        differs = "is of another class";
    } else if (storage->flags != param->flags) {
        differs = "differs in being frozen";
    } else if (storage->hyper_group != param->hyper_group) {
        differs = "has another hyper_group";
    } else if (param->block_elems != 0 && storage->block_elems != param->block_elems) {
        differs = "has other block_elems";
    }
    if (differs != NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: param \"%.128s\" is tied to \"%.128s\", which %s", spec_name(spec),
                         spec->tied_to, differs);
    }
    return HSDP_OK;
}

static int32_t text_copy(const char *text, char **ret, struct hsdp_error *reterr)
{
    *ret = strdup(text);
    return *ret == NULL ? error_set(reterr, HSDP_ERR_NO_MEMORY, "plan: no memory for a name")
                        : HSDP_OK;
}

static int32_t tied_to_read(const struct hsdp_plan *plan, const struct hsdp_param_spec *spec,
                            struct plan_param *param, struct hsdp_error *reterr)
{
    uint32_t other;
    int32_t status;

    param->storage = plan->n_params;
    if (spec->tied_to == NULL) {
        return HSDP_OK;
    }
    if (!names_find(plan->param_names, spec->tied_to, &other)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: param \"%.128s\" is tied to \"%.128s\", and no earlier one has "
                         "that name",
                         spec_name(spec), spec->tied_to);
    }
    other = plan->params[other].storage; /* a tie to a tied name is one to its storage */
    status = tie_check(plan, param, spec, &plan->params[other], reterr);
    if (status != HSDP_OK) {
        return status;
    }
    param->storage = other;
    param->block_elems = plan->params[other].block_elems;
    return text_copy(plan->params[other].name, &param->tied_to, reterr);
}

static int32_t spec_read(const struct hsdp_plan *plan, const struct hsdp_param_spec *spec,
                         struct plan_param *param, struct plan_tie *tie, struct hsdp_error *reterr)
{
    int32_t status;

    if (spec->unit >= plan->n_units) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: param \"%.128s\" wants unit %" PRIu32 " of %" PRIu32 " units",
                         spec_name(spec), spec->unit, plan->n_units);
    }
    if ((spec->flags & ~HSDP_PARAM_FROZEN) != 0) { /* a newer host's */
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "plan: param \"%.128s\" has unknown flags 0x%" PRIx32, spec_name(spec),
                         spec->flags & ~HSDP_PARAM_FROZEN);
    }
    param->unit = spec->unit;
    param->flags = spec->flags;
    param->hyper_group = spec->hyper_group;
    param->block_elems = spec->block_elems;
    status = shape_read(spec, param, reterr);
    if (status == HSDP_OK) {
        status = plan_copy_name(plan->param_names, "param", spec->name, UINT64_MAX, &param->name,
                                reterr);
    }
    if (status == HSDP_OK) {
        status = tied_to_read(plan, spec, param, reterr);
    }
    if (status == HSDP_OK) {
        status = plan_tie_read(plan, spec, param, tie, reterr);
    }
    if (status == HSDP_OK && spec->tied_over != NULL) {
        status = text_copy(spec->tied_over, &param->tied_over, reterr);
    }
    return status;
}

int32_t plan_add_param(struct hsdp_plan *plan, const struct hsdp_param_spec *spec,
                       uint32_t *ret_param, struct hsdp_error *reterr)
{
    struct plan_param param = {.tie = PLAN_NO_TIE};
    struct plan_tie tie;
    void *rows;
    void *ties;
    int32_t status;

    if (plan == NULL || spec == NULL || ret_param == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: add_param needs a plan, a spec and a ret_param");
    }
    rows = plan->params;
    ties = plan->ties;
    status = plan_check_state(plan, false, reterr);
    if (status == HSDP_OK) {
        status = names_reserve(plan->param_names, reterr);
    }
    if (status == HSDP_OK) {
        status = plan_grow(&rows, sizeof(*plan->params), plan->n_params, &plan->max_params, reterr);
        plan->params = rows;
    }
    if (status == HSDP_OK) {
        status = plan_grow(&ties, sizeof(*plan->ties), plan->n_ties, &plan->max_ties, reterr);
        plan->ties = ties;
    }
    if (status == HSDP_OK) {
        status = spec_read(plan, spec, &param, &tie, reterr);
    }
    if (status != HSDP_OK) {
        free(param.name);
        free(param.tied_to);
        free(param.tied_over);
        return status;
    }
    if (tie.n_holders > 1) {
        param.tie = plan->n_ties;
        plan->ties[plan->n_ties++] = tie;
    }
    plan->params[plan->n_params] = param;
    plan->units[param.unit].n_params++;
    names_add(plan->param_names, param.name);
    *ret_param = plan->n_params++;
    return HSDP_OK;
}
