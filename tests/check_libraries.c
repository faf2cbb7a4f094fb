/* SPDX-License-Identifier: Apache-2.0 */
/* Finding libraries without loading them: by path, among those loaded, in ld.so.cache; devices. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/libraries.h"
#include "suite.h"

static char folder[] = "/tmp/hsdp-libraries-XXXXXX";
static char path[128];
static struct library_file found;

static void folder_make(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void folder_remove(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    unsetenv("HSDP_TEST_LIBRARY");
}

/* A file that begins as this program does, with one byte of that changed. */
static void file_make(const char *name, size_t changed)
{
    char bytes[512];
    int own = open("/proc/self/exe", O_RDONLY);
    int fd;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    ck_assert_int_eq(read(own, bytes, sizeof(bytes)), (ssize_t)sizeof(bytes));
    if (changed < sizeof(bytes)) {
        bytes[changed] ^= 0x15;
    }
    ck_assert_int_eq(write(fd, bytes, sizeof(bytes)), (ssize_t)sizeof(bytes));
    close(own);
    close(fd);
    setenv("HSDP_TEST_LIBRARY", path, 1);
}

#define UNCHANGED SIZE_MAX

static const struct library named_by_variable = {
    .names = "libhsdp-nobody-has-this.so.1 libhsdp-nor-this.so.1", .variable = "HSDP_TEST_LIBRARY"};

START_TEST(library_find_path_of_the_environment_is_taken)
{
    file_make("other.so", UNCHANGED);
    library_find(&named_by_variable, &found);
    ck_assert_str_eq(found.name, path);
    ck_assert_str_eq(found.path, path);
    ck_assert_str_eq(found.version, "");
}
END_TEST

START_TEST(library_find_version_is_that_of_the_linked_file)
{
    char link[128];

    file_make("libx.so.2.28.9", UNCHANGED);
    snprintf(link, sizeof(link), "%s/libx.so.2", folder);
    ck_assert_int_eq(symlink("libx.so.2.28.9", link), 0);
    setenv("HSDP_TEST_LIBRARY", link, 1);
    library_find(&named_by_variable, &found);
    ck_assert_str_eq(found.path, link);
    ck_assert_str_eq(found.version, "2.28.9");
}
END_TEST

START_TEST(library_find_version_of_one_number_is_not_told)
{
    file_make("libx.so.2", UNCHANGED);
    library_find(&named_by_variable, &found);
    ck_assert_str_eq(found.path, path);
    ck_assert_str_eq(found.version, "");
}
END_TEST

/* Byte 0: no ELF file; 4: 32 bits; 18: another machine. */
START_TEST(library_find_file_of_another_kind_is_passed_over)
{
    static const size_t changed[] = {0, 4, 18};

    file_make("libx.so.2", changed[_i]);
    library_find(&named_by_variable, &found);
    ck_assert_str_eq(found.path, "");
    ck_assert_str_eq(found.name, path);
}
END_TEST

START_TEST(library_find_nowhere_has_the_preferred_name)
{
    library_find(&named_by_variable, &found);
    ck_assert_str_eq(found.path, "");
    ck_assert_str_eq(found.name, "libhsdp-nobody-has-this.so.1");
}
END_TEST

START_TEST(library_find_second_name_that_is_loaded_is_found)
{
    static const struct library libc = {.names = "libhsdp-nobody-has-this.so.1 libc.so.6"};

    library_find(&libc, &found);
    ck_assert_str_eq(found.name, "libc.so.6");
    ck_assert_ptr_nonnull(strstr(found.path, "/libc"));
}
END_TEST

/* ------------------------------------------------------------------------------ ld.so.cache */

static char cache[512];
static size_t n_cache_bytes;

/* Entries "liba" and "libb", with one path and two paths; `before` bytes of something stand first.
 */
