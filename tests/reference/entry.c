/* SPDX-License-Identifier: Apache-2.0 */
/* The entry: the one exported function, and the root table. */
#include <inttypes.h>
#include <string.h>

#include "error.h"
#include "reference.h"

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr) __attribute__((visibility("default")));

static int32_t entry_extension(const char *name, const void **ret_ops, struct hsdp_error *reterr)
{
    const struct call call = {"extension", reterr};

    if (!call_has(&call, "name", name) || !call_has(&call, "ret_ops", ret_ops)) {
        return HSDP_ERR_INVALID;
    }
    if (strcmp(name, HSDP_ADAMW_EXTENSION) != 0) {
        return error_raise(&call, HSDP_ERR_UNSUPPORTED,
                           "extension: \"%.64s\" is not known; there is: %s", name,
                           HSDP_ADAMW_EXTENSION);
    }
    *ret_ops = &reference_adamw;
    return HSDP_OK;
}

static const struct hsdp_api entry_api = {
    .struct_size = sizeof(struct hsdp_api),
    .abi_major = HSDP_ABI_MAJOR,
    .abi_minor = HSDP_ABI_MINOR,
    .plugin_name = REFERENCE_NAME,
    .plugin_version = REFERENCE_VERSION,
    .mesh = &reference_mesh,
    .job = &reference_job,
    .group = &reference_group,
    .plan = &reference_plan,
    .model = &reference_model,
    .unit = &reference_unit,
    .step = &reference_step,
    .diag = &reference_diag,
    .describe = reference_describe,
    .extension = entry_extension,
};

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr)
{
    const struct call call = {HSDP_ENTRY_SYMBOL, reterr};

    if (host_major != HSDP_ABI_MAJOR) {
        return error_raise(&call, HSDP_ERR_VERSION,
                           "the plugin %s has ABI %u.%u, the host wants %" PRIu32 ".%" PRIu32,
                           REFERENCE_NAME, HSDP_ABI_MAJOR, HSDP_ABI_MINOR, host_major, host_minor);
    }
    if (!call_has(&call, "ret_api", ret_api)) {
        return HSDP_ERR_INVALID;
    }
    *ret_api = &entry_api;
    return HSDP_OK;
}
