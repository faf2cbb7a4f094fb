/* SPDX-License-Identifier: Apache-2.0 */
/* Settings and the launcher's environment through the ABI: never a silent default. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi_host.h"
#include "ranks.h"
#include "suite.h"

static const struct hsdp_api *api;
static struct hsdp_error err;

static void api_open(void)
{
    ranks_environment_clear();
    api = abi_load();
    err = (struct hsdp_error)HSDP_ERROR_INIT;
}

/* A job of one rank with one setting; `key` NULL = none. */
static int32_t job_make(const char *key, const char *value, hsdp_job **ret_job)
{
    const char *keys[] = {key};
    const char *values[] = {value};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;

    spec.settings = (struct hsdp_settings){keys, values, key == NULL ? 0 : 1};
    return api->job->create(&spec, ret_job, &err);
}

static void expect_job_refused(const char *key, const char *value)
{
    hsdp_job *job = NULL;

    ck_assert_int_eq(job_make(key, value, &job), HSDP_ERR_INVALID);
    ck_assert_ptr_null(job);
    ck_assert_msg(strstr(err.message, key) != NULL, "%s", err.message);
}

static int32_t job_from_environment(const char *rank, const char *world)
{
    hsdp_job *job = NULL;
    int32_t status;

    setenv("HSDP_RUN_ID", "check_abi_settings", 1); /* what tells the run from others */
    setenv("RANK", rank, 1);
    setenv("WORLD_SIZE", world, 1);
    status = job_make(NULL, NULL, &job);
    ck_assert_int_eq(status == HSDP_OK, job != NULL);
    api->job->destroy(job);
    return status;
}

/* -------------------------------------------------------------------------------------- numbers */

static const char *const bad_numbers[] = {
    "",   "true", "30s", "0x1f", " 30",      "30 ",       "1.5", "99999999999999999999",
    "-5", "+5",   "1e2", "3 0",  "\xd9\xa3", "9999999999"};

#define N_BAD_NUMBERS ((int)(sizeof(bad_numbers) / sizeof(bad_numbers[0])))

/* Case E6 of tests/cases/README.md. */
START_TEST(timeout_bad_number_is_refused_with_key_and_text)
{
    char quoted[64];

    expect_job_refused("nccl_timeout_seconds", bad_numbers[_i]);
    snprintf(quoted, sizeof(quoted), "\"%s\"", bad_numbers[_i]);
    ck_assert_msg(strstr(err.message, quoted) != NULL, "%s", err.message);
}
END_TEST

START_TEST(timeout_zero_is_refused)
{
    expect_job_refused("nccl_timeout_seconds", "0");
}
END_TEST

/* Case E6 of tests/cases/README.md. */
START_TEST(timeout_bad_number_in_the_environment_is_refused)
{
    hsdp_job *job = NULL;

    setenv("HSDP_NCCL_TIMEOUT_SECONDS", bad_numbers[_i], 1);
    ck_assert_int_eq(job_make(NULL, NULL, &job), HSDP_ERR_INVALID);
    ck_assert_ptr_null(job);
}
END_TEST

static void expect_setting(hsdp_job *job, const char *key, const char *value, const char *source)
{
    const char *found = NULL;
    const char *from = NULL;

    abi_must(api->job->setting(job, key, &found, &from, &err), &err);
    ck_assert_str_eq(found, value);
    ck_assert_str_eq(from, source);
}

START_TEST(timeout_unset_is_the_documented_default)
{
    hsdp_job *job = NULL;

    abi_must(job_make(NULL, NULL, &job), &err);
    expect_setting(job, "nccl_timeout_seconds", "180", "default");
    expect_setting(job, "init_timeout_seconds", "180", "derived from nccl_timeout_seconds");
    api->job->destroy(job);
}
END_TEST

START_TEST(timeout_extremes_read_back_as_given)
{
    static const char *const values[] = {"1", "2147484"};
    hsdp_job *job = NULL;

    abi_must(job_make("nccl_timeout_seconds", values[_i], &job), &err);
    expect_setting(job, "nccl_timeout_seconds", values[_i], "host");
    api->job->destroy(job);
}
END_TEST

START_TEST(timeout_of_the_environment_gives_way_to_the_host)
{
    hsdp_job *job = NULL;

    setenv("HSDP_NCCL_TIMEOUT_SECONDS", "7", 1);
    abi_must(job_make(NULL, NULL, &job), &err);
    expect_setting(job, "nccl_timeout_seconds", "7", "environment");
    api->job->destroy(job);
    abi_must(job_make("nccl_timeout_seconds", "9", &job), &err);
    expect_setting(job, "nccl_timeout_seconds", "9", "host");
    api->job->destroy(job);
}
END_TEST

/* ------------------------------------------------------------------------------- rank and world */

