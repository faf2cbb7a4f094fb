/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: no shard boundary cuts one, and padding is near the least that any order has. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/blocks.h"
#include "plan/plan.h"
#include "plan_fixture.h"
#include "suite.h"

#define MAX_ITEMS 8

static const char *const strategy_names[] = {"ddp",  "zero1",      "zero2", "fsdp",
                                             "hsdp", "hsdp_zero2", "hfsdp"};

/* ----------------------------------------------------------------------------- what is said */

struct row {
    uint64_t n_elems;
    uint64_t block_elems;
};

/* A packing of rows into n shards of multiples of 32, unless said otherwise. */
static struct block_shards place(struct block_item *items, const struct row *rows, uint32_t n_rows,
                                 uint64_t n_shards)
{
    struct block_spec spec = {.items = items, .n_items = n_rows, .n_shards = n_shards};
    struct block_shards shards = {0};

    for (uint32_t i = 0; i < n_rows; i++) {
        uint64_t n_elems = (rows[i].n_elems + 31) / 32 * 32;

        items[i] = (struct block_item){.n_elems = n_elems, .index = i};
        items[i].block_elems = block_of(n_elems, rows[i].block_elems);
    }
    spec.shard_multiple = PLAN_ALIGN_ELEMS;
    spec.max_elems = UINT64_C(1) << 58;
    spec.max_tries = 96;
    ck_assert_int_eq(blocks_place(&spec, &shards), BLOCKS_PLACED);
    return shards;
}

START_TEST(block_of_keeps_offsets_aligned)
{
    ck_assert_uint_eq(block_of(1024, 0), 32);
    ck_assert_uint_eq(block_of(1024, 1), 32);
    ck_assert_uint_eq(block_of(1024, 16), 32);
    ck_assert_uint_eq(block_of(1024, 48), 96);
    ck_assert_uint_eq(block_of(1024, 33), 1024); /* 33 * 32 is more than all of it */
    ck_assert_uint_eq(block_of(1024, 1024), 1024);
    ck_assert_uint_eq(block_of(1024, UINT64_MAX), 1024);
    ck_assert_uint_eq(block_of(32, 7), 32);
    ck_assert_uint_eq(block_of(0, 7), 32);
}
END_TEST

static const struct {
    struct row rows[4];
    uint32_t n_rows;
    uint64_t n_shards;
    uint64_t shard_elems;
    uint64_t offsets[4];
} packings[] = {
    /* one block size: shards are multiples of it */
    {{{960, 96}}, 1, 4, 288, {0}},
    /* the order as added, where it is as good as any */
    {{{640, 0}, {320, 64}, {320, 128}}, 3, 2, 640, {0, 640, 960}},
    /* a parameter that is never cut goes where it fits, a free one to where it does not hurt */
    {{{320, 0}, {640, 640}, {320, 0}}, 3, 2, 640, {640, 0, 960}},
    /* three that are never cut in two shards */
    {{{96, 96}, {96, 96}, {96, 96}}, 3, 2, 192, {0, 96, 192}},
    /* two cut blocks without a common multiple: each crosses no boundary, or one */
    {{{3 * 1056, 1056}, {3 * 1120, 1120}}, 2, 2, 3360, {0, 3360}},
    /* what is shorter than the alignment is never cut; what is empty is nowhere */
    {{{0, 5}, {5, 5}, {31, 2}}, 3, 2, 32, {0, 0, 32}},
    {{{0, 5}}, 1, 3, 32, {0}},
};

START_TEST(place_finds_the_least_shard_of_plain_cases)
{
    struct block_item items[4];
    struct block_shards shards =
        place(items, packings[_i].rows, packings[_i].n_rows, packings[_i].n_shards);

    ck_assert_uint_eq(shards.shard_elems, packings[_i].shard_elems);
    for (uint32_t i = 0; i < packings[_i].n_rows; i++) {
        ck_assert_uint_eq(items[i].offset_elems, packings[_i].offsets[i]);
    }
}
END_TEST

