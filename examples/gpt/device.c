/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA device on which the plugin keeps the model: its driver, found at run time. */
#include "device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_ALLOCATIONS 4u
#define CLOSE_MS        1000 /* for what is still on the stream */

/* As the driver's binary interface has them; numbers as in cuda.h. */
#define CUDA_OK                   0
#define CUDA_NOT_READY            600
#define CUDA_STREAM_NON_BLOCKING  1u
#define CUDA_EVENT_DISABLE_TIMING 2u

/* X(field, symbol, parameters): what is taken of the driver. */
#define DEVICE_FUNCTIONS(X)                                                                        \
    X(init, cuInit, (unsigned int flags))                                                          \
    X(error_name, cuGetErrorName, (int result, const char **ret_name))                             \
    X(count, cuDeviceGetCount, (int *ret_count))                                                   \
    X(get, cuDeviceGet, (int *ret_device, int ordinal))                                            \
    X(context_retain, cuDevicePrimaryCtxRetain, (void **ret_context, int device))                  \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                 \
    X(context_push, cuCtxPushCurrent_v2, (void *context))                                          \
    X(context_pop, cuCtxPopCurrent_v2, (void **ret_context))                                       \
    X(stream_create, cuStreamCreateWithPriority,                                                   \
      (void **ret_stream, unsigned int flags, int priority))                                       \
    X(stream_destroy, cuStreamDestroy_v2, (void *stream))                                          \
    X(event_create, cuEventCreate, (void **ret_event, unsigned int flags))                         \
    X(event_destroy, cuEventDestroy_v2, (void *event))                                             \
    X(event_record, cuEventRecord, (void *event, void *stream))                                    \
    X(event_query, cuEventQuery, (void *event))                                                    \
    X(host_alloc, cuMemHostAlloc, (void **ret_base, size_t n_bytes, unsigned int flags))           \
    X(host_free, cuMemFreeHost, (void *base))                                                      \
    X(alloc, cuMemAlloc_v2, (uint64_t * ret_base, size_t n_bytes))                                 \
    X(free, cuMemFree_v2, (uint64_t base))                                                         \
    X(copy, cuMemcpyAsync, (uint64_t to, uint64_t from, size_t n_bytes, void *stream))

#define DEVICE_MEMBER(field, symbol, parameters) int(*field) parameters;

struct device {
    DEVICE_FUNCTIONS(DEVICE_MEMBER)
    void *context; /* the device's primary one: the plugin's, too */
    void *stream;
    void *event;
    void *host_bases[MAX_ALLOCATIONS];
    uint64_t bases[MAX_ALLOCATIONS];
    uint32_t n_host_bases, n_bases;
    int handle; /* of the driver */
    int32_t ordinal;
};

static int library_load(struct device *device, const char *name, struct fault *ret_fault)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL); /* never closed: it has threads */
    const char *missing = NULL;

    if (library == NULL) {
        return fault_set(ret_fault, FAULT_PLACE, "device cuda needs the driver %s: %s", name,
                         dlerror());
    }
#define DEVICE_FIND(field, symbol, parameters)                                                     \
    *(void **)&device->field = dlsym(library, #symbol);                                            \
    missing = device->field == NULL ? #symbol : missing;
    DEVICE_FUNCTIONS(DEVICE_FIND)
#undef DEVICE_FIND
    return missing == NULL
               ? 0
               : fault_set(ret_fault, FAULT_PLACE, "the driver %s has no %s", name, missing);
}

static int check(const struct device *device, int result, const char *call, struct fault *ret_fault)
{
    const char *name = NULL;

    if (result == CUDA_OK) {
        return 0;
    }
    device->error_name(result, &name);
    return fault_set(ret_fault, FAULT_RUN, "%s: %s (%d)", call, name == NULL ? "unknown" : name,
                     result);
}

/* Picks one of the devices that this process sees. */
static int device_pick(struct device *device, uint32_t ordinal, struct fault *ret_fault)
{
    int n_devices = 0;
    int status = check(device, device->init(0), "cuInit", ret_fault);

    if (status == 0) {
        status = check(device, device->count(&n_devices), "cuDeviceGetCount", ret_fault);
    }
    if (status == 0 && n_devices == 0) {
        status = fault_set(ret_fault, FAULT_PLACE, "the driver shows this process no device");
    }
    if (status != 0) {
        return FAULT_PLACE;
    }
    device->ordinal = (int32_t)(ordinal % (uint32_t)n_devices);
    return check(device, device->get(&device->handle, device->ordinal), "cuDeviceGet", ret_fault);
}

/* Everything is done with the device's context current, and the thread's own is put back. */
static int context_enter(const struct device *device, struct fault *ret_fault)
{
    return check(device, device->context_push(device->context), "cuCtxPushCurrent", ret_fault);
}

static void context_leave(const struct device *device)
{
    void *own;

    device->context_pop(&own);
}

