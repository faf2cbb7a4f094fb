/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes: what is refused and in which words, and the arithmetic of ranks. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "plan/mesh.h"
#include "plan_fixture.h"
#include "ranks.h"
#include "suite.h"

static struct hsdp_mesh_spec spec_of(const int64_t *sizes, const char *const *names,
                                     uint32_t n_dims, uint32_t world_ranks)
{
    struct hsdp_mesh_spec spec = HSDP_MESH_SPEC_INIT;

    spec.dim_sizes = sizes;
    spec.dim_names = names;
    spec.n_dims = n_dims;
    spec.world_ranks = world_ranks;
    return spec;
}

static void expect_refused(const struct hsdp_mesh_spec *spec, const char *sentence)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_mesh *mesh = NULL;

    ck_assert_int_eq(mesh_create(spec, &mesh, &err), HSDP_ERR_INVALID);
    ck_assert_ptr_null(mesh);
    ck_assert_str_eq(err.message, sentence);
    ck_assert_int_eq(mesh_create(spec, &mesh, NULL), HSDP_ERR_INVALID);
}

/* A world of 8 ranks, or another, made of what does not make it. */
static const struct {
    int64_t sizes[2];
    uint32_t world_ranks;
    const char *sentence;
} bad_sizes[] = {
    {{1, 3}, 8, "mesh: dimensions hold 3 ranks, the world has 8: dp 1, ep 3"},
    {{2, 3}, 8, "mesh: dimensions hold 6 ranks, the world has 8: dp 2, ep 3"},
    {{2, 4}, 7, "mesh: dimensions hold 8 ranks, the world has 7: dp 2, ep 4"},
    {{-1, 3},
     8,
     "mesh: dimension dp cannot be inferred: the others hold 3 ranks, which do not divide the 8 "
     "of the world"},
    {{8, 0}, 8, "mesh: dimension ep has size 0, allowed are 1 and more, and -1 once"},
    {{-2, 8}, 8, "mesh: dimension dp has size -2, allowed are 1 and more, and -1 once"},
    {{INT64_MIN, 8},
     8,
     "mesh: dimension dp has size -9223372036854775808, allowed are 1 and more, and -1 once"},
    {{-1, -1}, 8, "mesh: dimensions dp and ep both have size -1, only one can be inferred"},
    {{-1, 2}, 0, "mesh: dimension dp has size -1, and world_ranks is 0: one must be given"},
    {{65536, 65536},
     0,
     "mesh: with the 65536 of dimension ep there are more than 4294967295 ranks"},
    {{INT64_MAX, INT64_MAX},
     8,
     "mesh: with the 9223372036854775807 of dimension dp there are more than 4294967295 ranks"},
};

/* Case A2 of tests/cases/README.md. */
START_TEST(mesh_create_of_wrong_sizes_is_refused)
{
    static const char *const names[] = {"dp", "ep"};
    struct hsdp_mesh_spec spec = spec_of(bad_sizes[_i].sizes, names, 2, bad_sizes[_i].world_ranks);

    expect_refused(&spec, bad_sizes[_i].sentence);
}
END_TEST

/* Case A2 of tests/cases/README.md. */
START_TEST(mesh_create_refused_opens_nothing)
{
    static const char *const names[] = {"dp", "ep"};
    struct hsdp_mesh_spec spec = spec_of(bad_sizes[_i].sizes, names, 2, bad_sizes[_i].world_ranks);
    uint32_t n_descriptors = ranks_n_descriptors();
    struct hsdp_mesh *mesh = NULL;

    ck_assert_int_eq(mesh_create(&spec, &mesh, NULL), HSDP_ERR_INVALID);
    ck_assert_uint_eq(ranks_n_descriptors(), n_descriptors);
}
END_TEST