START_TEST(rank_bad_number_is_refused_with_key_and_text)
{
    ck_assert_int_eq(job_from_environment(bad_numbers[_i], "2"), HSDP_ERR_INVALID);
    ck_assert_msg(strstr(err.message, "RANK") != NULL, "%s", err.message);
    ck_assert_int_eq(job_from_environment("0", bad_numbers[_i]), HSDP_ERR_INVALID);
    ck_assert_msg(strstr(err.message, "WORLD_SIZE") != NULL, "%s", err.message);
}
END_TEST

/* Cases E6, E8 of tests/cases/README.md. */
START_TEST(rank_outside_of_the_world_is_refused)
{
    static const char *const cases[][2] = {{"0", "0"},  {"2", "2"}, {"-1", "2"},
                                           {"0", "-1"}, {"1", "1"}, {"4294967296", "2"}};

    ck_assert_int_eq(job_from_environment(cases[_i][0], cases[_i][1]), HSDP_ERR_INVALID);
}
END_TEST

/* Case E8 of tests/cases/README.md. */
START_TEST(rank_inside_of_the_world_is_accepted)
{
    static const char *const cases[][2] = {{"0", "1"}, {"1", "2"}};

    abi_must(job_from_environment(cases[_i][0], cases[_i][1]), &err);
}
END_TEST

START_TEST(rank_of_the_spec_outside_of_its_world_is_refused)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    hsdp_job *job = NULL;

    setenv("HSDP_RUN_ID", "check_abi_settings", 1);
    spec.world_ranks = 2;
    spec.rank = 2;
    ck_assert_int_eq(api->job->create(&spec, &job, &err), HSDP_ERR_INVALID);
    ck_assert_ptr_null(job);
    spec.rank = 1;
    abi_must(api->job->create(&spec, &job, &err), &err);
    api->job->destroy(job);
}
END_TEST

START_TEST(port_bad_number_is_refused)
{
    expect_job_refused("rendezvous_port", bad_numbers[_i]);
}
END_TEST

/* -------------------------------------------------------------------------------------- choices */

/* A plan with n settings, and a class with the same ones: both refuse what one refuses. */
static int32_t plan_make(const char *const *keys, const char *const *values, uint64_t n)
{
    struct hsdp_settings settings = {keys, values, n};
    hsdp_mesh *mesh = abi_mesh(api);
    hsdp_plan *plan = NULL;
    int32_t status = api->plan->create(mesh, &settings, &plan, &err);

    ck_assert_int_eq(status == HSDP_OK, plan != NULL);
    api->plan->destroy(plan);
    api->mesh->destroy(mesh);
    return status;
}

static int32_t class_make(const char *key, const char *value)
{
    const char *keys[] = {key};
    const char *values[] = {value};
    struct hsdp_class_spec spec = HSDP_CLASS_SPEC_INIT;
    hsdp_mesh *mesh = abi_mesh(api);
    hsdp_plan *plan = abi_plan(api, mesh);
    uint32_t index = 77;
    int32_t status;

    spec.name = "second";
    spec.settings = (struct hsdp_settings){keys, values, 1};
    status = api->plan->add_class(plan, &spec, &index, &err);
    ck_assert_uint_eq(index, status == HSDP_OK ? 1 : 77);
    api->plan->destroy(plan);
    api->mesh->destroy(mesh);
    return status;
}

static const char *const bad_strategies[] = {"FSDP",  "hsdp ",    " hsdp", "hybrid", "0",
                                             "hsdp,", "ddp fsdp", "",      "hsd",    "zero"};

#define N_BAD_STRATEGIES ((int)(sizeof(bad_strategies) / sizeof(bad_strategies[0])))

/* Case E7 of tests/cases/README.md. */
START_TEST(strategy_bad_name_is_refused_and_the_names_listed)
{
    const char *keys[] = {"sharding_strategy"};

    ck_assert_int_eq(plan_make(keys, &bad_strategies[_i], 1), HSDP_ERR_INVALID);
    ck_assert_msg(strstr(err.message, "sharding_strategy") != NULL, "%s", err.message);
    ck_assert_msg(strstr(err.message, "hsdp_zero2") != NULL, "%s", err.message);
    ck_assert_int_eq(class_make("sharding_strategy", bad_strategies[_i]), HSDP_ERR_INVALID);
    setenv("HSDP_SHARDING_STRATEGY", bad_strategies[_i], 1);
    ck_assert_int_eq(plan_make(NULL, NULL, 0), HSDP_ERR_INVALID);
}
END_TEST

START_TEST(backend_that_is_not_built_is_unsupported)
{
    hsdp_job *job = NULL;

    ck_assert_int_eq(job_make("backend", "mpi", &job), HSDP_ERR_UNSUPPORTED);
    ck_assert_ptr_null(job);
    ck_assert_msg(strstr(err.message, "this version has shm") != NULL, "%s", err.message);
    abi_must(job_make("backend", "shm", &job), &err);
    abi_must(api->job->connect(job, &err), &err);
    api->job->destroy(job);
}
END_TEST

