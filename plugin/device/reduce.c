/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of gradients in one pass: a block of elements goes from all sources to all destinations. */
#include "device/reduce.h"

#include <stdint.h>

#include "device/norm_rows.h"
#include "device/tree.h"
#include "device/vector.h"

_Static_assert((int)TREE_BLOCK_ELEMS <= (int)NORM_BLOCK_ELEMS, "a block is one of the norm");

/* Where the last sum of a tree goes, and what is done with it on the way. */
struct target {
    float *const *copies;
    uint32_t n_copies;
    bool is_added; /* to what dst holds */
    bool is_dst_streamed;
    bool are_copies_streamed;
    struct norm_adder *adder; /* NULL: no norm is wanted */
    bool is_squared;
    struct divisor divisor;
    float *quotients; /* (TREE_BLOCK_ELEMS,) */
};

static const struct target part_target; /* none of this */

/* What is a constant where a block is made, so that nothing is left of it there. */
struct shape {
    uint32_t n_terms;
    bool is_alike; /* all terms are of this dtype, and none is rounded */
    enum dtype dtype;
    bool has_norm;
};

/* Elements of one sum that are made at once. */
struct block {
    const struct tree_sum *sum;
    const char *values[TREE_TERMS]; /* of its terms, from here on */
    float *dst;                     /* likewise */
    size_t first_elem;
    size_t n_elems;
};

/* n values of a term, from the i-th of the block on. */
PATH_INLINE struct vector term_get(const struct block *block, uint32_t index, size_t i, size_t n,
                                   struct shape shape)
{
    const struct tree_term *term = &block->sum->terms[index];
    const char *values = block->values[index];
    struct vector v;

    if (shape.is_alike) {
        return vector_get(values + vector_bytes(shape.dtype, i), shape.dtype, n);
    }
    v = vector_get(values + vector_bytes(term->dtype, i), term->dtype, n);
    return term->dtype == term->wire ? v : vector_round(v, term->wire);
}

PATH_INLINE struct vector pair_sum(const struct block *block, uint32_t index, size_t i, size_t n,
                                   struct shape shape)
{
    return vector_add(term_get(block, index, i, n, shape), term_get(block, index + 1, i, n, shape));
}

PATH_INLINE struct vector quad_sum(const struct block *block, uint32_t index, size_t i, size_t n,
                                   struct shape shape)
{
    return vector_add(pair_sum(block, index, i, n, shape), pair_sum(block, index + 2, i, n, shape));
}

PATH_INLINE struct vector terms_sum(const struct block *block, size_t i, size_t n,
                                    struct shape shape)
{
    switch (shape.n_terms) {
    case 1:
        return term_get(block, 0, i, n, shape);
    case 2:
        return pair_sum(block, 0, i, n, shape);
    case 4:
        return quad_sum(block, 0, i, n, shape);
    default:
        return vector_add(quad_sum(block, 0, i, n, shape), quad_sum(block, 4, i, n, shape));
    }
}

PATH_INLINE void copies_write(const struct block *block, const struct target *target, size_t i,
                              size_t n, struct vector sum)
{
    for (uint32_t k = 0; k < target->n_copies; k++) {
        vector_write(target->copies[k] + block->first_elem + i, DTYPE_FP32, sum, n,
                     target->are_copies_streamed);
    }
}

/*
 * n elements, from the i-th of the block on. What is not always wanted is said to be unlikely, so
 * that a row in a cache jumps over none of it: that took as long as the sum.
 */
PATH_INLINE void row_sum(const struct block *block, const struct target *target, size_t i, size_t n,
                         struct shape shape, struct norm_rows *rows)
{
    struct vector sum = terms_sum(block, i, n, shape);

    if (__builtin_expect(target->is_added, false)) {
        sum = vector_add(vector_get(block->dst + i, DTYPE_FP32, n), sum);
    }
    vector_write(block->dst + i, DTYPE_FP32, sum, n, target->is_dst_streamed);
    if (__builtin_expect(target->n_copies != 0, false)) {
        copies_write(block, target, i, n, sum);
    }
    if (shape.has_norm) {
        sum = vector_quotient(sum, target->divisor);
        vector_put(target->quotients + i, DTYPE_FP32, sum, n);
        norm_rows_add(rows, sum, target->is_squared);
    }
}

