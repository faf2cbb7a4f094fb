/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes: arithmetic between ranks and coordinates. No table of ranks is ever made. */
#include "plan/mesh.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/arith.h"
#include "plan/mesh_spec.h"
#include "plan/selector.h"

static int32_t mesh_alloc(struct hsdp_mesh **ret_mesh, struct hsdp_error *reterr)
{
    struct hsdp_mesh *mesh = calloc(1, sizeof(*mesh));

    if (mesh == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "mesh: cannot allocate %zu bytes",
                         sizeof(*mesh));
    }
    *ret_mesh = mesh;
    return HSDP_OK;
}

static void strides_fill(struct hsdp_mesh *mesh)
{
    uint32_t stride = 1;

    for (uint32_t d = mesh->n_dims; d-- > 0;) {
        mesh->strides[d] = stride;
        stride *= mesh->sizes[d]; /* ends at world_ranks, which fits */
    }
}

int32_t mesh_create(const struct hsdp_mesh_spec *spec, struct hsdp_mesh **ret_mesh,
                    struct hsdp_error *reterr)
{
    struct hsdp_mesh *mesh = NULL;
    int32_t status;

    if (spec == NULL || ret_mesh == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "mesh: create needs a spec and a ret_mesh");
    }
    status = mesh_alloc(&mesh, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    status = mesh_spec_read(spec, mesh, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    strides_fill(mesh);
    status = mesh_spec_read_data_dims(spec, mesh, reterr);
    if (status != HSDP_OK) {
        goto out;
    }
    mesh->n_data_ranks = mesh_span(mesh, mesh->data_dims);
    *ret_mesh = mesh;
    mesh = NULL; /* handed over */

out:
    mesh_destroy(mesh);
    return status;
}

void mesh_destroy(struct hsdp_mesh *mesh)
{
    free(mesh);
}

int32_t mesh_clone(const struct hsdp_mesh *mesh, struct hsdp_mesh **ret_mesh,
                   struct hsdp_error *reterr)
{
    struct hsdp_mesh *clone = NULL;
    int32_t status;

    status = mesh_alloc(&clone, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    *clone = *mesh;
    *ret_mesh = clone;
    return HSDP_OK;
}

/* NAME_SUFFIX must be short enough and new. */
static int32_t half_name(const struct hsdp_mesh *mesh, uint32_t dim, const char *suffix,
                         char ret_name[HSDP_DIM_NAME_MAX + 1], struct hsdp_error *reterr)
{
    char name[HSDP_DIM_NAME_MAX + 16];

    snprintf(name, sizeof(name), "%s_%s", mesh->names[dim], suffix);
    if (strlen(name) > HSDP_DIM_NAME_MAX) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: dimension %s cannot be split: %s is longer than %u bytes",
                         mesh->names[dim], name, HSDP_DIM_NAME_MAX);
    }
    if (mesh_dim_find(mesh, name, strlen(name)) >= 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: dimension %s cannot be split: there is a dimension %s already",
                         mesh->names[dim], name);
    }
    memcpy(ret_name, name, strlen(name) + 1);
    return HSDP_OK;
}

/* Bits below `dim` stay, its own is doubled, those above move up by one. */
static uint32_t mask_split(uint32_t mask, uint32_t dim)
{
    uint32_t low = mask & ((1u << dim) - 1u);
    uint32_t own = (mask >> dim) & 1u;
    uint32_t high = mask >> (dim + 1);

    return low | (own << dim) | (own << (dim + 1)) | (high << (dim + 2));
}

static int32_t split_check(const struct hsdp_mesh *mesh, uint32_t dim, uint32_t shard_size,
                           struct hsdp_error *reterr)
{
    if (mesh->n_dims == HSDP_MESH_MAX_DIMS) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: dimension %s cannot be split: there are %u dimensions already",
                         mesh->names[dim], HSDP_MESH_MAX_DIMS);
    }
    if (shard_size == 0 || mesh->sizes[dim] % shard_size != 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: a shard_size of %" PRIu32 " does not divide the %" PRIu32
                         " ranks of dimension %s",
                         shard_size, mesh->sizes[dim], mesh->names[dim]);
    }
    return HSDP_OK;
}

