/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a CUDA device: what each computes, and its arguments. C11 and CUDA C++. */
#ifndef DEVICE_GPU_KERNELS_H
#define DEVICE_GPU_KERNELS_H

#include <stdint.h>

#include "device/limbs.h"

/*
 * One source makes the code of the devices and, compiled for the host, that of the double in
 * tests/doubles. Each kernel takes one struct by value. It runs on a grid of any number of blocks,
 * in one dimension, of a multiple of 32 threads up to GPU_BLOCK_THREADS; what it computes does not
 * depend on either.
 *
 * Addresses are of the device. Buffers are aligned to their elements and do not overlap, unless the
 * comment says otherwise; where all of a kernel lie alike to 16 bytes of fp32 and 8 of a 16-bit
 * type, which is the fast case, accesses are as wide. Dtypes are numbers of enum dtype. Arithmetic
 * is that of the CPU's kernels, bit for bit: fp32 rounded to nearest even, no contraction,
 * denormals kept; NaN payloads excepted.
 */
#define GPU_BLOCK_THREADS 256u

#define GPU_KERNELS(X)                                                                             \
    X(CAST, cast)                                                                                  \
    X(ADD, add)                                                                                    \
    X(COMBINE, combine)                                                                            \
    X(TREE, tree)                                                                                  \
    X(DIVIDE, divide)                                                                              \
    X(NORM, norm)                                                                                  \
    X(STEP, step)                                                                                  \
    X(ADAMW, adamw)                                                                                \
    X(VALUES, values)

#define GPU_KERNEL_NUMBER(NAME, name) GPU_##NAME,
enum gpu_kernel { GPU_KERNELS(GPU_KERNEL_NUMBER) GPU_N_KERNELS };

/* Their symbols are hsdp_cast, hsdp_add, ... */

/* dst = src, rounded once if dst is narrower. */
struct gpu_cast_args {
    void *dst;
    const void *src;
    uint64_t n_elems;
    int32_t dst_dtype;
    int32_t src_dtype;
};

/* dst = dst + src, in fp32. */
struct gpu_add_args {
    float *dst;
    const void *src;
    uint64_t n_elems;
    int32_t src_dtype;
    int32_t reserved;
};

/* A rank's contribution: dst = round(first + second), what is NULL left out; both NULL: +0. */
struct gpu_combine_args {
    void *dst; /* may be `first`, if both are fp32 */
    const float *first;
    const void *second;
    uint64_t n_elems;
    int32_t dst_dtype;
    int32_t second_dtype;
};

/*
 * dst = the sum of the sources, or dst + that: source i begins stride_bytes * i behind the first.
 * The order of the additions is that of reduce_tree (device/reduce.h): adjacent pairs, one
 * dimension after another, the innermost first; partial sums are fp32. Up to GPU_TREE_MAX_SOURCES
 * sources; a stride_bytes that is a multiple of 16 is fast.
 */
#define GPU_TREE_MAX_DIMS    8
#define GPU_TREE_MAX_SOURCES 64
struct gpu_tree_args {
    float *dst;
    const void *sources;
    uint64_t stride_bytes;
    uint64_t n_elems;
    uint32_t
        dim_sizes[GPU_TREE_MAX_DIMS]; /* outermost first; their product is the sources' number */
    uint32_t n_dims;
    int32_t source_dtype;
    uint32_t is_added; /* to what dst holds; else stored */
    uint32_t reserved;
};

/* values = values / divisor, by true division. */
struct gpu_divide_args {
    float *values;
    uint64_t n_elems;
    float divisor;
    uint32_t reserved;
};

/* What kernels add up for a step: laid out as struct norm_sum (device/norm.h), then the maximum. */
struct gpu_norm {
    int64_t limbs[LIMBS]; /* any int64 each: not normalised */
    int64_t n_inf;
    int64_t n_nan;
    uint64_t max_bits; /* of the fp32 quotient with the largest absolute value; NaN is above all */
};

/*
 * Adds |value / divisor|^p to the sum, exactly; p infinite: takes the maximum. Room is for 2^31
 * blocks of all launches between two zeroings, each of less than 2^29 elements.
 */
struct gpu_norm_args {
    struct gpu_norm *norm;
    float *values; /* left as they are, unless is_divided */
    uint64_t n_elems;
    double p;
    float divisor; /* 1 = none */
    uint32_t is_divided;
};

/* One rank's part of a step: the parts of all ranks lie one after another, stride_bytes apart. */
struct gpu_step_part {
    struct gpu_norm norm;
    double weight;
};

/* view[0] = the norm, view[1] = the factor, as in shard/step.c. One block is enough. */
struct gpu_step_args {
    float *view;
    const void *parts;
    const uint32_t *weighed; /* ranks whose weights are added up, in order */
    uint64_t stride_bytes;
    uint32_t n_parts;
    uint32_t n_weighed;
    double p;
    double max_norm; /* 0 = do not clip */
    double scale;    /* gradient_scale, 1 if none was given */
    uint32_t has_weight;
    uint32_t reserved;
};

/* One run of elements of one hyper group: device/adamw.h. */
struct gpu_adamw_args {
    void *params;
    float *exp_avg;
    float *exp_avg_sq;
    const float *grads;
    void *copy;          /* gets the new parameters, rounded once more; NULL = none */
    const float *factor; /* one number, on the device */
    uint64_t n_elems;
    float grads_divisor; /* 0 = they are divided */
    float decay;         /* this and the rest: struct adamw_constants */
    float beta1;
    float one_minus_beta1;
    float beta2;
    float one_minus_beta2;
    float step_size;
    float bias2_sqrt;
    float epsilon;
    int32_t params_dtype;
    int32_t copy_dtype;
    uint32_t reserved;
};

/*
 * dst = the reduction of the sources, as values_reduce (comm/values.h) computes it: any element
 * type of the host's collectives, pairs in their order, up to GPU_TREE_MAX_SOURCES sources.
 */
struct gpu_values_args {
    void *dst;
    const void *sources;
    uint64_t stride_bytes; /* of one source to the next */
    uint64_t n_elems;
    uint32_t n_sources;
    int32_t reduce; /* HSDP_REDUCE_* */
    uint32_t code;  /* HSDP_DTYPE_* */
    uint32_t bits;
};

#endif /* DEVICE_GPU_KERNELS_H */
