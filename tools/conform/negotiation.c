/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter negotiation: the entry, versions, tables, describe and extensions; what comes first. */
#include <dlfcn.h>
#include <string.h>

#include "conform.h"

static hsdp_plugin_v1_fn entry_find(struct conform *conform)
{
    void *library;
    void *symbol;
    hsdp_plugin_v1_fn entry;

    conform_enter(conform, "dlopen");
    library = dlopen(conform->plugin_path, RTLD_NOW | RTLD_LOCAL);
    conform_expect(conform, library != NULL, "dlopen: %s", dlerror());
    symbol = dlsym(library, HSDP_ENTRY_SYMBOL);
    conform_expect(conform, symbol != NULL, "there is no symbol %s", HSDP_ENTRY_SYMBOL);
    memcpy(&entry, &symbol, sizeof(entry)); /* ISO C has no cast from data to function */
    return entry;
}

static void any_minor(struct conform *conform)
{
    hsdp_plugin_v1_fn entry = entry_find(conform);
    const struct hsdp_api *api = NULL;

    conform_must(conform, entry(HSDP_ABI_MAJOR, UINT32_MAX, &api, &conform->err));
    conform_expect(conform, api != NULL, "*ret_api is NULL after HSDP_OK");
}

static const struct conform_check checks[] = {
    {"any minor version of the host is accepted", "abi.h: hsdp_plugin_v1_fn", any_minor, 1, 0,
     CONFORM_UNLOADED},
};

const struct conform_chapter conform_negotiation = {
    .name = "negotiation",
    .title = "the entry, versions, tables, describe",
    .checks = checks,
    .n_checks = sizeof(checks) / sizeof(checks[0]),
};
