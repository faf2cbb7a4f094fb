/* SPDX-License-Identifier: Apache-2.0 */
/* A file as bytes: training samples by number, and a held-out last tenth. */
#ifndef GPT_DATASET_H
#define GPT_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "fault.h"

struct dataset {
    uint8_t *bytes;
    size_t n_train;         /* the first nine tenths */
    size_t n_validation;    /* what follows */
    size_t sequence_length; /* T */
    uint64_t key;           /* of the random offsets */
};

struct dataset_spec {
    const char *path;
    size_t sequence_length;
    uint64_t seed;
    int needs_validation; /* 1: the held-out part must hold a sample */
};

int dataset_load(struct dataset *ret_dataset, const struct dataset_spec *spec,
                 struct fault *ret_fault);
void dataset_fini(struct dataset *dataset);

/*
 * Sample `number` of the run: T bytes and the T that follow them by one. Which bytes depends on
 * seed and number only, so that a global batch is the same however ranks share it.
 */
void dataset_sample(const struct dataset *dataset, uint64_t number, uint8_t *ret_inputs,
                    uint8_t *ret_targets);
/* Samples of the held-out part lie side by side, T bytes apart. */
size_t dataset_n_held_out(const struct dataset *dataset);
void dataset_held_out(const struct dataset *dataset, size_t number, uint8_t *ret_inputs,
                      uint8_t *ret_targets);

#endif
