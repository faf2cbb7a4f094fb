/* SPDX-License-Identifier: Apache-2.0 */
/* The experiments: arguments, the CPU's kernels, and what double precision says. */
#include <math.h>
#include <string.h>

#include "device/adamw.h"
#include "device/cast.h"
#include "device/half.h"
#include "device/norm.h"
#include "device/reduce.h"
#include "experiment.h"

static const struct adamw_hyper hyper = {1e-3, 0.1, 0.9, 0.95, 1e-8};
enum { ADAMW_STEP = 7 };
#define ADAMW_FACTOR 0.37f

static double value_of(const struct experiment *e, const struct arrays_of *at, uint32_t buffer,
                       uint64_t i)
{
    int32_t dtype = e->buffers[buffer].dtype;
    const char *values = at->bases[buffer];
    float value;

    cast_to_fp32(&value, values + i * (dtype == DTYPE_FP32 ? 4 : 2), (enum dtype)dtype, 1);
    return (double)value;
}

/* ------------------------------------------------------------------------------- cast, add */

static void cast_args(const struct experiment *e, const struct arrays_of *at,
                      union kernel_args *ret)
{
    ret->cast = (struct gpu_cast_args){at->bases[0], at->bases[1], at->n_elems, e->buffers[0].dtype,
                                       e->buffers[1].dtype};
}

static void cast_cpu(const struct experiment *e, const struct arrays_of *at)
{
    cast_convert(at->bases[0], (enum dtype)e->buffers[0].dtype, at->bases[1],
                 (enum dtype)e->buffers[1].dtype, at->n_elems);
}

static struct reference second_reference(const struct experiment *e, const struct arrays_of *at,
                                         uint64_t i)
{
    double value = value_of(e, at, 1, i);

    return (struct reference){value, fabs(value)};
}

static void add_args(const struct experiment *e, const struct arrays_of *at, union kernel_args *ret)
{
    ret->add =
        (struct gpu_add_args){at->bases[0], at->bases[1], at->n_elems, e->buffers[1].dtype, 0};
}

static void add_cpu(const struct experiment *e, const struct arrays_of *at)
{
    reduce_add(at->bases[0], at->bases[1], (enum dtype)e->buffers[1].dtype, at->n_elems);
}

static struct reference add_reference(const struct experiment *e, const struct arrays_of *at,
                                      uint64_t i)
{
    double left = value_of(e, at, 0, i);
    double right = value_of(e, at, 1, i);

    return (struct reference){left + right, fabs(left) + fabs(right)};
}

static void combine_args(const struct experiment *e, const struct arrays_of *at,
                         union kernel_args *ret)
{
    ret->combine =
        (struct gpu_combine_args){at->bases[0], at->bases[1],        at->bases[2],
                                  at->n_elems,  e->buffers[0].dtype, e->buffers[2].dtype};
}

static void combine_cpu(const struct experiment *e, const struct arrays_of *at)
{
    for (uint64_t i = 0; i < at->n_elems; i++) {
        float sum = (float)value_of(e, at, 1, i) + (float)value_of(e, at, 2, i);
        size_t size = e->buffers[0].dtype == DTYPE_FP32 ? 4 : 2;

        cast_from_fp32((char *)at->bases[0] + i * size, (enum dtype)e->buffers[0].dtype, &sum, 1);
    }
}

static struct reference combine_reference(const struct experiment *e, const struct arrays_of *at,
                                          uint64_t i)
{
    double first = value_of(e, at, 1, i);
    double second = value_of(e, at, 2, i);

    return (struct reference){first + second, fabs(first) + fabs(second)};
}

static void divide_args(const struct experiment *e, const struct arrays_of *at,
                        union kernel_args *ret)
{
    ret->divide = (struct gpu_divide_args){at->bases[0], at->n_elems, e->divisor, 0};
}

static void divide_cpu(const struct experiment *e, const struct arrays_of *at)
{
    reduce_divide(at->bases[0], e->divisor, at->n_elems);
}

