/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of others: loaded at run time, for good, and bound function by function. */
#ifndef BASE_FOREIGN_H
#define BASE_FOREIGN_H

#include <stddef.h>
#include <stdint.h>

#include "hsdp/abi.h"

/** One that is loaded. */
struct foreign {
    void *handle;
    char path[256]; /* of the file that answers */
};

/** A function, and where its address goes in the table that is bound. */
struct foreign_function {
    const char *symbol;
    size_t offset;
};

/**
 * Loads `name`, a soname or a path, as dlopen finds it; one that the process has already is that
 * one. It is never closed again: the libraries meant here start threads and keep descriptors, and
 * end the process when they are taken away.
 *
 * Errors: HSDP_ERR_UNAVAILABLE with the name, the setting that gives another one, and the linker's
 * own reason: not found, no library, of another machine, something that it needs is missing.
 */
int32_t foreign_load(const char *name, const char *setting, struct foreign *ret,
                     struct hsdp_error *reterr);

/**
 * Puts the addresses of n_functions into a table, NULL for those that the library does not have.
 * Returns how many these are; ret_missing names the first of them.
 */
uint32_t foreign_bind(const struct foreign *foreign, const struct foreign_function *functions,
                      uint32_t n_functions, void *table, char *ret_missing, size_t max_bytes);

#endif /* BASE_FOREIGN_H */
