/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that the environment gives, with what becomes of them. */
#ifndef INFO_ENVIRONMENT_H
#define INFO_ENVIRONMENT_H

#include <jansson.h>

#include "child.h"

/**
 * Adds the members "environment", a list of the described settings whose variable is set,
 * "unknown_variables", those called HSDP_* that nobody reads, and
 * "job_refusal" where a job of the plugin would not take them. Values of jobs are those that the
 * plugin has read back; others, which only a plan can judge, are compared with what is allowed.
 */
void environment_take(json_t *report, const json_t *description, const struct child *child);

#endif /* INFO_ENVIRONMENT_H */
