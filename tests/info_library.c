/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for libnccl.so.2, libcuda.so.1 and libmpi.so.40 that answer what they are asked. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NCCL: CODE is the version; LACKS leaves a function out. */
#ifdef CODE
#define FUNCTION(name)                                                                             \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 0;                                                                                  \
    }

FUNCTION(ncclGetUniqueId)
FUNCTION(ncclCommInitRankConfig)
FUNCTION(ncclCommGetAsyncError)
FUNCTION(ncclCommAbort)
FUNCTION(ncclCommFinalize)
FUNCTION(ncclCommDestroy)
FUNCTION(ncclAllGather)
FUNCTION(ncclReduceScatter)
FUNCTION(ncclAllReduce)
FUNCTION(ncclBroadcast)
FUNCTION(ncclRecv)
FUNCTION(ncclGroupStart)
FUNCTION(ncclGroupEnd)
#ifndef LACKS
FUNCTION(ncclSend)
#endif

int ncclGetVersion(int *ret_version);

int ncclGetVersion(int *ret_version)
{
    *ret_version = CODE;
    return 0;
}
#endif

/* The driver: DEVICES is how many; -1 no device, -2 it crashes, -3 it hangs, each in cuInit. */
#ifdef DEVICES
int cuDriverGetVersion(int *ret_version);
int cuInit(unsigned flags);
int cuDeviceGetCount(int *ret_count);
int cuGetErrorName(int result, const char **ret_name);

int cuDriverGetVersion(int *ret_version)
{
    *ret_version = 12040;
    return 0;
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

int cuGetErrorName(int result, const char **ret_name)
{
    *ret_name = result == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_UNKNOWN";
    return 0;
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
