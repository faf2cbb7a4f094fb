/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors: the grammar, its errors, and the ranks that are picked. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "plan/selector.h"
#include "plan_fixture.h"
#include "suite.h"

#define MESH "PP=4,dp=2,cp=1,ep=3"

static const struct {
    const char *text;
    uint32_t dims;
    uint32_t n_coords;
    uint32_t coords[3];
} good[] = {
    {"", 0, 0, {0}},
    {"dp", 2, 0, {0}},
    {"pp,dp,cp,ep", 15, 0, {0}},
    {"ep,pp", 9, 0, {0}},
    {"pp[0]", 1, 1, {0}},
    {"pp[0,-1]", 1, 2, {0, 3}},
    {"pp[3,1,0]", 1, 3, {0, 1, 3}},
    {"pp[-4,-1,3,0]", 1, 2, {0, 3}},
    {"cp[0,-1]", 4, 1, {0}},
};

START_TEST(selector_parse_of_good_text_is_a_set)
{
    struct hsdp_mesh *mesh = fixture_mesh(MESH, 0);
    struct selector selector;

    ck_assert_int_eq(selector_parse(mesh, "t", good[_i].text, &selector, NULL), HSDP_OK);
    ck_assert_uint_eq(selector.dims, good[_i].dims);
    ck_assert_uint_eq(selector.n_coords, good[_i].n_coords);
    for (uint32_t i = 0; i < selector.n_coords; i++) {
        ck_assert_uint_eq(selector.coords[i], good[_i].coords[i]);
    }
    mesh_destroy(mesh);
}
END_TEST

#define WANTED "; wanted is \"dp,cp\" or \"pp[0,-1]\""

static const struct {
    const char *text;
    const char *sentence;
} bad[] = {
    {"foo", "t \"foo\": unknown dimension \"foo\"; known: pp,dp,cp,ep"},
    {"dp,foo", "t \"dp,foo\": unknown dimension \"foo\"; known: pp,dp,cp,ep"},
    {"DP", "t \"DP\": unknown dimension \"DP\"; known: pp,dp,cp,ep"},
    {" dp", "t \" dp\": unknown dimension \" dp\"; known: pp,dp,cp,ep"},
    {"foo[0]", "t \"foo[0]\": unknown dimension \"foo\"; known: pp,dp,cp,ep"},
    {"[0]", "t \"[0]\": unknown dimension \"\"; known: pp,dp,cp,ep"},
    {"dp,dp", "t \"dp,dp\": dimension dp is named twice"},
    {"dp,cp,dp", "t \"dp,cp,dp\": dimension dp is named twice"},
    {",", "t \",\": a name is missing" WANTED},
    {"dp,", "t \"dp,\": a name is missing" WANTED},
    {"dp,,cp", "t \"dp,,cp\": a name is missing" WANTED},
    {"dp,pp[0]", "t \"dp,pp[0]\": coordinates follow one dimension alone" WANTED},
    {"pp]", "t \"pp]\": coordinates follow one dimension alone" WANTED},
    {"pp[0],dp", "t \"pp[0],dp\": text follows the ']'" WANTED},
    {"pp[]", "t \"pp[]\": a coordinate is missing" WANTED},
    {"pp[0,]", "t \"pp[0,]\": a coordinate is missing" WANTED},
    {"pp[-]", "t \"pp[-]\": a coordinate is missing" WANTED},
    {"pp[+1]", "t \"pp[+1]\": a coordinate is missing" WANTED},
    {"pp[ 1]", "t \"pp[ 1]\": a coordinate is missing" WANTED},
    {"pp[0", "t \"pp[0\": a ',' or ']' is missing" WANTED},
    {"pp[0 ,1]", "t \"pp[0 ,1]\": a ',' or ']' is missing" WANTED},
    {"pp[1.5]", "t \"pp[1.5]\": a ',' or ']' is missing" WANTED},
    {"pp[4]", "t \"pp[4]\": coordinate 4 is outside of dimension pp, which has 4 ranks"},
    {"pp[0,-5]", "t \"pp[0,-5]\": coordinate -5 is outside of dimension pp, which has 4 ranks"},
    {"pp[99999999999999999999]",
     "t \"pp[99999999999999999999]\": coordinate 99999999999999999999 is outside of dimension pp, "
     "which has 4 ranks"},
    {"pp[18446744073709551617]", /* 2^64 + 1 */
     "t \"pp[18446744073709551617]\": coordinate 18446744073709551617 is outside of dimension pp, "
     "which has 4 ranks"},
    {NULL, "t: there is no text"},
};

