/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's lists of tasks and hosts: what they say, and what is no such list. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "comm/launch_internal.h"
#include "suite.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

START_TEST(slurm_tasks_parse_of_a_list_counts)
{
    static const struct {
        const char *list;
        uint32_t node, n_nodes, n_tasks, n_local;
    } lists[] = {
        {"1", 0, 1, 1, 1},        {"64", 0, 1, 64, 64},
        {"2(x3)", 2, 3, 6, 2},    {"2(x3),1", 3, 4, 7, 1},
        {"5,4(x3)", 0, 4, 17, 5}, {"5,4(x3)", 1, 4, 17, 4},
        {"1(x1)", 0, 1, 1, 1},    {"3,3,3", 2, 3, 9, 3},
        {"2(x3),1", 4, 4, 7, 0},  {"8(x1000)", 999, 1000, 8000, 8},
    };
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct slurm_tasks tasks;

    for (size_t i = 0; i < COUNT(lists); i++) {
        ck_assert_int_eq(slurm_tasks_parse("T", lists[i].list, lists[i].node, &tasks, &err),
                         HSDP_OK);
        ck_assert_uint_eq(tasks.n_nodes, lists[i].n_nodes);
        ck_assert_uint_eq(tasks.n_tasks, lists[i].n_tasks);
        ck_assert_uint_eq(tasks.n_local_tasks, lists[i].n_local);
    }
}
END_TEST

static const char *const bad_tasks[] = {
    "",
    ",",
    "2,",
    ",2",
    "2(3)",
    "2(x)",
    "2(x3",
    "2(x3))",
    "2(x3)1",
    "2(x0)",
    "0",
    "2x3",
    "-2",
    "2 ",
    " 2",
    "2;3",
    "two",
    "2(x-1)",
    "9999999999",
    "2(x9999999999)",
    "1(x999999999),1(x999999999),1(x999999999)",
};

START_TEST(slurm_tasks_parse_of_anything_else_is_refused)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct slurm_tasks tasks;
    char quoted[64];

    ck_assert_int_eq(slurm_tasks_parse("T", bad_tasks[_i], 0, &tasks, &err), HSDP_ERR_INVALID);
    snprintf(quoted, sizeof(quoted), "T: \"%s\"", bad_tasks[_i]);
    ck_assert_msg(strstr(err.message, quoted) != NULL, "%s", err.message);
}
END_TEST

static const char *const hosts[][2] = {
    {"node1", "node1"},
    {"node1,node2", "node1"},
    {"node[01-03,07],login1", "node01"},
    {"node[7,3-4]", "node7"},
    {"rack[0-1]node[003-100]", "rack0node003"},
    {"n[1-2]-ib,m", "n1-ib"},
    {"a_b.example.org", "a_b.example.org"},
    {"10.0.0.[5-6]", "10.0.0.5"},
};

START_TEST(slurm_first_host_of_a_list_is_found)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    char host[LAUNCH_HOST_BYTES];

    ck_assert_int_eq(slurm_first_host("N", hosts[_i][0], host, &err), HSDP_OK);
    ck_assert_str_eq(host, hosts[_i][1]);
}
END_TEST

static const char *const bad_hosts[] = {
    "",         ",",     "a,",     ",a",    "a,,b",   "n[",     "n[]", "n[1",
    "n[1-",     "n[1-]", "n[2-1]", "n[1,]", "n[,1]",  "n[a]",   "n]",  "n[1]]",
    "n[1-2-3]", "n 1",   "n;rm",   "n[1 ]", "n[[1]]", "(null)", "n/1", "n[1-9999999999]",
};

START_TEST(slurm_first_host_of_anything_else_is_refused)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    char host[LAUNCH_HOST_BYTES] = "untouched";
    char quoted[64];

    ck_assert_int_eq(slurm_first_host("N", bad_hosts[_i], host, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(host, "untouched");
    snprintf(quoted, sizeof(quoted), "N: \"%s\"", bad_hosts[_i]);
    ck_assert_msg(strstr(err.message, quoted) != NULL, "%s", err.message);
}
END_TEST

/* Random texts of the alphabet of such lists: no crash, no name without its end. */
START_TEST(slurm_lists_of_random_text_stay_inside)
{
    static const char alphabet[] = "01239ab-.,[](x)";
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t random = 4242;
    uint32_t n_accepted = 0;

    for (int round = 0; round < 200000; round++) {
        char host[LAUNCH_HOST_BYTES];
        char list[16];
        struct slurm_tasks tasks;
        uint32_t n;

        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        n = (uint32_t)(random >> 60);
        for (uint32_t i = 0; i < n; i++) {
            list[i] = alphabet[(random >> (4 * i)) % (sizeof(alphabet) - 1)];
        }
        list[n] = '\0';
        if (slurm_first_host("N", list, host, &err) == HSDP_OK) {
            ck_assert_uint_le(strlen(host), n);
            n_accepted++;
        }
        n_accepted += slurm_tasks_parse("T", list, 0, &tasks, &err) == HSDP_OK;
    }
    ck_assert_uint_gt(n_accepted, 0);
    ck_assert_uint_lt(n_accepted, 200000);
}
END_TEST

START_TEST(slurm_first_host_of_a_name_too_long_is_refused)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    char list[LAUNCH_HOST_BYTES + 1];
    char host[LAUNCH_HOST_BYTES];

    memset(list, 'a', sizeof(list));
    list[LAUNCH_HOST_BYTES - 1] = '\0';
    ck_assert_int_eq(slurm_first_host("N", list, host, &err), HSDP_OK);
    ck_assert_str_eq(host, list);
    list[LAUNCH_HOST_BYTES - 1] = '1';
    list[LAUNCH_HOST_BYTES] = '\0';
    ck_assert_int_eq(slurm_first_host("N", list, host, &err), HSDP_ERR_INVALID);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("slurm");
    TCase *tcase = tcase_create("slurm");

    tcase_add_test(tcase, slurm_tasks_parse_of_a_list_counts);
    tcase_add_loop_test(tcase, slurm_tasks_parse_of_anything_else_is_refused, 0,
                        (int)COUNT(bad_tasks));
    tcase_add_loop_test(tcase, slurm_first_host_of_a_list_is_found, 0, (int)COUNT(hosts));
    tcase_add_loop_test(tcase, slurm_first_host_of_anything_else_is_refused, 0,
                        (int)COUNT(bad_hosts));
    tcase_add_test(tcase, slurm_lists_of_random_text_stay_inside);
    tcase_add_test(tcase, slurm_first_host_of_a_name_too_long_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
