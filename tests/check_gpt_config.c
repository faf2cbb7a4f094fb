/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of hsdp-gpt: defaults, file, overrides, and a sentence for every wrong input.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "examples/gpt/config.h"
#include "suite.h"

static struct config config;
static struct fault fault;
static char path[64];

static void config_setup(void)
{
    config_init(&config);
    memset(&fault, 0, sizeof(fault));
    snprintf(path, sizeof(path), "gpt_config.%ld.yaml", (long)getpid());
}

static void config_teardown(void)
{
    unlink(path);
}

/* Reads `n_bytes` of text as a configuration file. */
static int bytes_load(const char *text, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, n_bytes, file), n_bytes);
    ck_assert_int_eq(fclose(file), 0);
    return config_load(&config, path, &fault);
}

static int text_load(const char *text)
{
    return bytes_load(text, strlen(text));
}

/* The sentence is about this file and says `rest`. */
static void fault_is(const char *rest)
{
    ck_assert_int_eq(strncmp(fault.text, path, strlen(path)), 0);
    ck_assert_str_eq(fault.text + strlen(path), rest);
}

START_TEST(config_init_nothing_given_has_defaults)
{
    ck_assert_uint_eq(config.sequence_length, 128);
    ck_assert_double_eq(config.learning_rate, 0.003);
    ck_assert_uint_eq(config.is_rotary, 1);
    ck_assert_str_eq(config.dataset, "/usr/share/common-licenses/GPL-3");
    ck_assert_str_eq(config.plugin, "");
    ck_assert_ptr_null(config_text(&config, "sharding_strategy"));
}
END_TEST

START_TEST(config_load_good_file_sets_values)
{
    ck_assert_int_eq(text_load("# a comment\nnum_layers: 7\n\"position\": 'learned'\n"
                               "learning_rate: 1.5e-3\nsharding_strategy: hsdp\n"),
                     0);
    ck_assert_uint_eq(config.num_layers, 7);
    ck_assert_uint_eq(config.is_rotary, 0);
    ck_assert_double_eq(config.learning_rate, 1.5e-3);
    ck_assert_str_eq(config_text(&config, "sharding_strategy"), "hsdp");
}
END_TEST

START_TEST(config_override_after_file_wins)
{
    ck_assert_int_eq(text_load("seed: 1\n"), 0);
    ck_assert_int_eq(config_override(&config, "seed=2", &fault), 0);
    ck_assert_uint_eq(config.seed, 2);
}
END_TEST

START_TEST(config_override_value_with_equals_sign_is_kept)
{
    ck_assert_int_eq(config_override(&config, "dataset=a=b", &fault), 0);
    ck_assert_str_eq(config.dataset, "a=b");
}
END_TEST

START_TEST(config_override_twice_last_wins)
{
    ck_assert_int_eq(config_override(&config, "seed=2", &fault), 0);
    ck_assert_int_eq(config_override(&config, "slots=2", &fault), 0);
    ck_assert_int_eq(config_override(&config, "seed=3", &fault), 0);
    ck_assert_int_eq(config_override(&config, "slots=3", &fault), 0);
    ck_assert_uint_eq(config.seed, 3);
    ck_assert_str_eq(config_text(&config, "slots"), "3");
}
END_TEST

static const char *const not_assignments[] = {"seed", "=3", ""};

START_TEST(config_override_not_an_assignment_is_refused)
{
    ck_assert_int_eq(config_override(&config, not_assignments[_i], &fault), FAULT_CONFIG);
    ck_assert_ptr_nonnull(strstr(fault.text, "is not of the form key=value"));
}
END_TEST

START_TEST(config_load_unknown_key_lists_the_known)
{
    ck_assert_int_eq(text_load("seed: 1\nshardingstrategy: hsdp\n"), FAULT_CONFIG);
    ck_assert_ptr_nonnull(strstr(fault.text, ".yaml:2: unknown key \"shardingstrategy\"; allowed"));
    ck_assert_ptr_nonnull(strstr(fault.text, "sharding_strategy, "));
    ck_assert_ptr_nonnull(strstr(fault.text, "blas_threads"));
}
END_TEST

START_TEST(config_load_same_key_twice_names_both_lines)
{
    ck_assert_int_eq(text_load("seed: 1\n\nseed: 1\n"), FAULT_CONFIG);
    ck_assert_ptr_nonnull(strstr(fault.text, ".yaml:3: seed is given twice, the first time at "));
    ck_assert_ptr_nonnull(strstr(fault.text, ".yaml:1; once is allowed"));
}
END_TEST

