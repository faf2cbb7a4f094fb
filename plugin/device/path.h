/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the kernels where their sources are compiled for instructions that not every CPU has. */
#ifndef DEVICE_PATH_H
#define DEVICE_PATH_H

/*
 * The same C makes every path: the build compiles it once as it is, which is the plain path, and
 * once more for each set of instructions with -DDEVICE_AVX2 (or -DDEVICE_AVX512), where the names
 * below get that ending. What differs is in the vectors of a path (vector.h). What a path computes
 * is the same to the last bit: nothing is contracted, reassociated or approximated. NaNs alone may
 * differ, in their payload.
 */
#define PATH_INLINE static inline __attribute__((always_inline)) /* small parts of large loops */

#if defined(DEVICE_AVX512)
#define DEVICE_PATH avx512
#elif defined(DEVICE_AVX2)
#define DEVICE_PATH avx2
#endif

#ifdef DEVICE_PATH
#define PATH_JOIN(name, path) name##_##path
#define PATH_OF(name, path)   PATH_JOIN(name, path)
#define PATH_NAME(name)       PATH_OF(name, DEVICE_PATH)

#define cast_to_fp32        PATH_NAME(cast_to_fp32)
#define cast_from_fp32      PATH_NAME(cast_from_fp32)
#define cast_convert        PATH_NAME(cast_convert)
#define cast_round          PATH_NAME(cast_round)
#define reduce_tree         PATH_NAME(reduce_tree)
#define reduce_add          PATH_NAME(reduce_add)
#define reduce_divide       PATH_NAME(reduce_divide)
#define norm_sum_add        PATH_NAME(norm_sum_add)
#define norm_sum_divide_add PATH_NAME(norm_sum_divide_add)
#define norm_max_abs        PATH_NAME(norm_max_abs)
#define norm_adder_begin    PATH_NAME(norm_adder_begin)
#define norm_adder_flush    PATH_NAME(norm_adder_flush)
#define norm_adder_end      PATH_NAME(norm_adder_end)
#define norm_block_add      PATH_NAME(norm_block_add)
#define adamw_update        PATH_NAME(adamw_update)
#define kernels_table       PATH_NAME(kernels_table)
#endif

#endif
