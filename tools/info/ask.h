/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked in a child: of a plugin, and of a library that a transport needs. */
#ifndef INFO_ASK_H
#define INFO_ASK_H

#include <jansson.h>

#include "child.h"

/*
 * Asks a plugin. `arg` is its file, NULL = the loader's search. Facts: "refusal", the loader's
 * sentence, or "file", "abi_major", "abi_minor", "plugin_name", "plugin_version", and
 * "description" or "description_refusal"; where the environment has settings, "job_refusal" or
 * "value.KEY" and "source.KEY" of each that belongs to a job.
 */
void ask_plugin(int out, const void *arg);

/*
 * Asks a library; `arg` is a json_t, its object in describe(). Facts: "refusal", why it cannot be
 * loaded, or "path", "missing" (symbols), "newer.SYMBOL" ("found" or "missing"), "version",
 * "n_devices", "device.N" ("NVIDIA H200, sm_90"), "remark".
 */
void ask_library(int out, const void *arg);

#endif /* INFO_ASK_H */
