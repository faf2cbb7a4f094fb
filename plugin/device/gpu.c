/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA device: opening and closing, contexts, events, copies, launches. */
#include "device/gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "device/gpu_image.h"

#define ELEMS_PER_THREAD 8u /* before the grid is full: two accesses of 16 bytes, of fp32 */
/* As many as a multiprocessor of every device since sm_80 keeps at a time, or nearly. */
#define BLOCKS_PER_MULTIPROCESSOR 8u

/* More urgent than a host's streams, which have 0: peers wait for what these do. */
#define UNSHARD_PRIORITY (-2)
#define REDUCE_PRIORITY  (-1)

#define GPU_KERNEL_SYMBOL(NAME, name) "hsdp_" #name,
static const char *const kernel_symbols[GPU_N_KERNELS] = {GPU_KERNELS(GPU_KERNEL_SYMBOL)};

/* ------------------------------------------------------------------------------------ contexts */

int32_t gpu_enter(const struct gpu *gpu, struct hsdp_error *reterr)
{
    cu_result result = gpu->cuda.context_push(gpu->context);

    return cuda_check(&gpu->cuda, result, "cuCtxPushCurrent", "the device's context", reterr);
}

void gpu_leave(const struct gpu *gpu)
{
    cu_context popped;

    gpu->cuda.context_pop(&popped);
}

int32_t gpu_visit(const struct gpu *gpu, int32_t *ret_mode, struct hsdp_error *reterr)
{
    int32_t status = gpu_enter(gpu, reterr);

    *ret_mode = CU_CAPTURE_RELAXED;
    if (status == HSDP_OK) {
        gpu->cuda.capture_mode_exchange(ret_mode);
    }
    return status;
}

void gpu_visit_end(const struct gpu *gpu, int32_t mode)
{
    gpu->cuda.capture_mode_exchange(&mode);
    gpu_leave(gpu);
}

/* ------------------------------------------------------------------------------------- opening */

static int32_t device_find(struct gpu *gpu, struct hsdp_error *reterr)
{
    const struct cuda *cuda = &gpu->cuda;
    int32_t n_devices = 0;
    int32_t major = 0;
    int32_t minor = 0;
    int32_t n_multiprocessors = 0;
    cu_result result = cuda->device_count(&n_devices);

    if (result == CU_OK && (gpu->ordinal < 0 || gpu->ordinal >= n_devices)) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "gpu: there is no device %" PRId32 "; this process may use %" PRId32
                         ", from 0",
                         gpu->ordinal, n_devices);
    }
    if (result == CU_OK) {
        result = cuda->device_get(&gpu->device, gpu->ordinal);
    }
    if (result == CU_OK) {
        result = cuda->device_attribute(&major, CU_ATTRIBUTE_CAPABILITY_MAJOR, gpu->device);
    }
    if (result == CU_OK) {
        result = cuda->device_attribute(&minor, CU_ATTRIBUTE_CAPABILITY_MINOR, gpu->device);
    }
    if (result == CU_OK) {
        result =
            cuda->device_attribute(&n_multiprocessors, CU_ATTRIBUTE_MULTIPROCESSORS, gpu->device);
    }
    if (result != CU_OK) {
        return cuda_refuse(cuda, HSDP_ERR_UNAVAILABLE, result, "cuDeviceGetAttribute",
                           "finding the device", reterr);
    }
    gpu->capability = major * 10 + minor;
    gpu->n_multiprocessors = n_multiprocessors > 0 ? (uint32_t)n_multiprocessors : 1u;
    return HSDP_OK;
}

static int32_t context_open(struct gpu *gpu, struct hsdp_error *reterr)
{
    cu_result result = gpu->cuda.primary_context_retain(&gpu->context, gpu->device);
    char what[64];

    if (result == CU_OK) {
        return HSDP_OK;
    }
    gpu->context = NULL;
    snprintf(what, sizeof(what), "the context of device %" PRId32, gpu->ordinal);
    return cuda_refuse(&gpu->cuda,
                       result == CU_ERROR_OUT_OF_MEMORY ? HSDP_ERR_NO_MEMORY : HSDP_ERR_UNAVAILABLE,
                       result, "cuDevicePrimaryCtxRetain", what, reterr);
}

/* What the driver says of code that it cannot run does not pass with time. */
static bool is_about_code(cu_result result)
{
    return result == CU_ERROR_INVALID_IMAGE || result == CU_ERROR_NO_BINARY_FOR_GPU ||
           result == CU_ERROR_UNSUPPORTED_PTX || result == CU_ERROR_NOT_FOUND;
}

static int32_t code_refuse(const struct gpu *gpu, cu_result result, const char *call,
                           struct hsdp_error *reterr)
{
    int32_t status = is_about_code(result) ? HSDP_ERR_UNAVAILABLE : HSDP_ERR_DEVICE;
    char what[160];

