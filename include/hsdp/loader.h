/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: finds a plugin, loads it, agrees on a version. Link libhsdp-loader or copy loader.c.
 */
#ifndef HSDP_LOADER_H
#define HSDP_LOADER_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * All of it since 1.0. Where a plugin is looked for, the first that is set:
 *
 *   1. spec.path, an explicit file;
 *   2. the environment variable HSDP_PLUGIN, an explicit file;
 *   3. "hsdp_<strategy>.so" and then "hsdp.so" in each folder of HSDP_PLUGIN_PATH (':' between
 *      them), then in $libdir/hsdp (`pkg-config --variable=plugindir hsdp`), then
 *      in ../lib/hsdp beside the program.
 *
 * An explicit file is the only candidate. A file that is there and cannot be used is an error, not
 * a reason to look further: wrong architecture, symbol missing, versions, or not to be trusted: it
 * or its folder is writable by everybody, or belongs to a stranger (neither root, the user, nor the
 * owner of the running program).
 */

/**
 * What to look for.
 *
 * Since: 1.0
 */
struct hsdp_plugin_spec {
    size_t struct_size;   /* sizeof(struct hsdp_plugin_spec) */
    const char *path;     /* explicit file; NULL or "" = search */
    const char *strategy; /* the value of sharding_strategy, to prefer a plugin made for it;
                             NULL = none */
};

typedef struct hsdp_plugin hsdp_plugin;

/**
 * Finds and loads a plugin. A NULL spec searches. An explicit file without '/' is one in the
 * current folder.
 *
 * Ownership: give *ret_plugin to hsdp_plugin_unload when every object made through it is gone.
 * Errors: HSDP_ERR_UNAVAILABLE lists each place looked at and why it did not serve;
 * HSDP_ERR_VERSION has both versions.
 * Threads: any.
 */
int32_t hsdp_plugin_load(const struct hsdp_plugin_spec *spec, hsdp_plugin **ret_plugin,
                         struct hsdp_error *reterr);

/** Tells the tables of a plugin; they live until it is unloaded. Never NULL. */
const struct hsdp_api *hsdp_plugin_api(const hsdp_plugin *plugin);

/** Tells the file a plugin came from; lives until it is unloaded. */
const char *hsdp_plugin_path(const hsdp_plugin *plugin);

/** Unloads a plugin; NULL is accepted. */
void hsdp_plugin_unload(hsdp_plugin *plugin);

#ifdef __cplusplus
} /* extern "C" */
#endif

#define HSDP_PLUGIN_SPEC_INIT HSDP_INIT_(hsdp_plugin_spec)

#endif /* HSDP_LOADER_H */