static const char *const wrong_integers[] = {
    "",   "true", "30s",   "0x1f", "'  30'", "1.5", "99999999999999999999",
    "-5", "0",    "65537", "~",    "1e3",    "+7",  "７"};

START_TEST(config_load_wrong_integer_names_the_range)
{
    char text[64];

    snprintf(text, sizeof(text), "sequence_length: %s\n", wrong_integers[_i]);
    ck_assert_int_eq(text_load(text), FAULT_CONFIG);
    ck_assert_ptr_nonnull(strstr(fault.text, ".yaml:1: sequence_length: \""));
    ck_assert_ptr_nonnull(strstr(fault.text, "a whole number from 1 to 65536 is"));
}
END_TEST

static const char *const wrong_numbers[] = {"", "nan", "inf", "0x1p-3", "1e", "1,5", "-1", "11"};

START_TEST(config_load_wrong_number_names_the_range)
{
    char text[64];

    snprintf(text, sizeof(text), "learning_rate: %s\n", wrong_numbers[_i]);
    ck_assert_int_eq(text_load(text), FAULT_CONFIG);
    ck_assert_ptr_nonnull(strstr(fault.text, "a number from 0 to 10 is"));
}
END_TEST

START_TEST(config_load_wrong_word_lists_the_words)
{
    ck_assert_int_eq(text_load("seed: 4\nposition: learnedrotary\n"), FAULT_CONFIG);
    fault_is(":2: position: \"learnedrotary\" is not allowed; learned|rotary is");
}
END_TEST

/* Text, and how the sentence about it goes on after the file's name. */
static const char *const wrong_files[][2] = {
    {"", ": the file holds no key; lines of \"key: value\" are wanted"},
    {"# seed: 1\n", ": the file holds no key; lines of \"key: value\" are wanted"},
    {"seed", ":1: the file must hold lines of \"key: value\", this is a single value"},
    {"seed: 1\nmax_steps: [1, 2]\n",
     ":2: max_steps: a list, a mapping or an alias is not allowed; one plain value is"},
    {"seed:\n  more: 1\n",
     ":2: seed: a list, a mapping or an alias is not allowed; one plain value is"},
    {"- seed\n", ":1: one mapping of keys to plain values is allowed, no list, no second one"},
    {"seed: 1\n---\nmax_steps: 2\n",
     ":3: one mapping of keys to plain values is allowed, no list, no second one"},
    {"seed: &a 1\nmax_steps: *a\n",
     ":2: max_steps: a list, a mapping or an alias is not allowed; one plain value is"},
};

START_TEST(config_load_wrong_shape_names_the_line)
{
    ck_assert_int_eq(text_load(wrong_files[_i][0]), FAULT_CONFIG);
    fault_is(wrong_files[_i][1]);
}
END_TEST

static const char *const not_yaml[][2] = {
    {"seed: 1\nmax_steps: \"2", ":2: not YAML: "},
    {"seed: 1\n\t- a: b: c", ":2: not YAML: "},
    {"seed: 1\n- b\n", ":2: not YAML: "},
    {"\n\nseed: @x\n", ":3: not YAML: "},
};

START_TEST(config_load_not_yaml_names_the_line)
{
    ck_assert_int_eq(text_load(not_yaml[_i][0]), FAULT_CONFIG);
    ck_assert_ptr_nonnull(strstr(fault.text, not_yaml[_i][1]));
}
END_TEST

START_TEST(config_load_not_utf8_names_the_byte)
{
    ck_assert_int_eq(text_load("seed: \xff\xfe"), FAULT_CONFIG);
    ck_assert_ptr_nonnull(strstr(fault.text, ": byte 6: "));
}
END_TEST

START_TEST(config_load_nul_in_value_is_refused)
{
    static const char text[] = "dataset: \"a\\0b\"\n";

    ck_assert_int_eq(bytes_load(text, sizeof(text) - 1), FAULT_CONFIG);
    fault_is(":1: a value holds a NUL byte");
}
END_TEST

START_TEST(config_load_missing_file_says_so)
{
    ck_assert_int_eq(config_load(&config, "/nowhere/gpt.yaml", &fault), FAULT_PLACE);
    ck_assert_str_eq(fault.text, "/nowhere/gpt.yaml: cannot be read: No such file or directory");
}
END_TEST