static const struct {
    const char *names[2];
    const char *sentence;
} bad_names[] = {
    {{"dp", "dp"}, "mesh: dimensions 0 and 1 have the same name \"dp\""},
    {{"dp", ""}, "mesh: dimension 1 has an empty name"},
    {{NULL, "dp"}, "mesh: dimension 0 has no name"},
    {{"dp", "e p"},
     "mesh: dimension 1 has the name \"e p\"; a name is 1 to 31 letters, digits and '_', and "
     "begins with no digit"},
    {{"2dp", "ep"},
     "mesh: dimension 0 has the name \"2dp\"; a name is 1 to 31 letters, digits and '_', and "
     "begins with no digit"},
    {{"dp,cp", "ep"},
     "mesh: dimension 0 has the name \"dp,cp\"; a name is 1 to 31 letters, digits and '_', and "
     "begins with no digit"},
    {{"dp", "a2345678901234567890123456789012"},
     "mesh: dimension 1 has the name \"a2345678901234567890123456789012\"; a name is 1 to 31 "
     "letters, digits and '_', and begins with no digit"},
};

/* Case A2 of tests/cases/README.md. */
START_TEST(mesh_create_of_wrong_names_is_refused)
{
    static const int64_t sizes[] = {2, 4};
    struct hsdp_mesh_spec spec = spec_of(sizes, bad_names[_i].names, 2, 8);

    expect_refused(&spec, bad_names[_i].sentence);
}
END_TEST