START_TEST(selector_parse_of_bad_text_says_why)
{
    struct hsdp_mesh *mesh = fixture_mesh(MESH, 0);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct selector selector;

    memset(&selector, 0x5a, sizeof(selector));
    ck_assert_int_eq(selector_parse(mesh, "t", bad[_i].text, &selector, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, bad[_i].sentence);
    ck_assert_uint_eq(selector.dims, 0x5a5a5a5a); /* untouched */
    ck_assert_int_eq(selector_parse(mesh, "t", bad[_i].text, &selector, NULL), HSDP_ERR_INVALID);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(selector_parse_of_very_long_text_is_refused)
{
    struct hsdp_mesh *mesh = fixture_mesh(MESH, 0);
    struct selector selector;
    char text[4096];

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_eq(selector_parse(mesh, "t", text, &selector, NULL), HSDP_ERR_INVALID);
    memset(text, '9', sizeof(text) - 1);
    memcpy(text, "pp[", 3);
    ck_assert_int_eq(selector_parse(mesh, "t", text, &selector, NULL), HSDP_ERR_INVALID);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(selector_parse_of_too_many_coordinates_is_refused)
{
    struct hsdp_mesh *mesh = fixture_mesh("dp=100", 0);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct selector selector;
    char text[512] = "dp[";
    int n_bytes = 3;

    for (int i = 99; i > 99 - (int)SELECTOR_MAX_COORDS; i--) {
        n_bytes += snprintf(text + n_bytes, sizeof(text) - (size_t)n_bytes, "%d,", i);
    }
    text[n_bytes - 1] = ']';
    ck_assert_int_eq(selector_parse(mesh, "t", text, &selector, NULL), HSDP_OK);
    ck_assert_uint_eq(selector.n_coords, SELECTOR_MAX_COORDS);
    ck_assert_uint_eq(selector.coords[0], 100 - SELECTOR_MAX_COORDS);
    strcpy(text + n_bytes - 1, ",0]");
    ck_assert_int_eq(selector_parse(mesh, "t", text, &selector, &err), HSDP_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.message, ": more than 64 coordinates"));
    mesh_destroy(mesh);
}
END_TEST

START_TEST(selector_dims_of_coordinates_is_refused)
{
    struct hsdp_mesh *mesh = fixture_mesh(MESH, 0);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t dims = 77;

    ck_assert_int_eq(selector_dims(mesh, "replicate_dims", "pp[0,1]", &dims, &err),
                     HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "replicate_dims \"pp[0,1]\": coordinates are not allowed here, "
                                  "only whole dimensions");
    ck_assert_uint_eq(dims, 77);
    ck_assert_int_eq(selector_dims(mesh, "replicate_dims", "dp,ep", &dims, NULL), HSDP_OK);
    ck_assert_uint_eq(dims, 10);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(selector_parse_of_a_split_name_is_both_halves)
{
    struct hsdp_mesh *mesh = fixture_mesh("PP=2,dp_replicate=2,dp_shard=3", 0);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t dims = 0;

    ck_assert_int_eq(selector_dims(mesh, "t", "dp", &dims, NULL), HSDP_OK);
    ck_assert_uint_eq(dims, 6);
    ck_assert_int_eq(selector_dims(mesh, "t", "pp,dp", &dims, NULL), HSDP_OK);
    ck_assert_uint_eq(dims, 7);
    ck_assert_int_eq(selector_dims(mesh, "t", "dp,dp_shard", &dims, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "t \"dp,dp_shard\": dimension dp_shard is named twice");
    ck_assert_int_eq(selector_dims(mesh, "t", "dp[0]", &dims, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "t \"dp[0]\": unknown dimension \"dp\"; known: "
                                  "pp,dp_replicate,dp_shard");
    mesh_destroy(mesh);
}
END_TEST

START_TEST(selector_rank_and_selector_index_are_inverse)
{
    static const char *const texts[] = {"", "dp", "pp,ep", "pp[0,-1]", "ep[1]", "pp,dp,cp,ep"};
    struct hsdp_mesh *mesh = fixture_mesh(MESH, 0);

    for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
        struct selector selector;

        ck_assert_int_eq(selector_parse(mesh, "t", texts[t], &selector, NULL), HSDP_OK);
        for (uint32_t rank = 0; rank < mesh->world_ranks; rank++) {
            int64_t own = selector_index(mesh, &selector, rank);

            for (uint32_t i = 0; i < selector_n_ranks(mesh, &selector); i++) {
                uint32_t member = selector_rank(mesh, &selector, rank, i);

                ck_assert_int_eq(selector_index(mesh, &selector, member), i);
                ck_assert((member == rank) == (own == (int64_t)i));
            }
        }
    }
    mesh_destroy(mesh);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("selector");
    TCase *tcase = tcase_create("selector");

    tcase_add_loop_test(tcase, selector_parse_of_good_text_is_a_set, 0, N_OF(good));
    tcase_add_loop_test(tcase, selector_parse_of_bad_text_says_why, 0, N_OF(bad));
    tcase_add_test(tcase, selector_parse_of_very_long_text_is_refused);
    tcase_add_test(tcase, selector_parse_of_too_many_coordinates_is_refused);
    tcase_add_test(tcase, selector_dims_of_coordinates_is_refused);
    tcase_add_test(tcase, selector_parse_of_a_split_name_is_both_halves);
    tcase_add_test(tcase, selector_rank_and_selector_index_are_inverse);
    suite_add_tcase(suite, tcase);
    return suite;
}
