/* SPDX-License-Identifier: Apache-2.0 */
/* A trace of the run in the format that Chrome and Perfetto open. */
#ifndef FLIGHT_TRACE_H
#define FLIGHT_TRACE_H

#include "run.h"

/** Writes it; FLIGHT_NOTHING with a complaint when that fails. */
int trace_write(const struct run *run, const char *path);

#endif /* FLIGHT_TRACE_H */
