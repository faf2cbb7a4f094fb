/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical tree as a row of sums, each of which is made in registers. */
#ifndef DEVICE_TREE_H
#define DEVICE_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "device/reduce.h"

/*
 * Sums of up to TREE_TERMS arrays. All but the last go to parts, blocks of elements that stay in
 * the first-level cache, for later sums to add. A tree of 1, 2, 4 or 8 sources is a single sum: no
 * part of it is ever in memory.
 */
enum {
    TREE_TERMS = 8,
    TREE_DEPTH = 7,  /* a dimension of size d leaves at most floor(log2 d) sums on the stack */
    TREE_SUMS = 40,  /* at most, of any dimensions of up to 64 sources */
    TREE_PARTS = 16, /* likewise, at a time */
    TREE_BLOCK_ELEMS = 512, /* of a tree that has no parts */
    TREE_PART_ELEMS = 256,  /* less, so that the next sources arrive while parts are added */
};

_Static_assert(REDUCE_MAX_SOURCES < 1 << TREE_DEPTH, "the stack holds the largest tree");

/* An array to be added: a source, or a part. */
struct tree_term {
    const char *values;
    uint32_t part; /* its bit of those taken; 0: a source */
    bool is_block; /* the same values for each block of elements: a part, or zeros */
    enum dtype dtype;
    enum dtype wire; /* what they are rounded to; the same: not at all */
};

/* 1, 2, 4 or 8 terms: adjacent ones are added, then adjacent pairs of those. */
struct tree_sum {
    struct tree_term terms[TREE_TERMS];
    uint32_t n_terms;
    bool is_alike; /* all terms are of this dtype, and none is rounded */
    enum dtype dtype;
    float *part; /* where it goes; NULL: the last one, which is the result */
};

struct tree {
    struct tree_sum sums[TREE_SUMS]; /* in order */
    uint32_t n_sums;
    uint32_t depth;
    uint32_t parts_taken;
    struct tree_sum stack[TREE_DEPTH]; /* sums that are not made yet, and wait for their partner */
    float parts[TREE_PARTS][TREE_PART_ELEMS] __attribute__((aligned(64)));
};

/* Nothing of it need be initialised. Points to itself: not to be moved. */
void tree_init(struct tree *tree, const struct reduce_spec *spec);

#endif
