/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions against what the formats mean: sign, exponent and fraction taken apart with ldexp. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "device/cast.h"
#include "device/half.h"
#include "kernel_values.h"
#include "suite.h"

struct format {
    enum dtype dtype;
    int exponent_bits;
    int fraction_bits;
    float (*widen)(uint16_t half);
    uint16_t (*narrow)(float value);
};

static const struct format formats[] = {
    {DTYPE_BF16, 8, 7, bf16_to_fp32, bf16_from_fp32},
    {DTYPE_FP16, 5, 10, fp16_to_fp32, fp16_from_fp32},
};

enum { N_FORMATS = 2, MAX_ELEMS = 1030, GUARD = 0x5a5a };

static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 511, 512, 513, 1025};

enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static uint32_t format_infinity(const struct format *format)
{
    return ((1u << format->exponent_bits) - 1) << format->fraction_bits;
}

static int format_is_nan(const struct format *format, uint32_t half)
{
    return (half & 0x7fff) > format_infinity(format);
}

/* The number that a pattern below 0x8000 stands for; infinity's is the next power of two. */
static double format_number(const struct format *format, uint32_t half)
{
    int bias = (1 << (format->exponent_bits - 1)) - 1;
    int exponent = (int)(half >> format->fraction_bits);
    int fraction = (int)(half & ((1u << format->fraction_bits) - 1));

    if (exponent == 0) {
        return ldexp(fraction, 1 - bias - format->fraction_bits);
    }
    return ldexp(fraction + (1 << format->fraction_bits), exponent - bias - format->fraction_bits);
}

/* The nearest pattern to a finite value, by search; of two, the even one. */
static uint32_t format_nearest(const struct format *format, float value)
{
    double magnitude = fabs((double)value);
    uint32_t low = 0;
    uint32_t high = format_infinity(format);
    double middle;

    while (high - low > 1) {
        uint32_t half = (low + high) / 2;

        if (format_number(format, half) <= magnitude) {
            low = half;
        } else {
            high = half;
        }
    }
    middle = (format_number(format, low) + format_number(format, high)) / 2;
    if (magnitude > middle || (magnitude == middle && (low & 1) != 0)) {
        low = high;
    }
    return low | (signbit(value) ? 0x8000 : 0);
}

static int widened_is_right(const struct format *format, uint32_t half)
{
    float value = format->widen((uint16_t)half);

    if ((signbit(value) != 0) != (half >= 0x8000)) {
        return 0;
    }
    if (format_is_nan(format, half)) {
        return isnan(value);
    }
    if ((half & 0x7fff) == format_infinity(format)) {
        return isinf(value);
    }
    return fabs((double)value) == format_number(format, half & 0x7fff);
}

START_TEST(widen_every_pattern_is_its_number)
{
    for (uint32_t half = 0; half <= 0xffff; half++) {
        if (!widened_is_right(&formats[_i], half)) {
            ck_abort_msg("pattern 0x%04x became %a", half,
                         (double)formats[_i].widen((uint16_t)half));
        }
    }
}
END_TEST

START_TEST(narrow_of_widened_is_the_same_pattern)
{
    const struct format *format = &formats[_i];
    uint32_t quiet = 1u << (format->fraction_bits - 1);

    for (uint32_t half = 0; half <= 0xffff; half++) {
        uint32_t expected = format_is_nan(format, half) ? half | quiet : half;

        if (format->narrow(format->widen((uint16_t)half)) != expected) {
            ck_abort_msg("pattern 0x%04x", half);
        }
    }
}
END_TEST

/* Rounding is monotonic, so where it changes says all: halfway, and one fp32 to each side of it. */
static int neighbours_are_right(const struct format *format, uint32_t low)
{
    double sum = format_number(format, low) + format_number(format, low + 1);
    float middle = (float)(sum / 2);

    return (double)middle == sum / 2 && format->narrow(middle) == low + (low & 1) &&
           format->narrow(nextafterf(middle, 0.0f)) == low &&
           format->narrow(nextafterf(middle, INFINITY)) == low + 1 &&
           format->narrow(-middle) == (0x8000 | (low + (low & 1))) &&
           format->narrow(nextafterf(-middle, 0.0f)) == (0x8000 | low) &&
           format->narrow(nextafterf(-middle, -INFINITY)) == (0x8000 | (low + 1));
}

START_TEST(narrow_between_any_neighbours_is_the_nearest)
{
    const struct format *format = &formats[_i];

    for (uint32_t low = 0; low < format_infinity(format); low++) {
        if (!neighbours_are_right(format, low)) {
            ck_abort_msg("between patterns 0x%04x and 0x%04x", low, low + 1);
        }
    }
}
END_TEST

