/* SPDX-License-Identifier: Apache-2.0 */
/* Processes: descriptors that become readable when another process ends, and what it is doing. */
#ifndef COMM_PROCESS_H
#define COMM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/** Opens a process by its number; -1 with errno: ESRCH when it has ended, else this cannot. */
int process_open(uint32_t pid);

/** For where process_open cannot: true if a process has ended, false also when nobody can say. */
bool process_has_ended(uint32_t pid);

/** True if a process is stopped by a signal or a debugger; false also when nobody can say. */
bool process_is_stopped(uint32_t pid);

/** Keeps the plugin's code in memory for good: a thread that was left behind comes back to it. */
void process_keep_plugin(void);

#endif /* COMM_PROCESS_H */
