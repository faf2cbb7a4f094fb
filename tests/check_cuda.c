/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the CUDA driver: what is refused, and in which words; opening a device. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda.h"
#include "device/gpu.h"
#include "device/gpu_image.h"
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

/* --------------------------------------------------------------- what the driver may answer */

static const struct {
    const char *answer;
    int32_t status;
    const char *sentence;
} openings[] = {
    {"cuDeviceGet=101", HSDP_ERR_UNAVAILABLE,
     "cuDeviceGetAttribute: error 101 (finding the device)"},
    {"cuDevicePrimaryCtxRetain=2", HSDP_ERR_NO_MEMORY,
     "cuDevicePrimaryCtxRetain: error 2 (the context of device 0)"},
    {"cuDevicePrimaryCtxRetain=46", HSDP_ERR_UNAVAILABLE,
     "cuDevicePrimaryCtxRetain: error 46 (the context of device 0)"},
    {"cuCtxPushCurrent_v2=201", HSDP_ERR_DEVICE,
     "cuCtxPushCurrent: error 201 (the device's context)"},
    {"cuStreamCreateWithPriority=2", HSDP_ERR_DEVICE,
     "cuStreamCreateWithPriority: error 2 (streams of the job)"},
};

START_TEST(gpu_open_that_the_driver_refuses_names_call_and_answer)
{
    const char *library = stand_in_build("libcuda.so.1", "-DDEVICES=1");
    struct gpu gpu;

    setenv("HSDP_TEST_ANSWER", openings[_i].answer, 1);
    ck_assert_int_eq(gpu_open(library, 0, NULL, &gpu, &err), openings[_i].status);
    ck_assert_str_eq(err.message, openings[_i].sentence);
    ck_assert_ptr_null(gpu.cuda.init); /* nothing is left to close */
}
END_TEST

static const struct {
    const char *answer;
    int32_t status;
    const char *call;
} codes[] = {
    {"cuModuleLoadData=200", HSDP_ERR_UNAVAILABLE, "cuModuleLoadData: error 200"},
    {"cuModuleLoadData=209", HSDP_ERR_UNAVAILABLE, "cuModuleLoadData: error 209"},
    {"cuModuleLoadData=222", HSDP_ERR_UNAVAILABLE, "cuModuleLoadData: error 222"},
    {"cuModuleLoadData=2", HSDP_ERR_NO_MEMORY, "cuModuleLoadData: error 2"},
    {"cuModuleLoadData=719", HSDP_ERR_DEVICE, "cuModuleLoadData: error 719"},
    {"cuModuleGetFunction=500", HSDP_ERR_UNAVAILABLE, "hsdp_cast: error 500"},
};

START_TEST(gpu_open_of_a_device_without_code_says_what_there_is)
{
    const char *library = stand_in_build("libcuda.so.1", "-DDEVICES=1 -DARCHITECTURE=75");
    char sentence[512];
    struct gpu gpu;

    setenv("HSDP_TEST_ANSWER", codes[_i].answer, 1);
    if (gpu_image_has_code) {
        snprintf(sentence, sizeof(sentence),
                 "%s (device 0 is sm_75; this build has code for %.80s)", codes[_i].call,
                 gpu_image_archs);
    } else {
        snprintf(sentence, sizeof(sentence),
                 "gpu: this build has no device code: there was no nvcc at configure");
    }
    ck_assert_int_eq(gpu_open(library, 0, NULL, &gpu, &err),
                     gpu_image_has_code ? codes[_i].status : HSDP_ERR_UNAVAILABLE);
    ck_assert_str_eq(err.message, sentence);
}
END_TEST

