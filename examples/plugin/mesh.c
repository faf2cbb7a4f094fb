/* SPDX-License-Identifier: Apache-2.0 */
/* The table of meshes, the first one to make: pure arithmetic. */
#include <stdlib.h>
#include <string.h>

#include "selector.h"

/* The last two numbers of each: its size in ABI 1.0, for ever, and its size today. */
static const struct skeleton_struct spec_kind = {"mesh.create", "spec", 48,
                                                 sizeof(struct hsdp_mesh_spec)};
static const struct skeleton_struct info_kind = {"mesh.info", "ret_info", 32,
                                                 sizeof(struct hsdp_mesh_info)};

static int32_t missing(struct hsdp_error *reterr, const char *operation, const char *argument)
{
    return skeleton_fail(reterr, operation, HSDP_ERR_INVALID, "%s: %s is NULL", operation,
                         argument);
}

/* --------------------------------------------------------------------------------------- create */

static int name_is_legal(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

    return name != NULL && *name != '\0' && !(*name >= '0' && *name <= '9') &&
           name[strspn(name, letters)] == '\0' && strlen(name) <= HSDP_DIM_NAME_MAX;
}

static int32_t names_read(const struct hsdp_mesh_spec *spec, hsdp_mesh *mesh,
                          struct hsdp_error *reterr)
{
    for (uint32_t d = 0; d < spec->n_dims; d++) {
        const char *name = spec->dim_names[d];

        if (!name_is_legal(name)) {
            return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                                 "mesh: dimension %u has the name \"%.64s\"; a name is 1 to %u "
                                 "letters, digits and '_', and begins with no digit",
                                 d, name == NULL ? "(NULL)" : name, HSDP_DIM_NAME_MAX);
        }
        for (uint32_t other = 0; other < d; other++) {
            if (strcmp(name, mesh->names[other]) == 0) {
                return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                                     "mesh: dimensions %u and %u have the same name \"%s\"", other,
                                     d, name);
            }
        }
        memcpy(mesh->names[d], name, strlen(name) + 1);
    }
    mesh->n_dims = spec->n_dims;
    return HSDP_OK;
}

/* The product of the sizes that are given; the position of the one that is not, else n_dims. */
static int32_t sizes_read(const struct hsdp_mesh_spec *spec, hsdp_mesh *mesh, uint64_t *ret_product,
                          uint32_t *ret_inferred, struct hsdp_error *reterr)
{
    uint64_t product = 1;
    uint32_t inferred = spec->n_dims;

    for (uint32_t d = 0; d < spec->n_dims; d++) {
        int64_t size = spec->dim_sizes[d];

        if (size == 0 || size < -1 || size > UINT32_MAX) {
            return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                                 "mesh: dimension %s has size %lld, allowed are 1 to %u, and -1 "
                                 "once",
                                 mesh->names[d], (long long)size, UINT32_MAX);
        }
        if (size == -1 && inferred < spec->n_dims) {
            return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                                 "mesh: dimensions %s and %s both have size -1",
                                 mesh->names[inferred], mesh->names[d]);
        }
        if (size == -1) {
            inferred = d;
            continue;
        }
        product *= (uint64_t)size; /* both are below 2^32 */
        if (product > UINT32_MAX) {
            return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                                 "mesh: with the %lld of dimension %s there are more than %u ranks",
                                 (long long)size, mesh->names[d], UINT32_MAX);
        }
        mesh->sizes[d] = (uint32_t)size;
    }
    *ret_product = product;
    *ret_inferred = inferred;
    return HSDP_OK;
}

/* Strides, the world, and the size that was left open. */
static int32_t world_fit(const struct hsdp_mesh_spec *spec, hsdp_mesh *mesh, uint64_t product,
                         uint32_t inferred, struct hsdp_error *reterr)
{
    uint64_t world = spec->world_ranks;
    uint32_t stride = 1;

    if (inferred < mesh->n_dims && (world == 0 || world % product != 0)) {
        return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                             "mesh: dimension %s cannot be inferred: the others hold %llu ranks, "
                             "the world has %llu",
                             mesh->names[inferred], (unsigned long long)product,
                             (unsigned long long)world);
    }
    if (inferred < mesh->n_dims) {
        mesh->sizes[inferred] = (uint32_t)(world / product);
        product = world;
    }
    if ((world != 0 && product != world) || spec->rank >= product) {
        return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                             "mesh: dimensions up to %s hold %llu ranks, the world has %llu, and "
                             "this is rank %u",
                             mesh->names[mesh->n_dims - 1], (unsigned long long)product,
                             (unsigned long long)world, spec->rank);
    }
    for (uint32_t d = mesh->n_dims; d-- > 0;) {
        mesh->strides[d] = stride;
        stride *= mesh->sizes[d];
    }
    mesh->world_ranks = (uint32_t)product;
    mesh->rank = spec->rank;
    mesh->ranks_per_node = spec->ranks_per_node;
    return HSDP_OK;
}

