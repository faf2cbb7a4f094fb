/* SPDX-License-Identifier: Apache-2.0 */
/* Forks: a child keeps no descriptor of its parent's jobs open. */
#ifndef COMM_FORKS_H
#define COMM_FORKS_H

#include <stdint.h>

#include "hsdp/job.h"

struct nodes; /* comm/nodes.h */

/*
 * A child of a rank that lives on after it would hold its connections, so that nobody saw them end.
 * So what a job has open is closed in every child (calls there answer "forked" anyway). Programs
 * that are started by exec are no matter: all descriptors close by themselves then.
 */

/** From now on children close what the job has open. HSDP_ERR_NO_MEMORY. */
int32_t forks_add(struct hsdp_job *job, struct hsdp_error *reterr);

/** Closes what the job has open, so that no child is forked in the middle of it. */
void forks_close(struct hsdp_job *job);

/** The same for good. Also one that was never added, and in a child. */
void forks_remove(struct hsdp_job *job);

/** Opens job->listener, so that no child holds the meeting point of its parent; -1 with errno. */
int forks_open_listener(struct hsdp_job *job);
void forks_close_listener(struct hsdp_job *job);

/** Sets job->nodes, which a child closes on its side. */
void forks_set_nodes(struct hsdp_job *job, struct nodes *nodes);

#endif /* COMM_FORKS_H */
