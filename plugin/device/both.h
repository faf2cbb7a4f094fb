/* SPDX-License-Identifier: Apache-2.0 */
/* What code begins with that is compiled for the host, by C11, and for devices, by CUDA C++. */
#ifndef DEVICE_BOTH_H
#define DEVICE_BOTH_H

#ifdef __CUDACC__
#define BOTH_CODE   static __device__
#define BOTH_INLINE static __device__ __forceinline__
#define BOTH_UNROLL _Pragma("unroll")
#define _Static_assert static_assert
#else
#define BOTH_CODE
#define BOTH_INLINE static inline
#define BOTH_UNROLL
#endif

#endif /* DEVICE_BOTH_H */
