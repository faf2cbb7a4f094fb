/* SPDX-License-Identifier: Apache-2.0 */
/* Intake and outtake of a struct that has grown since ABI 1.0, which none has yet. */
#include <check.h>
#include <string.h>

/* The border is no library: the plugin is. */
#include "export/intake.c"

#include "suite.h"

/* A spec with a field of 1.1, and one of 1.2 that the plugin here does not know. */
struct grown {
    size_t struct_size;
    uint32_t first; /* 1.0 */
    uint32_t reserved;
    uint64_t second; /* 1.1 */
};

struct grown_more {
    struct grown known;
    uint64_t third; /* 1.2 */
};

static const struct intake_kind kind = {sizeof(struct grown), 16, offsetof(struct grown, reserved)};
static const struct intake_source source = {"thing.create", "spec"};

START_TEST(intake_older_struct_gets_zeros_for_what_it_lacks)
{
    struct grown theirs = {16, 5, 0, 99}; /* 99 is no part of it */
    struct grown ours;

    memset(&ours, 0xaa, sizeof(ours));
    ck_assert_int_eq(intake(&kind, source, &theirs, &ours, NULL), HSDP_OK);
    ck_assert_uint_eq(ours.struct_size, sizeof(ours));
    ck_assert_uint_eq(ours.first, 5);
    ck_assert_uint_eq(ours.second, 0);
}
END_TEST

START_TEST(intake_struct_between_versions_is_taken_as_far_as_it_goes)
{
    struct grown theirs = {20, 5, 0, 0x1111111122222222u};
    struct grown ours;

    ck_assert_int_eq(intake(&kind, source, &theirs, &ours, NULL), HSDP_OK);
    ck_assert_uint_eq(ours.second, 0x22222222u);
}
END_TEST

START_TEST(intake_newer_struct_writes_nothing_behind_ours)
{
    struct grown_more theirs = {{sizeof(theirs), 5, 0, 6}, 0};
    struct grown_more room = {.third = 77};

    ck_assert_int_eq(intake(&kind, source, &theirs, &room, NULL), HSDP_OK);
    ck_assert_uint_eq(room.known.second, 6);
    ck_assert_uint_eq(room.known.struct_size, sizeof(struct grown));
    ck_assert_uint_eq(room.third, 77);
}
END_TEST

START_TEST(intake_newer_struct_with_a_value_is_unsupported)
{
    struct grown_more theirs = {{sizeof(theirs), 5, 0, 6}, 1};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct grown ours;

    ck_assert_int_eq(intake(&kind, source, &theirs, &ours, &err), HSDP_ERR_UNSUPPORTED);
    ck_assert_str_eq(err.message,
                     "thing.create: spec sets a field at byte 24; this plugin (ABI 1.0) "
                     "knows 24");
}
END_TEST

START_TEST(intake_reserved_value_is_unsupported)
{
    struct grown theirs = {sizeof(theirs), 5, 3, 6};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct grown ours;

    ck_assert_int_eq(intake(&kind, source, &theirs, &ours, &err), HSDP_ERR_UNSUPPORTED);
    ck_assert_str_eq(err.message, "thing.create: spec.reserved is 3, not 0");
}
END_TEST

START_TEST(intake_too_short_names_all_sizes)
{
    struct grown theirs = {15, 5, 0, 6};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct grown ours;

    ck_assert_int_eq(intake(&kind, source, &theirs, &ours, &err), HSDP_ERR_VERSION);
    ck_assert_str_eq(err.message,
                     "thing.create: spec.struct_size is 15; ABI 1.0 has 16, this plugin "
                     "(ABI 1.0) 24");
}
END_TEST

START_TEST(outtake_older_struct_is_written_as_far_as_it_goes)
{
    const struct grown ours = {sizeof(ours), 5, 0, 6};
    struct grown theirs = {16, 0, 0, 77};

    outtake(&kind, &ours, &theirs);
    ck_assert_uint_eq(theirs.struct_size, 16);
    ck_assert_uint_eq(theirs.first, 5);
    ck_assert_uint_eq(theirs.second, 77);
}
END_TEST

START_TEST(outtake_newer_struct_gets_zeros_behind_ours)
{
    const struct grown ours = {sizeof(ours), 5, 0, 6};
    struct grown_more theirs = {{sizeof(theirs), 0, 0, 0}, 77};

    outtake(&kind, &ours, &theirs);
    ck_assert_uint_eq(theirs.known.struct_size, sizeof(theirs));
    ck_assert_uint_eq(theirs.known.second, 6);
    ck_assert_uint_eq(theirs.third, 0);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("intake");
    TCase *all = tcase_create("intake");

    tcase_add_test(all, intake_older_struct_gets_zeros_for_what_it_lacks);
    tcase_add_test(all, intake_struct_between_versions_is_taken_as_far_as_it_goes);
    tcase_add_test(all, intake_newer_struct_writes_nothing_behind_ours);
    tcase_add_test(all, intake_newer_struct_with_a_value_is_unsupported);
    tcase_add_test(all, intake_reserved_value_is_unsupported);
    tcase_add_test(all, intake_too_short_names_all_sizes);
    tcase_add_test(all, outtake_older_struct_is_written_as_far_as_it_goes);
    tcase_add_test(all, outtake_newer_struct_gets_zeros_behind_ours);
    suite_add_tcase(suite, all);
    return suite;
}
