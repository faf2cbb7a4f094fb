/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop of hsdp-gpt. */
#ifndef GPT_TRAINER_H
#define GPT_TRAINER_H

#include "config.h"
#include "fault.h"

/* Trains as configured; log_path is a file for JSON objects, or NULL. Returns 0, or FAULT_*. */
int trainer_run(const struct config *config, const char *log_path, struct fault *ret_fault);

#endif
