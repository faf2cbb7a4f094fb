/* SPDX-License-Identifier: Apache-2.0 */
/* The signals that hsdp-run receives, as a descriptor to poll. */
#ifndef RUN_SIGNALS_H
#define RUN_SIGNALS_H

#include <stdbool.h>

#include "launch.h"

/*
 * Blocks the signals and keeps in launch what the ranks shall find instead. Those ignored when
 * hsdp-run was started (nohup, background) stay ignored. Answers the descriptor, or complains and
 * answers -1.
 */
int signals_open(struct launch *launch);

/* The next signal that has arrived, 0 when there is none. */
int signals_next(int fd);

/* Whether a user sends it to end a run. */
bool signal_is_ending(int number);

#endif /* RUN_SIGNALS_H */
