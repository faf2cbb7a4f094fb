/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: every reason for which it refuses a file that is there. */
#include <check.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader_files.h"
#include "suite.h"

/* ------------------------------------------------------------------------------- explicit files */

START_TEST(load_good_file_is_loaded)
{
    const char *path = plugin_put(FAKE_GOOD, loader_here, "any-name");

    expect_loaded(path, NULL, path);
    expect_loaded(path, NULL, path); /* again after unloading */
}
END_TEST

START_TEST(load_plugin_of_a_newer_minor_is_loaded)
{
    const char *path = plugin_put(FAKE_NEWER, loader_here, "newer.so");

    expect_loaded(path, NULL, path);
}
END_TEST

START_TEST(load_missing_file_is_refused)
{
    expect_refused(path_in(loader_here, "none.so"), HSDP_ERR_UNAVAILABLE,
                   "No such file or directory");
    ck_assert_ptr_nonnull(strstr(loader_err.message, "given by the caller"));
}
END_TEST

START_TEST(load_relative_name_is_one_of_the_current_folder)
{
    plugin_put(FAKE_GOOD, loader_here, "hsdp.so");
    ck_assert_int_eq(chdir(loader_here), 0);
    expect_loaded("hsdp.so", NULL, path_in(loader_here, "hsdp.so"));
    expect_loaded("./hsdp.so", NULL, path_in(loader_here, "hsdp.so"));
    expect_refused("libc.so.6", HSDP_ERR_UNAVAILABLE, "No such file or directory");
}
END_TEST

START_TEST(load_link_is_followed)
{
    const char *target = plugin_put(FAKE_GOOD, loader_here, "target.so");
    const char *name = path_in(loader_here, "link.so");

    ck_assert_int_eq(symlink("target.so", name), 0);
    expect_loaded(name, NULL, target);
    ck_assert_int_eq(unlink(target), 0);
    expect_refused(name, HSDP_ERR_UNAVAILABLE, "No such file or directory");
}
END_TEST

START_TEST(load_twice_gives_two_that_are_unloaded_apart)
{
    const char *path = plugin_put(FAKE_GOOD, loader_here, "hsdp.so");
    hsdp_plugin *first = NULL;
    hsdp_plugin *second = NULL;

    ck_assert_int_eq(loader_load(path, NULL, &first), HSDP_OK);
    ck_assert_int_eq(loader_load(path, NULL, &second), HSDP_OK);
    hsdp_plugin_unload(first);
    ck_assert_str_eq(hsdp_plugin_api(second)->plugin_name, "fake");
    hsdp_plugin_unload(second);
    hsdp_plugin_unload(NULL);
}
END_TEST

/* ---------------------------------------------------------------------------- not a plugin file */

START_TEST(load_text_file_is_refused)
{
    static const char text[] =
        "INPUT(libhsdp.so)\n-- a text that is longer than an ELF header is --\n";

    expect_refused(file_put("text.so", text, sizeof(text) - 1), HSDP_ERR_UNAVAILABLE,
                   "no ELF file");
    expect_refused(file_put("short.so", "\177ELF", 4), HSDP_ERR_UNAVAILABLE, "no ELF file");
    expect_refused(file_put("empty.so", "", 0), HSDP_ERR_UNAVAILABLE, "no ELF file");
}
END_TEST

START_TEST(load_what_is_no_regular_file_is_refused)
{
    const char *fifo = path_in(loader_here, "fifo.so");

    ck_assert_int_eq(mkfifo(fifo, 0644), 0);
    expect_refused(fifo, HSDP_ERR_UNAVAILABLE, "not a regular file");
    expect_refused(loader_here, HSDP_ERR_UNAVAILABLE, "is a folder");
    expect_refused("/dev/null", HSDP_ERR_UNAVAILABLE, "not a regular file");
}
END_TEST