START_TEST(place_of_more_than_there_may_be_is_refused)
{
    struct block_item items[2] = {{.n_elems = 4096, .block_elems = 4096},
                                  {.n_elems = 4096, .block_elems = 4096}};
    struct block_spec spec = {.items = items, .n_items = 2, .n_shards = 3, .shard_multiple = 32};
    struct block_shards shards;

    spec.max_tries = 96;
    spec.max_elems = 8191; /* than all of them */
    ck_assert_int_eq(blocks_place(&spec, &shards), BLOCKS_TOO_LARGE);
    spec.max_elems = 3 * 4096 - 1; /* than three of the longest */
    ck_assert_int_eq(blocks_place(&spec, &shards), BLOCKS_TOO_LARGE);
    spec.max_elems = 3 * 4096;
    ck_assert_int_eq(blocks_place(&spec, &shards), BLOCKS_PLACED);
}
END_TEST

/* ------------------------------------------------------------------------ against all orders */

/* The first offset from `at` on: written down from what a cut must be, not from how it is found. */
static bool whole_at(uint64_t n_elems, uint64_t block_elems, uint64_t offset, uint64_t shard_elems)
{
    uint64_t boundary = offset / shard_elems * shard_elems + shard_elems;

    for (; boundary < offset + n_elems; boundary += shard_elems) {
        if ((boundary - offset) % block_elems != 0) {
            return false;
        }
    }
    return true;
}

/* The end of the best order of those not yet used, from `end` on; more than `limit` if none fits.
 */
static uint64_t orders_end(const struct block_item *items, uint32_t n_items, uint32_t used,
                           uint64_t end, uint64_t shard_elems, uint64_t limit)
{
    uint64_t best = used == (1u << n_items) - 1 ? end : UINT64_MAX;

    for (uint32_t i = 0; i < n_items && best > limit; i++) {
        uint64_t offset = end;

        if ((used >> i & 1u) != 0) {
            continue;
        }
        while (offset + items[i].n_elems <= limit &&
               !whole_at(items[i].n_elems, items[i].block_elems, offset, shard_elems)) {
            offset += PLAN_ALIGN_ELEMS;
        }
        if (offset + items[i].n_elems <= limit) {
            uint64_t found = orders_end(items, n_items, used | 1u << i, offset + items[i].n_elems,
                                        shard_elems, limit);

            best = found < best ? found : best;
        }
    }
    return best;
}

/* The least shard of all orders, and all offsets. */
static uint64_t least_shard(const struct block_item *items, uint32_t n_items, uint64_t n_shards)
{
    uint64_t total = 0;
    uint64_t shard_elems;

    for (uint32_t i = 0; i < n_items; i++) {
        total += items[i].n_elems;
    }
    shard_elems = (total / n_shards + 31) / 32 * 32;
    shard_elems = shard_elems == 0 ? 32 : shard_elems;
    while (orders_end(items, n_items, 0, 0, shard_elems, shard_elems * n_shards) == UINT64_MAX) {
        shard_elems += PLAN_ALIGN_ELEMS;
    }
    return shard_elems;
}

static void rows_random(uint64_t *random, struct row *rows, uint32_t n_rows)
{
    static const uint64_t blocks[] = {0, 1, 32, 64, 96, 128, 160, 7, 1u << 20};

    for (uint32_t i = 0; i < n_rows; i++) {
        rows[i].n_elems = 1 + fixture_random(random, 40) * (1 + fixture_random(random, 32));
        rows[i].block_elems = blocks[fixture_random(random, 9)];
    }
}

static void expect_placed(const struct block_item *items, uint32_t n_items, uint64_t n_shards,
                          const struct block_shards *shards)
{
    for (uint32_t i = 0; i < n_items; i++) {
        uint64_t end = items[i].offset_elems + items[i].n_elems;

        ck_assert(whole_at(items[i].n_elems, items[i].block_elems, items[i].offset_elems,
                           shards->shard_elems));
        ck_assert_uint_le(end, shards->shard_elems * n_shards);
        for (uint32_t j = 0; j < i; j++) {
            ck_assert(end <= items[j].offset_elems ||
                      items[j].offset_elems + items[j].n_elems <= items[i].offset_elems);
        }
    }
}