START_TEST(config_load_folder_says_so)
{
    ck_assert_int_eq(config_load(&config, ".", &fault), FAULT_PLACE);
    ck_assert_str_eq(fault.text, ".: cannot be read: Is a directory");
}
END_TEST

START_TEST(config_set_too_long_is_refused)
{
    char text[2 * CONFIG_TEXT_BYTES];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_eq(config_set(&config, "dataset", text, "--set", 1, &fault), FAULT_CONFIG);
    ck_assert_str_eq(fault.text, "--set: dataset: 2047 bytes are too long; allowed are 1023");
}
END_TEST

/* Pairs of overrides that do not go together, and what the sentence says. */
static const char *const wrong_pairs[][3] = {
    {"hidden_size=100", "num_attention_heads=3", "is not a multiple of num_attention_heads 3"},
    {"hidden_size=15", "num_attention_heads=5", "an even number of channels per head"},
    {"learning_rate=1e-4", "min_learning_rate=2e-4", "min_learning_rate 0.0002 (--set) is above"},
};

START_TEST(config_finish_keys_that_clash_are_refused)
{
    ck_assert_int_eq(config_override(&config, wrong_pairs[_i][0], &fault), 0);
    ck_assert_int_eq(config_override(&config, wrong_pairs[_i][1], &fault), 0);
    ck_assert_int_eq(config_finish(&config, &fault), FAULT_CONFIG);
    ck_assert_ptr_nonnull(strstr(fault.text, wrong_pairs[_i][2]));
}
END_TEST

START_TEST(config_finish_open_minimum_is_a_tenth)
{
    ck_assert_int_eq(config_override(&config, "learning_rate=0.5", &fault), 0);
    ck_assert_int_eq(config_finish(&config, &fault), 0);
    ck_assert_double_eq_tol(config.min_learning_rate, 0.05, 1e-15);
}
END_TEST

START_TEST(config_microbatches_batch_that_fits_is_shared)
{
    uint32_t n_microbatches;

    ck_assert_int_eq(config_override(&config, "global_batch_size=48", &fault), 0);
    ck_assert_int_eq(config_microbatches(&config, 3, &n_microbatches, &fault), 0);
    ck_assert_uint_eq(n_microbatches, 4);
}
END_TEST

START_TEST(config_microbatches_batch_that_does_not_fit_is_refused)
{
    uint32_t n_microbatches = 77;

    ck_assert_int_eq(config_microbatches(&config, 3, &n_microbatches, &fault), FAULT_PLACE);
    ck_assert_str_eq(fault.text,
                     "global_batch_size 16 (default) is not a multiple of micro_batch_size 4 "
                     "(default) times 3 ranks; a multiple of 12 is allowed");
    ck_assert_uint_eq(n_microbatches, 77);
}
END_TEST

START_TEST(config_settings_plugin_keys_pass_unread)
{
    const char *keys[CONFIG_MAX_KEYS], *values[CONFIG_MAX_KEYS];

    ck_assert_int_eq(config_override(&config, "shard_size= odd ", &fault), 0);
    ck_assert_int_eq(config_override(&config, "backend=shm", &fault), 0);
    ck_assert_uint_eq(config_settings(&config, CONFIG_PLAN, keys, values), 1);
    ck_assert_str_eq(keys[0], "shard_size");
    ck_assert_str_eq(values[0], " odd ");
    ck_assert_uint_eq(config_settings(&config, CONFIG_JOB, keys, values), 1);
    ck_assert_str_eq(values[0], "shm");
}
END_TEST

START_TEST(config_finish_open_schedule_ends_with_the_run)
{
    ck_assert_int_eq(config_override(&config, "max_steps=7", &fault), 0);
    ck_assert_int_eq(config_finish(&config, &fault), 0);
    ck_assert_uint_eq(config.schedule_steps, 7);
}
END_TEST

START_TEST(config_origin_first_given_key_of_a_sentence_is_found)
{
    ck_assert_int_eq(text_load("slots: 3\n\nshard_size: 5\n"), 0);
    ck_assert_int_eq(config_override(&config, "verify=x", &fault), 0);
    ck_assert_str_eq(config_origin(&config, "no verify: slots and shard_size"), "--set");
    ck_assert_str_eq(config_origin(&config, "my_slots, shard_size: 5 of slots") + strlen(path),
                     ":3");
    ck_assert_ptr_null(config_origin(&config, "backend and slots_2"));
}
END_TEST

