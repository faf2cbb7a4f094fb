/* SPDX-License-Identifier: Apache-2.0 */
/* Ties across stages: parameters of which ranks outside of the class hold copies. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "plan/build.h"

static bool selectors_agree(const struct selector *a, const struct selector *b)
{
    return a->dims == b->dims && a->n_coords == b->n_coords &&
           memcmp(a->coords, b->coords, a->n_coords * sizeof(a->coords[0])) == 0;
}

/* Other names of a storage may say the same once more, so that a host need not tell them apart. */
static int32_t storage_check(const struct hsdp_plan *plan, const struct hsdp_param_spec *spec,
                             const struct plan_param *param, const struct plan_tie *tie,
                             struct hsdp_error *reterr)
{
    const struct plan_param *storage = &plan->params[param->storage];

    if (storage->tie != PLAN_NO_TIE &&
        selectors_agree(&plan->ties[storage->tie].selector, &tie->selector)) {
        return HSDP_OK;
    }
    return error_set(reterr, HSDP_ERR_INVALID,
                     "plan: param \"%.128s\" is tied over \"%.64s\" and to \"%.128s\", which is "
                     "not tied over the same ranks",
                     spec->name, spec->tied_over, storage->name);
}

/* All coordinates of a dimension are the dimension; what is summed along which ones. */
static void holders_fill(const struct hsdp_mesh *mesh, struct plan_tie *tie)
{
    struct selector *selector = &tie->selector;

    tie->n_holders = selector_n_ranks(mesh, selector);
    if (selector->n_coords == mesh_span(mesh, selector->dims)) {
        selector->n_coords = 0;
    }
    if (selector->n_coords != 0) {
        tie->dim_sizes[tie->n_dims++] = selector->n_coords;
    }
    for (uint32_t d = 0; d < mesh->n_dims && selector->n_coords == 0; d++) {
        if ((selector->dims >> d & 1u) != 0) {
            tie->dim_sizes[tie->n_dims++] = mesh->sizes[d];
        }
    }
}

static int32_t tie_read(const struct hsdp_plan *plan, const struct hsdp_param_spec *spec,
                        const struct plan_param *param, struct plan_tie *ret,
                        struct hsdp_error *reterr)
{
    const struct plan_class *klass = &plan->classes[plan->units[param->unit].class_index];
    struct plan_tie tie = {.param = plan->n_params};
    char what[160];
    int64_t own;
    int32_t status;

    snprintf(what, sizeof(what), "plan: param \"%.128s\": tied_over", spec->name);
    status = selector_parse(plan->mesh, what, spec->tied_over, &tie.selector, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    own = selector_index(plan->mesh, &tie.selector, plan->mesh->rank);
    if (own < 0) {
        return error_set(reterr, HSDP_ERR_NOT_MEMBER,
                         "plan: param \"%.128s\" is tied over \"%.64s\", where this rank %" PRIu32
                         " is not",
                         spec->name, spec->tied_over, plan->mesh->rank);
    }
    tie.own = (uint32_t)own;
    holders_fill(plan->mesh, &tie);
    if (tie.n_holders == 1) {
        return HSDP_OK; /* this rank alone: no tie */
    }
    if ((tie.selector.dims & klass->place.replicated) != 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "plan: param \"%.128s\" is tied over \"%.64s\", where class %.64s holds "
                         "equal values already",
                         spec->name, spec->tied_over, klass->name);
    }
    if (param->storage != plan->n_params) {
        return storage_check(plan, spec, param, &tie, reterr);
    }
    *ret = tie;
    return HSDP_OK;
}

int32_t plan_tie_read(const struct hsdp_plan *plan, const struct hsdp_param_spec *spec,
                      const struct plan_param *param, struct plan_tie *ret,
                      struct hsdp_error *reterr)
{
    ret->n_holders = 1;
    return spec->tied_over == NULL ? HSDP_OK : tie_read(plan, spec, param, ret, reterr);
}

void plan_ties_place(struct hsdp_plan *plan)
{
    plan->ties_elems = 0;
    for (uint32_t t = 0; t < plan->n_ties; t++) {
        uint64_t n_elems = plan->params[plan->ties[t].param].n_elems;

        plan->ties[t].place_elems = plan->ties_elems;
        plan->ties_elems += (n_elems + PLAN_ALIGN_ELEMS - 1) / PLAN_ALIGN_ELEMS * PLAN_ALIGN_ELEMS;
    }
}

bool plan_param_is_copy(const struct hsdp_plan *plan, uint32_t param)
{
    uint32_t tie = plan->params[plan->params[param].storage].tie;

    return tie != PLAN_NO_TIE && plan->ties[tie].own != 0;
}

struct tie_count {
    uint32_t param;
    uint64_t n_elems;
};

static void segment_count(void *user, const struct hsdp_segment *segment)
{
    struct tie_count *count = user;

    if (segment->param == count->param) {
        count->n_elems += segment->n_elems;
    }
}

uint64_t plan_tie_elems(const struct hsdp_plan *plan, uint32_t tie)
{
    const struct plan_param *param = &plan->params[plan->ties[tie].param];
    const struct segment_walk walk = {plan, param->unit, param->buffer, HSDP_SHARD_STEP,
                                      plan->mesh->rank};
    struct tie_count count = {plan->ties[tie].param, 0};

    plan_walk_segments(&walk, segment_count, &count);
    return count.n_elems;
}

uint64_t plan_ties_bytes(const struct hsdp_plan *plan)
{
    uint64_t n_elems = 0;

    for (uint32_t t = 0; t < plan->n_ties; t++) {
        n_elems += plan_tie_elems(plan, t);
    }
    return n_elems * sizeof(float);
}

bool plan_ties_reach(const struct hsdp_plan *plan, uint32_t rank)
{
    const struct hsdp_mesh *mesh = plan->mesh;

    for (uint32_t t = 0; t < plan->n_ties; t++) {
        const struct selector *selector = &plan->ties[t].selector;
        const struct plan_param *param = &plan->params[plan->ties[t].param];
        const struct placement *place = &plan->classes[plan->units[param->unit].class_index].place;
        uint32_t dims = selector->dims | place->cuts[HSDP_SHARD_STEP];

        if (selector_index(mesh, selector, rank) >= 0 &&
            mesh_peer(mesh, dims, mesh->rank, mesh_index(mesh, dims, rank)) == rank) {
            return true;
        }
    }
    return false;
}