/* Each call of an open device, by a number. */
static int32_t call_make(struct gpu *gpu, int call)
{
    const struct gpu_add_args args = {.n_elems = 1};
    char byte = 0;
    struct gpu_memory memory;
    cu_event event;
    bool is;

    switch (call) {
    case 0:
        return gpu_event_create(gpu, &event, &err);
    case 1:
        return gpu_event_record(gpu, NULL, NULL, &err);
    case 2:
        return gpu_event_query(gpu, NULL, &err);
    case 3:
        return gpu_stream_wait(gpu, NULL, NULL, &err);
    case 4:
        return gpu_is_capturing(gpu, NULL, &is, &err);
    case 5:
        return gpu_copy(gpu, &byte, &byte, 1, NULL, &err);
    case 6:
        return gpu_fill(gpu, &byte, 0, 1, NULL, &err);
    case 7:
        return gpu_launch(gpu, GPU_ADD, &args, 1, NULL, &err);
    case 8:
        return gpu_alloc(gpu, 8, HSDP_MEMORY_DEVICE, "this test", &memory, &err);
    default:
        return gpu_alloc(gpu, 8, HSDP_MEMORY_PINNED, "this test", &memory, &err);
    }
}

static const struct {
    const char *answer;
    const char *sentence;
} calls[] = {
    {"cuEventCreate=719", "cuEventCreate: error 719 (an event of the job)"},
    {"cuEventRecord=719", "cuEventRecord: error 719 (an event of the job)"},
    {"cuEventQuery=719", "cuEventQuery: error 719 (work of the job)"},
    {"cuStreamWaitEvent=719", "cuStreamWaitEvent: error 719 (an event of the job)"},
    {"cuStreamIsCapturing=719", "cuStreamIsCapturing: error 719 (a stream of the host)"},
    {"cuMemcpyAsync=719", "cuMemcpyAsync: error 719 (1 bytes)"},
    {"cuMemsetD8Async=719", "cuMemsetD8Async: error 719 (1 bytes)"},
    {"cuLaunchKernel=719", "cuLaunchKernel: error 719 (hsdp_add)"},
    {"cuMemAlloc_v2=719", "cuMemAlloc: error 719 (this test)"},
    {"cuMemHostAlloc=719", "cuMemHostAlloc: error 719 (this test)"},
};

START_TEST(gpu_call_that_the_driver_refuses_names_it)
{
    const char *library = stand_in_build("libcuda.so.1", "-DDEVICES=1");
    struct gpu gpu;

    ck_assert_msg(gpu_open(library, 0, NULL, &gpu, &err) == HSDP_OK, "%s", err.message);
    setenv("HSDP_TEST_ANSWER", calls[_i].answer, 1);
    ck_assert_int_eq(call_make(&gpu, _i), HSDP_ERR_DEVICE);
    ck_assert_str_eq(err.message, calls[_i].sentence);
    setenv("HSDP_TEST_ANSWER", "cuCtxPushCurrent_v2=201", 1);
    ck_assert_int_eq(call_make(&gpu, _i), HSDP_ERR_DEVICE);
    ck_assert_str_eq(err.message, "cuCtxPushCurrent: error 201 (the device's context)");
}
END_TEST

START_TEST(gpu_event_query_of_what_goes_on_is_pending)
{
    const char *library = stand_in_build("libcuda.so.1", "-DDEVICES=1");
    struct gpu gpu;

    ck_assert_int_eq(gpu_open(library, 0, NULL, &gpu, &err), HSDP_OK);
    setenv("HSDP_TEST_ANSWER", "cuEventQuery=600", 1);
    ck_assert_int_eq(gpu_event_query(&gpu, NULL, &err), HSDP_PENDING);
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
    tcase_add_loop_test(tcase, gpu_open_that_the_driver_refuses_names_call_and_answer, 0,
                        N_OF(openings));
    tcase_add_loop_test(tcase, gpu_open_of_a_device_without_code_says_what_there_is, 0,
                        N_OF(codes));
    tcase_add_loop_test(tcase, gpu_call_that_the_driver_refuses_names_it, 0, N_OF(calls));
    tcase_add_test(tcase, gpu_event_query_of_what_goes_on_is_pending);
    return suite;
}
