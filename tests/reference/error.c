/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: filling the struct of a host of any version. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "intake.h"

static const struct intake error_intake = {"reterr", 776, sizeof(struct hsdp_error)};

/* True for a struct that can be filled: one shorter than ABI 1.0's is left alone. */
static bool error_is_wanted(const struct hsdp_error *reterr)
{
    const struct call silent = {"", NULL};

    return intake_check(&silent, &error_intake, reterr) == HSDP_OK;
}

int32_t error_pass(const struct call *call, const struct hsdp_error *error)
{
    struct hsdp_error full = *error;

    if (call->reterr == NULL || !error_is_wanted(call->reterr)) {
        return full.status;
    }
    if (full.operation[0] == '\0') {
        snprintf(full.operation, sizeof(full.operation), "%s", call->name);
    }
    intake_give(&error_intake, &full, call->reterr);
    return full.status;
}

int32_t error_raise(const struct call *call, int32_t status, const char *format, ...)
{
    struct hsdp_error error = HSDP_ERROR_INIT;
    va_list args;

    error.status = status;
    va_start(args, format);
    vsnprintf(error.message, sizeof(error.message), format, args);
    va_end(args);
    return error_pass(call, &error);
}

bool call_has(const struct call *call, const char *argument, const void *pointer)
{
    if (pointer == NULL) {
        error_raise(call, HSDP_ERR_INVALID, "%s: %s is NULL", call->name, argument);
    }
    return pointer != NULL;
}

bool call_has_array(const struct call *call, const char *argument, const void *array, uint64_t n)
{
    return n == 0 || call_has(call, argument, array);
}

int32_t stream_check(const struct call *call, const void *stream)
{
    return stream == NULL ? HSDP_OK
                          : error_raise(call, HSDP_ERR_INVALID,
                                        "%s: a stream, where a CPU has only NULL", call->name);
}