/* One byte or two of the ELF header are another's. */
START_TEST(load_other_architecture_is_refused_and_both_are_named)
{
    static const struct {
        long offset;
        unsigned char bytes[2];
        size_t n_bytes;
        const char *words;
    } cases[] = {
        {offsetof(Elf64_Ehdr, e_machine), {EM_PPC64, 0}, 2, "ppc64 (ELF machine 21, 64 bits)"},
        {offsetof(Elf64_Ehdr, e_machine), {0xfe, 0x7f}, 2, "another machine (ELF machine 32766"},
        {EI_CLASS, {ELFCLASS32}, 1, "32 bits)"},
        {EI_DATA, {ELFDATA2MSB}, 1, "wrong architecture"},
    };
    const char *path = plugin_put(FAKE_GOOD, loader_here, "hsdp.so");

    expect_loaded(path, NULL, path);
    file_patch(path, cases[_i].offset, cases[_i].bytes, cases[_i].n_bytes);
    expect_refused(path, HSDP_ERR_UNAVAILABLE, cases[_i].words);
    ck_assert_ptr_nonnull(strstr(loader_err.message, "this program for "));
    ck_assert_ptr_nonnull(strstr(loader_err.message, "(64 bits)"));
}
END_TEST

START_TEST(load_elf_file_of_another_type_is_refused)
{
    static const unsigned char types[][2] = {{ET_REL, 0}, {ET_EXEC, 0}, {ET_CORE, 0}};
    const char *path = plugin_put(FAKE_GOOD, loader_here, "hsdp.so");

    file_patch(path, offsetof(Elf64_Ehdr, e_type), types[_i], 2);
    expect_refused(path, HSDP_ERR_UNAVAILABLE, "an ELF file of another type");
}
END_TEST

/* Cut at each eighth: never a crash, never loaded. */
START_TEST(load_file_cut_short_is_refused)
{
    const char *path = plugin_put(FAKE_GOOD, loader_here, "hsdp.so");
    struct stat file;

    ck_assert_int_eq(stat(path, &file), 0);
    for (int eighth = 1; eighth < 4; eighth++) {
        ck_assert_int_eq(truncate(path, file.st_size / 8 * (4 - eighth)), 0);
        expect_refused(path, HSDP_ERR_UNAVAILABLE, "is cut short");
    }
    ck_assert_int_eq(truncate(path, 100), 0);
    expect_refused(path, HSDP_ERR_UNAVAILABLE, "is cut short: it has 100 bytes");
}
END_TEST

START_TEST(load_file_that_does_not_link_tells_what_the_linker_said)
{
    expect_refused(plugin_put(FAKE_UNDEFINED, loader_here, "hsdp.so"), HSDP_ERR_UNAVAILABLE,
                   "symbol_that_nobody_has");
}
END_TEST

START_TEST(load_file_without_permission_is_refused)
{
    const char *path = plugin_put(FAKE_GOOD, loader_here, "hsdp.so");

    if (geteuid() == 0) {
        return; /* root may read everything */
    }
    ck_assert_int_eq(chmod(path, 0), 0);
    expect_refused(path, HSDP_ERR_UNAVAILABLE, "Permission denied");
}
END_TEST

/* -------------------------------------------------------------------------------- wrong plugins */

START_TEST(load_wrong_plugin_is_refused_with_its_reason)
{
    static const struct {
        enum fake fake;
        int32_t status;
        const char *reason;
    } cases[] = {
        {FAKE_NO_SYMBOL, HSDP_ERR_UNAVAILABLE, "it has no symbol hsdp_plugin_v1"},
        {FAKE_MAJOR_2, HSDP_ERR_VERSION, "has ABI 2, the host wants 1.0"},
        {FAKE_REFUSES, HSDP_ERR_VERSION, "fake 1 has ABI 7.3, not yours"},
        {FAKE_POSITIVE, HSDP_ERR_UNAVAILABLE, "answers 1 without a reason"},
        {FAKE_NO_TABLE, HSDP_ERR_VERSION, "has no such table"},
        {FAKE_HOLE, HSDP_ERR_UNAVAILABLE, "the member plan of its root table is NULL"},
        {FAKE_SHORT_TABLE, HSDP_ERR_VERSION, "has no such table"},
        {FAKE_OTHER_TABLE, HSDP_ERR_VERSION, "has no such table"},
    };

    expect_refused(plugin_put(cases[_i].fake, loader_here, "hsdp.so"), cases[_i].status,
                   cases[_i].reason);
}
END_TEST

