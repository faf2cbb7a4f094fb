/* SPDX-License-Identifier: Apache-2.0 */
/* Processes: descriptors that become readable when another process ends. */
#ifndef COMM_PROCESS_H
#define COMM_PROCESS_H

#include <stdint.h>

/** Opens a process by its number; -1 with errno. */
int process_open(uint32_t pid);

#endif /* COMM_PROCESS_H */
