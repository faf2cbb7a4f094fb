/* SPDX-License-Identifier: Apache-2.0 */
/* The first look at a plugin, which may crash or hang as well as any later one. */
#include "probe.h"

#include <stdio.h>
#include <string.h>

#include "options.h"

/* What the process that has looked leaves. */
struct answer {
    uint32_t has_answered;
    int32_t status;
    char message[sizeof(((struct hsdp_error *)0)->message)];
    struct probe probe;
};

static void probe_run(struct conform *conform)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct answer *answer = conform->shared;
    hsdp_plugin *plugin = NULL;
    const struct hsdp_api *api;

    spec.path = conform->plugin_path;
    conform_enter(conform, "loading the plugin");
    answer->status = hsdp_plugin_load(&spec, &plugin, &err);
    if (answer->status != HSDP_OK) {
        snprintf(answer->message, sizeof(answer->message), "%s", err.message);
        answer->has_answered = 1;
        return;
    }
    api = hsdp_plugin_api(plugin);
    answer->probe.plugin.abi_major = api->abi_major;
    answer->probe.plugin.abi_minor = api->abi_minor;
    snprintf(answer->probe.plugin.name, sizeof(answer->probe.plugin.name), "%s", api->plugin_name);
    snprintf(answer->probe.plugin.version, sizeof(answer->probe.plugin.version), "%s",
             api->plugin_version);
    answer->has_answered = 1;
    conform_enter(conform, "describe");
    claims_read(api, &answer->probe.claims);
}

static const struct conform_check probe_check = {
    .name = "the plugin is loaded",
    .promise = "loader.h: hsdp_plugin_load",
    .run = probe_run,
    .n_ranks = 1,
    .flags = CONFORM_UNLOADED,
};

enum probe_answer probe_plugin(const struct runner_setup *setup, struct probe *ret,
                               char *ret_reason, size_t max_bytes)
{
    struct runner_setup asking = *setup;
    struct runner runner;
    struct answer found = {0};

    memset(ret, 0, sizeof(*ret));
    asking.ret_shared = &found;
    asking.ret_shared_bytes = sizeof(found);
    if (!runner_start(&runner, &asking, &probe_check)) {
        options_complain("%s", runner.result.message);
        return PROBE_UNABLE;
    }
    while (!runner_poll(&runner)) {
        conform_sleep_ms(1);
    }
    if (found.has_answered == 0) {
        snprintf(ret_reason, max_bytes, "loading the plugin: %s", runner.result.message);
        return PROBE_BREAKS;
    }
    if (found.status == HSDP_ERR_UNAVAILABLE) {
        options_complain("%s", found.message);
        return PROBE_UNABLE;
    }
    if (found.status != HSDP_OK) {
        runner_plain(found.message);
        snprintf(ret_reason, max_bytes, "the plugin does not load: %s", found.message);
        return PROBE_BREAKS;
    }
    *ret = found.probe;
    runner_plain(ret->plugin.name);
    runner_plain(ret->plugin.version);
    return PROBE_LOADS;
}
