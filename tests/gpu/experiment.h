/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel on a device, beside the same on the CPU and in double precision. */
#ifndef GPU_EXPERIMENT_H
#define GPU_EXPERIMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "device/gpu.h"

enum {
    MAX_BUFFERS = 6,
};

/* What a kernel makes of elements. */
struct reference {
    double value;
    double scale; /* what rounding errors are relative to */
};

union kernel_args {
    struct gpu_cast_args cast;
    struct gpu_add_args add;
    struct gpu_combine_args combine;
    struct gpu_tree_args tree;
    struct gpu_divide_args divide;
    struct gpu_norm_args norm;
    struct gpu_adamw_args adamw;
};

/* An array: n_rows times n_elems elements of the experiment, or n_rows elements if it is fixed. */
struct buffer {
    int32_t dtype;
    uint32_t n_rows;
    bool is_fixed;
    bool is_written;
    bool is_input; /* filled; else poisoned */
};

struct arrays_of {
    void *bases[MAX_BUFFERS];
    uint64_t n_elems;
    uint64_t stride_bytes; /* between rows of the first buffer */
};

struct experiment {
    const char *name;
    enum gpu_kernel kernel;
    struct buffer
        buffers[MAX_BUFFERS]; /* the first one is what double precision is compared with */
    void (*args)(const struct experiment *e, const struct arrays_of *at, union kernel_args *ret);
    void (*cpu)(const struct experiment *e, const struct arrays_of *at);
    /* of element i, from the inputs; NULL: the experiment's own sum is compared */
    struct reference (*reference)(const struct experiment *e, const struct arrays_of *at,
                                  uint64_t i);
    uint32_t n_buffers;
    bool is_of_gradients; /* squares of other values leave the range that rounds alike */
    bool is_arithmetic;   /* which takes longer than to move the bytes */
    uint32_t moved_bytes; /* read and written, an element */
    double p;             /* of norms */
    float divisor;
    uint32_t dim_sizes[GPU_TREE_MAX_DIMS];
    uint32_t n_dims;
};

extern const struct experiment experiments[];
extern const uint32_t n_experiments;

#endif /* GPU_EXPERIMENT_H */
