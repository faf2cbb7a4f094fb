/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: the table, what is refused and in which words, where a value comes from. */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/settings.h"
#include "plan_fixture.h"
#include "suite.h"

static int32_t one_init(struct settings *settings, uint32_t home, const char *key,
                        const char *value, struct hsdp_error *reterr)
{
    struct hsdp_settings given = {&key, &value, 1};

    return settings_init(settings, home, &given, NULL, reterr);
}

#define STRATEGY_NAMES                                                                             \
    "ddp zero1 zero2 fsdp hsdp hsdp_zero2 hfsdp auto no_shard shard_grad_op full_shard zero3 "     \
    "hybrid_shard hybrid_shard_zero2"
#define PLAN_KEYS                                                                                  \
    "sharding_strategy, replicate_dims, shard_size, param_dtype, master_dtype, reduce_dtype, "     \
    "gradient_dtype, gradient_op, gradient_divisor, accumulation_scope, slots, verify"
#define SECONDS "\" is not a whole number from 1 to 2147483647"

static const struct {
    uint32_t home;
    const char *key;
    const char *value;
    const char *sentence;
} bad[] = {
    {SETTING_PLAN, "sharding_strategy", "FSDP",
     "sharding_strategy: \"FSDP\" is none of: " STRATEGY_NAMES},
    {SETTING_PLAN, "sharding_strategy", "hsdp ",
     "sharding_strategy: \"hsdp \" is none of: " STRATEGY_NAMES},
    {SETTING_PLAN, "sharding_strategy", "hybrid",
     "sharding_strategy: \"hybrid\" is none of: " STRATEGY_NAMES},
    {SETTING_PLAN, "sharding_strategy", "0",
     "sharding_strategy: \"0\" is none of: " STRATEGY_NAMES},
    {SETTING_PLAN, "sharding_strategy", "", "sharding_strategy: \"\" is none of: " STRATEGY_NAMES},
    {SETTING_PLAN, "sharding_strategy", "ddp zero1",
     "sharding_strategy: \"ddp zero1\" is none of: " STRATEGY_NAMES},
    {SETTING_PLAN, "sharding_strategy", "ddp,zero1",
     "sharding_strategy: \"ddp,zero1\" is none of: " STRATEGY_NAMES},
    {SETTING_PLAN, "shardingstrategy", "fsdp",
     "settings: unknown key \"shardingstrategy\" for a plan; known: " PLAN_KEYS},
    {SETTING_PLAN, "Sharding_strategy", "fsdp",
     "settings: unknown key \"Sharding_strategy\" for a plan; known: " PLAN_KEYS},
    {SETTING_PLAN, "", "fsdp", "settings: unknown key \"\" for a plan; known: " PLAN_KEYS},
    {SETTING_PLAN, "backend", "shm",
     "settings: unknown key \"backend\" for a plan; known: " PLAN_KEYS},
    {SETTING_CLASS, "shard_size", "2",
     "settings: unknown key \"shard_size\" for a class; known: sharding_strategy, replicate_dims, "
     "param_dtype, master_dtype, reduce_dtype, gradient_dtype, gradient_op, gradient_divisor"},
    {SETTING_JOB, "slots", "2",
     "settings: unknown key \"slots\" for a job; known: backend, nccl_timeout_seconds, "
     "init_timeout_seconds, heartbeat_timeout_seconds, peer_silence_seconds, rendezvous_port, "
     "token_file, flight_records, flight_dir, cpu_path, nccl_library, cuda_library"},
    {SETTING_PLAN, NULL, "fsdp", "settings: entry 0 has no key"},
    {SETTING_PLAN, "slots", NULL, "settings: entry 0 has no value"},
    {SETTING_PLAN, "verify", "", "verify: \"\" is none of: off access wrap step:N"},
    {SETTING_PLAN, "verify", "access,", "verify: \"access,\" is none of: off access wrap step:N"},
    {SETTING_PLAN, "verify", "access,,wrap",
     "verify: \"access,,wrap\" is none of: off access wrap step:N"},
    {SETTING_PLAN, "verify", "step:0", "verify: \"step:0\" is none of: off access wrap step:N"},
    {SETTING_PLAN, "verify", "step:x", "verify: \"step:x\" is none of: off access wrap step:N"},
    {SETTING_PLAN, "verify", "step:N", "verify: \"step:N\" is none of: off access wrap step:N"},
    {SETTING_PLAN, "verify", "step", "verify: \"step\" is none of: off access wrap step:N"},
    {SETTING_JOB, "token_file", "", "token_file: the path is empty"},
    {SETTING_JOB, "nccl_timeout_seconds", "", "nccl_timeout_seconds: \"" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "true", "nccl_timeout_seconds: \"true" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "30s", "nccl_timeout_seconds: \"30s" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "0x1f", "nccl_timeout_seconds: \"0x1f" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", " 30", "nccl_timeout_seconds: \" 30" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "30 ", "nccl_timeout_seconds: \"30 " SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "+30", "nccl_timeout_seconds: \"+30" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "-", "nccl_timeout_seconds: \"-" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "1.5", "nccl_timeout_seconds: \"1.5" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "1e3", "nccl_timeout_seconds: \"1e3" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "99999999999999999999",
     "nccl_timeout_seconds: \"99999999999999999999" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "9223372036854775808",
     "nccl_timeout_seconds: \"9223372036854775808" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "-5", "nccl_timeout_seconds: \"-5" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "0", "nccl_timeout_seconds: \"0" SECONDS},
    {SETTING_JOB, "nccl_timeout_seconds", "2147483648",
     "nccl_timeout_seconds: \"2147483648" SECONDS},
};

