/* SPDX-License-Identifier: Apache-2.0 */
/* The dataset of hsdp-gpt: samples by number, the held-out part, and files that cannot be used. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/gpt/dataset.h"
#include "suite.h"

enum { LENGTH = 16, N_BYTES = 1000, N_TRAIN = 900 };

static char path[64];
static struct dataset dataset;
static struct fault fault;
static struct dataset_spec spec;

/* A file in which byte i is i mod 251, so that each short run is found at few places. */
static void file_write(size_t n_bytes)
{
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < n_bytes; i++) {
        fputc((int)(i % 251), file);
    }
    ck_assert_int_eq(fclose(file), 0);
}

static void dataset_setup(void)
{
    snprintf(path, sizeof(path), "gpt_dataset.%ld.bin", (long)getpid());
    memset(&dataset, 0, sizeof(dataset));
    memset(&fault, 0, sizeof(fault));
    spec = (struct dataset_spec){
        .path = path, .sequence_length = LENGTH, .seed = 5, .needs_validation = 1};
    file_write(N_BYTES);
}

static void dataset_teardown(void)
{
    dataset_fini(&dataset);
    unlink(path);
}

START_TEST(dataset_sample_targets_follow_inputs)
{
    uint8_t inputs[LENGTH], targets[LENGTH];

    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), 0);
    for (uint64_t number = 0; number < 500; number++) {
        dataset_sample(&dataset, number, inputs, targets);
        ck_assert_mem_eq(inputs + 1, targets, LENGTH - 1);
        ck_assert_int_eq(targets[LENGTH - 1], (inputs[LENGTH - 1] + 1) % 251);
    }
}
END_TEST

START_TEST(dataset_sample_any_number_stays_in_the_first_nine_tenths)
{
    uint8_t inputs[LENGTH], targets[LENGTH];

    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), 0);
    memset(dataset.bytes + N_TRAIN, 255, N_BYTES - N_TRAIN);
    for (uint64_t number = 0; number < 20000; number++) {
        dataset_sample(&dataset, number, inputs, targets);
        ck_assert_int_ne(targets[LENGTH - 1], 255);
    }
}
END_TEST

START_TEST(dataset_sample_many_numbers_reach_every_offset)
{
    uint8_t inputs[LENGTH], targets[LENGTH], seen[251] = {0};
    int n_seen = 0;

    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), 0);
    for (uint64_t number = 0; number < 20000; number++) {
        dataset_sample(&dataset, number, inputs, targets);
        n_seen += !seen[inputs[0]];
        seen[inputs[0]] = 1;
    }
    ck_assert_int_eq(n_seen, 251);
}
END_TEST

START_TEST(dataset_sample_order_of_calls_does_not_matter)
{
    uint8_t forward[8][LENGTH], backward[8][LENGTH], targets[LENGTH];

    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), 0);
    for (uint64_t number = 0; number < 8; number++) {
        dataset_sample(&dataset, number, forward[number], targets);
    }
    for (uint64_t number = 8; number-- > 0;) {
        dataset_sample(&dataset, number, backward[number], targets);
    }
    ck_assert_mem_eq(forward, backward, sizeof(forward));
}
END_TEST

START_TEST(dataset_sample_other_seed_differs)
{
    uint8_t first[8][LENGTH], second[8][LENGTH], targets[LENGTH];
    struct dataset other;

    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), 0);
    spec.seed = 6;
    ck_assert_int_eq(dataset_load(&other, &spec, &fault), 0);
    for (uint64_t number = 0; number < 8; number++) {
        dataset_sample(&dataset, number, first[number], targets);
        dataset_sample(&other, number, second[number], targets);
    }
    ck_assert_mem_ne(first, second, sizeof(first));
    dataset_fini(&other);
}
END_TEST

START_TEST(dataset_held_out_samples_lie_in_the_last_tenth)
{
    uint8_t inputs[LENGTH], targets[LENGTH];

    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), 0);
    ck_assert_uint_eq(dataset_n_held_out(&dataset), 6); /* 6 * 16 + 1 of 100 bytes */
    for (size_t number = 0; number < 6; number++) {
        dataset_held_out(&dataset, number, inputs, targets);
        ck_assert_int_eq(inputs[0], (int)((N_TRAIN + number * LENGTH) % 251));
        ck_assert_int_eq(targets[LENGTH - 1], (int)((N_TRAIN + (number + 1) * LENGTH) % 251));
    }
}
END_TEST

START_TEST(dataset_load_least_size_gives_its_one_sample)
{
    uint8_t inputs[LENGTH], targets[LENGTH];

    file_write(18); /* 17 of training, 1 held out */
    spec.needs_validation = 0;
    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), 0);
    dataset_sample(&dataset, 12345, inputs, targets);
    ck_assert_int_eq(inputs[0], 0);
    ck_assert_uint_eq(dataset_n_held_out(&dataset), 0);
}
END_TEST

START_TEST(dataset_load_too_short_is_refused)
{
    char want[256];

    file_write(17); /* 16 of training, 1 held out */
    spec.needs_validation = 0;
    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), FAULT_PLACE);
    snprintf(want, sizeof(want),
             "dataset %s: 17 bytes are too few for sequence_length 16; the first nine tenths must "
             "hold 17",
             path);
    ck_assert_str_eq(fault.text, want);
    ck_assert_ptr_null(dataset.bytes);
}
END_TEST

START_TEST(dataset_load_too_short_held_out_part_is_refused)
{
    file_write(169); /* 16 held out */
    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), FAULT_PLACE);
    ck_assert_ptr_nonnull(strstr(fault.text, "the held-out tenth must hold 17"));
    file_write(170);
    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), 0);
    ck_assert_uint_eq(dataset_n_held_out(&dataset), 1);
}
END_TEST

START_TEST(dataset_load_empty_file_is_refused)
{
    file_write(0);
    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), FAULT_PLACE);
    ck_assert_ptr_nonnull(strstr(fault.text, ": 0 bytes are too few"));
}
END_TEST

START_TEST(dataset_load_what_is_no_file_is_refused)
{
    spec.path = "/nowhere/text";
    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), FAULT_PLACE);
    ck_assert_str_eq(fault.text,
                     "dataset /nowhere/text: cannot be read: No such file or directory");
    spec.path = ".";
    ck_assert_int_eq(dataset_load(&dataset, &spec, &fault), FAULT_PLACE);
    ck_assert_str_eq(fault.text, "dataset .: not a regular file");
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpt_dataset");
    TCase *tcase = tcase_create("samples");

    tcase_add_checked_fixture(tcase, dataset_setup, dataset_teardown);
    tcase_add_test(tcase, dataset_sample_targets_follow_inputs);
    tcase_add_test(tcase, dataset_sample_any_number_stays_in_the_first_nine_tenths);
    tcase_add_test(tcase, dataset_sample_many_numbers_reach_every_offset);
    tcase_add_test(tcase, dataset_sample_order_of_calls_does_not_matter);
    tcase_add_test(tcase, dataset_sample_other_seed_differs);
    tcase_add_test(tcase, dataset_held_out_samples_lie_in_the_last_tenth);
    tcase_add_test(tcase, dataset_load_least_size_gives_its_one_sample);
    tcase_add_test(tcase, dataset_load_too_short_is_refused);
    tcase_add_test(tcase, dataset_load_too_short_held_out_part_is_refused);
    tcase_add_test(tcase, dataset_load_empty_file_is_refused);
    tcase_add_test(tcase, dataset_load_what_is_no_file_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
