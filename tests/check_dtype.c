/* SPDX-License-Identifier: Apache-2.0 */
/* The element types: sizes, and names that read back. */
#include <check.h>

#include "base/dtype.h"
#include "suite.h"

START_TEST(dtype_bytes_are_those_of_the_type)
{
    ck_assert_uint_eq(dtype_bytes(DTYPE_FP32), 4);
    ck_assert_uint_eq(dtype_bytes(DTYPE_BF16), 2);
    ck_assert_uint_eq(dtype_bytes(DTYPE_FP16), 2);
}
END_TEST

START_TEST(dtype_parse_of_each_name_is_that_type)
{
    enum dtype parsed = DTYPE_FP32;

    ck_assert_str_eq(dtype_name(DTYPE_FP32), "fp32");
    ck_assert(dtype_parse("bf16", &parsed));
    ck_assert_int_eq(parsed, DTYPE_BF16);
    ck_assert(dtype_parse(dtype_name(DTYPE_FP16), &parsed));
    ck_assert_int_eq(parsed, DTYPE_FP16);
    ck_assert(dtype_parse(dtype_name(DTYPE_FP32), &parsed));
    ck_assert_int_eq(parsed, DTYPE_FP32);
}
END_TEST

START_TEST(dtype_parse_of_other_text_is_refused)
{
    static const char *const texts[] = {"", "fp", "fp320", "FP32", " bf16", "bf16 ", "float32"};
    enum dtype parsed = DTYPE_BF16;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        ck_assert_msg(!dtype_parse(texts[i], &parsed), "'%s' was taken", texts[i]);
        ck_assert_int_eq(parsed, DTYPE_BF16);
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("dtype");
    TCase *tcase = tcase_create("dtype");

    tcase_add_test(tcase, dtype_bytes_are_those_of_the_type);
    tcase_add_test(tcase, dtype_parse_of_each_name_is_that_type);
    tcase_add_test(tcase, dtype_parse_of_other_text_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