static int stream_make(struct device *device, struct fault *ret_fault)
{
    int status = context_enter(device, ret_fault);

    if (status != 0) {
        return status;
    }
    status = check(device, device->stream_create(&device->stream, CUDA_STREAM_NON_BLOCKING, 0),
                   "cuStreamCreateWithPriority", ret_fault);
    if (status == 0) {
        status = check(device, device->event_create(&device->event, CUDA_EVENT_DISABLE_TIMING),
                       "cuEventCreate", ret_fault);
    }
    context_leave(device);
    return status;
}

int device_open(const char *library, uint32_t ordinal, struct device **ret_device,
                struct fault *ret_fault)
{
    struct device *device = calloc(1, sizeof(*device));
    int status;

    if (device == NULL) {
        return fault_set(ret_fault, FAULT_RUN, "no memory for a device");
    }
    status = library_load(device, library, ret_fault);
    if (status == 0) {
        status = device_pick(device, ordinal, ret_fault);
    }
    if (status == 0) {
        status = check(device, device->context_retain(&device->context, device->handle),
                       "cuDevicePrimaryCtxRetain", ret_fault);
    }
    if (status == 0) {
        status = stream_make(device, ret_fault);
    }
    if (status != 0) {
        device_close(device);
        return status;
    }
    *ret_device = device;
    return 0;
}

/* Memory that is given back is waited for, without end where a peer's device never comes. */
static int is_idle_soon(struct device *device)
{
    const struct timespec pause = {0, 1000000};
    struct fault fault;
    int is_done = 0;

    for (int i = 0; !is_done && i < CLOSE_MS; i++) {
        if ((i == 0 && device_mark(device, &fault) != 0) ||
            device_is_done(device, &is_done, &fault) != 0) {
            return 0;
        }
        if (!is_done) {
            nanosleep(&pause, NULL);
        }
    }
    return is_done;
}

void device_close(struct device *device)
{
    struct fault fault;

    if (device == NULL) {
        return;
    }
    if (device->stream != NULL && device->event != NULL && !is_idle_soon(device)) {
        return; /* the process ends, and with it what it has */
    }
    if (device->context != NULL && context_enter(device, &fault) == 0) {
        for (uint32_t i = 0; i < device->n_host_bases; i++) {
            device->host_free(device->host_bases[i]);
        }
        for (uint32_t i = 0; i < device->n_bases; i++) {
            device->free(device->bases[i]);
        }
        if (device->event != NULL) {
            device->event_destroy(device->event);
        }
        if (device->stream != NULL) {
            device->stream_destroy(device->stream);
        }
        context_leave(device);
        device->context_release(device->handle);
    }
    free(device);
}

int32_t device_ordinal(const struct device *device)
{
    return device->ordinal;
}

void *device_stream(const struct device *device)
{
    return device->stream;
}

int device_host_alloc(struct device *device, size_t n_bytes, void **ret_base,
                      struct fault *ret_fault)
{
    int status = context_enter(device, ret_fault);

    if (status != 0) {
        return status;
    }
    status = check(device, device->host_alloc(ret_base, n_bytes, 0), "cuMemHostAlloc", ret_fault);
    if (status == 0) {
        device->host_bases[device->n_host_bases++] = *ret_base;
    }
    context_leave(device);
    return status;
}

int device_alloc(struct device *device, size_t n_bytes, void **ret_base, struct fault *ret_fault)
{
    uint64_t base = 0;
    int status = context_enter(device, ret_fault);

    if (status != 0) {
        return status;
    }
    status = check(device, device->alloc(&base, n_bytes), "cuMemAlloc", ret_fault);
    if (status == 0) {
        device->bases[device->n_bases++] = base;
        *ret_base = (void *)(uintptr_t)base;
    }
    context_leave(device);
    return status;
}

int device_copy(struct device *device, void *to, const void *from, size_t n_bytes,
                struct fault *ret_fault)
{
    int status = context_enter(device, ret_fault);

    if (status != 0) {
        return status;
    }
    status = check(device, device->copy((uintptr_t)to, (uintptr_t)from, n_bytes, device->stream),
                   "cuMemcpyAsync", ret_fault);
    context_leave(device);
    return status;
}

int device_mark(struct device *device, struct fault *ret_fault)
{
    int status = context_enter(device, ret_fault);

    if (status != 0) {
        return status;
    }
    status = check(device, device->event_record(device->event, device->stream), "cuEventRecord",
                   ret_fault);
    context_leave(device);
    return status;
}

int device_is_done(struct device *device, int *ret_is_done, struct fault *ret_fault)
{
    int result;
    int status = context_enter(device, ret_fault);

    if (status != 0) {
        return status;
    }
    result = device->event_query(device->event);
    context_leave(device);
    *ret_is_done = result == CUDA_OK;
    return result == CUDA_NOT_READY ? 0 : check(device, result, "cuEventQuery", ret_fault);
}
