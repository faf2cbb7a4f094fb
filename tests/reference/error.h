/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the one way to raise them, so that none is told wrongly, or not at all. */
#ifndef REFERENCE_ERROR_H
#define REFERENCE_ERROR_H

#include <stdbool.h>

#include "hsdp/abi.h"

/*
 * One call of a host: every function of a table makes one, and hands it to all that may fail.
 *
 *     const struct call call = {"mesh.create", reterr};
 */
struct call {
    const char *name;          /* goes into hsdp_error.operation */
    struct hsdp_error *reterr; /* the host's, of any size, or NULL */
};

/** Fails the call with a sentence: `return error_raise(call, HSDP_ERR_X, "...", ...);`. */
int32_t error_raise(const struct call *call, int32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Fails the call with an error whose other fields are known too: group, ranks, ticket. Its
 * operation is kept where it has one. The error itself has its full size.
 */
int32_t error_pass(const struct call *call, const struct hsdp_error *error);

/** False, and the call has failed with HSDP_ERR_INVALID, where an argument is NULL. */
bool call_has(const struct call *call, const char *argument, const void *pointer);
/** Likewise for an array of n elements, which may be NULL where n is 0. */
bool call_has_array(const struct call *call, const char *argument, const void *array, uint64_t n);

/** Fails the call with HSDP_ERR_INVALID for another stream than NULL, the only one of a CPU. */
int32_t stream_check(const struct call *call, const void *stream);

#endif /* REFERENCE_ERROR_H */
