/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels as devices have them. */
#include "device/gpu_adamw.h"
#include "device/gpu_arrays.h"
#include "device/gpu_norm.h"
#include "device/gpu_step.h"
#include "device/gpu_tree.h"
#include "device/gpu_values.h"

/* The same source as on the host. */
#include "device/limbs.c"
#include "device/norm_value.c"

#define KERNEL extern "C" __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
/* With registers for so many blocks at a time. */
#define KERNEL_OF(n_blocks)                                                                        \
    extern "C" __global__ void __launch_bounds__(GPU_BLOCK_THREADS, n_blocks)

static __device__ __forceinline__ struct gpu_thread thread_self(void)
{
    struct gpu_thread self = {(uint64_t)blockIdx.x * blockDim.x + threadIdx.x,
                              (uint64_t)gridDim.x * blockDim.x};

    return self;
}

static __device__ __forceinline__ struct gpu_thread warp_self(void)
{
    uint32_t n_warps = blockDim.x / WARP_LANES;
    struct gpu_thread self = {(uint64_t)blockIdx.x * n_warps + threadIdx.x / WARP_LANES,
                              (uint64_t)gridDim.x * n_warps};

    return self;
}

KERNEL hsdp_cast(const struct gpu_cast_args args)
{
    kernel_cast(&args, thread_self());
}

KERNEL hsdp_add(const struct gpu_add_args args)
{
    kernel_add(&args, thread_self());
}

KERNEL hsdp_combine(const struct gpu_combine_args args)
{
    kernel_combine(&args, thread_self());
}

KERNEL hsdp_tree(const struct gpu_tree_args args)
{
    kernel_tree(&args, thread_self());
}

KERNEL hsdp_divide(const struct gpu_divide_args args)
{
    kernel_divide(&args, thread_self());
}

KERNEL_OF(3) hsdp_norm(const struct gpu_norm_args args)
{
    __shared__ struct gpu_norm block;

    norm_begin(&block, threadIdx.x, blockDim.x);
    __syncthreads();
    if (norm_is_of_powers(&args)) {
        norm_powers(&block, &args, thread_self());
    } else {
        norm_warps(&block, &args, warp_self());
    }
    __syncthreads();
    norm_carry(&block, threadIdx.x);
    __syncthreads();
    norm_end(&block, &args, threadIdx.x, blockDim.x);
}

KERNEL hsdp_step(const struct gpu_step_args args)
{
    __shared__ struct norm_sum sum;

    if (blockIdx.x != 0) {
        return;
    }
    step_merge(&sum, &args, threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x == 0) {
        step_finish(&sum, &args);
    }
}

KERNEL hsdp_adamw(const struct gpu_adamw_args args)
{
    kernel_adamw(&args, thread_self());
}

KERNEL hsdp_values(const struct gpu_values_args args)
{
    kernel_values(&args, thread_self());
}
