/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/abi.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_ABI_H
#define HSDP_ABI_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define HSDP_ABI_MAJOR 1u
#define HSDP_ABI_MINOR 0u
#define HSDP_OK 0
#define HSDP_PENDING 1
#define HSDP_ERR_INVALID (-1)
#define HSDP_ERR_VERSION (-2)
#define HSDP_ERR_UNSUPPORTED (-3)
#define HSDP_ERR_NO_MEMORY (-4)
#define HSDP_ERR_TIMEOUT (-5)
#define HSDP_ERR_PEER_LOST (-6)
#define HSDP_ERR_MISMATCH (-7)
#define HSDP_ERR_ABORTED (-8)
#define HSDP_ERR_STATE (-9)
#define HSDP_ERR_UNAVAILABLE (-10)
#define HSDP_ERR_ADDRESS_IN_USE (-11)
#define HSDP_ERR_DEVICE (-12)
#define HSDP_ERR_FORKED (-13)
#define HSDP_ERR_BUSY (-14)
#define HSDP_ERR_NONFINITE (-15)
#define HSDP_ERR_NOT_MEMBER (-16)
#define HSDP_ERR_BUFFER_TOO_SMALL (-17)
#define HSDP_ERR_DRIFT (-18)
#define HSDP_ERR_DEFECT (-19)
#define HSDP_ERROR_MAX_RANKS 16u
struct hsdp_error {
    size_t struct_size;
    int32_t status;
    uint32_t n_missing_ranks;
    uint64_t ticket;
    uint64_t sequence;
    uint64_t waited_ms;
    uint32_t missing_ranks[HSDP_ERROR_MAX_RANKS];
    char operation[32];
    char group[64];
    char unit[64];
    char message[512];
};
#define HSDP_DEVICE_CPU 1
#define HSDP_DEVICE_CUDA 2
#define HSDP_DTYPE_INT 0
#define HSDP_DTYPE_UINT 1
#define HSDP_DTYPE_FLOAT 2
#define HSDP_DTYPE_BFLOAT 4
struct hsdp_tensor {
    void *base;
    int32_t device_type;
    int32_t device_id;
    int32_t n_dims;
    uint8_t dtype_code;
    uint8_t dtype_bits;
    uint16_t dtype_lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
};
struct hsdp_settings {
    const char *const *keys;
    const char *const *values;
    uint64_t n_settings;
};
typedef struct hsdp_mesh hsdp_mesh;
typedef struct hsdp_job hsdp_job;
typedef struct hsdp_group hsdp_group;
typedef struct hsdp_plan hsdp_plan;
typedef struct hsdp_model hsdp_model;
struct hsdp_mesh_ops;
struct hsdp_job_ops;
struct hsdp_group_ops;
struct hsdp_plan_ops;
struct hsdp_model_ops;
struct hsdp_unit_ops;
struct hsdp_step_ops;
struct hsdp_diag_ops;
struct hsdp_api {
    size_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    const char *plugin_name;
    const char *plugin_version;
    const struct hsdp_mesh_ops *mesh;
    const struct hsdp_job_ops *job;
    const struct hsdp_group_ops *group;
    const struct hsdp_plan_ops *plan;
    const struct hsdp_model_ops *model;
    const struct hsdp_unit_ops *unit;
    const struct hsdp_step_ops *step;
    const struct hsdp_diag_ops *diag;
    int32_t (*describe)(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes, struct hsdp_error *reterr);
    int32_t (*extension)(const char *name, const void **ret_ops, struct hsdp_error *reterr);
};
typedef int32_t (*hsdp_plugin_v1_fn)(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api, struct hsdp_error *reterr);
#define HSDP_ENTRY_SYMBOL "hsdp_plugin_v1"
#define HSDP_HAS(table, entry) ((table)->struct_size >= (size_t)((const char *)&(table)->entry - (const char *)(table)) + sizeof((table)->entry))
#ifdef __cplusplus
}
template <class T> static inline T hsdp_init_()
{
T value = T();
value.struct_size = sizeof(T);
return value;
}
#define HSDP_INIT_(T) hsdp_init_<struct T>()
#else
#define HSDP_INIT_(T) { .struct_size = sizeof(struct T) }
#endif
#define HSDP_ERROR_INIT HSDP_INIT_(hsdp_error)
#endif
