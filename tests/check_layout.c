/* SPDX-License-Identifier: Apache-2.0 */
/* Layout: offsets, padding, shards and segments of finished plans. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan_fixture.h"
#include "suite.h"

static const char *const strategy_names[] = {"ddp",  "zero1",      "zero2", "fsdp",
                                             "hsdp", "hsdp_zero2", "hfsdp"};

static struct hsdp_param_info param_of(const struct hsdp_plan *plan, const char *name)
{
    struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;
    uint32_t param = 0;

    ck_assert_int_eq(plan_param_find(plan, name, &param, NULL), HSDP_OK);
    ck_assert_int_eq(plan_param_info(plan, param, &info, NULL), HSDP_OK);
    return info;
}

static struct hsdp_buffer_info buffer_of(const struct hsdp_plan *plan, uint32_t unit,
                                         uint32_t buffer)
{
    struct hsdp_buffer_info info = HSDP_BUFFER_INFO_INIT;

    ck_assert_int_eq(plan_buffer_info(plan, unit, buffer, &info, NULL), HSDP_OK);
    return info;
}

/* ------------------------------------------------------------------------------- layout */

START_TEST(layout_places_parameters_in_order_at_multiples)
{
    static const char *const shapes[] = {"[3,11]", "[]", "[0]", "[1,0,2]", "[7]", "[64]"};
    static const uint64_t offsets[] = {0, 64, 96, 96, 96, 128};
    struct hsdp_plan *plan = fixture_finished("dp=1", 0, "", shapes, 6);

    for (uint32_t p = 0; p < 6; p++) {
        struct hsdp_param_info info = HSDP_PARAM_INFO_INIT;

        ck_assert_int_eq(plan_param_info(plan, p, &info, NULL), HSDP_OK);
        ck_assert_uint_eq(info.offset_elems, offsets[p]);
        ck_assert_uint_eq(info.buffer, 0);
    }
    ck_assert_uint_eq(buffer_of(plan, 0, 0).n_elems, 1024); /* one page of fp32 */
    ck_assert_uint_eq(buffer_of(plan, 0, 0).n_padding_elems, 1024 - 33 - 1 - 7 - 64);
    plan_destroy(plan);
}
END_TEST

static const struct {
    const char *dims;
    const char *settings;
    const char *shape;
    uint64_t n_elems;
    uint64_t shards[3];
} lengths[] = {
    /* parameter shards are pages: 1024 fp32 or 2048 bf16 */
    {"dp=4", "sharding_strategy=fsdp", "[5]", 4096, {1024, 1024, 1024}},
    {"dp=4", "sharding_strategy=fsdp param_dtype=bf16", "[5]", 8192, {2048, 2048, 2048}},
    {"dp=4", "sharding_strategy=fsdp", "[4097]", 8192, {2048, 2048, 2048}},
    {"dp=3",
     "sharding_strategy=fsdp",
     "[9999999967]",
     9999999984 / 3072 * 3072 + 3072,
     {(9999999984 / 3072 + 1) * 1024, (9999999984 / 3072 + 1) * 1024,
      (9999999984 / 3072 + 1) * 1024}},
    /* a whole parameter is a page too; its step shards are multiples of 32 */
    {"dp=4", "sharding_strategy=ddp", "[5]", 1024, {1024, 1024, 1024}},
    {"dp=4", "sharding_strategy=zero1", "[5]", 1024, {1024, 1024, 256}},
    {"dp=4", "sharding_strategy=zero2", "[5]", 1024, {1024, 256, 256}},
    {"dp=3", "sharding_strategy=zero1", "[5]", 3072, {3072, 3072, 1024}},
    {"dp=5", "sharding_strategy=zero2", "[1025]", 5120, {5120, 1024, 1024}},
    {"dp=2,cp=4", "sharding_strategy=hsdp", "[5]", 4096, {1024, 1024, 1024}},
    {"dp=2,cp=4", "sharding_strategy=hsdp_zero2", "[5]", 1024, {1024, 256, 256}},
    {"dp=2,cp=4", "sharding_strategy=hfsdp", "[5]", 4096, {1024, 1024, 512}},
    {"dp=3,cp=4", "sharding_strategy=hfsdp", "[5]", 12288, {3072, 3072, 1024}},
    /* empty parameters have a buffer like all others */
    {"dp=4", "sharding_strategy=fsdp", "[1,0,2]", 4096, {1024, 1024, 1024}},
    {"dp=1", "sharding_strategy=fsdp", "[0]", 1024, {1024, 1024, 1024}},
};

