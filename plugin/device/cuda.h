/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver as this plugin uses it: its functions, found at run time. */
#ifndef DEVICE_CUDA_H
#define DEVICE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "hsdp/abi.h"

/*
 * Declared here, so that no CUDA toolkit is needed to build: types as the driver's binary interface
 * has them, numbers as cuda.h gives them. Where a toolkit is present a test compares both.
 */
typedef int32_t cu_result; /* CUresult */
typedef int32_t cu_device;
typedef uint64_t cu_address; /* CUdeviceptr */
typedef struct CUctx_st *cu_context;
typedef struct CUstream_st
    *cu_stream; /* NULL = the legacy default stream, 2 = the per-thread one */
typedef struct CUevent_st *cu_event;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;

struct cu_uuid {
    char bytes[16];
};

#define CU_OK                      0
#define CU_ERROR_INVALID_VALUE     1
#define CU_ERROR_OUT_OF_MEMORY     2
#define CU_ERROR_NOT_INITIALIZED   3
#define CU_ERROR_NO_DEVICE         100
#define CU_ERROR_INVALID_DEVICE    101
#define CU_ERROR_INVALID_IMAGE     200
#define CU_ERROR_INVALID_CONTEXT   201
#define CU_ERROR_NO_BINARY_FOR_GPU 209
#define CU_ERROR_UNSUPPORTED_PTX   222
#define CU_ERROR_INVALID_HANDLE    400
#define CU_ERROR_NOT_FOUND         500
#define CU_ERROR_NOT_READY         600
#define CU_ERROR_LAUNCH_FAILED     719

#define CU_STREAM_NON_BLOCKING  1u
#define CU_EVENT_DISABLE_TIMING 2u

#define CU_ATTRIBUTE_MULTIPROCESSORS  16 /* of cuDeviceGetAttribute */
#define CU_ATTRIBUTE_CAPABILITY_MAJOR 75
#define CU_ATTRIBUTE_CAPABILITY_MINOR 76

#define CU_POINTER_MEMORY_TYPE 2 /* of cuPointerGetAttribute */
#define CU_POINTER_ORDINAL     9
#define CU_MEMORY_HOST         1u
#define CU_MEMORY_DEVICE       2u

#define CU_CAPTURE_NONE    0 /* of cuStreamIsCapturing */
#define CU_CAPTURE_RELAXED 2 /* of cuThreadExchangeStreamCaptureMode */

