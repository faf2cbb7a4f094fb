/* SPDX-License-Identifier: Apache-2.0 */
/* Plans at scale: what they take of the heap goes by their parameters, and not by the ranks. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/heap.h"
#include "plan/plan.h"
#include "plan_fixture.h"
#include "suite.h"

#define N_PARAMS      3000u
#define UNIT_PARAMS   10u
#define MANY_RANKS    "dp=1000,cp=10,ep=100"
#define PARAM_BYTES   700 /* of the heap at most, while a plan is made: rows grow by doubling */
#define PLAN_BYTES    65536
#define DIGITS_BYTES  64 /* settings and notes have numbers of ranks in them */
#define MESH_BYTES    1024
#define MOST_SEGMENTS UNIT_PARAMS

/* Calls of the engine alone: a check of the suite may allocate, and would be counted. */
static bool params_add(struct hsdp_plan *plan, uint32_t n_params, bool has_blocks)
{
    uint32_t unit = 0;
    uint32_t index;

    for (uint32_t p = 0; p < n_params; p++) {
        const int64_t shape[2] = {1 + p % 13 * 7, 1 + p % 11 * 31};
        struct hsdp_param_spec spec = HSDP_PARAM_SPEC_INIT;
        char name[32];

        snprintf(name, sizeof(name), "name.%06u", p);
        if (p % UNIT_PARAMS == 0 &&
            plan_add_unit(plan, name, p / UNIT_PARAMS % 2, &unit, NULL) != HSDP_OK) {
            return false;
        }
        spec.name = name;
        spec.shape = shape;
        spec.n_dims = 2;
        spec.unit = unit;
        spec.block_elems = has_blocks ? (uint64_t)shape[1] : 0;
        if (plan_add_param(plan, &spec, &index, NULL) != HSDP_OK) {
            return false;
        }
    }
    return true;
}

/* One kind of plan: every other unit is of experts, of which ep ranks have others. */
static const struct plan_kind {
    const char *strategy;
    bool has_blocks;
} kinds[] = {{"ddp", false},   {"fsdp", false}, {"hsdp", false}, {"hfsdp", false},
             {"zero1", false}, {"fsdp", true},  {"hsdp", true},  {"hfsdp", true}};

/* A finished plan on the mesh; *ret_use is what the calls from create to finish took. */
static struct hsdp_plan *plan_make(const struct plan_kind *kind, const char *dims,
                                   uint32_t n_params, struct heap_use *ret_use)
{
    const char *keys[] = {"sharding_strategy", "accumulation_scope"};
    const char *values[] = {kind->strategy, "full"};
    const struct hsdp_settings settings = {keys, values, 2};
    struct hsdp_class_spec dense = HSDP_CLASS_SPEC_INIT;
    struct hsdp_class_spec expert = HSDP_CLASS_SPEC_INIT;
    struct hsdp_mesh *mesh = fixture_mesh(dims, 999);
    struct hsdp_plan *plan = NULL;
    uint32_t index;
    bool is_made;

    fixture_clear_environment();
    dense.name = "dense";
    expert.name = "expert";
    expert.replicated_over = "dp,cp";
    heap_begin();
    is_made = plan_create(mesh, &settings, &plan, NULL) == HSDP_OK &&
              plan_add_class(plan, &dense, &index, NULL) == HSDP_OK &&
              plan_add_class(plan, &expert, &index, NULL) == HSDP_OK &&
              params_add(plan, n_params, kind->has_blocks) && plan_finish(plan, NULL) == HSDP_OK;
    *ret_use = heap_use();
    ck_assert(is_made);
    mesh_destroy(mesh);
    return plan;
}

static struct heap_use plan_use(const struct plan_kind *kind, const char *dims, uint32_t n_params)
{
    struct heap_use use;

    plan_destroy(plan_make(kind, dims, n_params, &use));
    return use;
}

START_TEST(plan_on_a_million_ranks_takes_what_it_takes_on_a_thousand)
{
    const struct heap_use few = plan_use(&kinds[_i], "dp=10,cp=10,ep=10", N_PARAMS);
    const struct heap_use many = plan_use(&kinds[_i], MANY_RANKS, N_PARAMS);

    ck_assert(!heap_is_counted() || many.n_calls > N_PARAMS);
    ck_assert_uint_eq(many.n_calls, few.n_calls);
    ck_assert_uint_le(many.n_bytes, few.n_bytes + DIGITS_BYTES);
    ck_assert_int_le(many.peak_bytes, few.peak_bytes + DIGITS_BYTES);
    ck_assert_int_le(many.held_bytes, few.held_bytes + DIGITS_BYTES);
}
END_TEST

START_TEST(plan_of_many_parameters_takes_so_much_for_each)
{
    for (uint32_t n_params = UNIT_PARAMS; n_params <= 8 * N_PARAMS; n_params *= 3) {
        const struct heap_use use = plan_use(&kinds[_i], MANY_RANKS, n_params);

        ck_assert_int_le(use.peak_bytes, PLAN_BYTES + (int64_t)n_params * PARAM_BYTES);
        ck_assert_int_le(use.held_bytes, use.peak_bytes);
    }
}
END_TEST