int32_t mesh_split(const struct hsdp_mesh *mesh, uint32_t dim, uint32_t shard_size,
                   struct hsdp_mesh **ret_mesh, struct hsdp_error *reterr)
{
    struct hsdp_mesh *split = NULL;
    char outer[HSDP_DIM_NAME_MAX + 1];
    char inner[HSDP_DIM_NAME_MAX + 1];
    int32_t status;

    status = split_check(mesh, dim, shard_size, reterr);
    if (status == HSDP_OK) {
        status = half_name(mesh, dim, "replicate", outer, reterr);
    }
    if (status == HSDP_OK) {
        status = half_name(mesh, dim, "shard", inner, reterr);
    }
    if (status == HSDP_OK) {
        status = mesh_clone(mesh, &split, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    for (uint32_t d = mesh->n_dims - 1; d > dim; d--) {
        split->sizes[d + 1] = mesh->sizes[d];
        memcpy(split->names[d + 1], mesh->names[d], sizeof(mesh->names[d]));
    }
    split->n_dims = mesh->n_dims + 1;
    split->sizes[dim] = mesh->sizes[dim] / shard_size;
    split->sizes[dim + 1] = shard_size;
    memcpy(split->names[dim], outer, sizeof(outer));
    memcpy(split->names[dim + 1], inner, sizeof(inner));
    split->data_dims = mask_split(mesh->data_dims, dim);
    strides_fill(split);
    *ret_mesh = split;
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------ arithmetic */

int mesh_dim_find(const struct hsdp_mesh *mesh, const char *name, uint64_t n_bytes)
{
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if (strlen(mesh->names[d]) == n_bytes && memcmp(mesh->names[d], name, n_bytes) == 0) {
            return (int)d;
        }
    }
    return -1;
}

uint32_t mesh_coord(const struct hsdp_mesh *mesh, uint32_t rank, uint32_t dim)
{
    return rank / mesh->strides[dim] % mesh->sizes[dim];
}

uint32_t mesh_span(const struct hsdp_mesh *mesh, uint32_t dims)
{
    uint32_t n_ranks = 1;

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if ((dims >> d & 1u) != 0) {
            n_ranks *= mesh->sizes[d];
        }
    }
    return n_ranks;
}

uint32_t mesh_peer(const struct hsdp_mesh *mesh, uint32_t dims, uint32_t rank, uint32_t index)
{
    for (uint32_t d = mesh->n_dims; d-- > 0;) {
        if ((dims >> d & 1u) != 0) {
            rank -= mesh_coord(mesh, rank, d) * mesh->strides[d];
            rank += index % mesh->sizes[d] * mesh->strides[d];
            index /= mesh->sizes[d];
        }
    }
    return rank;
}

uint32_t mesh_index(const struct hsdp_mesh *mesh, uint32_t dims, uint32_t rank)
{
    uint32_t index = 0;

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if ((dims >> d & 1u) != 0) {
            index = index * mesh->sizes[d] + mesh_coord(mesh, rank, d);
        }
    }
    return index;
}

void mesh_dims_text(const struct hsdp_mesh *mesh, uint32_t dims, char *ret_text, uint64_t max_bytes)
{
    uint64_t n_bytes = 0;

    if (max_bytes == 0) {
        return;
    }
    ret_text[0] = '\0';
    for (uint32_t d = 0; d < mesh->n_dims && n_bytes < max_bytes; d++) {
        if ((dims >> d & 1u) != 0) {
            n_bytes += (uint64_t)snprintf(ret_text + n_bytes, max_bytes - n_bytes, "%s%s",
                                          n_bytes == 0 ? "" : ",", mesh->names[d]);
        }
    }
}

