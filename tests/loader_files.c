/* SPDX-License-Identifier: Apache-2.0 */
/* Folders with good and wrong plugins; and the loader, as a host copies it in. */
#include "loader_files.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *installed_folder(void);

#define HSDP_PLUGIN_DIR installed_folder()
#include "loader/loader.c"

#define FOLDER_MAX 512

static char room[FOLDER_MAX / 4]; /* a folder of this run, for everything */
char loader_here[FOLDER_MAX / 2];
char loader_installed[FOLDER_MAX];
struct hsdp_error loader_err;

static const char *installed_folder(void)
{
    return loader_installed;
}

const char *path_in(const char *folder, const char *name)
{
    static char paths[64][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 64];

    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

void shell_run(const char *format, ...)
{
    char command[4 * PATH_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static const char *fake_path(enum fake fake)
{
    char name[32];

    snprintf(name, sizeof(name), "fake%d", (int)fake);
    return path_in(room, name);
}

const char *plugin_put(enum fake fake, const char *folder, const char *name)
{
    const char *path = path_in(folder, name);

    shell_run("cp '%s' '%s'", fake_path(fake), path);
    ck_assert_int_eq(chmod(path, 0755), 0);
    return path;
}

const char *folder_put(const char *name)
{
    const char *path = path_in(loader_here, name);

    ck_assert_int_eq(mkdir(path, 0755), 0);
    return path;
}

const char *file_put(const char *name, const void *bytes, size_t n_bytes)
{
    const char *path = path_in(loader_here, name);
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n_bytes, file), n_bytes);
    fclose(file);
    return path;
}

void file_patch(const char *path, long offset, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "r+");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, offset, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(bytes, 1, n_bytes, file), n_bytes);
    fclose(file);
}

/* Compiles a fake with the compiler of the build. */
static void fake_compile(enum fake fake)
{
    const char *cc = getenv("CC");
    const char *srcdir = getenv("HSDP_TEST_SRCDIR");

    ck_assert_msg(srcdir != NULL, "HSDP_TEST_SRCDIR does not name the folder of the tests");
    shell_run("%s -DFAKE=%d -I'%s/../include' '%s/fake_plugin.c' -shared -fPIC -o '%s'",
              cc == NULL ? "cc" : cc, (int)fake, srcdir, srcdir, fake_path(fake));
}

void loader_files_open(void)
{
    const char *folder = getenv("TMPDIR");

    snprintf(room, sizeof(room), "%s/hsdp-loader-XXXXXX", folder == NULL ? "/tmp" : folder);
    ck_assert_ptr_nonnull(mkdtemp(room));
    for (int fake = 0; fake < N_FAKES; fake++) {
        fake_compile((enum fake)fake);
    }
}

void loader_files_close(void)
{
    shell_run("rm -rf '%s'", room);
}

void loader_test_open(void)
{
    unsetenv("HSDP_PLUGIN");
    unsetenv("HSDP_PLUGIN_PATH");
    snprintf(loader_here, sizeof(loader_here), "%s/test-XXXXXX", room);
    ck_assert_ptr_nonnull(mkdtemp(loader_here));
    snprintf(loader_installed, sizeof(loader_installed), "%s/installed", loader_here);
    loader_err = (struct hsdp_error)HSDP_ERROR_INIT;
}

int32_t loader_load(const char *path, const char *strategy, hsdp_plugin **ret_plugin)
{
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;

    spec.path = path;
    spec.strategy = strategy;
    return hsdp_plugin_load(&spec, ret_plugin, &loader_err);
}

void expect_loaded(const char *path, const char *strategy, const char *wanted)
{
    hsdp_plugin *plugin = NULL;

    ck_assert_msg(loader_load(path, strategy, &plugin) == HSDP_OK, "%s", loader_err.message);
    ck_assert_str_eq(hsdp_plugin_path(plugin), wanted);
    ck_assert_str_eq(hsdp_plugin_api(plugin)->plugin_name, "fake");
    hsdp_plugin_unload(plugin);
}

void expect_refused(const char *path, int32_t status, const char *reason)
{
    hsdp_plugin *plugin = NULL;

    ck_assert_int_eq(loader_load(path, NULL, &plugin), status);
    ck_assert_ptr_null(plugin);
    ck_assert_int_eq(loader_err.status, status);
    ck_assert_str_eq(loader_err.operation, "load");
    ck_assert_msg(strstr(loader_err.message, path) != NULL, "%s", loader_err.message);
    ck_assert_msg(strstr(loader_err.message, reason) != NULL, "%s", loader_err.message);
}
