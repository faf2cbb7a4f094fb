/* SPDX-License-Identifier: Apache-2.0 */
/* Two plugins in one process, loaded as hosts load them. */
#include "plugin_pair.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"

const char *const pair_names[2] = {"the tested plugin", "the reference"};

static const struct hsdp_api *plugin_open(const char *variable)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const struct hsdp_api *api = NULL;
    const char *path = getenv(variable);
    hsdp_plugin_v1_fn entry;
    void *library;
    void *symbol;

    ck_assert_msg(path != NULL, "%s does not name a plugin", variable);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", library == NULL ? dlerror() : "");
    symbol = dlsym(library, HSDP_ENTRY_SYMBOL);
    ck_assert_ptr_nonnull(symbol);
    memcpy(&entry, &symbol, sizeof(entry));
    ck_assert_int_eq(entry(HSDP_ABI_MAJOR, HSDP_ABI_MINOR, &api, &err), HSDP_OK);
    return api;
}

void pair_load(const struct hsdp_api *ret_apis[2])
{
    ranks_environment_clear();
    ret_apis[PAIR_TESTED] = plugin_open("HSDP_TEST_PLUGIN");
    ret_apis[PAIR_REFERENCE] = plugin_open("HSDP_TEST_REFERENCE");
    ck_assert_str_eq(ret_apis[PAIR_REFERENCE]->plugin_name, "reference");
}