/* ---------------------------------------------------------------------------- public table */

static int32_t rank_check(const struct hsdp_mesh *mesh, uint32_t rank, struct hsdp_error *reterr)
{
    if (rank >= mesh->world_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: rank %" PRIu32 " is outside of the world of %" PRIu32 " ranks",
                         rank, mesh->world_ranks);
    }
    return HSDP_OK;
}

int32_t mesh_info(const struct hsdp_mesh *mesh, struct hsdp_mesh_info *ret_info,
                  struct hsdp_error *reterr)
{
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;

    if (mesh == NULL || ret_info == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "mesh: info needs a mesh and a ret_info");
    }
    info.n_dims = mesh->n_dims;
    info.world_ranks = mesh->world_ranks;
    info.rank = mesh->rank;
    info.n_data_ranks = mesh->n_data_ranks;
    info.ranks_per_node = mesh->ranks_per_node;
    *ret_info = info;
    return HSDP_OK;
}

int32_t mesh_dim(const struct hsdp_mesh *mesh, uint32_t dim_index, const char **ret_name,
                 uint32_t *ret_ranks, struct hsdp_error *reterr)
{
    if (mesh == NULL || ret_name == NULL || ret_ranks == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: dim needs a mesh, a ret_name and a ret_ranks");
    }
    if (dim_index >= mesh->n_dims) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: dimension %" PRIu32 " is outside of the %" PRIu32 " dimensions",
                         dim_index, mesh->n_dims);
    }
    *ret_name = mesh->names[dim_index];
    *ret_ranks = mesh->sizes[dim_index];
    return HSDP_OK;
}

int32_t mesh_coords(const struct hsdp_mesh *mesh, uint32_t rank, uint32_t *ret_coords,
                    uint64_t max_coords, struct hsdp_error *reterr)
{
    int32_t status;

    if (mesh == NULL || ret_coords == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "mesh: coords needs a mesh and a ret_coords");
    }
    status = rank_check(mesh, rank, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (max_coords < mesh->n_dims) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: coords needs room for %" PRIu32 " numbers, max_coords is %" PRIu64,
                         mesh->n_dims, max_coords);
    }
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        ret_coords[d] = mesh_coord(mesh, rank, d);
    }
    return HSDP_OK;
}

int32_t mesh_members(const struct hsdp_mesh *mesh, const char *selector, uint32_t rank,
                     uint32_t *ret_ranks, uint64_t max_ranks, uint64_t *ret_n_ranks,
                     struct hsdp_error *reterr)
{
    struct selector picked;
    uint32_t n_ranks;
    int32_t status;

    if (mesh == NULL || ret_n_ranks == NULL || (ret_ranks == NULL && max_ranks > 0)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: members needs a mesh, a ret_n_ranks, and a ret_ranks unless "
                         "max_ranks is 0");
    }
    status = rank_check(mesh, rank, reterr);
    if (status == HSDP_OK) {
        status = selector_parse(mesh, "mesh: selector", selector, &picked, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (selector_index(mesh, &picked, rank) < 0) {
        return error_set(reterr, HSDP_ERR_NOT_MEMBER,
                         "mesh: rank %" PRIu32 " is not among those that \"%.64s\" picks", rank,
                         selector);
    }
    n_ranks = selector_n_ranks(mesh, &picked);
    *ret_n_ranks = n_ranks;
    if (max_ranks < n_ranks) {
        return error_set(reterr, HSDP_ERR_BUFFER_TOO_SMALL,
                         "mesh: \"%.64s\" picks %" PRIu32 " ranks, max_ranks is %" PRIu64, selector,
                         n_ranks, max_ranks);
    }
    for (uint32_t i = 0; i < n_ranks; i++) {
        ret_ranks[i] = selector_rank(mesh, &picked, rank, i);
    }
    return HSDP_OK;
}
