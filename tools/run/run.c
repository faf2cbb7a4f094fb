/* SPDX-License-Identifier: Apache-2.0 */
/* The clock, memory and plain complaints of hsdp-run. */
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int64_t run_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * RUN_NS_PER_S + now.tv_nsec;
}

void *run_realloc(void *memory, size_t n_bytes)
{
    void *grown = realloc(memory, n_bytes);

    if (grown == NULL) {
        run_complain("cannot allocate %zu bytes", n_bytes);
        exit(RUN_EXIT_LAUNCHER);
    }
    return grown;
}

void run_complain(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    fputs("hsdp-run: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
}
