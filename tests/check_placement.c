/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: the rows of the table on a mesh, and who owns, holds and saves which slice. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "hsdp/plan.h"
#include "plan/placement.h"
#include "plan_fixture.h"
#include "suite.h"

enum { PP = 1, DP = 2, CP = 4, EP = 8 };

/* Dense parameters reduce over dp, cp and ep, experts over dp and cp; hsdp replicates over dp. */
static const struct {
    const char *name;
    uint32_t dense[PLACEMENT_N_CUTS];
    uint32_t expert[PLACEMENT_N_CUTS];
} rows[] = {
    {"ddp", {0, 0, 0}, {0, 0, 0}},
    {"no_shard", {0, 0, 0}, {0, 0, 0}},
    {"zero1", {0, 0, DP | CP | EP}, {0, 0, DP | CP}},
    {"zero2", {0, DP | CP | EP, DP | CP | EP}, {0, DP | CP, DP | CP}},
    {"shard_grad_op", {0, DP | CP | EP, DP | CP | EP}, {0, DP | CP, DP | CP}},
    {"fsdp", {DP | CP | EP, DP | CP | EP, DP | CP | EP}, {DP | CP, DP | CP, DP | CP}},
    {"full_shard", {DP | CP | EP, DP | CP | EP, DP | CP | EP}, {DP | CP, DP | CP, DP | CP}},
    {"zero3", {DP | CP | EP, DP | CP | EP, DP | CP | EP}, {DP | CP, DP | CP, DP | CP}},
    {"hsdp", {CP | EP, CP | EP, CP | EP}, {CP, CP, CP}},
    {"hybrid_shard", {CP | EP, CP | EP, CP | EP}, {CP, CP, CP}},
    {"hsdp_zero2", {0, CP | EP, CP | EP}, {0, CP, CP}},
    {"hybrid_shard_zero2", {0, CP | EP, CP | EP}, {0, CP, CP}},
    {"hfsdp", {CP | EP, CP | EP, DP | CP | EP}, {CP, CP, DP | CP}},
};

START_TEST(placement_init_follows_the_table)
{
    struct hsdp_mesh *mesh = fixture_mesh("PP=2,dp=2,cp=3,ep=2", 0);
    const struct strategy *strategy = strategy_find(rows[_i].name);
    struct placement place;

    ck_assert_ptr_nonnull(strategy);
    placement_init(&place, mesh, strategy, DP | CP | EP, DP | CP | EP, DP);
    ck_assert_mem_eq(place.cuts, rows[_i].dense, sizeof(place.cuts));
    ck_assert_uint_eq(place.outer, DP);
    placement_init(&place, mesh, strategy, DP | CP, DP | CP, DP | EP);
    ck_assert_mem_eq(place.cuts, rows[_i].expert, sizeof(place.cuts));
    ck_assert_uint_eq(place.outer, DP); /* ep is not reduced over, so not replicated over */
    mesh_destroy(mesh);
}
END_TEST

START_TEST(strategy_find_of_other_names_is_null)
{
    static const char *const names[] = {"auto", "", "FSDP", "hsdp ", "hybrid", "full_shard zero3"};

    for (int i = 0; i < N_OF(names); i++) {
        ck_assert_msg(strategy_find(names[i]) == NULL, "'%s' was found", names[i]);
    }
}
END_TEST

START_TEST(placement_slice_of_hfsdp_is_inner_first)
{
    struct hsdp_mesh *mesh = fixture_mesh("dp=3,cp=4", 0);
    struct placement place;

    placement_init(&place, mesh, strategy_find("hfsdp"), 3, 3, 1);
    for (uint32_t rank = 0; rank < 12; rank++) {
        uint32_t outer = rank / 4;
        uint32_t inner = rank % 4;

        ck_assert_uint_eq(placement_slice(&place, mesh, HSDP_SHARD_PARAM, rank), inner);
        ck_assert_uint_eq(placement_slice(&place, mesh, HSDP_SHARD_GRAD, rank), inner);
        ck_assert_uint_eq(placement_slice(&place, mesh, HSDP_SHARD_STEP, rank), inner * 3 + outer);
    }
    mesh_destroy(mesh);
}
END_TEST

START_TEST(placement_slice_of_fsdp_is_mesh_order)
{
    struct hsdp_mesh *mesh = fixture_mesh("PP=2,dp=3,cp=4", 0);
    struct placement place;

    placement_init(&place, mesh, strategy_find("fsdp"), 6, 6, 2);
    for (uint32_t rank = 0; rank < 24; rank++) {
        ck_assert_uint_eq(placement_slice(&place, mesh, HSDP_SHARD_PARAM, rank), rank % 12);
        ck_assert_uint_eq(placement_slice(&place, mesh, HSDP_SHARD_STEP, rank), rank % 12);
    }
    mesh_destroy(mesh);
}
END_TEST

/* A random mesh, row and class; the properties below hold for each. */
struct draw {
    struct hsdp_mesh *mesh;
    struct placement place;
};