/*
 * What changes from block to block is kept in registers, or read as it was written: a load that
 * takes up bytes of several stores waits until these have left the processor, and so until all that
 * the block before has streamed is in memory.
 */
PATH_INLINE void rows_sum(const struct block *block, const struct target *given, struct shape shape)
{
    const struct target target = *given; /* which no store changes, as far as a compiler can see */
    struct norm_rows rows;
    size_t i;

    if (shape.has_norm) {
        rows = norm_rows_begin(target.adder);
    }
    for (i = 0; i + VECTOR_LANES <= block->n_elems; i += VECTOR_LANES) {
        row_sum(block, &target, i, VECTOR_LANES, shape, &rows);
    }
    if (shape.has_norm) {
        norm_rows_end(target.adder, rows, target.quotients, i);
    }
}

/* What is no whole row: the end of an array. */
static void tail_sum(const struct block *block, const struct target *target)
{
    const struct shape shape = {
        .n_terms = block->sum->n_terms, .is_alike = false, .has_norm = target->adder != NULL};
    size_t first = block->n_elems - block->n_elems % VECTOR_LANES;
    size_t n = block->n_elems - first;
    struct norm_rows rows;

    if (shape.has_norm) {
        rows = norm_rows_begin(target->adder);
    }
    row_sum(block, target, first, n, shape, &rows);
    if (shape.has_norm) {
        norm_rows_end(target->adder, rows, target->quotients + first, n);
    }
}

/* The parts of a shape become constants one after another. */
PATH_INLINE void shape_sum(const struct block *block, const struct target *target,
                           struct shape shape)
{
    switch (block->sum->n_terms) {
    case 1:
        shape.n_terms = 1;
        rows_sum(block, target, shape);
        break;
    case 2:
        shape.n_terms = 2;
        rows_sum(block, target, shape);
        break;
    case 4:
        shape.n_terms = 4;
        rows_sum(block, target, shape);
        break;
    default:
        shape.n_terms = 8;
        rows_sum(block, target, shape);
        break;
    }
}

PATH_INLINE void dtype_sum(const struct block *block, const struct target *target, bool has_norm)
{
    if (!block->sum->is_alike) {
        shape_sum(block, target, (struct shape){0, false, DTYPE_FP32, has_norm});
        return;
    }
    switch (block->sum->dtype) {
    case DTYPE_FP32:
        shape_sum(block, target, (struct shape){0, true, DTYPE_FP32, has_norm});
        break;
    case DTYPE_BF16:
        shape_sum(block, target, (struct shape){0, true, DTYPE_BF16, has_norm});
        break;
    case DTYPE_FP16:
        shape_sum(block, target, (struct shape){0, true, DTYPE_FP16, has_norm});
        break;
    }
}

/* Elements [first, first + n_elems) of a sum; dst is where the first one goes. */
static void block_sum(const struct tree_sum *sum, const struct target *target, float *dst,
                      size_t first, size_t n_elems)
{
    struct block block = {.sum = sum, .dst = dst, .first_elem = first, .n_elems = n_elems};

    for (uint32_t k = 0; k < sum->n_terms; k++) {
        size_t offset = sum->terms[k].is_block ? 0 : vector_bytes(sum->terms[k].dtype, first);

        block.values[k] = sum->terms[k].values + offset;
    }
    if (target->adder != NULL) {
        dtype_sum(&block, target, true);
    } else {
        dtype_sum(&block, target, false);
    }
    if (n_elems % VECTOR_LANES != 0) {
        tail_sum(&block, target);
    }
}

/* Whether dst is read as well: lines that come into the cache anyway are not written around it. */
static bool dst_is_read(const struct reduce_spec *spec)
{
    bool is_read = spec->accumulate;
    uint32_t n_sources = 1;

    for (uint32_t dim = 0; dim < spec->n_dims; dim++) {
        n_sources *= spec->dim_sizes[dim];
    }
    for (uint32_t i = 0; i < n_sources; i++) {
        is_read = is_read || spec->sources[i] == spec->dst;
    }
    return is_read;
}

