/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: where it looks and in which order; structs of older and newer hosts. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "loader_files.h"
#include "suite.h"

/* --------------------------------------------------------------------------------------- search */

START_TEST(search_variable_names_the_only_candidate)
{
    const char *path = plugin_put(FAKE_GOOD, loader_here, "mine.so");

    setenv("HSDP_PLUGIN", path, 1);
    expect_loaded(NULL, "hsdp", path);
    expect_loaded("", NULL, path);
    setenv("HSDP_PLUGIN_PATH", loader_here, 1);
    plugin_put(FAKE_GOOD, loader_here, "hsdp.so");
    setenv("HSDP_PLUGIN", path_in(loader_here, "none.so"), 1);
    ck_assert_int_eq(hsdp_plugin_load(NULL, &(hsdp_plugin *){NULL}, &loader_err),
                     HSDP_ERR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(loader_err.message, "named by HSDP_PLUGIN)"));
    setenv("HSDP_PLUGIN", "", 1); /* as good as not set */
    expect_loaded(NULL, NULL, path_in(loader_here, "hsdp.so"));
}
END_TEST

START_TEST(search_explicit_path_wins_over_the_variable)
{
    const char *path = plugin_put(FAKE_GOOD, loader_here, "mine.so");

    setenv("HSDP_PLUGIN", "/nonexistent.so", 1);
    expect_loaded(path, NULL, path);
}
END_TEST

static void search_path_set(const char *first, const char *second)
{
    char path[2 * PATH_MAX];

    snprintf(path, sizeof(path), ":%s::%s:", first, second);
    setenv("HSDP_PLUGIN_PATH", path, 1);
}

START_TEST(search_path_takes_the_first_folder_that_has_one)
{
    const char *first = folder_put("first");
    const char *second = folder_put("second");
    const char *in_second = plugin_put(FAKE_GOOD, second, "hsdp.so");

    search_path_set(first, second);
    expect_loaded(NULL, NULL, in_second);
    expect_loaded(NULL, NULL, plugin_put(FAKE_GOOD, first, "hsdp.so"));
}
END_TEST

/* In one folder the strategy's own plugin comes first; a folder before it comes before that. */
START_TEST(search_prefers_the_plugin_of_the_strategy)
{
    const char *first = folder_put("first");
    const char *second = folder_put("second");

    search_path_set(first, second);
    plugin_put(FAKE_GOOD, second, "hsdp.so");
    plugin_put(FAKE_GOOD, second, "hsdp_zero1.so");
    expect_loaded(NULL, "zero1", path_in(second, "hsdp_zero1.so"));
    expect_loaded(NULL, "zero2", path_in(second, "hsdp.so"));
    expect_loaded(NULL, "", path_in(second, "hsdp.so"));
    plugin_put(FAKE_GOOD, first, "hsdp.so");
    expect_loaded(NULL, "zero1", path_in(first, "hsdp.so"));
}
END_TEST

START_TEST(search_comes_to_the_installed_folder)
{
    ck_assert_int_eq(mkdir(loader_installed, 0755), 0);
    plugin_put(FAKE_GOOD, loader_installed, "hsdp.so");
    search_path_set("/nonexistent", loader_here);
    expect_loaded(NULL, NULL, path_in(loader_installed, "hsdp.so"));
    unsetenv("HSDP_PLUGIN_PATH");
    expect_loaded(NULL, NULL, path_in(loader_installed, "hsdp.so"));
}
END_TEST

START_TEST(search_stops_at_a_file_that_cannot_be_used)
{
    const char *first = folder_put("first");
    const char *second = folder_put("second");
    hsdp_plugin *plugin = NULL;

    search_path_set(first, second);
    plugin_put(FAKE_NO_SYMBOL, first, "hsdp.so");
    plugin_put(FAKE_GOOD, second, "hsdp.so");
    ck_assert_int_eq(loader_load(NULL, NULL, &plugin), HSDP_ERR_UNAVAILABLE);
    ck_assert_ptr_null(plugin);
    ck_assert_ptr_nonnull(strstr(loader_err.message, path_in(first, "hsdp.so")));
}
END_TEST

