/* SPDX-License-Identifier: Apache-2.0 */
/* What hsdp-gpt prints and computes beside the model: the line, JSON, schedule, conversions. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/convert.h"
#include "examples/gpt/digest.h"
#include "examples/gpt/laps.h"
#include "examples/gpt/report.h"
#include "examples/gpt/schedule.h"
#include "suite.h"

static const struct tm moment = {
    .tm_year = 126, .tm_mon = 4, .tm_mday = 15, .tm_hour = 9, .tm_min = 18, .tm_sec = 32};

static struct report_step step_example(void)
{
    return (struct report_step){.step = 21,
                                .n_steps = 25,
                                .seconds = 14.2619,
                                .compute_seconds = 13.5,
                                .communication_seconds = 0.7519,
                                .optimizer_seconds = 0.01,
                                .loss = 2.57064,
                                .learning_rate = 1e-6,
                                .gradient_norm = 1077.37176,
                                .tokens_per_second = 294082.6,
                                .peak_bytes = 51894342779};
}

START_TEST(report_line_any_step_has_the_usual_form)
{
    const struct report_step step = step_example();
    char line[REPORT_LINE_BYTES];

    report_line(line, &step, &moment);
    ck_assert_str_eq(line, "2026-05-15 09:18:32 | INFO | step 00000021/00000025 | step-time 14.262 "
                           "sec | communication-time 0.752 sec | optimizer-time 0.010 sec | "
                           "cross-entropy-loss 2.5706 | learning-rate 1.000000e-06 | "
                           "gradient-norm 1077.3718 | tokens-per-second 294,083 | peak-memory "
                           "48.33 GB");
}
END_TEST

static const double speeds[] = {0, 7, 999, 1000, 1234567, 100000000};
static const char *const speed_texts[] = {" 0 |",     " 7 |",         " 999 |",
                                          " 1,000 |", " 1,234,567 |", " 100,000,000 |"};

START_TEST(report_line_any_speed_is_grouped_by_thousands)
{
    struct report_step step = step_example();
    char line[REPORT_LINE_BYTES], want[64];

    step.tokens_per_second = speeds[_i];
    report_line(line, &step, &moment);
    snprintf(want, sizeof(want), "tokens-per-second%s", speed_texts[_i]);
    ck_assert_ptr_nonnull(strstr(line, want));
}
END_TEST

/* The JSON text of a step; the caller frees it. */
static char *json_of(const struct report_step *step)
{
    char *text = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);

    ck_assert_int_eq(report_json(out, step), 0);
    fclose(out);
    return text;
}

START_TEST(report_json_full_step_has_every_key)
{
    static const struct report_traffic traffic[] = {{"dp_shard", 12}, {"p\"p[0,-1]", 3}};
    struct report_step step = step_example();
    char *text;

    step.traffic = traffic;
    step.n_traffic = 2;
    step.parameter_bytes = 1;
    step.unsharded_bytes = 4;
    text = json_of(&step);
    ck_assert_str_eq(
        text,
        "{\"step\": 21, \"cross_entropy_loss\": 2.57064, \"gradient_norm\": "
        "1077.37176, \"learning_rate\": 9.9999999999999995e-07, \"step_seconds\": "
        "14.261900, \"compute_seconds\": 13.500000, \"communication_seconds\": 0.751900, "
        "\"optimizer_seconds\": 0.010000, \"tokens_per_second\": 294082.6, \"peak_memory_bytes\": "
        "51894342779, "
        "\"memory\": {\"parameters\": 1, \"gradients\": 0, \"optimizer\": 0, \"unsharded\": 4}, "
        "\"traffic\": {\"dp_shard\": 12, \"p\\\"p[0,-1]\": 3}}\n");
    free(text);
}
END_TEST

/* Waits for the clock to move on. */
static void lap_make(struct laps *laps, enum laps_part part)
{
    const double before = laps->seconds[part];

    do {
        laps_end(laps, part);
    } while (laps->seconds[part] == before);
}

