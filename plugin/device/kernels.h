/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of one path of the CPU, and the choice among the paths. */
#ifndef DEVICE_KERNELS_H
#define DEVICE_KERNELS_H

#include <stdint.h>

#include "device/adamw.h"
#include "device/cast.h"
#include "device/norm.h"
#include "device/reduce.h"
#include "hsdp/abi.h"

/* What the headers of the kernels declare, which also say what each one does. */
struct kernels {
    const char *path; /* "plain", "avx2", "avx512" */
    void (*to_fp32)(float *dst, const void *src, enum dtype src_dtype, size_t n_elems);
    void (*from_fp32)(void *dst, enum dtype dst_dtype, const float *src, size_t n_elems);
    void (*convert)(void *dst, enum dtype dst_dtype, const void *src, enum dtype src_dtype,
                    size_t n_elems);
    void (*round)(float *values, enum dtype wire, size_t n_elems);
    void (*tree)(const struct reduce_spec *spec);
    void (*add)(float *dst, const void *src, enum dtype src_dtype, size_t n_elems);
    void (*divide)(float *values, float divisor, size_t n_elems);
    void (*norm_add)(struct norm_sum *sum, const float *values, size_t n_elems, double p);
    void (*norm_divide_add)(struct norm_sum *sum, float *values, float divisor, size_t n_elems,
                            double p);
    float (*max_abs)(const float *values, size_t n_elems);
    void (*adamw)(const struct adamw_constants *constants, const struct adamw_shard *shard,
                  float factor);
};

/* How many paths this build has that this CPU can run: at least the plain one. */
uint32_t kernels_n_paths(void);

/* Path 0 is the plain one; the last of kernels_n_paths() is the fastest. */
const struct kernels *kernels_path(uint32_t index);

/*
 * One of the first n_paths by name; "auto" is the last of them.
 *
 * Errors: HSDP_ERR_UNAVAILABLE, naming those that there are.
 */
int32_t kernels_choose(const char *path, uint32_t n_paths, const struct kernels **ret_kernels,
                       struct hsdp_error *reterr);

#endif
