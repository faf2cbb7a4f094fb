/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the units of the plugin: when they are whole, and where they are read and written. */
#ifndef GPT_ACCESS_H
#define GPT_ACCESS_H

#include "compute.h"

/*
 * Unshards `unit`, issues `next` (NULL: none) ahead of its turn if the two may be live together,
 * and waits until `unit` can be read. `use` is HSDP_USE_*.
 */
int access_acquire(struct compute *compute, uint32_t unit, const uint32_t *next, int32_t use,
                   struct fault *ret_fault);
/* Ends one use of a unit. */
int access_release(struct compute *compute, uint32_t unit, struct fault *ret_fault);
/* Where the model reads the parameters of an unsharded unit: in place, or widened to fp32. */
int access_values(struct compute *compute, uint32_t unit, const float *ret_values[MODEL_MAX_PARAMS],
                  struct fault *ret_fault);
/* Where the model writes the gradients of a unit: in place, or in fp32 beside it. */
void access_grads(const struct compute *compute, uint32_t unit, float *ret_grads[MODEL_MAX_PARAMS]);
/* Rounds the gradients into the views, where they were computed beside them. */
int access_store(struct compute *compute, uint32_t unit, float *const grads[MODEL_MAX_PARAMS],
                 struct fault *ret_fault);

#endif
