/* SPDX-License-Identifier: Apache-2.0 */
/* The setting `verify`, as far as it is done when a model is created. See hsdp/model.h. */
#ifndef SHARD_VERIFY_H
#define SHARD_VERIFY_H

#include "shard/model.h"

/**
 * All ranks of the job must have the same `verify`, but for access, which concerns only the rank
 * itself: the others are collective. Collective over the job.
 */
int32_t verify_agree(struct hsdp_job *job, const struct hsdp_plan *plan, struct hsdp_error *reterr);

/**
 * verify=wrap: known values go through the slots, the wire, the reduction, the divisor, the norm,
 * and through masters, publish and unshard, of every unit. Behind it the model is as it was: all
 * values zero, no step taken, counters of traffic and steps as before. Collective over the job.
 *
 * Errors: HSDP_ERR_DEFECT on every rank names class and unit, what was found and expected.
 */
int32_t verify_wrap(struct hsdp_model *model, struct hsdp_error *reterr);

#endif /* SHARD_VERIFY_H */