static struct draw draw_next(uint64_t *state)
{
    struct draw draw;
    char dims[64];
    uint32_t replicated = fixture_random(state, 16);

    fixture_random_dims(state, dims, sizeof(dims));
    draw.mesh = fixture_mesh(dims, 0);
    placement_init(&draw.place, draw.mesh, &strategies[fixture_random(state, STRATEGY_COUNT)],
                   replicated, replicated & fixture_random(state, 16), fixture_random(state, 16));
    return draw;
}

START_TEST(placement_slices_nest)
{
    uint64_t state = 2;

    for (int i = 0; i < 300; i++) {
        struct draw draw = draw_next(&state);

        for (int cut = HSDP_SHARD_GRAD; cut <= HSDP_SHARD_STEP; cut++) {
            uint32_t n_outer = placement_n_slices(&draw.place, draw.mesh, cut - 1);
            uint32_t n_inner = placement_n_slices(&draw.place, draw.mesh, cut);

            ck_assert_uint_eq(n_inner % n_outer, 0);
            for (uint32_t rank = 0; rank < draw.mesh->world_ranks; rank++) {
                ck_assert_uint_eq(placement_slice(&draw.place, draw.mesh, cut, rank) /
                                      (n_inner / n_outer),
                                  placement_slice(&draw.place, draw.mesh, cut - 1, rank));
            }
        }
        mesh_destroy(draw.mesh);
    }
}
END_TEST

START_TEST(placement_owner_is_the_inverse_of_slice)
{
    uint64_t state = 3;

    for (int i = 0; i < 300; i++) {
        struct draw draw = draw_next(&state);

        for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
            uint32_t n_slices = placement_n_slices(&draw.place, draw.mesh, cut);
            uint32_t rank = fixture_random(&state, draw.mesh->world_ranks);
            uint32_t others = ~draw.place.cuts[cut];

            for (uint32_t slice = 0; slice < n_slices; slice++) {
                uint32_t owner = placement_owner(&draw.place, draw.mesh, cut, rank, slice);

                ck_assert_uint_eq(placement_slice(&draw.place, draw.mesh, cut, owner), slice);
                ck_assert_uint_eq(mesh_index(draw.mesh, others, owner),
                                  mesh_index(draw.mesh, others, rank));
            }
        }
        mesh_destroy(draw.mesh);
    }
}
END_TEST

/* Each slice is written by exactly one of the ranks that hold equal values. */
START_TEST(placement_writer_is_one_per_slice)
{
    uint64_t state = 4;

    for (int i = 0; i < 300; i++) {
        struct draw draw = draw_next(&state);
        uint32_t n_holders = mesh_span(draw.mesh, draw.place.replicated);

        for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
            uint32_t n_written[64] = {0};

            for (uint32_t h = 0; h < n_holders; h++) {
                uint32_t rank = mesh_peer(draw.mesh, draw.place.replicated, 0, h);
                uint32_t slice = placement_slice(&draw.place, draw.mesh, cut, rank);
                uint32_t writer = placement_writer(&draw.place, draw.mesh, cut, rank);

                ck_assert_uint_eq(placement_slice(&draw.place, draw.mesh, cut, writer), slice);
                n_written[slice] += writer == rank ? 1 : 0;
            }
            for (uint32_t s = 0; s < placement_n_slices(&draw.place, draw.mesh, cut); s++) {
                ck_assert_uint_eq(n_written[s], 1);
            }
        }
        mesh_destroy(draw.mesh);
    }
}
END_TEST

/* Norm weights under tensor parallelism: equal over tp, not reduced over it, counted once. Over dp
 * each rank counts what it sums up. */
START_TEST(placement_is_counted_on_the_first_beyond_the_reduced)
{
    struct hsdp_mesh *mesh = fixture_mesh("dp=2,TP=2", 0);
    struct placement place;

    placement_init(&place, mesh, &strategies[_i], 3, 1, 1);
    ck_assert(placement_is_counted(&place, mesh, 0));
    ck_assert(!placement_is_counted(&place, mesh, 1));
    ck_assert(placement_is_counted(&place, mesh, 2));
    ck_assert(!placement_is_counted(&place, mesh, 3));
    mesh_destroy(mesh);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("placement");
    TCase *tcase = tcase_create("placement");

    tcase_add_loop_test(tcase, placement_init_follows_the_table, 0, N_OF(rows));
    tcase_add_test(tcase, strategy_find_of_other_names_is_null);
    tcase_add_test(tcase, placement_slice_of_hfsdp_is_inner_first);
    tcase_add_test(tcase, placement_slice_of_fsdp_is_mesh_order);
    tcase_add_test(tcase, placement_slices_nest);
    tcase_add_test(tcase, placement_owner_is_the_inverse_of_slice);
    tcase_add_test(tcase, placement_writer_is_one_per_slice);
    tcase_add_loop_test(tcase, placement_is_counted_on_the_first_beyond_the_reduced, 0,
                        STRATEGY_COUNT);
    suite_add_tcase(suite, tcase);
    return suite;
}
