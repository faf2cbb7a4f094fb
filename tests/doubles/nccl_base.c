/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's double: sentences, the thread that is inside, and what is asked without a communicator. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "doubles/nccl_double.h"

#define DOUBLE_VERSION 22809

static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[512];

static _Atomic int32_t thread_inside; /* 0 = none */
static const char *_Atomic call_inside;

void nccl_die(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fputs("double of NCCL: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

void nccl_debug(const char *format, ...)
{
    va_list arguments;

    if (getenv("HSDP_DOUBLE_DEBUG") == NULL) {
        return;
    }
    va_start(arguments, format);
    fputs("double of NCCL: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

nccl_result nccl_fail(nccl_result result, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    pthread_mutex_lock(&error_lock);
    vsnprintf(last_error, sizeof(last_error), format, arguments);
    pthread_mutex_unlock(&error_lock);
    va_end(arguments);
    nccl_debug("%s", last_error);
    return result;
}

void call_enter(const char *name)
{
    int32_t own = (int32_t)syscall(SYS_gettid);
    int32_t none = 0;

    if (!atomic_compare_exchange_strong(&thread_inside, &none, own)) {
        const char *other = atomic_load(&call_inside);

        nccl_die("thread %d calls %s while thread %d is in %s: one thread only may be inside", own,
                 name, none, other != NULL ? other : "another call");
    }
    atomic_store(&call_inside, name);
}

nccl_result call_leave(nccl_result result)
{
    atomic_store(&thread_inside, 0);
    return result;
}

nccl_result ncclGetVersion(int32_t *ret_version)
{
    int64_t version;

    if (ret_version == NULL) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "ncclGetVersion: nowhere to put the version");
    }
    *ret_version = double_fault("version", &version) ? (int32_t)version : DOUBLE_VERSION;
    return NCCL_OK;
}

const char *ncclGetErrorString(nccl_result result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress",
    };

    return result >= 0 && result < (int32_t)(sizeof(texts) / sizeof(texts[0]))
               ? texts[result]
               : "unknown result code";
}

const char *ncclGetLastError(nccl_comm comm)
{
    (void)comm; /* the real library has one text for all, too */
    return last_error;
}

nccl_result ncclGetUniqueId(struct nccl_unique_id *ret_id)
{
    if (ret_id == NULL) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "ncclGetUniqueId: nowhere to put the id");
    }
    return meeting_open(ret_id);
}

nccl_result ncclMemAlloc(void **ret_address, size_t n_bytes)
{
    cu_address address;
    cu_result result;

    if (ret_address == NULL || n_bytes == 0) {
        return nccl_fail(NCCL_BAD_ARGUMENT, "ncclMemAlloc: %zu bytes", n_bytes);
    }
    result = cuMemAlloc_v2(&address, n_bytes);
    if (result != CU_OK) {
        return nccl_fail(NCCL_CUDA_ERROR, "ncclMemAlloc: no %zu bytes (%d)", n_bytes, result);
    }
    *ret_address = (void *)(uintptr_t)address;
    return NCCL_OK;
}

nccl_result ncclMemFree(void *address)
{
    cu_result result = address != NULL ? cuMemFree_v2((cu_address)(uintptr_t)address) : CU_OK;

    return result == CU_OK ? NCCL_OK
                           : nccl_fail(NCCL_CUDA_ERROR, "ncclMemFree: %p (%d)", address, result);
}
