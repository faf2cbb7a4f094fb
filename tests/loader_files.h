/* SPDX-License-Identifier: Apache-2.0 */
/* Folders with good and wrong plugins, for the suites of the loader. */
#ifndef TESTS_LOADER_FILES_H
#define TESTS_LOADER_FILES_H

#include <stddef.h>

#include "hsdp/loader.h"

/* As in fake_plugin.c. */
enum fake {
    FAKE_GOOD,
    FAKE_NO_SYMBOL,
    FAKE_MAJOR_2,
    FAKE_REFUSES,
    FAKE_POSITIVE,
    FAKE_NO_TABLE,
    FAKE_HOLE,
    FAKE_SHORT_TABLE,
    FAKE_OTHER_TABLE,
    FAKE_UNDEFINED,
    FAKE_NEWER,
    N_FAKES,
};

extern char loader_here[];      /* a folder of the test */
extern char loader_installed[]; /* stands for $libdir/hsdp; the test makes it */
extern struct hsdp_error loader_err;

/* Fixtures: the first two once for all tests, the third for each. */
void loader_files_open(void); /* compiles the fakes */
void loader_files_close(void);
void loader_test_open(void);

/* A path in one of 64 static buffers, used in turn: more than a test asks for. */
const char *path_in(const char *folder, const char *name);

/* Runs a command, which has to succeed. */
void shell_run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A copy of a fake plugin, readable by all and writable by its owner. */
const char *plugin_put(enum fake fake, const char *folder, const char *name);
/* A folder, or a file with bytes, in the folder of the test. */
const char *folder_put(const char *name);
const char *file_put(const char *name, const void *bytes, size_t n_bytes);
/* Overwrites bytes of a file. */
void file_patch(const char *path, long offset, const void *bytes, size_t n_bytes);

/* Loads by path and strategy, each may be NULL; the error is in loader_err. */
int32_t loader_load(const char *path, const char *strategy, hsdp_plugin **ret_plugin);
/* Expects that this loads the file `wanted`. */
void expect_loaded(const char *path, const char *strategy, const char *wanted);
/* Expects a refusal that names the file and tells the reason. */
void expect_refused(const char *path, int32_t status, const char *reason);

#endif /* TESTS_LOADER_FILES_H */
