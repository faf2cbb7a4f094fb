/* SPDX-License-Identifier: Apache-2.0 */
/* The entry and the root table: versions, errors of every size, tables without holes, describe. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "abi_host.h"
#include "suite.h"

/* ------------------------------------------------------------------------------------- versions */

START_TEST(entry_own_version_is_accepted)
{
    const struct hsdp_api *api = abi_load();

    ck_assert_uint_eq(api->abi_major, HSDP_ABI_MAJOR);
    ck_assert_uint_ge(api->struct_size, sizeof(struct hsdp_api));
    ck_assert_str_eq(api->plugin_name, "libhsdp");
    ck_assert_str_ne(api->plugin_version, "");
}
END_TEST

/* Case E1 of tests/cases/README.md. */
START_TEST(entry_any_minor_is_accepted)
{
    static const uint32_t minors[] = {HSDP_ABI_MINOR, HSDP_ABI_MINOR + 1, UINT32_MAX};
    const struct hsdp_api *api = NULL;

    ck_assert_int_eq(abi_entry()(HSDP_ABI_MAJOR, minors[_i], &api, NULL), HSDP_OK);
    ck_assert_ptr_nonnull(api);
}
END_TEST

/* Case E1 of tests/cases/README.md. */
START_TEST(entry_other_major_is_refused_with_both_versions)
{
    static const struct {
        uint32_t major;
        const char *host;
    } cases[] = {{0, "0.5"}, {2, "2.5"}, {UINT32_MAX, "4294967295.5"}};
    struct hsdp_error err = HSDP_ERROR_INIT;
    const struct hsdp_api *api = NULL;

    ck_assert_int_eq(abi_entry()(cases[_i].major, 5, &api, &err), HSDP_ERR_VERSION);
    ck_assert_ptr_null(api);
    ck_assert_int_eq(err.status, HSDP_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(err.message, cases[_i].host));
    ck_assert_ptr_nonnull(strstr(err.message, "ABI 1."));
    ck_assert_int_eq(abi_entry()(cases[_i].major, 5, &api, NULL), HSDP_ERR_VERSION);
}
END_TEST

