/* SPDX-License-Identifier: Apache-2.0 */
/* A host that trains under a probe, tells it of its own accesses, and hashes all that it sees. */
#ifndef TESTS_ORDER_TRAIN_H
#define TESTS_ORDER_TRAIN_H

#include "order_log.h"

/* How to train. */
struct order_run {
    char dims[64];
    char settings[256];
    const char *units;
    const char *last_units; /* of the second half of the ranks, a stage; NULL = the same */
    uint32_t n_ranks;
    int32_t scope;  /* planned, and that of a window's first microbatch; the other two are full */
    uint32_t slots; /* planned */
    bool is_set;    /* BACKWARD_SET: slots are not zeroed */
    /* Units out of order, absent and with late gradients, two passes open at once, a window that
     * is discarded, edits by one rank, a sync, exports. */
    bool is_varied;
    bool has_adamw; /* in every other window, instead of descent */
};

struct order_trainer {
    struct host host;
    const struct order_run *run;
    struct probe *probe;
    uint32_t n_batches; /* since the load: gradients differ */
    uint64_t hash;      /* of what the host has read: parameters, norms, factors, exports */
};

/** Jobs differ in strategy and scope, their models in slots and whether these are zeroed; meshes
 * and compute dtypes take turns. */
#define ORDER_N_JOBS   (HOST_N_STRATEGIES * 3)
#define ORDER_N_MODELS 6
struct order_run order_run_of(uint32_t job, uint32_t number);
/** The same by name, on "dp=4" split into 2 x 2; neither varied nor with AdamW. */
struct order_run order_run_named(const char *strategy, int32_t scope, uint32_t slots);
/** Two stages of 2 or 4 ranks; parameters are tied across units and across stages. */
struct order_run order_run_tied(const char *strategy, int32_t scope, uint32_t slots,
                                uint32_t stage_ranks);

/** Joins, and gives the job a probe. */
void order_train_join(struct order_trainer *trainer, uint32_t rank, const struct order_run *run,
                      struct probe *probe, struct order_map *map);
/** Makes the model of a run; one at a time. */
void order_train_model(struct order_trainer *trainer, const struct order_run *run,
                       struct order_map *map);
void order_train_drop(struct order_trainer *trainer, struct order_map *map);
/** Loads weights that depend on `seed`, and starts gradients from the beginning. */
void order_train_load(struct order_trainer *trainer, uint32_t seed);
/** A window and its step; a varied run differs from window to window, from 0 on. */
void order_train_window(struct order_trainer *trainer, uint32_t window);
/** Reads all parameters, unsharded. */
void order_train_read(struct order_trainer *trainer);
/** One rank loads the largest parameter for all, then replicas are made equal. */
void order_train_edit(struct order_trainer *trainer);
/** Reads a master of all ranks. Collective. */
void order_train_export(struct order_trainer *trainer, uint32_t param);

#endif /* TESTS_ORDER_TRAIN_H */
