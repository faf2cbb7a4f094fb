/* SPDX-License-Identifier: Apache-2.0 */
/* Intake: the one place where sizes of structs are compared. */
#include "intake.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

int32_t intake_check(const struct intake_kind *kind, struct intake_source source,
                     const void *theirs, struct hsdp_error *reterr)
{
    size_t n_bytes;

    if (theirs == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: %s is NULL", source.call, source.name);
    }
    memcpy(&n_bytes, theirs, sizeof(n_bytes));
    if (n_bytes < kind->n_bytes_1_0 || n_bytes > INTAKE_MAX_BYTES) {
        return error_set(reterr, HSDP_ERR_VERSION,
                         "%s: %s.struct_size is %zu; ABI 1.0 has %zu, this plugin (ABI %u.%u) %zu",
                         source.call, source.name, n_bytes, kind->n_bytes_1_0, HSDP_ABI_MAJOR,
                         HSDP_ABI_MINOR, kind->n_bytes);
    }
    return HSDP_OK;
}

/* What a newer host has behind the fields of this plugin: zero means "as before". */
static int32_t tail_check(const struct intake_kind *kind, struct intake_source source,
                          const unsigned char *theirs, size_t n_bytes, struct hsdp_error *reterr)
{
    for (size_t i = kind->n_bytes; i < n_bytes; i++) {
        if (theirs[i] != 0) {
            return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                             "%s: %s sets a field at byte %zu; this plugin (ABI %u.%u) knows %zu",
                             source.call, source.name, i, HSDP_ABI_MAJOR, HSDP_ABI_MINOR,
                             kind->n_bytes);
        }
    }
    return HSDP_OK;
}

static int32_t reserved_check(const struct intake_kind *kind, struct intake_source source,
                              const unsigned char *ours, struct hsdp_error *reterr)
{
    uint32_t reserved = 0;

    if (kind->reserved_offset != 0) {
        memcpy(&reserved, ours + kind->reserved_offset, sizeof(reserved));
    }
    if (reserved != 0) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED, "%s: %s.reserved is %" PRIu32 ", not 0",
                         source.call, source.name, reserved);
    }
    return HSDP_OK;
}

int32_t intake(const struct intake_kind *kind, struct intake_source source, const void *theirs,
               void *ret_ours, struct hsdp_error *reterr)
{
    unsigned char *ours = ret_ours;
    size_t n_bytes;
    size_t n_known;
    int32_t status;

    status = intake_check(kind, source, theirs, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    memcpy(&n_bytes, theirs, sizeof(n_bytes));
    status = tail_check(kind, source, theirs, n_bytes, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    n_known = smaller(n_bytes, kind->n_bytes);
    memcpy(ours, theirs, n_known);
    memset(ours + n_known, 0, kind->n_bytes - n_known);
    memcpy(ours, &kind->n_bytes, sizeof(kind->n_bytes));
    return reserved_check(kind, source, ours, reterr);
}

void outtake(const struct intake_kind *kind, const void *ours, void *ret_theirs)
{
    unsigned char *theirs = ret_theirs;
    size_t n_bytes;
    size_t n_known;

    memcpy(&n_bytes, theirs, sizeof(n_bytes));
    n_known = smaller(n_bytes, kind->n_bytes);
    memcpy(theirs + sizeof(n_bytes), (const unsigned char *)ours + sizeof(n_bytes),
           n_known - sizeof(n_bytes));
    memset(theirs + n_known, 0, n_bytes - n_known);
}
