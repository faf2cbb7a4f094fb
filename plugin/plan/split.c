/* SPDX-License-Identifier: Apache-2.0 */
/* How a plan takes over its mesh: dp split into dp_replicate and dp_shard, and what follows. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/build.h"
#include "plan/selector.h"

/* The largest divisor of n that is at most `limit`; 1 when there is none. */
static uint32_t divisor_find(uint32_t n, uint32_t limit)
{
    uint32_t best = 1;

    for (uint32_t d = 1; (uint64_t)d * d <= n && d <= limit; d++) {
        if (n % d == 0) {
            best = d > best ? d : best;
            best = n / d <= limit && n / d > best ? n / d : best;
        }
    }
    return best;
}

static bool strategy_has_inner(const char *name)
{
    const struct strategy *strategy = strategy_find(name);

    return strategy != NULL && memchr(strategy->cuts, 'I', sizeof(strategy->cuts)) != NULL;
}

/* True where the data dimensions of more than one rank are dp alone, or none. */
static bool data_is_dp_alone(const struct hsdp_mesh *mesh, uint32_t dp)
{
    return (mesh->data_dims >> dp & 1u) != 0 && mesh_span(mesh, mesh->data_dims & ~(1u << dp)) == 1;
}

/*
 * The shard_size that applies: the host's, else the default. Classes come later, so the default
 * goes by the plan's own strategy and by the data dimensions, which a class reduces over unless it
 * says otherwise. *ret_shard_size is 0 when dp stays whole.
 */
static int32_t shard_size_find(const struct hsdp_plan *plan, const struct hsdp_mesh *mesh, int dp,
                               uint32_t *ret_shard_size, struct hsdp_error *reterr)
{
    uint32_t node_ranks = mesh->ranks_per_node == 0 ? mesh->world_ranks : mesh->ranks_per_node;
    uint32_t half;

    *ret_shard_size = 0;
    if (settings_text(&plan->settings, "shard_size") != NULL) {
        *ret_shard_size = (uint32_t)settings_integer(&plan->settings, "shard_size");
        if (dp < 0) {
            char known[PLAN_DIMS_TEXT_BYTES];

            mesh_dims_text(mesh, UINT32_MAX, known, sizeof(known));
            return error_set(reterr, HSDP_ERR_INVALID,
                             "shard_size: %" PRIu32 " ranks are to be split off dp, but the mesh "
                             "has no dimension dp; it has: %s",
                             *ret_shard_size, known);
        }
        return HSDP_OK;
    }
    if (dp < 0 || !data_is_dp_alone(mesh, (uint32_t)dp) ||
        !strategy_has_inner(settings_text(&plan->settings, "sharding_strategy"))) {
        return HSDP_OK;
    }
    half = mesh->sizes[dp] / 2;
    *ret_shard_size = divisor_find(mesh->sizes[dp], half < node_ranks ? half : node_ranks);
    return HSDP_OK;
}

static int32_t mesh_take(struct hsdp_plan *plan, const struct hsdp_mesh *mesh,
                         struct hsdp_error *reterr)
{
    int dp = mesh_dim_find(mesh, "dp", 2);
    uint32_t shard_size = 0;
    int32_t status;

    status = shard_size_find(plan, mesh, dp, &shard_size, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (shard_size == 0) {
        return mesh_clone(mesh, &plan->mesh, reterr);
    }
    status = mesh_split(mesh, (uint32_t)dp, shard_size, &plan->mesh, reterr);
    if (status == HSDP_OK && settings_text(&plan->settings, "shard_size") == NULL) {
        status = settings_put_integer(&plan->settings, "shard_size", shard_size,
                                      "derived from dp and ranks_per_node", reterr);
    }
    return status;
}

/* The host's replicate_dims must be dimensions of the mesh; the default are those of dp. */
static int32_t replicate_dims_settle(struct hsdp_plan *plan, struct hsdp_error *reterr)
{
    const struct hsdp_mesh *mesh = plan->mesh;
    const char *given = settings_text(&plan->settings, "replicate_dims");
    const char *initial = "";
    uint32_t dims;

    if (given != NULL) {
        return selector_dims(mesh, "replicate_dims", given, &dims, reterr);
    }
    if (mesh_dim_find(mesh, "dp_replicate", strlen("dp_replicate")) >= 0) {
        initial = "dp_replicate";
    } else if (mesh_dim_find(mesh, "dp", strlen("dp")) >= 0) {
        initial = "dp";
    }
    return settings_put(&plan->settings, "replicate_dims", initial, "derived from the mesh",
                        reterr);
}

int32_t plan_adopt_mesh(struct hsdp_plan *plan, const struct hsdp_mesh *mesh,
                        struct hsdp_error *reterr)
{
    int32_t status;

    status = mesh_take(plan, mesh, reterr);
    if (status == HSDP_OK) {
        status = replicate_dims_settle(plan, reterr);
    }
    if (status == HSDP_OK && settings_text(&plan->settings, "gradient_divisor") == NULL &&
        plan->mesh->n_data_ranks <= INT32_MAX) {
        status = settings_put_integer(&plan->settings, "gradient_divisor", plan->mesh->n_data_ranks,
                                      "derived from the mesh", reterr);
    }
    return status;
}
