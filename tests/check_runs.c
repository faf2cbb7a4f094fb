/* SPDX-License-Identifier: Apache-2.0 */
/* Runs: which of a unit's parameters one update covers. */
#include <check.h>

#include "shard/runs.h"
#include "suite.h"

/* Two of group 0 with padding between them, one of group 1, and one more of group 0. */
static struct run list[] = {{0, 5, 0}, {32, 40, 0}, {96, 7, 1}, {128, 9, 0}, {160, 1, 0}};
static const struct runs runs = {.list = list, .n_runs = 5};

START_TEST(next_joins_neighbours_of_one_group_over_the_padding)
{
    static const bool all[] = {true, true};
    uint64_t at = 0;
    struct run run = runs_next(&runs, &at, 5, all);

    ck_assert_uint_eq(at, 2);
    ck_assert_uint_eq(run.first_elem, 0);
    ck_assert_uint_eq(run.n_elems, 72);
    run = runs_next(&runs, &at, 5, all);
    ck_assert_uint_eq(at, 3);
    ck_assert_uint_eq(run.hyper_group, 1);
    ck_assert_uint_eq(run.n_elems, 7);
    run = runs_next(&runs, &at, 5, all);
    ck_assert_uint_eq(at, 5);
    ck_assert_uint_eq(run.first_elem, 128);
    ck_assert_uint_eq(run.n_elems, 33);
}
END_TEST

START_TEST(next_joins_none_of_a_group_that_changes_zeros)
{
    static const bool second[] = {false, true};
    uint64_t at = 0;

    for (uint64_t i = 0; i < 5; i++) {
        struct run run = runs_next(&runs, &at, 5, second);

        ck_assert_uint_eq(at, i + 1);
        ck_assert_uint_eq(run.first_elem, list[i].first_elem);
        ck_assert_uint_eq(run.n_elems, list[i].n_elems);
    }
}
END_TEST

/* The rest is another unit's. */
START_TEST(next_joins_nothing_past_the_end)
{
    static const bool all[] = {true, true};
    uint64_t at = 0;
    struct run run = runs_next(&runs, &at, 1, all);

    ck_assert_uint_eq(at, 1);
    ck_assert_uint_eq(run.n_elems, 5);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("runs");
    TCase *tcase = tcase_create("runs");

    tcase_add_test(tcase, next_joins_neighbours_of_one_group_over_the_padding);
    tcase_add_test(tcase, next_joins_none_of_a_group_that_changes_zeros);
    tcase_add_test(tcase, next_joins_nothing_past_the_end);
    suite_add_tcase(suite, tcase);
    return suite;
}
