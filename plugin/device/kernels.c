/* SPDX-License-Identifier: Apache-2.0 */
/* Which paths this CPU can run, and the choice of one. */
#include "device/kernels.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "device/kernels_table.h"

/* Whoever can run one can run all before it. */
static const struct kernels *const tables[] = {
    &kernels_table,
#ifdef HSDP_X86_PATHS
    &kernels_table_avx2,
    &kernels_table_avx512,
#endif
};

/* What the build tells the compiler to use on each path. Whether the system saves the wide
 * registers is part of the answer. */
uint32_t kernels_n_paths(void)
{
#ifdef HSDP_X86_PATHS
    if (!__builtin_cpu_supports("avx2")) {
        return 1;
    }
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
        return 2;
    }
#endif
    return sizeof(tables) / sizeof(tables[0]);
}

const struct kernels *kernels_path(uint32_t index)
{
    assert(index < kernels_n_paths());
    return tables[index];
}

static int32_t path_refuse(const char *path, uint32_t n_paths, struct hsdp_error *reterr)
{
    struct text known = TEXT_INIT;
    int32_t status;

    for (uint32_t i = 0; i < n_paths; i++) {
        text_add(&known, "%s%s", i == 0 ? "" : ", ", kernels_path(i)->path);
    }
    status = error_set(reterr, HSDP_ERR_UNAVAILABLE,
                       "cpu_path: %s is not there, in this build on this processor; it has %s",
                       path, known.is_failed ? "others" : known.chars);
    text_fini(&known);
    return status;
}

int32_t kernels_choose(const char *path, uint32_t n_paths, const struct kernels **ret_kernels,
                       struct hsdp_error *reterr)
{
    if (strcmp(path, "auto") == 0) {
        *ret_kernels = kernels_path(n_paths - 1);
        return HSDP_OK;
    }
    for (uint32_t i = 0; i < n_paths; i++) {
        if (strcmp(kernels_path(i)->path, path) == 0) {
            *ret_kernels = kernels_path(i);
            return HSDP_OK;
        }
    }
    return path_refuse(path, n_paths, reterr);
}