static struct reference divide_reference(const struct experiment *e, const struct arrays_of *at,
                                         uint64_t i)
{
    double value = value_of(e, at, 0, i) / (double)e->divisor;

    return (struct reference){value, fabs(value)};
}

/* ------------------------------------------------------------------------------------- tree */

static void tree_args(const struct experiment *e, const struct arrays_of *at,
                      union kernel_args *ret)
{
    ret->tree = (struct gpu_tree_args){.dst = at->bases[0],
                                       .sources = at->bases[1],
                                       .stride_bytes = at->stride_bytes,
                                       .n_elems = at->n_elems,
                                       .n_dims = e->n_dims,
                                       .source_dtype = e->buffers[1].dtype,
                                       .is_added = e->buffers[0].is_input};
    memcpy(ret->tree.dim_sizes, e->dim_sizes, sizeof(e->dim_sizes));
}

static void tree_cpu(const struct experiment *e, const struct arrays_of *at)
{
    const void *sources[GPU_TREE_MAX_SOURCES];
    enum dtype dtype = (enum dtype)e->buffers[1].dtype;
    struct reduce_spec spec = {.dst = at->bases[0],
                               .sources = sources,
                               .dim_sizes = e->dim_sizes,
                               .n_elems = at->n_elems,
                               .source_dtype = dtype,
                               .wire_dtype = dtype,
                               .n_dims = e->n_dims,
                               .accumulate = e->buffers[0].is_input};

    for (uint32_t k = 0; k < e->buffers[1].n_rows; k++) {
        sources[k] = (const char *)at->bases[1] + k * at->stride_bytes;
    }
    reduce_tree(&spec);
}

static struct reference tree_reference(const struct experiment *e, const struct arrays_of *at,
                                       uint64_t i)
{
    double first = e->buffers[0].is_input ? value_of(e, at, 0, i) : 0.0;
    struct reference sum = {first, fabs(first)};
    uint64_t stride = at->stride_bytes / (e->buffers[1].dtype == DTYPE_FP32 ? 4 : 2);

    for (uint32_t k = 0; k < e->buffers[1].n_rows; k++) {
        double value = value_of(e, at, 1, k * stride + i);

        sum.value += value;
        sum.scale += fabs(value);
    }
    return sum;
}

/* ------------------------------------------------------------------------------------- norm */

static void norm_args(const struct experiment *e, const struct arrays_of *at,
                      union kernel_args *ret)
{
    ret->norm =
        (struct gpu_norm_args){at->bases[0], at->bases[1], at->n_elems, e->p, e->divisor, 0};
}

/* What a device adds to what is zero at first, likewise. */
static void norm_cpu(const struct experiment *e, const struct arrays_of *at)
{
    struct gpu_norm norm;
    struct norm_sum sum;
    float quotient;

    memset(&norm, 0, sizeof(norm));
    memset(&sum, 0, sizeof(sum));
    for (uint64_t i = 0; i < at->n_elems; i++) {
        quotient = (float)value_of(e, at, 1, i) / e->divisor;
        if (isinf(e->p)) {
            uint32_t bits = fp32_bits(norm_max_abs(&quotient, 1));

            norm.max_bits = bits > norm.max_bits ? bits : norm.max_bits;
        } else {
            norm_sum_add(&sum, &quotient, 1, e->p);
        }
    }
    memcpy(norm.limbs, sum.limbs, sizeof(norm.limbs));
    norm.n_inf = sum.n_inf;
    norm.n_nan = sum.n_nan;
    memcpy(at->bases[0], &norm, sizeof(norm));
}

/* ------------------------------------------------------------------------------------ adamw */

static void adamw_args(const struct experiment *e, const struct arrays_of *at,
                       union kernel_args *ret)
{
    const struct adamw_constants c = adamw_constants_compute(&hyper, ADAMW_STEP);

