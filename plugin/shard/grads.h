/* SPDX-License-Identifier: Apache-2.0 */
/* Reduced gradients: their norm, and the one division. */
#ifndef SHARD_GRADS_H
#define SHARD_GRADS_H

#include "shard/model.h"

/*
 * The norm of a unit's step shard is added up while its last reduction of a window still has the
 * sums in the cache. Which one is the last is a guess: the window has as many full ones as the one
 * before it, and the step has the same p. A wrong guess only takes time: the store forgets a norm
 * when it sums up more, and the step adds up what it has not got. An exact sum is the same struct
 * either way, so ranks need not guess alike.
 *
 * Sums are divided once: in step.begin if the host may look there at any time, since it has asked
 * for the address of a unit's; else when somebody asks for them, or by AdamW as it reads them.
 */

/**
 * A unit is handed over: the p of the norm that its reduction adds up, 0 for none. Once for each
 * reduction.
 */
double grads_norm_p(struct hsdp_model *model, uint32_t unit, int32_t scope);

/**
 * Makes step shards what a step reads, and adds up what this rank counts of their norm: to `words`,
 * or where the space of a device has it. The store has nothing that waits to be issued.
 */
int32_t grads_settle(struct hsdp_model *model, double p, struct step_words *words,
                     struct hsdp_error *reterr);

/** The window is over; the next is expected to be like it, and to end with a norm of the same p. */
void grads_close(struct hsdp_model *model, double p);

/** What who reads a unit's step shard in the open step has to divide by; 0 = it is divided. */
float grads_divisor(const struct hsdp_model *model, uint32_t unit);

/** Divides a unit's step shard unless it is. */
int32_t grads_divide(struct hsdp_model *model, uint32_t unit, struct hsdp_error *reterr);

#endif /* SHARD_GRADS_H */
