/* SPDX-License-Identifier: Apache-2.0 */
/* Planning: random plans, and what they say of a unit, of a buffer, of a shard. */
#ifndef CONFORM_PLAN_PLACE_H
#define CONFORM_PLAN_PLACE_H

#include "planning.h"
#include "training/random_case.h"

#define PLACE_N_CASES      40u
#define PLACE_MAX_RANKS    RANDOM_MAX_RANKS
#define PLACE_MAX_SEGMENTS 64u
#define PLACE_N_CUTS       3 /* HSDP_SHARD_* */

/* What one rank's plan says of one of its units. */
struct place {
    struct host *host;
    uint32_t unit;
    struct hsdp_unit_info info;
    struct hsdp_class_info class;
    uint32_t holders[PLACE_MAX_RANKS]; /* the ranks that hold its parameters */
    uint32_t n_holders;
};

/* What a rank has of a unit in one cut. */
struct shard {
    struct hsdp_segment segments[PLACE_MAX_SEGMENTS];
    uint64_t n_segments;
    uint64_t slice, n_slices; /* which of the equal parts */
};

/* The case that was drawn last. */
extern struct random_case place_case;

/** Draws a case and plans it as one of its ranks, without a job. */
void place_plan(uint64_t seed, struct host *host);

typedef void (*place_check)(const struct place *place);

/** Checks each unit of many random plans. */
void place_each(struct conform *conform, place_check check);

void place_set(struct place *place, struct host *host, uint32_t unit);
struct hsdp_buffer_info place_buffer(const struct place *place, uint32_t unit, uint32_t buffer);
uint64_t place_shard_elems(const struct hsdp_buffer_info *buffer, int32_t cut);
struct hsdp_param_info place_param(const struct place *place, uint32_t param);
/** Whether a parameter has elements of its own in this unit. */
bool place_stores(const struct place *place, uint32_t param, struct hsdp_param_info *ret_info);
/** Bytes of an element of a parameter's view. */
uint64_t place_elem_bytes(const struct place *place);
/** The slice of a rank: the dimensions of the cut in their order, the first one slowest. */
void place_slice(const struct place *place, int32_t cut, uint32_t rank, struct shard *ret);
/** The slice, and its segments. */
void place_shard(const struct place *place, int32_t cut, uint32_t rank, struct shard *ret);

#endif /* CONFORM_PLAN_PLACE_H */
