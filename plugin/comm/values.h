/* SPDX-License-Identifier: Apache-2.0 */
/* Element types of the host's collectives, and reductions over them. */
#ifndef COMM_VALUES_H
#define COMM_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "hsdp/group.h"

struct kernels; /* device/kernels.h */

/* As in a tensor. */
struct element {
    uint8_t code; /* HSDP_DTYPE_* */
    uint8_t bits;
};

struct values_spec {
    void *dst;                  /* (n_elems,); overlaps none of the sources */
    const void *const *sources; /* n_sources of (n_elems,) */
    uint32_t n_sources;         /* 1..64 */
    struct element element;
    uint64_t n_elems;
    int32_t reduce; /* HSDP_REDUCE_* */
    const struct kernels *kernels;
};

/** True for types that move by whole bytes. */
bool element_moves(struct element element);
/** True if the reduction of the type is built. */
bool element_reduces(struct element element, int32_t reduce);
bool element_equals(struct element left, struct element right);
uint64_t element_bytes(struct element element);
/** Writes "fp32", "int64", "bf16"; "type 7 of 12 bits" for what has no name. */
void element_name(struct element element, char *ret_text, uint64_t max_bytes);

/**
 * Reduces over adjacent pairs in order of the sources: bf16 and fp16 in fp32 and rounded once, the
 * others in themselves; integers wrap; a NaN is the largest and the smallest. In the arithmetic of
 * fp_mode_enter.
 */
void values_reduce(const struct values_spec *spec);

#endif /* COMM_VALUES_H */