static void cache_make(size_t before)
{
    static const char strings[] = "liba\0/a/liba\0libb\0/b/libb\0/c/libb";
    static const uint32_t places[3][2] = {{0, 5}, {13, 18}, {13, 26}};
    const uint32_t head[] = {3, sizeof(strings), 0, 0, 0, 0, 0};
    char *at = cache + before;

    memset(cache, 'x', sizeof(cache));
    memcpy(at, "glibc-ld.so.cache1.1", 20);
    memcpy(at + 20, head, sizeof(head));
    for (int i = 0; i < 3; i++) {
        const uint32_t entry[6] = {3, 120 + places[i][0], 120 + places[i][1], 0, 0, 0};

        memcpy(at + 48 + 24 * i, entry, sizeof(entry));
    }
    memcpy(at + 120, strings, sizeof(strings));
    n_cache_bytes = before + 120 + sizeof(strings);
}

START_TEST(cache_path_each_path_of_a_name_is_found)
{
    const char *at = NULL;

    cache_make((size_t)_i * 100);
    ck_assert(library_cache_path(cache, n_cache_bytes, "liba", 0, &at));
    ck_assert_str_eq(at, "/a/liba");
    ck_assert(!library_cache_path(cache, n_cache_bytes, "liba", 1, &at));
    ck_assert(library_cache_path(cache, n_cache_bytes, "libb", 0, &at));
    ck_assert_str_eq(at, "/b/libb");
    ck_assert(library_cache_path(cache, n_cache_bytes, "libb", 1, &at));
    ck_assert_str_eq(at, "/c/libb");
    ck_assert(!library_cache_path(cache, n_cache_bytes, "lib", 0, &at));
}
END_TEST

/* A copy of exactly that size, so that a sanitizer sees what reads past it. */
START_TEST(cache_path_cut_anywhere_finds_nothing_outside)
{
    cache_make(0);
    for (size_t n = 0; n < n_cache_bytes; n++) {
        char *cut = malloc(n == 0 ? 1 : n);
        const char *at = NULL;

        memcpy(cut, cache, n);
        if (library_cache_path(cut, n, "libb", 1, &at)) {
            ck_assert(at >= cut && at + strlen(at) < cut + n);
        }
        ck_assert(!library_cache_path(cut, n, "libb", 1, &at) || n == n_cache_bytes);
        free(cut);
    }
}
END_TEST

START_TEST(cache_path_garbage_numbers_find_nothing)
{
    const char *at = NULL;

    cache_make(0);
    memset(cache + 20, 0xff, 4);     /* more entries than there are bytes */
    memset(cache + 48 + 4, 0xff, 8); /* the first one's strings are elsewhere */
    memset(cache + 72 + 8, 0xff, 4); /* the second one's path is */
    ck_assert(!library_cache_path(cache, n_cache_bytes, "liba", 0, &at));
    ck_assert(!library_cache_path(cache, n_cache_bytes, "libb", 0, &at));
    ck_assert(!library_cache_path("x", 1, "libb", 0, &at));
}
END_TEST

/* ---------------------------------------------------------------------------------- devices */

START_TEST(count_devices_only_numbered_files_count)
{
    static const char *const names[] = {"nvidia0",    "nvidia12", "nvidiactl",
                                        "nvidia-uvm", "nvidia",   "xnvidia1"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        file_make(names[i], UNCHANGED);
    }
    ck_assert_uint_eq(library_count_devices(folder), 2);
    ck_assert_uint_eq(library_count_devices("/nowhere"), 0);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("libraries");
    TCase *tcase = tcase_create("libraries");

    tcase_add_checked_fixture(tcase, folder_make, folder_remove);
    tcase_add_test(tcase, library_find_path_of_the_environment_is_taken);
    tcase_add_test(tcase, library_find_version_is_that_of_the_linked_file);
    tcase_add_test(tcase, library_find_version_of_one_number_is_not_told);
    tcase_add_loop_test(tcase, library_find_file_of_another_kind_is_passed_over, 0, 3);
    tcase_add_test(tcase, library_find_nowhere_has_the_preferred_name);
    tcase_add_test(tcase, library_find_second_name_that_is_loaded_is_found);
    tcase_add_loop_test(tcase, cache_path_each_path_of_a_name_is_found, 0, 2);
    tcase_add_test(tcase, cache_path_cut_anywhere_finds_nothing_outside);
    tcase_add_test(tcase, cache_path_garbage_numbers_find_nothing);
    tcase_add_test(tcase, count_devices_only_numbered_files_count);
    suite_add_tcase(suite, tcase);
    return suite;
}
