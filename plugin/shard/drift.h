/* SPDX-License-Identifier: Apache-2.0 */
/* Drift: whether replicas still hold the same values, and which one does not. See hsdp/step.h. */
#ifndef SHARD_DRIFT_H
#define SHARD_DRIFT_H

#include "shard/model.h"

/*
 * What more than one rank holds of a unit is hashed on each of them: the parameter shard (replicas:
 * the ranks over which the class is replicated, but not over which parameters are sharded), the
 * master where it is not that memory, and each state (but not over which the step is sharded). The
 * hashes, times weights that add up to zero over the replicas, are summed over the whole job in the
 * step's collective. Nothing is compared one by one unless that sum is not zero. What is tied over
 * stages is hashed once more, apart from the unit that it lies in: stages are its replicas.
 */

/** Allocates what comparing needs, where the plan asks for it; else nothing. */
int32_t drift_create(struct hsdp_model *model, struct hsdp_error *reterr);
void drift_destroy(struct drift *drift);

/** Whether the step that is open, or that is about to begin, is checked. */
bool drift_is_measured(const struct hsdp_model *model);

/**
 * This rank's share of the sum, for the step that is about to begin; 0 in a step that is not
 * checked. Waits, bounded, until the parameters of the last step have arrived.
 */
int32_t drift_measure(struct hsdp_model *model, uint64_t *ret_checksum, struct hsdp_error *reterr);

/**
 * Finds out what differs, once, where the open step has found drift; else does nothing. All ranks
 * know alike which it is, and in the first case it is collective over the job.
 *
 * Errors: those of the exchange. What is found is drift_check's to say.
 */
int32_t drift_name(struct hsdp_model *model, struct hsdp_error *reterr);

/** HSDP_ERR_DRIFT, with what drift_name has found, when the open step has. */
int32_t drift_check(const struct hsdp_model *model, const char *call, struct hsdp_error *reterr);

#endif /* SHARD_DRIFT_H */
