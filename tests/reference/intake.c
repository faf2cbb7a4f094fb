/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that cross the border: the only file that looks at struct_size. */
#include "intake.h"

#include <inttypes.h>
#include <string.h>

static size_t size_of(const void *theirs)
{
    size_t n_bytes;

    memcpy(&n_bytes, theirs, sizeof(n_bytes));
    return n_bytes;
}

int32_t intake_check(const struct call *call, const struct intake *intake, const void *theirs)
{
    if (!call_has(call, intake->argument, theirs)) {
        return HSDP_ERR_INVALID;
    }
    if (size_of(theirs) < intake->first_bytes || size_of(theirs) > MOST_STRUCT_BYTES) {
        return error_raise(call, HSDP_ERR_VERSION,
                           "%s: %s.struct_size is %zu; ABI 1.0 has %zu, this plugin, of ABI "
                           "%u.%u, %zu",
                           call->name, intake->argument, size_of(theirs), intake->first_bytes,
                           HSDP_ABI_MAJOR, HSDP_ABI_MINOR, intake->known_bytes);
    }
    return HSDP_OK;
}

int32_t intake_take(const struct call *call, const struct intake *intake, const void *theirs,
                    void *ret_ours)
{
    const unsigned char *bytes = theirs;
    int32_t status = intake_check(call, intake, theirs);
    size_t n_bytes;

    if (status != HSDP_OK) {
        return status;
    }
    n_bytes = size_of(theirs);
    for (size_t i = intake->known_bytes; i < n_bytes; i++) {
        if (bytes[i] != 0) {
            return error_raise(call, HSDP_ERR_UNSUPPORTED,
                               "%s: %s sets byte %zu; this plugin, of ABI %u.%u, knows %zu",
                               call->name, intake->argument, i, HSDP_ABI_MAJOR, HSDP_ABI_MINOR,
                               intake->known_bytes);
        }
    }
    memset(ret_ours, 0, intake->known_bytes);
    memcpy(ret_ours, theirs, n_bytes < intake->known_bytes ? n_bytes : intake->known_bytes);
    memcpy(ret_ours, &intake->known_bytes, sizeof(intake->known_bytes));
    return HSDP_OK;
}

int32_t intake_reserved(const struct call *call, const struct intake *intake, uint32_t reserved)
{
    if (reserved != 0) {
        return error_raise(call, HSDP_ERR_UNSUPPORTED, "%s: %s.reserved is %" PRIu32 ", not 0",
                           call->name, intake->argument, reserved);
    }
    return HSDP_OK;
}

void intake_give(const struct intake *intake, const void *ours, void *ret_theirs)
{
    size_t n_bytes = size_of(ret_theirs);
    unsigned char *theirs = ret_theirs;

    if (n_bytes > intake->known_bytes) {
        memset(theirs + intake->known_bytes, 0, n_bytes - intake->known_bytes);
        n_bytes = intake->known_bytes;
    }
    memcpy(theirs + sizeof(size_t), (const unsigned char *)ours + sizeof(size_t),
           n_bytes - sizeof(size_t)); /* struct_size stays the host's */
}
