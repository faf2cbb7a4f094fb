/* SPDX-License-Identifier: Apache-2.0 */
/* Identity of a run, and the meeting point in a store: what is equal, what differs, what is read.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/launch.h"
#include "comm/meeting_point.h"
#include "ranks.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void identity_read(struct launch *ret_launch, struct launch_identity *ret)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    bool is_known;

    ck_assert_msg(launch_read(&spec, ret_launch, &err) == HSDP_OK, "%s", err.message);
    ck_assert_msg(launch_place_read(ret_launch, false, 0, &err) == HSDP_OK, "%s", err.message);
    ck_assert_msg(launch_identity_read(ret_launch, ret, &is_known, &err) == HSDP_OK, "%s",
                  err.message);
    ck_assert(is_known);
}

/* Rank 5 of a run of torchrun on two hosts. */
static void torch_environment(void)
{
    ranks_environment(5, 8, "run");
    setenv("LOCAL_RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "4", 1);
    setenv("GROUP_RANK", "1", 1);
    setenv("TORCHELASTIC_RUN_ID", "elastic", 1);
}

/* ------------------------------------------------------------------------------ identity */

static const struct {
    const char *name;
    const char *value;
    const char *sentence; /* rank 5 with it, rank 0 without */
} changes[] = {
    {"HSDP_RUN_ID", "walk",
     "connect: HSDP_RUN_ID is \"run\" on rank 0, \"walk\" on rank 5: they are of different runs"},
    {"TORCHELASTIC_RUN_ID", "static",
     "connect: TORCHELASTIC_RUN_ID is \"elastic\" on rank 0, \"static\" on rank 5: they are of "
     "different runs"},
    {"MASTER_ADDR", "10.0.0.1",
     "connect: MASTER_ADDR is \"127.0.0.1\" on rank 0, \"10.0.0.1\" on rank 5: they are of "
     "different runs"},
    {"MASTER_PORT", "29501",
     "connect: MASTER_PORT is \"29500\" on rank 0, \"29501\" on rank 5: they are of different "
     "runs"},
    {"TORCHELASTIC_RESTART_COUNT", "2",
     "connect: rank 5 is of attempt \"2\", rank 0 of attempt \"0\" (TORCHELASTIC_RESTART_COUNT): "
     "a process of the earlier attempt is still there"},
    {"HSDP_ATTEMPT", "1",
     "connect: rank 5 is of attempt \"1\", rank 0 of attempt \"0\" (HSDP_ATTEMPT): a process of "
     "the earlier attempt is still there"},
};

START_TEST(launch_identity_check_names_the_first_field_that_differs)
{
    struct launch_identity root;
    struct launch_identity other;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct launch launch;
    char root_hex[LAUNCH_HEX_BYTES];
    char other_hex[LAUNCH_HEX_BYTES];

    torch_environment();
    identity_read(&launch, &root);
    setenv(changes[_i].name, changes[_i].value, 1);
    identity_read(&launch, &other);
    ck_assert_int_eq(launch_identity_check(&root, 0, &other, 5, &err), HSDP_ERR_MISMATCH);
    ck_assert_str_eq(err.message, changes[_i].sentence);
    launch_identity_hash(&root, root_hex);
    launch_identity_hash(&other, other_hex);
    ck_assert_str_ne(root_hex, other_hex);
}
END_TEST

START_TEST(launch_identity_check_of_equal_ones_is_ok)
{
    static const char *const of_other_launchers[] = {"SLURM_JOB_ID", "SLURM_STEP_ID",
                                                     "SLURM_RESTART_COUNT", "PMIX_NAMESPACE",
                                                     "OMPI_MCA_orte_hnp_uri"};
    struct launch_identity root;
    struct launch_identity other;
    struct launch launch;
    char hex[2][LAUNCH_HEX_BYTES];

    torch_environment();
    identity_read(&launch, &root);
    setenv("RANK", "6", 1); /* none of these tells runs apart */
    setenv("LOCAL_RANK", "2", 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    for (size_t i = 0; i < COUNT(of_other_launchers); i++) {
        setenv(of_other_launchers[i], "7", 1);
    }
    identity_read(&launch, &other);
    ck_assert_int_eq(launch_identity_compare(&root, &other), LAUNCH_N_FIELDS);
    ck_assert_int_eq(launch_identity_check(&root, 0, &other, 5, NULL), HSDP_OK);
    launch_identity_hash(&root, hex[0]);
    launch_identity_hash(&other, hex[1]);
    ck_assert_str_eq(hex[0], hex[1]);
    ck_assert_uint_eq(strlen(hex[0]), 32);
}
END_TEST

START_TEST(launch_identity_read_of_slurm_and_mpirun_knows_their_numbers)
{
    struct launch_identity identity;
    struct launch launch;

    ranks_environment_clear();
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "1", 1);
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURM_STEP_ID", "3", 1);
    setenv("SLURM_RESTART_COUNT", "2", 1);
    identity_read(&launch, &identity);
    ck_assert_str_eq(identity.values[LAUNCH_SLURM_JOB], "77");
    ck_assert_str_eq(identity.values[LAUNCH_SLURM_STEP], "3");
    ck_assert_str_eq(identity.values[LAUNCH_SLURM_ATTEMPT], "2");
    ranks_environment_clear();
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    setenv("PMIX_NAMESPACE", "prterun-host-1@1", 1);
    identity_read(&launch, &identity);
    ck_assert_str_eq(identity.values[LAUNCH_NAMESPACE], "prterun-host-1@1");
}
END_TEST

START_TEST(launch_identity_read_of_a_long_value_keeps_its_begin_and_a_hash)
{
    struct launch_identity identities[2];
    char uri[200];

    for (int i = 0; i < 2; i++) {
        struct launch launch;

        memset(uri, 'a', sizeof(uri));
        uri[198] = (char)('0' + i); /* they differ behind what is kept */
        uri[199] = '\0';
        ranks_environment(0, 1, uri);
        identity_read(&launch, &identities[i]);
        ck_assert_uint_lt(strlen(identities[i].values[LAUNCH_RUN]), LAUNCH_VALUE_BYTES);
        ck_assert_int_eq(strncmp(identities[i].values[LAUNCH_RUN], uri, 40), 0);
    }
    ck_assert_int_eq(launch_identity_compare(&identities[0], &identities[1]), LAUNCH_RUN);
}
END_TEST

START_TEST(launch_identity_read_of_an_empty_value_is_refused)
{
    static const char *const names[] = {"HSDP_RUN_ID", "TORCHELASTIC_RUN_ID"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct launch_identity identity;
    struct launch launch;
    bool is_known;

    for (size_t i = 0; i < COUNT(names); i++) {
        torch_environment();
        setenv(names[i], "", 1);
        ck_assert_int_eq(launch_read(&spec, &launch, &err), HSDP_OK);
        ck_assert_int_eq(launch_identity_read(&launch, &identity, &is_known, &err),
                         HSDP_ERR_INVALID);
        ck_assert_ptr_nonnull(strstr(err.message, names[i]));
    }
}
END_TEST

START_TEST(launch_identity_read_of_an_attempt_alone_is_not_known)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct launch_identity identity;
    struct launch launch;
    bool is_known = true;

    ranks_environment_clear();
    setenv("HSDP_ATTEMPT", "3", 1);
    ck_assert_int_eq(launch_read(&spec, &launch, &err), HSDP_OK);
    ck_assert_int_eq(launch_place_read(&launch, false, 0, &err), HSDP_OK);
    ck_assert_int_eq(launch_identity_read(&launch, &identity, &is_known, &err), HSDP_OK);
    ck_assert(!is_known);
    ck_assert_int_eq(launch_place_read(&launch, false, 7000, &err), HSDP_OK);
    ck_assert_int_eq(launch_identity_read(&launch, &identity, &is_known, &err), HSDP_OK);
    ck_assert(is_known);
    ck_assert_str_eq(identity.values[LAUNCH_OWN_PORT], "7000");
}
END_TEST

/* What came over a wire need not end. */
START_TEST(launch_identity_check_of_values_without_end_stays_inside)
{
    struct launch_identity own;
    struct launch_identity other;
    struct hsdp_error err = HSDP_ERROR_INIT;

    memset(&own, 0, sizeof(own));
    memset(&other, 'x', sizeof(other));
    ck_assert_int_eq(launch_identity_check(&own, 4, &other, 1, &err), HSDP_ERR_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "HSDP_RUN_ID is not set on rank 4, \"xxx"));
}
END_TEST

