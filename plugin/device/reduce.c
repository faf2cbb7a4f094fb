/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical tree, in one pass over blocks that stay in the first-level cache. */
#include "device/reduce.h"

#include <assert.h>
#include <string.h>

#include "device/cast.h"

enum {
    BLOCK_ELEMS = 512,
    /*
     * A dimension of size d leaves at most floor(log2 d) sums waiting for their partner, so all
     * dimensions together at most log2 of the sources; and one is being added.
     */
    STACK_BLOCKS = 7,
};

_Static_assert(REDUCE_MAX_SOURCES < 1 << STACK_BLOCKS, "the stack holds the largest tree");

static const float zero_block[BLOCK_ELEMS];

/* The sums of one block of elements that still wait for their partner, the newest on top. */
struct stack {
    const float *sums[STACK_BLOCKS]; /* sums[i] is storage[i], or a source that needs no rounding */
    uint32_t depth;
    size_t n_elems;
    float storage[STACK_BLOCKS][BLOCK_ELEMS];
};

static void pair_add(float *restrict dst, const float *left, const float *right, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        dst[i] = left[i] + right[i];
    }
}

static void values_add(float *restrict dst, const float *restrict src, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        dst[i] += src[i];
    }
}

static void stack_push(struct stack *stack, const struct reduce_spec *spec, size_t source,
                       size_t first_elem)
{
    const char *values = spec->sources[source];
    enum dtype dtype =
        spec->source_dtypes == NULL ? spec->source_dtype : spec->source_dtypes[source];
    float *block = stack->storage[stack->depth];
    const float **top = &stack->sums[stack->depth++];

    assert(stack->depth <= STACK_BLOCKS);
    if (values == NULL) {
        *top = zero_block;
        return;
    }
    values += first_elem * dtype_bytes(dtype);
    if (dtype == DTYPE_FP32 && spec->wire_dtype == DTYPE_FP32) {
        *top = (const float *)(const void *)values;
        return;
    }
    cast_to_fp32(block, values, dtype, stack->n_elems);
    if (dtype != spec->wire_dtype) {
        cast_round(block, spec->wire_dtype, stack->n_elems);
    }
    *top = block;
}

/* The two sums on top become their sum. */
static void stack_merge(struct stack *stack)
{
    uint32_t right = --stack->depth;
    uint32_t left = right - 1;
    float *block = stack->storage[left];

    if (stack->sums[left] == block) {
        values_add(block, stack->sums[right], stack->n_elems);
    } else {
        pair_add(block, stack->sums[left], stack->sums[right], stack->n_elems);
    }
    stack->sums[left] = block;
}

/*
 * Pushes the sum over dimension `dim` and all inside it, from `source` on; returns the source after
 * the last. Merges as a binary counter carries: after term k, once for each trailing one of k, so a
 * sum meets exactly the neighbour of its own size. What remains is of falling size; adding it up
 * from the top is what carrying the odd one does.
 */
static size_t dim_push(struct stack *stack, const struct reduce_spec *spec, uint32_t dim,
                       size_t source, size_t first_elem)
{
    uint32_t base = stack->depth;

    if (dim == spec->n_dims) {
        stack_push(stack, spec, source, first_elem);
        return source + 1;
    }
    for (uint32_t k = 0; k < spec->dim_sizes[dim]; k++) {
        source = dim_push(stack, spec, dim + 1, source, first_elem);
        for (uint32_t carry = k; (carry & 1) != 0; carry >>= 1) {
            stack_merge(stack);
        }
    }
    while (stack->depth > base + 1) {
        stack_merge(stack);
    }
    return source;
}

static void spec_assert(const struct reduce_spec *spec)
{
    size_t n_sources = 1;

    assert(spec->n_dims <= REDUCE_MAX_DIMS);
    for (uint32_t dim = 0; dim < spec->n_dims; dim++) {
        assert(spec->dim_sizes[dim] >= 1 && spec->dim_sizes[dim] <= REDUCE_MAX_SOURCES);
        n_sources *= spec->dim_sizes[dim];
        assert(n_sources <= REDUCE_MAX_SOURCES);
    }
    (void)n_sources;
}

/* Copies, and the norm: a block of results, while it is in the cache. */
static void block_finish(const struct reduce_spec *spec, size_t first, size_t n_elems)
{
    const struct reduce_norm *norm = spec->norm;
    const float *results = spec->dst + first;
    float divided[BLOCK_ELEMS];

    for (uint32_t i = 0; i < spec->n_copies; i++) {
        memcpy(spec->copies[i] + first, results, n_elems * sizeof(*results));
    }
    if (norm != NULL) {
        memcpy(divided, results, n_elems * sizeof(*results));
        norm_sum_divide_add(norm->sum, divided, norm->divisor, n_elems, norm->p);
    }
}

void reduce_tree(const struct reduce_spec *spec)
{
    struct stack stack;

    spec_assert(spec);
    for (size_t first = 0; first < spec->n_elems; first += BLOCK_ELEMS) {
        size_t n_rest = spec->n_elems - first;
        float *dst = spec->dst + first;

        stack.depth = 0;
        stack.n_elems = n_rest < BLOCK_ELEMS ? n_rest : BLOCK_ELEMS;
        dim_push(&stack, spec, 0, 0, first);
        if (spec->accumulate) {
            reduce_add(dst, stack.sums[0], DTYPE_FP32, stack.n_elems);
        } else {
            cast_to_fp32(dst, stack.sums[0], DTYPE_FP32, stack.n_elems);
        }
        block_finish(spec, first, stack.n_elems);
    }
}

void reduce_add(float *dst, const void *src, enum dtype src_dtype, size_t n_elems)
{
    float block[BLOCK_ELEMS];

    if (src_dtype == DTYPE_FP32 && src != dst) {
        values_add(dst, src, n_elems);
        return;
    }
    for (size_t first = 0; first < n_elems; first += BLOCK_ELEMS) {
        size_t n_rest = n_elems - first;
        size_t n_block = n_rest < BLOCK_ELEMS ? n_rest : BLOCK_ELEMS;
        const char *values = (const char *)src + first * dtype_bytes(src_dtype);

        cast_to_fp32(block, values, src_dtype, n_block);
        values_add(dst + first, block, n_block);
    }
}

void reduce_divide(float *values, float divisor, size_t n_elems)
{
    for (size_t i = 0; i < n_elems; i++) {
        values[i] /= divisor;
    }
}
