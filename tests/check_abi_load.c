/* SPDX-License-Identifier: Apache-2.0 */
/* Loading, running and unloading the plugin itself: nothing of it stays behind. */
#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "abi_host.h"
#include "hsdp/loader.h"
#include "ranks.h"
#include "suite.h"

static hsdp_plugin *plugin_load(void)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_plugin *plugin = NULL;

    spec.path = getenv("HSDP_TEST_PLUGIN");
    abi_must(hsdp_plugin_load(&spec, &plugin, &err), &err);
    return plugin;
}

/* Trains nothing, but goes through all objects once. */
static void host_run(hsdp_plugin *plugin)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct abi_host host;

    abi_host_open(&host, hsdp_plugin_api(plugin));
    abi_must(host.api->unit->unshard(host.model, 0, HSDP_USE_FORWARD, NULL, NULL, &err), &err);
    abi_must(host.api->unit->release(host.model, 0, NULL, &err), &err);
    abi_step_begin(&host);
    abi_must(host.api->step->end(host.model, NULL, NULL, &err), &err);
    abi_must(host.api->job->close(host.job, &err), &err);
    abi_host_fini(&host);
}

START_TEST(plugin_used_and_unloaded_leaves_nothing_behind)
{
    uint32_t n_descriptors = ranks_n_descriptors();
    uint32_t n_before = ranks_n_threads(); /* a sanitizer may have one of its own */

    for (int cycle = 0; cycle < 3; cycle++) {
        hsdp_plugin *plugin = plugin_load();

        host_run(plugin);
        hsdp_plugin_unload(plugin);
        ck_assert_uint_eq(ranks_n_threads(), n_before);
        ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
        ck_assert_ptr_null(dlopen(getenv("HSDP_TEST_PLUGIN"), RTLD_NOW | RTLD_NOLOAD));
    }
}
END_TEST

START_TEST(plugin_loaded_twice_works_until_the_last_is_unloaded)
{
    hsdp_plugin *first = plugin_load();
    hsdp_plugin *second = plugin_load();

    host_run(first);
    hsdp_plugin_unload(first);
    host_run(second);
    hsdp_plugin_unload(second);
}
END_TEST

START_TEST(plugin_found_by_search_is_the_same)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_plugin *plugin = NULL;

    setenv("HSDP_PLUGIN", getenv("HSDP_TEST_PLUGIN"), 1);
    abi_must(hsdp_plugin_load(NULL, &plugin, &err), &err);
    ck_assert_str_eq(hsdp_plugin_api(plugin)->plugin_name, "libhsdp");
    hsdp_plugin_unload(plugin);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_load");
    TCase *all = tcase_create("load");

    tcase_add_test(all, plugin_used_and_unloaded_leaves_nothing_behind);
    tcase_add_test(all, plugin_loaded_twice_works_until_the_last_is_unloaded);
    tcase_add_test(all, plugin_found_by_search_is_the_same);
    suite_add_tcase(suite, all);
    return suite;
}
