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

#endif /* SHARD_VERIFY_H */