START_TEST(mesh_create_of_a_bad_spec_is_refused)
{
    static const int64_t sizes[] = {2, 2, 2, 1, 1, 1, 1, 1, 1};
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    struct hsdp_mesh_spec spec = spec_of(sizes, names, 0, 8);
    struct hsdp_mesh *mesh = NULL;

    expect_refused(&spec, "mesh: n_dims is 0, allowed are 1 to 8");
    spec.n_dims = 9;
    expect_refused(&spec, "mesh: n_dims is 9, allowed are 1 to 8");
    spec = spec_of(NULL, names, 3, 8);
    expect_refused(&spec, "mesh: the spec has no dim_sizes");
    spec = spec_of(sizes, NULL, 3, 8);
    expect_refused(&spec, "mesh: the spec has no dim_names");
    spec = spec_of(sizes, names, 3, 8);
    spec.rank = 8;
    expect_refused(&spec, "mesh: rank 8 is outside of the world of 8 ranks");
    ck_assert_int_eq(mesh_create(NULL, &mesh, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(mesh_create(&spec, NULL, NULL), HSDP_ERR_INVALID);
}
END_TEST

START_TEST(mesh_create_of_unknown_data_dims_is_refused)
{
    static const int64_t sizes[] = {2, 4};
    static const char *const names[] = {"dp", "ep"};
    struct hsdp_mesh_spec spec = spec_of(sizes, names, 2, 8);

    spec.data_dims = "dp,foo";
    expect_refused(&spec, "mesh: data_dims \"dp,foo\": unknown dimension \"foo\"; known: dp,ep");
    spec.data_dims = "dp[0]";
    expect_refused(
        &spec,
        "mesh: data_dims \"dp[0]\": coordinates are not allowed here, only whole dimensions");
}
END_TEST

START_TEST(mesh_create_infers_one_size)
{
    static const int64_t sizes[] = {2, -1, 3};
    static const char *const names[] = {"pp", "dp", "ep"};
    struct hsdp_mesh_spec spec = spec_of(sizes, names, 3, 24);
    struct hsdp_mesh *mesh = NULL;
    const char *name = NULL;
    uint32_t ranks = 0;

    ck_assert_int_eq(mesh_create(&spec, &mesh, NULL), HSDP_OK);
    ck_assert_int_eq(mesh_dim(mesh, 1, &name, &ranks, NULL), HSDP_OK);
    ck_assert_str_eq(name, "dp");
    ck_assert_uint_eq(ranks, 4);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_create_knows_data_by_name_unless_told)
{
    static const struct {
        const char *names[2];
        const char *data_dims;
        uint32_t n_data_ranks;
    } cases[] = {
        {{"dp", "cp"}, NULL, 15},
        {{"pp", "ep"}, NULL, 5},
        {{"tp", "dp"}, NULL, 5},
        {{"pp", "tp"}, NULL, 1},
        {{"pp", "cp"}, "pp", 3},
        {{"dp", "cp"}, "", 1},
        {{"dp", "cp"}, "cp,dp", 15},
        {{"dp_replicate", "dp_shard"}, NULL, 15}, /* what dp was split into is dp */
    };
    static const int64_t sizes[] = {3, 5};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hsdp_mesh_spec spec = spec_of(sizes, cases[i].names, 2, 15);
        struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
        struct hsdp_mesh *mesh = NULL;

        spec.data_dims = cases[i].data_dims;
        ck_assert_int_eq(mesh_create(&spec, &mesh, NULL), HSDP_OK);
        ck_assert_int_eq(mesh_info(mesh, &info, NULL), HSDP_OK);
        ck_assert_uint_eq(info.n_data_ranks, cases[i].n_data_ranks);
        mesh_destroy(mesh);
    }
}
END_TEST

/* The sizes of a dimension whose name does not tell; of one rank, there is nothing to tell. */
START_TEST(mesh_create_with_a_name_that_tells_nothing_wants_to_be_told)
{
    static const int64_t sizes[] = {3, 5};
    static const int64_t narrow[] = {3, 1};
    const char *names[] = {"dp", "shard"};
    struct hsdp_mesh_spec spec = spec_of(sizes, names, 2, 15);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_mesh *mesh = NULL;

    ck_assert_int_eq(mesh_create(&spec, &mesh, &err), HSDP_ERR_INVALID);
    ck_assert_ptr_null(mesh);
    ck_assert_ptr_nonnull(strstr(err.message, "dimension \"shard\" see different data"));
    spec = spec_of(narrow, names, 2, 3);
    ck_assert_int_eq(mesh_create(&spec, &mesh, &err), HSDP_OK);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_info_tells_what_was_given)
{
    static const int64_t sizes[] = {4, 2};
    static const char *const names[] = {"dp", "cp"};
    struct hsdp_mesh_spec spec = spec_of(sizes, names, 2, 0);
    struct hsdp_mesh_info info = HSDP_MESH_INFO_INIT;
    struct hsdp_mesh *mesh = NULL;

    spec.rank = 5;
    spec.ranks_per_node = 4;
    ck_assert_int_eq(mesh_create(&spec, &mesh, NULL), HSDP_OK);
    ck_assert_int_eq(mesh_info(mesh, &info, NULL), HSDP_OK);
    ck_assert_uint_eq(info.n_dims, 2);
    ck_assert_uint_eq(info.world_ranks, 8);
    ck_assert_uint_eq(info.rank, 5);
    ck_assert_uint_eq(info.ranks_per_node, 4);
    ck_assert_int_eq(mesh_info(NULL, &info, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(mesh_info(mesh, NULL, NULL), HSDP_ERR_INVALID);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_coords_are_row_major)
{
    struct hsdp_mesh *mesh = fixture_mesh("PP=2,dp=3,cp=4,ep=5", 0);
    uint32_t rank = 0;

    for (uint32_t pp = 0; pp < 2; pp++) {
        for (uint32_t dp = 0; dp < 3; dp++) {
            for (uint32_t i = 0; i < 20; i++, rank++) {
                uint32_t coords[4];

                ck_assert_int_eq(mesh_coords(mesh, rank, coords, 4, NULL), HSDP_OK);
                ck_assert_uint_eq(coords[0], pp);
                ck_assert_uint_eq(coords[1], dp);
                ck_assert_uint_eq(coords[2], i / 5);
                ck_assert_uint_eq(coords[3], i % 5);
            }
        }
    }
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_queries_out_of_range_are_refused)
{
    struct hsdp_mesh *mesh = fixture_mesh("dp=2,cp=3", 0);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t coords[2] = {77, 77};
    uint32_t ranks = 77;
    const char *name = NULL;

    ck_assert_int_eq(mesh_dim(mesh, 2, &name, &ranks, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "mesh: dimension 2 is outside of the 2 dimensions");
    ck_assert_int_eq(mesh_coords(mesh, 6, coords, 2, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "mesh: rank 6 is outside of the world of 6 ranks");
    ck_assert_int_eq(mesh_coords(mesh, 0, coords, 1, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "mesh: coords needs room for 2 numbers, max_coords is 1");
    ck_assert_int_eq(mesh_coords(mesh, 0, NULL, 2, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(mesh_dim(mesh, 0, NULL, &ranks, NULL), HSDP_ERR_INVALID);
    ck_assert_ptr_null(name);
    ck_assert_uint_eq(ranks, 77);
    ck_assert_uint_eq(coords[0], 77);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_members_of_dims_of_size_one_are_the_rank_alone)
{
    static const char *const selectors[] = {"cp", "ep", "pp", "cp,ep", "", "pp[0,-1]"};
    struct hsdp_mesh *mesh = fixture_mesh("PP=1,dp=2,cp=1,ep=1", 0);

    for (size_t i = 0; i < sizeof(selectors) / sizeof(selectors[0]); i++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            uint32_t member = 77;
            uint64_t n = 0;

            ck_assert_int_eq(mesh_members(mesh, selectors[i], rank, &member, 1, &n, NULL), HSDP_OK);
            ck_assert_uint_eq(n, 1);
            ck_assert_uint_eq(member, rank);
        }
    }
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_members_are_in_mesh_order)
{
    static const struct {
        const char *selector;
        uint32_t rank;
        uint32_t ranks[4];
    } cases[] = {
        {"dp,ep", 12, {8, 9, 12, 13}},
        {"ep,dp", 12, {8, 9, 12, 13}},
        {"cp,ep", 4, {4, 5, 6, 7}},
        {"pp,cp", 5, {5, 7, 13, 15}},
    };
    struct hsdp_mesh *mesh = fixture_mesh("PP=2,dp=2,cp=2,ep=2", 0);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t ranks[4];
        uint64_t n = 0;

        ck_assert_int_eq(mesh_members(mesh, cases[i].selector, cases[i].rank, ranks, 4, &n, NULL),
                         HSDP_OK);
        ck_assert_uint_eq(n, 4);
        ck_assert_mem_eq(ranks, cases[i].ranks, sizeof(ranks));
    }
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_members_of_coordinates_are_those_alone)
{
    struct hsdp_mesh *mesh = fixture_mesh("PP=4,dp=2", 0);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t ranks[2];
    uint64_t n = 0;

    ck_assert_int_eq(mesh_members(mesh, "pp[0,-1]", 7, ranks, 2, &n, NULL), HSDP_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(ranks[0], 1);
    ck_assert_uint_eq(ranks[1], 7);
    n = 77;
    ck_assert_int_eq(mesh_members(mesh, "pp[0,-1]", 2, ranks, 2, &n, &err), HSDP_ERR_NOT_MEMBER);
    ck_assert_str_eq(err.message, "mesh: rank 2 is not among those that \"pp[0,-1]\" picks");
    ck_assert_uint_eq(n, 77);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_members_in_a_small_buffer_tells_the_number)
{
    struct hsdp_mesh *mesh = fixture_mesh("dp=4,cp=2", 0);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t ranks[8] = {77};
    uint64_t n = 0;

    ck_assert_int_eq(mesh_members(mesh, "dp", 0, NULL, 0, &n, NULL), HSDP_ERR_BUFFER_TOO_SMALL);
    ck_assert_uint_eq(n, 4);
    n = 0;
    ck_assert_int_eq(mesh_members(mesh, "dp,cp", 0, ranks, 7, &n, &err), HSDP_ERR_BUFFER_TOO_SMALL);
    ck_assert_str_eq(err.message, "mesh: \"dp,cp\" picks 8 ranks, max_ranks is 7");
    ck_assert_uint_eq(n, 8);
    ck_assert_uint_eq(ranks[0], 77);
    ck_assert_int_eq(mesh_members(mesh, "dp", 0, NULL, 4, &n, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(mesh_members(mesh, NULL, 0, ranks, 8, &n, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(mesh_members(mesh, "dp", 8, ranks, 8, &n, NULL), HSDP_ERR_INVALID);
    mesh_destroy(mesh);
}
END_TEST

/* Case A3 of tests/cases/README.md. */
START_TEST(mesh_members_of_an_unknown_name_lists_the_known)
{
    struct hsdp_mesh *mesh = fixture_mesh("PP=1,dp=2,cp=1,ep=1", 0);
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint32_t rank;
    uint64_t n = 0;

    ck_assert_int_eq(mesh_members(mesh, "foo", 0, &rank, 1, &n, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message,
                     "mesh: selector \"foo\": unknown dimension \"foo\"; known: pp,dp,cp,ep");
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_peer_and_mesh_index_are_inverse)
{
    uint64_t state = 1;

    for (int i = 0; i < 200; i++) {
        char dims[64];
        struct hsdp_mesh *mesh;
        uint32_t set = fixture_random(&state, 16);

        fixture_random_dims(&state, dims, sizeof(dims));
        mesh = fixture_mesh(dims, 0);
        for (uint32_t rank = 0; rank < mesh->world_ranks; rank++) {
            uint32_t index = mesh_index(mesh, set, rank);

            ck_assert_uint_lt(index, mesh_span(mesh, set));
            ck_assert_uint_eq(mesh_peer(mesh, set, rank, index), rank);
            ck_assert_uint_eq(mesh_index(mesh, ~set, mesh_peer(mesh, set, rank, 0)),
                              mesh_index(mesh, ~set, rank));
        }
        mesh_destroy(mesh);
    }
}
END_TEST

START_TEST(mesh_of_the_largest_world_needs_no_table)
{
    struct hsdp_mesh *mesh = fixture_mesh("PP=3,dp=5,cp=17,ep=257,tp=65537", UINT32_MAX - 1);

    ck_assert_uint_eq(mesh->world_ranks, UINT32_MAX);
    ck_assert_uint_eq(mesh_span(mesh, UINT32_MAX), UINT32_MAX);
    ck_assert_uint_eq(mesh_index(mesh, UINT32_MAX, UINT32_MAX - 1), UINT32_MAX - 1);
    ck_assert_uint_eq(mesh_peer(mesh, UINT32_MAX, 0, UINT32_MAX - 1), UINT32_MAX - 1);
    ck_assert_uint_eq(mesh_coord(mesh, UINT32_MAX - 1, 4), 65536);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_split_keeps_ranks_and_roles)
{
    struct hsdp_mesh *mesh = fixture_mesh("PP=2,dp=6,TP=2,ep=2", 3);
    struct hsdp_mesh *split = NULL;
    char text[128];

    ck_assert_int_eq(mesh_split(mesh, 1, 3, &split, NULL), HSDP_OK);
    ck_assert_uint_eq(split->world_ranks, mesh->world_ranks);
    ck_assert_uint_eq(split->rank, 3);
    mesh_dims_text(split, UINT32_MAX, text, sizeof(text));
    ck_assert_str_eq(text, "pp,dp_replicate,dp_shard,tp,ep");
    mesh_dims_text(split, split->data_dims, text, sizeof(text));
    ck_assert_str_eq(text, "dp_replicate,dp_shard,ep");
    ck_assert_uint_eq(split->n_data_ranks, mesh->n_data_ranks);
    for (uint32_t rank = 0; rank < mesh->world_ranks; rank++) {
        ck_assert_uint_eq(mesh_coord(split, rank, 1) * 3 + mesh_coord(split, rank, 2),
                          mesh_coord(mesh, rank, 1));
        ck_assert_uint_eq(mesh_coord(split, rank, 4), mesh_coord(mesh, rank, 3));
    }
    mesh_destroy(split);
    mesh_destroy(mesh);
}
END_TEST

static const struct {
    const char *dims;
    uint32_t shard_size;
    const char *sentence;
} bad_splits[] = {
    {"dp=8", 3, "mesh: a shard_size of 3 does not divide the 8 ranks of dimension dp"},
    {"dp=8", 16, "mesh: a shard_size of 16 does not divide the 8 ranks of dimension dp"},
    {"dp=2,dp_shard=2", 2,
     "mesh: dimension dp cannot be split: there is a dimension dp_shard already"},
    {"dp=2,b=1,c=1,d=1,e=1,f=1,g=1,h=1", 2,
     "mesh: dimension dp cannot be split: there are 8 dimensions already"},
    {"a2345678901234567890123456=2", 2,
     "mesh: dimension a2345678901234567890123456 cannot be split: "
     "a2345678901234567890123456_replicate is longer than 31 bytes"},
};

START_TEST(mesh_split_that_cannot_be_is_refused)
{
    struct hsdp_mesh *mesh = fixture_mesh(bad_splits[_i].dims, 0);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_mesh *split = NULL;

    ck_assert_int_eq(mesh_split(mesh, 0, bad_splits[_i].shard_size, &split, &err),
                     HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, bad_splits[_i].sentence);
    ck_assert_ptr_null(split);
    mesh_destroy(mesh);
}
END_TEST

START_TEST(mesh_destroy_of_null_is_nothing)
{
    mesh_destroy(NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("mesh");
    TCase *tcase = tcase_create("mesh");

    tcase_add_loop_test(tcase, mesh_create_of_wrong_sizes_is_refused, 0, N_OF(bad_sizes));
    tcase_add_loop_test(tcase, mesh_create_refused_opens_nothing, 0, N_OF(bad_sizes));
    tcase_add_loop_test(tcase, mesh_create_of_wrong_names_is_refused, 0, N_OF(bad_names));
    tcase_add_test(tcase, mesh_create_of_a_bad_spec_is_refused);
    tcase_add_test(tcase, mesh_create_of_unknown_data_dims_is_refused);
    tcase_add_test(tcase, mesh_create_infers_one_size);
    tcase_add_test(tcase, mesh_create_knows_data_by_name_unless_told);
    tcase_add_test(tcase, mesh_create_with_a_name_that_tells_nothing_wants_to_be_told);
    tcase_add_test(tcase, mesh_info_tells_what_was_given);
    tcase_add_test(tcase, mesh_coords_are_row_major);
    tcase_add_test(tcase, mesh_queries_out_of_range_are_refused);
    tcase_add_test(tcase, mesh_members_of_dims_of_size_one_are_the_rank_alone);
    tcase_add_test(tcase, mesh_members_are_in_mesh_order);
    tcase_add_test(tcase, mesh_members_of_coordinates_are_those_alone);
    tcase_add_test(tcase, mesh_members_in_a_small_buffer_tells_the_number);
    tcase_add_test(tcase, mesh_members_of_an_unknown_name_lists_the_known);
    tcase_add_test(tcase, mesh_peer_and_mesh_index_are_inverse);
    tcase_add_test(tcase, mesh_of_the_largest_world_needs_no_table);
    tcase_add_test(tcase, mesh_split_keeps_ranks_and_roles);
    tcase_add_loop_test(tcase, mesh_split_that_cannot_be_is_refused, 0, N_OF(bad_splits));
    tcase_add_test(tcase, mesh_destroy_of_null_is_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
