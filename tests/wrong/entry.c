/* SPDX-License-Identifier: Apache-2.0 */
/* The one symbol: loads the good plugin, copies its tables, commits the fault. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "wrong.h"

#define COPY(member)                                                                               \
    do {                                                                                           \
        memcpy(&wrong.member, wrong.real->member, sizeof(wrong.member));                           \
        wrong.member.struct_size = sizeof(wrong.member);                                           \
        wrong.api.member = &wrong.member;                                                          \
    } while (0)

static void tables_copy(void)
{
    memcpy(&wrong.api, wrong.real, sizeof(wrong.api));
    wrong.api.struct_size = sizeof(wrong.api);
    COPY(mesh);
    COPY(job);
    COPY(group);
    COPY(plan);
    COPY(model);
    COPY(unit);
    COPY(step);
    COPY(diag);
}

/* Whether there was nothing to commit, or a fault of that name. */
static int fault_commit(const char *name)
{
    if (name == NULL || name[0] == '\0') {
        return 1;
    }
    for (int list = 0; list < WRONG_N_LISTS; list++) {
        for (uint32_t i = 0; i < wrong_lists[list]->n_faults; i++) {
            if (strcmp(wrong_lists[list]->faults[i].name, name) == 0) {
                wrong_lists[list]->faults[i].commit();
                return 1;
            }
        }
    }
    return 0;
}

static int real_load(void)
{
    const char *path = getenv(WRONG_PLUGIN);
    void *object = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (object == NULL) {
        return 0;
    }
    /* ISO C has no cast from an object to a function. */
    *(void **)&wrong.real_entry = dlsym(object, HSDP_ENTRY_SYMBOL);
    return wrong.real_entry != NULL &&
           wrong.real_entry(HSDP_ABI_MAJOR, HSDP_ABI_MINOR, &wrong.real, NULL) == HSDP_OK;
}

__attribute__((visibility("default"))) int32_t hsdp_plugin_v1(uint32_t host_major,
                                                              uint32_t host_minor,
                                                              const struct hsdp_api **ret_api,
                                                              struct hsdp_error *reterr);

int32_t hsdp_plugin_v1(uint32_t host_major, uint32_t host_minor, const struct hsdp_api **ret_api,
                       struct hsdp_error *reterr)
{
    const struct hsdp_api *api = NULL;
    int32_t status;

    if (wrong.real == NULL) {
        if (!real_load()) {
            return HSDP_ERR_UNAVAILABLE;
        }
        tables_copy();
        if (!fault_commit(getenv(WRONG_FAULT))) {
            return HSDP_ERR_INVALID;
        }
    }
    if (host_major == wrong.accepted_major && host_major != 0) {
        host_major = HSDP_ABI_MAJOR;
    }
    status = wrong.real_entry(host_major, host_minor, ret_api == NULL ? NULL : &api, reterr);
    if (status == HSDP_OK) {
        *ret_api = &wrong.api;
    }
    return status;
}