START_TEST(search_without_result_lists_every_place)
{
    hsdp_plugin *plugin = NULL;
    char place[2 * PATH_MAX];

    search_path_set("/nonexistent", loader_here);
    ck_assert_int_eq(loader_load(NULL, "hfsdp", &plugin), HSDP_ERR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(loader_err.message, "no hsdp_hfsdp.so or hsdp.so"));
    ck_assert_ptr_nonnull(strstr(loader_err.message, "HSDP_PLUGIN_PATH"));
    ck_assert_ptr_nonnull(strstr(loader_err.message, " /nonexistent (No such file or directory),"));
    snprintf(place, sizeof(place), " %s (not there),", loader_here);
    ck_assert_msg(strstr(loader_err.message, place) != NULL, "%s", loader_err.message);
    snprintf(place, sizeof(place), " %s (No such file or directory),", loader_installed);
    ck_assert_msg(strstr(loader_err.message, place) != NULL, "%s", loader_err.message);
    ck_assert_ptr_nonnull(strstr(loader_err.message, "/../lib/hsdp ("));
}
END_TEST

/* More places than fit: what to do is said first, the rest is cut with dots between characters. */
START_TEST(search_of_many_places_is_cut_politely)
{
    char path[4096] = "";
    hsdp_plugin *plugin = NULL;

    for (int i = 0; i < 100; i++) {
        strcat(path, i % 2 == 0 ? ":/äöü" : ":/ßßßß"); /* two bytes a letter */
    }
    setenv("HSDP_PLUGIN_PATH", path, 1);
    ck_assert_int_eq(loader_load(NULL, NULL, &plugin), HSDP_ERR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(loader_err.message, "set HSDP_PLUGIN to its path"));
    ck_assert_uint_lt(strlen(loader_err.message), sizeof(loader_err.message));
    ck_assert_str_eq(loader_err.message + strlen(loader_err.message) - 4, " ...");
    ck_assert_int_ne((unsigned char)loader_err.message[strlen(loader_err.message) - 5],
                     0xc3); /* half of one */
}
END_TEST

START_TEST(search_strategy_cannot_leave_the_folder)
{
    static const char *const strategies[] = {"../evil", "x/../../evil", "/evil",
                                             "a.b",     "hsdp ",        "é"};
    const char *folder = folder_put("a");

    plugin_put(FAKE_NO_SYMBOL, loader_here, "evil.so");
    folder_put("a/hsdp_..");
    folder_put("a/hsdp_x");
    plugin_put(FAKE_GOOD, folder, "hsdp.so");
    setenv("HSDP_PLUGIN_PATH", folder, 1);
    expect_loaded(NULL, strategies[_i], path_in(folder, "hsdp.so"));
}
END_TEST

START_TEST(search_path_too_long_is_passed_over)
{
    static char path[2 * PATH_MAX];

    memset(path, 'x', PATH_MAX + 10);
    snprintf(path + PATH_MAX + 10, PATH_MAX - 10, ":%s", loader_here);
    path[0] = '/';
    setenv("HSDP_PLUGIN_PATH", path, 1);
    plugin_put(FAKE_GOOD, loader_here, "hsdp.so");
    expect_loaded(NULL, NULL, path_in(loader_here, "hsdp.so"));
}
END_TEST

/* An installation that was moved: bin/host beside lib/hsdp. The host has copied loader.c in. */
START_TEST(search_comes_to_the_folder_beside_the_program)
{
    const char *srcdir = getenv("HSDP_TEST_SRCDIR");
    const char *cc = getenv("CC");

    shell_run("mkdir -p '%s/bin' '%s/lib/hsdp'", loader_here, loader_here);
    shell_run("%s -std=c99 -Wall -Wextra -Wpedantic -Werror -I'%s/../include' '%s/loader_host.c' "
              "'%s/../abi/loader/loader.c' -o '%s/bin/host' -ldl",
              cc == NULL ? "cc" : cc, srcdir, srcdir, srcdir, loader_here);
    shell_run("'%s/bin/host' | grep -q '^loader: found no .*%s/bin/../lib/hsdp (not there)'",
              loader_here, loader_here);
    plugin_put(FAKE_GOOD, path_in(loader_here, "lib/hsdp"), "hsdp.so");
    shell_run("'%s/bin/host' | grep -qx 'fake from %s/lib/hsdp/hsdp.so'", loader_here, loader_here);
}
END_TEST

/* -------------------------------------------------------------------------------------- structs */

