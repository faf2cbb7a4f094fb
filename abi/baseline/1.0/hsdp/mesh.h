/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/mesh.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_MESH_H
#define HSDP_MESH_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
#define HSDP_MESH_MAX_DIMS 8u
#define HSDP_DIM_NAME_MAX 31u
struct hsdp_mesh_spec {
    size_t struct_size;
    const int64_t *dim_sizes;
    const char *const *dim_names;
    const char *data_dims;
    uint32_t n_dims;
    uint32_t world_ranks;
    uint32_t rank;
    uint32_t ranks_per_node;
};
struct hsdp_mesh_info {
    size_t struct_size;
    uint32_t n_dims;
    uint32_t world_ranks;
    uint32_t rank;
    uint32_t n_data_ranks;
    uint32_t ranks_per_node;
    uint32_t reserved;
};
struct hsdp_mesh_ops {
    size_t struct_size;
    int32_t (*create)(const struct hsdp_mesh_spec *spec, hsdp_mesh **ret_mesh, struct hsdp_error *reterr);
    int32_t (*info)(const hsdp_mesh *mesh, struct hsdp_mesh_info *ret_info, struct hsdp_error *reterr);
    int32_t (*dim)(const hsdp_mesh *mesh, uint32_t dim_index, const char **ret_name, uint32_t *ret_ranks, struct hsdp_error *reterr);
    int32_t (*coords)(const hsdp_mesh *mesh, uint32_t rank, uint32_t *ret_coords, uint64_t max_coords, struct hsdp_error *reterr);
    int32_t (*members)(const hsdp_mesh *mesh, const char *selector, uint32_t rank, uint32_t *ret_ranks, uint64_t max_ranks, uint64_t *ret_n_ranks, struct hsdp_error *reterr);
    void (*destroy)(hsdp_mesh *mesh);
};
#ifdef __cplusplus
}
#endif
#define HSDP_MESH_SPEC_INIT HSDP_INIT_(hsdp_mesh_spec)
#define HSDP_MESH_INFO_INIT HSDP_INIT_(hsdp_mesh_info)
#endif