/* The help, for the caller to free. */
static char *help_of(const char *description)
{
    char *text = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);

    config_help(out, description);
    fclose(out);
    return text;
}

START_TEST(config_help_names_every_key)
{
    char *text = help_of(NULL);

    for (size_t i = 0; config_keys[i].name != NULL; i++) {
        ck_assert_ptr_nonnull(strstr(text, config_keys[i].name));
        ck_assert_uint_lt(i + 1, CONFIG_MAX_KEYS);
    }
    ck_assert_ptr_nonnull(strstr(text, "positions of a sample; 1 to 65536 [128]"));
    ck_assert_ptr_nonnull(strstr(text, "units that may be unsharded at a time [the plugin's]"));
    free(text);
}
END_TEST

START_TEST(config_help_defaults_of_the_plugin_are_those_it_describes)
{
    char *text = help_of("{\"plugin_name\": \"x\", \"settings\": [7, {\"key\": \"verify\"}, "
                         "{\"key\": \"slots\", \"min\": 1, \"default\": \"2\"}, "
                         "{\"key\": \"shard_size\", \"default_rule\": \"half: at most\"}]}");

    ck_assert_ptr_nonnull(strstr(text, "unsharded at a time [2]\n"));
    ck_assert_ptr_nonnull(strstr(text, "hybrid strategies [half: at most]\n"));
    ck_assert_ptr_nonnull(strstr(text, "step:N [none]\n"));
    ck_assert_ptr_nonnull(strstr(text, "first meeting [unknown to the plugin]\n"));
    free(text);
}
END_TEST

static void cases_add(TCase *tcase)
{
    tcase_add_test(tcase, config_init_nothing_given_has_defaults);
    tcase_add_test(tcase, config_load_good_file_sets_values);
    tcase_add_test(tcase, config_override_after_file_wins);
    tcase_add_test(tcase, config_override_value_with_equals_sign_is_kept);
    tcase_add_test(tcase, config_override_twice_last_wins);
    tcase_add_test(tcase, config_finish_open_minimum_is_a_tenth);
    tcase_add_test(tcase, config_microbatches_batch_that_fits_is_shared);
    tcase_add_test(tcase, config_settings_plugin_keys_pass_unread);
    tcase_add_test(tcase, config_finish_open_schedule_ends_with_the_run);
    tcase_add_test(tcase, config_origin_first_given_key_of_a_sentence_is_found);
    tcase_add_test(tcase, config_help_names_every_key);
    tcase_add_test(tcase, config_help_defaults_of_the_plugin_are_those_it_describes);
}

static void refusals_add(TCase *tcase)
{
    tcase_add_loop_test(tcase, config_override_not_an_assignment_is_refused, 0,
                        N_OF(not_assignments));
    tcase_add_test(tcase, config_load_unknown_key_lists_the_known);
    tcase_add_test(tcase, config_load_same_key_twice_names_both_lines);
    tcase_add_loop_test(tcase, config_load_wrong_integer_names_the_range, 0, N_OF(wrong_integers));
    tcase_add_loop_test(tcase, config_load_wrong_number_names_the_range, 0, N_OF(wrong_numbers));
    tcase_add_test(tcase, config_load_wrong_word_lists_the_words);
    tcase_add_loop_test(tcase, config_load_wrong_shape_names_the_line, 0, N_OF(wrong_files));
    tcase_add_loop_test(tcase, config_load_not_yaml_names_the_line, 0, N_OF(not_yaml));
    tcase_add_test(tcase, config_load_not_utf8_names_the_byte);
    tcase_add_test(tcase, config_load_nul_in_value_is_refused);
    tcase_add_test(tcase, config_load_missing_file_says_so);
    tcase_add_test(tcase, config_load_folder_says_so);
    tcase_add_test(tcase, config_set_too_long_is_refused);
    tcase_add_loop_test(tcase, config_finish_keys_that_clash_are_refused, 0, N_OF(wrong_pairs));
    tcase_add_test(tcase, config_microbatches_batch_that_does_not_fit_is_refused);
}

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpt_config");
    TCase *good = tcase_create("accepted"), *bad = tcase_create("refused");

    tcase_add_checked_fixture(good, config_setup, config_teardown);
    tcase_add_checked_fixture(bad, config_setup, config_teardown);
    cases_add(good);
    refusals_add(bad);
    suite_add_tcase(suite, good);
    suite_add_tcase(suite, bad);
    return suite;
}
