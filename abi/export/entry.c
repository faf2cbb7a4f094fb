/* SPDX-License-Identifier: Apache-2.0 */
/* The entry: the one exported symbol, the root table, and the optional tables by name. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "call.h"
#include "tables.h"

#define PLUGIN_NAME "libhsdp"

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr) __attribute__((visibility("default")));

const struct extension export_extensions[EXTENSION_COUNT] = {
    {HSDP_ADAMW_EXTENSION, &export_adamw},
};

const struct hsdp_api export_api = {
    .struct_size = sizeof(struct hsdp_api),
    .abi_major = HSDP_ABI_MAJOR,
    .abi_minor = HSDP_ABI_MINOR,
    .plugin_name = PLUGIN_NAME,
    .plugin_version = PACKAGE_VERSION,
    .mesh = &export_mesh,
    .job = &export_job,
    .group = &export_group,
    .plan = &export_plan,
    .model = &export_model,
    .unit = &export_unit,
    .step = &export_step,
    .diag = &export_diag,
    .describe = export_describe,
    .extension = export_extension,
};

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr)
{
    struct call call;

    call_begin(&call, HSDP_ENTRY_SYMBOL, reterr);
    if (host_major != HSDP_ABI_MAJOR) {
        call.status = error_set(
            &call.err, HSDP_ERR_VERSION, "%s %s has ABI %u.%u, the host wants %" PRIu32 ".%" PRIu32,
            PLUGIN_NAME, PACKAGE_VERSION, HSDP_ABI_MAJOR, HSDP_ABI_MINOR, host_major, host_minor);
    }
    call_needs(&call, "ret_api", ret_api);
    if (call_is_ok(&call)) {
        *ret_api = &export_api;
    }
    return call_end(&call);
}

static int32_t extension_refuse(const char *name, struct hsdp_error *reterr)
{
    struct text known = TEXT_INIT;
    int32_t status;

    for (int i = 0; i < EXTENSION_COUNT; i++) {
        text_add(&known, "%s%s", i == 0 ? "" : ", ", export_extensions[i].name);
    }
    status = error_set(reterr, HSDP_ERR_UNSUPPORTED,
                       "extension: \"%.64s\" is unknown to %s %s; known: %s", name, PLUGIN_NAME,
                       PACKAGE_VERSION, known.is_failed ? "(no memory)" : known.chars);
    text_fini(&known);
    return status;
}

static const void *extension_find(const char *name)
{
    for (int i = 0; i < EXTENSION_COUNT; i++) {
        if (strcmp(export_extensions[i].name, name) == 0) {
            return export_extensions[i].ops;
        }
    }
    return NULL;
}

int32_t export_extension(const char *name, const void **ret_ops, struct hsdp_error *reterr)
{
    struct call call;
    const void *ops = NULL;

    call_begin(&call, "extension", reterr);
    call_needs(&call, "name", name);
    call_needs(&call, "ret_ops", ret_ops);
    if (call_is_ok(&call)) {
        ops = extension_find(name);
    }
    if (call_is_ok(&call) && ops == NULL) {
        call.status = extension_refuse(name, &call.err);
    }
    if (call_is_ok(&call)) {
        *ret_ops = ops;
    }
    return call_end(&call);
}
