/* SPDX-License-Identifier: Apache-2.0 */
/* What checks that load the plugin by themselves look at: the plugin, and what the process holds.
 */
#ifndef CONFORM_PROCESS_H
#define CONFORM_PROCESS_H

#include "conform.h"

/** Loads a plugin; the caller unloads it. */
hsdp_plugin *process_load(struct conform *conform, const char *path);

/** Counts what is in a folder, as /proc/self/fd; skips the check where it cannot be read. */
uint32_t process_count_entries(struct conform *conform, const char *folder);

#endif /* CONFORM_PROCESS_H */
