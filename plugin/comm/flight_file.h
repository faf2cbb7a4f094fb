/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of a failed job: one file for each rank, for hsdp-flight. */
#ifndef COMM_FLIGHT_FILE_H
#define COMM_FLIGHT_FILE_H

#include <stdint.h>

#include "base/text.h"
#include "comm/job.h"

/** Adds what is known of this rank: its position and its last operations. Any thread. */
void flight_own_write(const struct hsdp_job *job, uint64_t max_records, struct text *text);

/**
 * Once the job has failed: writes this rank's file into the setting flight_dir, if it is set, and
 * those of the ranks of this node that cannot any more, if this is the first that can. Any thread;
 * the first one does it, others wait a moment for it, so that no host ends in the middle.
 */
void flight_files_write(struct hsdp_job *job);

/** Logs, once, what went wrong there; on a thread of the host. */
void flight_files_tell(struct hsdp_job *job);

#endif /* COMM_FLIGHT_FILE_H */
