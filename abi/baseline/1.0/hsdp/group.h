/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/group.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_GROUP_H
#define HSDP_GROUP_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
#define HSDP_COLL_BARRIER 1
#define HSDP_COLL_ALL_REDUCE 2
#define HSDP_COLL_ALL_GATHER 3
#define HSDP_COLL_REDUCE_SCATTER 4
#define HSDP_COLL_ALL_TO_ALL 5
#define HSDP_COLL_BROADCAST 6
#define HSDP_COLL_SEND 7
#define HSDP_COLL_RECV 8
#define HSDP_REDUCE_SUM 0
#define HSDP_REDUCE_MEAN 1
#define HSDP_REDUCE_MAX 2
#define HSDP_REDUCE_MIN 3
struct hsdp_coll_spec {
    size_t struct_size;
    const struct hsdp_tensor *input;
    const struct hsdp_tensor *output;
    const uint64_t *send_elems;
    const uint64_t *recv_elems;
    uint64_t timeout_ms;
    int32_t kind;
    int32_t reduce;
    uint32_t peer;
    uint32_t reserved;
};
struct hsdp_group_spec {
    size_t struct_size;
    const char *selector;
    uint64_t timeout_ms;
};
struct hsdp_group_info {
    size_t struct_size;
    const char *name;
    uint64_t timeout_ms;
    uint64_t n_bytes_sent;
    uint64_t n_bytes_received;
    uint32_t n_ranks;
    uint32_t index;
    uint32_t is_connected;
    uint32_t reserved;
};
struct hsdp_group_ops {
    size_t struct_size;
    int32_t (*create)(hsdp_job *job, const hsdp_mesh *mesh, const struct hsdp_group_spec *spec, hsdp_group **ret_group, struct hsdp_error *reterr);
    int32_t (*connect)(hsdp_job *job, struct hsdp_error *reterr);
    int32_t (*info)(const hsdp_group *group, struct hsdp_group_info *ret_info, struct hsdp_error *reterr);
    int32_t (*members)(const hsdp_group *group, uint32_t *ret_ranks, uint64_t max_ranks, struct hsdp_error *reterr);
    int32_t (*start)(hsdp_group *group, const struct hsdp_coll_spec *specs, uint64_t spec_bytes, uint64_t n_specs, void *stream, uint64_t *ret_ticket, struct hsdp_error *reterr);
    void (*destroy)(hsdp_group *group);
};
#ifdef __cplusplus
}
#endif
#define HSDP_COLL_SPEC_INIT HSDP_INIT_(hsdp_coll_spec)
#define HSDP_GROUP_SPEC_INIT HSDP_INIT_(hsdp_group_spec)
#define HSDP_GROUP_INFO_INIT HSDP_INIT_(hsdp_group_info)
#endif