    ret->adamw = (struct gpu_adamw_args){.params = at->bases[0],
                                         .exp_avg = at->bases[1],
                                         .exp_avg_sq = at->bases[2],
                                         .grads = at->bases[3],
                                         .copy = at->bases[4],
                                         .factor = at->bases[5],
                                         .n_elems = at->n_elems,
                                         .grads_divisor = e->divisor,
                                         .decay = c.decay,
                                         .beta1 = c.beta1,
                                         .one_minus_beta1 = c.one_minus_beta1,
                                         .beta2 = c.beta2,
                                         .one_minus_beta2 = c.one_minus_beta2,
                                         .step_size = c.step_size,
                                         .bias2_sqrt = c.bias2_sqrt,
                                         .epsilon = c.epsilon,
                                         .params_dtype = e->buffers[0].dtype,
                                         .copy_dtype = e->buffers[4].dtype};
}

static void adamw_cpu(const struct experiment *e, const struct arrays_of *at)
{
    const struct adamw_constants constants = adamw_constants_compute(&hyper, ADAMW_STEP);
    float factor;
    struct adamw_shard shard = {.params = at->bases[0],
                                .exp_avg = at->bases[1],
                                .exp_avg_sq = at->bases[2],
                                .grads = at->bases[3],
                                .n_elems = at->n_elems,
                                .copies = &at->bases[4],
                                .n_copies = 1,
                                .copies_dtype = (enum dtype)e->buffers[4].dtype,
                                .params_dtype = (enum dtype)e->buffers[0].dtype,
                                .grads_divisor = e->divisor};

    memcpy(&factor, at->bases[5], sizeof(factor));
    adamw_update(&constants, &shard, factor);
}

static struct reference adamw_reference(const struct experiment *e, const struct arrays_of *at,
                                        uint64_t i)
{
    double g = value_of(e, at, 3, i) / (double)e->divisor * value_of(e, at, 5, 0);
    double m = hyper.beta1 * value_of(e, at, 1, i) + (1.0 - hyper.beta1) * g;
    double v = hyper.beta2 * value_of(e, at, 2, i) + (1.0 - hyper.beta2) * g * g;
    double m_scale = hyper.beta1 * fabs(value_of(e, at, 1, i)) + (1.0 - hyper.beta1) * fabs(g);
    double rate = hyper.learning_rate / (1.0 - pow(hyper.beta1, ADAMW_STEP));
    double root = sqrt(v / (1.0 - pow(hyper.beta2, ADAMW_STEP))) + hyper.epsilon;
    double p = value_of(e, at, 0, i) * (1.0 - hyper.learning_rate * hyper.weight_decay);

    return (struct reference){p - rate * m / root, fabs(p) + rate * m_scale / root};
}

/* ------------------------------------------------------------------------------------ table */

#define CAST(text, to, from, n_bytes)                                                              \
    {                                                                                              \
        .name = text, .kernel = GPU_CAST, .args = cast_args, .cpu = cast_cpu,                      \
        .reference = second_reference, .n_buffers = 2, .moved_bytes = n_bytes,                     \
        .buffers = {{to, 1, false, true, false}, {from, 1, false, false, true}},                   \
    }
#define ADD(text, from, n_bytes)                                                                   \
    {                                                                                              \
        .name = text, .kernel = GPU_ADD, .args = add_args, .cpu = add_cpu,                         \
        .reference = add_reference, .n_buffers = 2, .moved_bytes = n_bytes,                        \
        .buffers = {{DTYPE_FP32, 1, false, true, true}, {from, 1, false, false, true}},            \
    }
#define TREE(text, from, n_sources, added, n_bytes, n, ...)                                        \
    {                                                                                              \
        .name = text, .kernel = GPU_TREE, .args = tree_args, .cpu = tree_cpu,                      \
        .reference = tree_reference, .n_buffers = 2, .moved_bytes = n_bytes, .n_dims = n,          \
        .dim_sizes = {__VA_ARGS__},                                                                \
        .buffers = {{DTYPE_FP32, 1, false, true, added}, {from, n_sources, false, false, true}},   \
    }
