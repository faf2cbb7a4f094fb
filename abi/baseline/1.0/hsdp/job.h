/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/job.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_JOB_H
#define HSDP_JOB_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
struct hsdp_job_spec {
    size_t struct_size;
    const char *name;
    struct hsdp_settings settings;
    int32_t (*kv_put)(void *user, const char *key, const void *value, uint64_t value_bytes);
    int32_t (*kv_get)(void *user, const char *key, void *ret_value, uint64_t max_bytes, uint64_t *ret_bytes, uint32_t wait_ms);
    void *(*memory_alloc)(void *user, uint64_t n_bytes, uint64_t align_bytes, int32_t kind, void *stream);
    void (*memory_free)(void *user, void *base, uint64_t n_bytes, int32_t kind, void *stream);
    void (*log)(void *user, int32_t level, const char *text);
    void (*on_abort)(void *user, const struct hsdp_error *reason);
    void *user;
    int32_t device_type;
    int32_t device_id;
    uint32_t rank;
    uint32_t world_ranks;
    uint32_t local_rank;
    uint32_t local_ranks;
};
#define HSDP_MEMORY_DEVICE 0
#define HSDP_MEMORY_PINNED 1
#define HSDP_LOG_ERROR 0
#define HSDP_LOG_WARNING 1
#define HSDP_LOG_INFO 2
#define HSDP_LOG_DEBUG 3
struct hsdp_job_info {
    size_t struct_size;
    const char *backend;
    uint32_t rank;
    uint32_t world_ranks;
    uint32_t local_rank;
    uint32_t local_ranks;
    uint64_t n_tickets_open;
    uint64_t timeout_ms;
    uint32_t is_connected;
    uint32_t reserved;
};
struct hsdp_job_ops {
    size_t struct_size;
    int32_t (*create)(const struct hsdp_job_spec *spec, hsdp_job **ret_job, struct hsdp_error *reterr);
    int32_t (*connect)(hsdp_job *job, struct hsdp_error *reterr);
    int32_t (*close)(hsdp_job *job, struct hsdp_error *reterr);
    void (*destroy)(hsdp_job *job);
    int32_t (*abort)(hsdp_job *job, const char *reason, struct hsdp_error *reterr);
    int32_t (*status)(const hsdp_job *job, struct hsdp_error *reterr);
    int32_t (*info)(const hsdp_job *job, struct hsdp_job_info *ret_info, struct hsdp_error *reterr);
    int32_t (*setting)(const hsdp_job *job, const char *key, const char **ret_value, const char **ret_source, struct hsdp_error *reterr);
    int32_t (*setting_set)(hsdp_job *job, const char *key, const char *value, struct hsdp_error *reterr);
    int32_t (*phase_push)(hsdp_job *job, const char *phase, uint64_t timeout_ms, struct hsdp_error *reterr);
    int32_t (*phase_pop)(hsdp_job *job, struct hsdp_error *reterr);
    int32_t (*ticket_wait)(hsdp_job *job, uint64_t ticket, uint64_t wait_ms, struct hsdp_error *reterr);
    int32_t (*ticket_order)(hsdp_job *job, uint64_t ticket, void *stream, struct hsdp_error *reterr);
};
#ifdef __cplusplus
}
#endif
#define HSDP_JOB_SPEC_INIT HSDP_INIT_(hsdp_job_spec)
#define HSDP_JOB_INFO_INIT HSDP_INIT_(hsdp_job_info)
#endif