/* Of any rank, also those far from the plan's own. */
static bool questions_ask(const struct hsdp_plan *plan)
{
    static const uint32_t ranks[] = {0, 1, 999, 1000, 123456, 999999};
    struct hsdp_plan_info info = HSDP_PLAN_INFO_INIT;
    struct hsdp_unit_info unit_info = HSDP_UNIT_INFO_INIT;
    struct hsdp_segment segments[MOST_SEGMENTS];
    bool is_answered = plan_info(plan, &info, NULL) == HSDP_OK;
    uint64_t n_segments;
    uint32_t writer;

    for (uint32_t unit = 0; unit < info.n_units; unit++) {
        for (uint32_t r = 0; r < N_OF(ranks); r++) {
            is_answered =
                is_answered && plan_unit_info(plan, unit, &unit_info, NULL) == HSDP_OK &&
                plan_segments(plan, unit, HSDP_SHARD_STEP, ranks[r], segments, sizeof(segments[0]),
                              MOST_SEGMENTS, &n_segments, NULL) == HSDP_OK &&
                plan_writer(plan, unit, HSDP_SHARD_STEP, ranks[r], &writer, NULL) == HSDP_OK;
        }
    }
    return is_answered;
}

START_TEST(plan_on_a_million_ranks_answers_without_memory)
{
    struct heap_use use;
    struct hsdp_plan *plan = plan_make(&kinds[_i], MANY_RANKS, N_PARAMS, &use);
    bool is_answered;

    heap_begin();
    is_answered = questions_ask(plan);
    use = heap_use();
    ck_assert(is_answered);
    ck_assert_uint_eq(use.n_calls, 0);
    plan_destroy(plan);
}
END_TEST

/* The rank at the coordinates of each is that rank, and stands among the members that it names. */
static bool mesh_ask(const struct hsdp_mesh *mesh, uint32_t rank)
{
    uint32_t coords[3];
    uint32_t members[100];
    uint64_t n_members;

    return mesh_coords(mesh, rank, coords, 3, NULL) == HSDP_OK &&
           (coords[0] * 10 + coords[1]) * 100 + coords[2] == rank &&
           mesh_members(mesh, "ep", rank, members, 100, &n_members, NULL) == HSDP_OK &&
           n_members == 100 && members[coords[2]] == rank &&
           mesh_members(mesh, "dp[0,-1]", coords[1] * 100 + coords[2], members, 100, &n_members,
                        NULL) == HSDP_OK &&
           n_members == 2 && members[1] - members[0] == 999000;
}

START_TEST(mesh_of_a_million_ranks_has_no_table_of_them)
{
    struct hsdp_mesh *mesh;
    struct heap_use use;
    bool is_answered = true;

    heap_begin();
    mesh = fixture_mesh(MANY_RANKS, 999);
    ck_assert_int_le(heap_use().held_bytes, MESH_BYTES);
    heap_begin();
    for (uint32_t rank = 0; rank < 1000000; rank += 7) {
        is_answered = is_answered && mesh_ask(mesh, rank);
    }
    use = heap_use();
    ck_assert(is_answered);
    ck_assert_uint_eq(use.n_calls, 0);
    mesh_destroy(mesh);
}
END_TEST

/* What counts must see what the engine does. */
START_TEST(heap_use_counts_what_is_taken_and_given_back)
{
    char *volatile memory;
    struct heap_use use;

    heap_begin();
    memory = malloc(1000);
    memory = realloc(memory, 5000);
    free(memory);
    memory = calloc(10, 10);
    free(memory);
    memory = strdup("ten bytes.");
    use = heap_use();
    free(memory);
    if (heap_is_counted()) {
        ck_assert_uint_eq(use.n_calls, 4);
        ck_assert_uint_eq(use.n_bytes, 6111);
        ck_assert_int_ge(use.peak_bytes, 6000);
        ck_assert_int_ge(use.held_bytes, 11);
        ck_assert_int_lt(use.held_bytes, 100);
        ck_assert_int_eq(heap_use().held_bytes, 0);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("plan_scale");
    TCase *tcase = tcase_create("plan_scale");

    tcase_add_test(tcase, heap_use_counts_what_is_taken_and_given_back);
    tcase_add_loop_test(tcase, plan_on_a_million_ranks_takes_what_it_takes_on_a_thousand, 0,
                        N_OF(kinds));
    tcase_add_loop_test(tcase, plan_of_many_parameters_takes_so_much_for_each, 0, N_OF(kinds));
    tcase_add_loop_test(tcase, plan_on_a_million_ranks_answers_without_memory, 0, N_OF(kinds));
    tcase_add_test(tcase, mesh_of_a_million_ranks_has_no_table_of_them);
    suite_add_tcase(suite, tcase);
    return suite;
}