START_TEST(settings_init_of_a_bad_one_says_what_is_allowed)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct settings settings;

    ck_assert_int_eq(one_init(&settings, bad[_i].home, bad[_i].key, bad[_i].value, &err),
                     HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, bad[_i].sentence);
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        ck_assert_ptr_null(settings.values[i]); /* nothing is left to free */
    }
    ck_assert_int_eq(one_init(&settings, bad[_i].home, bad[_i].key, bad[_i].value, NULL),
                     HSDP_ERR_INVALID);
}
END_TEST

static const struct {
    uint32_t home;
    const char *key;
    const char *value;
} good[] = {
    {SETTING_PLAN, "sharding_strategy", "hybrid_shard_zero2"},
    {SETTING_PLAN, "sharding_strategy", "ddp"},
    {SETTING_PLAN, "sharding_strategy", "auto"},
    {SETTING_PLAN, "replicate_dims", ""},
    {SETTING_PLAN, "verify", "access,wrap,step:100"},
    {SETTING_PLAN, "slots", "64"},
    {SETTING_CLASS, "gradient_divisor", "16777216"},
    {SETTING_JOB, "nccl_timeout_seconds", "1"},
    {SETTING_JOB, "nccl_timeout_seconds", "2147484"},
    {SETTING_JOB, "token_file", "/a b"},
};

START_TEST(settings_init_of_a_good_one_reads_back)
{
    struct settings settings;
    const char *value = NULL;
    const char *source = NULL;

    ck_assert_int_eq(one_init(&settings, good[_i].home, good[_i].key, good[_i].value, NULL),
                     HSDP_OK);
    ck_assert_int_eq(settings_get(&settings, good[_i].key, &value, &source, NULL), HSDP_OK);
    ck_assert_str_eq(value, good[_i].value);
    ck_assert_str_eq(source, "host");
    settings_fini(&settings);
}
END_TEST

