/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the devices as the host runs them: thread after thread, warps as a whole. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "device/fpmode.h"
#include "device/gpu_adamw.h"
#include "device/gpu_arrays.h"
#include "device/gpu_kernels.h"
#include "device/gpu_norm.h"
#include "device/gpu_step.h"
#include "device/gpu_tree.h"
#include "device/gpu_values.h"
#include "doubles/double.h"

static uint64_t bytes_of(int32_t dtype, uint64_t n_elems)
{
    return n_elems * (dtype == DTYPE_FP32 ? sizeof(float) : sizeof(uint16_t));
}

/* ------------------------------------------------------------------ what kernels will touch */

struct access_list {
    struct double_access *accesses;
    uint32_t n_accesses;
    uint32_t max_accesses;
};

static void access_append(struct access_list *list, const void *address, uint64_t n_bytes,
                          bool is_write)
{
    if (address == NULL || n_bytes == 0 || list->n_accesses == list->max_accesses) {
        return;
    }
    list->accesses[list->n_accesses++] = (struct double_access){address, n_bytes, is_write, 0};
}

static void cast_list(const struct gpu_cast_args *args, struct access_list *list)
{
    access_append(list, args->dst, bytes_of(args->dst_dtype, args->n_elems), true);
    access_append(list, args->src, bytes_of(args->src_dtype, args->n_elems), false);
}

static void add_list(const struct gpu_add_args *args, struct access_list *list)
{
    access_append(list, args->dst, bytes_of(DTYPE_FP32, args->n_elems), true);
    access_append(list, args->src, bytes_of(args->src_dtype, args->n_elems), false);
}

static void combine_list(const struct gpu_combine_args *args, struct access_list *list)
{
    access_append(list, args->dst, bytes_of(args->dst_dtype, args->n_elems), true);
    access_append(list, args->first, bytes_of(DTYPE_FP32, args->n_elems), false);
    access_append(list, args->second, bytes_of(args->second_dtype, args->n_elems), false);
}

static void tree_list(const struct gpu_tree_args *args, struct access_list *list)
{
    access_append(list, args->dst, bytes_of(DTYPE_FP32, args->n_elems), true);
    for (uint32_t source = 0; source < tree_n_sources(args); source++) {
        access_append(list, tree_source(args, source), bytes_of(args->source_dtype, args->n_elems),
                      false);
    }
}

static void divide_list(const struct gpu_divide_args *args, struct access_list *list)
{
    access_append(list, args->values, bytes_of(DTYPE_FP32, args->n_elems), true);
}

static void norm_list(const struct gpu_norm_args *args, struct access_list *list)
{
    access_append(list, args->norm, sizeof(*args->norm), true);
    access_append(list, args->values, bytes_of(DTYPE_FP32, args->n_elems), args->is_divided != 0);
}

static void step_list(const struct gpu_step_args *args, struct access_list *list)
{
    access_append(list, args->view, 2 * sizeof(float), true);
    access_append(list, args->weighed, args->n_weighed * sizeof(uint32_t), false);
    for (uint32_t rank = 0; rank < args->n_parts; rank++) {
        access_append(list, step_part(args, rank), sizeof(struct gpu_step_part), false);
    }
}

static void adamw_list(const struct gpu_adamw_args *args, struct access_list *list)
{
    uint64_t n_bytes = bytes_of(DTYPE_FP32, args->n_elems);

    access_append(list, args->params, bytes_of(args->params_dtype, args->n_elems), true);
    access_append(list, args->exp_avg, n_bytes, true);
    access_append(list, args->exp_avg_sq, n_bytes, true);
    access_append(list, args->copy, bytes_of(args->copy_dtype, args->n_elems), true);
    access_append(list, args->grads, n_bytes, false);
    access_append(list, args->factor, sizeof(float), false);
}

static uint64_t values_bytes(const struct gpu_values_args *args)
{
    return args->n_elems * (args->bits / 8);
}

static void values_list(const struct gpu_values_args *args, struct access_list *list)
{
    access_append(list, args->dst, values_bytes(args), true);
    for (uint32_t source = 0; source < args->n_sources; source++) {
        access_append(list, (const char *)args->sources + args->stride_bytes * source,
                      values_bytes(args), false);
    }
}

/* ---------------------------------------------------------- addresses of the device, and then */

static void *shadow(const void *address, uint64_t n_bytes)
{
    return address == NULL || n_bytes == 0 ? NULL : double_shadow(address, n_bytes);
}

static void cast_translate(struct gpu_cast_args *args)
{
    args->dst = shadow(args->dst, bytes_of(args->dst_dtype, args->n_elems));
    args->src = shadow(args->src, bytes_of(args->src_dtype, args->n_elems));
}

static void add_translate(struct gpu_add_args *args)
{
    args->dst = shadow(args->dst, bytes_of(DTYPE_FP32, args->n_elems));
    args->src = shadow(args->src, bytes_of(args->src_dtype, args->n_elems));
}

static void combine_translate(struct gpu_combine_args *args)
{
    args->dst = shadow(args->dst, bytes_of(args->dst_dtype, args->n_elems));
    args->first = shadow(args->first, bytes_of(DTYPE_FP32, args->n_elems));
    args->second = shadow(args->second, bytes_of(args->second_dtype, args->n_elems));
}

/* Sources are of one allocation. */
static void tree_translate(struct gpu_tree_args *args)
{
    uint64_t n_bytes = bytes_of(args->source_dtype, args->n_elems);

    args->dst = shadow(args->dst, bytes_of(DTYPE_FP32, args->n_elems));
    args->sources =
        shadow(args->sources, (tree_n_sources(args) - 1) * args->stride_bytes + n_bytes);
}

