/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting rows by a number: the order, and that rows of one key keep theirs. */
#include <check.h>
#include <stdint.h>

#include "plan/sort.h"
#include "plan_fixture.h"
#include "suite.h"

#define MAX_ROWS 3000u

/* On both sides of what is sorted one by one, and of what a byte can count. */
static const uint32_t lengths[] = {0, 1, 2, 47, 48, 49, 50, 255, 256, 257, MAX_ROWS};

/* Which bits of a key may be set: few make many equal keys, and leave bytes in which none differ.
 */
static const uint64_t masks[] = {
    0, 1, 0xff, 0x3f00, UINT64_C(0xff000000000000ff), UINT64_C(0xf0f0000f00f0), UINT64_MAX};

struct rows {
    struct sort_row rows[MAX_ROWS];
    struct sort_row spare[MAX_ROWS];
    uint64_t keys[MAX_ROWS]; /* by index */
};

static void rows_expect_sorted(const struct rows *all, uint32_t n)
{
    uint8_t was_seen[MAX_ROWS] = {0};

    for (uint32_t i = 0; i < n; i++) {
        const struct sort_row *row = &all->rows[i];

        ck_assert_uint_lt(row->index, n);
        ck_assert_uint_eq(was_seen[row->index]++, 0);
        ck_assert_uint_eq(row->key, all->keys[row->index]);
        ck_assert(i == 0 || all->rows[i - 1].key < row->key ||
                  (all->rows[i - 1].key == row->key && all->rows[i - 1].index < row->index));
    }
}

/* Rows of n random keys; `is_sorted` 1: ascending already, -1: descending. */
static void rows_fill(struct rows *all, uint32_t n, uint64_t mask, int is_sorted)
{
    uint64_t state = n + 7;

    for (uint32_t i = 0; i < n; i++) {
        const uint64_t high = fixture_random(&state, UINT32_MAX);
        const uint64_t low = fixture_random(&state, UINT32_MAX);
        const uint64_t random = (high << 32 | low) & mask;

        all->keys[i] = is_sorted == 0 ? random : is_sorted > 0 ? i / 3 : (n - i) / 3;
        all->rows[i] = (struct sort_row){all->keys[i], i};
    }
}

START_TEST(sort_rows_of_any_keys_is_stable)
{
    static struct rows all;

    for (uint32_t i = 0; i < N_OF(lengths); i++) {
        rows_fill(&all, lengths[i], masks[_i], 0);
        sort_rows(all.rows, all.spare, lengths[i]);
        rows_expect_sorted(&all, lengths[i]);
    }
}
END_TEST

START_TEST(sort_rows_of_sorted_keys_is_stable)
{
    static struct rows all;

    for (int direction = -1; direction <= 1; direction += 2) {
        rows_fill(&all, lengths[_i], 0, direction);
        sort_rows(all.rows, all.spare, lengths[_i]);
        rows_expect_sorted(&all, lengths[_i]);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("sort");
    TCase *tcase = tcase_create("sort");

    tcase_add_loop_test(tcase, sort_rows_of_any_keys_is_stable, 0, N_OF(masks));
    tcase_add_loop_test(tcase, sort_rows_of_sorted_keys_is_stable, 0, N_OF(lengths));
    suite_add_tcase(suite, tcase);
    return suite;
}
