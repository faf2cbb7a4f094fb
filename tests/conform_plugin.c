/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin of almost nothing, whose describe() does what HOW says: for the runner of the kit. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hsdp/hsdp.h"

#define BEHAVE  0 /* describes itself, as far as it goes */
#define CRASH   1
#define HANG    2
#define WRITE   3
#define EXIT    4
#define LEAVE   5 /* starts a process, and leaves it behind */
#define ABORT   6
#define FLOOD   7
#define BUFFER  8  /* writes to stdout, but only what stays in a buffer until the process ends */
#define SILENCE 9  /* describes nothing, but says that it does */
#define INJECT  10 /* has a sentence of several lines, which is none */
#define DAEMON  11 /* starts a process in a session of its own, and crashes */

#ifndef HOW
#define HOW BEHAVE
#endif

static int32_t text_give(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                         struct hsdp_error *reterr)
{
    static const char text[] = "{\"extensions\":[]}";

    *ret_bytes = sizeof(text);
    if (max_bytes < sizeof(text)) {
        if (reterr != NULL && reterr->struct_size >= sizeof(*reterr)) {
            memset(&reterr->status, 0, sizeof(*reterr) - sizeof(reterr->struct_size));
            reterr->status = HSDP_ERR_BUFFER_TOO_SMALL;
            strcpy(reterr->operation, "describe");
            strcpy(reterr->message, "describe: too small");
        }
        return HSDP_ERR_BUFFER_TOO_SMALL;
    }
    memcpy(ret_text, text, sizeof(text));
    return HSDP_OK;
}

static int32_t plugin_describe(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                               struct hsdp_error *reterr)
{
    if (HOW == CRASH) {
        raise(SIGSEGV);
    }
    if (HOW == ABORT) {
        abort();
    }
    if (HOW == DAEMON && fork() == 0) {
        setsid();
        pause();
    }
    if (HOW == DAEMON) {
        abort();
    }
    if (HOW == INJECT) {
        memset(&reterr->status, 0, sizeof(*reterr) - sizeof(reterr->struct_size));
        reterr->status = HSDP_ERR_STATE;
        strcpy(reterr->operation, "describe");
        strcpy(reterr->message, "a line\nok 77 - \033[31mred");
        return HSDP_ERR_STATE;
    }
    if (HOW == EXIT) {
        exit(0);
    }
    while (HOW == HANG || (HOW == LEAVE && fork() == 0)) {
        pause();
    }
    while (HOW == FLOOD) {
        fputs("a flood of words\n", stderr);
    }
    if (HOW == WRITE) {
        fputs("loud\n", stderr);
    }
    if (HOW == BUFFER) {
        fputs("late", stdout);
    }
    return HOW == SILENCE ? HSDP_OK : text_give(ret_text, max_bytes, ret_bytes, reterr);
}

static int32_t plugin_extension(const char *name, const void **ret_ops, struct hsdp_error *reterr)
{
    (void)name;
    (void)ret_ops;
    (void)reterr;
    return HSDP_ERR_UNSUPPORTED;
}

/* One table for all: none of its functions is called. */
static const struct hsdp_plan_ops empty = {.struct_size = sizeof(empty)};

static const struct hsdp_api api = {
    .struct_size = sizeof(api),
    .abi_major = HSDP_ABI_MAJOR,
    .abi_minor = HSDP_ABI_MINOR,
    .plugin_name = "almost nothing",
    .plugin_version = "7",
    .mesh = (const void *)&empty,
    .job = (const void *)&empty,
    .group = (const void *)&empty,
    .plan = &empty,
    .model = (const void *)&empty,
    .unit = (const void *)&empty,
    .step = (const void *)&empty,
    .diag = (const void *)&empty,
    .describe = plugin_describe,
    .extension = plugin_extension,
};

__attribute__((visibility("default"))) int32_t hsdp_plugin_v1(uint32_t host_major,
                                                              uint32_t host_minor,
                                                              const struct hsdp_api **ret_api,
                                                              struct hsdp_error *reterr);

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr)
{
    (void)host_minor;
    (void)reterr;
#ifdef BROKEN_ENTRY
    raise(SIGSEGV);
#endif
    if (host_major != HSDP_ABI_MAJOR) {
        return HSDP_ERR_VERSION;
    }
    *ret_api = &api;
    return HSDP_OK;
}