START_TEST(layout_pads_to_granules_of_every_cut)
{
    struct hsdp_plan *plan =
        fixture_finished(lengths[_i].dims, 0, lengths[_i].settings, &lengths[_i].shape, 1);
    struct hsdp_buffer_info info = buffer_of(plan, 0, 0);

    ck_assert_uint_eq(info.n_elems, lengths[_i].n_elems);
    ck_assert_uint_eq(info.param_shard_elems, lengths[_i].shards[0]);
    ck_assert_uint_eq(info.grad_shard_elems, lengths[_i].shards[1]);
    ck_assert_uint_eq(info.step_shard_elems, lengths[_i].shards[2]);
    plan_destroy(plan);
}
END_TEST

START_TEST(layout_gives_frozen_parameters_a_buffer_of_their_own)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_unit_info info = HSDP_UNIT_INFO_INIT;
    struct hsdp_param_spec spec;
    int64_t shape[8];
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "both");
    fixture_unit(plan, "frozen");
    for (uint32_t unit = 0; unit < 2; unit++) {
        spec = fixture_param_spec(unit, unit == 0 ? "b" : "c", "[4]", shape);
        spec.flags = HSDP_PARAM_FROZEN;
        ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    }
    fixture_param(plan, 0, "w", "[4]");
    fixture_finish(plan);
    ck_assert_uint_eq(param_of(plan, "w").buffer, 0); /* trainable first */
    ck_assert_uint_eq(param_of(plan, "b").buffer, 1);
    ck_assert_uint_eq(param_of(plan, "c").buffer, 0);
    ck_assert_uint_eq(buffer_of(plan, 0, 0).is_frozen, 0);
    ck_assert_uint_eq(buffer_of(plan, 0, 1).is_frozen, 1);
    ck_assert_uint_eq(buffer_of(plan, 1, 0).is_frozen, 1);
    ck_assert_int_eq(plan_unit_info(plan, 1, &info, NULL), HSDP_OK);
    ck_assert_uint_eq(info.n_buffers, 1);
    ck_assert_uint_eq(info.grad_slot, HSDP_NO_SLOT);
    plan_destroy(plan);
}
END_TEST

START_TEST(layout_gives_tied_names_one_storage)
{
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_segment segments[4];
    struct hsdp_param_spec spec;
    uint64_t n_segments = 0;
    int64_t shape[8];
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    fixture_param(plan, 0, "emb", "[3,2]");
    fixture_param(plan, 0, "mid", "[5]");
    spec = fixture_param_spec(0, "head", "[3,2]", shape);
    spec.tied_to = "emb";
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    spec.name = "third";
    spec.tied_to = "head";
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    fixture_finish(plan);
    ck_assert_uint_eq(param_of(plan, "third").storage, 0);
    ck_assert_uint_eq(param_of(plan, "head").storage, 0);
    ck_assert_uint_eq(param_of(plan, "head").offset_elems, param_of(plan, "emb").offset_elems);
    ck_assert_uint_eq(param_of(plan, "mid").offset_elems, 32);
    ck_assert_uint_eq(buffer_of(plan, 0, 0).n_padding_elems, 2048 - 6 - 5);
    ck_assert_int_eq(plan_segments(plan, 0, HSDP_SHARD_PARAM, 0, segments, sizeof(segments[0]), 4,
                                   &n_segments, NULL),
                     HSDP_OK);
    ck_assert_uint_eq(n_segments, 2);
    ck_assert_uint_eq(segments[0].param, 0);
    ck_assert_uint_eq(segments[1].param, 1);
    plan_destroy(plan);
}
END_TEST

