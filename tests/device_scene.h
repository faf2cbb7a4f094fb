/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with devices, of the doubles, and a group of all of them; tensors of one dimension. */
#ifndef TESTS_DEVICE_SCENE_H
#define TESTS_DEVICE_SCENE_H

#include "comm/values.h"
#include "host.h"

#define SCENE_LIMIT_MS 60000u

/* A rank with a group of all. */
struct scene {
    struct host host;
    hsdp_group *group;
    uint32_t n_ranks;
    uint32_t rank;
};

/* A tensor of one dimension, with its memory. */
struct vector {
    struct hsdp_tensor tensor;
    int64_t n_elems;
    struct element element;
    uint8_t *bytes;
};

/** How many devices there are, doubles or not; with fewer than n_least the program ends as skipped.
 */
uint32_t devices_need(uint32_t n_least);
/** Libraries and device of this process; the device is `rank`. */
void devices_use(uint32_t rank);

/** Joins over "dp"; and its group. */
void scene_open(struct scene *scene, uint32_t rank, uint32_t n_ranks);
void scene_close(struct scene *scene);
hsdp_group *scene_group(struct scene *scene, const char *selector);

/** Starts collectives of tensors in the host's memory, through copies on the device. */
uint64_t scene_start(struct scene *scene, const struct hsdp_coll_spec *specs, uint64_t n);
/** The same, and waits for them. */
void scene_run(struct scene *scene, const struct hsdp_coll_spec *specs, uint64_t n);

/** Zeros; the caller frees vector->bytes. */
struct hsdp_tensor *vector_init(struct vector *vector, struct element element, uint64_t n_elems);

/** An all_reduce of n_elems of fp32, in place, is the number of ranks everywhere. */
void scene_expect_sum(struct scene *scene, uint64_t n_elems);

#endif /* TESTS_DEVICE_SCENE_H */
