/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes: ranks arranged in named dimensions. Pure arithmetic; no job, no network. */
#ifndef HSDP_MESH_H
#define HSDP_MESH_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Ranks fill a mesh row-major: the last dimension varies fastest. With dimensions
 * (pp, dp, cp, ep), outermost first,
 *
 *     rank = ((pp * DP + dp) * CP + cp) * EP + ep
 *
 * so inner dimensions are neighbouring ranks, usually on one node.
 *
 * A selector picks ranks by text. The same grammar serves groups, replication and ties:
 *
 *     selector = dims | dim "[" coord { "," coord } "]" | ""
 *     dims     = dim { "," dim }
 *     coord    = integer; negative counts from the end, -1 is the last
 *
 * "dp,cp" are the ranks that differ from the asking one only in dp and cp, in mesh order.
 * "pp[0,-1]" are those at the first and the last coordinate of pp, all else equal: at most 64
 * coordinates, taken in ascending order and each once. "" is the asking rank alone. In a list of
 * dims "x" also means x_replicate and x_shard, where a mesh has both of them and no x. Spaces
 * around names are not allowed.
 */

#define HSDP_MESH_MAX_DIMS 8u
#define HSDP_DIM_NAME_MAX  31u /* bytes of a dimension's name, without the NUL */

/**
 * What to build.
 *
 * Since: 1.0
 */
struct hsdp_mesh_spec {
    size_t struct_size;           /* sizeof(struct hsdp_mesh_spec) */
    const int64_t *dim_sizes;     /* n_dims sizes >= 1, outermost first; -1 = infer, at most once */
    const char *const *dim_names; /* n_dims unique names: letters, digits, '_'; not a digit first */
    const char *data_dims;        /* the dimensions whose ranks see different data, "dp,cp,ep";
                                     "" = none; NULL = dp, dp_replicate, dp_shard, cp and ep do, pp
                                     and tp do not, and there are no others of more than one rank.
                                     A loss that is averaged over cp already leaves cp out */
    uint32_t n_dims;              /* 1..HSDP_MESH_MAX_DIMS */
    uint32_t world_ranks;         /* product of the sizes; 0 = that product (then nothing is -1) */
    uint32_t rank;                /* the asking rank, below world_ranks */
    uint32_t ranks_per_node;      /* neighbouring ranks that share a node; 0 = unknown */
};

/**
 * What a mesh is.
 *
 * Since: 1.0
 */
struct hsdp_mesh_info {
    size_t struct_size; /* sizeof(struct hsdp_mesh_info) */
    uint32_t n_dims;
    uint32_t world_ranks;
    uint32_t rank;
    uint32_t n_data_ranks;   /* product of the sizes of the data dimensions: the default divisor */
    uint32_t ranks_per_node; /* as given */
    uint32_t reserved;       /* zero */
};

/**
 * Functions on meshes. All are local; a mesh never changes.
 *
 * Since: 1.0
 */
struct hsdp_mesh_ops {
    size_t struct_size;

    /**
     * Makes a mesh.
     *
     * Errors: HSDP_ERR_INVALID names the dimension and the numbers that do not fit: sizes of 0 or
     * below -1, two sizes of -1, a product other than world_ranks, an empty or repeated name, a
     * rank outside of the world, an unknown name in data_dims, or none given where the name of a
     * dimension does not tell.
     */
    int32_t (*create)(const struct hsdp_mesh_spec *spec, hsdp_mesh **ret_mesh,
                      struct hsdp_error *reterr);

    /** Tells the sizes of a mesh. */
    int32_t (*info)(const hsdp_mesh *mesh, struct hsdp_mesh_info *ret_info,
                    struct hsdp_error *reterr);

    /**
     * Tells one dimension, by its position from the outermost.
     *
     * Ownership: *ret_name lives as long as the mesh.
     * Errors: HSDP_ERR_INVALID past the last one.
     */
    int32_t (*dim)(const hsdp_mesh *mesh, uint32_t dim_index, const char **ret_name,
                   uint32_t *ret_ranks, struct hsdp_error *reterr);

    /**
     * Tells where a rank stands.
     *
     * Shapes: ret_coords holds max_coords >= n_dims numbers, outermost first, else
     * HSDP_ERR_INVALID; so is a rank outside of the world, here and below.
     */
    int32_t (*coords)(const hsdp_mesh *mesh, uint32_t rank, uint32_t *ret_coords,
                      uint64_t max_coords, struct hsdp_error *reterr);

    /**
     * Lists the ranks that a selector picks, seen from `rank`, in mesh order.
     *
     * Shapes: ret_ranks holds max_ranks numbers; *ret_n_ranks is how many there are, also on
     * HSDP_ERR_BUFFER_TOO_SMALL. Pass NULL and 0 to learn the number.
     * Errors: HSDP_ERR_INVALID for a text that is no selector, an unknown name (lists the known
     * ones), a repeated name, a coordinate outside of its dimension; HSDP_ERR_NOT_MEMBER when
     * `rank` itself is not picked.
     */
    int32_t (*members)(const hsdp_mesh *mesh, const char *selector, uint32_t rank,
                       uint32_t *ret_ranks, uint64_t max_ranks, uint64_t *ret_n_ranks,
                       struct hsdp_error *reterr);

    /** Gives a mesh back; NULL is accepted. */
    void (*destroy)(hsdp_mesh *mesh);
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#define HSDP_MESH_SPEC_INIT HSDP_INIT_(hsdp_mesh_spec)
#define HSDP_MESH_INFO_INIT HSDP_INIT_(hsdp_mesh_info)

#endif /* HSDP_MESH_H */