START_TEST(narrow_of_any_finite_is_the_nearest)
{
    const struct format *format = &formats[_i];
    uint64_t state = 1;

    for (int i = 0; i < 40000; i++) {
        /* half of them about where fp16 lies */
        float value = values_float(&state, i % 2 == 0 ? 0 : 100, i % 2 == 0 ? 255 : 45);

        if (format->narrow(value) != format_nearest(format, value)) {
            ck_abort_msg("%a became 0x%04x", (double)value, format->narrow(value));
        }
    }
}
END_TEST

START_TEST(narrow_of_any_nan_is_a_quiet_nan_of_its_sign)
{
    const struct format *format = &formats[_i];
    uint32_t quiet = format_infinity(format) | 1u << (format->fraction_bits - 1);

    for (uint32_t bit = 0; bit < 23; bit++) {
        uint32_t nan = 0x7f800000 | 1u << bit;

        ck_assert_uint_eq(format->narrow(fp32_from_bits(nan)) & (quiet | 0x8000), quiet);
        ck_assert_uint_eq(format->narrow(fp32_from_bits(0x80000000 | nan)) & (quiet | 0x8000),
                          quiet | 0x8000);
    }
    ck_assert_uint_eq(format->narrow(fp32_from_bits(0x7fffffff)) & quiet, quiet);
}
END_TEST

START_TEST(narrow_at_the_limits_of_fp16_is_known)
{
    ck_assert_uint_eq(fp16_from_fp32(65504.0f), 0x7bff);
    ck_assert_uint_eq(fp16_from_fp32(65519.996f), 0x7bff);
    ck_assert_uint_eq(fp16_from_fp32(65520.0f), 0x7c00);
    ck_assert_uint_eq(fp16_from_fp32(-INFINITY), 0xfc00);
    ck_assert_uint_eq(fp16_from_fp32(0x1p-24f), 0x0001);
    ck_assert_uint_eq(fp16_from_fp32(0x1p-25f), 0x0000);
    ck_assert_uint_eq(fp16_from_fp32(-0x1.000002p-25f), 0x8001);
    ck_assert_uint_eq(fp16_from_fp32(0x1.ffep-15f), 0x0400); /* carries into the normals */
    ck_assert_uint_eq(fp16_from_fp32(0x1p-149f), 0x0000);
}
END_TEST

START_TEST(narrow_at_the_limits_of_bf16_is_known)
{
    ck_assert_uint_eq(bf16_from_fp32(257.0f), 0x4380); /* 256: of two, the even one */
    ck_assert_uint_eq(bf16_from_fp32(259.0f), 0x4382); /* 260 */
    ck_assert_uint_eq(bf16_from_fp32(-0.0f), 0x8000);
    ck_assert_uint_eq(bf16_from_fp32(0x1.fep127f), 0x7f7f);
    ck_assert_uint_eq(bf16_from_fp32(0x1.ffp127f), 0x7f80);
    ck_assert_uint_eq(bf16_from_fp32(0x1p-133f), 0x0001);
    ck_assert_uint_eq(bf16_from_fp32(0x1p-134f), 0x0000);
    ck_assert_uint_eq(bf16_from_fp32(0x1.8p-134f), 0x0001);
}
END_TEST

START_TEST(cast_to_fp32_of_every_pattern_is_widen)
{
    static uint16_t halves[0x10000];
    static float values[0x10000];
    const struct format *format = &formats[_i];

    for (uint32_t half = 0; half <= 0xffff; half++) {
        halves[half] = (uint16_t)half;
    }
    cast_to_fp32(values, halves, format->dtype, 0x10000);
    for (uint32_t half = 0; half <= 0xffff; half++) {
        if (fp32_bits(values[half]) != fp32_bits(format->widen((uint16_t)half))) {
            ck_abort_msg("pattern 0x%04x", half);
        }
    }
}
END_TEST

START_TEST(cast_of_any_length_stays_within_it)
{
    const struct format *format = &formats[_i / N_SIZES];
    size_t n_elems = sizes[_i % N_SIZES];
    uint64_t state = 2;
    float values[MAX_ELEMS];
    uint16_t halves[MAX_ELEMS];

    for (size_t i = 0; i < MAX_ELEMS; i++) {
        values[i] = values_float(&state, 0, 255);
        halves[i] = GUARD;
    }
    cast_from_fp32(halves, format->dtype, values, n_elems);
    for (size_t i = 0; i < MAX_ELEMS; i++) {
        ck_assert_uint_eq(halves[i], i < n_elems ? format->narrow(values[i]) : GUARD);
    }
    memset(values, 0, sizeof(values));
    cast_to_fp32(values, halves, format->dtype, n_elems);
    for (size_t i = 0; i < MAX_ELEMS; i++) {
        ck_assert_float_eq(values[i], i < n_elems ? format->widen(halves[i]) : 0.0f);
    }
}
END_TEST