START_TEST(strategy_good_name_is_accepted)
{
    static const char *const names[] = {"ddp",  "zero1",      "zero2", "fsdp",
                                        "hsdp", "hsdp_zero2", "hfsdp", "full_shard"};
    const char *keys[] = {"sharding_strategy"};

    abi_must(plan_make(keys, &names[_i], 1), &err);
    abi_must(class_make("sharding_strategy", names[_i]), &err);
}
END_TEST

/* Case E7 of tests/cases/README.md. */
START_TEST(key_unknown_is_refused_and_the_known_listed)
{
    static const char *const unknown[] = {"shardingstrategy", "Sharding_Strategy", "", "%s%n"};
    const char *values[] = {"fsdp"};

    ck_assert_int_eq(plan_make(&unknown[_i], values, 1), HSDP_ERR_INVALID);
    ck_assert_msg(strstr(err.message, unknown[_i]) != NULL, "%s", err.message);
    ck_assert_msg(strstr(err.message, "sharding_strategy") != NULL, "%s", err.message);
    ck_assert_int_eq(class_make(unknown[_i], "fsdp"), HSDP_ERR_INVALID);
    expect_job_refused(unknown[_i], "fsdp");
}
END_TEST

START_TEST(key_of_another_home_is_refused)
{
    const char *job_key[] = {"nccl_timeout_seconds"};
    const char *value[] = {"2"};

    ck_assert_int_eq(plan_make(job_key, value, 1), HSDP_ERR_INVALID);
    ck_assert_int_eq(class_make("slots", "2"), HSDP_ERR_INVALID); /* a plan's, not a class's */
    expect_job_refused("sharding_strategy", "fsdp");
}
END_TEST

/* Case E7 of tests/cases/README.md. */
START_TEST(key_twice_is_refused)
{
    const char *keys[] = {"slots", "sharding_strategy", "slots"};
    const char *values[] = {"2", "fsdp", "2"};

    ck_assert_int_eq(plan_make(keys, values, 3), HSDP_ERR_INVALID);
    ck_assert_msg(strstr(err.message, "slots is given twice") != NULL, "%s", err.message);
    abi_must(plan_make(keys, values, 2), &err);
}
END_TEST

START_TEST(key_or_value_null_is_refused)
{
    const char *keys[] = {"slots"};
    const char *values[] = {"2"};
    const char *nothing[] = {NULL};

    ck_assert_int_eq(plan_make(keys, nothing, 1), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_make(nothing, values, 1), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_make(NULL, values, 1), HSDP_ERR_INVALID);
    ck_assert_int_eq(plan_make(keys, NULL, 1), HSDP_ERR_INVALID);
    abi_must(plan_make(NULL, NULL, 0), &err);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_settings");
    TCase *numbers = tcase_create("numbers");
    TCase *choices = tcase_create("choices");

    tcase_add_checked_fixture(numbers, api_open, NULL);
    tcase_add_loop_test(numbers, timeout_bad_number_is_refused_with_key_and_text, 0, N_BAD_NUMBERS);
    tcase_add_test(numbers, timeout_zero_is_refused);
    tcase_add_loop_test(numbers, timeout_bad_number_in_the_environment_is_refused, 0,
                        N_BAD_NUMBERS);
    tcase_add_test(numbers, timeout_unset_is_the_documented_default);
    tcase_add_loop_test(numbers, timeout_extremes_read_back_as_given, 0, 2);
    tcase_add_test(numbers, timeout_of_the_environment_gives_way_to_the_host);
    tcase_add_loop_test(numbers, rank_bad_number_is_refused_with_key_and_text, 0,
                        N_BAD_NUMBERS - 1); /* the last one is a rank, though a large one */
    tcase_add_loop_test(numbers, rank_outside_of_the_world_is_refused, 0, 6);
    tcase_add_loop_test(numbers, rank_inside_of_the_world_is_accepted, 0, 2);
    tcase_add_test(numbers, rank_of_the_spec_outside_of_its_world_is_refused);
    tcase_add_loop_test(numbers, port_bad_number_is_refused, 0, N_BAD_NUMBERS);
    suite_add_tcase(suite, numbers);
    tcase_add_checked_fixture(choices, api_open, NULL);
    tcase_add_loop_test(choices, strategy_bad_name_is_refused_and_the_names_listed, 0,
                        N_BAD_STRATEGIES);
    tcase_add_test(choices, backend_that_is_not_built_is_unsupported);
    tcase_add_loop_test(choices, strategy_good_name_is_accepted, 0, 8);
    tcase_add_loop_test(choices, key_unknown_is_refused_and_the_known_listed, 0, 4);
    tcase_add_test(choices, key_of_another_home_is_refused);
    tcase_add_test(choices, key_twice_is_refused);
    tcase_add_test(choices, key_or_value_null_is_refused);
    suite_add_tcase(suite, choices);
    return suite;
}