/* Never below the least, never above what is promised, and as a rule the least itself. */
START_TEST(place_is_near_the_least_shard_of_all_orders)
{
    uint64_t random = 1000 + (uint64_t)_i;
    uint32_t n_least = 0;
    double sum = 0.0;

    for (int round = 0; round < 300; round++) {
        struct row rows[MAX_ITEMS];
        struct block_item items[MAX_ITEMS];
        uint32_t n_rows = 1 + fixture_random(&random, 5);
        uint64_t n_shards = 2 + fixture_random(&random, 5);
        struct block_shards shards;
        uint64_t least;

        rows_random(&random, rows, n_rows);
        shards = place(items, rows, n_rows, n_shards);
        expect_placed(items, n_rows, n_shards, &shards);
        least = least_shard(items, n_rows, n_shards);
        ck_assert_uint_le(shards.least_elems, least);
        ck_assert_uint_ge(shards.shard_elems, least);
        ck_assert_uint_le(shards.shard_elems, shards.most_elems);
        n_least += shards.shard_elems == least;
        sum += (double)shards.shard_elems / (double)least;
    }
    ck_assert_uint_ge(n_least, 285); /* 95 % */
    ck_assert_double_le(sum / 300.0, 1.005);
}
END_TEST

/* ------------------------------------------------------------------------------- whole plans */

/* The promise of blocks.h, counted anew from a buffer's parameters and its shard length. */
static uint64_t promised_shard(const struct hsdp_plan *plan, const struct plan_buffer *buffer,
                               bool is_frozen, uint64_t n_shards, uint64_t multiple)
{
    uint64_t total = 0;
    uint64_t piece = PLAN_ALIGN_ELEMS;
    uint64_t shard_elems;
    bool is_allowed = false;

    for (uint32_t p = 0; p < plan->n_params; p++) {
        uint64_t n_elems = (plan->params[p].n_elems + 31) / 32 * 32;
        uint64_t block = block_of(n_elems, plan->params[p].block_elems);

        if (((plan->params[p].flags & HSDP_PARAM_FROZEN) != 0) == is_frozen) {
            total += n_elems;
            piece = block > piece && block > PLAN_ALIGN_ELEMS ? block : piece;
        }
    }
    total = total == 0 ? 1 : total;
    shard_elems = (total + n_shards - 1) / n_shards + piece - PLAN_ALIGN_ELEMS;
    shard_elems = (shard_elems + multiple - 1) / multiple * multiple;
    while (!is_allowed && shard_elems < buffer->shard_elems[HSDP_SHARD_STEP]) {
        is_allowed = true;
        for (uint32_t p = 0; p < plan->n_params; p++) {
            uint64_t n_elems = (plan->params[p].n_elems + 31) / 32 * 32;
            uint64_t block = block_of(n_elems, plan->params[p].block_elems);

            is_allowed =
                is_allowed && (n_elems <= shard_elems || shard_elems % block == 0 ||
                               ((plan->params[p].flags & HSDP_PARAM_FROZEN) != 0) != is_frozen);
        }
        shard_elems += is_allowed ? 0 : multiple;
    }
    return shard_elems;
}

/* Every run of every rank in every cut begins and ends at the edge of a block. */
static uint64_t expect_blocks_whole(const struct hsdp_plan *plan, int cut, uint32_t rank)
{
    struct hsdp_segment segments[2 * MAX_ITEMS];
    uint64_t n_segments = 0;
    uint64_t n_elems = 0;

    ck_assert_int_eq(plan_segments(plan, 0, cut, rank, segments, sizeof(segments[0]), 2 * MAX_ITEMS,
                                   &n_segments, NULL),
                     HSDP_OK);
    for (uint64_t s = 0; s < n_segments; s++) {
        const struct plan_param *param = &plan->params[segments[s].param];
        uint64_t block = param->block_elems == 0 ? 1 : param->block_elems;
        uint64_t end = segments[s].param_offset_elems + segments[s].n_elems;

        ck_assert_uint_eq(segments[s].param_offset_elems % block, 0);
        ck_assert(end % block == 0 || end == param->n_elems);
        n_elems += segments[s].n_elems;
    }
    return n_elems;
}

