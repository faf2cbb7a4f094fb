/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical tree as a row of sums: the same for every block of elements, on every path. */
#include "device/tree.h"

#include <assert.h>
#include <string.h>

static const float zero_block[TREE_BLOCK_ELEMS];

static struct tree_term source_term(const struct reduce_spec *spec, size_t source)
{
    struct tree_term term = {
        .values = spec->sources[source],
        .dtype = spec->source_dtypes == NULL ? spec->source_dtype : spec->source_dtypes[source],
    };

    if (term.values == NULL) {
        return (struct tree_term){(const char *)zero_block, 0, true, DTYPE_FP32, DTYPE_FP32};
    }
    term.wire = spec->wire_dtype == DTYPE_FP32 ? term.dtype : spec->wire_dtype;
    return term;
}

/* One more of the sums that are made. */
static void sum_append(struct tree *tree, const struct tree_sum *sum, float *part)
{
    struct tree_sum *made = &tree->sums[tree->n_sums++];

    assert(tree->n_sums <= TREE_SUMS);
    *made = *sum;
    made->part = part;
    made->is_alike = true;
    made->dtype = sum->terms[0].dtype;
    for (uint32_t i = 0; i < sum->n_terms; i++) {
        made->is_alike = made->is_alike && sum->terms[i].dtype == made->dtype &&
                         sum->terms[i].wire == made->dtype;
    }
}

/* Makes a sum of several terms a term: a part, which may take the place of one of its terms. */
static void sum_make(struct tree *tree, struct tree_sum *sum)
{
    uint32_t index;

    if (sum->n_terms == 1) {
        return;
    }
    for (uint32_t i = 0; i < sum->n_terms; i++) {
        tree->parts_taken &= ~sum->terms[i].part;
    }
    index = (uint32_t)__builtin_ctz(~tree->parts_taken);
    assert(index < TREE_PARTS);
    tree->parts_taken |= 1u << index;
    sum_append(tree, sum, tree->parts[index]);
    sum->terms[0] = (struct tree_term){(const char *)tree->parts[index], 1u << index, true,
                                       DTYPE_FP32, DTYPE_FP32};
    sum->n_terms = 1;
}

/* The two sums on top become their sum: put together where they are of one size. */
static void stack_merge(struct tree *tree)
{
    struct tree_sum *right = &tree->stack[--tree->depth];
    struct tree_sum *left = right - 1;

    if (left->n_terms != right->n_terms || left->n_terms == TREE_TERMS) {
        sum_make(tree, left);
        sum_make(tree, right);
    }
    memcpy(&left->terms[left->n_terms], right->terms, right->n_terms * sizeof(*right->terms));
    left->n_terms *= 2;
}

/*
 * Pushes the sum over dimension `dim` and all inside it, from `source` on; returns the source after
 * the last. Merges as a binary counter carries: after term k, once for each trailing one of k, so a
 * sum meets exactly the neighbour of its own size. What remains is of falling size; adding it up
 * from the top is what carrying the odd one does.
 */
static size_t dim_push(struct tree *tree, const struct reduce_spec *spec, uint32_t dim,
                       size_t source)
{
    uint32_t base = tree->depth;

    if (dim == spec->n_dims) {
        assert(base < TREE_DEPTH);
        tree->stack[tree->depth++] =
            (struct tree_sum){.terms = {source_term(spec, source)}, .n_terms = 1};
        return source + 1;
    }
    for (uint32_t k = 0; k < spec->dim_sizes[dim]; k++) {
        source = dim_push(tree, spec, dim + 1, source);
        for (uint32_t carry = k; (carry & 1) != 0; carry >>= 1) {
            stack_merge(tree);
        }
    }
    while (tree->depth > base + 1) {
        stack_merge(tree);
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

void tree_init(struct tree *tree, const struct reduce_spec *spec)
{
    spec_assert(spec);
    tree->n_sums = 0;
    tree->depth = 0;
    tree->parts_taken = 0;
    dim_push(tree, spec, 0, 0);
    sum_append(tree, &tree->stack[0], NULL);
}
