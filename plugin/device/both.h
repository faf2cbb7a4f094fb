/* SPDX-License-Identifier: Apache-2.0 */
/* What code begins with that is compiled for the host, by C11, and for devices, by CUDA C++. */
#ifndef DEVICE_BOTH_H
#define DEVICE_BOTH_H

#ifdef __CUDACC__
#define BOTH_CODE   static __device__
#define BOTH_INLINE static __device__ __forceinline__
#define BOTH_COLD   static __device__ __noinline__ /* what is seldom called */
#define BOTH_UNROLL _Pragma("unroll")
#define BOTH_ROLLED _Pragma("unroll 1")
#define _Static_assert static_assert
#else
#define BOTH_CODE
#define BOTH_INLINE static inline
#define BOTH_COLD   static inline
#define BOTH_UNROLL
#define BOTH_ROLLED
#endif

#endif /* DEVICE_BOTH_H */