/* Streaming needs lines that begin with the same elements in all destinations. */
static bool spec_can_stream(const struct reduce_spec *spec)
{
    size_t lead = vector_lead(spec->dst, DTYPE_FP32);
    bool can_stream = spec->is_streamed;

    for (uint32_t i = 0; i < spec->n_copies; i++) {
        can_stream = can_stream && vector_lead(spec->copies[i], DTYPE_FP32) == lead;
    }
    return can_stream;
}

static void tree_run(const struct tree *tree, const struct target *target, float *dst, size_t first,
                     size_t n_elems)
{
    const struct tree_sum *last = &tree->sums[tree->n_sums - 1];

    for (const struct tree_sum *sum = tree->sums; sum < last; sum++) {
        block_sum(sum, &part_target, sum->part, first, n_elems);
    }
    block_sum(last, target, dst + first, first, n_elems);
}

static void target_run(const struct reduce_spec *spec, struct target *target)
{
    const bool can_stream = spec_can_stream(spec);
    const size_t lead = vector_lead(spec->dst, DTYPE_FP32);
    size_t first = 0;
    size_t n_block;
    struct tree tree;

    tree_init(&tree, spec);
    if (can_stream) {
        first = lead < spec->n_elems ? lead : spec->n_elems;
        tree_run(&tree, target, spec->dst, 0, first);
        target->is_dst_streamed = !dst_is_read(spec);
        target->are_copies_streamed = true;
    }
    for (; first < spec->n_elems; first += n_block) {
        n_block = tree.n_sums == 1 ? TREE_BLOCK_ELEMS : TREE_PART_ELEMS;
        n_block = n_block < spec->n_elems - first ? n_block : spec->n_elems - first;
        tree_run(&tree, target, spec->dst, first, n_block);
    }
    if (can_stream) {
        vector_fence();
    }
}

void reduce_tree(const struct reduce_spec *spec)
{
    float quotients[TREE_BLOCK_ELEMS] __attribute__((aligned(VECTOR_STREAM_BYTES)));
    struct target target = {
        .copies = spec->copies, .n_copies = spec->n_copies, .is_added = spec->accumulate};
    struct norm_adder adder;

    if (spec->norm == NULL) {
        target_run(spec, &target);
        return;
    }
    adder = norm_adder_begin(spec->norm->sum, spec->norm->p);
    target.adder = &adder;
    target.is_squared = adder.is_squared;
    target.divisor = divisor_of(spec->norm->divisor);
    target.quotients = quotients;
    target_run(spec, &target);
    norm_adder_end(&adder);
}

PATH_INLINE void row_add(float *dst, const char *src, enum dtype src_dtype, size_t n)
{
    struct vector sum = vector_add(vector_get(dst, DTYPE_FP32, n), vector_get(src, src_dtype, n));

    vector_put(dst, DTYPE_FP32, sum, n);
}

void reduce_add(float *dst, const void *src, enum dtype src_dtype, size_t n_elems)
{
    const char *values = src;
    size_t i;

    for (i = 0; i + VECTOR_LANES <= n_elems; i += VECTOR_LANES) {
        row_add(dst + i, values + vector_bytes(src_dtype, i), src_dtype, VECTOR_LANES);
    }
    if (i < n_elems) {
        row_add(dst + i, values + vector_bytes(src_dtype, i), src_dtype, n_elems - i);
    }
}

PATH_INLINE void row_divide(float *values, size_t n, struct divisor divisor)
{
    vector_put(values, DTYPE_FP32, vector_quotient(vector_get(values, DTYPE_FP32, n), divisor), n);
}

void reduce_divide(float *values, float divisor, size_t n_elems)
{
    const struct divisor by = divisor_of(divisor);
    size_t i;

    for (i = 0; i + VECTOR_LANES <= n_elems; i += VECTOR_LANES) {
        row_divide(values + i, VECTOR_LANES, by);
    }
    if (i < n_elems) {
        row_divide(values + i, n_elems - i, by);
    }
}
