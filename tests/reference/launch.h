/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: which rank this is, and what tells its run from others. */
#ifndef REFERENCE_LAUNCH_H
#define REFERENCE_LAUNCH_H

#include "error.h"
#include "hsdp/job.h"

#define MOST_RANKS 64u

struct launch {
    uint32_t rank;
    uint32_t world_ranks;
    uint32_t local_rank;
    uint32_t local_ranks;
    char place[64];    /* where the ranks meet: a name for channel_listen; "" = unknown */
    char attempt[128]; /* of the run, for comparison */
};

/**
 * Reads it from the host's spec and the launcher's environment. `port` is the setting
 * rendezvous_port, "" where it is not set.
 */
int32_t launch_read(const struct call *call, const struct hsdp_job_spec *spec, const char *port,
                    struct launch *ret);

#endif /* REFERENCE_LAUNCH_H */
