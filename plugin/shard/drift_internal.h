/* SPDX-License-Identifier: Apache-2.0 */
/* Within drift: what is hashed, and what has been found. */
#ifndef SHARD_DRIFT_INTERNAL_H
#define SHARD_DRIFT_INTERNAL_H

#include "shard/model.h"

enum item_kind { ITEM_PARAM, ITEM_MASTER, ITEM_STATE };

struct item {
    enum item_kind kind;
    uint32_t unit;
    uint32_t buffer;
    uint32_t state;
    int cut;               /* of the shard that is hashed */
    uint32_t replica_dims; /* whose ranks hold the same shard */
};

/* What one rank has found; the lowest that has found something speaks for all. */
enum found { FOUND_NOTHING, FOUND_STAGES, FOUND_REPLICAS /* says more than the last */ };

#define DRIFT_TEXT_BYTES 320u

struct finding {
    uint32_t is_found; /* enum found */
    uint32_t reserved;
    char unit[64];
    char text[DRIFT_TEXT_BYTES];
};

/* Of one thing that is tied over stages: what this rank has of it. */
struct tied_hash {
    uint64_t salt; /* its name and kind; the same on all holders */
    uint64_t hash;
};

struct drift {
    uint64_t *hashes; /* of the step that is open, item by item */
    uint64_t n_items;
    struct tied_hash *tied_hashes; /* likewise of ties: each one's parameters, masters, states */
    uint64_t n_tied;
    struct hsdp_segment *segments; /* room for those of any unit */
    uint8_t *received;             /* one exchange */
    uint8_t *staged;               /* what is hashed of a device, piece by piece; NULL on a CPU */
    uint64_t *replicas;            /* one number of each of them, or of each rank */
    uint64_t *counts;              /* how many items each rank has */
    struct finding finding;        /* of the step that is open */
    bool is_named;                 /* it has been looked for */
};

/* drift.c */

/** False where there is no such thing. */
bool drift_item_exists(const struct hsdp_model *model, const struct item *item);

/** Fills cut and replica_dims of an item that has the rest. */
void drift_item_place(const struct hsdp_model *model, struct item *item);

/** Where this rank holds it. */
int32_t drift_item_shard(struct hsdp_model *model, const struct item *item,
                         struct flat_shard *ret_shard, struct hsdp_error *reterr);

/* Elements of a shard: digested as those of `salt` from first_elem on. */
struct digested {
    const struct flat_shard *shard;
    uint64_t shard_offset_elems;
    uint64_t n_elems;
    uint64_t salt;
    uint64_t first_elem;
};

/** Adds their digest. */
int32_t drift_digest(struct hsdp_model *model, const struct digested *elems, uint64_t *hash,
                     struct hsdp_error *reterr);

/** "masters", "values of state "exp_avg"". */
void drift_item_text(const struct hsdp_model *model, const struct item *item, char *ret_text,
                     size_t max_bytes);

/** The index-th of n numbers that add up to zero. */
uint64_t drift_weight(uint32_t index, uint32_t n_replicas);

/* Of hashes that are not all equal: one that differs, one that is taken for right, and why. */
struct odd_one {
    uint32_t odd;
    uint32_t good;
    char why[64];
};
struct odd_one drift_odd_one(const uint64_t *hashes, uint32_t n_replicas);

/** The largest of a number of each rank. Collective. */
int32_t drift_largest(struct hsdp_model *model, uint64_t number, uint64_t *ret_largest,
                      struct hsdp_error *reterr);

/* drift_tie.c: the same between stages, for ties over them. */

/** Hashes what this rank has of ties, and adds its share to the checksum. */
int32_t drift_ties_measure(struct hsdp_model *model, uint64_t *checksum, struct hsdp_error *reterr);

/** The first tied thing whose copies differ, unless something is found already. Collective. */
int32_t drift_ties_find(struct hsdp_model *model, struct finding *ret, struct hsdp_error *reterr);

#endif /* SHARD_DRIFT_INTERNAL_H */
