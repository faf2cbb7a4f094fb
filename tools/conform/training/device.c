/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a CUDA device, for a host whose views lie there: read and written by copies. */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_WINDOWS   4u
#define MAX_STAGED  256u
#define TEXT_BYTES  256u
#define POLL_NS     20000
#define STAGE_ALIGN 256u

/* As the driver's binary interface has them; numbers as in cuda.h. */
#define CUDA_OK        0
#define CUDA_NOT_READY 600

/* X(field, symbol, parameters): what is taken of the driver. */
#define DEVICE_FUNCTIONS(X)                                                                        \
    X(init, cuInit, (unsigned int flags))                                                          \
    X(error_name, cuGetErrorName, (int result, const char **ret_name))                             \
    X(count, cuDeviceGetCount, (int *ret_count))                                                   \
    X(get, cuDeviceGet, (int *ret_device, int ordinal))                                            \
    X(context_retain, cuDevicePrimaryCtxRetain, (void **ret_context, int device))                  \
    X(context_push, cuCtxPushCurrent_v2, (void *context))                                          \
    X(event_create, cuEventCreate, (void **ret_event, unsigned int flags))                         \
    X(event_record, cuEventRecord, (void *event, void *stream))                                    \
    X(event_query, cuEventQuery, (void *event))                                                    \
    X(alloc, cuMemAlloc_v2, (uint64_t * ret_base, size_t n_bytes))                                 \
    X(free, cuMemFree_v2, (uint64_t base))                                                         \
    X(copy, cuMemcpyAsync, (uint64_t to, uint64_t from, size_t n_bytes, void *stream))

#define DEVICE_MEMBER(field, symbol, parameters) int(*field) parameters;

/* A copy of a view. */
struct window {
    const char *address; /* on the device; NULL = none */
    char *copy;
    size_t n_bytes;
    bool is_written;
};

/* Memory of the host that a collective reads or writes, and where it is meanwhile. */
struct staged {
    char *host;
    uint64_t address;
    size_t n_bytes;
    uint32_t call; /* that it was copied for */
    bool is_output;
};

static struct {
    DEVICE_FUNCTIONS(DEVICE_MEMBER)
    struct device_use use;
    bool is_used;
    bool is_open;
    void *event;
    struct window windows[N_WINDOWS];
    uint32_t next_window;
    struct staged staged[MAX_STAGED];
    uint32_t n_staged;
    uint32_t n_calls;
    struct hsdp_coll_spec *specs;
    struct hsdp_tensor *tensors;
    struct hsdp_tensor lent; /* what device_tensor has returned */
} device;

void device_use(const struct device_use *use)
{
    device.use = *use;
    device.is_used = true;
}

void device_set_ordinal(int32_t ordinal)
{
    device.use.ordinal = ordinal;
}

bool device_is_used(void)
{
    return device.is_used;
}

void device_place(struct hsdp_job_spec *spec)
{
    if (device.is_used) {
        spec->device_type = HSDP_DEVICE_CUDA;
        spec->device_id = device.use.ordinal;
    }
}

/* -------------------------------------------------------------------------------------- driver */

static void must(int result, const char *call)
{
    const char *name = NULL;
    char text[TEXT_BYTES];

    if (result == CUDA_OK) {
        return;
    }
    device.error_name(result, &name);
    snprintf(text, sizeof(text), "the kit's own %s: %s (%d)", call, name == NULL ? "unknown" : name,
             result);
    device.use.fail(device.use.user, text);
    abort();
}

static void *memory_take(size_t n_bytes)
{
    void *memory = malloc(n_bytes + 1);

    if (memory == NULL) {
        device.use.fail(device.use.user, "the kit has no memory");
        abort();
    }
    return memory;
}

