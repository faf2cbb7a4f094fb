/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a library, in a child: loading it, its symbols, and versions and devices where known. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, dlinfo */
#endif

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"

/* The libraries whose functions are known: versions can be asked for before anything is started. */
typedef int version_fn(int *ret_version);               /* ncclGetVersion, cuDriverGetVersion */
typedef int count_fn(int *ret_count);                   /* cuDeviceGetCount */
typedef int init_fn(unsigned flags);                    /* cuInit */
typedef int name_fn(int result, const char **ret_name); /* cuGetErrorName */
typedef int text_fn(char *ret_text, int *ret_n_bytes);  /* MPI_Get_library_version */
typedef int device_fn(int *ret_device, int ordinal);    /* cuDeviceGet */
typedef int device_name_fn(char *ret_text, int max_bytes, int device); /* cuDeviceGetName */
typedef int attribute_fn(int *ret_value, int attribute, int device);   /* cuDeviceGetAttribute */

#define CAPABILITY_MAJOR 75 /* attributes */
#define CAPABILITY_MINOR 76
#define MAX_DEVICES      64 /* that are told one by one */

#define MPI_TEXT_BYTES 65536 /* more than any MPI_MAX_LIBRARY_VERSION_STRING */

/* Whether it is the library's own, and not of one that came with it. */
static int function_is_of(void *library, const void *symbol)
{
    struct link_map *map = NULL;
    Dl_info place;

    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && dladdr(symbol, &place) != 0 &&
           strcmp(place.dli_fname, map->l_name) == 0;
}

/* ISO C has no cast from data to function. The address lies at *ret_function. */
static int function_find(void *library, const char *name, void *ret_function, size_t n_bytes)
{
    void *symbol = dlsym(library, name);

    memcpy(ret_function, &symbol, n_bytes);
    return symbol != NULL && function_is_of(library, symbol);
}

/* 22809 is 2.28.9; before 2.9 it was 2804 for 2.8.4. */
static void nccl_tell(int out, void *library)
{
    version_fn *get_version;
    int code = 0;
    char text[48];

    if (!function_find(library, "ncclGetVersion", &get_version, sizeof(get_version))) {
        return;
    }
    child_begin(out, "ncclGetVersion");
    if (get_version(&code) != 0) {
        child_tell(out, "remark", "ncclGetVersion fails");
        return;
    }
    if (code < 10000) {
        snprintf(text, sizeof(text), "%d.%d.%d", code / 1000, code % 1000 / 100, code % 100);
    } else {
        snprintf(text, sizeof(text), "%d.%d.%d", code / 10000, code % 10000 / 100, code % 100);
    }
    child_tell(out, "version", text);
}

/* Tells that a call of the driver fails, with its name for the number where it has one. */
static void driver_refuse(int out, void *library, const char *call, int result)
{
    name_fn *get_name;
    const char *name = NULL;
    char text[160];

    if (function_find(library, "cuGetErrorName", &get_name, sizeof(get_name)) &&
        get_name(result, &name) == 0 && name != NULL) {
        snprintf(text, sizeof(text), "%s answers %s", call, name);
    } else {
        snprintf(text, sizeof(text), "%s answers %d", call, result);
    }
    child_tell(out, "remark", text);
}

/* "NVIDIA H200, sm_90". Makes no context, which would take memory of the device and a while. */
static void device_tell(int out, void *library, int ordinal)
{
    device_fn *get = NULL;
    device_name_fn *get_name = NULL;
    attribute_fn *get_attribute = NULL;
    int device = 0;
    int major = 0;
    int minor = 0;
    char model[128] = "unnamed";
    char name[32];
    char text[192];

    if (!function_find(library, "cuDeviceGet", &get, sizeof(get)) ||
        !function_find(library, "cuDeviceGetAttribute", &get_attribute, sizeof(get_attribute)) ||
        get(&device, ordinal) != 0 || get_attribute(&major, CAPABILITY_MAJOR, device) != 0 ||
        get_attribute(&minor, CAPABILITY_MINOR, device) != 0) {
        return;
    }
    if (function_find(library, "cuDeviceGetName", &get_name, sizeof(get_name))) {
        get_name(model, (int)sizeof(model), device);
        model[sizeof(model) - 1] = '\0';
    }
    snprintf(text, sizeof(text), "%s, sm_%d%d", model, major, minor);
    snprintf(name, sizeof(name), "device.%d", ordinal);
    child_tell(out, name, text);
}