START_TEST(entry_without_result_is_refused)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    ck_assert_int_eq(abi_entry()(HSDP_ABI_MAJOR, 0, NULL, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "hsdp_plugin_v1: ret_api is NULL");
    ck_assert_int_eq(abi_entry()(HSDP_ABI_MAJOR, 0, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(abi_entry()(2, 0, NULL, NULL), HSDP_ERR_VERSION);
}
END_TEST

START_TEST(entry_twice_answers_the_same_table)
{
    ck_assert_ptr_eq(abi_load(), abi_load());
}
END_TEST

/* --------------------------------------------------------------------------------------- errors */

#define TAIL 16u

START_TEST(error_of_a_newer_host_is_filled_and_its_tail_zeroed)
{
    size_t n_bytes = sizeof(struct hsdp_error) + TAIL;
    unsigned char *bytes = abi_guarded(n_bytes, 0xaa);
    struct hsdp_error *err = (void *)bytes;

    err->struct_size = n_bytes;
    ck_assert_int_eq(abi_entry()(2, 0, NULL, err), HSDP_ERR_VERSION);
    ck_assert_uint_eq(err->struct_size, n_bytes);
    ck_assert_int_eq(err->status, HSDP_ERR_VERSION);
    ck_assert_uint_eq(err->n_missing_ranks, 0);
    ck_assert(abi_is_filled(bytes + sizeof(struct hsdp_error), TAIL, 0));
}
END_TEST

START_TEST(error_below_the_first_version_is_left_alone)
{
    static const size_t sizes[] = {sizeof(struct hsdp_error) - 1, 16, 8, 0};
    size_t n_room = sizes[_i] < sizeof(size_t) ? sizeof(size_t) : sizes[_i];
    unsigned char *bytes = abi_guarded(n_room, 0xaa);

    memcpy(bytes, &sizes[_i], sizeof(size_t));
    ck_assert_int_eq(abi_entry()(2, 0, NULL, (void *)bytes), HSDP_ERR_VERSION);
    ck_assert_mem_eq(bytes, &sizes[_i], sizeof(size_t));
    ck_assert(abi_is_filled(bytes + sizeof(size_t), n_room - sizeof(size_t), 0xaa));
}
END_TEST

START_TEST(error_is_left_alone_on_success)
{
    unsigned char *bytes = abi_guarded(sizeof(struct hsdp_error), 0xaa);
    struct hsdp_error *err = (void *)bytes;
    const struct hsdp_api *api = NULL;

    err->struct_size = sizeof(*err);
    ck_assert_int_eq(abi_entry()(HSDP_ABI_MAJOR, 0, &api, err), HSDP_OK);
    ck_assert(abi_is_filled(bytes + sizeof(size_t), sizeof(*err) - sizeof(size_t), 0xaa));
}
END_TEST

/* --------------------------------------------------------------------------------------- tables */

/* A table is its size and then pointers, up to that size. */
static void expect_whole(const char *name, const void *table, size_t least_bytes)
{
    const unsigned char *bytes = table;
    size_t n_bytes;

    memcpy(&n_bytes, bytes, sizeof(n_bytes));
    ck_assert_msg(n_bytes >= least_bytes, "%s has %zu bytes", name, n_bytes);
    for (size_t i = sizeof(n_bytes); i < n_bytes; i += sizeof(void *)) {
        void *entry;

        memcpy(&entry, bytes + i, sizeof(entry));
        ck_assert_msg(entry != NULL, "%s holds NULL at byte %zu", name, i);
    }
}

/* Case E2 of tests/cases/README.md. */
START_TEST(tables_have_no_holes)
{
    const struct hsdp_api *api = abi_load();

    expect_whole("api", api, sizeof(*api)); /* its two version numbers count as one pointer */
    expect_whole("mesh", api->mesh, sizeof(*api->mesh));
    expect_whole("job", api->job, sizeof(*api->job));
    expect_whole("group", api->group, sizeof(*api->group));
    expect_whole("plan", api->plan, sizeof(*api->plan));
    expect_whole("model", api->model, sizeof(*api->model));
    expect_whole("unit", api->unit, sizeof(*api->unit));
    expect_whole("step", api->step, sizeof(*api->step));
    expect_whole("diag", api->diag, sizeof(*api->diag));
    expect_whole("adamw", abi_adamw(api), sizeof(struct hsdp_adamw_ops));
}
END_TEST

START_TEST(has_tells_what_a_table_reaches)
{
    const struct hsdp_api *api = abi_load();
    struct hsdp_mesh_ops older = *api->mesh;

    ck_assert(HSDP_HAS(api->mesh, create));
    ck_assert(HSDP_HAS(api->mesh, destroy));
    older.struct_size -= 1; /* the last member is not there as a whole */
    ck_assert(!HSDP_HAS(&older, destroy));
    ck_assert(HSDP_HAS(&older, members));
}
END_TEST

/* ---------------------------------------------------------------------- extensions and describe */

START_TEST(extension_known_name_is_found)
{
    const struct hsdp_adamw_ops *ops = abi_adamw(abi_load());

    ck_assert_ptr_nonnull(ops);
    ck_assert_uint_ge(ops->struct_size, sizeof(*ops));
}
END_TEST

START_TEST(extension_unknown_name_is_unsupported_and_lists_the_known)
{
    static const char *const names[] = {"", "hsdp.adam", "hsdp.adamw2", "HSDP.ADAMW", "%s%n"};
    struct hsdp_error err = HSDP_ERROR_INIT;
    const void *ops = &err;

    ck_assert_int_eq(abi_load()->extension(names[_i], &ops, &err), HSDP_ERR_UNSUPPORTED);
    ck_assert_ptr_eq(ops, &err);
    ck_assert_ptr_nonnull(strstr(err.message, names[_i]));
    ck_assert_ptr_nonnull(strstr(err.message, "known: hsdp.adamw"));
}
END_TEST

START_TEST(extension_null_arguments_are_named)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    const void *ops = NULL;

    ck_assert_int_eq(abi_load()->extension(NULL, &ops, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "extension: name is NULL");
    ck_assert_int_eq(abi_load()->extension("hsdp.adamw", NULL, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "extension: ret_ops is NULL");
}
END_TEST

START_TEST(describe_tells_its_size_and_then_the_text)
{
    const struct hsdp_api *api = abi_load();
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t n_bytes = 0;
    uint64_t n_again = 0;
    char *text;

    ck_assert_int_eq(api->describe(NULL, 0, &n_bytes, &err), HSDP_ERR_BUFFER_TOO_SMALL);
    ck_assert_uint_gt(n_bytes, 1000);
    text = abi_guarded(n_bytes, 0xaa);
    abi_must(api->describe(text, n_bytes, &n_again, &err), &err);
    ck_assert_uint_eq(n_again, n_bytes);
    ck_assert_uint_eq(strlen(text) + 1, n_bytes);
}
END_TEST

START_TEST(describe_buffer_one_too_small_is_untouched)
{
    const struct hsdp_api *api = abi_load();
    uint64_t n_bytes = 0;
    uint64_t n_again = 0;
    char *text;

    api->describe(NULL, 0, &n_bytes, NULL);
    text = abi_guarded(n_bytes - 1, 0xaa);
    ck_assert_int_eq(api->describe(text, n_bytes - 1, &n_again, NULL), HSDP_ERR_BUFFER_TOO_SMALL);
    ck_assert_uint_eq(n_again, n_bytes);
    ck_assert(abi_is_filled(text, n_bytes - 1, 0xaa));
}
END_TEST

START_TEST(describe_null_arguments_are_named)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t n_bytes;

    ck_assert_int_eq(abi_load()->describe(NULL, 1, &n_bytes, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "describe: ret_text is NULL");
    ck_assert_int_eq(abi_load()->describe(NULL, 0, NULL, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "describe: ret_bytes is NULL");
}
END_TEST

/* The facts that a host or operator looks for. */
static const char *const facts[] = {
    "\"abi_major\":1",
    "\"name\":\"hsdp\"",
    "\"full_shard\"",
    "{\"name\":\"shm\",\"usable\":true,\"max_ranks\":64",
    "{\"name\":\"mpi\",\"usable\":false,\"reason\":\"not built into this plugin\"",
    "{\"name\":\"nccl\",\"usable\":", /* by what this machine has */
    "\"setting\":\"nccl_library\"",
    "\"min_version\":\"2.18\",\"symbols\":[\"ncclGetVersion\",",
    "\"cpu_paths\":[{\"name\":\"plain\",\"usable\":true}",
    "\"parameters_sharded_over\":\"nothing\",\"gradients_sharded_over\":\"all\"",
    "\"extensions\":[\"hsdp.adamw\"]",
    "{\"key\":\"sharding_strategy\",\"homes\":[\"plan\",\"class\"],\"type\":\"choice\"",
    "{\"key\":\"nccl_timeout_seconds\",\"homes\":[\"job\"],\"type\":\"integer\"",
    "\"min\":1,\"max\":2147483647,\"default\":\"180\",\"meaning\":",
};

#define N_FACTS ((int)(sizeof(facts) / sizeof(facts[0])))

START_TEST(describe_holds_what_it_promises)
{
    static char text[65536];
    uint64_t n_bytes;

    ck_assert_int_eq(abi_load()->describe(text, sizeof(text), &n_bytes, NULL), HSDP_OK);
    ck_assert_msg(strstr(text, facts[_i]) != NULL, "no %s in %s", facts[_i], text);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_entry");
    TCase *entry = tcase_create("entry");
    TCase *root = tcase_create("root");

    tcase_add_test(entry, entry_own_version_is_accepted);
    tcase_add_loop_test(entry, entry_any_minor_is_accepted, 0, 3);
    tcase_add_loop_test(entry, entry_other_major_is_refused_with_both_versions, 0, 3);
    tcase_add_test(entry, entry_without_result_is_refused);
    tcase_add_test(entry, entry_twice_answers_the_same_table);
    tcase_add_test(entry, error_of_a_newer_host_is_filled_and_its_tail_zeroed);
    tcase_add_loop_test(entry, error_below_the_first_version_is_left_alone, 0, 4);
    tcase_add_test(entry, error_is_left_alone_on_success);
    suite_add_tcase(suite, entry);
    tcase_add_test(root, tables_have_no_holes);
    tcase_add_test(root, has_tells_what_a_table_reaches);
    tcase_add_test(root, extension_known_name_is_found);
    tcase_add_loop_test(root, extension_unknown_name_is_unsupported_and_lists_the_known, 0, 5);
    tcase_add_test(root, extension_null_arguments_are_named);
    tcase_add_test(root, describe_tells_its_size_and_then_the_text);
    tcase_add_test(root, describe_buffer_one_too_small_is_untouched);
    tcase_add_test(root, describe_null_arguments_are_named);
    tcase_add_loop_test(root, describe_holds_what_it_promises, 0, N_FACTS);
    suite_add_tcase(suite, root);
    return suite;
}
