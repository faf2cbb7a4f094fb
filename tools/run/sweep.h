/* SPDX-License-Identifier: Apache-2.0 */
/* Finding in /proc, and killing, what a run has left. */
#ifndef RUN_SWEEP_H
#define RUN_SWEEP_H

#include <stdbool.h>

/*
 * Kills and reaps all children of hsdp-run and what they leave to it, until there is none. Where it
 * had children before the run, mark tells which are the run's; else it is NULL. Answers false
 * when some did not die.
 */
bool sweep_children(const char *mark);

/*
 * Kills every process but the caller that has mark in its environment. Answers how many live
 * ones it found: call it again until there is none.
 */
int sweep_run(const char *mark);

#endif /* RUN_SWEEP_H */
