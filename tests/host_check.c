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

static void device_fail(void *user, const char *sentence)
{
    (void)user;
    host_fail("%s", sentence);
}

/* With HSDP_TEST_DEVICE=cuda jobs are on a device, one for each rank; HSDP_BACKEND goes with it. */
static void device_prepare(void)
{
    const char *device = getenv("HSDP_TEST_DEVICE");
    const char *library = getenv("HSDP_CUDA_LIBRARY");
    const char *rank = getenv("RANK");
    struct device_use use = {.library = "libcuda.so.1", .fail = device_fail};
    char reason[256];

    if (device == NULL || device_is_used()) {
        return;
    }
    ck_assert_str_eq(device, "cuda");
    use.library = library == NULL ? use.library : library;
    use.ordinal = rank == NULL ? 0 : atoi(rank);
    device_use(&use);
    ck_assert_msg(device_open(reason, sizeof(reason)), "%s", reason);
}

/* Ours has built everything. */
void host_needs(enum host_need need, const char *text)
{
    (void)text;
    if (need == HOST_TRANSPORT) {
        device_prepare();
    }
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
