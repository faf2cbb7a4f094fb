/* SPDX-License-Identifier: Apache-2.0 */
/* The scenario's parts. */
#ifndef FAULTS_SCENARIO_H
#define FAULTS_SCENARIO_H

#include "faults/host.h"

extern const char *const scenario_strategies[7];

/** Model, steps, collectives, export: all that needs a connected job and its group. */
bool scenario_train(struct host *host);

/** Plan and model, as far as it comes. */
bool scenario_model(struct host *host);

/** Sets nccl_timeout_seconds. */
bool scenario_set(struct host *host, uint32_t timeout_ms);
bool scenario_phase_open(struct host *host);
bool scenario_phase_close(struct host *host);

/** One all-reduce over the group of the current job. */
bool scenario_sum(struct host *host);

#endif /* FAULTS_SCENARIO_H */