START_TEST(cast_round_is_narrow_then_widen)
{
    const struct format *format = &formats[_i / N_SIZES];
    size_t n_elems = sizes[_i % N_SIZES];
    uint64_t state = 3;
    float values[MAX_ELEMS];
    float rounded[MAX_ELEMS];

    for (size_t i = 0; i < MAX_ELEMS; i++) {
        values[i] = values_float(&state, 90, 60);
    }
    memcpy(rounded, values, sizeof(values));
    cast_round(rounded, format->dtype, n_elems);
    for (size_t i = 0; i < MAX_ELEMS; i++) {
        float expected = i < n_elems ? format->widen(format->narrow(values[i])) : values[i];

        ck_assert_uint_eq(fp32_bits(rounded[i]), fp32_bits(expected));
    }
}
END_TEST

START_TEST(cast_of_fp32_keeps_every_bit)
{
    uint32_t bits[] = {0x00000001, 0x80000000, 0x7f7fffff, 0xff800000, 0x7fc12345, 0x3f800001};
    float values[6];
    float copy[6];

    memcpy(values, bits, sizeof(bits));
    cast_round(values, DTYPE_FP32, 6);
    cast_to_fp32(copy, values, DTYPE_FP32, 6);
    ck_assert_mem_eq(copy, bits, sizeof(bits));
    memset(copy, 0, sizeof(copy));
    cast_from_fp32(copy, DTYPE_FP32, values, 6);
    ck_assert_mem_eq(copy, bits, sizeof(bits));
    cast_to_fp32(values, values, DTYPE_FP32, 6);
    ck_assert_mem_eq(values, bits, sizeof(bits));
}
END_TEST

/* Every pair of types, against the way through fp32. */
START_TEST(cast_convert_of_every_pair_rounds_once)
{
    static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    enum dtype src = dtypes[_i / 3];
    enum dtype dst = dtypes[_i % 3];
    uint64_t state = (uint64_t)_i;
    uint32_t values[MAX_ELEMS];
    uint32_t expected[MAX_ELEMS];
    uint32_t found[MAX_ELEMS];
    float wide[MAX_ELEMS];

    for (size_t i = 0; i < N_SIZES; i++) {
        for (size_t k = 0; k < MAX_ELEMS; k++) {
            wide[k] = values_float(&state, 100, 50);
        }
        cast_from_fp32(values, src, wide, MAX_ELEMS);
        memset(expected, 0xa5, sizeof(expected));
        memset(found, 0xa5, sizeof(found));
        cast_to_fp32(wide, values, src, sizes[i]);
        cast_from_fp32(expected, dst, wide, sizes[i]);
        cast_convert(found, dst, values, src, sizes[i]);
        ck_assert_mem_eq(found, expected, sizeof(found));
    }
}
END_TEST

START_TEST(cast_convert_of_one_type_copies_every_pattern)
{
    static uint16_t halves[65536];
    static uint16_t found[65536];

    for (uint32_t half = 0; half < 65536; half++) {
        halves[half] = (uint16_t)half;
    }
    cast_convert(found, DTYPE_BF16, halves, DTYPE_BF16, 65536);
    ck_assert_mem_eq(found, halves, sizeof(found));
    cast_convert(found, DTYPE_BF16, found, DTYPE_BF16, 65536); /* onto itself */
    ck_assert_mem_eq(found, halves, sizeof(found));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("cast");
    TCase *half = tcase_create("half");
    TCase *cast = tcase_create("cast");

    tcase_add_loop_test(half, widen_every_pattern_is_its_number, 0, N_FORMATS);
    tcase_add_loop_test(half, narrow_of_widened_is_the_same_pattern, 0, N_FORMATS);
    tcase_add_loop_test(half, narrow_between_any_neighbours_is_the_nearest, 0, N_FORMATS);
    tcase_add_loop_test(half, narrow_of_any_finite_is_the_nearest, 0, N_FORMATS);
    tcase_add_loop_test(half, narrow_of_any_nan_is_a_quiet_nan_of_its_sign, 0, N_FORMATS);
    tcase_add_test(half, narrow_at_the_limits_of_fp16_is_known);
    tcase_add_test(half, narrow_at_the_limits_of_bf16_is_known);
    suite_add_tcase(suite, half);
    tcase_add_loop_test(cast, cast_to_fp32_of_every_pattern_is_widen, 0, N_FORMATS);
    tcase_add_loop_test(cast, cast_of_any_length_stays_within_it, 0, N_FORMATS * N_SIZES);
    tcase_add_loop_test(cast, cast_round_is_narrow_then_widen, 0, N_FORMATS * N_SIZES);
    tcase_add_test(cast, cast_of_fp32_keeps_every_bit);
    tcase_add_loop_test(cast, cast_convert_of_every_pair_rounds_once, 0, 9);
    tcase_add_test(cast, cast_convert_of_one_type_copies_every_pattern);
    suite_add_tcase(suite, cast);
    return suite;
}