/* 1 = its ranks see different data, 0 = they do not, -1 = the name does not tell. */
static int name_is_data(const char *name)
{
    static const char *const data[] = {"dp", "dp_replicate", "dp_shard", "cp", "ep"};

    for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++) {
        if (strcmp(name, data[i]) == 0) {
            return 1;
        }
    }
    return strcmp(name, "pp") == 0 || strcmp(name, "tp") == 0 ? 0 : -1;
}

static int32_t data_dims_read(const struct hsdp_mesh_spec *spec, hsdp_mesh *mesh,
                              struct hsdp_error *reterr)
{
    struct selector data = {0};
    int32_t status = HSDP_OK;

    if (spec->data_dims != NULL) {
        status = selector_read(mesh, "mesh.create", spec->data_dims, &data, reterr);
    }
    if (status == HSDP_OK && data.n_coords != 0) {
        return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                             "mesh: data_dims \"%.64s\" has coordinates; only whole dimensions do",
                             spec->data_dims);
    }
    for (uint32_t d = 0; spec->data_dims == NULL && d < mesh->n_dims; d++) {
        int is_data = name_is_data(mesh->names[d]);

        if (is_data < 0 && mesh->sizes[d] > 1) {
            return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                                 "mesh: the name \"%s\" does not tell whether its ranks see "
                                 "different data; data_dims has to",
                                 mesh->names[d]);
        }
        data.dims |= is_data == 1 ? 1u << d : 0;
    }
    mesh->n_data_ranks = selector_n_ranks(mesh, &data);
    return status;
}

static int32_t mesh_fill(const struct hsdp_mesh_spec *spec, hsdp_mesh *mesh,
                         struct hsdp_error *reterr)
{
    uint64_t product = 0;
    uint32_t inferred = 0;
    int32_t status;

    if (spec->n_dims < 1 || spec->n_dims > HSDP_MESH_MAX_DIMS || spec->dim_sizes == NULL ||
        spec->dim_names == NULL) {
        return skeleton_fail(reterr, "mesh.create", HSDP_ERR_INVALID,
                             "mesh: n_dims is %u, allowed are 1 to %u, each with size and name",
                             spec->n_dims, HSDP_MESH_MAX_DIMS);
    }
    status = names_read(spec, mesh, reterr);
    if (status == HSDP_OK) {
        status = sizes_read(spec, mesh, &product, &inferred, reterr);
    }
    if (status == HSDP_OK) {
        status = world_fit(spec, mesh, product, inferred, reterr);
    }
    if (status == HSDP_OK) {
        status = data_dims_read(spec, mesh, reterr);
    }
    return status;
}

static int32_t mesh_create(const struct hsdp_mesh_spec *spec, hsdp_mesh **ret_mesh,
                           struct hsdp_error *reterr)
{
    struct hsdp_mesh_spec own;
    hsdp_mesh *mesh;
    int32_t status;

