/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL as this plugin uses it: its functions, found at run time. */
#ifndef COMM_NCCL_H
#define COMM_NCCL_H

#include <stddef.h>
#include <stdint.h>

#include "device/cuda.h"
#include "hsdp/abi.h"

/*
 * Declared here, so that no NCCL is needed to build: types as its binary interface has them since
 * 2.18, numbers as nccl.h gives them. Where the header is present a test compares both.
 */
typedef int32_t nccl_result; /* ncclResult_t */
typedef struct ncclComm *nccl_comm;

struct nccl_unique_id {
    char bytes[128];
};

#define NCCL_OK             0
#define NCCL_CUDA_ERROR     1
#define NCCL_SYSTEM_ERROR   2
#define NCCL_INTERNAL_ERROR 3
#define NCCL_BAD_ARGUMENT   4
#define NCCL_BAD_USAGE      5
#define NCCL_REMOTE_ERROR   6
#define NCCL_IN_PROGRESS    7

#define NCCL_INT8     0
#define NCCL_UINT8    1
#define NCCL_INT32    2
#define NCCL_UINT32   3
#define NCCL_INT64    4
#define NCCL_UINT64   5
#define NCCL_FLOAT16  6
#define NCCL_FLOAT32  7
#define NCCL_FLOAT64  8
#define NCCL_BFLOAT16 9

#define NCCL_SUM  0
#define NCCL_PROD 1
#define NCCL_MAX  2
#define NCCL_MIN  3

#define NCCL_MIN_VERSION    21800 /* 2.18.0, as ncclGetVersion says it */
#define NCCL_UNDEFINED      INT32_MIN
#define NCCL_CONFIG_MAGIC   0xcafebeefu
#define NCCL_CONFIG_VERSION 23007u

/*
 * The configuration of a communicator, frozen: every parser from 2.18 to 2.30 accepts these 96
 * bytes under version 23007. What a running library does not know stays NCCL_UNDEFINED, or NULL.
 */
struct nccl_config {
    size_t size; /* 96 */
    uint32_t magic;
    uint32_t version;
    int32_t blocking; /* 0 = calls return before they are done */
    int32_t cga_cluster_size;
    int32_t min_ctas; /* both or neither */
    int32_t max_ctas;
    const char *net_name;
    int32_t split_share;
    int32_t traffic_class;         /* from 2.27 */
    const char *comm_name;         /* from 2.27 */
    int32_t collnet_enable;        /* from 2.27 */
    int32_t cta_policy;            /* from 2.27 */
    int32_t shrink_share;          /* from 2.27 */
    int32_t nvls_ctas;             /* from 2.27 */
    int32_t channels_per_net_peer; /* from 2.28 */
    int32_t nvlink_centric;        /* from 2.28 */
    int32_t graph_usage_mode;      /* this and the rest from 2.29 and 2.30 */
    int32_t rma_contexts;
    int32_t max_p2p_peers;
    int32_t graph_stream_ordering;
};

_Static_assert(sizeof(struct nccl_config) == 96, "what all parsers accept");

/* X(field, symbol, parameters): functions that every version has. */
#define NCCL_FUNCTIONS(X)                                                                          \
    X(get_version, ncclGetVersion, nccl_result, (int32_t * ret_version))                           \
    X(error_string, ncclGetErrorString, const char *, (nccl_result result))                        \
    X(last_error, ncclGetLastError, const char *, (nccl_comm comm))                                \
    X(unique_id, ncclGetUniqueId, nccl_result, (struct nccl_unique_id * ret_id))                   \
    X(comm_init, ncclCommInitRankConfig, nccl_result,                                              \
      (nccl_comm * ret_comm, int32_t n_ranks, struct nccl_unique_id id, int32_t rank,              \
       struct nccl_config * config))                                                               \
    X(comm_finalize, ncclCommFinalize, nccl_result, (nccl_comm comm))                              \
    X(comm_destroy, ncclCommDestroy, nccl_result, (nccl_comm comm))                                \
    X(comm_abort, ncclCommAbort, nccl_result, (nccl_comm comm))                                    \
    X(async_error, ncclCommGetAsyncError, nccl_result, (nccl_comm comm, nccl_result * ret_error))  \
    X(group_start, ncclGroupStart, nccl_result, (void))                                            \
    X(group_end, ncclGroupEnd, nccl_result, (void))                                                \
    X(all_reduce, ncclAllReduce, nccl_result,                                                      \
      (const void *send, void *recv, size_t n_elems, int32_t dtype, int32_t op, nccl_comm comm,    \
       cu_stream stream))                                                                          \
    X(all_gather, ncclAllGather, nccl_result,                                                      \
      (const void *send, void *recv, size_t n_send_elems, int32_t dtype, nccl_comm comm,           \
       cu_stream stream))                                                                          \
    X(reduce_scatter, ncclReduceScatter, nccl_result,                                              \
      (const void *send, void *recv, size_t n_recv_elems, int32_t dtype, int32_t op,               \
       nccl_comm comm, cu_stream stream))                                                          \
    X(broadcast, ncclBroadcast, nccl_result,                                                       \
      (const void *send, void *recv, size_t n_elems, int32_t dtype, int32_t root, nccl_comm comm,  \
       cu_stream stream))                                                                          \
    X(send, ncclSend, nccl_result,                                                                 \
      (const void *send, size_t n_elems, int32_t dtype, int32_t peer, nccl_comm comm,              \
       cu_stream stream))                                                                          \
    X(recv, ncclRecv, nccl_result,                                                                 \
      (void *recv, size_t n_elems, int32_t dtype, int32_t peer, nccl_comm comm, cu_stream stream))

/* Functions that newer versions have; NULL where the library has none. */
#define NCCL_NEWER_FUNCTIONS(X)                                                                    \
    X(comm_revoke, ncclCommRevoke, nccl_result, (nccl_comm comm, int32_t flags)) /* 2.28.7 */

#define NCCL_MEMBER(field, symbol, result, parameters) result(*field) parameters;

/** The functions of one NCCL. */
struct nccl {
    NCCL_FUNCTIONS(NCCL_MEMBER)
    NCCL_NEWER_FUNCTIONS(NCCL_MEMBER)
    int32_t version; /* 22809 = 2.28.9 */
    char path[256];  /* of the library that answers */
};

/**
 * Loads a library, never to be closed again: `name` is a soname or a path.
 *
 * Errors: HSDP_ERR_UNAVAILABLE naming the library and what is wrong: not found, a function that it
 * lacks, older than 2.18 (with its version).
 */
int32_t nccl_load(const char *name, struct nccl *ret, struct hsdp_error *reterr);

/** A configuration in which everything is undefined but that calls do not block. */
struct nccl_config nccl_config_make(void);

/** "2.28.9"; of NCCL_VERSION_BYTES. */
#define NCCL_VERSION_BYTES 40u
void nccl_version_text(int32_t version, char *ret_text);

#endif /* COMM_NCCL_H */
