/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a mesh's spec: every check that a host's numbers and names have to pass. */
#include "plan/mesh_spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "plan/arith.h"
#include "plan/selector.h"

static bool letter_is_legal(char c, bool is_first)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_') {
        return true;
    }
    return !is_first && c >= '0' && c <= '9';
}

static int32_t name_read(const char *name, uint32_t dim, struct hsdp_mesh *mesh,
                         struct hsdp_error *reterr)
{
    uint64_t n_bytes;
    int other;

    if (name == NULL || name[0] == '\0') {
        return error_set(reterr, HSDP_ERR_INVALID, "mesh: dimension %" PRIu32 " has %s name", dim,
                         name == NULL ? "no" : "an empty");
    }
    n_bytes = strlen(name);
    for (uint64_t i = 0; i < n_bytes; i++) {
        if (!letter_is_legal(name[i], i == 0) || n_bytes > HSDP_DIM_NAME_MAX) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "mesh: dimension %" PRIu32 " has the name \"%.64s\"; a name is 1 to "
                             "%u letters, digits and '_', and begins with no digit",
                             dim, name, HSDP_DIM_NAME_MAX);
        }
    }
    other = mesh_dim_find(mesh, name, n_bytes);
    if (other >= 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: dimensions %d and %" PRIu32 " have the same name \"%s\"", other,
                         dim, name);
    }
    memcpy(mesh->names[dim], name, n_bytes + 1);
    mesh->n_dims = dim + 1; /* so that the next one is compared with it */
    return HSDP_OK;
}

static int32_t names_read(const struct hsdp_mesh_spec *spec, struct hsdp_mesh *mesh,
                          struct hsdp_error *reterr)
{
    if (spec->n_dims < 1 || spec->n_dims > HSDP_MESH_MAX_DIMS) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: n_dims is %" PRIu32 ", allowed are 1 to %u", spec->n_dims,
                         HSDP_MESH_MAX_DIMS);
    }
    if (spec->dim_sizes == NULL || spec->dim_names == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "mesh: the spec has no %s",
                         spec->dim_sizes == NULL ? "dim_sizes" : "dim_names");
    }
    for (uint32_t d = 0; d < spec->n_dims; d++) {
        int32_t status = name_read(spec->dim_names[d], d, mesh, reterr);

        if (status != HSDP_OK) {
            return status;
        }
    }
    return HSDP_OK;
}

/* Sizes but the inferred one, and their product. *ret_inferred is -1 when none is. */
static int32_t sizes_read(const struct hsdp_mesh_spec *spec, struct hsdp_mesh *mesh,
                          uint64_t *ret_product, int *ret_inferred, struct hsdp_error *reterr)
{
    uint64_t product = 1;
    int inferred = -1;

    for (uint32_t d = 0; d < spec->n_dims; d++) {
        int64_t size = spec->dim_sizes[d];

        if (size == 0 || size < -1) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "mesh: dimension %s has size %" PRId64
                             ", allowed are 1 and more, and -1 once",
                             mesh->names[d], size);
        }
        if (size == -1 && inferred >= 0) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "mesh: dimensions %s and %s both have size -1, only one can be "
                             "inferred",
                             mesh->names[inferred], mesh->names[d]);
        }
        if (size == -1) {
            inferred = (int)d;
            continue;
        }
        if (!arith_mul(product, (uint64_t)size, &product) || product > UINT32_MAX) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "mesh: with the %" PRId64 " of dimension %s there are more than %u "
                             "ranks",
                             size, mesh->names[d], UINT32_MAX);
        }
        mesh->sizes[d] = (uint32_t)size;
    }
    *ret_product = product;
    *ret_inferred = inferred;
    return HSDP_OK;
}

static int32_t size_infer(const struct hsdp_mesh_spec *spec, struct hsdp_mesh *mesh, int dim,
                          uint64_t product, struct hsdp_error *reterr)
{
    if (spec->world_ranks == 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: dimension %s has size -1, and world_ranks is 0: one must be given",
                         mesh->names[dim]);
    }
    if (spec->world_ranks % product != 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: dimension %s cannot be inferred: the others hold %" PRIu64
                         " ranks, which do not divide the %" PRIu32 " of the world",
                         mesh->names[dim], product, spec->world_ranks);
    }
    mesh->sizes[dim] = (uint32_t)(spec->world_ranks / product);
    return HSDP_OK;
}

