/* SPDX-License-Identifier: Apache-2.0 */
/* What the host of tools/conform asks of a program: here a failure is one of Check. */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

void host_fail(const char *format, ...)
{
    char text[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    ck_abort_msg("%s", text);
    abort(); /* never reached */
}

/* Where a test hangs is seen by other means. */
void host_enter(const char *call)
{
    (void)call;
}

/* Ours has built everything. */
void host_needs(enum host_need need, const char *text)
{
    (void)need;
    (void)text;
}

void host_unsupported(const char *call, const char *sentence)
{
    host_fail("%s: %s", call, sentence);
}

const char *host_plugin_path(void)
{
    const char *path = getenv("HSDP_TEST_PLUGIN");

    ck_assert_msg(path != NULL, "HSDP_TEST_PLUGIN names no plugin");
    return path;
}
