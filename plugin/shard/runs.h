/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: which elements of this rank's step shards the hyper groups update. */
#ifndef SHARD_RUNS_H
#define SHARD_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "shard/model.h"

/* Elements of a unit's trainable step shard, of one hyper group. */
struct run {
    uint64_t first_elem;
    uint64_t n_elems;
    uint32_t hyper_group;
};

/* Those of all units, parameter by parameter. */
struct runs {
    struct run *list;     /* in order of unit and element */
    uint64_t *unit_first; /* n_units + 1: where those of a unit begin */
    uint64_t n_runs;
    uint64_t max_runs; /* allocated */
};

/** *ret may be half-made on failure: runs_fini. */
int32_t runs_init(struct runs *ret, const struct hsdp_model *model, struct hsdp_error *reterr);
void runs_fini(struct runs *runs);

/**
 * The run at *at, together with those behind it that one update may cover, and raises *at past
 * them. is_joined[group] tells whether an update of the group leaves padding, which lies between
 * parameters and is zero, as it is.
 */
struct run runs_next(const struct runs *runs, uint64_t *at, uint64_t end, const bool *is_joined);

#endif /* SHARD_RUNS_H */
