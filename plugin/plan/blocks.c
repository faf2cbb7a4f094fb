/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: the search for the shortest shards, and the orders that are tried. */
#include "plan/blocks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "plan/arith.h"
#include "plan/plan.h"
#include "plan/sort.h"

#define MAX_LEVELS 64u /* each multiple is at least twice the one before */
#define FEW_ITEMS  4096u
#define N_CROSSING 8u /* how many of the longest are looked at for crossing a boundary */

/*
 * What L must be a multiple of, by how short it is: below `longest` also the parameter of that
 * length asks for its block, which is in the next level.
 */
struct level {
    uint64_t multiple;
    uint64_t longest; /* of those that this multiple does not serve; 0 = none is left */
};

/* Parameters not placed yet, the longest first. */
struct pool {
    struct block_item **items;
    uint32_t *next; /* [i] = i, or nearer to the next one that is there; [n_items] = itself */
    uint32_t n_items;
};

struct packing {
    const struct block_spec *spec;
    struct level levels[MAX_LEVELS];
    uint32_t n_levels;
    uint64_t total_elems;
    uint64_t largest_piece;   /* M */
    uint64_t longest_uncut;   /* of those that are never cut */
    struct block_item **rows; /* owned, with all the orders below */
    uint32_t *next;           /* owned, of both pools */
    struct sort_row *sorting; /* owned, of no content between two sorts: twice n_items */
    struct block_item **added;
    struct block_item **by_block;
    struct pool solid; /* those with blocks */
    struct pool fluid; /* those that may be cut anywhere */
    bool is_few;       /* of many, best fit leaves next to nothing to gain */
    bool is_sorted;    /* by_block and fluid are: most often the order as added does */
};

uint64_t block_of(uint64_t n_elems, uint64_t block_elems)
{
    uint64_t block;

    if (block_elems == 0 || n_elems <= PLAN_ALIGN_ELEMS) {
        return PLAN_ALIGN_ELEMS;
    }
    return arith_lcm(block_elems, PLAN_ALIGN_ELEMS, &block) && block < n_elems ? block : n_elems;
}

static bool item_is_fluid(const struct block_item *item)
{
    return item->block_elems == PLAN_ALIGN_ELEMS;
}

static bool item_is_uncut(const struct block_item *item)
{
    return item->block_elems >= item->n_elems;
}

/* ------------------------------------------------------------------------------- one place */

/* The first offset from `at` on where no boundary cuts a block; false where there is none. */
static bool item_place(struct block_item *item, uint64_t shard_elems, uint64_t at)
{
    uint64_t room = shard_elems - at % shard_elems; /* to the next boundary */
    uint64_t block = item->block_elems;

    if (item->n_elems <= room || item_is_fluid(item)) {
        item->trial_elems = at;
        return true;
    }
    item->trial_elems = at + room % block;
    if (shard_elems % block == 0 || item->n_elems - (room - room % block) <= shard_elems) {
        return true;
    }
    /* From the boundary on: its second part is too long, or it would have been behind it. */
    item->trial_elems = at + room + shard_elems % block;
    return item->n_elems - (shard_elems - shard_elems % block) <= shard_elems;
}

static bool item_append(const struct packing *packing, struct block_item *item,
                        uint64_t shard_elems, uint64_t *end)
{
    if (!item_place(item, shard_elems, *end)) {
        return false;
    }
    *end = item->trial_elems + item->n_elems;
    return *end <= packing->spec->n_shards * shard_elems;
}

/* ------------------------------------------------------------------------------ whole orders */

static bool order_try(const struct packing *packing, struct block_item **order,
                      uint64_t shard_elems)
{
    uint64_t end = 0;

    for (uint32_t i = 0; i < packing->spec->n_items; i++) {
        if (!item_append(packing, order[i], shard_elems, &end)) {
            return false;
        }
    }
    return true;
}

static void pool_fill(struct pool *pool)
{
    for (uint32_t i = 0; i <= pool->n_items; i++) {
        pool->next[i] = i;
    }
}

