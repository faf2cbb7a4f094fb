/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the CUDA driver, and what its answers mean. */
#include "device/cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/foreign.h"
#include "device/gpu_image.h"

#define CUDA_FUNCTION(field, symbol, parameters) {#symbol, offsetof(struct cuda, field)},

static const struct foreign_function functions[] = {CUDA_FUNCTIONS(CUDA_FUNCTION)};

#define N_FUNCTIONS ((uint32_t)(sizeof(functions) / sizeof(functions[0])))

/* The branches of the driver, by the newest CUDA that each serves; operators know them by these. */
static const struct {
    int32_t version;
    const char *branch;
} branches[] = {
    {11080, "R520"}, {12000, "R525"}, {12010, "R530"}, {12020, "R535"},
    {12030, "R545"}, {12040, "R550"}, {12050, "R555"}, {12060, "R560"},
    {12070, "R565"}, {12080, "R570"}, {12090, "R575"}, {13000, "R580"},
};

void cuda_version_text(int32_t version, char *ret_text)
{
    const char *branch = NULL;

    for (size_t i = 0; i < sizeof(branches) / sizeof(branches[0]); i++) {
        if (branches[i].version == version) {
            branch = branches[i].branch;
        }
    }
    snprintf(ret_text, CUDA_VERSION_BYTES, "%" PRId32 ".%" PRId32 "%s%s%s", version / 1000,
             version % 1000 / 10, branch == NULL ? "" : " (", branch == NULL ? "" : branch,
             branch == NULL ? "" : ")");
}

static const char *result_name(const struct cuda *cuda, cu_result result, char text[24])
{
    const char *name = NULL;

    if (cuda->error_name(result, &name) == CU_OK && name != NULL) {
        return name;
    }
    snprintf(text, 24, "error %" PRId32, result);
    return text;
}

int32_t cuda_refuse(const struct cuda *cuda, int32_t status, cu_result result, const char *call,
                    const char *what, struct hsdp_error *reterr)
{
    char number[24];

    return error_set(reterr, status, "%s: %s (%s)", call, result_name(cuda, result, number), what);
}

int32_t cuda_check(const struct cuda *cuda, cu_result result, const char *call, const char *what,
                   struct hsdp_error *reterr)
{
    return result == CU_OK ? HSDP_OK
                           : cuda_refuse(cuda, HSDP_ERR_DEVICE, result, call, what, reterr);
}

static int32_t functions_bind(const struct foreign *library, struct cuda *ret,
                              struct hsdp_error *reterr)
{
    char missing[160];
    char version[CUDA_VERSION_BYTES] = "of unknown version";

    if (foreign_bind(library, functions, N_FUNCTIONS, ret, missing, sizeof(missing)) == 0) {
        return HSDP_OK;
    }
    if (ret->driver_version != NULL && ret->driver_version(&ret->version) == CU_OK) {
        cuda_version_text(ret->version, version);
    }
    return error_set(reterr, HSDP_ERR_UNAVAILABLE, "cuda_library: %s, driver %s, lacks %s",
                     ret->path, version, missing);
}

int32_t cuda_check_driver(const struct cuda *cuda, int32_t min_version, struct hsdp_error *reterr)
{
    char found[CUDA_VERSION_BYTES];
    char needed[CUDA_VERSION_BYTES];

    if (cuda->version >= min_version) {
        return HSDP_OK;
    }
    cuda_version_text(cuda->version, found);
    cuda_version_text(min_version, needed);
    return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                     "cuda_library: %s serves CUDA %s; the device code of this build needs %s",
                     cuda->path, found, needed);
}

static int32_t driver_start(struct cuda *cuda, struct hsdp_error *reterr)
{
    cu_result result = cuda->driver_version(&cuda->version);
    int32_t status;

    if (result != CU_OK) {
        return cuda_refuse(cuda, HSDP_ERR_UNAVAILABLE, result, "cuDriverGetVersion", cuda->path,
                           reterr);
    }
    status = cuda_check_driver(cuda, gpu_image_min_driver, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    result = cuda->init(0);
    if (result == CU_OK) {
        return HSDP_OK;
    }
    return cuda_refuse(cuda, HSDP_ERR_UNAVAILABLE, result, "cuInit",
                       result == CU_ERROR_NO_DEVICE ? "no CUDA device that this process may use"
                                                    : cuda->path,
                       reterr);
}

int32_t cuda_load(const char *name, struct cuda *ret, struct hsdp_error *reterr)
{
    struct foreign library;
    int32_t status;

    memset(ret, 0, sizeof(*ret));
    status = foreign_load(name, "cuda_library", &library, reterr);
    if (status == HSDP_OK) {
        memcpy(ret->path, library.path, sizeof(ret->path));
        status = functions_bind(&library, ret, reterr);
    }
    return status == HSDP_OK ? driver_start(ret, reterr) : status;
}
