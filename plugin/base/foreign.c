/* SPDX-License-Identifier: Apache-2.0 */
/* Loading libraries of others by the dynamic linker. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dlinfo */
#endif

#include "base/foreign.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define NAMED_MISSING 3u /* functions that a sentence names */

/* The linker's sentence without the name before it, which stands beside it anyway. */
static const char *reason_of(const char *sentence, const char *name)
{
    size_t n = strlen(name);

    if (sentence == NULL) {
        return "the linker gives no reason";
    }
    return strncmp(sentence, name, n) == 0 && strncmp(sentence + n, ": ", 2) == 0 ? sentence + n + 2
                                                                                  : sentence;
}

int32_t foreign_load(const char *name, const char *setting, struct foreign *ret,
                     struct hsdp_error *reterr)
{
    struct link_map *map = NULL;

    memset(ret, 0, sizeof(*ret));
    ret->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (ret->handle == NULL) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "%s: %.200s cannot be loaded: %s", setting,
                         name, reason_of(dlerror(), name));
    }
    if (dlinfo(ret->handle, RTLD_DI_LINKMAP, &map) != 0 || map->l_name[0] == '\0') {
        snprintf(ret->path, sizeof(ret->path), "%s", name);
        return HSDP_OK;
    }
    snprintf(ret->path, sizeof(ret->path), "%s", map->l_name);
    return HSDP_OK;
}

static void missing_add(char *missing, size_t max_bytes, const char *symbol, uint32_t n_before)
{
    size_t n_bytes = strlen(missing);

    if (n_before < NAMED_MISSING && n_bytes < max_bytes) {
        snprintf(missing + n_bytes, max_bytes - n_bytes, "%s%s", n_before == 0 ? "" : ", ", symbol);
    }
}

uint32_t foreign_bind(const struct foreign *foreign, const struct foreign_function *functions,
                      uint32_t n_functions, void *table, char *ret_missing, size_t max_bytes)
{
    uint32_t n_missing = 0;
    size_t n_bytes;

    ret_missing[0] = '\0';
    for (uint32_t i = 0; i < n_functions; i++) {
        void *address = dlsym(foreign->handle, functions[i].symbol);

        /* ISO C has no cast from data to function */
        memcpy((char *)table + functions[i].offset, &address, sizeof(address));
        if (address == NULL) {
            missing_add(ret_missing, max_bytes, functions[i].symbol, n_missing);
            n_missing++;
        }
    }
    n_bytes = strlen(ret_missing);
    if (n_missing > NAMED_MISSING) {
        snprintf(ret_missing + n_bytes, max_bytes - n_bytes, " and %" PRIu32 " more",
                 n_missing - NAMED_MISSING);
    }
    return n_missing;
}
