/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: which rank this process is, and what tells its run from others. */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "hsdp/job.h"

/* The ranks of one host that a job of this version spans. */
#define LAUNCH_MAX_RANKS 64u

struct launch {
    uint32_t rank;
    uint32_t world_ranks;
    uint32_t local_rank;
    uint32_t local_ranks;
};

/**
 * Answers "who am I?": from the spec, else from the launcher's environment, else one rank.
 *
 * Errors: HSDP_ERR_INVALID names the variable and its text, or the one that is missing;
 * HSDP_ERR_UNSUPPORTED for several hosts and for more than LAUNCH_MAX_RANKS.
 */
int32_t launch_read(const struct hsdp_job_spec *spec, struct launch *ret,
                    struct hsdp_error *reterr);

/**
 * Adds the variables that tell this run from others, "KEY=VALUE" lines; false when there are none.
 */
bool launch_identity(struct text *text);

#endif /* COMM_LAUNCH_H */
