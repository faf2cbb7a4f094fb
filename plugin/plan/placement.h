/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: strategies are rows of a table; a row and a mesh say who owns which slice. */
#ifndef PLAN_PLACEMENT_H
#define PLAN_PLACEMENT_H

#include "plan/mesh.h"

/*
 * R = reduced dimensions, O = R and replicate_dims, I = R without O. P within G within S within R
 * are the dimensions over which parameters, resting gradients and the optimizer are sharded.
 *
 *   inner    reduce-scatter over G
 *   full     inner, then reduce-scatter over S\G, then all-reduce over R\S
 *   publish  all-gather over S\P, after the step
 *   unshard  all-gather over P
 *
 * Slices are numbered with P's dimensions first, then G\P, then S\G, mesh order within each, so
 * that a rank's step slice lies inside of its gradient slice, and that inside of its parameter
 * slice.
 */

/* The three cuts, in the order of HSDP_SHARD_*: P, G, S. */
#define PLACEMENT_N_CUTS 3

struct placement {
    uint32_t reduced;                        /* R: masks of mesh dimensions */
    uint32_t outer;                          /* O */
    uint32_t cuts[PLACEMENT_N_CUTS];         /* P, G, S */
    uint32_t replicated;                     /* ranks that hold equal values; contains R */
    uint32_t slice_dims[HSDP_MESH_MAX_DIMS]; /* dimensions of S in slice order */
    uint32_t n_slice_dims;
};

struct strategy {
    const char *name;
    const char *aliases;         /* space-separated */
    char cuts[PLACEMENT_N_CUTS]; /* '0' = none, 'I' = inner dimensions, 'R' = all reduced ones */
};

#define STRATEGY_COUNT 7
extern const struct strategy strategies[STRATEGY_COUNT];

/** The row of a name or alias; NULL if there is none ("auto" is none). */
const struct strategy *strategy_find(const char *name);

/** Applies a row. replicated contains reduced; outer = reduced and replicate_dims. */
void placement_init(struct placement *ret, const struct hsdp_mesh *mesh,
                    const struct strategy *strategy, uint32_t replicated, uint32_t reduced,
                    uint32_t replicate_dims);

/** Into how many slices a cut (HSDP_SHARD_*) divides a buffer. */
uint32_t placement_n_slices(const struct placement *place, const struct hsdp_mesh *mesh, int cut);

/** Which of them a rank owns, in slice order. */
uint32_t placement_slice(const struct placement *place, const struct hsdp_mesh *mesh, int cut,
                         uint32_t rank);

/** The rank that owns a slice of a cut, among those that differ from `rank` in the cut's dims. */
uint32_t placement_owner(const struct placement *place, const struct hsdp_mesh *mesh, int cut,
                         uint32_t rank, uint32_t slice);

/** The first of the ranks that hold the same shard of a cut as `rank` does: it saves it. */
uint32_t placement_writer(const struct placement *place, const struct hsdp_mesh *mesh, int cut,
                          uint32_t rank);

/**
 * Whether the norm counts what a rank sums up: each element has one rank of R that does, and of the
 * ranks that hold equal values beyond R the first one counts.
 */
bool placement_is_counted(const struct placement *place, const struct hsdp_mesh *mesh,
                          uint32_t rank);

#endif /* PLAN_PLACEMENT_H */
