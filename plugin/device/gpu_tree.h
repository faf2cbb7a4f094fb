/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel tree: sums in the order of reduce_tree. */
#ifndef DEVICE_GPU_TREE_H
#define DEVICE_GPU_TREE_H

#include "device/gpu_kernels.h"
#include "device/gpu_quad.h"

/*
 * Where all dimensions but the outermost are powers of two, the tree of the mesh is that of so many
 * sources in a row: its lowest three levels are made of groups of eight, loaded before the first is
 * added, and what is above them by a binary counter of groups. Other meshes, and elements outside
 * of whole quads, take sums that wait for their partner from a stack.
 */
enum {
    TREE_GROUP = 8, /* sources; of fewer, more quads are under way */
    TREE_SLOTS = 4, /* a sum of groups each, of 1, 2, 4 and 8 */
    TREE_STACK = 8, /* sums that wait at once, of GPU_TREE_MAX_SOURCES */
};

BOTH_INLINE const char *tree_source(const struct gpu_tree_args *args, uint32_t source)
{
    return (const char *)args->sources + args->stride_bytes * source;
}

BOTH_INLINE uint32_t tree_n_sources(const struct gpu_tree_args *args)
{
    uint32_t n_sources = 1;

    for (uint32_t dim = 0; dim < args->n_dims; dim++) {
        n_sources *= args->dim_sizes[dim];
    }
    return n_sources;
}

BOTH_INLINE bool tree_is_flat(const struct gpu_tree_args *args)
{
    uint32_t n_outer = 1;
    bool is_flat = true;

    for (uint32_t dim = 0; dim < args->n_dims; dim++) {
        uint32_t size = args->dim_sizes[dim];

        is_flat = is_flat && (n_outer == 1 || (size & (size - 1)) == 0);
        n_outer *= size;
    }
    return is_flat;
}

BOTH_INLINE void tree_finish(const struct gpu_tree_args *args, struct piece piece, struct quad sum)
{
    if (args->is_added != 0) {
        sum = quad_add(quad_read(args->dst, DTYPE_FP32, piece), sum);
    }
    quad_write(args->dst, DTYPE_FP32, piece, sum);
}

/* ------------------------------------------------------------------------------ any mesh */

struct tree_stack {
    struct quad sums[TREE_STACK];
    uint32_t depth;
    uint32_t indices[GPU_TREE_MAX_DIMS]; /* of what is being added, in each dimension */
    uint32_t bases[GPU_TREE_MAX_DIMS];   /* the depth at which it began */
};

BOTH_INLINE void stack_merge(struct tree_stack *stack)
{
    stack->depth--;
    stack->sums[stack->depth - 1] =
        quad_add(stack->sums[stack->depth - 1], stack->sums[stack->depth]);
}

/*
 * One term of a dimension is on top: merges as a binary counter carries. Returns whether it was the
 * last; then the sum of the dimension is on top.
 */
BOTH_INLINE bool stack_close(struct tree_stack *stack, uint32_t dim, uint32_t size)
{
    for (uint32_t carry = stack->indices[dim]; (carry & 1) != 0; carry >>= 1) {
        stack_merge(stack);
    }
    stack->indices[dim]++;
    if (stack->indices[dim] < size) {
        return false;
    }
    while (stack->depth > stack->bases[dim] + 1) {
        stack_merge(stack);
    }
    stack->indices[dim] = 0;
    return true;
}

BOTH_COLD void tree_any(const struct gpu_tree_args *args, struct piece piece)
{
    const uint32_t n_sources = tree_n_sources(args);
    struct tree_stack stack;

    stack.depth = 0;
    for (uint32_t dim = 0; dim < GPU_TREE_MAX_DIMS; dim++) {
        stack.indices[dim] = 0;
        stack.bases[dim] = 0;
    }
    for (uint32_t source = 0; source < n_sources; source++) {
        uint32_t dim = args->n_dims;

        stack.sums[stack.depth++] = quad_read(tree_source(args, source), args->source_dtype, piece);
        while (dim > 0 && stack_close(&stack, dim - 1, args->dim_sizes[dim - 1])) {
            dim--;
        }
        for (; dim < args->n_dims; dim++) {
            stack.bases[dim] = stack.depth;
        }
    }
    tree_finish(args, piece, stack.sums[0]);
}

/* ---------------------------------------------------------------------- sources in a row */

/* Adds the first n of a group, adjacent pairs, then pairs of those. */
BOTH_INLINE struct quad group_sum(struct quad terms[TREE_GROUP], uint32_t n)
{
    BOTH_UNROLL
    for (uint32_t step = 1; step < TREE_GROUP; step *= 2) {
        BOTH_UNROLL
        for (uint32_t i = 0; i + step < TREE_GROUP; i += 2 * step) {
            if (i + step < n) {
                terms[i] = quad_add(terms[i], terms[i + step]);
            }
        }
    }
    return terms[0];
}

BOTH_INLINE struct quad group_load(const struct gpu_tree_args *args, int32_t dtype, uint32_t first,
                                   uint32_t n, struct piece piece)
{
    struct quad terms[TREE_GROUP];

    BOTH_UNROLL
    for (uint32_t k = 0; k < TREE_GROUP; k++) {
        if (k < n) {
            terms[k] = quad_read(tree_source(args, first + k), dtype, piece);
        }
    }
    return group_sum(terms, n);
}