START_TEST(layout_lists_the_parameters_of_a_unit_by_place)
{
    static const uint32_t expected[] = {2, 4, 5, 0, 3}; /* w, tie of w, x, then the frozen */
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_param_spec spec;
    int64_t shape[8];
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    fixture_unit(plan, "v");
    for (uint32_t i = 0; i < 6; i++) {
        char name[8];

        snprintf(name, sizeof(name), "p%u", i);
        spec = fixture_param_spec(i == 1 ? 1 : 0, name, "[40]", shape);
        spec.flags = i == 0 || i == 3 ? HSDP_PARAM_FROZEN : 0;
        spec.tied_to = i == 4 ? "p2" : NULL;
        ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    }
    fixture_finish(plan);
    ck_assert_uint_eq(plan->units[0].n_params, 5);
    ck_assert_mem_eq(plan->units[0].params, expected, sizeof(expected));
    plan_destroy(plan);
}
END_TEST

/* Empty parameters share an offset; a second name still stands behind its storage. */
START_TEST(layout_lists_tied_empty_names_behind_their_storage)
{
    static const uint32_t expected[] = {0, 2, 1};
    struct hsdp_plan *plan = fixture_plan("dp=2", 0, "");
    struct hsdp_param_spec spec;
    int64_t shape[8];
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    fixture_param(plan, 0, "e0", "[0]");
    fixture_param(plan, 0, "e1", "[0]");
    spec = fixture_param_spec(0, "again", "[0]", shape);
    spec.tied_to = "e0";
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    fixture_finish(plan);
    ck_assert_mem_eq(plan->units[0].params, expected, sizeof(expected));
    plan_destroy(plan);
}
END_TEST

/* ------------------------------------------------------------------------------- blocks */

static int32_t block_plan_finish(const char *dims, const char *strategy, const char *const *shapes,
                                 const uint64_t *blocks, struct hsdp_plan **ret_plan,
                                 struct hsdp_error *reterr)
{
    char settings[64];
    int64_t shape[8];
    uint32_t param;

    snprintf(settings, sizeof(settings), "sharding_strategy=%s", strategy);
    *ret_plan = fixture_plan(dims, 0, settings);
    fixture_class(*ret_plan, "dense", "");
    fixture_unit(*ret_plan, "u");
    for (int i = 0; i < 3 && shapes[i] != NULL; i++) {
        char name[8];
        struct hsdp_param_spec spec;

        snprintf(name, sizeof(name), "p%d", i);
        spec = fixture_param_spec(0, name, shapes[i], shape);
        spec.block_elems = blocks[i];
        ck_assert_int_eq(plan_add_param(*ret_plan, &spec, &param, NULL), HSDP_OK);
    }
    return plan_finish(*ret_plan, reterr);
}

static void expect_blocks_whole(const struct hsdp_plan *plan, uint32_t rank)
{
    for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
        struct hsdp_segment segments[8];
        uint64_t n_segments = 0;

        ck_assert_int_eq(
            plan_segments(plan, 0, cut, rank, segments, sizeof(segments[0]), 8, &n_segments, NULL),
            HSDP_OK);
        for (uint64_t s = 0; s < n_segments; s++) {
            const struct plan_param *param = &plan->params[segments[s].param];
            uint64_t block = param->block_elems == 0 ? 1 : param->block_elems;
            uint64_t end = segments[s].param_offset_elems + segments[s].n_elems;

            ck_assert_uint_eq(segments[s].param_offset_elems % block, 0);
            ck_assert(end % block == 0 || end == param->n_elems);
        }
    }
}

START_TEST(layout_never_cuts_a_block)
{
    static const char *const shapes[] = {"[37,4096]", "[4096]", "[50,1024]"};
    static const uint64_t blocks[] = {4096, 0, 3072};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_plan *plan = NULL;

    ck_assert_msg(block_plan_finish("dp=3,cp=4", strategy_names[_i], shapes, blocks, &plan, &err) ==
                      HSDP_OK,
                  "%s", err.message);
    for (uint32_t rank = 0; rank < 12; rank++) {
        expect_blocks_whole(plan, rank);
    }
    plan_destroy(plan);
}
END_TEST

