/* SPDX-License-Identifier: Apache-2.0 */
/* What checks that load the plugin by themselves look at: the plugin, and what the process holds.
 */
#include "process.h"

#include <dirent.h>

hsdp_plugin *process_load(struct conform *conform, const char *path)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    hsdp_plugin *plugin = NULL;

    spec.path = path;
    conform_must(conform, hsdp_plugin_load(&spec, &plugin, &conform->err));
    return plugin;
}

uint32_t process_count_entries(struct conform *conform, const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    uint32_t n = 0;

    if (dir == NULL) {
        conform_skip(conform, "%s cannot be read", folder);
    }
    while ((entry = readdir(dir)) != NULL) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}
