/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW on flat shards: the formula of adamw.h, in one pass. */
#include "device/adamw.h"

#include "device/vector.h"

/* What is the same for all elements. */
struct update {
    struct vector decay;
    struct vector beta1;
    struct vector one_minus_beta1;
    struct vector beta2;
    struct vector one_minus_beta2;
    struct vector step_size;
    struct vector epsilon;
    struct vector factor;
    struct divisor bias2_sqrt;
    struct divisor grads_divisor;
};

static struct update update_of(const struct adamw_constants *constants, float grads_divisor,
                               float factor)
{
    return (struct update){
        .decay = vector_set(constants->decay),
        .beta1 = vector_set(constants->beta1),
        .one_minus_beta1 = vector_set(constants->one_minus_beta1),
        .beta2 = vector_set(constants->beta2),
        .one_minus_beta2 = vector_set(constants->one_minus_beta2),
        .step_size = vector_set(constants->step_size),
        .epsilon = vector_set(constants->epsilon),
        .factor = vector_set(factor),
        .bias2_sqrt = divisor_of(constants->bias2_sqrt),
        .grads_divisor = divisor_of(grads_divisor == 0.0f ? 1.0f : grads_divisor),
    };
}

/* What is a constant in loops, where it is one of the usual. */
struct shape {
    enum dtype params_dtype;
    enum dtype copies_dtype;
};

/* Updates n elements of both averages, from the i-th on; returns the parameters. */
PATH_INLINE struct vector averages_update(const struct update *u, const struct adamw_shard *shard,
                                          size_t i, size_t n, enum dtype params_dtype)
{
    const char *params = (const char *)shard->params + vector_bytes(params_dtype, i);
    struct vector p = vector_get(params, params_dtype, n);
    struct vector m = vector_get(shard->exp_avg + i, DTYPE_FP32, n);
    struct vector v = vector_get(shard->exp_avg_sq + i, DTYPE_FP32, n);
    struct vector g = vector_get(shard->grads + i, DTYPE_FP32, n);
    struct vector denominator;

    g = vector_multiply(vector_quotient(g, u->grads_divisor), u->factor);
    m = vector_add(vector_multiply(u->beta1, m), vector_multiply(u->one_minus_beta1, g));
    v = vector_add(vector_multiply(u->beta2, v),
                   vector_multiply(vector_multiply(u->one_minus_beta2, g), g));
    denominator = vector_add(vector_quotient(vector_sqrt(v), u->bias2_sqrt), u->epsilon);
    vector_put(shard->exp_avg + i, DTYPE_FP32, m, n);
    vector_put(shard->exp_avg_sq + i, DTYPE_FP32, v, n);
    return vector_subtract(vector_multiply(p, u->decay),
                           vector_divide(vector_multiply(u->step_size, m), denominator));
}

PATH_INLINE void row_update(const struct update *u, const struct adamw_shard *shard, size_t i,
                            size_t n, struct shape shape, bool is_streamed)
{
    char *params = (char *)shard->params + vector_bytes(shape.params_dtype, i);
    struct vector p = averages_update(u, shard, i, n, shape.params_dtype);

    p = vector_round(p, shape.params_dtype);
    vector_put(params, shape.params_dtype, p, n);
    for (uint32_t k = 0; k < shard->n_copies; k++) {
        vector_write((char *)shard->copies[k] + vector_bytes(shape.copies_dtype, i),
                     shape.copies_dtype, p, n, is_streamed);
    }
}

/* Whole rows of [first, end). Its own copies no store changes, as far as a compiler can see. */
PATH_INLINE void rows_update(const struct update *given, const struct adamw_shard *shared,
                             size_t first, size_t end, struct shape shape, bool is_streamed)
{
    const struct update u = *given;
    const struct adamw_shard shard = *shared;

    for (size_t i = first; i + VECTOR_LANES <= end; i += VECTOR_LANES) {
        row_update(&u, &shard, i, VECTOR_LANES, shape, is_streamed);
    }
}

/* Elements [first, end). */
static void range_update(const struct update *u, const struct adamw_shard *shard, size_t first,
                         size_t end, bool is_streamed)
{
    const struct shape shape = {shard->params_dtype, shard->copies_dtype};
    size_t n_tail = (end - first) % VECTOR_LANES;

    if (shape.params_dtype != DTYPE_FP32) {
        rows_update(u, shard, first, end, shape, is_streamed);
    } else if (shape.copies_dtype == DTYPE_FP32) {
        rows_update(u, shard, first, end, (struct shape){DTYPE_FP32, DTYPE_FP32}, is_streamed);
    } else if (shape.copies_dtype == DTYPE_BF16) {
        rows_update(u, shard, first, end, (struct shape){DTYPE_FP32, DTYPE_BF16}, is_streamed);
    } else {
        rows_update(u, shard, first, end, (struct shape){DTYPE_FP32, DTYPE_FP16}, is_streamed);
    }
    if (n_tail != 0) {
        row_update(u, shard, end - n_tail, n_tail, shape, false);
    }
}

/* How many elements come before those that can be streamed: all of them, where nothing can. */
static size_t lead_elems(const struct adamw_shard *shard)
{
    size_t lead = shard->n_elems;

    for (uint32_t k = 0; k < shard->n_copies && shard->are_copies_streamed; k++) {
        size_t n_elems = vector_lead(shard->copies[k], shard->copies_dtype);

        if (k != 0 && n_elems != lead) {
            return shard->n_elems;
        }
        lead = n_elems;
    }
    return lead < shard->n_elems ? lead : shard->n_elems;
}

void adamw_update(const struct adamw_constants *constants, const struct adamw_shard *shard,
                  float factor)
{
    const struct update u = update_of(constants, shard->grads_divisor, factor);
    size_t lead = lead_elems(shard);

    range_update(&u, shard, 0, lead, false);
    if (lead < shard->n_elems) {
        range_update(&u, shard, lead, shard->n_elems, true);
        vector_fence();
    }
}