START_TEST(layout_keeps_a_parameter_of_one_block_whole)
{
    static const char *const shapes[] = {"[300,32]", "[5]", NULL};
    static const uint64_t blocks[] = {1u << 30, 0, 0};
    struct hsdp_plan *plan = NULL;

    ck_assert_int_eq(block_plan_finish("dp=8", "fsdp", shapes, blocks, &plan, NULL), HSDP_OK);
    for (uint32_t rank = 0; rank < 8; rank++) {
        expect_blocks_whole(plan, rank);
    }
    plan_destroy(plan);
}
END_TEST

START_TEST(layout_of_blocks_without_a_common_multiple_keeps_them_whole)
{
    static const char *const shapes[] = {"[3,10007]", "[3,10009]", NULL};
    static const uint64_t blocks[] = {10007, 10009, 0};
    struct hsdp_plan *plan = NULL;

    ck_assert_int_eq(block_plan_finish("dp=2", "fsdp", shapes, blocks, &plan, NULL), HSDP_OK);
    expect_blocks_whole(plan, 0);
    expect_blocks_whole(plan, 1);
    /* one in each shard, of whole pages */
    ck_assert_uint_eq(buffer_of(plan, 0, 0).n_elems, 2 * 30720);
    plan_destroy(plan);
    /* nothing is cut where nothing is sharded */
    ck_assert_int_eq(block_plan_finish("dp=2", "ddp", shapes, blocks, &plan, NULL), HSDP_OK);
    expect_blocks_whole(plan, 1);
    plan_destroy(plan);
}
END_TEST

/* ----------------------------------------------------------------------------- segments */

/* Counts into `n_owners` (one per element of the unsharded buffer) what a rank owns. */
static void owners_count(const struct hsdp_plan *plan, int cut, uint32_t rank, uint8_t *n_owners)
{
    struct hsdp_segment segments[16];
    uint64_t n_segments = 0;
    uint64_t last = 0;

    ck_assert_int_eq(
        plan_segments(plan, 0, cut, rank, segments, sizeof(segments[0]), 16, &n_segments, NULL),
        HSDP_OK);
    for (uint64_t s = 0; s < n_segments; s++) {
        const struct plan_param *param = &plan->params[segments[s].param];
        uint64_t first = param->offset_elems + segments[s].param_offset_elems;

        ck_assert_uint_gt(segments[s].n_elems, 0);
        ck_assert_uint_le(segments[s].param_offset_elems + segments[s].n_elems, param->n_elems);
        ck_assert_uint_ge(segments[s].shard_offset_elems, last);
        last = segments[s].shard_offset_elems + segments[s].n_elems;
        ck_assert_uint_le(last, plan->units[0].buffers[0].shard_elems[cut]);
        ck_assert_uint_eq(plan_slice_offset(plan, 0, 0, cut, rank) + segments[s].shard_offset_elems,
                          first);
        for (uint64_t e = 0; e < segments[s].n_elems; e++) {
            n_owners[first + e]++;
        }
    }
}

/* Over each set of ranks that hold equal values: every element once for each replica of a shard,
 * and once in what its writers save; padding never. */
static void expect_covered(const struct hsdp_plan *plan, int cut, uint32_t rank)
{
    const struct placement *place = &plan->classes[0].place;
    uint64_t n_elems = plan->units[0].buffers[0].n_elems;
    uint32_t n_holders = mesh_span(plan->mesh, place->replicated);
    uint32_t n_replicas = n_holders / placement_n_slices(place, plan->mesh, cut);
    uint8_t *n_owners = calloc(n_elems, 1);
    uint8_t *n_saved = calloc(n_elems, 1);
    uint64_t n_owned = 0;

    for (uint32_t h = 0; h < n_holders; h++) {
        uint32_t holder = mesh_peer(plan->mesh, place->replicated, rank, h);
        uint32_t writer = 0;

        owners_count(plan, cut, holder, n_owners);
        ck_assert_int_eq(plan_writer(plan, 0, cut, holder, &writer, NULL), HSDP_OK);
        if (writer == holder) {
            owners_count(plan, cut, holder, n_saved);
        }
    }
    for (uint64_t e = 0; e < n_elems; e++) {
        ck_assert(n_owners[e] == 0 || n_owners[e] == n_replicas);
        ck_assert_uint_eq(n_saved[e], n_owners[e] == 0 ? 0 : 1);
        n_owned += n_saved[e];
    }
    ck_assert_uint_eq(n_owned, n_elems - plan->units[0].buffers[0].n_padding_elems);
    free(n_owners);
    free(n_saved);
}

