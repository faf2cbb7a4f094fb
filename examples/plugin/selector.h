/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of meshes: what one is made of, and which ranks a selector picks. */
#ifndef SKELETON_SELECTOR_H
#define SKELETON_SELECTOR_H

#include "skeleton.h"

#define MAX_COORDS 64u /* in one selector */

struct hsdp_mesh {
    char names[HSDP_MESH_MAX_DIMS][HSDP_DIM_NAME_MAX + 1];
    uint32_t sizes[HSDP_MESH_MAX_DIMS];
    uint32_t strides[HSDP_MESH_MAX_DIMS]; /* ranks from one coordinate to the next */
    uint32_t n_dims;
    uint32_t world_ranks;
    uint32_t rank;
    uint32_t ranks_per_node;
    uint32_t n_data_ranks;
};

/** Ranks that differ from the asking one in these dimensions, or in one of them at these places. */
struct selector {
    uint32_t dims; /* a bit each */
    uint32_t n_coords;
    uint32_t coords[MAX_COORDS]; /* ascending; of the only dimension */
};

/** Reads a selector; `operation` is the call whose error it would be. */
int32_t selector_read(const struct hsdp_mesh *mesh, const char *operation, const char *text,
                      struct selector *ret_selector, struct hsdp_error *reterr);

/** How many ranks it picks, whether `rank` is one of them, and the i-th, in mesh order. */
uint32_t selector_n_ranks(const struct hsdp_mesh *mesh, const struct selector *selector);
int selector_has(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank);
uint32_t selector_rank(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank,
                       uint32_t index);

#endif /* SKELETON_SELECTOR_H */