START_TEST(spec_of_impossible_size_is_a_version_error)
{
    static const size_t sizes[] = {0, 8, sizeof(struct hsdp_plugin_spec) - 1, SIZE_MAX};
    struct hsdp_plugin_spec spec = HSDP_PLUGIN_SPEC_INIT;
    hsdp_plugin *plugin = NULL;

    spec.struct_size = sizes[_i];
    ck_assert_int_eq(hsdp_plugin_load(&spec, &plugin, &loader_err), HSDP_ERR_VERSION);
    ck_assert_ptr_null(plugin);
    ck_assert_ptr_nonnull(strstr(loader_err.message, "ABI 1.0 has 24"));
}
END_TEST

START_TEST(spec_of_a_newer_host_is_accepted_while_its_tail_is_zero)
{
    struct {
        struct hsdp_plugin_spec spec;
        uint64_t newer;
    } newer = {HSDP_PLUGIN_SPEC_INIT, 0};
    hsdp_plugin *plugin = NULL;

    newer.spec.struct_size = sizeof(newer);
    newer.spec.path = plugin_put(FAKE_GOOD, loader_here, "hsdp.so");
    ck_assert_int_eq(hsdp_plugin_load(&newer.spec, &plugin, &loader_err), HSDP_OK);
    hsdp_plugin_unload(plugin);
    newer.newer = 1;
    ck_assert_int_eq(hsdp_plugin_load(&newer.spec, &plugin, &loader_err), HSDP_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(loader_err.message, "byte 24"));
}
END_TEST

START_TEST(load_null_arguments)
{
    ck_assert_int_eq(hsdp_plugin_load(NULL, NULL, &loader_err), HSDP_ERR_INVALID);
    ck_assert_str_eq(loader_err.message, "loader: ret_plugin is NULL");
    ck_assert_int_eq(hsdp_plugin_load(NULL, NULL, NULL), HSDP_ERR_INVALID);
    setenv("HSDP_PLUGIN", plugin_put(FAKE_GOOD, loader_here, "hsdp.so"), 1);
    expect_loaded(NULL, NULL, path_in(loader_here, "hsdp.so"));
}
END_TEST

START_TEST(error_of_another_size_is_filled_or_left_alone)
{
    struct {
        struct hsdp_error known;
        uint64_t newer;
    } longer = {HSDP_ERROR_INIT, 77};
    struct hsdp_error shorter = {.struct_size = sizeof(shorter) - 1, .status = 77};
    hsdp_plugin *plugin = NULL;

    setenv("HSDP_PLUGIN", "/nonexistent", 1);
    longer.known.struct_size = sizeof(longer);
    ck_assert_int_eq(hsdp_plugin_load(NULL, &plugin, &longer.known), HSDP_ERR_UNAVAILABLE);
    ck_assert_int_eq(longer.known.status, HSDP_ERR_UNAVAILABLE);
    ck_assert_uint_eq(longer.known.struct_size, sizeof(longer));
    ck_assert_uint_eq(longer.newer, 0);
    ck_assert_int_eq(hsdp_plugin_load(NULL, &plugin, &shorter), HSDP_ERR_UNAVAILABLE);
    ck_assert_int_eq(shorter.status, 77);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("loader_search");
    TCase *search = tcase_create("search");

    tcase_add_unchecked_fixture(search, loader_files_open, loader_files_close);
    tcase_add_checked_fixture(search, loader_test_open, NULL);
    tcase_add_test(search, search_variable_names_the_only_candidate);
    tcase_add_test(search, search_explicit_path_wins_over_the_variable);
    tcase_add_test(search, search_path_takes_the_first_folder_that_has_one);
    tcase_add_test(search, search_prefers_the_plugin_of_the_strategy);
    tcase_add_test(search, search_comes_to_the_installed_folder);
    tcase_add_test(search, search_stops_at_a_file_that_cannot_be_used);
    tcase_add_test(search, search_without_result_lists_every_place);
    tcase_add_test(search, search_of_many_places_is_cut_politely);
    tcase_add_loop_test(search, search_strategy_cannot_leave_the_folder, 0, 6);
    tcase_add_test(search, search_path_too_long_is_passed_over);
    tcase_add_test(search, search_comes_to_the_folder_beside_the_program);
    tcase_add_loop_test(search, spec_of_impossible_size_is_a_version_error, 0, 4);
    tcase_add_test(search, spec_of_a_newer_host_is_accepted_while_its_tail_is_zero);
    tcase_add_test(search, load_null_arguments);
    tcase_add_test(search, error_of_another_size_is_filled_or_left_alone);
    suite_add_tcase(suite, search);
    return suite;
}
