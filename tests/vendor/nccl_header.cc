/* SPDX-License-Identifier: Apache-2.0 */
/* plugin/comm/nccl.h beside the header of NCCL: compiling is the test. */
#include <cstddef>

#include <nccl.h>

#define _Static_assert static_assert
#include "comm/nccl.h"
#include "same.h"

#define SAME_NUMBER(OURS, THEIRS) static_assert((OURS) == (THEIRS), #OURS " is not " #THEIRS);

SAME_NUMBER(NCCL_OK, ncclSuccess)
SAME_NUMBER(NCCL_CUDA_ERROR, ncclUnhandledCudaError)
SAME_NUMBER(NCCL_SYSTEM_ERROR, ncclSystemError)
SAME_NUMBER(NCCL_INTERNAL_ERROR, ncclInternalError)
SAME_NUMBER(NCCL_BAD_ARGUMENT, ncclInvalidArgument)
SAME_NUMBER(NCCL_BAD_USAGE, ncclInvalidUsage)
SAME_NUMBER(NCCL_REMOTE_ERROR, ncclRemoteError)
SAME_NUMBER(NCCL_IN_PROGRESS, ncclInProgress)
SAME_NUMBER(NCCL_INT8, ncclInt8)
SAME_NUMBER(NCCL_UINT8, ncclUint8)
SAME_NUMBER(NCCL_INT32, ncclInt32)
SAME_NUMBER(NCCL_UINT32, ncclUint32)
SAME_NUMBER(NCCL_INT64, ncclInt64)
SAME_NUMBER(NCCL_UINT64, ncclUint64)
SAME_NUMBER(NCCL_FLOAT16, ncclFloat16)
SAME_NUMBER(NCCL_FLOAT32, ncclFloat32)
SAME_NUMBER(NCCL_FLOAT64, ncclFloat64)
SAME_NUMBER(NCCL_BFLOAT16, ncclBfloat16)
SAME_NUMBER(NCCL_SUM, ncclSum)
SAME_NUMBER(NCCL_PROD, ncclProd)
SAME_NUMBER(NCCL_MAX, ncclMax)
SAME_NUMBER(NCCL_MIN, ncclMin)
SAME_NUMBER(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT)
SAME_NUMBER(NCCL_MIN_VERSION, NCCL_VERSION(2, 18, 0))
SAME_NUMBER(NCCL_CONFIG_VERSION, (unsigned)NCCL_VERSION(2, 30, 7))

static_assert(sizeof(struct nccl_unique_id) == sizeof(ncclUniqueId), "struct nccl_unique_id");
static_assert(sizeof(nccl_comm) == sizeof(ncclComm_t), "nccl_comm");

/* Ours goes on where an older one of theirs ends. */
static_assert(sizeof(struct nccl_config) >= sizeof(ncclConfig_t), "struct nccl_config");

#define SAME_FIELD(ours, theirs)                                                                   \
    static_assert(offsetof(struct nccl_config, ours) == offsetof(ncclConfig_t, theirs), #ours);    \
    static_assert(same_value<decltype(nccl_config::ours), decltype(ncclConfig_t::theirs)>(), #ours);

SAME_FIELD(size, size)
SAME_FIELD(magic, magic)
SAME_FIELD(version, version)
SAME_FIELD(blocking, blocking)
SAME_FIELD(cga_cluster_size, cgaClusterSize)
SAME_FIELD(min_ctas, minCTAs)
SAME_FIELD(max_ctas, maxCTAs)
SAME_FIELD(net_name, netName)
SAME_FIELD(split_share, splitShare)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
SAME_FIELD(traffic_class, trafficClass)
SAME_FIELD(comm_name, commName)
SAME_FIELD(collnet_enable, collnetEnable)
SAME_FIELD(cta_policy, CTAPolicy)
SAME_FIELD(shrink_share, shrinkShare)
SAME_FIELD(nvls_ctas, nvlsCTAs)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
SAME_FIELD(channels_per_net_peer, nChannelsPerNetPeer)
SAME_FIELD(nvlink_centric, nvlinkCentricSched)
#endif

#define SAME_FUNCTION(field, symbol, result, parameters)                                           \
    static_assert(signatures<decltype(nccl::field), decltype(&symbol)>::are_same(), #symbol);

NCCL_FUNCTIONS(SAME_FUNCTION)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
NCCL_NEWER_FUNCTIONS(SAME_FUNCTION)
#endif

/* The magic stands only in the initializer. */
constexpr ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
SAME_NUMBER(NCCL_CONFIG_MAGIC, initial.magic)
