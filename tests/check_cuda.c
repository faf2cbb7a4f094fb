/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the CUDA driver: what is refused, and in which words; opening a device. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda.h"
#include "device/gpu.h"
#include "stand_in.h"
#include "suite.h"

static struct cuda cuda;
static struct hsdp_error err;

/* Loads, expects HSDP_ERR_UNAVAILABLE, and a sentence with the path in it. */
static void refusal_assert(const char *library, const char *before, const char *after)
{
    char sentence[512];

    snprintf(sentence, sizeof(sentence), "%s%s%s", before, library, after);
    ck_assert_int_eq(cuda_load(library, &cuda, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_str_eq(err.message, sentence);
}

START_TEST(cuda_load_driver_is_bound_and_named)
{
    const char *library = stand_in_build("libcuda.so.1", "-DDEVICES=2");

    ck_assert_msg(cuda_load(library, &cuda, &err) == HSDP_OK, "%s", err.message);
    ck_assert_str_eq(cuda.path, library);
    ck_assert_int_eq(cuda.version, 13000);
    ck_assert_ptr_nonnull(cuda.launch);
}
END_TEST

START_TEST(cuda_load_file_that_is_not_there_is_unavailable)
{
    refusal_assert(stand_in_path("libcuda.so.1"), "cuda_library: ",
                   " cannot be loaded: cannot open shared object file: No such "
                   "file or directory");
}
END_TEST

START_TEST(cuda_load_file_of_another_kind_is_unavailable)
{
    static const char text[4096] = "no library";

    refusal_assert(stand_in_write("libcuda.so.1", text, sizeof(text)),
                   "cuda_library: ", " cannot be loaded: invalid ELF header");
}
END_TEST

/* One byte of its header is another machine. */
START_TEST(cuda_load_library_of_another_machine_is_unavailable)
{
    const char *library = stand_in_build("libcuda.so.1", "-DDEVICES=1");
    int fd = open(library, O_WRONLY | O_CLOEXEC);

    ck_assert_int_eq(pwrite(fd, "\x08\x00", 2, 18), 2); /* e_machine: MIPS */
    close(fd);
    ck_assert_int_eq(cuda_load(library, &cuda, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.message, "cannot be loaded: "));
    ck_assert_ptr_nonnull(strstr(err.message, library));
}
END_TEST

START_TEST(cuda_load_library_without_a_function_names_it)
{
    refusal_assert(stand_in_build("libcuda.so.1", "-DDEVICES=1 -DcuLaunchKernel=cuNobodyAsks"),
                   "cuda_library: ", ", driver 13.0 (R580), lacks cuLaunchKernel");
}
END_TEST

START_TEST(cuda_load_library_without_many_names_some)
{
    refusal_assert(stand_in_build("libcuda.so.1", "-DCODE=22809"), "cuda_library: ",
                   ", driver of unknown version, lacks cuInit, "
                   "cuDriverGetVersion, cuGetErrorName and 33 more");
}
END_TEST

START_TEST(cuda_load_driver_without_device_says_so)
{
    ck_assert_int_eq(cuda_load(stand_in_build("libcuda.so.1", "-DDEVICES=-1"), &cuda, &err),
                     HSDP_ERR_UNAVAILABLE);
    ck_assert_str_eq(err.message,
                     "cuInit: CUDA_ERROR_NO_DEVICE (no CUDA device that this process may use)");
}
END_TEST

START_TEST(cuda_load_driver_without_version_is_unavailable)
{
    refusal_assert(stand_in_build("libcuda.so.1", "-DDEVICES=1 -DDRIVER=0"),
                   "cuDriverGetVersion: error 999 (", ")");
}
END_TEST

START_TEST(cuda_check_driver_older_than_the_code_names_both)
{
    cuda.version = 12040;
    strcpy(cuda.path, "/usr/lib/libcuda.so.1");
    ck_assert_int_eq(cuda_check_driver(&cuda, 12040, &err), HSDP_OK);
    ck_assert_int_eq(cuda_check_driver(&cuda, 13000, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_str_eq(err.message, "cuda_library: /usr/lib/libcuda.so.1 serves CUDA 12.4 (R550); "
                                  "the device code of this build needs 13.0 (R580)");
}
END_TEST

static const struct {
    int32_t version;
    const char *text;
} versions[] = {
    {11080, "11.8 (R520)"}, {12000, "12.0 (R525)"}, {12040, "12.4 (R550)"},
    {12090, "12.9 (R575)"}, {13000, "13.0 (R580)"}, {14070, "14.7"},
};

START_TEST(cuda_version_text_has_the_branch_where_it_is_known)
{
    char text[CUDA_VERSION_BYTES];

    cuda_version_text(versions[_i].version, text);
    ck_assert_str_eq(text, versions[_i].text);
}
END_TEST

START_TEST(cuda_check_names_call_result_and_what)
{
    const char *library = stand_in_build("libcuda.so.1", "-DDEVICES=1");

    ck_assert_int_eq(cuda_load(library, &cuda, &err), HSDP_OK);
    ck_assert_int_eq(cuda_check(&cuda, CU_OK, "cuMemcpyAsync", "1 byte", &err), HSDP_OK);
    ck_assert_int_eq(cuda_check(&cuda, 100, "cuMemcpyAsync", "1 byte", &err), HSDP_ERR_DEVICE);
    ck_assert_str_eq(err.message, "cuMemcpyAsync: CUDA_ERROR_NO_DEVICE (1 byte)");
    ck_assert_int_eq(cuda_check(&cuda, 719, "cuMemcpyAsync", "1 byte", &err), HSDP_ERR_DEVICE);
    ck_assert_str_eq(err.message, "cuMemcpyAsync: error 719 (1 byte)");
}
END_TEST

START_TEST(gpu_open_device_that_is_not_there_says_how_many_are)
{
    const char *library = stand_in_build("libcuda.so.1", "-DDEVICES=2");
    struct gpu gpu;

    ck_assert_int_eq(gpu_open(library, 2, NULL, &gpu, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_str_eq(err.message, "gpu: there is no device 2; this process may use 2, from 0");
    ck_assert_ptr_null(gpu.context);
    gpu_close(&gpu);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("cuda");
    TCase *tcase = tcase_create("load");

    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, stand_in_begin, stand_in_end);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, cuda_load_driver_is_bound_and_named);
    tcase_add_test(tcase, cuda_load_file_that_is_not_there_is_unavailable);
    tcase_add_test(tcase, cuda_load_file_of_another_kind_is_unavailable);
    tcase_add_test(tcase, cuda_load_library_of_another_machine_is_unavailable);
    tcase_add_test(tcase, cuda_load_library_without_a_function_names_it);
    tcase_add_test(tcase, cuda_load_library_without_many_names_some);
    tcase_add_test(tcase, cuda_load_driver_without_device_says_so);
    tcase_add_test(tcase, cuda_load_driver_without_version_is_unavailable);
    tcase_add_test(tcase, cuda_check_driver_older_than_the_code_names_both);
    tcase_add_loop_test(tcase, cuda_version_text_has_the_branch_where_it_is_known, 0,
                        N_OF(versions));
    tcase_add_test(tcase, cuda_check_names_call_result_and_what);
    tcase_add_test(tcase, gpu_open_device_that_is_not_there_says_how_many_are);
    return suite;
}