static bool library_load(char *ret_reason, uint64_t max_bytes)
{
    void *library = dlopen(device.use.library, RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;

    if (library == NULL) {
        snprintf(ret_reason, max_bytes, "%s", dlerror());
        return false;
    }
#define DEVICE_FIND(field, symbol, parameters)                                                     \
    *(void **)&device.field = dlsym(library, #symbol);                                             \
    missing = device.field == NULL ? #symbol : missing;
    DEVICE_FUNCTIONS(DEVICE_FIND)
#undef DEVICE_FIND
    if (missing != NULL) {
        snprintf(ret_reason, max_bytes, "%s has no %s", device.use.library, missing);
    }
    return missing == NULL;
}

/* Its context stays current, as it is in a program that uses the device. */
bool device_open(char *ret_reason, uint64_t max_bytes)
{
    void *context = NULL;
    int n_devices = 0;
    int handle = 0;

    if (!device.is_used || device.is_open) {
        return true;
    }
    if (!library_load(ret_reason, max_bytes)) {
        return false;
    }
    if (device.init(0) != CUDA_OK || device.count(&n_devices) != CUDA_OK ||
        device.use.ordinal >= n_devices) {
        snprintf(ret_reason, max_bytes, "there are %d devices, and each rank needs its own",
                 n_devices);
        return false;
    }
    must(device.get(&handle, device.use.ordinal), "cuDeviceGet");
    must(device.context_retain(&context, handle), "cuDevicePrimaryCtxRetain");
    must(device.context_push(context), "cuCtxPushCurrent");
    must(device.event_create(&device.event, 0), "cuEventCreate");
    device.is_open = true;
    return true;
}

/* Until the device has come to the end of the host's stream. */
static void stream_await(void)
{
    const struct timespec a_while = {0, POLL_NS};
    int result;

    must(device.event_record(device.event, NULL), "cuEventRecord");
    while ((result = device.event_query(device.event)) == CUDA_NOT_READY) {
        nanosleep(&a_while, NULL);
    }
    must(result, "cuEventQuery");
}

static void copy(const void *to, const void *from, size_t n_bytes)
{
    if (n_bytes == 0) {
        return;
    }
    must(device.copy((uintptr_t)to, (uintptr_t)from, n_bytes, NULL), "cuMemcpyAsync");
    stream_await();
}

/* ------------------------------------------------------------------------------------- windows */

static uint64_t n_elems_of(const struct hsdp_tensor *tensor)
{
    uint64_t n_elems = 1;

    for (int32_t dim = 0; dim < tensor->n_dims; dim++) {
        n_elems *= (uint64_t)tensor->shape[dim];
    }
    return n_elems;
}

static char *address_of(const struct hsdp_tensor *tensor)
{
    return (char *)tensor->base + tensor->byte_offset;
}

static size_t n_bytes_of(const struct hsdp_tensor *tensor)
{
    return n_elems_of(tensor) * (tensor->dtype_bits / 8u);
}

static void window_close(struct window *window)
{
    if (window->address != NULL && window->is_written) {
        copy(window->address, window->copy, window->n_bytes);
    }
    free(window->copy);
    memset(window, 0, sizeof(*window));
}

static struct window *window_open(const struct hsdp_tensor *view)
{
    struct window *window = &device.windows[device.next_window++ % N_WINDOWS];

    window_close(window);
    window->address = address_of(view);
    window->n_bytes = n_bytes_of(view);
    window->copy = memory_take(window->n_bytes);
    copy(window->copy, window->address, window->n_bytes);
    return window;
}

void *device_window(const struct hsdp_tensor *view, bool is_written)
{
    struct window *window = NULL;

    if (view->device_type != HSDP_DEVICE_CUDA) {
        return address_of(view);
    }
    for (uint32_t i = 0; i < N_WINDOWS && window == NULL; i++) {
        if (device.windows[i].address == address_of(view) &&
            device.windows[i].n_bytes >= n_bytes_of(view)) {
            window = &device.windows[i];
        }
    }
    if (window == NULL) {
        window = window_open(view);
    }
    window->is_written = window->is_written || is_written;
    return window->copy;
}

void device_flush(void)
{
    for (uint32_t i = 0; i < N_WINDOWS; i++) {
        window_close(&device.windows[i]);
    }
}

/* --------------------------------------------------------------------------------- collectives */

/* One address of the host is one of the device: what is in place stays in place. */
static struct staged *staged_find(const struct hsdp_tensor *tensor)
{
    for (uint32_t i = 0; i < device.n_staged; i++) {
        if (device.staged[i].host == address_of(tensor) &&
            device.staged[i].n_bytes == n_bytes_of(tensor)) {
            return &device.staged[i];
        }
    }
    return NULL;
}

static struct staged *staged_add(const struct hsdp_tensor *tensor)
{
    struct staged *staged = &device.staged[device.n_staged];

    if (device.n_staged == MAX_STAGED) {
        device.use.fail(device.use.user, "the kit has too many tensors under way");
        abort();
    }
    device.n_staged++;
    *staged = (struct staged){.host = address_of(tensor), .n_bytes = n_bytes_of(tensor)};
    must(device.alloc(&staged->address, staged->n_bytes + STAGE_ALIGN), "cuMemAlloc");
    return staged;
}

/* Not all are tensors: a kit also tries what is refused. */
static bool is_sane(const struct hsdp_tensor *tensor)
{
    if (tensor->base == NULL || tensor->n_dims < 0 || (tensor->n_dims > 0 && !tensor->shape)) {
        return false;
    }
    for (int32_t dim = 0; dim < tensor->n_dims; dim++) {
        if (tensor->shape[dim] < 0) {
            return false;
        }
    }
    return true;
}

static const struct hsdp_tensor *tensor_stage(const struct hsdp_tensor *tensor, bool is_output,
                                              struct hsdp_tensor *ret)
{
    struct staged *staged;

    if (tensor == NULL || tensor->device_type != HSDP_DEVICE_CPU) {
        return tensor;
    }
    *ret = *tensor;
    ret->device_type = HSDP_DEVICE_CUDA;
    ret->device_id = device.use.ordinal;
    if (!is_sane(tensor)) {
        return ret;
    }
    staged = staged_find(tensor);
    staged = staged == NULL ? staged_add(tensor) : staged;
    if (staged->call != device.n_calls) {
        copy((void *)(uintptr_t)staged->address, staged->host, staged->n_bytes);
    }
    staged->call = device.n_calls;
    staged->is_output = staged->is_output || is_output;
    ret->base = (void *)(uintptr_t)staged->address;
    ret->byte_offset = 0;
    return ret;
}

const struct hsdp_coll_spec *device_specs(const struct hsdp_coll_spec *specs, uint64_t spec_bytes,
                                          uint64_t n_specs)
{
    struct hsdp_coll_spec *own;

    if (!device.is_used) {
        return specs;
    }
    device.n_calls++;
    free(device.specs);
    free(device.tensors);
    device.specs = memory_take(n_specs * spec_bytes);
    device.tensors = memory_take(2 * n_specs * sizeof(*device.tensors));
    memcpy(device.specs, specs, n_specs * spec_bytes);
    for (uint64_t i = 0; i < n_specs; i++) {
        own = (struct hsdp_coll_spec *)((char *)device.specs + i * spec_bytes);
        own->input = tensor_stage(own->input, false, &device.tensors[2 * i]);
        own->output = tensor_stage(own->output, true, &device.tensors[2 * i + 1]);
    }
    return device.specs;
}

const struct hsdp_tensor *device_tensor(const struct hsdp_tensor *tensor)
{
    if (!device.is_used) {
        return tensor;
    }
    device.n_calls++;
    return tensor_stage(tensor, false, &device.lent);
}

void device_land(void)
{
    if (device.n_staged > 0) {
        stream_await(); /* behind which what was lent may be freed */
    }
    for (uint32_t i = 0; i < device.n_staged; i++) {
        const struct staged *staged = &device.staged[i];

        if (staged->is_output) {
            copy(staged->host, (void *)(uintptr_t)staged->address, staged->n_bytes);
        }
        must(device.free(staged->address), "cuMemFree");
    }
    device.n_staged = 0;
}
