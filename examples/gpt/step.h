/* SPDX-License-Identifier: Apache-2.0 */
/* One step of training: microbatches, update; and the validation loss. */
#ifndef GPT_STEP_H
#define GPT_STEP_H

#include <stdio.h>

#include "compute.h"
#include "dataset.h"
#include "metrics.h"
#include "report.h"
#include "schedule.h"

struct trainer {
    const struct config *config;
    struct session session;
    struct compute compute;
    struct dataset dataset;
    struct metrics metrics;
    struct schedule schedule;
    FILE *log;       /* NULL on all ranks but 0, or where none was asked for */
    int is_terminal; /* 1 where rank 0 writes to a terminal */
};

/* Runs all microbatches of a step; *ret_loss is the mean over the global batch. */
int step_accumulate(struct trainer *trainer, uint64_t step, double *ret_loss,
                    struct fault *ret_fault);
/*
 * Clips, updates with step->learning_rate, publishes, and sets step->gradient_norm. A step whose
 * gradients are not finite changes nothing.
 */
int step_apply(struct trainer *trainer, struct report_step *step, struct fault *ret_fault);
/* Mean loss over the held-out samples, shared among the ranks. */
int step_validate(struct trainer *trainer, double *ret_loss, struct fault *ret_fault);

#endif