START_TEST(segments_of_all_ranks_cover_every_element_once)
{
    uint64_t state = 5 + (uint64_t)_i;

    for (int i = 0; i < 6; i++) {
        static const char *const shapes[] = {"[13,7]", "[]", "[0]", "[1021]", "[3,500]", "[2,2,2]"};
        char settings[96];
        char dims[64];
        struct hsdp_plan *plan;

        fixture_random_dims(&state, dims, sizeof(dims));
        snprintf(settings, sizeof(settings), "sharding_strategy=%s replicate_dims=%s",
                 strategy_names[_i], fixture_random(&state, 2) == 0 ? "dp" : "cp,ep");
        plan = fixture_finished(dims, 0, settings, shapes, 1 + fixture_random(&state, 6));
        for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
            expect_covered(plan, cut, fixture_random(&state, plan->mesh->world_ranks));
        }
        plan_destroy(plan);
    }
}
END_TEST

START_TEST(segments_of_hfsdp_follow_the_slice_order)
{
    static const char *const shape = "[6144]"; /* 2 x 3 slices of 1024 */
    struct hsdp_plan *plan = fixture_finished("dp=3,cp=2", 0, "sharding_strategy=hfsdp", &shape, 1);

    for (uint32_t rank = 0; rank < 6; rank++) {
        uint32_t outer = rank / 2;
        uint32_t inner = rank % 2;
        struct hsdp_segment segment;
        uint64_t n_segments = 0;

        ck_assert_int_eq(plan_segments(plan, 0, HSDP_SHARD_STEP, rank, &segment, sizeof(segment), 1,
                                       &n_segments, NULL),
                         HSDP_OK);
        ck_assert_uint_eq(segment.param_offset_elems, (inner * 3 + outer) * 1024);
        ck_assert_uint_eq(segment.n_elems, 1024);
    }
    plan_destroy(plan);
}
END_TEST

/* A caller that was compiled with a longer struct finds zeros behind what is known here. */
START_TEST(segments_go_into_longer_structs)
{
    static const char *const shapes[] = {"[8]", "[8]"};
    struct hsdp_plan *plan = fixture_finished("dp=1", 0, "", shapes, 2);
    struct {
        struct hsdp_segment known;
        uint64_t newer;
    } segments[2];
    uint64_t n_segments = 0;

    memset(segments, 0x5a, sizeof(segments));
    ck_assert_int_eq(plan_segments(plan, 0, HSDP_SHARD_PARAM, 0, &segments[0].known,
                                   sizeof(segments[0]), 2, &n_segments, NULL),
                     HSDP_OK);
    ck_assert_uint_eq(segments[0].known.param, 0);
    ck_assert_uint_eq(segments[1].known.param, 1);
    ck_assert_uint_eq(segments[1].known.shard_offset_elems, 32);
    ck_assert_uint_eq(segments[0].newer + segments[1].newer, 0);
    plan_destroy(plan);
}
END_TEST

/* The stride of a host whose struct ends before the last two fields of ours. */
START_TEST(segments_of_an_older_stride_are_filled_so_far)
{
    static const char *const shapes[] = {"[8]", "[8]"};
    struct hsdp_plan *plan = fixture_finished("dp=1", 0, "", shapes, 2);
    struct {
        uint32_t param;
        uint32_t buffer;
        uint64_t param_offset_elems;
    } segments[3];
    uint64_t n_segments = 0;

    memset(segments, 0x5a, sizeof(segments));
    ck_assert_int_eq(plan_segments(plan, 0, HSDP_SHARD_PARAM, 0, (void *)segments,
                                   sizeof(segments[0]), 2, &n_segments, NULL),
                     HSDP_OK);
    ck_assert_uint_eq(n_segments, 2);
    ck_assert_uint_eq(segments[0].param, 0);
    ck_assert_uint_eq(segments[1].param, 1);
    ck_assert_uint_eq(segments[1].param_offset_elems, 0);
    ck_assert_uint_eq(segments[2].param, 0x5a5a5a5a);
    plan_destroy(plan);
}
END_TEST

