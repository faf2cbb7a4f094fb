/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter deadlines: what its two files share. */
#ifndef CONFORM_DEADLINES_H
#define CONFORM_DEADLINES_H

#include "scene.h"

/* Timeouts of a second, but for what has to be prepared; to stand still is no fault. */
#define DEADLINES_SECOND                                                                           \
    "nccl_timeout_seconds=1 heartbeat_timeout_seconds=60 init_timeout_seconds=60"
#define DEADLINES_T_MS 1000u

/** Joins, with a group of all ranks. */
void deadlines_join(struct scene *scene, struct conform *conform, const char *settings);

void deadlines_group_timeout(struct conform *conform);
void deadlines_call_timeout(struct conform *conform);
void deadlines_phase_timeout(struct conform *conform);
void deadlines_set_timeout(struct conform *conform);
void deadlines_longer_phase(struct conform *conform);
void deadlines_longer_call(struct conform *conform);
void deadlines_told(struct conform *conform);
void deadlines_ledger(struct conform *conform);
void deadlines_gone(struct conform *conform);
void deadlines_ticket(struct conform *conform);
void deadlines_read_back(struct conform *conform);

#endif /* CONFORM_DEADLINES_H */
