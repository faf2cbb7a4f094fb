/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and groups as tests make them: entered, and asserted to work. */
#ifndef TESTS_JOBS_H
#define TESTS_JOBS_H

#include "comm/group.h"
#include "comm/job.h"

/* A status that is not `expected` fails the test with the sentence of *err. */
void status_assert(int32_t status, int32_t expected, const struct hsdp_error *err);

/** A job of this process's launcher environment with nccl_timeout_seconds; not connected. */
struct hsdp_job *test_job_create(const char *seconds);
/** The same, entered and connected. */
struct hsdp_job *test_job_open(const char *seconds);
/** Closes, leaves and destroys it; everything has to be done. */
void test_job_end(struct hsdp_job *job);
/** Leaves and destroys it as it is. */
void test_job_drop(struct hsdp_job *job);

/** A mesh of one dimension "dp" over all ranks of a job. */
struct hsdp_mesh *test_mesh(const struct hsdp_job *job);
/** A group over all ranks of a job, connected. */
struct hsdp_group *test_group(struct hsdp_job *job);

#endif /* TESTS_JOBS_H */
