/* SPDX-License-Identifier: Apache-2.0 */
/* The device code in the plugin: every kernel for every device, or a text that says there is none.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "device/gpu_image.h"
#include "device/gpu_kernels.h"
#include "suite.h"

#define NAME(NUMBER, name) #name,
static const char *const names[] = {GPU_KERNELS(NAME)};

enum { FATBIN_MAGIC = 0xba55ed50 };

static uint32_t count(const unsigned char *bytes, uint64_t n_bytes, const char *text, size_t length)
{
    uint32_t n = 0;

    for (uint64_t i = 0; i + length <= n_bytes; i++) {
        n += bytes[i] == (unsigned char)text[0] && memcmp(bytes + i, text, length) == 0;
    }
    return n;
}

static uint32_t count_archs(const char *prefix)
{
    return count((const unsigned char *)gpu_image_archs, strlen(gpu_image_archs), prefix,
                 strlen(prefix));
}

START_TEST(image_without_code_says_so)
{
    if (gpu_image_has_code) {
        return;
    }
    ck_assert_str_eq((const char *)gpu_image, "no device code");
    ck_assert_uint_eq(gpu_image_bytes, sizeof("no device code"));
    ck_assert_int_eq(gpu_image_min_driver, 0);
    ck_assert_str_eq(gpu_image_archs, "nothing");
}
END_TEST

START_TEST(image_begins_as_drivers_expect)
{
    uint32_t magic;

    if (!gpu_image_has_code) {
        return;
    }
    memcpy(&magic, gpu_image, sizeof(magic));
    ck_assert_uint_eq(magic, FATBIN_MAGIC);
    ck_assert_uint_eq((uintptr_t)gpu_image % 64, 0);
    ck_assert_int_ge(gpu_image_min_driver, 12000);
    ck_assert_uint_ge(count_archs("sm_"), 1);
    ck_assert_uint_ge(count_archs("ptx_"), 1);
}
END_TEST

/* Binaries have a symbol for each kernel, PTX an entry. */
START_TEST(image_has_every_kernel_for_every_device)
{
    char text[64];
    int length;

    if (!gpu_image_has_code) {
        return;
    }
    for (uint32_t i = 0; i < GPU_N_KERNELS; i++) {
        length = snprintf(text, sizeof(text), "%chsdp_%s", '\0', names[i]);
        ck_assert_uint_eq(count(gpu_image, gpu_image_bytes, text, (size_t)length + 1),
                          count_archs("sm_"));
        length = snprintf(text, sizeof(text), ".entry hsdp_%s(", names[i]);
        ck_assert_uint_eq(count(gpu_image, gpu_image_bytes, text, (size_t)length),
                          count_archs("ptx_"));
    }
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpu_image");
    TCase *tcase = tcase_create("core");

    tcase_add_test(tcase, image_without_code_says_so);
    tcase_add_test(tcase, image_begins_as_drivers_expect);
    tcase_add_test(tcase, image_has_every_kernel_for_every_device);
    suite_add_tcase(suite, tcase);
    return suite;
}