    if (ret_mesh == NULL) {
        return missing(reterr, "mesh.create", "ret_mesh");
    }
    status = skeleton_take(&spec_kind, spec, &own, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    mesh = calloc(1, sizeof(*mesh));
    if (mesh == NULL) {
        return skeleton_fail(reterr, "mesh.create", HSDP_ERR_NO_MEMORY,
                             "mesh: cannot allocate %zu bytes", sizeof(*mesh));
    }
    status = mesh_fill(&own, mesh, reterr);
    if (status != HSDP_OK) {
        free(mesh);
        return status;
    }
    *ret_mesh = mesh;
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------------ questions */

static int32_t rank_check(const hsdp_mesh *mesh, uint32_t rank, const char *operation,
                          struct hsdp_error *reterr)
{
    if (rank >= mesh->world_ranks) {
        return skeleton_fail(reterr, operation, HSDP_ERR_INVALID,
                             "mesh: rank %u is outside of the world of %u ranks", rank,
                             mesh->world_ranks);
    }
    return HSDP_OK;
}

static int32_t mesh_info(const hsdp_mesh *mesh, struct hsdp_mesh_info *ret_info,
                         struct hsdp_error *reterr)
{
    struct hsdp_mesh_info own = HSDP_MESH_INFO_INIT;
    int32_t status;

    if (mesh == NULL) {
        return missing(reterr, "mesh.info", "mesh");
    }
    status = skeleton_can_give(&info_kind, ret_info, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    own.n_dims = mesh->n_dims;
    own.world_ranks = mesh->world_ranks;
    own.rank = mesh->rank;
    own.n_data_ranks = mesh->n_data_ranks;
    own.ranks_per_node = mesh->ranks_per_node;
    skeleton_give(&info_kind, &own, ret_info);
    return HSDP_OK;
}

static int32_t mesh_dim(const hsdp_mesh *mesh, uint32_t dim_index, const char **ret_name,
                        uint32_t *ret_ranks, struct hsdp_error *reterr)
{
    if (mesh == NULL || ret_name == NULL || ret_ranks == NULL) {
        return missing(reterr, "mesh.dim",
                       mesh == NULL       ? "mesh"
                       : ret_name == NULL ? "ret_name"
                                          : "ret_ranks");
    }
    if (dim_index >= mesh->n_dims) {
        return skeleton_fail(reterr, "mesh.dim", HSDP_ERR_INVALID,
                             "mesh: dimension %u is outside of the %u dimensions", dim_index,
                             mesh->n_dims);
    }
    *ret_name = mesh->names[dim_index];
    *ret_ranks = mesh->sizes[dim_index];
    return HSDP_OK;
}

static int32_t mesh_coords(const hsdp_mesh *mesh, uint32_t rank, uint32_t *ret_coords,
                           uint64_t max_coords, struct hsdp_error *reterr)
{
    int32_t status;

    if (mesh == NULL || ret_coords == NULL) {
        return missing(reterr, "mesh.coords", mesh == NULL ? "mesh" : "ret_coords");
    }
    status = rank_check(mesh, rank, "mesh.coords", reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (max_coords < mesh->n_dims) {
        return skeleton_fail(reterr, "mesh.coords", HSDP_ERR_INVALID,
                             "mesh: there are %u coordinates, max_coords is %llu", mesh->n_dims,
                             (unsigned long long)max_coords);
    }
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        ret_coords[d] = rank / mesh->strides[d] % mesh->sizes[d];
    }
    return HSDP_OK;
}

static int32_t mesh_members(const hsdp_mesh *mesh, const char *selector, uint32_t rank,
                            uint32_t *ret_ranks, uint64_t max_ranks, uint64_t *ret_n_ranks,
                            struct hsdp_error *reterr)
{
    struct selector picked;
    uint32_t n_ranks;
    int32_t status;

    if (mesh == NULL || ret_n_ranks == NULL || (ret_ranks == NULL && max_ranks > 0)) {
        return missing(reterr, "mesh.members",
                       mesh == NULL          ? "mesh"
                       : ret_n_ranks == NULL ? "ret_n_ranks"
                                             : "ret_ranks");
    }
    status = rank_check(mesh, rank, "mesh.members", reterr);
    if (status == HSDP_OK) {
        status = selector_read(mesh, "mesh.members", selector, &picked, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (!selector_has(mesh, &picked, rank)) {
        return skeleton_fail(reterr, "mesh.members", HSDP_ERR_NOT_MEMBER,
                             "mesh: rank %u is not among those that \"%.64s\" picks", rank,
                             selector);
    }
    n_ranks = selector_n_ranks(mesh, &picked);
    *ret_n_ranks = n_ranks;
    if (max_ranks < n_ranks) {
        return skeleton_fail(reterr, "mesh.members", HSDP_ERR_BUFFER_TOO_SMALL,
                             "mesh: \"%.64s\" picks %u ranks, max_ranks is %llu", selector, n_ranks,
                             (unsigned long long)max_ranks);
    }
    for (uint32_t i = 0; i < n_ranks; i++) {
        ret_ranks[i] = selector_rank(mesh, &picked, rank, i);
    }
    return HSDP_OK;
}

static void mesh_destroy(hsdp_mesh *mesh)
{
    free(mesh);
}

const struct hsdp_mesh_ops skeleton_mesh = {
    .struct_size = sizeof(struct hsdp_mesh_ops),
    .create = mesh_create,
    .info = mesh_info,
    .dim = mesh_dim,
    .coords = mesh_coords,
    .members = mesh_members,
    .destroy = mesh_destroy,
};