    if (!gpu_image_has_code) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "gpu: this build has no device code: there was no nvcc at configure");
    }
    snprintf(what, sizeof(what),
             "device %" PRId32 " is sm_%" PRId32 "; this build has code for %.80s", gpu->ordinal,
             gpu->capability, gpu_image_archs);
    if (result == CU_ERROR_OUT_OF_MEMORY) {
        status = HSDP_ERR_NO_MEMORY;
    }
    return cuda_refuse(&gpu->cuda, status, result, call, what, reterr);
}

static int32_t kernels_load(struct gpu *gpu, struct hsdp_error *reterr)
{
    cu_result result = gpu->cuda.module_load(&gpu->module, gpu_image);

    if (result != CU_OK) {
        gpu->module = NULL;
        return code_refuse(gpu, result, "cuModuleLoadData", reterr);
    }
    for (uint32_t i = 0; i < GPU_N_KERNELS; i++) {
        result = gpu->cuda.module_function(&gpu->kernels[i], gpu->module, kernel_symbols[i]);
        if (result != CU_OK) {
            return code_refuse(gpu, result, kernel_symbols[i], reterr);
        }
    }
    return HSDP_OK;
}

static int32_t streams_create(struct gpu *gpu, struct hsdp_error *reterr)
{
    cu_result result =
        gpu->cuda.stream_create(&gpu->unshard_stream, CU_STREAM_NON_BLOCKING, UNSHARD_PRIORITY);

    if (result == CU_OK) {
        result =
            gpu->cuda.stream_create(&gpu->reduce_stream, CU_STREAM_NON_BLOCKING, REDUCE_PRIORITY);
    }
    return cuda_check(&gpu->cuda, result, "cuStreamCreateWithPriority", "streams of the job",
                      reterr);
}

int32_t gpu_open(const char *library, int32_t ordinal, const struct gpu_allocator *allocator,
                 struct gpu *ret, struct hsdp_error *reterr)
{
    int32_t mode = 0;
    int32_t status;

    memset(ret, 0, sizeof(*ret));
    ret->ordinal = ordinal;
    if (allocator != NULL) {
        ret->allocator = *allocator;
    }
    status = cuda_load(library, &ret->cuda, reterr);
    if (status == HSDP_OK) {
        status = device_find(ret, reterr);
    }
    if (status == HSDP_OK) {
        status = context_open(ret, reterr);
    }
    if (status == HSDP_OK) {
        status = gpu_visit(ret, &mode, reterr);
    }
    if (status == HSDP_OK) {
        status = kernels_load(ret, reterr);
        if (status == HSDP_OK) {
            status = streams_create(ret, reterr);
        }
        gpu_visit_end(ret, mode);
    }
    if (status != HSDP_OK) {
        gpu_close(ret);
    }
    return status;
}

void gpu_close(struct gpu *gpu)
{
    int32_t mode;

    if (gpu->context != NULL && gpu_is_idle_soon(gpu) && gpu_visit(gpu, &mode, NULL) == HSDP_OK) {
        if (gpu->unshard_stream != NULL) {
            gpu->cuda.stream_destroy(gpu->unshard_stream);
        }
        if (gpu->reduce_stream != NULL) {
            gpu->cuda.stream_destroy(gpu->reduce_stream);
        }
        if (gpu->module != NULL) {
            gpu->cuda.module_unload(gpu->module);
        }
        gpu_visit_end(gpu, mode);
        gpu->cuda.primary_context_release(gpu->device);
    }
    memset(gpu, 0, sizeof(*gpu));
}

/* -------------------------------------------------------------------------------------- events */

int32_t gpu_event_create(struct gpu *gpu, cu_event *ret, struct hsdp_error *reterr)
{
    int32_t mode;
    int32_t status = gpu_visit(gpu, &mode, reterr);
    cu_result result;

    if (status == HSDP_OK) {
        result = gpu->cuda.event_create(ret, CU_EVENT_DISABLE_TIMING);
        gpu_visit_end(gpu, mode);
        status = cuda_check(&gpu->cuda, result, "cuEventCreate", "an event of the job", reterr);
    }
    return status;
}

void gpu_event_destroy(struct gpu *gpu, cu_event event)
{
    int32_t mode;

    if (event != NULL && gpu_visit(gpu, &mode, NULL) == HSDP_OK) {
        gpu->cuda.event_destroy(event);
        gpu_visit_end(gpu, mode);
    }
}

int32_t gpu_event_record(struct gpu *gpu, cu_event event, cu_stream stream,
                         struct hsdp_error *reterr)
{
    int32_t status = gpu_enter(gpu, reterr);
    cu_result result;

