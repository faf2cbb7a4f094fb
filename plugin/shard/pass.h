/* SPDX-License-Identifier: Apache-2.0 */
/* Backward passes: units in the order in which they are reduced. */
#ifndef SHARD_PASS_H
#define SHARD_PASS_H

#include "shard/model.h"

/*
 * A unit is reduced when it and all before it have been handed over: `turn` counts those. It stays
 * where it is until the model goes, since open reductions look at it.
 */
struct pass {
    struct work work; /* first; done when all reductions of the pass are: backward_end's ticket */
    struct hsdp_model *model;
    struct pass *next;
    uint64_t number; /* what the host calls it; 0 = closed */
    uint64_t turn;
    uint32_t *units;
    uint64_t *reductions; /* their tickets, once it has ended */
    uint64_t n_units;
    uint64_t n_done; /* of the first reductions of a pass that has ended */
    int32_t scope;
    bool is_ending; /* `work` is queued */
};

#endif /* SHARD_PASS_H */
