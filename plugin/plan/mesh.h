/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes: ranks in named dimensions, and the sets of ranks that differ only in some of them. */
#ifndef PLAN_MESH_H
#define PLAN_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "hsdp/mesh.h"

/* A set of dimensions is a bit mask: bit d is the mesh's d-th dimension from the outermost. */

struct hsdp_mesh {
    uint32_t n_dims;
    uint32_t world_ranks;
    uint32_t rank;
    uint32_t ranks_per_node;
    uint32_t n_data_ranks;
    uint32_t data_dims; /* mask */
    uint32_t sizes[HSDP_MESH_MAX_DIMS];
    uint32_t strides[HSDP_MESH_MAX_DIMS]; /* in ranks */
    char names[HSDP_MESH_MAX_DIMS][HSDP_DIM_NAME_MAX + 1];
};

int32_t mesh_create(const struct hsdp_mesh_spec *spec, struct hsdp_mesh **ret_mesh,
                    struct hsdp_error *reterr);
void mesh_destroy(struct hsdp_mesh *mesh);
int32_t mesh_clone(const struct hsdp_mesh *mesh, struct hsdp_mesh **ret_mesh,
                   struct hsdp_error *reterr);

/**
 * A copy of `mesh` in which dimension `dim` is split into two neighbouring ones: NAME_replicate
 * (outer) and NAME_shard (inner, shard_size ranks). Both take over the role (data or not).
 */
int32_t mesh_split(const struct hsdp_mesh *mesh, uint32_t dim, uint32_t shard_size,
                   struct hsdp_mesh **ret_mesh, struct hsdp_error *reterr);

/* The functions of the public table; see hsdp/mesh.h. */
int32_t mesh_info(const struct hsdp_mesh *mesh, struct hsdp_mesh_info *ret_info,
                  struct hsdp_error *reterr);
int32_t mesh_dim(const struct hsdp_mesh *mesh, uint32_t dim_index, const char **ret_name,
                 uint32_t *ret_ranks, struct hsdp_error *reterr);
int32_t mesh_coords(const struct hsdp_mesh *mesh, uint32_t rank, uint32_t *ret_coords,
                    uint64_t max_coords, struct hsdp_error *reterr);
int32_t mesh_members(const struct hsdp_mesh *mesh, const char *selector, uint32_t rank,
                     uint32_t *ret_ranks, uint64_t max_ranks, uint64_t *ret_n_ranks,
                     struct hsdp_error *reterr);

/** Index of a dimension by the n bytes of its name; -1 if there is none. */
int mesh_dim_find(const struct hsdp_mesh *mesh, const char *name, uint64_t n_bytes);

/** Coordinate of a rank in one dimension. */
uint32_t mesh_coord(const struct hsdp_mesh *mesh, uint32_t rank, uint32_t dim);

/** How many ranks a set of dimensions spans. */
uint32_t mesh_span(const struct hsdp_mesh *mesh, uint32_t dims);

/** The index-th of the ranks that differ from `rank` only in `dims`, row-major in mesh order. */
uint32_t mesh_peer(const struct hsdp_mesh *mesh, uint32_t dims, uint32_t rank, uint32_t index);

/** The inverse: where `rank` stands among those. */
uint32_t mesh_index(const struct hsdp_mesh *mesh, uint32_t dims, uint32_t rank);

/** Writes a set as a selector ("dp,cp"; "" for none). */
void mesh_dims_text(const struct hsdp_mesh *mesh, uint32_t dims, char *ret_text,
                    uint64_t max_bytes);

#endif /* PLAN_MESH_H */