/* The first that is there from place `i` on; n_items = none. */
static uint32_t pool_from(struct pool *pool, uint32_t i)
{
    while (pool->next[i] != i) {
        pool->next[i] = pool->next[pool->next[i]];
        i = pool->next[i];
    }
    return i;
}

/* The longest that is no longer than this; n_items = none. */
static uint32_t pool_fitting(struct pool *pool, uint64_t n_elems)
{
    uint32_t low = 0;
    uint32_t high = pool->n_items;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (pool->items[middle]->n_elems <= n_elems) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return pool_from(pool, low);
}

static struct block_item *pool_take(struct pool *pool, uint32_t i)
{
    pool->next[i] = i + 1;
    return pool->items[i];
}

/* Of the longest with blocks, the one that crosses the next boundary at the least loss. */
static uint32_t crossing_find(struct pool *solid, uint64_t shard_elems, uint64_t end,
                              uint64_t *ret_loss)
{
    uint64_t room = shard_elems - end % shard_elems;
    uint32_t best = solid->n_items;
    uint32_t i = pool_from(solid, 0);

    *ret_loss = UINT64_MAX;
    for (uint32_t n = 0; n < N_CROSSING && i < solid->n_items; n++) {
        struct block_item *item = solid->items[i];

        if (item->n_elems <= room) {
            break;
        }
        if (item_place(item, shard_elems, end) && item->trial_elems - end < *ret_loss) {
            *ret_loss = item->trial_elems - end;
            best = i;
        }
        i = pool_from(solid, i + 1);
    }
    return best;
}

/* Which comes next behind `end`; NULL when none can. */
static struct block_item *fit_choose(struct packing *packing, uint64_t shard_elems, uint64_t end)
{
    uint64_t room = shard_elems - end % shard_elems;
    struct pool *solid = &packing->solid;
    struct pool *fluid = &packing->fluid;
    uint64_t loss;
    uint32_t crossing = crossing_find(solid, shard_elems, end, &loss);
    uint32_t i;

    if (loss == 0) {
        return pool_take(solid, crossing);
    }
    i = pool_fitting(solid, room);
    if (i < solid->n_items) {
        return pool_take(solid, i);
    }
    i = pool_fitting(fluid, room);
    i = i < fluid->n_items ? i : pool_from(fluid, 0); /* that one crosses at no loss */
    if (i < fluid->n_items) {
        return pool_take(fluid, i);
    }
    return crossing < solid->n_items ? pool_take(solid, crossing) : NULL;
}