static struct hsdp_plan *plan_random(uint64_t *random, const char *dims, const char *strategy)
{
    static const uint64_t blocks[] = {0, 1, 64, 96, 1000, 128, 4096, 7, 1u << 20};
    static const char *const dtypes[] = {"fp32", "bf16"};
    char settings[96];
    struct hsdp_plan *plan;
    uint32_t n_params = 1 + fixture_random(random, MAX_ITEMS);

    snprintf(settings, sizeof(settings), "sharding_strategy=%s param_dtype=%s", strategy,
             dtypes[fixture_random(random, 2)]);
    plan = fixture_plan(dims, 0, settings);
    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    for (uint32_t i = 0; i < n_params; i++) {
        int64_t shape[HSDP_PARAM_MAX_DIMS];
        struct hsdp_param_spec spec = fixture_param_spec(0, "", "[1,1]", shape);
        char name[16];
        uint32_t param;

        snprintf(name, sizeof(name), "p%u", i);
        spec.name = name;
        shape[0] = fixture_random(random, 100);
        shape[1] = 1 + fixture_random(random, 3) * fixture_random(random, 400);
        spec.block_elems = blocks[fixture_random(random, 9)];
        spec.flags = fixture_random(random, 4) == 0 ? HSDP_PARAM_FROZEN : 0;
        ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    }
    fixture_finish(plan);
    return plan;
}

static void expect_promise(const struct hsdp_plan *plan)
{
    const struct plan_unit *unit = &plan->units[0];
    const struct plan_class *klass = &plan->classes[0];
    uint64_t n_shards = placement_n_slices(&klass->place, plan->mesh, HSDP_SHARD_STEP);
    uint64_t n_rests = placement_n_slices(&klass->place, plan->mesh, HSDP_SHARD_PARAM);
    uint64_t granule = PLAN_GRANULE_BYTES / dtype_bytes(klass->param_dtype);
    uint64_t multiple = PLAN_ALIGN_ELEMS;

    while (multiple * n_shards / n_rests % granule != 0) {
        multiple += PLAN_ALIGN_ELEMS;
    }
    for (uint32_t b = 0; b < unit->n_buffers && n_shards > 1; b++) {
        ck_assert_uint_eq(unit->buffers[b].n_elems,
                          n_shards * unit->buffers[b].shard_elems[HSDP_SHARD_STEP]);
        ck_assert_uint_le(unit->buffers[b].shard_elems[HSDP_SHARD_STEP],
                          promised_shard(plan, &unit->buffers[b], unit->buffers[b].is_frozen,
                                         n_shards, multiple));
    }
}

START_TEST(plan_cuts_no_block_and_keeps_the_promise)
{
    uint64_t random = 77 + (uint64_t)_i;

    for (int round = 0; round < 40; round++) {
        char dims[64];
        struct hsdp_plan *plan;

        fixture_random_dims(&random, dims, sizeof(dims));
        plan = plan_random(&random, dims, strategy_names[_i]);
        expect_promise(plan);
        for (int cut = 0; cut < PLACEMENT_N_CUTS; cut++) {
            uint64_t n_elems = 0;
            uint64_t n_expected = 0;

            for (uint32_t rank = 0; rank < plan->mesh->world_ranks; rank++) {
                n_elems += expect_blocks_whole(plan, cut, rank);
            }
            for (uint32_t p = 0; p < plan->n_params; p++) {
                n_expected += plan->params[p].n_elems;
            }
            n_expected *= plan->mesh->world_ranks;
            n_expected /= placement_n_slices(&plan->classes[0].place, plan->mesh, cut);
            ck_assert_uint_eq(n_elems, n_expected);
        }
        plan_destroy(plan);
    }
}
END_TEST

