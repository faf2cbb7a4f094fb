/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training: gradients, and the passes that bring them. */
#ifndef CONFORM_RANDOM_PASS_H
#define CONFORM_RANDOM_PASS_H

#include "random_case.h"

/* The values of a case as functions of where they are. They are those of the case and the host that
 * random_values_set was told last. */
void random_values_set(const struct random_case *random, const struct host *host);
double random_weight(struct host_at at);
double random_gradient(struct host_at at);
double random_late(struct host_at at);
uint32_t random_holder(uint32_t param, uint32_t rank); /* random_first_holder of the case */
bool random_has_pass(uint32_t batch, uint32_t param);
/** This rank's tokens: equal on ranks that see equal data. */
double random_tokens(uint32_t rank, uint32_t step);

/** Backward over everything that microbatch `batch` has, in one pass or in two at once. */
void random_backward(struct host *host, uint32_t batch);

#endif /* CONFORM_RANDOM_PASS_H */