#define DIVIDE(text, by)                                                                           \
    {                                                                                              \
        .name = text, .kernel = GPU_DIVIDE, .args = divide_args, .cpu = divide_cpu,                \
        .reference = divide_reference, .n_buffers = 1, .moved_bytes = 8, .divisor = by,            \
        .buffers = {{DTYPE_FP32, 1, false, true, true}},                                           \
    }
#define NORM(text, power, by)                                                                      \
    {                                                                                              \
        .name = text, .kernel = GPU_NORM, .args = norm_args, .cpu = norm_cpu, .n_buffers = 2,      \
        .moved_bytes = 4, .p = power, .divisor = by,                                               \
        .is_arithmetic = (power) > 2.0 && (power) < 9.0,                                           \
        .buffers = {{DTYPE_FP32, sizeof(struct gpu_norm) / 4, true, true, false},                  \
                    {DTYPE_FP32, 1, false, false, true}},                                          \
    }
#define ADAMW(text, params, copies, by, n_bytes)                                                   \
    {                                                                                              \
        .name = text, .kernel = GPU_ADAMW, .args = adamw_args, .cpu = adamw_cpu,                   \
        .reference = adamw_reference, .is_of_gradients = true, .n_buffers = 6,                     \
        .moved_bytes = n_bytes, .divisor = by,                                                     \
        .buffers = {{params, 1, false, true, true},     {DTYPE_FP32, 1, false, true, true},        \
                    {DTYPE_FP32, 1, false, true, true}, {DTYPE_FP32, 1, false, false, true},       \
                    {copies, 1, false, true, false},    {DTYPE_FP32, 1, true, false, true}},       \
    }

const struct experiment experiments[] = {
    CAST("cast fp32 to bf16", DTYPE_BF16, DTYPE_FP32, 6),
    CAST("cast fp32 to fp16", DTYPE_FP16, DTYPE_FP32, 6),
    CAST("cast bf16 to fp32", DTYPE_FP32, DTYPE_BF16, 6),
    CAST("cast fp16 to fp32", DTYPE_FP32, DTYPE_FP16, 6),
    ADD("add fp32", DTYPE_FP32, 12),
    ADD("add bf16", DTYPE_BF16, 10),
    {
        .name = "combine fp32 and bf16",
        .kernel = GPU_COMBINE,
        .args = combine_args,
        .cpu = combine_cpu,
        .reference = combine_reference,
        .n_buffers = 3,
        .moved_bytes = 8,
        .buffers = {{DTYPE_BF16, 1, false, true, false},
                    {DTYPE_FP32, 1, false, false, true},
                    {DTYPE_BF16, 1, false, false, true}},
    },
    TREE("tree of 2 bf16", DTYPE_BF16, 2, false, 8, 1, 2),
    TREE("tree of 8 bf16", DTYPE_BF16, 8, false, 20, 1, 8),
    TREE("tree of 5 fp32, added", DTYPE_FP32, 5, true, 28, 1, 5),
    TREE("tree of 2 x 8 fp32", DTYPE_FP32, 16, false, 68, 2, 2, 8),
    TREE("tree of 2 x 3 fp16", DTYPE_FP16, 6, false, 16, 2, 2, 3),
    DIVIDE("divide by 8", 8.0f),
    DIVIDE("divide by 3", 3.0f),
    NORM("norm, p = 2, by 8", 2.0, 8.0f),
    NORM("norm, p = 2, by 3", 2.0, 3.0f),
    NORM("norm, p = 1", 1.0, 1.0f),
    NORM("norm, p infinite", INFINITY, 1.0f),
    NORM("norm, p = 3", 3.0, 1.0f),
    ADAMW("adamw fp32, copy bf16", DTYPE_FP32, DTYPE_BF16, 4.0f, 30),
    ADAMW("adamw bf16, copy fp16", DTYPE_BF16, DTYPE_FP16, 3.0f, 26),
};
const uint32_t n_experiments = sizeof(experiments) / sizeof(*experiments);
