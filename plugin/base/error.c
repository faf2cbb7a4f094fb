/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: filling a caller's struct hsdp_error. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static void text_copy(char *dst, size_t max_bytes, const char *src)
{
    if (src != NULL) {
        snprintf(dst, max_bytes, "%s", src);
    }
}

int32_t error_set(struct hsdp_error *reterr, int32_t status, const char *format, ...)
{
    va_list args;
    struct hsdp_error fresh;

    if (reterr == NULL) {
        return status;
    }
    memset(&fresh, 0, sizeof(fresh));
    fresh.struct_size = sizeof(fresh);
    fresh.status = status;
    va_start(args, format);
    text_format(fresh.message, sizeof(fresh.message), format, args);
    va_end(args);
    *reterr = fresh; /* last: an argument may point into *reterr */
    return status;
}

void error_where(struct hsdp_error *reterr, const char *operation, const char *group,
                 const char *unit)
{
    if (reterr == NULL) {
        return;
    }
    text_copy(reterr->operation, sizeof(reterr->operation), operation);
    text_copy(reterr->group, sizeof(reterr->group), group);
    text_copy(reterr->unit, sizeof(reterr->unit), unit);
}

const char *error_name(int32_t status)
{
    static const char *const names[] = {
        "OK",          "INVALID",        "VERSION",          "UNSUPPORTED", "NO_MEMORY",
        "TIMEOUT",     "PEER_LOST",      "MISMATCH",         "ABORTED",     "STATE",
        "UNAVAILABLE", "ADDRESS_IN_USE", "DEVICE",           "FORKED",      "BUSY",
        "NONFINITE",   "NOT_MEMBER",     "BUFFER_TOO_SMALL", "DRIFT",       "DEFECT",
    };
    int64_t index = -(int64_t)status;

    if (status == HSDP_PENDING) {
        return "PENDING";
    }
    if (index < 0 || index >= (int64_t)(sizeof(names) / sizeof(names[0]))) {
        return "UNKNOWN";
    }
    return names[index];
}

int error_fails_job(int32_t status)
{
    return status == HSDP_ERR_TIMEOUT || status == HSDP_ERR_PEER_LOST ||
           status == HSDP_ERR_MISMATCH || status == HSDP_ERR_DEVICE;
}