/* "mesh: dimensions hold 6 ranks, the world has 8: dp 2, ep 3" */
static int32_t product_refuse(const struct hsdp_mesh_spec *spec, const struct hsdp_mesh *mesh,
                              uint64_t product, struct hsdp_error *reterr)
{
    char dims[HSDP_MESH_MAX_DIMS * (HSDP_DIM_NAME_MAX + 16)];
    int n_bytes = 0;

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        n_bytes += snprintf(dims + n_bytes, sizeof(dims) - (size_t)n_bytes, "%s%s %" PRIu32,
                            d == 0 ? "" : ", ", mesh->names[d], mesh->sizes[d]);
    }
    return error_set(reterr, HSDP_ERR_INVALID,
                     "mesh: dimensions hold %" PRIu64 " ranks, the world has %" PRIu32 ": %s",
                     product, spec->world_ranks, dims);
}

int32_t mesh_spec_read(const struct hsdp_mesh_spec *spec, struct hsdp_mesh *mesh,
                       struct hsdp_error *reterr)
{
    uint64_t product = 0;
    int inferred = -1;
    int32_t status;

    status = names_read(spec, mesh, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    status = sizes_read(spec, mesh, &product, &inferred, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (inferred >= 0) {
        status = size_infer(spec, mesh, inferred, product, reterr);
        if (status != HSDP_OK) {
            return status;
        }
        product = spec->world_ranks;
    }
    if (spec->world_ranks != 0 && product != spec->world_ranks) {
        return product_refuse(spec, mesh, product, reterr);
    }
    if (spec->rank >= product) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "mesh: rank %" PRIu32 " is outside of the world of %" PRIu64 " ranks",
                         spec->rank, product);
    }
    mesh->world_ranks = (uint32_t)product;
    mesh->rank = spec->rank;
    mesh->ranks_per_node = spec->ranks_per_node;
    return HSDP_OK;
}

/* What dimensions of these names mean everywhere; a host that means something else says data_dims.
 */
static const struct {
    const char *name;
    bool is_data;
} known_dims[] = {
    {"dp", true}, {"dp_replicate", true}, {"dp_shard", true}, {"cp", true},
    {"ep", true}, {"pp", false},          {"tp", false},
};

static bool name_is_known(const char *name, bool *ret_is_data)
{
    for (size_t i = 0; i < sizeof(known_dims) / sizeof(known_dims[0]); i++) {
        if (strcmp(name, known_dims[i].name) == 0) {
            *ret_is_data = known_dims[i].is_data;
            return true;
        }
    }
    return false;
}

/* A dimension taken for data that is none, or the reverse, is a wrong sum that nothing can tell. */
static int32_t names_judge(struct hsdp_mesh *mesh, struct hsdp_error *reterr)
{
    for (uint32_t dim = 0; dim < mesh->n_dims; dim++) {
        bool is_data = false;

        if (!name_is_known(mesh->names[dim], &is_data) && mesh->sizes[dim] > 1) {
            return error_set(reterr, HSDP_ERR_INVALID,
                             "mesh: do the ranks of dimension \"%s\" see different data? Its name "
                             "does not tell, as dp, cp, ep (they do), pp and tp (they do not) "
                             "would; name all that do in data_dims (\"\" = none)",
                             mesh->names[dim]);
        }
        mesh->data_dims |= is_data ? 1u << dim : 0;
    }
    return HSDP_OK;
}

int32_t mesh_spec_read_data_dims(const struct hsdp_mesh_spec *spec, struct hsdp_mesh *mesh,
                                 struct hsdp_error *reterr)
{
    if (spec->data_dims == NULL) {
        return names_judge(mesh, reterr);
    }
    return selector_dims(mesh, "mesh: data_dims", spec->data_dims, &mesh->data_dims, reterr);
}
