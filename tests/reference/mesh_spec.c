/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what a host says of a mesh: names, sizes, and which dimensions are data. */
#include "mesh_spec.h"

#include <inttypes.h>
#include <string.h>

static bool name_is_legal(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    size_t n = strlen(name);

    return n >= 1 && n <= HSDP_DIM_NAME_MAX && strspn(name, letters) == n &&
           (name[0] < '0' || name[0] > '9');
}

static int32_t name_read(const struct call *call, const char *name, struct hsdp_mesh *mesh)
{
    if (name == NULL || !name_is_legal(name)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "mesh: dimension %" PRIu32 " has the name \"%.64s\"; a name is 1 to %u "
                           "letters, digits and '_', a digit not first",
                           mesh->n_dims, name == NULL ? "" : name, HSDP_DIM_NAME_MAX);
    }
    if (mesh_find(mesh, name, strlen(name)) >= 0) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "mesh: dimensions %d and %" PRIu32 " have the same name \"%s\"",
                           mesh_find(mesh, name, strlen(name)), mesh->n_dims, name);
    }
    strcpy(mesh->names[mesh->n_dims++], name);
    return HSDP_OK;
}

static int32_t names_read(const struct call *call, const struct hsdp_mesh_spec *spec,
                          struct hsdp_mesh *mesh)
{
    int32_t status = HSDP_OK;

    if (spec->n_dims < 1 || spec->n_dims > HSDP_MESH_MAX_DIMS) {
        return error_raise(call, HSDP_ERR_INVALID, "mesh: n_dims is %" PRIu32 ", not 1 to %u",
                           spec->n_dims, HSDP_MESH_MAX_DIMS);
    }
    if (spec->dim_sizes == NULL || spec->dim_names == NULL) {
        return error_raise(call, HSDP_ERR_INVALID, "mesh: %" PRIu32 " dimensions without %s",
                           spec->n_dims, spec->dim_names == NULL ? "names" : "sizes");
    }
    for (uint32_t d = 0; d < spec->n_dims && status == HSDP_OK; d++) {
        status = name_read(call, spec->dim_names[d], mesh);
    }
    return status;
}

/* All sizes but the one that is -1, which becomes 1 for now, and the product of all. */
static int32_t sizes_read(const struct call *call, const struct hsdp_mesh_spec *spec,
                          struct hsdp_mesh *mesh, int *ret_inferred, uint64_t *ret_product)
{
    *ret_inferred = -1;
    *ret_product = 1;
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        int64_t size = spec->dim_sizes[d];

        if (size == 0 || size < -1) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "mesh: dimension %s has size %" PRId64 ", not at least 1, or -1",
                               mesh->names[d], size);
        }
        if (size == -1 && *ret_inferred >= 0) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "mesh: dimensions %s and %s both have size -1",
                               mesh->names[*ret_inferred], mesh->names[d]);
        }
        if (size > UINT32_MAX || (size > 0 && *ret_product * (uint64_t)size > UINT32_MAX)) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "mesh: with the %" PRId64 " of %s there are more than %u ranks",
                               size, mesh->names[d], UINT32_MAX);
        }
        mesh->sizes[d] = size == -1 ? 1 : (uint32_t)size;
        *ret_product *= mesh->sizes[d];
        *ret_inferred = size == -1 ? (int)d : *ret_inferred;
    }
    return HSDP_OK;
}

static int32_t world_read(const struct call *call, const struct hsdp_mesh_spec *spec,
                          struct hsdp_mesh *mesh)
{
    uint64_t product;
    int inferred;
    int32_t status = sizes_read(call, spec, mesh, &inferred, &product);

    if (status != HSDP_OK) {
        return status;
    }
    if (inferred >= 0 && (spec->world_ranks == 0 || spec->world_ranks % product != 0)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "mesh: dimension %s cannot be inferred: the others hold %" PRIu64
                           " ranks, world_ranks is %" PRIu32,
                           mesh->names[inferred], product, spec->world_ranks);
    }
    if (inferred >= 0) {
        mesh->sizes[inferred] = (uint32_t)(spec->world_ranks / product);
        product = spec->world_ranks;
    }
    if (spec->world_ranks != 0 && product != spec->world_ranks) {
        char dims[DIMS_TEXT_BYTES];

        mesh_dims_write(mesh, ALL_DIMS, dims);
        return error_raise(call, HSDP_ERR_INVALID,
                           "mesh: dimensions %s hold %" PRIu64 " ranks, the world has %" PRIu32,
                           dims, product, spec->world_ranks);
    }
    mesh->world_ranks = (uint32_t)product;
    mesh->rank = spec->rank;
    mesh->ranks_per_node = spec->ranks_per_node;
    return mesh_rank_check(call, mesh, spec->rank);
}

static bool word_is_in(const char *const *words, const char *word)
{
    while (*words != NULL && strcmp(*words, word) != 0) {
        words++;
    }
    return *words != NULL;
}

/* Where the host does not say which dimensions are data, their names have to tell. */
static int32_t data_dims_guess(const struct call *call, struct hsdp_mesh *mesh)
{
    static const char *const data[] = {"dp", "dp_replicate", "dp_shard", "cp", "ep", NULL};
    static const char *const other[] = {"pp", "tp", NULL};

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if (word_is_in(data, mesh->names[d])) {
            mesh->data_dims |= 1u << d;
        } else if (!word_is_in(other, mesh->names[d]) && mesh->sizes[d] > 1) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "mesh: the name of dimension %s does not tell whether its %" PRIu32
                               " ranks see different data: name all that do in data_dims",
                               mesh->names[d], mesh->sizes[d]);
        }
    }
    return HSDP_OK;
}

int32_t mesh_spec_read(const struct call *call, const struct hsdp_mesh_spec *spec,
                       struct hsdp_mesh *mesh)
{
    int32_t status = names_read(call, spec, mesh);

    if (status == HSDP_OK) {
        status = world_read(call, spec, mesh);
    }
    if (status == HSDP_OK && spec->data_dims == NULL) {
        return data_dims_guess(call, mesh);
    }
    if (status == HSDP_OK) {
        status = selector_read_dims(call, mesh, "data_dims", spec->data_dims, &mesh->data_dims);
    }
    return status;
}
