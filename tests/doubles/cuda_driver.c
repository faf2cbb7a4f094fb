/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA double's beginning: initialisation, devices, contexts, what is current on a thread. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doubles/cuda_double.h"

enum {
    DRIVER_VERSION = 13000,
    N_MULTIPROCESSORS = 132,
    CAPABILITY_MAJOR = 9,
    CAPABILITY_MINOR = 0,
    MAX_CURRENT = 64
};

pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_initialised;
static atomic_bool is_forked; /* the parent was initialised: here the driver cannot be used */
static int32_t n_devices;
static struct CUctx_st contexts[MAX_DEVICES];

static _Thread_local cu_context current[MAX_CURRENT]; /* contexts that were pushed */
static _Thread_local uint32_t n_current;
static _Thread_local int32_t capture_mode;

void driver_die(const char *format, ...)
{
    va_list args;

    fputs("libcuda double: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

int64_t driver_number(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    char *end;
    long long number;

    if (text == NULL) {
        return otherwise;
    }
    number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || number < 0) {
        driver_die("%s is '%s', no number", variable, text);
    }
    return number;
}

bool driver_fault_from(const char *name, uint64_t n_calls)
{
    int64_t number;

    return double_fault(name, &number) && (int64_t)n_calls >= number;
}

/* ---------------------------------------------------------------------- ways into a call */

cu_result driver_leave(cu_result result)
{
    pthread_mutex_unlock(&driver_lock);
    return result;
}

cu_result driver_enter_bare(void)
{
    if (atomic_load(&is_forked)) {
        return CU_ERROR_NOT_INITIALIZED;
    }
    pthread_mutex_lock(&driver_lock);
    return is_initialised ? CU_OK : driver_leave(CU_ERROR_NOT_INITIALIZED);
}

cu_result driver_enter(cu_context *ret_context)
{
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    *ret_context = n_current > 0 ? current[n_current - 1] : NULL;
    if (*ret_context == NULL) {
        return driver_leave(CU_ERROR_INVALID_CONTEXT);
    }
    if ((*ret_context)->n_retained == 0) {
        return driver_leave(CU_ERROR_CONTEXT_IS_DESTROYED);
    }
    return (*ret_context)->has_failed ? driver_leave(CU_ERROR_LAUNCH_FAILED) : CU_OK;
}

/* ----------------------------------------------------------------------- initialisation */

static void driver_forked(void)
{
    atomic_store(&is_forked, true);
}

static cu_result driver_init(void)
{
    if (n_devices == 0) {
        int64_t number = driver_number("HSDP_DOUBLE_DEVICES", 8);

        n_devices = (int32_t)(number < MAX_DEVICES ? number : MAX_DEVICES);
    }
    if (n_devices == 0 || double_fault("no_device", NULL)) {
        return CU_ERROR_NO_DEVICE;
    }
    if (!is_initialised) {
        pthread_atfork(NULL, NULL, driver_forked);
        races_init();
    }
    for (int32_t ordinal = 0; ordinal < n_devices; ordinal++) {
        contexts[ordinal].ordinal = ordinal;
    }
    is_initialised = true;
    return CU_OK;
}

cu_result cuInit(uint32_t flags)
{
    if (atomic_load(&is_forked)) {
        return CU_ERROR_NOT_INITIALIZED;
    }
    if (flags != 0) {
        return CU_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&driver_lock);
    return driver_leave(driver_init());
}

cu_result cuDriverGetVersion(int32_t *ret_version)
{
    int64_t version;

    if (ret_version == NULL) {
        return CU_ERROR_INVALID_VALUE;
    }
    *ret_version = double_fault("old_driver", &version) ? (int32_t)version : DRIVER_VERSION;
    return CU_OK;
}

cu_result cuGetErrorName(cu_result result, const char **ret_name)
{
    static const struct {
        cu_result result;
        const char *name;
    } names[] = {
        {CU_OK, "CUDA_SUCCESS"},
        {CU_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CU_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CU_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {CU_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CU_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {CU_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
        {CU_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CU_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {CU_ERROR_UNSUPPORTED_PTX, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
        {CU_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
        {CU_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {CU_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
        {CU_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
        {CU_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
        {CU_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    };

    if (ret_name == NULL) {
        return CU_ERROR_INVALID_VALUE;
    }
    *ret_name = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].result == result) {
            *ret_name = names[i].name;
        }
    }
    return *ret_name != NULL ? CU_OK : CU_ERROR_INVALID_VALUE;
}

/* ------------------------------------------------------------------------------- devices */

static bool device_is_there(cu_device device)
{
    return device >= 0 && device < n_devices;
}

cu_result cuDeviceGetCount(int32_t *ret_count)
{
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    if (ret_count == NULL) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    *ret_count = n_devices;
    return driver_leave(CU_OK);
}

cu_result cuDeviceGet(cu_device *ret_device, int32_t ordinal)
{
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    if (ret_device == NULL) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    if (!device_is_there(ordinal)) {
        return driver_leave(CU_ERROR_INVALID_DEVICE);
    }
    *ret_device = ordinal;
    return driver_leave(CU_OK);
}

static cu_result attribute_of(int32_t attribute, int32_t *ret_value)
{
    switch (attribute) {
    case CU_ATTRIBUTE_MULTIPROCESSORS:
        *ret_value = N_MULTIPROCESSORS;
        return CU_OK;
    case CU_ATTRIBUTE_CAPABILITY_MAJOR:
        *ret_value = CAPABILITY_MAJOR;
        return CU_OK;
    case CU_ATTRIBUTE_CAPABILITY_MINOR:
        *ret_value = CAPABILITY_MINOR;
        return CU_OK;
    default:
        return CU_ERROR_INVALID_VALUE;
    }
}

cu_result cuDeviceGetAttribute(int32_t *ret_value, int32_t attribute, cu_device device)
{
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    if (!device_is_there(device)) {
        return driver_leave(CU_ERROR_INVALID_DEVICE);
    }
    return driver_leave(ret_value != NULL ? attribute_of(attribute, ret_value)
                                          : CU_ERROR_INVALID_VALUE);
}

/* Of an ordinal, so that all processes of a machine see the same devices. */
cu_result cuDeviceGetUuid(struct cu_uuid *ret_uuid, cu_device device)
{
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    if (ret_uuid == NULL || !device_is_there(device)) {
        return driver_leave(ret_uuid == NULL ? CU_ERROR_INVALID_VALUE : CU_ERROR_INVALID_DEVICE);
    }
    memcpy(ret_uuid->bytes, "device of double", sizeof(ret_uuid->bytes));
    ret_uuid->bytes[6] = (char)(device + 1);
    return driver_leave(CU_OK);
}

/* ------------------------------------------------------------------------------ contexts */

cu_result cuDevicePrimaryCtxRetain(cu_context *ret_context, cu_device device)
{
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    if (ret_context == NULL || !device_is_there(device)) {
        return driver_leave(ret_context == NULL ? CU_ERROR_INVALID_VALUE : CU_ERROR_INVALID_DEVICE);
    }
    if (contexts[device].has_failed) {
        return driver_leave(CU_ERROR_LAUNCH_FAILED);
    }
    contexts[device].n_retained++;
    *ret_context = &contexts[device];
    return driver_leave(CU_OK);
}

/* The last one ends what was made in it, once the device has done what it was given. */
cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    cu_result result = driver_enter_bare();
    cu_context context;

    if (result != CU_OK) {
        return result;
    }
    if (!device_is_there(device)) {
        return driver_leave(CU_ERROR_INVALID_DEVICE);
    }
    context = &contexts[device];
    if (context->n_retained == 0) {
        return driver_leave(CU_ERROR_INVALID_CONTEXT);
    }
    context->n_retained--;
    if (context->n_retained == 0) {
        context_wait(context);
        stream_reset(context);
        memory_reset(context);
        context->generation++;
    }
    return driver_leave(CU_OK);
}

static bool context_is_live(cu_context context)
{
    for (int32_t ordinal = 0; ordinal < n_devices; ordinal++) {
        if (context == &contexts[ordinal]) {
            return context->n_retained > 0;
        }
    }
    return false;
}

cu_result cuCtxPushCurrent_v2(cu_context context)
{
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    if (!context_is_live(context)) {
        return driver_leave(CU_ERROR_INVALID_CONTEXT);
    }
    if (n_current == MAX_CURRENT) {
        driver_die("a thread pushes %d contexts and pops none", MAX_CURRENT);
    }
    current[n_current++] = context;
    return driver_leave(CU_OK);
}

cu_result cuCtxPopCurrent_v2(cu_context *ret_context)
{
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    if (n_current == 0) {
        return driver_leave(CU_ERROR_INVALID_CONTEXT);
    }
    n_current--;
    if (ret_context != NULL) {
        *ret_context = current[n_current];
    }
    return driver_leave(CU_OK);
}

cu_result cuCtxGetCurrent(cu_context *ret_context)
{
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    if (ret_context == NULL) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    *ret_context = n_current > 0 ? current[n_current - 1] : NULL;
    return driver_leave(CU_OK);
}

cu_result cuThreadExchangeStreamCaptureMode(int32_t *mode)
{
    int32_t former = capture_mode;
    cu_result result = driver_enter_bare();

    if (result != CU_OK) {
        return result;
    }
    if (mode == NULL || *mode < 0 || *mode > CU_CAPTURE_RELAXED) {
        return driver_leave(CU_ERROR_INVALID_VALUE);
    }
    capture_mode = *mode;
    *mode = former;
    return driver_leave(CU_OK);
}