/* X(field, symbol, parameters): every function, in the order of the struct. */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(init, cuInit, (uint32_t flags))                                                              \
    X(driver_version, cuDriverGetVersion, (int32_t * ret_version))                                 \
    X(error_name, cuGetErrorName, (cu_result result, const char **ret_name))                       \
    X(device_count, cuDeviceGetCount, (int32_t * ret_count))                                       \
    X(device_get, cuDeviceGet, (cu_device * ret_device, int32_t ordinal))                          \
    X(device_attribute, cuDeviceGetAttribute,                                                      \
      (int32_t * ret_value, int32_t attribute, cu_device device))                                  \
    X(device_uuid, cuDeviceGetUuid, (struct cu_uuid * ret_uuid, cu_device device))                 \
    X(primary_context_retain, cuDevicePrimaryCtxRetain,                                            \
      (cu_context * ret_context, cu_device device))                                                \
    X(primary_context_release, cuDevicePrimaryCtxRelease_v2, (cu_device device))                   \
    X(context_push, cuCtxPushCurrent_v2, (cu_context context))                                     \
    X(context_pop, cuCtxPopCurrent_v2, (cu_context * ret_context))                                 \
    X(context_current, cuCtxGetCurrent, (cu_context * ret_context))                                \
    X(stream_context, cuStreamGetCtx, (cu_stream stream, cu_context * ret_context))                \
    X(memory_info, cuMemGetInfo_v2, (size_t * ret_free_bytes, size_t * ret_total_bytes))           \
    X(memory_alloc, cuMemAlloc_v2, (cu_address * ret_address, size_t n_bytes))                     \
    X(memory_free, cuMemFree_v2, (cu_address address))                                             \
    X(host_alloc, cuMemHostAlloc, (void **ret_address, size_t n_bytes, uint32_t flags))            \
    X(host_free, cuMemFreeHost, (void *address))                                                   \
    X(copy, cuMemcpyAsync, (cu_address dst, cu_address src, size_t n_bytes, cu_stream stream))     \
    X(fill, cuMemsetD8Async, (cu_address dst, uint8_t value, size_t n_bytes, cu_stream stream))    \
    X(pointer_attribute, cuPointerGetAttribute,                                                    \
      (void *ret_value, int32_t attribute, cu_address address))                                    \
    X(stream_create, cuStreamCreateWithPriority,                                                   \
      (cu_stream * ret_stream, uint32_t flags, int32_t priority))                                  \
    X(stream_destroy, cuStreamDestroy_v2, (cu_stream stream))                                      \
    X(stream_query, cuStreamQuery, (cu_stream stream))                                             \
    X(stream_wait_event, cuStreamWaitEvent, (cu_stream stream, cu_event event, uint32_t flags))    \
    X(stream_is_capturing, cuStreamIsCapturing, (cu_stream stream, int32_t * ret_status))          \
    X(capture_mode_exchange, cuThreadExchangeStreamCaptureMode, (int32_t * mode))                  \
    X(event_create, cuEventCreate, (cu_event * ret_event, uint32_t flags))                         \
    X(event_record, cuEventRecord, (cu_event event, cu_stream stream))                             \
    X(event_query, cuEventQuery, (cu_event event))                                                 \
    X(event_elapsed, cuEventElapsedTime, (float *ret_ms, cu_event start, cu_event end))            \
    X(event_destroy, cuEventDestroy_v2, (cu_event event))                                          \
    X(module_load, cuModuleLoadData, (cu_module * ret_module, const void *image))                  \
    X(module_function, cuModuleGetFunction,                                                        \
      (cu_function * ret_function, cu_module module, const char *name))                            \
    X(module_unload, cuModuleUnload, (cu_module module))                                           \
    X(launch, cuLaunchKernel,                                                                      \
      (cu_function function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x,  \
       uint32_t block_y, uint32_t block_z, uint32_t shared_bytes, cu_stream stream, void **params, \
       void **extra))

#define CUDA_MEMBER(field, symbol, parameters) cu_result(*field) parameters;

/** The functions of one driver library. */
struct cuda {
    CUDA_FUNCTIONS(CUDA_MEMBER)
    int32_t version; /* 13000 = 13.0 */
    char path[256];  /* of the library that answers */
};

/**
 * Loads a driver library, never to be closed again: `name` is a soname or a path. Calls cuInit.
 *
 * Errors: HSDP_ERR_UNAVAILABLE naming the library and what is wrong: not found, a function that it
 * lacks, no device, a driver older than the device code of this build needs.
 */
int32_t cuda_load(const char *name, struct cuda *ret, struct hsdp_error *reterr);

/** HSDP_OK for CU_OK; else HSDP_ERR_DEVICE, "cuMemcpyAsync: CUDA_ERROR_LAUNCH_FAILED (what)". */
int32_t cuda_check(const struct cuda *cuda, cu_result result, const char *call, const char *what,
                   struct hsdp_error *reterr);
/** The same sentence with another status. */
int32_t cuda_refuse(const struct cuda *cuda, int32_t status, cu_result result, const char *call,
                    const char *what, struct hsdp_error *reterr);

/** HSDP_ERR_UNAVAILABLE for a driver that serves less than what device code needs; names both. */
int32_t cuda_check_driver(const struct cuda *cuda, int32_t min_version, struct hsdp_error *reterr);

/** "12.4 (R550)": CUDA, and the driver's branch where it is known; of CUDA_VERSION_BYTES. */
#define CUDA_VERSION_BYTES 32u
void cuda_version_text(int32_t version, char *ret_text);

#endif /* DEVICE_CUDA_H */
