/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors: "dp,cp" or "pp[0,-1]"; the one grammar that picks ranks. */
#ifndef PLAN_SELECTOR_H
#define PLAN_SELECTOR_H

#include "base/text.h"
#include "plan/mesh.h"

#define SELECTOR_MAX_COORDS 64u

struct selector {
    uint32_t dims;     /* mask */
    uint32_t n_coords; /* 0 = all coordinates of dims; else of the one dimension in dims */
    uint32_t coords[SELECTOR_MAX_COORDS]; /* ascending, unique */
};

/*
 * A name that is no dimension stands for the two that NAME was split into, where the mesh has
 * both NAME_replicate and NAME_shard: "dp" goes on meaning all of dp. Coordinates need a dimension
 * itself. Coordinates that meet ("pp[0,-1]" on one stage) count once.
 */

/**
 * Parses a selector. `what` begins the sentence of an error ("mesh: selector", "replicate_dims").
 *
 * Errors: HSDP_ERR_INVALID for an unknown name (lists the known ones), a repeated one, a
 * coordinate outside of its dimension, bad grammar.
 */
int32_t selector_parse(const struct hsdp_mesh *mesh, const char *what, const char *text,
                       struct selector *ret, struct hsdp_error *reterr);

/** Like selector_parse, but refuses coordinates: the result is a set of whole dimensions. */
int32_t selector_dims(const struct hsdp_mesh *mesh, const char *what, const char *text,
                      uint32_t *ret_dims, struct hsdp_error *reterr);

/** Writes it, the same for all texts that select the same ranks: "dp,cp", "pp[0,3]". */
void selector_write(const struct hsdp_mesh *mesh, const struct selector *selector,
                    struct text *text);

uint32_t selector_n_ranks(const struct hsdp_mesh *mesh, const struct selector *selector);

/** World rank of the index-th member seen from `rank`. */
uint32_t selector_rank(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank,
                       uint32_t index);

/** Index of `rank` among the members; -1 when it is outside. */
int64_t selector_index(const struct hsdp_mesh *mesh, const struct selector *selector,
                       uint32_t rank);

#endif /* PLAN_SELECTOR_H */
