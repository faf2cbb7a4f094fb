/* SPDX-License-Identifier: Apache-2.0 */
/* Loading NCCL: what is refused, and in which words; the configuration of a communicator. */
#include <stdio.h>
#include <string.h>

#include "comm/nccl.h"
#include "stand_in.h"
#include "suite.h"

static struct nccl nccl;
static struct hsdp_error err;

/* Loads, expects HSDP_ERR_UNAVAILABLE, and a sentence with the path in it. */
static void refusal_assert(const char *library, const char *before, const char *after)
{
    char sentence[512];

    snprintf(sentence, sizeof(sentence), "%s%s%s", before, library, after);
    ck_assert_int_eq(nccl_load(library, &nccl, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_str_eq(err.message, sentence);
}

START_TEST(nccl_load_lowest_version_is_bound_and_named)
{
    const char *library = stand_in_build("libnccl.so.2", "-DCODE=21801");

    ck_assert_msg(nccl_load(library, &nccl, &err) == HSDP_OK, "%s", err.message);
    ck_assert_str_eq(nccl.path, library);
    ck_assert_int_eq(nccl.version, 21801);
    ck_assert_ptr_nonnull(nccl.comm_init);
    ck_assert_ptr_null(nccl.comm_revoke);
}
END_TEST

START_TEST(nccl_load_newer_function_is_bound_where_it_is_there)
{
    const char *library = stand_in_build("libnccl.so.2", "-DCODE=22809 -DNEWER");

    ck_assert_msg(nccl_load(library, &nccl, &err) == HSDP_OK, "%s", err.message);
    ck_assert_ptr_nonnull(nccl.comm_revoke);
}
END_TEST

START_TEST(nccl_load_file_that_is_not_there_is_unavailable)
{
    refusal_assert(stand_in_path("libnccl.so.2"), "nccl_library: ",
                   " cannot be loaded: cannot open shared object file: No such "
                   "file or directory");
}
END_TEST

START_TEST(nccl_load_soname_that_nobody_has_is_unavailable)
{
    refusal_assert("libnccl-nobody-has-this.so.2", "nccl_library: ",
                   " cannot be loaded: cannot open shared object file: No such "
                   "file or directory");
}
END_TEST

START_TEST(nccl_load_file_of_another_kind_is_unavailable)
{
    refusal_assert(stand_in_write("libnccl.so.2", "no library", 10),
                   "nccl_library: ", " cannot be loaded: file too short");
}
END_TEST

START_TEST(nccl_load_old_version_is_unavailable)
{
    refusal_assert(stand_in_build("libnccl.so.2", "-DCODE=21705"),
                   "nccl_library: ", " is NCCL 2.17.5; this plugin needs 2.18.0 or newer");
}
END_TEST

/* It is its age that is told, and not what it lacks for that. */
START_TEST(nccl_load_old_version_without_functions_is_old)
{
    refusal_assert(stand_in_build("libnccl.so.2", "-DCODE=2804 -DncclCommFinalize=ncclNobodyAsks"),
                   "nccl_library: ", " is NCCL 2.8.4; this plugin needs 2.18.0 or newer");
}
END_TEST

START_TEST(nccl_load_library_without_a_function_names_it)
{
    refusal_assert(stand_in_build("libnccl.so.2", "-DCODE=22809 -DncclSend=ncclNobodyAsks"),
                   "nccl_library: ", ", NCCL 2.28.9, lacks ncclSend");
}
END_TEST

START_TEST(nccl_load_library_that_is_no_nccl_is_unavailable)
{
    refusal_assert(stand_in_build("libnccl.so.2", "-DDEVICES=1"), "nccl_library: ",
                   " is no NCCL: it lacks ncclGetVersion, ncclGetErrorString, "
                   "ncclGetLastError and 14 more");
}
END_TEST

START_TEST(nccl_load_library_without_version_is_unavailable)
{
    refusal_assert(stand_in_build("libnccl.so.2", "-DCODE=0"), "nccl_library: ncclGetVersion of ",
                   " answers 3");
}
END_TEST

static const struct {
    int32_t version;
    const char *text;
} versions[] = {
    {2804, "2.8.4"}, {21003, "2.10.3"}, {21800, "2.18.0"}, {22809, "2.28.9"}, {23007, "2.30.7"},
};

START_TEST(nccl_version_text_is_as_people_write_it)
{
    char text[NCCL_VERSION_BYTES];

    nccl_version_text(versions[_i].version, text);
    ck_assert_str_eq(text, versions[_i].text);
}
END_TEST

/* ----------------------------------------------------------------------------- configuration */

START_TEST(nccl_config_asks_only_that_calls_do_not_block)
{
    struct nccl_config config = nccl_config_make();
    const int32_t numbers[] = {
        config.cga_cluster_size, config.min_ctas,         config.max_ctas,
        config.split_share,      config.traffic_class,    config.collnet_enable,
        config.cta_policy,       config.shrink_share,     config.nvls_ctas,
        config.nvlink_centric,   config.graph_usage_mode, config.channels_per_net_peer,
        config.rma_contexts,     config.max_p2p_peers,    config.graph_stream_ordering,
    };

    ck_assert_uint_eq(config.size, 96);
    ck_assert_uint_eq(config.magic, 0xcafebeefu);
    ck_assert_uint_eq(config.version, 23007);
    ck_assert_int_eq(config.blocking, 0);
    ck_assert_ptr_null(config.net_name);
    ck_assert_ptr_null(config.comm_name);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        ck_assert_int_eq(numbers[i], INT32_MIN);
    }
}
END_TEST

/* Where each version's own struct ends, and the first field that it has not. */
static const struct {
    const char *version;
    size_t n_bytes;
    size_t next;
} sizes[] = {
    {"2.18 to 2.26", 48, offsetof(struct nccl_config, comm_name)},
    {"2.27", 72, offsetof(struct nccl_config, channels_per_net_peer)},
    {"2.28", 80, offsetof(struct nccl_config, graph_usage_mode)},
    {"2.29 and 2.30", 96, sizeof(struct nccl_config)},
};

/* An older parser reads the beginning: what it ends with is whole, and nothing else is in it. */
START_TEST(nccl_config_begins_with_that_of_each_version)
{
    ck_assert_uint_eq(sizes[_i].next, sizes[_i].n_bytes);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nccl");
    TCase *load = tcase_create("load");
    TCase *config = tcase_create("config");

    suite_add_tcase(suite, load);
    tcase_add_checked_fixture(load, stand_in_begin, stand_in_end);
    tcase_set_timeout(load, 60);
    tcase_add_test(load, nccl_load_lowest_version_is_bound_and_named);
    tcase_add_test(load, nccl_load_newer_function_is_bound_where_it_is_there);
    tcase_add_test(load, nccl_load_file_that_is_not_there_is_unavailable);
    tcase_add_test(load, nccl_load_soname_that_nobody_has_is_unavailable);
    tcase_add_test(load, nccl_load_file_of_another_kind_is_unavailable);
    tcase_add_test(load, nccl_load_old_version_is_unavailable);
    tcase_add_test(load, nccl_load_old_version_without_functions_is_old);
    tcase_add_test(load, nccl_load_library_without_a_function_names_it);
    tcase_add_test(load, nccl_load_library_that_is_no_nccl_is_unavailable);
    tcase_add_test(load, nccl_load_library_without_version_is_unavailable);
    tcase_add_loop_test(load, nccl_version_text_is_as_people_write_it, 0, N_OF(versions));
    suite_add_tcase(suite, config);
    tcase_add_test(config, nccl_config_asks_only_that_calls_do_not_block);
    tcase_add_loop_test(config, nccl_config_begins_with_that_of_each_version, 0, N_OF(sizes));
    return suite;
}