START_TEST(segments_with_bad_arguments_are_refused)
{
    static const char *const shapes[] = {"[8]", "[8]"};
    struct hsdp_plan *plan = fixture_finished("dp=2", 0, "sharding_strategy=ddp", shapes, 2);
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_segment one[1] = {{77, 77, 77, 77, 77}};
    uint64_t n = 77;

    ck_assert_int_eq(plan_segments(plan, 1, 0, 0, one, 32, 1, &n, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: unit 1 is outside of the 1 units");
    ck_assert_int_eq(plan_segments(plan, 0, 3, 0, one, 32, 1, &n, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: shard 3 is none of HSDP_SHARD_PARAM (0), _GRAD (1), "
                                  "_STEP (2)");
    ck_assert_int_eq(plan_segments(plan, 0, -1, 0, one, 32, 1, &n, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_segments(plan, 0, 0, 2, one, 32, 1, &n, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "plan: rank 2 is outside of the world of 2 ranks");
    ck_assert_int_eq(plan_segments(plan, 0, 0, 0, NULL, 32, 1, &n, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_segments(plan, 0, 0, 0, one, 32, 1, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_uint_eq(n, 77);
    ck_assert_int_eq(plan_segments(plan, 0, 0, 0, one, 32, 1, &n, &err), HSDP_ERR_BUFFER_TOO_SMALL);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(one[0].param, 77); /* untouched */
    plan_destroy(plan);
}
END_TEST

START_TEST(segments_of_an_empty_unit_are_none)
{
    static const char *const shape = "[1,0,2]";
    struct hsdp_plan *plan = fixture_finished("dp=4", 3, "", &shape, 1);
    uint64_t n = 77;

    ck_assert_int_eq(plan_segments(plan, 0, HSDP_SHARD_STEP, 3, NULL, 0, 0, &n, NULL), HSDP_OK);
    ck_assert_uint_eq(n, 0);
    plan_destroy(plan);
}
END_TEST

START_TEST(writer_with_bad_arguments_is_refused)
{
    static const char *const shape = "[8]";
    struct hsdp_plan *plan = fixture_finished("dp=2", 0, "", &shape, 1);
    uint32_t writer = 77;

    ck_assert_int_eq(plan_writer(plan, 0, 0, 2, &writer, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_writer(plan, 1, 0, 0, &writer, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_writer(plan, 0, 3, 0, &writer, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_writer(plan, 0, 0, 0, NULL, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_writer(NULL, 0, 0, 0, &writer, NULL), HSDP_ERR_INVALID);
    ck_assert_uint_eq(writer, 77);
    plan_destroy(plan);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("layout");
    TCase *tcase = tcase_create("layout");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, layout_places_parameters_in_order_at_multiples);
    tcase_add_loop_test(tcase, layout_pads_to_granules_of_every_cut, 0, N_OF(lengths));
    tcase_add_test(tcase, layout_gives_frozen_parameters_a_buffer_of_their_own);
    tcase_add_test(tcase, layout_gives_tied_names_one_storage);
    tcase_add_test(tcase, layout_lists_the_parameters_of_a_unit_by_place);
    tcase_add_test(tcase, layout_lists_tied_empty_names_behind_their_storage);
    tcase_add_loop_test(tcase, layout_never_cuts_a_block, 0, N_OF(strategy_names));
    tcase_add_test(tcase, layout_keeps_a_parameter_of_one_block_whole);
    tcase_add_test(tcase, layout_of_blocks_without_a_common_multiple_keeps_them_whole);
    tcase_add_loop_test(tcase, segments_of_all_ranks_cover_every_element_once, 0,
                        N_OF(strategy_names));
    tcase_add_test(tcase, segments_of_hfsdp_follow_the_slice_order);
    tcase_add_test(tcase, segments_go_into_longer_structs);
    tcase_add_test(tcase, segments_of_an_older_stride_are_filled_so_far);
    tcase_add_test(tcase, segments_with_bad_arguments_are_refused);
    tcase_add_test(tcase, segments_of_an_empty_unit_are_none);
    tcase_add_test(tcase, writer_with_bad_arguments_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
