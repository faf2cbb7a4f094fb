/* SPDX-License-Identifier: Apache-2.0 */
/* Making libraries that stand in for NCCL and the CUDA driver. */
#include "stand_in.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/hsdp-stand-in-XXXXXX";
static char path[128];

void stand_in_begin(void)
{
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

void stand_in_end(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

const char *stand_in_path(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

const char *stand_in_build(const char *name, const char *options)
{
    const char *compiler = getenv("CC");
    const char *source = getenv("HSDP_TEST_SRCDIR");
    char command[2048];

    ck_assert_ptr_nonnull(source);
    snprintf(command, sizeof(command),
             "%s -shared -fPIC -w %s -I%s/../plugin -I%s/../include -o %s/%s %s/info_library.c",
             compiler == NULL ? "cc" : compiler, options, source, source, folder, name, source);
    ck_assert_msg(system(command) == 0, "%s", command);
    return stand_in_path(name);
}

const char *double_path(const char *name)
{
    static char found[512];
    const char *doubles = getenv("HSDP_TEST_DOUBLES");

    ck_assert_ptr_nonnull(doubles);
    snprintf(found, sizeof(found), "%s/%s", doubles, name);
    return found;
}

uint64_t double_races(void)
{
    void *library = dlopen(double_path("libcuda.so.1"), RTLD_NOW | RTLD_NOLOAD);
    uint64_t (*n_races)(void) = NULL;
    void *symbol;

    ck_assert_ptr_nonnull(library);
    symbol = dlsym(library, "double_n_races");
    ck_assert_ptr_nonnull(symbol);
    memcpy(&n_races, &symbol, sizeof(symbol)); /* ISO C has no cast from data to function */
    return n_races();
}

const char *stand_in_write(const char *name, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(stand_in_path(name), "wbe");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n_bytes, file), n_bytes);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}
