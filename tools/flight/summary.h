/* SPDX-License-Identifier: Apache-2.0 */
/* The summary of a run: the verdict, where each rank was, where ranks did different things. */
#ifndef FLIGHT_SUMMARY_H
#define FLIGHT_SUMMARY_H

#include "run.h"

/** As one JSON object; NULL without memory. */
json_t *summary_make(const struct run *run);

/** The member "differences" of it: the first one of each order. */
json_t *differences_make(const struct run *run);

/** Writes an operation: reduce of group "dp", unit "b.0", sequence 3 */
void op_name(const struct op *op, char *ret_text, size_t max_bytes);

/** For people. */
void summary_print(const json_t *summary);

#endif /* FLIGHT_SUMMARY_H */
