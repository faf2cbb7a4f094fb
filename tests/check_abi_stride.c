/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that cross the border: elements of older, current and newer hosts, by their stride. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "abi_host.h"
#include "suite.h"

static struct abi_host host;
static struct hsdp_error err;

static void host_open(void)
{
    abi_host_init(&host);
    err = (struct hsdp_error)HSDP_ERROR_INIT;
}

static void host_close(void)
{
    abi_host_fini(&host);
}

/* ------------------------------------------------------------------------------------- segments */

/* The one segment of "p", asked for with a stride, in memory that ends behind it. */
static int32_t segment_ask(struct hsdp_segment *ret_segment, uint64_t stride, uint64_t *ret_n)
{
    return host.api->plan->segments(host.plan, 0, HSDP_SHARD_STEP, 0, ret_segment, stride, 1, ret_n,
                                    &err);
}

static void expect_segment(const struct hsdp_segment *segment, uint64_t n)
{
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(segment->param, 0);
    ck_assert_uint_eq(segment->param_offset_elems, 0);
    ck_assert_uint_eq(segment->n_elems, 6);
}

START_TEST(segments_own_stride_is_filled)
{
    struct hsdp_segment *segment = abi_guarded(sizeof(*segment), 0xaa);
    uint64_t n = 0;

    abi_must(segment_ask(segment, sizeof(*segment), &n), &err);
    expect_segment(segment, n);
}
END_TEST

START_TEST(segments_longer_stride_is_filled_and_its_tail_zeroed)
{
    unsigned char *bytes = abi_guarded(sizeof(struct hsdp_segment) + 16, 0xaa);
    uint64_t n = 0;

    abi_must(segment_ask((void *)bytes, sizeof(struct hsdp_segment) + 16, &n), &err);
    expect_segment((void *)bytes, n);
    ck_assert(abi_is_filled(bytes + sizeof(struct hsdp_segment), 16, 0));
}
END_TEST

START_TEST(segments_impossible_stride_is_refused_and_untouched)
{
    static const struct {
        uint64_t stride;
        int32_t status;
    } cases[] = {{0, HSDP_ERR_VERSION},
                 {24, HSDP_ERR_VERSION},
                 {31, HSDP_ERR_VERSION},
                 {33, HSDP_ERR_INVALID}, /* the second one would not be aligned */
                 {UINT64_MAX, HSDP_ERR_VERSION}};
    struct hsdp_segment segment;
    uint64_t n = 77;

    memset(&segment, 0xaa, sizeof(segment));
    ck_assert_int_eq(segment_ask(&segment, cases[_i].stride, &n), cases[_i].status);
    ck_assert_ptr_eq(strstr(err.message, "plan.segments: segment_bytes is "), err.message);
    ck_assert(abi_is_filled(&segment, sizeof(segment), 0xaa));
    ck_assert_uint_eq(n, 77);
}
END_TEST

START_TEST(segments_too_few_tells_how_many)
{
    uint64_t n = 77;

    ck_assert_int_eq(host.api->plan->segments(host.plan, 0, HSDP_SHARD_STEP, 0, NULL,
                                              sizeof(struct hsdp_segment), 0, &n, &err),
                     HSDP_ERR_BUFFER_TOO_SMALL);
    ck_assert_uint_eq(n, 1);
}
END_TEST

/* ---------------------------------------------------------------------------------- collectives */

/* A spec of a newer host, in an array of its own. */
struct newer_spec {
    struct hsdp_coll_spec spec;
    uint64_t newer_field;
};

static int32_t specs_start(const void *specs, uint64_t stride, uint64_t n)
{
    uint64_t ticket = 77;
    int32_t status = host.api->group->start(host.group, specs, stride, n, NULL, &ticket, &err);

    ck_assert_int_eq(status == HSDP_OK, ticket != 77);
    if (status == HSDP_OK) {
        abi_must(host.api->job->ticket_wait(host.job, ticket, UINT64_MAX, &err), &err);
    }
    return status;
}

static void barriers_init(struct hsdp_coll_spec *specs, int n)
{
    for (int i = 0; i < n; i++) {
        specs[i] = (struct hsdp_coll_spec)HSDP_COLL_SPEC_INIT;
        specs[i].kind = HSDP_COLL_BARRIER;
    }
}

/* Also more than any host needs at once. */
START_TEST(start_of_many_is_accepted)
{
    static const int counts[] = {1, 2, 8, 9, 64};
    struct hsdp_coll_spec specs[64];

    barriers_init(specs, 64);
    abi_must(specs_start(specs, sizeof(specs[0]), (uint64_t)counts[_i]), &err);
}
END_TEST