/* Without blocks everything stands as it was added; so it does where blocks ask for nothing. */
START_TEST(plan_without_blocks_keeps_the_order_as_added)
{
    static const char *const shapes[] = {"[70]", "[5000]", "[1]", "[300]"};
    static const uint64_t offsets[] = {0, 96, 5120, 5152};
    struct hsdp_plan *plan = fixture_plan("dp=4", 0, "");

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "u");
    for (uint32_t i = 0; i < 4; i++) {
        int64_t shape[HSDP_PARAM_MAX_DIMS];
        struct hsdp_param_spec spec = fixture_param_spec(0, "", shapes[i], shape);
        char name[16];
        uint32_t param;

        snprintf(name, sizeof(name), "p%u", i);
        spec.name = name;
        spec.block_elems = _i == 0 ? 0 : 16;
        ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    }
    fixture_finish(plan);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(plan->params[i].offset_elems, offsets[i]);
    }
    ck_assert_uint_eq(plan->units[0].buffers[0].n_elems, 8192);
    ck_assert_uint_eq(plan->units[0].buffers[0].n_block_padding_elems, 0);
    ck_assert_uint_eq(plan->totals.n_notes, 1); /* of the scope */
    plan_destroy(plan);
}
END_TEST

/* Two units, one of them with a block for each of four shards but one. */
START_TEST(plan_reports_what_blocks_cost)
{
    struct hsdp_plan *plan = fixture_plan("dp=4", 0, "accumulation_scope=full");
    static const char *const expected[] = {
        "\"elems\":16384,\"padding_elems\":4096,\"block_padding_elems\":4096,\"param_shard_elems\"",
        "\"padding\":{\"elems\":16384,\"padding_elems\":4096,\"block_padding_elems\":4096}",
        "\"padding\":{\"elems\":28672,\"padding_elems\":4096,\"block_padding_elems\":4096}",
    };
    int64_t shape[HSDP_PARAM_MAX_DIMS];
    struct hsdp_param_spec spec;
    char report[16384];
    uint64_t n_bytes;
    uint32_t param;

    fixture_class(plan, "dense", "");
    fixture_unit(plan, "plain");
    fixture_unit(plan, "blocks");
    fixture_param(plan, 0, "w", "[12288]");
    spec = fixture_param_spec(1, "x", "[3,4096]", shape);
    spec.block_elems = 4096;
    ck_assert_int_eq(plan_add_param(plan, &spec, &param, NULL), HSDP_OK);
    fixture_finish(plan);
    ck_assert_uint_eq(plan->totals.n_notes, 1);
    ck_assert_str_eq(plan->notes[0],
                     "block_elems: keeping blocks whole pads 1 of 2 units by more than 5 %, unit "
                     "blocks by 33 % of its parameters; larger units, fewer shards, or blocks with "
                     "a small common multiple take less");
    ck_assert_int_eq(plan_report(plan, report, sizeof(report), &n_bytes, NULL), HSDP_OK);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_msg(strstr(report, expected[i]) != NULL, "%s lacks %s", report, expected[i]);
    }
    plan_destroy(plan);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("blocks");
    TCase *tcase = tcase_create("blocks");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, block_of_keeps_offsets_aligned);
    tcase_add_loop_test(tcase, place_finds_the_least_shard_of_plain_cases, 0,
                        (int)(sizeof(packings) / sizeof(packings[0])));
    tcase_add_test(tcase, place_of_more_than_there_may_be_is_refused);
    tcase_add_loop_test(tcase, place_is_near_the_least_shard_of_all_orders, 0, 4);
    tcase_add_loop_test(tcase, plan_cuts_no_block_and_keeps_the_promise, 0, 7);
    tcase_add_loop_test(tcase, plan_without_blocks_keeps_the_order_as_added, 0, 2);
    tcase_add_test(tcase, plan_reports_what_blocks_cost);
    suite_add_tcase(suite, tcase);
    return suite;
}