/* ---------------------------------------------------------------------------------------- trust */

START_TEST(load_file_that_others_may_write_is_refused)
{
    const char *path = plugin_put(FAKE_GOOD, loader_here, "hsdp.so");

    ck_assert_int_eq(chmod(path, 0757), 0);
    expect_refused(path, HSDP_ERR_UNAVAILABLE, "is writable by others");
    ck_assert_int_eq(chmod(path, 0775), 0); /* the group may */
    expect_loaded(path, NULL, path);
}
END_TEST

START_TEST(load_from_folder_that_others_may_write_is_refused)
{
    const char *folder = folder_put("open");
    const char *path = plugin_put(FAKE_GOOD, folder, "hsdp.so");

    ck_assert_int_eq(chmod(folder, 0777), 0);
    expect_refused(path, HSDP_ERR_UNAVAILABLE, "is writable by others");
    ck_assert_int_eq(chmod(folder, 01777), 0); /* sticky: others may not replace what is mine */
    expect_loaded(path, NULL, path);
    ck_assert_int_eq(chmod(folder, 0775), 0);
    expect_loaded(path, NULL, path);
}
END_TEST

/* Whoever may change the link decides what is loaded, whatever it points to now. */
START_TEST(load_through_link_that_others_may_change_is_refused)
{
    const char *folder = folder_put("open");
    const char *target = plugin_put(FAKE_GOOD, loader_here, "hsdp.so");
    const char *name = path_in(folder, "link.so");

    ck_assert_int_eq(symlink("../hsdp.so", name), 0);
    expect_loaded(name, NULL, target);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    expect_refused(name, HSDP_ERR_UNAVAILABLE, "is writable by others");
}
END_TEST

START_TEST(load_what_belongs_to_a_stranger_is_refused)
{
    const char *folder = folder_put("theirs");
    const char *path = plugin_put(FAKE_GOOD, folder, "hsdp.so");

    if (geteuid() != 0) {
        return; /* nobody else can give files away */
    }
    ck_assert_int_eq(chown(folder, 54321, 54321), 0);
    expect_refused(path, HSDP_ERR_UNAVAILABLE, "belongs to user 54321");
    ck_assert_int_eq(chown(folder, 0, 54321), 0);
    expect_loaded(path, NULL, path);
    ck_assert_int_eq(chown(path, 54321, 0), 0);
    expect_refused(path, HSDP_ERR_UNAVAILABLE, "belongs to user 54321");
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("loader");
    TCase *files = tcase_create("files");

    tcase_add_unchecked_fixture(files, loader_files_open, loader_files_close);
    tcase_add_checked_fixture(files, loader_test_open, NULL);
    tcase_add_test(files, load_good_file_is_loaded);
    tcase_add_test(files, load_plugin_of_a_newer_minor_is_loaded);
    tcase_add_test(files, load_missing_file_is_refused);
    tcase_add_test(files, load_relative_name_is_one_of_the_current_folder);
    tcase_add_test(files, load_link_is_followed);
    tcase_add_test(files, load_twice_gives_two_that_are_unloaded_apart);
    tcase_add_test(files, load_text_file_is_refused);
    tcase_add_test(files, load_what_is_no_regular_file_is_refused);
    tcase_add_loop_test(files, load_other_architecture_is_refused_and_both_are_named, 0, 4);
    tcase_add_loop_test(files, load_elf_file_of_another_type_is_refused, 0, 3);
    tcase_add_test(files, load_file_cut_short_is_refused);
    tcase_add_test(files, load_file_that_does_not_link_tells_what_the_linker_said);
    tcase_add_test(files, load_file_without_permission_is_refused);
    tcase_add_loop_test(files, load_wrong_plugin_is_refused_with_its_reason, 0, 8);
    tcase_add_test(files, load_file_that_others_may_write_is_refused);
    tcase_add_test(files, load_from_folder_that_others_may_write_is_refused);
    tcase_add_test(files, load_through_link_that_others_may_change_is_refused);
    tcase_add_test(files, load_what_belongs_to_a_stranger_is_refused);
    suite_add_tcase(suite, files);
    return suite;
}
