/* SPDX-License-Identifier: Apache-2.0 */
/* hsdp/loader.h of ABI 1.0, recorded by scripts/check-abi; never to be changed. */
/* clang-format off */
#ifndef HSDP_LOADER_H
#define HSDP_LOADER_H
#include "hsdp/abi.h"
#ifdef __cplusplus
extern "C" {
#endif
struct hsdp_plugin_spec {
    size_t struct_size;
    const char *path;
    const char *strategy;
};
typedef struct hsdp_plugin hsdp_plugin;
int32_t hsdp_plugin_load(const struct hsdp_plugin_spec *spec, hsdp_plugin **ret_plugin, struct hsdp_error *reterr);
const struct hsdp_api *hsdp_plugin_api(const hsdp_plugin *plugin);
const char *hsdp_plugin_path(const hsdp_plugin *plugin);
void hsdp_plugin_unload(hsdp_plugin *plugin);
#ifdef __cplusplus
}
#endif
#define HSDP_PLUGIN_SPEC_INIT HSDP_INIT_(hsdp_plugin_spec)
#endif
