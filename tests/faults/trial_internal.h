/* SPDX-License-Identifier: Apache-2.0 */
/* Trials: what drawing them shares. */
#ifndef FAULTS_TRIAL_INTERNAL_H
#define FAULTS_TRIAL_INTERNAL_H

#include "faults/trial.h"

struct dice {
    uint64_t state;
};

uint64_t dice_next(struct dice *dice);
uint32_t dice_below(struct dice *dice, uint32_t n);
bool dice_is(struct dice *dice, uint32_t percent);

/** One of them, as often as its weight in a hundred says. */
enum fault_kind kind_draw(struct dice *dice, const uint32_t weights[FAULT_N_KINDS]);

/** Makes one trial in five one of several nodes. It has dice of its own: the others stay the same.
 */
void nodes_draw(struct trial *trial);

#endif /* FAULTS_TRIAL_INTERNAL_H */