/* ----------------------------------------------------------------------------- the place */

static void key_write(char *ret_key, size_t max_bytes)
{
    struct text text = TEXT_INIT;
    struct launch_identity identity;
    struct launch launch;

    identity_read(&launch, &identity);
    launch_meeting_key(&launch, &identity, &text);
    snprintf(ret_key, max_bytes, "%s", text.chars);
    text_fini(&text);
}

START_TEST(launch_meeting_key_is_the_same_for_another_attempt_only)
{
    char first[512];
    char second[512];

    torch_environment();
    key_write(first, sizeof(first));
    setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    setenv("HSDP_ATTEMPT", "1", 1);
    key_write(second, sizeof(second));
    ck_assert_str_eq(first, second);
    setenv("GROUP_RANK", "0", 1);
    key_write(second, sizeof(second));
    ck_assert_str_ne(first, second);
    setenv("GROUP_RANK", "1", 1);
    setenv("TORCHELASTIC_RUN_ID", "other", 1);
    key_write(second, sizeof(second));
    ck_assert_str_ne(first, second);
}
END_TEST

/* -------------------------------------------------------------------- the value in a store */

static const struct meeting_point example = {
    .identity = "00112233445566778899aabbccddeeff",
    .port = 29501,
    .n_addresses = 3,
    .addresses = {"10.0.0.1", "fd00::1", "127.0.0.1"},
};

