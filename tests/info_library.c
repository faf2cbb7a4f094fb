/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for libnccl.so.2, libcuda.so.1 and libmpi.so.40 that answer what they are asked. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/nccl.h"

/* What HSDP_TEST_ANSWER says, "cuMemAlloc_v2=2", else 0. */
static int answer_of(const char *symbol)
{
    const char *given = getenv("HSDP_TEST_ANSWER");
    size_t n = strlen(symbol);

    return given != NULL && strncmp(given, symbol, n) == 0 && given[n] == '=' ? atoi(given + n + 1)
                                                                              : 0;
}

/* Every function that ours binds. To leave one out, give it another name: -DncclSend=x. */
#define ANSWERS(symbol, result, parameters)                                                        \
    result symbol parameters;                                                                      \
    result symbol parameters                                                                       \
    {                                                                                              \
        return (result)(intptr_t)answer_of(#symbol);                                               \
    }

/* NCCL: CODE is the version, NEWER what only newer ones have. */
#ifdef CODE
#define NCCL_STAND_IN(field, symbol, result, parameters) ANSWERS(symbol, result, parameters)
#define ncclGetVersion                                   ncclGetVersionInstead
NCCL_FUNCTIONS(NCCL_STAND_IN)
#ifdef NEWER
NCCL_NEWER_FUNCTIONS(NCCL_STAND_IN)
#endif
#undef ncclGetVersion

#ifndef NO_VERSION
nccl_result ncclGetVersion(int32_t *ret_version);

nccl_result ncclGetVersion(int32_t *ret_version)
{
    *ret_version = CODE;
    return CODE == 0 ? 3 : 0;
}
#endif
#endif

/*
 * The driver: DEVICES is how many; -1 no device, -2 it crashes, -3 it hangs, each in cuInit. They
 * are of architecture ARCHITECTURE; DRIVER is the version.
 */
#ifdef DEVICES
#ifndef DRIVER
#define DRIVER 13000
#endif
#ifndef ARCHITECTURE
#define ARCHITECTURE 90
#endif
#define CUDA_STAND_IN(field, symbol, parameters) ANSWERS(symbol, cu_result, parameters)
#define cuInit                                   cuInitInstead
#define cuDriverGetVersion                       cuDriverGetVersionInstead
#define cuDeviceGetCount                         cuDeviceGetCountInstead
#define cuDeviceGetAttribute                     cuDeviceGetAttributeInstead
#define cuDeviceGetUuid                          cuDeviceGetUuidInstead
#define cuGetErrorName                           cuGetErrorNameInstead
CUDA_FUNCTIONS(CUDA_STAND_IN)
#undef cuInit
#undef cuDriverGetVersion
#undef cuDeviceGetCount
#undef cuDeviceGetAttribute
#undef cuDeviceGetUuid
#undef cuGetErrorName

int cuDriverGetVersion(int *ret_version)
{
    *ret_version = DRIVER;
    return DRIVER == 0 ? 999 : 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    if (DEVICES == -2) {
        abort();
    }
    while (DEVICES == -3) {
        pause();
    }
    return DEVICES < 0 ? 100 : 0;
}

int cuDeviceGetCount(int *ret_count)
{
    *ret_count = DEVICES;
    return 0;
}

int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
    (void)device;
    *ret_value = attribute == CU_ATTRIBUTE_CAPABILITY_MAJOR   ? ARCHITECTURE / 10
                 : attribute == CU_ATTRIBUTE_CAPABILITY_MINOR ? ARCHITECTURE % 10
                                                              : 1;
    return 0;
}

/* Each process sees another one. */
int cuDeviceGetUuid(struct cu_uuid *ret_uuid, int device)
{
    pid_t self = getpid();

    (void)device;
    memset(ret_uuid, 0, sizeof(*ret_uuid));
    memcpy(ret_uuid, &self, sizeof(self));
    return 0;
}

int cuDeviceGetName(char *ret_text, int max_bytes, int device)
{
    (void)max_bytes;
    (void)device;
    strcpy(ret_text, "Some Device");
    return 0;
}

int cuGetErrorName(int result, const char **ret_name)
{
    *ret_name = result == 100 ? "CUDA_ERROR_NO_DEVICE" : NULL;
    return *ret_name == NULL;
}
#endif

#ifdef MPI
int MPI_Get_library_version(char *ret_text, int *ret_n_bytes);

int MPI_Get_library_version(char *ret_text, int *ret_n_bytes)
{
    strcpy(ret_text, "Some MPI v4.1, package: x\nmore");
    *ret_n_bytes = (int)strlen(ret_text);
    return 0;
}
#endif