static bool fit_try(struct packing *packing, uint64_t shard_elems)
{
    uint64_t end = 0;

    pool_fill(&packing->solid);
    pool_fill(&packing->fluid);
    for (uint32_t n = 0; n < packing->spec->n_items; n++) {
        struct block_item *item = fit_choose(packing, shard_elems, end);

        if (item == NULL || !item_append(packing, item, shard_elems, &end)) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------ trying a shard length */

static uint64_t item_length(const struct block_item *item)
{
    return item->n_elems;
}

static uint64_t item_block(const struct block_item *item)
{
    return item->block_elems;
}

/* The largest number first; of one number, as they stand. */
static void items_sort(const struct packing *packing, struct block_item **items, uint32_t n_items,
                       uint64_t (*number)(const struct block_item *item))
{
    struct sort_row *rows = packing->sorting;

    for (uint32_t i = 0; i < n_items; i++) {
        rows[i] = (struct sort_row){~number(items[i]), (uint64_t)(items[i] - packing->spec->items)};
    }
    sort_rows(rows, rows + n_items, n_items);
    for (uint32_t i = 0; i < n_items; i++) {
        items[i] = &packing->spec->items[rows[i].index];
    }
}

static bool orders_try(struct packing *packing, uint64_t shard_elems)
{
    uint32_t n_items = packing->spec->n_items;
    struct pool *fluid = &packing->fluid;

    if (order_try(packing, packing->added, shard_elems)) {
        return true;
    }
    if (!packing->is_sorted) {
        if (packing->is_few) {
            items_sort(packing, packing->by_block, n_items, item_length);
            items_sort(packing, packing->by_block, n_items, item_block);
        }
        items_sort(packing, fluid->items, fluid->n_items, item_length);
        packing->is_sorted = true;
    }
    return (packing->is_few && order_try(packing, packing->by_block, shard_elems)) ||
           fit_try(packing, shard_elems);
}

static bool shard_try(struct packing *packing, uint64_t shard_elems)
{
    bool is_placed = orders_try(packing, shard_elems);

    for (uint32_t i = 0; is_placed && i < packing->spec->n_items; i++) {
        packing->spec->items[i].offset_elems = packing->spec->items[i].trial_elems;
    }
    return is_placed;
}

/* --------------------------------------------------------------------------------- search */

/* The least L from `least` on that the levels allow; UINT64_MAX where all are too large. */
static uint64_t shard_from(const struct packing *packing, uint64_t least, bool is_for_any_order)
{
    uint64_t best = UINT64_MAX;

    for (uint32_t i = 0; i < packing->n_levels; i++) {
        const struct level *level = &packing->levels[i];
        uint64_t bar = is_for_any_order ? level->longest : (level->longest + 1) / 2;
        uint64_t shard_elems;

        if (arith_round_up(bar > least ? bar : least, level->multiple, &shard_elems) &&
            shard_elems < best) {
            best = shard_elems;
        }
    }
    return best;
}

/* Where the search stands: lengths up to `failed` do not do, `found` does. */
struct range {
    uint64_t failed;
    uint64_t found;
};

/* Tries a length within the range, which becomes one of its ends. */
static void range_narrow(struct packing *packing, struct range *range, uint64_t shard_elems)
{
    if (shard_try(packing, shard_elems)) {
        range->found = shard_elems;
    } else {
        range->failed = shard_elems;
    }
}

/* Upwards until one does: one by one, and then in steps that double, so that the last of the tries
 * comes to the middle of what is left. */
static void range_climb(struct packing *packing, struct range *range, uint32_t n_tries)
{
    uint64_t most = range->found;
    uint64_t step = 1;

    for (uint32_t n_left = 2 * n_tries; n_left > 0 && range->found == most; n_left--) {
        uint64_t shard_elems;

        if (n_left <= n_tries) {
            uint64_t even = (most - range->failed) >> (n_left > 63 ? 63 : n_left);

            step = even > step ? even : step;
        }
        shard_elems = shard_from(packing, range->failed + step, false);
        if (shard_elems >= most) {
            break;
        }
        range_narrow(packing, range, shard_elems);
    }
}

/* Halves the range until the levels allow no length within it. */
static void range_halve(struct packing *packing, struct range *range, uint32_t n_tries)
{
    for (uint32_t i = 0; i < n_tries; i++) {
        uint64_t middle = range->failed + (range->found - range->failed + 1) / 2;
        uint64_t shard_elems = shard_from(packing, middle, false);

        if (shard_elems >= range->found) {
            shard_elems = shard_from(packing, range->failed + 1, false); /* the last there is */
        }
        if (shard_elems >= range->found) {
            break;
        }
        range_narrow(packing, range, shard_elems);
    }
}

/* A third of the tries one by one, a third in steps that double, a third by halving. */
static uint64_t shard_search(struct packing *packing, uint64_t least, uint64_t most)
{
    uint32_t n_tries = packing->spec->max_tries / 3 + 1;
    struct range range = {least - 1, most};

    range_climb(packing, &range, n_tries);
    range_halve(packing, &range, n_tries);
    return range.found;
}

/* ------------------------------------------------------------------------------- preparing */

static bool orders_create(struct packing *packing)
{
    uint32_t n = packing->spec->n_items;

    packing->rows = malloc(3 * (uint64_t)n * sizeof(struct block_item *));
    packing->next = malloc(((uint64_t)n + 2) * sizeof(uint32_t));
    packing->sorting = malloc(2 * (uint64_t)n * sizeof(*packing->sorting));
    if (packing->rows == NULL || packing->next == NULL || packing->sorting == NULL) {
        return false;
    }
    packing->is_few = n <= FEW_ITEMS;
    packing->added = packing->rows;
    packing->by_block = packing->rows + n;
    packing->solid.items = packing->rows + 2 * (uint64_t)n;
    for (uint32_t i = 0; i < n; i++) {
        struct block_item *item = &packing->spec->items[i];

        packing->added[i] = packing->by_block[i] = item;
        if (!item_is_fluid(item)) {
            packing->solid.items[packing->solid.n_items++] = item;
        }
    }
    packing->solid.next = packing->next;
    packing->fluid.items = packing->solid.items + packing->solid.n_items;
    packing->fluid.next = packing->next + packing->solid.n_items + 1;
    for (uint32_t i = 0; i < n; i++) {
        if (item_is_fluid(packing->added[i])) {
            packing->fluid.items[packing->fluid.n_items++] = packing->added[i];
        }
    }
    items_sort(packing, packing->solid.items, packing->solid.n_items, item_length);
    return true;
}

static bool sums_measure(struct packing *packing)
{
    packing->largest_piece = PLAN_ALIGN_ELEMS;
    for (uint32_t i = 0; i < packing->spec->n_items; i++) {
        const struct block_item *item = &packing->spec->items[i];

        if (!arith_add(packing->total_elems, item->n_elems, &packing->total_elems) ||
            packing->total_elems > packing->spec->max_elems) {
            return false;
        }
        if (item_is_fluid(item)) {
            continue;
        }
        if (item->block_elems > packing->largest_piece) {
            packing->largest_piece = item->block_elems;
        }
        if (item_is_uncut(item) && item->n_elems > packing->longest_uncut) {
            packing->longest_uncut = item->n_elems;
        }
    }
    return true;
}

/* Level by level, the longest asks first. What is never cut is not longer than L. */
static void levels_fill(struct packing *packing)
{
    uint64_t multiple = packing->spec->shard_multiple;
    struct level *level = &packing->levels[0];

    *level = (struct level){multiple, 0};
    packing->n_levels = 1;
    for (uint32_t i = 0; i < packing->solid.n_items; i++) {
        const struct block_item *item = packing->solid.items[i];

        if (item_is_uncut(item) || multiple % item->block_elems == 0) {
            continue;
        }
        level->longest = item->n_elems;
        if (!arith_lcm(multiple, item->block_elems, &multiple) ||
            multiple > packing->spec->max_elems || packing->n_levels == MAX_LEVELS) {
            return;
        }
        level = &packing->levels[packing->n_levels++];
        *level = (struct level){multiple, 0};
    }
}

static enum block_result packing_place(struct packing *packing, struct block_shards *ret)
{
    uint64_t n_shards = packing->spec->n_shards;
    uint64_t limit = packing->spec->max_elems / n_shards;
    uint64_t even = (packing->total_elems + n_shards - 1) / n_shards;
    uint64_t most;
    uint64_t least;

    even = even == 0 ? 1 : even; /* a buffer of empty parameters is a buffer like any other */
    most = shard_from(packing, even + packing->largest_piece - PLAN_ALIGN_ELEMS, true);
    least = packing->longest_uncut > even ? packing->longest_uncut : even;
    least = shard_from(packing, least, false);
    if (least > limit) {
        return BLOCKS_TOO_LARGE;
    }
    ret->least_elems = least;
    ret->most_elems = most;
    ret->shard_elems = shard_search(packing, least, most > limit ? limit + 1 : most);
    if (ret->shard_elems > limit) {
        return BLOCKS_TOO_LARGE;
    }
    if (ret->shard_elems == most) { /* not tried yet */
        bool is_placed = shard_try(packing, most);

        assert(is_placed);
        (void)is_placed;
    }
    return BLOCKS_PLACED;
}

enum block_result blocks_place(const struct block_spec *spec, struct block_shards *ret)
{
    struct packing packing = {.spec = spec};
    enum block_result result = BLOCKS_NO_MEMORY;

    if (!sums_measure(&packing)) {
        return BLOCKS_TOO_LARGE;
    }
    if (orders_create(&packing)) {
        levels_fill(&packing);
        result = packing_place(&packing, ret);
    }
    free(packing.rows);
    free(packing.next);
    free(packing.sorting);
    return result;
}
