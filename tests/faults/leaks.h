/* SPDX-License-Identifier: Apache-2.0 */
/* Leaks: what is left of a trial when all of its processes should have ended. */
#ifndef FAULTS_LEAKS_H
#define FAULTS_LEAKS_H

#include <stdint.h>

/** Kills and collects all children of this process, however deep. Answers how many there were. */
uint32_t leaks_end_children(void);

/** Names one socket, shared-memory object or file that is left; "" = nothing is. */
void leaks_find(char *ret_text, uint64_t max_bytes);

#endif /* FAULTS_LEAKS_H */