START_TEST(laps_end_each_part_keeps_its_own_time)
{
    struct laps laps;
    double start;

    laps_begin(&laps);
    start = laps.since;
    lap_make(&laps, LAPS_OPTIMIZER);
    ck_assert_double_eq(laps.seconds[LAPS_COMPUTE] + laps.seconds[LAPS_COMMUNICATION], 0);
    lap_make(&laps, LAPS_COMPUTE);
    lap_make(&laps, LAPS_COMMUNICATION);
    lap_make(&laps, LAPS_COMPUTE);
    ck_assert_double_eq_tol(laps_total(&laps), laps.since - start, 1e-9);
}
END_TEST

START_TEST(laps_begin_next_step_starts_from_nothing)
{
    struct laps laps;

    laps_begin(&laps);
    lap_make(&laps, LAPS_COMPUTE);
    laps_begin(&laps);
    ck_assert_double_eq(laps_total(&laps), 0);
}
END_TEST

START_TEST(report_json_loss_reads_back_exactly)
{
    struct report_step step = step_example();
    char *text;

    step.loss = 2.0 / 3.0;
    text = json_of(&step);
    ck_assert(strtod(strstr(text, "loss\": ") + 7, NULL) == 2.0 / 3.0);
    free(text);
}
END_TEST

START_TEST(report_json_not_finite_is_null)
{
    struct report_step step = step_example();
    char *text;

    step.loss = NAN;
    step.gradient_norm = INFINITY;
    text = json_of(&step);
    ck_assert_ptr_nonnull(strstr(text, "\"cross_entropy_loss\": null, \"gradient_norm\": null,"));
    free(text);
}
END_TEST

START_TEST(report_json_last_step_has_the_digest)
{
    struct report_step step = step_example();
    char *text;

    step.has_digest = 1;
    step.parameters_digest = 0x12ab;
    text = json_of(&step);
    ck_assert_ptr_nonnull(strstr(text, ", \"parameters_digest\": \"00000000000012ab\", "));
    free(text);
}
END_TEST

/* The published value for the four letters "foob", which are a float as well. */
START_TEST(digest_add_known_bytes_gives_the_known_number)
{
    float values[1];

    memcpy(values, "foob", sizeof(values));
    ck_assert_uint_eq(digest_add(DIGEST_START, values, 1), UINT64_C(0xdd120e790c2512af));
}
END_TEST

START_TEST(digest_add_other_order_or_sign_gives_another_number)
{
    static const float values[] = {1.0f, 0.0f}, swapped[] = {0.0f, 1.0f},
                       negative[] = {1.0f, -0.0f};
    const uint64_t whole = digest_add(DIGEST_START, values, 2);

    ck_assert_uint_eq(digest_add(digest_add(DIGEST_START, values, 1), values + 1, 1), whole);
    ck_assert_uint_ne(digest_add(DIGEST_START, swapped, 2), whole);
    ck_assert_uint_ne(digest_add(DIGEST_START, negative, 2), whole);
}
END_TEST

START_TEST(report_json_full_device_is_an_error)
{
    const struct report_step step = step_example();
    FILE *out = fopen("/dev/full", "w");

    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(report_json(out, &step), -1);
    fclose(out);
}
END_TEST

START_TEST(report_bar_half_way_is_half_full)
{
    char *text = NULL;
    size_t n_bytes;
    FILE *out = open_memstream(&text, &n_bytes);

    report_bar(out, 5, 10);
    fclose(out);
    ck_assert_str_eq(text, "\r\033[K[####################....................] 5/10");
    free(text);
}
END_TEST

START_TEST(schedule_rate_warm_up_then_cosine)
{
    const struct schedule schedule = {.peak = 1, .least = 0.1, .n_warmup_steps = 4, .n_steps = 104};

    ck_assert_double_eq(schedule_rate(&schedule, 1), 0.25);
    ck_assert_double_eq(schedule_rate(&schedule, 4), 1);
    ck_assert_double_eq_tol(schedule_rate(&schedule, 54), 0.55, 1e-15);
    ck_assert_double_eq_tol(schedule_rate(&schedule, 29), 0.1 + 0.9 * (1 + sqrt(0.5)) / 2, 1e-15);
    ck_assert_double_eq(schedule_rate(&schedule, 104), 0.1);
    ck_assert_double_eq(schedule_rate(&schedule, 105), 0.1);
}
END_TEST

