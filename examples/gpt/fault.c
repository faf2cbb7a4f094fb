/* SPDX-License-Identifier: Apache-2.0 */
/* How hsdp-gpt reports what went wrong. */
#include "fault.h"

#include <stdarg.h>
#include <stdio.h>

int fault_set(struct fault *ret_fault, int kind, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    vsnprintf(ret_fault->text, sizeof(ret_fault->text), format, values);
    va_end(values);
    return kind;
}

int fault_exit_status(int kind)
{
    return kind == FAULT_PLACE ? FAULT_CONFIG : kind;
}
