/* SPDX-License-Identifier: Apache-2.0 */
/* The table hsdp_mesh_ops, and arithmetic between ranks and coordinates. */
#include "mesh.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intake.h"
#include "mesh_spec.h"
#include "reference.h"

static const struct intake spec_intake = {"spec", 48, sizeof(struct hsdp_mesh_spec)};
static const struct intake info_intake = {"ret_info", 32, sizeof(struct hsdp_mesh_info)};

/* ---------------------------------------------------------------------------------- arithmetic */

int mesh_find(const struct hsdp_mesh *mesh, const char *name, size_t n)
{
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if (strlen(mesh->names[d]) == n && memcmp(mesh->names[d], name, n) == 0) {
            return (int)d;
        }
    }
    return -1;
}

uint32_t mesh_count(const struct hsdp_mesh *mesh, uint32_t dims)
{
    uint32_t n_ranks = 1;

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        n_ranks *= dims_have(dims, d) ? mesh->sizes[d] : 1; /* at most world_ranks */
    }
    return n_ranks;
}

/* From a rank to the next along a dimension: the last one varies fastest. */
static uint32_t dim_stride(const struct hsdp_mesh *mesh, uint32_t d)
{
    return mesh_count(mesh, ALL_DIMS << d << 1);
}

uint32_t mesh_coord(const struct hsdp_mesh *mesh, uint32_t rank, uint32_t d)
{
    return rank / dim_stride(mesh, d) % mesh->sizes[d];
}

uint32_t mesh_move(const struct hsdp_mesh *mesh, uint32_t rank, uint32_t d, uint32_t coord)
{
    return rank - mesh_coord(mesh, rank, d) * dim_stride(mesh, d) + coord * dim_stride(mesh, d);
}

uint32_t mesh_peer(const struct hsdp_mesh *mesh, uint32_t dims, uint32_t rank, uint32_t index)
{
    for (uint32_t d = mesh->n_dims; d-- > 0;) {
        if (dims_have(dims, d)) {
            rank = mesh_move(mesh, rank, d, index % mesh->sizes[d]);
            index /= mesh->sizes[d];
        }
    }
    return rank;
}

void mesh_dims_write(const struct hsdp_mesh *mesh, uint32_t dims, char text[DIMS_TEXT_BYTES])
{
    text[0] = '\0';
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if (dims_have(dims, d)) {
            size_t n = strlen(text);

            snprintf(text + n, DIMS_TEXT_BYTES - n, "%s%s", n == 0 ? "" : ",", mesh->names[d]);
        }
    }
}

int32_t mesh_rank_check(const struct call *call, const struct hsdp_mesh *mesh, uint32_t rank)
{
    if (rank < mesh->world_ranks) {
        return HSDP_OK;
    }
    return error_raise(call, HSDP_ERR_INVALID,
                       "mesh: rank %" PRIu32 " is outside of the world of %" PRIu32 " ranks", rank,
                       mesh->world_ranks);
}

/* ------------------------------------------------------------------------------------ dp split */

static int32_t split_check(const struct call *call, const struct hsdp_mesh *mesh,
                           uint32_t shard_size)
{
    int dp = mesh_find(mesh, "dp", 2);
    const char *why = NULL;

    if (dp < 0) {
        why = "the mesh has no dimension dp";
    } else if (mesh->sizes[dp] % shard_size != 0) {
        why = "it does not divide dp";
    } else if (mesh->n_dims == HSDP_MESH_MAX_DIMS) {
        why = "the mesh has no room for one more dimension";
    } else if (mesh_find(mesh, "dp_replicate", strlen("dp_replicate")) >= 0 ||
               mesh_find(mesh, "dp_shard", strlen("dp_shard")) >= 0) {
        why = "the mesh has a dimension dp_replicate or dp_shard already";
    }
    if (why != NULL) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "shard_size: dp, of %" PRIu32 " ranks, cannot be split by %" PRIu32
                           ": %s",
                           dp < 0 ? 0 : mesh->sizes[dp], shard_size, why);
    }
    return HSDP_OK;
}

int32_t mesh_split(const struct call *call, const struct hsdp_mesh *mesh, uint32_t shard_size,
                   struct hsdp_mesh **ret_mesh)
{
    int32_t status = split_check(call, mesh, shard_size);
    struct hsdp_mesh *split;
    uint32_t n = 0; /* dimensions of the split mesh so far */

    if (status != HSDP_OK) {
        return status;
    }
    split = malloc(sizeof(*split));
    if (split == NULL) {
        return error_raise(call, HSDP_ERR_NO_MEMORY, "mesh: no memory");
    }
    *split = *mesh;
    split->data_dims = 0;
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        uint32_t data_bit = dims_have(mesh->data_dims, d) ? 1u : 0u;

        if (strcmp(mesh->names[d], "dp") == 0) {
            strcpy(split->names[n], "dp_replicate");
            split->sizes[n] = mesh->sizes[d] / shard_size;
            split->data_dims |= data_bit << n++;
            strcpy(split->names[n], "dp_shard");
            split->sizes[n] = shard_size;
        } else {
            strcpy(split->names[n], mesh->names[d]);
            split->sizes[n] = mesh->sizes[d];
        }
        split->data_dims |= data_bit << n++;
    }
    split->n_dims = n;
    *ret_mesh = split;
    return HSDP_OK;
}

/* --------------------------------------------------------------------------------------- table */

