/* SPDX-License-Identifier: Apache-2.0 */
/* A host that has copied the loader in; check_loader compiles it and runs it in places. */
#include <stdio.h>

#include "hsdp/loader.h"

int main(void)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_plugin *plugin = NULL;

    spec.strategy = "hsdp";
    if (hsdp_plugin_load(&spec, &plugin, &err) != HSDP_OK) {
        puts(err.message);
        return 1;
    }
    printf("%s from %s\n", hsdp_plugin_api(plugin)->plugin_name, hsdp_plugin_path(plugin));
    hsdp_plugin_unload(plugin);
    return 0;
}