START_TEST(settings_init_of_a_key_twice_is_refused)
{
    static const char *const keys[] = {"slots", "verify", "slots"};
    static const char *const values[] = {"3", "off", "3"};
    const struct hsdp_settings given = {keys, values, 3};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct settings settings;

    ck_assert_int_eq(settings_init(&settings, SETTING_PLAN, &given, NULL, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "settings: slots is given twice (\"3\" and \"3\")");
}
END_TEST

START_TEST(settings_init_of_missing_arrays_is_refused)
{
    static const char *const texts[] = {"slots"};
    struct hsdp_settings given = {NULL, texts, 1};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct settings settings;

    ck_assert_int_eq(settings_init(&settings, SETTING_PLAN, &given, NULL, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "settings: 1 settings, but no keys");
    given = (struct hsdp_settings){texts, NULL, 1};
    ck_assert_int_eq(settings_init(&settings, SETTING_PLAN, &given, NULL, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "settings: 1 settings, but no values");
    given = (struct hsdp_settings){NULL, NULL, 0};
    ck_assert_int_eq(settings_init(&settings, SETTING_PLAN, &given, NULL, NULL), HSDP_OK);
    settings_fini(&settings);
}
END_TEST

START_TEST(settings_init_prefers_host_then_environment_then_default)
{
    struct settings settings;

    setenv("HSDP_SLOTS", "5", 1);
    setenv("HSDP_VERIFY", "access", 1);
    ck_assert_int_eq(one_init(&settings, SETTING_PLAN, "slots", "7", NULL), HSDP_OK);
    ck_assert_int_eq(settings_integer(&settings, "slots"), 7);
    ck_assert_str_eq(settings.sources[setting_index("slots")], "host");
    ck_assert_str_eq(settings_text(&settings, "verify"), "access");
    ck_assert_str_eq(settings.sources[setting_index("verify")], "environment");
    ck_assert_str_eq(settings_text(&settings, "sharding_strategy"), "fsdp");
    ck_assert_str_eq(settings.sources[setting_index("sharding_strategy")], "default");
    ck_assert_ptr_null(settings_text(&settings, "shard_size")); /* no default of its own */
    settings_fini(&settings);
}
END_TEST

START_TEST(settings_init_of_a_bad_environment_is_refused)
{
    static const char *const values[] = {"", "two", "65", "2 "};
    struct settings settings;

    for (int i = 0; i < N_OF(values); i++) {
        setenv("HSDP_SLOTS", values[i], 1);
        ck_assert_msg(settings_init(&settings, SETTING_PLAN, NULL, NULL, NULL) == HSDP_ERR_INVALID,
                      "HSDP_SLOTS=\"%s\" was taken", values[i]);
    }
}
END_TEST

START_TEST(settings_init_of_a_class_takes_the_rest_from_its_plan)
{
    struct settings plan;
    struct settings klass;
    static const char *const key = "reduce_dtype";
    static const char *const value = "bf16";
    const struct hsdp_settings given = {&key, &value, 1};

    ck_assert_int_eq(one_init(&plan, SETTING_PLAN, "sharding_strategy", "zero1", NULL), HSDP_OK);
    setenv("HSDP_GRADIENT_OP", "sum", 1); /* the plan has read it, when it was there */
    ck_assert_int_eq(settings_init(&klass, SETTING_CLASS, &given, &plan, NULL), HSDP_OK);
    ck_assert_str_eq(settings_text(&klass, "sharding_strategy"), "zero1");
    ck_assert_str_eq(klass.sources[setting_index("sharding_strategy")], "plan");
    ck_assert_str_eq(settings_text(&klass, "reduce_dtype"), "bf16");
    ck_assert_str_eq(klass.sources[setting_index("reduce_dtype")], "host");
    ck_assert_str_eq(settings_text(&klass, "gradient_op"), "mean");
    ck_assert_ptr_null(settings_text(&klass, "slots")); /* not a key of classes */
    settings_fini(&klass);
    settings_fini(&plan);
}
END_TEST

START_TEST(settings_put_checks_and_replaces)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct settings settings;
    const char *value = NULL;
    const char *source = NULL;

    ck_assert_int_eq(settings_init(&settings, SETTING_PLAN, NULL, NULL, NULL), HSDP_OK);
    ck_assert_int_eq(settings_put_integer(&settings, "shard_size", 4, "derived from dp", NULL),
                     HSDP_OK);
    ck_assert_int_eq(settings_put(&settings, "shard_size", "x", "host", &err), HSDP_ERR_INVALID);
    ck_assert_int_eq(settings_get(&settings, "shard_size", &value, &source, NULL), HSDP_OK);
    ck_assert_str_eq(value, "4");
    ck_assert_str_eq(source, "derived from dp");
    settings_fini(&settings);
    settings_fini(&settings); /* what is empty may be emptied */
}
END_TEST

START_TEST(settings_get_of_an_unset_key_is_empty)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct settings settings;
    const char *value = "untouched";
    const char *source = "untouched";

    ck_assert_int_eq(settings_init(&settings, SETTING_PLAN, NULL, NULL, NULL), HSDP_OK);
    ck_assert_int_eq(settings_get(&settings, "backend", &value, &source, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message,
                     "settings: unknown key \"backend\" for a plan; known: " PLAN_KEYS);
    ck_assert_str_eq(value, "untouched");
    ck_assert_int_eq(settings_get(&settings, "shard_size", &value, &source, NULL), HSDP_OK);
    ck_assert_str_eq(value, "");
    ck_assert_str_eq(source, "default");
    settings_fini(&settings);
}
END_TEST

/* Every default must itself be legal, every key must say what it does. */
START_TEST(setting_defs_are_complete)
{
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        const struct setting_def *def = &setting_defs[i];
        struct settings settings;

        ck_assert_ptr_nonnull(def->meaning);
        ck_assert_uint_ne(def->homes, 0);
        ck_assert_uint_eq(setting_index(def->key), i);
        ck_assert_msg((def->initial == NULL) == (def->initial_words != NULL), "%s", def->key);
        if (def->initial != NULL) {
            ck_assert_int_eq(one_init(&settings,
                                      (def->homes & SETTING_JOB) != 0 ? SETTING_JOB : SETTING_PLAN,
                                      def->key, def->initial, NULL),
                             HSDP_OK);
            settings_fini(&settings);
        }
    }
}
END_TEST

START_TEST(integer_parse_takes_the_whole_range)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"0", 0}, {"-7", -7}, {"007", 7}, {"9223372036854775807", INT64_MAX}};
    struct hsdp_error err = HSDP_ERROR_INIT;
    int64_t value = 77;

    for (int i = 0; i < N_OF(cases); i++) {
        ck_assert_int_eq(integer_parse("RANK", cases[i].text, -7, INT64_MAX, &value, NULL),
                         HSDP_OK);
        ck_assert_int_eq(value, cases[i].value);
    }
    value = 77;
    ck_assert_int_eq(integer_parse("RANK", "-8", -7, 5, &value, &err), HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "RANK: \"-8\" is not a whole number from -7 to 5");
    ck_assert_int_eq(integer_parse("RANK", "6", -7, 5, &value, NULL), HSDP_ERR_INVALID);
    ck_assert_int_eq(value, 77);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("settings");
    TCase *tcase = tcase_create("settings");

    tcase_add_checked_fixture(tcase, fixture_clear_environment, NULL);
    tcase_add_loop_test(tcase, settings_init_of_a_bad_one_says_what_is_allowed, 0, N_OF(bad));
    tcase_add_loop_test(tcase, settings_init_of_a_good_one_reads_back, 0, N_OF(good));
    tcase_add_test(tcase, settings_init_of_a_key_twice_is_refused);
    tcase_add_test(tcase, settings_init_of_missing_arrays_is_refused);
    tcase_add_test(tcase, settings_init_prefers_host_then_environment_then_default);
    tcase_add_test(tcase, settings_init_of_a_bad_environment_is_refused);
    tcase_add_test(tcase, settings_init_of_a_class_takes_the_rest_from_its_plan);
    tcase_add_test(tcase, settings_put_checks_and_replaces);
    tcase_add_test(tcase, settings_get_of_an_unset_key_is_empty);
    tcase_add_test(tcase, setting_defs_are_complete);
    tcase_add_test(tcase, integer_parse_takes_the_whole_range);
    suite_add_tcase(suite, tcase);
    return suite;
}