static int32_t table_create(const struct hsdp_mesh_spec *spec, hsdp_mesh **ret_mesh,
                            struct hsdp_error *reterr)
{
    const struct call call = {"mesh.create", reterr};
    struct hsdp_mesh_spec own;
    struct hsdp_mesh *mesh;
    int32_t status;

    if (!call_has(&call, "ret_mesh", ret_mesh)) {
        return HSDP_ERR_INVALID;
    }
    status = intake_take(&call, &spec_intake, spec, &own);
    if (status != HSDP_OK) {
        return status;
    }
    mesh = calloc(1, sizeof(*mesh));
    if (mesh == NULL) {
        return error_raise(&call, HSDP_ERR_NO_MEMORY, "mesh: no memory");
    }
    status = mesh_spec_read(&call, &own, mesh);
    if (status != HSDP_OK) {
        free(mesh);
        return status;
    }
    *ret_mesh = mesh;
    return HSDP_OK;
}

static int32_t table_info(const hsdp_mesh *mesh, struct hsdp_mesh_info *ret_info,
                          struct hsdp_error *reterr)
{
    const struct call call = {"mesh.info", reterr};
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
    int32_t status;

    if (!call_has(&call, "mesh", mesh)) {
        return HSDP_ERR_INVALID;
    }
    status = intake_check(&call, &info_intake, ret_info);
    if (status != HSDP_OK) {
        return status;
    }
    info.n_dims = mesh->n_dims;
    info.world_ranks = mesh->world_ranks;
    info.rank = mesh->rank;
    info.n_data_ranks = mesh_count(mesh, mesh->data_dims);
    info.ranks_per_node = mesh->ranks_per_node;
    intake_give(&info_intake, &info, ret_info);
    return HSDP_OK;
}

static int32_t table_dim(const hsdp_mesh *mesh, uint32_t dim_index, const char **ret_name,
                         uint32_t *ret_ranks, struct hsdp_error *reterr)
{
    const struct call call = {"mesh.dim", reterr};

    if (!call_has(&call, "mesh", mesh) || !call_has(&call, "ret_name", ret_name) ||
        !call_has(&call, "ret_ranks", ret_ranks)) {
        return HSDP_ERR_INVALID;
    }
    if (dim_index >= mesh->n_dims) {
        return error_raise(&call, HSDP_ERR_INVALID,
                           "mesh: there is no dimension %" PRIu32 ", only %" PRIu32, dim_index,
                           mesh->n_dims);
    }
    *ret_name = mesh->names[dim_index];
    *ret_ranks = mesh->sizes[dim_index];
    return HSDP_OK;
}

static int32_t table_coords(const hsdp_mesh *mesh, uint32_t rank, uint32_t *ret_coords,
                            uint64_t max_coords, struct hsdp_error *reterr)
{
    const struct call call = {"mesh.coords", reterr};
    int32_t status;

    if (!call_has(&call, "mesh", mesh) || !call_has(&call, "ret_coords", ret_coords)) {
        return HSDP_ERR_INVALID;
    }
    status = mesh_rank_check(&call, mesh, rank);
    if (status != HSDP_OK) {
        return status;
    }
    if (max_coords < mesh->n_dims) {
        return error_raise(&call, HSDP_ERR_INVALID,
                           "mesh: max_coords is %" PRIu64 ", there are %" PRIu32, max_coords,
                           mesh->n_dims);
    }
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        ret_coords[d] = mesh_coord(mesh, rank, d);
    }
    return HSDP_OK;
}

static int32_t table_members(const hsdp_mesh *mesh, const char *selector, uint32_t rank,
                             uint32_t *ret_ranks, uint64_t max_ranks, uint64_t *ret_n_ranks,
                             struct hsdp_error *reterr)
{
    const struct call call = {"mesh.members", reterr};
    struct selector own;
    int32_t status;

    if (!call_has(&call, "mesh", mesh) || !call_has(&call, "selector", selector) ||
        !call_has_array(&call, "ret_ranks", ret_ranks, max_ranks) ||
        !call_has(&call, "ret_n_ranks", ret_n_ranks)) {
        return HSDP_ERR_INVALID;
    }
    status = mesh_rank_check(&call, mesh, rank);
    if (status == HSDP_OK) {
        status = selector_read(&call, mesh, "selector", selector, &own);
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (!selector_picks(mesh, &own, rank)) {
        return error_raise(&call, HSDP_ERR_NOT_MEMBER,
                           "mesh: selector \"%.64s\" does not pick rank %" PRIu32 " itself",
                           selector, rank);
    }
    *ret_n_ranks = selector_list(mesh, &own, rank, NULL, 0);
    if (*ret_n_ranks > max_ranks) {
        return error_raise(&call, HSDP_ERR_BUFFER_TOO_SMALL,
                           "mesh: \"%.64s\" picks %" PRIu64 " ranks, max_ranks is %" PRIu64,
                           selector, *ret_n_ranks, max_ranks);
    }
    selector_list(mesh, &own, rank, ret_ranks, max_ranks);
    return HSDP_OK;
}

static void table_destroy(hsdp_mesh *mesh)
{
    free(mesh);
}

const struct hsdp_mesh_ops reference_mesh = {
    .struct_size = sizeof(struct hsdp_mesh_ops),
    .create = table_create,
    .info = table_info,
    .dim = table_dim,
    .coords = table_coords,
    .members = table_members,
    .destroy = table_destroy,
};