START_TEST(start_of_newer_specs_is_accepted_while_their_fields_are_zero)
{
    struct newer_spec specs[2] = {{HSDP_COLL_SPEC_INIT, 0}, {HSDP_COLL_SPEC_INIT, 0}};

    for (int i = 0; i < 2; i++) {
        barriers_init(&specs[i].spec, 1);
        specs[i].spec.struct_size = sizeof(specs[i]);
    }
    abi_must(specs_start(specs, sizeof(specs[0]), 2), &err);
    if (host.api->abi_minor > HSDP_ABI_MINOR) {
        return; /* a plugin that is newer than this suite may know the field */
    }
    specs[1].newer_field = 1;
    ck_assert_int_eq(specs_start(specs, sizeof(specs[0]), 2), HSDP_ERR_UNSUPPORTED);
    ck_assert_ptr_eq(strstr(err.message, "group.start: specs[1] sets a field"), err.message);
}
END_TEST

/* The stride is that of a larger struct of the host; what follows the spec is not looked at. */
START_TEST(start_of_specs_within_larger_structs_is_accepted)
{
    struct newer_spec specs[2];

    memset(specs, 0xaa, sizeof(specs));
    barriers_init(&specs[0].spec, 1);
    barriers_init(&specs[1].spec, 1);
    abi_must(specs_start(specs, sizeof(specs[0]), 2), &err);
}
END_TEST

START_TEST(start_of_a_later_spec_without_size_names_it)
{
    struct hsdp_coll_spec specs[3];

    barriers_init(specs, 3);
    specs[2].struct_size = 0;
    ck_assert_int_eq(specs_start(specs, sizeof(specs[0]), 3), HSDP_ERR_VERSION);
    ck_assert_ptr_eq(strstr(err.message, "group.start: specs[2].struct_size is 0;"), err.message);
}
END_TEST

START_TEST(start_of_specs_longer_than_their_stride_is_refused)
{
    struct hsdp_coll_spec specs[2];
    char text[96];

    barriers_init(specs, 2);
    specs[0].struct_size = sizeof(specs[0]) + 8;
    ck_assert_int_eq(specs_start(specs, sizeof(specs[0]), 1), HSDP_ERR_VERSION);
    snprintf(text, sizeof(text), "group.start: specs[0].struct_size is %zu, but spec_bytes is %zu",
             sizeof(specs[0]) + 8, sizeof(specs[0]));
    ck_assert_str_eq(err.message, text);
}
END_TEST

START_TEST(start_of_impossible_stride_or_count_is_refused)
{
    static const struct {
        uint64_t stride;
        uint64_t n;
        int32_t status;
    } cases[] = {{0, 1, HSDP_ERR_VERSION},  {56, 1, HSDP_ERR_VERSION},
                 {68, 1, HSDP_ERR_INVALID}, {UINT64_MAX, 1, HSDP_ERR_VERSION},
                 {64, 0, HSDP_ERR_INVALID}, {64, 65537, HSDP_ERR_INVALID}};
    struct hsdp_coll_spec spec;

    barriers_init(&spec, 1);
    ck_assert_int_eq(specs_start(&spec, cases[_i].stride, cases[_i].n), cases[_i].status);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_stride");
    TCase *segments = tcase_create("segments");
    TCase *start = tcase_create("start");

    tcase_add_checked_fixture(segments, host_open, host_close);
    tcase_add_test(segments, segments_own_stride_is_filled);
    tcase_add_test(segments, segments_longer_stride_is_filled_and_its_tail_zeroed);
    tcase_add_loop_test(segments, segments_impossible_stride_is_refused_and_untouched, 0, 5);
    tcase_add_test(segments, segments_too_few_tells_how_many);
    suite_add_tcase(suite, segments);
    tcase_add_checked_fixture(start, host_open, host_close);
    tcase_add_loop_test(start, start_of_many_is_accepted, 0, 5);
    tcase_add_test(start, start_of_newer_specs_is_accepted_while_their_fields_are_zero);
    tcase_add_test(start, start_of_specs_within_larger_structs_is_accepted);
    tcase_add_test(start, start_of_a_later_spec_without_size_names_it);
    tcase_add_test(start, start_of_specs_longer_than_their_stride_is_refused);
    tcase_add_loop_test(start, start_of_impossible_stride_or_count_is_refused, 0, 6);
    suite_add_tcase(suite, start);
    return suite;
}
