/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the only way to raise one is `return error_set(reterr, HSDP_ERR_X, "...")`. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "hsdp/abi.h"

/**
 * Fills *reterr (NULL is allowed) with a status and a sentence, clears its other fields, and
 * returns the status. Inside the engine every struct hsdp_error has its full size.
 */
int32_t error_set(struct hsdp_error *reterr, int32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Adds where it happened; NULL leaves a field as it is. */
void error_where(struct hsdp_error *reterr, const char *operation, const char *group,
                 const char *unit);

/** The name of a status without its prefix, "TIMEOUT"; "UNKNOWN" for a number that is none. */
const char *error_name(int32_t status);

/** True for the failures that end a job: timeout, peer lost, mismatch, device. */
int error_fails_job(int32_t status);

#endif /* BASE_ERROR_H */
