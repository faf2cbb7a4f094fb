/* SPDX-License-Identifier: Apache-2.0 */
/* The border: errors and structs of hosts that are older or newer than this plugin. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "skeleton.h"

#define ERROR_BYTES_1_0  776u   /* sizeof(struct hsdp_error) in ABI 1.0 */
#define STRUCT_MAX_BYTES 65536u /* a larger size is garbage, not a newer host */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Everything but the size, which is the host's: what both know is copied, the rest is zero. */
static void struct_write(void *ret_theirs, const void *own, size_t n_own_bytes)
{
    unsigned char *theirs = ret_theirs;
    size_t n_bytes;
    size_t n_known;

    memcpy(&n_bytes, theirs, sizeof(n_bytes));
    n_known = smaller(n_bytes, n_own_bytes);
    memcpy(theirs + sizeof(n_bytes), (const unsigned char *)own + sizeof(n_bytes),
           n_known - sizeof(n_bytes));
    memset(theirs + n_known, 0, n_bytes - n_known);
}

int32_t skeleton_fail(struct hsdp_error *reterr, const char *operation, int32_t status,
                      const char *format, ...)
{
    struct hsdp_error own = HSDP_ERROR_INIT;
    va_list arguments;

    if (reterr == NULL || reterr->struct_size < ERROR_BYTES_1_0 ||
        reterr->struct_size > STRUCT_MAX_BYTES) {
        return status;
    }
    own.status = status;
    snprintf(own.operation, sizeof(own.operation), "%s", operation);
    va_start(arguments, format);
    vsnprintf(own.message, sizeof(own.message), format, arguments);
    va_end(arguments);
    struct_write(reterr, &own, sizeof(own));
    return status;
}

int32_t skeleton_absent(struct hsdp_error *reterr, const char *operation)
{
    return skeleton_fail(reterr, operation, HSDP_ERR_UNSUPPORTED, "%s: not made yet in %s %s",
                         operation, SKELETON_NAME, SKELETON_VERSION);
}

int32_t skeleton_can_give(const struct skeleton_struct *kind, const void *theirs,
                          struct hsdp_error *reterr)
{
    size_t n_bytes;

    if (theirs == NULL) {
        return skeleton_fail(reterr, kind->operation, HSDP_ERR_INVALID, "%s: %s is NULL",
                             kind->operation, kind->argument);
    }
    memcpy(&n_bytes, theirs, sizeof(n_bytes));
    if (n_bytes < kind->n_bytes_1_0 || n_bytes > STRUCT_MAX_BYTES) {
        return skeleton_fail(reterr, kind->operation, HSDP_ERR_VERSION,
                             "%s: %s.struct_size is %zu; ABI 1.0 has %zu, this plugin %zu",
                             kind->operation, kind->argument, n_bytes, kind->n_bytes_1_0,
                             kind->n_bytes);
    }
    return HSDP_OK;
}

int32_t skeleton_take(const struct skeleton_struct *kind, const void *theirs, void *ret_own,
                      struct hsdp_error *reterr)
{
    const unsigned char *bytes = theirs;
    size_t n_bytes;
    int32_t status = skeleton_can_give(kind, theirs, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    memcpy(&n_bytes, theirs, sizeof(n_bytes));
    for (size_t i = kind->n_bytes; i < n_bytes; i++) {
        if (bytes[i] != 0) {
            return skeleton_fail(reterr, kind->operation, HSDP_ERR_UNSUPPORTED,
                                 "%s: %s sets a field at byte %zu; this plugin knows %zu bytes",
                                 kind->operation, kind->argument, i, kind->n_bytes);
        }
    }
    memset(ret_own, 0, kind->n_bytes);
    memcpy(ret_own, theirs, smaller(n_bytes, kind->n_bytes));
    return HSDP_OK;
}

void skeleton_give(const struct skeleton_struct *kind, const void *own, void *ret_theirs)
{
    struct_write(ret_theirs, own, kind->n_bytes);
}
