/* SPDX-License-Identifier: Apache-2.0 */
/* Rank sets: what is in them, and how a sentence and an error name it. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/rank_set.h"
#include "suite.h"

static struct rank_set set_of(uint32_t world_ranks, const uint32_t *ranks, uint32_t n)
{
    struct rank_set set;

    ck_assert(rank_set_init(&set, world_ranks));
    for (uint32_t i = 0; i < n; i++) {
        rank_set_add(&set, ranks[i]);
    }
    return set;
}

START_TEST(rank_set_add_counts_each_once)
{
    struct rank_set set = set_of(130, (const uint32_t[]){0, 63, 64, 129, 63}, 5);

    ck_assert_uint_eq(set.n_ranks, 4);
    ck_assert(rank_set_has(&set, 0) && rank_set_has(&set, 63) && rank_set_has(&set, 64));
    ck_assert(rank_set_has(&set, 129) && !rank_set_has(&set, 1) && !rank_set_has(&set, 128));
    rank_set_fini(&set);
}
END_TEST

START_TEST(rank_set_add_beyond_the_world_is_ignored)
{
    struct rank_set set = set_of(64, (const uint32_t[]){64, 65, 1u << 31, UINT32_MAX}, 4);

    ck_assert_uint_eq(set.n_ranks, 0);
    ck_assert(!rank_set_has(&set, 64) && !rank_set_has(&set, UINT32_MAX));
    rank_set_fini(&set);
}
END_TEST

START_TEST(rank_set_fini_leaves_an_empty_set)
{
    struct rank_set set = set_of(8, (const uint32_t[]){2}, 1);

    rank_set_fini(&set);
    rank_set_fini(&set);
    rank_set_add(&set, 2);
    ck_assert(!rank_set_has(&set, 2));
}
END_TEST

static const struct {
    uint32_t ranks[8];
    uint32_t n;
    const char *text;
} texts[] = {
    {{5}, 1, "rank 5"},
    {{0, 1}, 2, "ranks 0, 1"},
    {{0, 1, 2}, 3, "ranks 0 to 2"},
    {{1, 3, 4, 5, 7}, 5, "ranks 1, 3 to 5, 7"},
    {{62, 63, 64, 65}, 4, "ranks 62 to 65"},
    {{199, 0}, 2, "ranks 0, 199"},
    {{198, 199, 197}, 3, "ranks 197 to 199"},
};

START_TEST(rank_set_text_names_runs)
{
    struct rank_set set = set_of(200, texts[_i].ranks, texts[_i].n);
    char text[200];

    rank_set_text(&set, text, sizeof(text));
    ck_assert_str_eq(text, texts[_i].text);
    rank_set_fini(&set);
}
END_TEST

/* Every other rank of a large world: as many as fit, and how many are left out. */
START_TEST(rank_set_text_that_is_too_long_counts_the_rest)
{
    struct rank_set set = set_of(100000, NULL, 0);
    uint64_t max_bytes = 64 + (uint64_t)_i;
    char *text = malloc(max_bytes);
    uint32_t n_named = 1;
    unsigned n_more = 0;

    for (uint32_t rank = 0; rank < 100000; rank += 2) {
        rank_set_add(&set, rank);
    }
    rank_set_text(&set, text, max_bytes);
    ck_assert_uint_lt(strlen(text), max_bytes);
    for (const char *c = text; *c != '\0'; c++) {
        n_named += *c == ',';
    }
    ck_assert_ptr_nonnull(strstr(text, " and "));
    ck_assert_int_eq(sscanf(strstr(text, " and "), " and %u more", &n_more), 1);
    ck_assert_uint_eq(n_named + n_more, 50000);
    free(text);
    rank_set_fini(&set);
}
END_TEST

START_TEST(rank_set_blame_counts_all_and_names_the_first)
{
    struct rank_set set = set_of(300, NULL, 0);
    struct hsdp_error err = HSDP_ERROR_INIT;

    for (uint32_t rank = 100; rank < 200; rank++) {
        rank_set_add(&set, rank);
    }
    rank_set_blame(&set, &err);
    ck_assert_uint_eq(err.n_missing_ranks, 100);
    for (uint32_t i = 0; i < HSDP_ERROR_MAX_RANKS; i++) {
        ck_assert_uint_eq(err.missing_ranks[i], 100 + i);
    }
    rank_set_fini(&set);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("rank_set");
    TCase *tcase = tcase_create("rank_set");

    tcase_add_test(tcase, rank_set_add_counts_each_once);
    tcase_add_test(tcase, rank_set_add_beyond_the_world_is_ignored);
    tcase_add_test(tcase, rank_set_fini_leaves_an_empty_set);
    tcase_add_loop_test(tcase, rank_set_text_names_runs, 0, sizeof(texts) / sizeof(texts[0]));
    tcase_add_loop_test(tcase, rank_set_text_that_is_too_long_counts_the_rest, 0, 60);
    tcase_add_test(tcase, rank_set_blame_counts_all_and_names_the_first);
    suite_add_tcase(suite, tcase);
    return suite;
}