#define EXAMPLE "hsdp1 00112233445566778899aabbccddeeff 29501 10.0.0.1 fd00::1 127.0.0.1"

START_TEST(meeting_point_write_is_what_parse_reads)
{
    char value[MEETING_POINT_MAX_BYTES];
    struct meeting_point point;
    uint32_t n = meeting_point_write(&example, value);

    ck_assert_uint_eq(n, strlen(EXAMPLE));
    ck_assert_int_eq(memcmp(value, EXAMPLE, n), 0);
    ck_assert(meeting_point_parse(value, n, &point));
    ck_assert_int_eq(memcmp(&point, &example, sizeof(point)), 0);
}
END_TEST

START_TEST(meeting_point_write_of_many_addresses_keeps_those_that_fit)
{
    char value[MEETING_POINT_MAX_BYTES];
    struct meeting_point point;
    struct meeting_point read;
    uint32_t n;

    ck_assert_int_eq(meeting_point_init(&point, NULL), HSDP_OK);
    point.port = 65535;
    point.n_addresses = MEETING_POINT_MAX_ADDRESSES;
    for (uint32_t i = 0; i < point.n_addresses; i++) {
        snprintf(point.addresses[i], sizeof(point.addresses[i]),
                 "2001:db8:1111:2222:3333:4444:5555:%x", 0x1000 + i);
    }
    n = meeting_point_write(&point, value);
    ck_assert_uint_le(n, MEETING_POINT_MAX_BYTES);
    ck_assert(meeting_point_parse(value, n, &read));
    ck_assert_uint_ge(read.n_addresses, 5);
    ck_assert_uint_lt(read.n_addresses, point.n_addresses);
    for (uint32_t i = 0; i < read.n_addresses; i++) {
        ck_assert_str_eq(read.addresses[i], point.addresses[i]);
    }
}
END_TEST

#define SIX " 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1"

static const char *const bad_values[] = {
    "",
    "hsdp1",
    "hsdp2 00112233445566778899aabbccddeeff 1",
    "00112233445566778899aabbccddeeff",
    "hsdp1 00112233445566778899aabbccddeeff",
    "hsdp1 00112233445566778899aabbccddeeff ",
    "hsdp1 00112233445566778899aabbccddeef 1",
    "hsdp1 00112233445566778899aabbccddeeff0 1",
    "hsdp1 00112233445566778899AABBCCDDEEFF 1",
    "hsdp1 00112233445566778899aabbccddeeff 65536",
    "hsdp1 00112233445566778899aabbccddeeff 000001",
    "hsdp1 00112233445566778899aabbccddeeff 01",
    "hsdp1 00112233445566778899aabbccddeeff -1",
    "hsdp1 00112233445566778899aabbccddeeff 1 ",
    "hsdp1 00112233445566778899aabbccddeeff 1  10.0.0.1",
    "hsdp1 00112233445566778899aabbccddeeff 1 10.0.0.1 ",
    "hsdp1 00112233445566778899aabbccddeeff 1 10.0.0.256",
    "hsdp1 00112233445566778899aabbccddeeff 1 localhost",
    "hsdp1 00112233445566778899aabbccddeeff 1 10.0.0.1\n",
    "hsdp1 00112233445566778899aabbccddeeff 1 FD00::1",
    "hsdp1 00112233445566778899aabbccddeeff 1 fe80::1%eth0",
    "hsdp1 00112233445566778899aabbccddeeff 1 10.0.0.1,10.0.0.2",
    "hsdp1 00112233445566778899aabbccddeeff 1" SIX SIX
    " 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1", /* 17 */
};