static void divide_translate(struct gpu_divide_args *args)
{
    args->values = shadow(args->values, bytes_of(DTYPE_FP32, args->n_elems));
}

static void norm_translate(struct gpu_norm_args *args)
{
    args->norm = shadow(args->norm, sizeof(*args->norm));
    args->values = shadow(args->values, bytes_of(DTYPE_FP32, args->n_elems));
}

static void step_translate(struct gpu_step_args *args)
{
    args->view = shadow(args->view, 2 * sizeof(float));
    args->weighed = shadow(args->weighed, args->n_weighed * sizeof(uint32_t));
    args->parts = shadow(args->parts,
                         (args->n_parts - 1) * args->stride_bytes + sizeof(struct gpu_step_part));
}

static void adamw_translate(struct gpu_adamw_args *args)
{
    uint64_t n_bytes = bytes_of(DTYPE_FP32, args->n_elems);

    args->params = shadow(args->params, bytes_of(args->params_dtype, args->n_elems));
    args->exp_avg = shadow(args->exp_avg, n_bytes);
    args->exp_avg_sq = shadow(args->exp_avg_sq, n_bytes);
    args->copy = shadow(args->copy, bytes_of(args->copy_dtype, args->n_elems));
    args->grads = shadow(args->grads, n_bytes);
    args->factor = shadow(args->factor, sizeof(float));
}

static void values_translate(struct gpu_values_args *args)
{
    args->dst = shadow(args->dst, values_bytes(args));
    args->sources =
        shadow(args->sources, (args->n_sources - 1) * args->stride_bytes + values_bytes(args));
}

/* -------------------------------------------------------------------------------- the grids */

/* All threads of a block. */
static void norm_block(struct gpu_norm *block, const struct gpu_norm_args *args, uint32_t n_blocks,
                       uint32_t n_threads, uint32_t index)
{
    const uint32_t n_warps = n_threads / WARP_LANES;
    struct gpu_thread thread = {(uint64_t)index * n_threads, (uint64_t)n_blocks * n_threads};
    struct gpu_thread warp = {(uint64_t)index * n_warps, (uint64_t)n_blocks * n_warps};

    for (uint32_t i = 0; norm_is_of_powers(args) && i < n_threads; i++, thread.index++) {
        norm_powers(block, args, thread);
    }
    for (uint32_t i = 0; !norm_is_of_powers(args) && i < n_warps; i++, warp.index++) {
        norm_warps(block, args, warp);
    }
}

static void norm_grid(const struct gpu_norm_args *args, uint32_t n_blocks, uint32_t n_threads)
{
    struct gpu_norm block;

    for (uint32_t i = 0; i < n_blocks; i++) {
        norm_begin(&block, 0, 1);
        norm_block(&block, args, n_blocks, n_threads, i);
        norm_carry(&block, 0);
        norm_end(&block, args, 0, 1);
    }
}

static void step_grid(const struct gpu_step_args *args, uint32_t n_blocks, uint32_t n_threads)
{
    struct norm_sum sum;

    (void)n_blocks;
    for (uint32_t thread = 0; thread < n_threads; thread++) {
        step_merge(&sum, args, thread, n_threads);
    }
    step_finish(&sum, args);
}

/* Threads that know nothing of each other. */
#define GRID(name)                                                                                 \
    static void name##_grid(const struct gpu_##name##_args *args, uint32_t n_blocks,               \
                            uint32_t n_threads)                                                    \
    {                                                                                              \
        struct gpu_thread thread = {0, (uint64_t)n_blocks * n_threads};                            \
                                                                                                   \
        for (; thread.index < thread.n_threads; thread.index++) {                                  \
            kernel_##name(args, thread);                                                           \
        }                                                                                          \
    }

GRID(cast)
GRID(add)
GRID(combine)
GRID(tree)
GRID(divide)
GRID(adamw)
GRID(values)

/* -------------------------------------------------------------------------------- the table */

#define KERNEL(NAME, name)                                                                         \
    static void name##_run(const void *args, uint32_t n_blocks, uint32_t n_threads)                \
    {                                                                                              \
        struct fp_mode mode = fp_mode_enter();                                                     \
        struct gpu_##name##_args translated;                                                       \
                                                                                                   \
        memcpy(&translated, args, sizeof(translated));                                             \
        name##_translate(&translated);                                                             \
        name##_grid(&translated, n_blocks, n_threads);                                             \
        fp_mode_leave(mode);                                                                       \
    }                                                                                              \
                                                                                                   \
    static uint32_t name##_accesses(const void *args, struct double_access *ret,                   \
                                    uint32_t max_accesses)                                         \
    {                                                                                              \
        struct access_list list = {ret, 0, max_accesses};                                          \
        struct gpu_##name##_args copy;                                                             \
                                                                                                   \
        memcpy(&copy, args, sizeof(copy));                                                         \
        name##_list(&copy, &list);                                                                 \
        return list.n_accesses;                                                                    \
    }

GPU_KERNELS(KERNEL)

#define ENTRY(NAME, name)                                                                          \
    [GPU_##NAME] = {"hsdp_" #name, sizeof(struct gpu_##name##_args), name##_run, name##_accesses},

const struct double_kernel double_kernels[] = {GPU_KERNELS(ENTRY)};
const uint32_t double_n_kernels = GPU_N_KERNELS;
