/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes and selectors, as the other files see them. A set of dimensions is a mask of bits. */
#ifndef REFERENCE_MESH_H
#define REFERENCE_MESH_H

#include "error.h"
#include "hsdp/mesh.h"

struct hsdp_mesh {
    uint32_t n_dims;
    uint32_t world_ranks;
    uint32_t rank;
    uint32_t ranks_per_node; /* 0 = unknown */
    uint32_t data_dims;
    uint32_t sizes[HSDP_MESH_MAX_DIMS];
    char names[HSDP_MESH_MAX_DIMS][HSDP_DIM_NAME_MAX + 1];
};

#define ALL_DIMS 0xffffffffu

static inline bool dims_have(uint32_t dims, uint32_t d)
{
    return (dims >> d & 1u) != 0;
}

/** The dimension of a name of n bytes, or -1. */
int mesh_find(const struct hsdp_mesh *mesh, const char *name, size_t n);

/** How many ranks differ only in these dimensions. */
uint32_t mesh_count(const struct hsdp_mesh *mesh, uint32_t dims);

/** Where a rank stands along a dimension; and the rank that stands elsewhere, all else equal. */
uint32_t mesh_coord(const struct hsdp_mesh *mesh, uint32_t rank, uint32_t d);
uint32_t mesh_move(const struct hsdp_mesh *mesh, uint32_t rank, uint32_t d, uint32_t coord);

/** The index-th, in mesh order, of the ranks that differ from `rank` only in these dimensions. */
uint32_t mesh_peer(const struct hsdp_mesh *mesh, uint32_t dims, uint32_t rank, uint32_t index);

/** Writes dimensions as a selector: "dp,cp". */
#define DIMS_TEXT_BYTES (HSDP_MESH_MAX_DIMS * (HSDP_DIM_NAME_MAX + 1u))
void mesh_dims_write(const struct hsdp_mesh *mesh, uint32_t dims, char text[DIMS_TEXT_BYTES]);

int32_t mesh_rank_check(const struct call *call, const struct hsdp_mesh *mesh, uint32_t rank);

/** A copy in which dp is split into dp_replicate and dp_shard, this one of shard_size ranks. */
int32_t mesh_split(const struct call *call, const struct hsdp_mesh *mesh, uint32_t shard_size,
                   struct hsdp_mesh **ret_mesh);

/* ----------------------------------------------------------------------------------- selectors */

#define MOST_COORDS 64u

struct selector {
    uint32_t dims;
    uint32_t n_coords;            /* 0 = all of them */
    uint32_t coords[MOST_COORDS]; /* of one dimension; ascending, each once */
};

/** Reads a selector; `what` is what the sentence of an error calls it. */
int32_t selector_read(const struct call *call, const struct hsdp_mesh *mesh, const char *what,
                      const char *text, struct selector *ret);

/** Likewise for one that has to be of whole dimensions. */
int32_t selector_read_dims(const struct call *call, const struct hsdp_mesh *mesh, const char *what,
                           const char *text, uint32_t *ret_dims);

/** True if a rank stands at one of the selector's coordinates. */
bool selector_picks(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank);

/**
 * Counts the ranks that a selector picks, seen from `rank`, and writes the first max_ranks of
 * them, in mesh order.
 */
uint64_t selector_list(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank,
                       uint32_t *ret_ranks, uint64_t max_ranks);

#endif /* REFERENCE_MESH_H */