    if (status == HSDP_OK) {
        result = gpu->cuda.event_record(event, stream);
        gpu_leave(gpu);
        status = cuda_check(&gpu->cuda, result, "cuEventRecord", "an event of the job", reterr);
    }
    return status;
}

int32_t gpu_event_query(struct gpu *gpu, cu_event event, struct hsdp_error *reterr)
{
    int32_t mode;
    int32_t status = gpu_visit(gpu, &mode, reterr);
    cu_result result;

    if (status == HSDP_OK) {
        result = gpu->cuda.event_query(event);
        gpu_visit_end(gpu, mode);
        status = result == CU_ERROR_NOT_READY
                     ? HSDP_PENDING
                     : cuda_check(&gpu->cuda, result, "cuEventQuery", "work of the job", reterr);
    }
    return status;
}

int32_t gpu_stream_wait(struct gpu *gpu, cu_stream stream, cu_event event,
                        struct hsdp_error *reterr)
{
    int32_t status = gpu_enter(gpu, reterr);
    cu_result result;

    if (status == HSDP_OK) {
        result = gpu->cuda.stream_wait_event(stream, event, 0);
        gpu_leave(gpu);
        status = cuda_check(&gpu->cuda, result, "cuStreamWaitEvent", "an event of the job", reterr);
    }
    return status;
}

int32_t gpu_is_capturing(struct gpu *gpu, cu_stream stream, bool *ret_is, struct hsdp_error *reterr)
{
    int32_t status = gpu_enter(gpu, reterr);
    int32_t capture = CU_CAPTURE_NONE;
    cu_result result;

    if (status == HSDP_OK) {
        result = gpu->cuda.stream_is_capturing(stream, &capture);
        gpu_leave(gpu);
        status =
            cuda_check(&gpu->cuda, result, "cuStreamIsCapturing", "a stream of the host", reterr);
    }
    if (status == HSDP_OK) {
        *ret_is = capture != CU_CAPTURE_NONE;
    }
    return status;
}

/* ---------------------------------------------------------------------------------------- work */

int32_t gpu_copy(struct gpu *gpu, void *dst, const void *src, uint64_t n_bytes, cu_stream stream,
                 struct hsdp_error *reterr)
{
    int32_t status = n_bytes == 0 ? HSDP_OK : gpu_enter(gpu, reterr);
    char what[48];
    cu_result result;

    if (status == HSDP_OK && n_bytes > 0) {
        result =
            gpu->cuda.copy((cu_address)(uintptr_t)dst, (cu_address)(uintptr_t)src, n_bytes, stream);
        gpu_leave(gpu);
        if (result != CU_OK) {
            snprintf(what, sizeof(what), "%" PRIu64 " bytes", n_bytes);
            status = cuda_check(&gpu->cuda, result, "cuMemcpyAsync", what, reterr);
        }
    }
    return status;
}

int32_t gpu_fill(struct gpu *gpu, void *dst, uint8_t value, uint64_t n_bytes, cu_stream stream,
                 struct hsdp_error *reterr)
{
    int32_t status = n_bytes == 0 ? HSDP_OK : gpu_enter(gpu, reterr);
    char what[48];
    cu_result result;

    if (status == HSDP_OK && n_bytes > 0) {
        result = gpu->cuda.fill((cu_address)(uintptr_t)dst, value, n_bytes, stream);
        gpu_leave(gpu);
        if (result != CU_OK) {
            snprintf(what, sizeof(what), "%" PRIu64 " bytes", n_bytes);
            status = cuda_check(&gpu->cuda, result, "cuMemsetD8Async", what, reterr);
        }
    }
    return status;
}

uint32_t gpu_grid(const struct gpu *gpu, uint64_t n_elems)
{
    uint64_t wanted = n_elems / (GPU_BLOCK_THREADS * ELEMS_PER_THREAD) + 1u;
    uint64_t full = (uint64_t)gpu->n_multiprocessors * BLOCKS_PER_MULTIPROCESSOR;

    return (uint32_t)(wanted < full ? wanted : full);
}

int32_t gpu_launch(struct gpu *gpu, enum gpu_kernel kernel, const void *args, uint64_t n_elems,
                   cu_stream stream, struct hsdp_error *reterr)
{
    void *params[] = {(void *)(uintptr_t)args}; /* only read, though not declared so */
    int32_t status = n_elems == 0 ? HSDP_OK : gpu_enter(gpu, reterr);
    cu_result result;

    if (status == HSDP_OK && n_elems > 0) {
        result = gpu->cuda.launch(gpu->kernels[kernel], gpu_grid(gpu, n_elems), 1, 1,
                                  GPU_BLOCK_THREADS, 1, 1, 0, stream, params, NULL);
        gpu_leave(gpu);
        status = cuda_check(&gpu->cuda, result, "cuLaunchKernel", kernel_symbols[kernel], reterr);
    }
    return status;
}
