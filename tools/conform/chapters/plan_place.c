/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: random plans, and what they say of a unit, of a buffer, of a shard. */
#include "plan_place.h"

#include <inttypes.h>

struct random_case place_case;

struct hsdp_buffer_info place_buffer(const struct place *place, uint32_t unit, uint32_t buffer)
{
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;
    struct host *host = place->host;

    host_must(host, host->api->plan->buffer_info(host->plan, unit, buffer, &info, &host->err));
    return info;
}

uint64_t place_shard_elems(const struct hsdp_buffer_info *buffer, int32_t cut)
{
    return cut == HSDP_SHARD_PARAM  ? buffer->param_shard_elems
           : cut == HSDP_SHARD_GRAD ? buffer->grad_shard_elems
                                    : buffer->step_shard_elems;
}

struct hsdp_param_info place_param(const struct place *place, uint32_t param)
{
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;
    struct host *host = place->host;

    host_must(host, host->api->plan->param_info(host->plan, param, &info, &host->err));
    return info;
}

/* Whether a parameter has elements of its own in this unit. */
bool place_stores(const struct place *place, uint32_t param, struct hsdp_param_info *ret_info)
{
    *ret_info = place_param(place, param);
    return ret_info->unit == place->unit && ret_info->storage == param;
}

/* The coordinate of a rank in a dimension of the plan's mesh. */
static uint32_t coord_of(struct host *host, const hsdp_mesh *mesh, const char *name, size_t n_name,
                         uint32_t rank, uint32_t *ret_size)
{
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
    uint32_t coords[HSDP_MESH_MAX_DIMS];

    host_must(host, host->api->mesh->info(mesh, &info, &host->err));
    host_must(host, host->api->mesh->coords(mesh, rank, coords, HSDP_MESH_MAX_DIMS, &host->err));
    for (uint32_t d = 0; d < info.n_dims; d++) {
        const char *found = "";

        host_must(host, host->api->mesh->dim(mesh, d, &found, ret_size, &host->err));
        if (strlen(found) == n_name && strncmp(found, name, n_name) == 0) {
            return coords[d];
        }
    }
    host_fail("\"%.*s\" is no dimension of the plan's mesh", (int)n_name, name);
}

/* The slice of a rank: the dimensions of the cut in their order, the first one slowest. */
void place_slice(const struct place *place, int32_t cut, uint32_t rank, struct shard *ret)
{
    const char *dims = cut == HSDP_SHARD_PARAM  ? place->class.param_dims
                       : cut == HSDP_SHARD_GRAD ? place->class.grad_dims
                                                : place->class.step_dims;
    struct host *host = place->host;
    const hsdp_mesh *mesh = NULL;

    host_must(host, host->api->plan->mesh(host->plan, &mesh, &host->err));
    ret->slice = 0;
    ret->n_slices = 1;
    while (dims[0] != '\0') {
        size_t n_name = strcspn(dims, ",");
        uint32_t size = 1;
        uint32_t coord = coord_of(host, mesh, dims, n_name, rank, &size);

        ret->slice = ret->slice * size + coord;
        ret->n_slices *= size;
        dims += n_name + (dims[n_name] == ',');
    }
}

void place_shard(const struct place *place, int32_t cut, uint32_t rank, struct shard *ret)
{
    struct host *host = place->host;

    place_slice(place, cut, rank, ret);
    host_must(host, host->api->plan->segments(host->plan, place->unit, cut, rank, ret->segments,
                                              sizeof(ret->segments[0]), PLACE_MAX_SEGMENTS,
                                              &ret->n_segments, &host->err));
}

/* Bytes of an element of a parameter's view. */
uint64_t place_elem_bytes(const struct place *place)
{
    const char *dtype = "";
    const char *source;
    struct host *host = place->host;

    host_must(host, host->api->plan->class_setting(host->plan, place->info.class_index,
                                                   "param_dtype", &dtype, &source, &host->err));
    return strcmp(dtype, "fp32") == 0 ? 4 : 2;
}

void place_set(struct place *place, struct host *host, uint32_t unit)
{
    memset(place, 0, sizeof(*place));
    place->host = host;
    place->unit = unit;
    place->info = (struct hsdp_unit_info)HSDP_UNIT_INFO_INIT;
    place->class = (struct hsdp_class_info)HSDP_CLASS_INFO_INIT;
    host_must(host, host->api->plan->unit_info(host->plan, unit, &place->info, &host->err));
    host_must(host, host->api->plan->class_info(host->plan, place->info.class_index, &place->class,
                                                &host->err));
    for (uint32_t rank = 0; rank < host->n_ranks; rank++) {
        if (host_holder(host, place->info.first_param, rank) ==
            host_holder(host, place->info.first_param, host->rank)) {
            place->holders[place->n_holders++] = rank;
        }
    }
}

/* Draws a case and plans it as one of its ranks. */
void place_plan(uint64_t seed, struct host *host)
{
    static const struct random_limits limits = {PLACE_MAX_RANKS, -1, false};
    char units[RANDOM_TEXT_BYTES];
    uint32_t rank;

    random_case_draw_within(&place_case, random_mix(seed, 3, 3, 3), &limits);
    rank = (uint32_t)(seed % place_case.n_ranks);
    random_case_units(&place_case, 0, rank, units);
    numbers_note("seed %" PRIu64 ", rank %u of mesh %s, %s, %s", seed, rank, place_case.dims,
                 place_case.settings[0], units);
    host_arrange(host, rank, place_case.dims);
    host_plan(host, place_case.settings[0], units);
}

void place_each(struct conform *conform, place_check check)
{
    numbers_begin(conform);
    for (uint64_t i = 0; i < PLACE_N_CASES; i++) {
        struct host host;

        place_plan(conform->seed + i, &host);
        for (uint32_t unit = 0; unit < host.n_units; unit++) {
            struct place place;

            place_set(&place, &host, unit);
            check(&place);
        }
        host_leave(&host);
    }
}
