/* SPDX-License-Identifier: Apache-2.0 */
/* A host of one rank for the suites that see a plugin only through its ABI. */
#ifndef TESTS_ABI_HOST_H
#define TESTS_ABI_HOST_H

#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"

/* The entry of the plugin that HSDP_TEST_PLUGIN names; fails the test if it cannot be loaded. */
hsdp_plugin_v1_fn abi_entry(void);

/* The tables of that plugin. */
const struct hsdp_api *abi_load(void);
const struct hsdp_adamw_ops *abi_adamw(const struct hsdp_api *api);

/* One of everything: one unit "u" of class "dense" with one fp32 parameter "p" of shape [2,3]. */
struct abi_host {
    const struct hsdp_api *api;
    hsdp_mesh *mesh;
    hsdp_job *job;
    hsdp_group *group;
    hsdp_plan *plan; /* finished */
    hsdp_model *model;
};

/* Each fails the test if a step of it fails. The environment of launchers is removed first. */
void abi_host_init(struct abi_host *ret); /* of the plugin that is tested */
void abi_host_open(struct abi_host *ret, const struct hsdp_api *api);
void abi_host_fini(struct abi_host *host);

/* Parts of it, which the caller gives back. */
hsdp_mesh *abi_mesh(const struct hsdp_api *api);
hsdp_plan *abi_plan(const struct hsdp_api *api, hsdp_mesh *mesh); /* one class "dense", no unit */

/* Opens a step, so that step functions can be asked; `discard` closes it. */
void abi_step_begin(const struct abi_host *host);

/* A host or plugin that fails has to be loud in a test. */
void abi_must(int32_t status, const struct hsdp_error *err);

/*
 * Memory of n_bytes that ends where the process may neither read nor write (but for what rounding
 * to 8 adds before that), filled with a byte. It lives as long as the test.
 */
void *abi_guarded(size_t n_bytes, int filler);

/* A copy of a struct in such memory, that says and has n_bytes: cut, or longer with zeros. */
void *abi_guarded_copy(const void *object, size_t full_bytes, size_t n_bytes);

/* True if n bytes are all `filler`. */
int abi_is_filled(const void *memory, size_t n_bytes, int filler);

#endif /* TESTS_ABI_HOST_H */
