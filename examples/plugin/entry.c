/* SPDX-License-Identifier: Apache-2.0 */
/* The entry: the one exported function, and the root table. */
#include "skeleton.h"

/* Newer headers have longer tables and structs. First make what they add, then say so here. */
_Static_assert(HSDP_ABI_MAJOR == 1 && HSDP_ABI_MINOR == 0, "this plugin implements ABI 1.0");

/* Everything else is compiled with -fvisibility=hidden. */
#if defined(__GNUC__)
#define EXPORTED __attribute__((visibility("default")))
#else
#define EXPORTED
#endif

EXPORTED int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor,
                                const struct hsdp_api **ret_api, struct hsdp_error *reterr);

static int32_t root_extension(const char *name, const void **ret_ops, struct hsdp_error *reterr)
{
    if (name == NULL || ret_ops == NULL) {
        return skeleton_fail(reterr, "extension", HSDP_ERR_INVALID, "extension: %s is NULL",
                             name == NULL ? "name" : "ret_ops");
    }
    return skeleton_fail(reterr, "extension", HSDP_ERR_UNSUPPORTED,
                         "extension: \"%.64s\" is unknown to %s %s; it has none", name,
                         SKELETON_NAME, SKELETON_VERSION);
}

static const struct hsdp_api root = {
    .struct_size = sizeof(struct hsdp_api),
    .abi_major = HSDP_ABI_MAJOR,
    .abi_minor = HSDP_ABI_MINOR,
    .plugin_name = SKELETON_NAME,
    .plugin_version = SKELETON_VERSION,
    .mesh = &skeleton_mesh,
    .job = &skeleton_job,
    .group = &skeleton_group,
    .plan = &skeleton_plan,
    .model = &skeleton_model,
    .unit = &skeleton_unit,
    .step = &skeleton_step,
    .diag = &skeleton_diag,
    .describe = skeleton_describe,
    .extension = root_extension,
};

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr)
{
    if (host_major != HSDP_ABI_MAJOR) {
        return skeleton_fail(reterr, HSDP_ENTRY_SYMBOL, HSDP_ERR_VERSION,
                             "%s %s has ABI %u.%u, the host wants %u.%u", SKELETON_NAME,
                             SKELETON_VERSION, root.abi_major, root.abi_minor, host_major,
                             host_minor);
    }
    if (ret_api == NULL) {
        return skeleton_fail(reterr, HSDP_ENTRY_SYMBOL, HSDP_ERR_INVALID,
                             HSDP_ENTRY_SYMBOL ": ret_api is NULL");
    }
    *ret_api = &root;
    return HSDP_OK;
}