static void devices_tell(int out, void *library)
{
    init_fn *init;
    count_fn *get_count;
    int n_devices = 0;
    int result;
    char text[24];

    if (!function_find(library, "cuInit", &init, sizeof(init)) ||
        !function_find(library, "cuDeviceGetCount", &get_count, sizeof(get_count))) {
        return;
    }
    child_begin(out, "cuInit");
    result = init(0);
    if (result != 0) {
        driver_refuse(out, library, "cuInit", result);
        return;
    }
    child_begin(out, "cuDeviceGetCount");
    result = get_count(&n_devices);
    if (result != 0) {
        driver_refuse(out, library, "cuDeviceGetCount", result);
        return;
    }
    snprintf(text, sizeof(text), "%d", n_devices);
    child_tell(out, "n_devices", text);
    child_begin(out, "cuDeviceGetAttribute");
    for (int i = 0; i < n_devices && i < MAX_DEVICES; i++) {
        device_tell(out, library, i);
    }
}

/* The newest CUDA that the driver serves: 13000 is 13.0. */
static void driver_tell(int out, void *library)
{
    version_fn *get_version;
    int code = 0;
    char text[48];

    if (!function_find(library, "cuDriverGetVersion", &get_version, sizeof(get_version))) {
        return;
    }
    child_begin(out, "cuDriverGetVersion");
    if (get_version(&code) == 0) {
        snprintf(text, sizeof(text), "%d.%d", code / 1000, code % 1000 / 10);
        child_tell(out, "version", text);
    }
    devices_tell(out, library);
}

/* The first line of what an MPI library says of itself. */
static void mpi_tell(int out, void *library)
{
    text_fn *get_version;
    char *text = calloc(1, MPI_TEXT_BYTES + 1);
    int n_bytes = 0;

    if (text != NULL &&
        function_find(library, "MPI_Get_library_version", &get_version, sizeof(get_version))) {
        child_begin(out, "MPI_Get_library_version");
        if (get_version(text, &n_bytes) == 0) {
            text[strcspn(text, ",\n")] = '\0';
            child_tell(out, "version", text);
        }
    }
    free(text);
}

static void symbols_tell(int out, void *library, const json_t *symbols)
{
    char missing[1024] = "";
    size_t n_bytes = 0;

    for (size_t i = 0; i < json_array_size(symbols); i++) {
        const char *name = json_string_value(json_array_get(symbols, i));

        if (name != NULL && dlsym(library, name) == NULL && n_bytes < sizeof(missing)) {
            n_bytes += (size_t)snprintf(missing + n_bytes, sizeof(missing) - n_bytes, "%s%s",
                                        n_bytes == 0 ? "" : ", ", name);
        }
    }
    if (n_bytes > 0) {
        child_tell(out, "missing", missing);
    }
}

static void newer_tell(int out, void *library, const json_t *newer)
{
    for (size_t i = 0; i < json_array_size(newer); i++) {
        const char *symbol = json_string_value(json_object_get(json_array_get(newer, i), "name"));
        char name[96];

        if (symbol != NULL) {
            snprintf(name, sizeof(name), "newer.%.80s", symbol);
            child_tell(out, name, dlsym(library, symbol) == NULL ? "missing" : "found");
        }
    }
}

/* The sentence of dlopen without the name before it, which stands beside it anyway. */
static const char *reason_of(const char *sentence, const char *name)
{
    size_t n = strlen(name);

    if (sentence == NULL) {
        return "cannot be loaded";
    }
    return strncmp(sentence, name, n) == 0 && strncmp(sentence + n, ": ", 2) == 0 ? sentence + n + 2
                                                                                  : sentence;
}

void ask_library(int out, const void *arg)
{
    const json_t *described = arg;
    const char *name = json_string_value(json_object_get(described, "name"));
    struct link_map *map = NULL;
    void *library;

    child_begin(out, "loading");
    library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) {
        child_tell(out, "refusal", reason_of(dlerror(), name));
        return;
    }
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0) {
        child_tell(out, "path", map->l_name);
    }
    symbols_tell(out, library, json_object_get(described, "symbols"));
    newer_tell(out, library, json_object_get(described, "newer_symbols"));
    nccl_tell(out, library);
    driver_tell(out, library);
    mpi_tell(out, library);
    /* never closed: the driver, NCCL and some MPIs cannot be; the process ends instead */
}