START_TEST(meeting_point_parse_of_anything_else_is_refused)
{
    struct meeting_point point = example;

    ck_assert(!meeting_point_parse(bad_values[_i], strlen(bad_values[_i]), &point));
    ck_assert_int_eq(memcmp(&point, &example, sizeof(point)), 0);
}
END_TEST

/* A good value with a few bytes changed or cut: refused, or read as exactly what is there. */
START_TEST(meeting_point_parse_of_random_changes_is_exact)
{
    uint64_t random = 99;
    uint32_t n_read = 0;

    for (int round = 0; round < 200000; round++) {
        char value[sizeof(EXAMPLE)] = EXAMPLE;
        char again[MEETING_POINT_MAX_BYTES];
        struct meeting_point point;
        uint32_t n = sizeof(EXAMPLE) - 1;

        for (int i = 0; i < 2; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            value[(random >> 33) % n] = (char)(random >> 56);
        }
        n -= (uint32_t)(random >> 40) % 4;
        if (meeting_point_parse(value, n, &point)) {
            ck_assert_uint_eq(meeting_point_write(&point, again), n);
            ck_assert_int_eq(memcmp(value, again, n), 0);
            n_read++;
        }
    }
    ck_assert_uint_gt(n_read, 0);
    ck_assert_uint_lt(n_read, 100000);
}
END_TEST

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

START_TEST(meeting_point_addresses_are_ours_loopback_last)
{
    struct meeting_point point;
    bool was_loopback = false;

    ck_assert_int_eq(meeting_point_init(&point, NULL), HSDP_OK);
    ck_assert_int_eq(meeting_point_addresses(&point, NULL), HSDP_OK);
    ck_assert_uint_ge(point.n_addresses, 1); /* every test machine has a loopback device */
    ck_assert_uint_le(point.n_addresses, MEETING_POINT_MAX_ADDRESSES);
    for (uint32_t i = 0; i < point.n_addresses; i++) {
        ck_assert(!was_loopback || is_loopback(point.addresses[i]));
        was_loopback = is_loopback(point.addresses[i]);
        ck_assert_ptr_null(strchr(point.addresses[i], '%'));
        ck_assert_int_ne(strncmp(point.addresses[i], "fe80:", 5), 0);
    }
}
END_TEST

START_TEST(meeting_point_init_is_another_each_time)
{
    struct meeting_point points[2];

    ck_assert_int_eq(meeting_point_init(&points[0], NULL), HSDP_OK);
    ck_assert_int_eq(meeting_point_init(&points[1], NULL), HSDP_OK);
    ck_assert_uint_eq(strlen(points[0].identity), 32);
    ck_assert_str_ne(points[0].identity, points[1].identity);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("identity");
    TCase *identity = tcase_create("identity");
    TCase *point = tcase_create("meeting_point");

    tcase_add_loop_test(identity, launch_identity_check_names_the_first_field_that_differs, 0,
                        (int)COUNT(changes));
    tcase_add_test(identity, launch_identity_check_of_equal_ones_is_ok);
    tcase_add_test(identity, launch_identity_read_of_slurm_and_mpirun_knows_their_numbers);
    tcase_add_test(identity, launch_identity_read_of_a_long_value_keeps_its_begin_and_a_hash);
    tcase_add_test(identity, launch_identity_read_of_an_empty_value_is_refused);
    tcase_add_test(identity, launch_identity_read_of_an_attempt_alone_is_not_known);
    tcase_add_test(identity, launch_identity_check_of_values_without_end_stays_inside);
    tcase_add_test(identity, launch_meeting_key_is_the_same_for_another_attempt_only);
    suite_add_tcase(suite, identity);

    tcase_add_test(point, meeting_point_write_is_what_parse_reads);
    tcase_add_test(point, meeting_point_write_of_many_addresses_keeps_those_that_fit);
    tcase_add_loop_test(point, meeting_point_parse_of_anything_else_is_refused, 0,
                        (int)COUNT(bad_values));
    tcase_add_test(point, meeting_point_parse_of_random_changes_is_exact);
    tcase_add_test(point, meeting_point_addresses_are_ours_loopback_last);
    tcase_add_test(point, meeting_point_init_is_another_each_time);
    suite_add_tcase(suite, point);
    return suite;
}