/* Takes the sum of one more group, the index-th. */
BOTH_INLINE void slots_take(struct quad slots[TREE_SLOTS], uint32_t index, struct quad sum)
{
    bool is_carried = true;

    BOTH_UNROLL
    for (uint32_t i = 0; i < TREE_SLOTS; i++) {
        if (is_carried && (index >> i & 1) == 0) {
            slots[i] = sum;
            is_carried = false;
        } else if (is_carried) {
            sum = quad_add(slots[i], sum);
        }
    }
}

/* What n groups are in the end: the odd ones are carried up. */
BOTH_INLINE struct quad slots_sum(const struct quad slots[TREE_SLOTS], uint32_t n)
{
    struct quad sum = {{0}};

    BOTH_UNROLL
    for (uint32_t i = 0; i < TREE_SLOTS; i++) {
        if ((n >> i & 1) != 0) {
            sum = (n & ((1u << i) - 1)) == 0 ? slots[i] : quad_add(slots[i], sum);
        }
    }
    return sum;
}

BOTH_INLINE void tree_walk_groups(const struct gpu_tree_args *args, int32_t dtype,
                                  struct pieces pieces, struct gpu_thread thread)
{
    const uint32_t n_sources = tree_n_sources(args);
    const uint32_t n_groups = (n_sources + TREE_GROUP - 1) / TREE_GROUP;

    BOTH_ROLLED
    for (uint64_t i = thread.index; i < pieces.n_quads; i += thread.n_threads) {
        struct piece piece = pieces_quad(pieces, i, true);
        struct quad slots[TREE_SLOTS];

        BOTH_ROLLED
        for (uint32_t group = 0; group < n_groups; group++) {
            uint32_t n_left = n_sources - TREE_GROUP * group;
            uint32_t n = n_left < TREE_GROUP ? n_left : TREE_GROUP;

            slots_take(slots, group, group_load(args, dtype, TREE_GROUP * group, n, piece));
        }
        tree_finish(args, piece, slots_sum(slots, n_groups));
    }
}

/* 1, 2 or 4 sources, a constant: as many quads at a time as make a group of loads. */
BOTH_INLINE void tree_walk_few(const struct gpu_tree_args *args, int32_t dtype, uint32_t n_sources,
                               struct pieces pieces, struct gpu_thread thread)
{
    const uint32_t n_at_once = TREE_GROUP / n_sources;

    BOTH_ROLLED
    for (uint64_t i = thread.index; i < pieces.n_quads; i += n_at_once * thread.n_threads) {
        struct quad terms[TREE_GROUP][TREE_GROUP];

        BOTH_UNROLL
        for (uint32_t k = 0; k < TREE_GROUP; k++) {
            uint64_t quad = i + k / n_sources * thread.n_threads;

            if (quad < pieces.n_quads) {
                terms[k / n_sources][k % n_sources] = quad_read(
                    tree_source(args, k % n_sources), dtype, pieces_quad(pieces, quad, true));
            }
        }
        BOTH_UNROLL
        for (uint32_t k = 0; k < n_at_once; k++) {
            if (i + k * thread.n_threads < pieces.n_quads) {
                tree_finish(args, pieces_quad(pieces, i + k * thread.n_threads, true),
                            group_sum(terms[k], n_sources));
            }
        }
    }
}

/* The number of sources becomes a constant, where it is one of the usual. */
BOTH_INLINE void tree_walk_flat(const struct gpu_tree_args *args, int32_t dtype,
                                struct pieces pieces, struct gpu_thread thread)
{
    switch (tree_n_sources(args)) {
    case 1:
        tree_walk_few(args, dtype, 1, pieces, thread);
        break;
    case 2:
        tree_walk_few(args, dtype, 2, pieces, thread);
        break;
    case 4:
        tree_walk_few(args, dtype, 4, pieces, thread);
        break;
    default:
        tree_walk_groups(args, dtype, pieces, thread);
        break;
    }
}

BOTH_INLINE void kernel_tree(const struct gpu_tree_args *args, struct gpu_thread thread)
{
    uint32_t lead = array_lead(args->dst, DTYPE_FP32);
    bool are_alike = array_lead(args->sources, args->source_dtype) == lead &&
                     args->stride_bytes % (args->source_dtype == DTYPE_FP32 ? 16 : 8) == 0;
    struct pieces pieces = pieces_cut(args->n_elems, lead, are_alike);
    uint64_t n_odd = 2; /* pieces that are not walked in groups */

    if (!pieces.are_whole || !tree_is_flat(args)) {
        n_odd = 2 + pieces.n_quads;
    } else if (args->source_dtype == DTYPE_FP32) {
        tree_walk_flat(args, DTYPE_FP32, pieces, thread);
    } else if (args->source_dtype == DTYPE_BF16) {
        tree_walk_flat(args, DTYPE_BF16, pieces, thread);
    } else {
        tree_walk_flat(args, DTYPE_FP16, pieces, thread);
    }
    BOTH_ROLLED
    for (uint64_t i = thread.index; i < n_odd; i += thread.n_threads) {
        struct piece piece = pieces_odd(pieces, i);

        piece.is_whole = i >= 2 && pieces.are_whole;
        tree_any(args, piece);
    }
}

#endif /* DEVICE_GPU_TREE_H */