START_TEST(schedule_rate_without_warm_up_starts_near_the_peak)
{
    const struct schedule schedule = {.peak = 2, .least = 0, .n_warmup_steps = 0, .n_steps = 1000};
    const struct schedule only_warm = {.peak = 2, .least = 1, .n_warmup_steps = 3, .n_steps = 3};

    ck_assert_double_gt(schedule_rate(&schedule, 1), 1.9999);
    ck_assert_double_lt(schedule_rate(&schedule, 1), 2);
    ck_assert_double_eq(schedule_rate(&only_warm, 3), 2);
}
END_TEST

/* A view of halves of one format. */
static struct hsdp_tensor halves_view(uint16_t *halves, uint8_t code)
{
    return (struct hsdp_tensor){.base = halves,
                                .device_type = HSDP_DEVICE_CPU,
                                .n_dims = 1,
                                .dtype_code = code,
                                .dtype_bits = 16,
                                .dtype_lanes = 1};
}

START_TEST(convert_store_any_half_comes_back)
{
    const uint8_t code = _i == 0 ? HSDP_DTYPE_BFLOAT : HSDP_DTYPE_FLOAT;
    uint16_t half, back;
    const struct hsdp_tensor from = halves_view(&half, code), to = halves_view(&back, code);
    float value;

    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        half = (uint16_t)bits;
        convert_load(&value, &from, 1);
        convert_store(&to, 0, &value, 1);
        ck_assert(isnan(value) || back == half);
        convert_load(&value, &to, 1);
        ck_assert((half & 0x7fff) <= (_i == 0 ? 0x7f80 : 0x7c00) || isnan(value));
    }
}
END_TEST

/* fp32, and its bf16 and fp16 by hand: ties to even, overflow, the least numbers. */
static const float wide[] = {1,        1.00390625F, 1.01171875F, 65519,        65520,
                             0x1p-24F, 0x1p-25F,    -0x1.8p-24F, 0x1.ffcp-15F, 3.3895314e38F};
static const uint16_t as_bf16[] = {0x3f80, 0x3f80, 0x3f82, 0x4780, 0x4780,
                                   0x3380, 0x3300, 0xb3c0, 0x3880, 0x7f7f};
static const uint16_t as_fp16[] = {0x3c00, 0x3c04, 0x3c0c, 0x7bff, 0x7c00,
                                   0x0001, 0x0000, 0x8002, 0x0400, 0x7c00};

START_TEST(convert_store_between_halves_rounds_to_even)
{
    uint16_t half;
    struct hsdp_tensor view = halves_view(&half, HSDP_DTYPE_BFLOAT);

    convert_store(&view, 0, &wide[_i], 1);
    ck_assert_uint_eq(half, as_bf16[_i]);
    view = halves_view(&half, HSDP_DTYPE_FLOAT);
    convert_store(&view, 0, &wide[_i], 1);
    ck_assert_uint_eq(half, as_fp16[_i]);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpt_report");
    TCase *report = tcase_create("report"), *numbers = tcase_create("numbers");

    tcase_add_test(report, report_line_any_step_has_the_usual_form);
    tcase_add_loop_test(report, report_line_any_speed_is_grouped_by_thousands, 0, N_OF(speeds));
    tcase_add_test(report, report_json_full_step_has_every_key);
    tcase_add_test(report, report_json_loss_reads_back_exactly);
    tcase_add_test(report, report_json_not_finite_is_null);
    tcase_add_test(report, report_json_last_step_has_the_digest);
    tcase_add_test(report, digest_add_known_bytes_gives_the_known_number);
    tcase_add_test(report, digest_add_other_order_or_sign_gives_another_number);
    tcase_add_test(report, report_json_full_device_is_an_error);
    tcase_add_test(report, report_bar_half_way_is_half_full);
    tcase_add_test(numbers, laps_end_each_part_keeps_its_own_time);
    tcase_add_test(numbers, laps_begin_next_step_starts_from_nothing);
    tcase_add_test(numbers, schedule_rate_warm_up_then_cosine);
    tcase_add_test(numbers, schedule_rate_without_warm_up_starts_near_the_peak);
    tcase_add_loop_test(numbers, convert_store_any_half_comes_back, 0, 2);
    tcase_add_loop_test(numbers, convert_store_between_halves_rounds_to_even, 0, N_OF(wide));
    suite_add_tcase(suite, report);
    suite_add_tcase(suite, numbers);
    return suite;
}
