/* SPDX-License-Identifier: Apache-2.0 */
/* The double of the CUDA driver: copies, fills, kernels, and faults that are switched on. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/gpu_kernels.h"
#include "double_fixture.h"
#include "suite.h"

enum { N_ELEMS = 1000, N_BYTES = N_ELEMS * 4 };

static cu_address address_of(const void *host)
{
    return (cu_address)(uintptr_t)host;
}

static void wait_until(atomic_uint *number, uint32_t target)
{
    while (atomic_load(number) < target) {
        usleep(100);
    }
}

/* ------------------------------------------------------------------------- copies and fills */

static void bytes_number(unsigned char *bytes, unsigned char seed)
{
    for (int i = 0; i < N_BYTES; i++) {
        bytes[i] = (unsigned char)(seed + 7 * i);
    }
}

START_TEST(copies_go_between_any_two_kinds_of_memory)
{
    unsigned char in[N_BYTES];
    unsigned char out[N_BYTES];
    cu_address first;
    cu_address second;
    unsigned char *pinned;
    cu_stream stream;

    double_start();
    stream = stream_make();
    first = device_memory(N_BYTES);
    second = device_memory(N_BYTES);
    pinned = pinned_memory(N_BYTES);
    bytes_number(in, 3);
    DRIVER(copy(first, address_of(in), N_BYTES, stream));
    DRIVER(copy(second + 100, first + 100, N_BYTES - 200, stream));
    DRIVER(fill(second, 9, 100, stream));
    DRIVER(copy(address_of(pinned), second, N_BYTES, stream));
    DRIVER(copy(address_of(out), address_of(pinned), N_BYTES, stream));
    ck_assert_mem_eq(out + 100, in + 100, N_BYTES - 200);
    ck_assert_uint_eq(out[99], 9);
    ck_assert_uint_eq(out[N_BYTES - 1], 0xff);
    stream_finish(stream);
    ck_assert_mem_eq(pinned, out, N_BYTES);
}
END_TEST

START_TEST(copy_of_pageable_memory_reads_it_before_it_returns)
{
    struct gate gate = {false, 0, 0, 0};
    unsigned char in[N_BYTES];
    unsigned char out[N_BYTES];
    unsigned char expected[N_BYTES];
    cu_address memory;
    cu_stream stream;

    double_start();
    stream = stream_make();
    memory = device_memory(N_BYTES);
    bytes_number(in, 5);
    bytes_number(expected, 5);
    gate_enqueue(&gate, stream, NULL, 0);
    DRIVER(copy(memory, address_of(in), N_BYTES, stream));
    memset(in, 0, N_BYTES);
    gate_open(&gate);
    DRIVER(copy(address_of(out), memory, N_BYTES, stream));
    ck_assert_mem_eq(out, expected, N_BYTES);
}
END_TEST

START_TEST(copy_of_pinned_memory_reads_it_later)
{
    struct gate gate = {false, 0, 0, 0};
    unsigned char out[N_BYTES];
    unsigned char *pinned;
    cu_address memory;
    cu_stream stream;

    double_start();
    stream = stream_make();
    memory = device_memory(N_BYTES);
    pinned = pinned_memory(N_BYTES);
    memset(pinned, 1, N_BYTES);
    gate_enqueue(&gate, stream, NULL, 0);
    DRIVER(copy(memory, address_of(pinned), N_BYTES, stream));
    memset(pinned, 2, N_BYTES);
    gate_open(&gate);
    DRIVER(copy(address_of(out), memory, N_BYTES, stream));
    ck_assert_uint_eq(out[17], 2);
}
END_TEST

START_TEST(copies_and_fills_refuse_what_cannot_be)
{
    unsigned char host[8];
    cu_address memory;

    double_start();
    memory = device_memory(8);
    ck_assert_int_eq(cuda.copy(memory, 0, 8, NULL), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.copy(0, memory, 8, NULL), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.fill(address_of(host), 0, 8, NULL), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.fill(memory, 0, 8, (cu_stream)77), CU_ERROR_INVALID_HANDLE);
    DRIVER(copy(0, 0, 0, NULL));
    DRIVER(fill(memory, 0, 0, NULL));
}
END_TEST

/* ----------------------------------------------------------------------------------- kernels */

static cu_function kernel_find(const char *symbol)
{
    cu_function function;
    cu_module module;

    DRIVER(module_load(&module, "any image"));
    DRIVER(module_function(&function, module, symbol));
    return function;
}

static cu_result kernel_launch(cu_function function, uint32_t n_blocks, uint32_t n_threads,
                               cu_stream stream, void *args)
{
    return cuda.launch(function, n_blocks, 1, 1, n_threads, 1, 1, 0, stream, &args, NULL);
}

static struct gpu_divide_args divide_args(cu_address memory)
{
    return (struct gpu_divide_args){(float *)(uintptr_t)memory, N_ELEMS, 4.0f, 0};
}

START_TEST(kernel_reads_its_arguments_at_launch)
{
    struct gate gate = {false, 0, 0, 0};
    float values[N_ELEMS];
    struct gpu_divide_args args;
    cu_function function;
    cu_address memory;
    cu_stream stream;

    double_start();
    stream = stream_make();
    function = kernel_find("hsdp_divide");
    memory = device_memory(N_BYTES);
    for (int i = 0; i < N_ELEMS; i++) {
        values[i] = (float)i;
    }
    DRIVER(copy(memory, address_of(values), N_BYTES, stream));
    args = divide_args(memory);
    gate_enqueue(&gate, stream, NULL, 0);
    ck_assert_int_eq(kernel_launch(function, 3, 64, stream, &args), CU_OK);
    memset(&args, 0, sizeof(args));
    gate_open(&gate);
    DRIVER(copy(address_of(values), memory, N_BYTES, stream));
    for (int i = 0; i < N_ELEMS; i++) {
        ck_assert(values[i] == (float)i / 4);
    }
}
END_TEST

START_TEST(launches_beyond_the_limits_are_refused)
{
    struct gpu_divide_args args;
    cu_function function;
    void *params = &args;

    double_start();
    function = kernel_find("hsdp_divide");
    args = divide_args(device_memory(N_BYTES));
    ck_assert_int_eq(kernel_launch(function, 0, 64, NULL, &args), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(kernel_launch(function, 0x80000000u, 64, NULL, &args), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(kernel_launch(function, 1, 0, NULL, &args), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(kernel_launch(function, 1, 1025, NULL, &args), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(kernel_launch(function, 1, 64, NULL, NULL), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(kernel_launch(function, 1, 64, (cu_stream)77, &args), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(kernel_launch(NULL, 1, 64, NULL, &args), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.launch(function, 1, 2, 1, 64, 1, 1, 0, NULL, &params, NULL),
                     CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.launch(function, 1, 1, 1, 64, 1, 1, 1u << 20, NULL, &params, NULL),
                     CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.launch(function, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, &params),
                     CU_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(modules_find_kernels_by_name)
{
    struct gpu_divide_args args;
    cu_function function;
    cu_function again;
    cu_module module;

    double_start();
    args = divide_args(device_memory(N_BYTES));
    ck_assert_int_eq(cuda.module_load(&module, NULL), CU_ERROR_INVALID_VALUE);
    DRIVER(module_load(&module, "any image"));
    DRIVER(module_function(&function, module, "hsdp_divide"));
    DRIVER(module_function(&again, module, "hsdp_divide"));
    ck_assert_ptr_eq(function, again);
    ck_assert_int_eq(cuda.module_function(&again, module, "hsdp_none"), CU_ERROR_NOT_FOUND);
    DRIVER(module_unload(module));
    ck_assert_int_eq(cuda.module_unload(module), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.module_function(&again, module, "hsdp_divide"), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(kernel_launch(function, 1, 64, NULL, &args), CU_ERROR_INVALID_HANDLE);
}
END_TEST

static void kernel_beyond_its_memory(void)
{
    struct gpu_divide_args args;

    double_start();
    args = divide_args(device_memory(N_BYTES - 4));
    kernel_launch(kernel_find("hsdp_divide"), 1, 64, NULL, &args);
}

START_TEST(kernel_that_misses_memory_ends_the_process)
{
    double_check_dies(kernel_beyond_its_memory, "hsdp_divide writes 4000 bytes at");
}
END_TEST

/* ------------------------------------------------------------------------------------ faults */

START_TEST(kernel_that_fails_ends_its_context)
{
    struct gpu_divide_args args;
    cu_function function;
    cu_address memory;
    cu_context context;
    cu_stream stream;
    cu_event event;

    setenv("HSDP_DOUBLE_FAULTS", "launch_fails=2", 1);
    double_start();
    stream = stream_make();
    event = event_make();
    function = kernel_find("hsdp_divide");
    memory = device_memory(N_BYTES);
    args = divide_args(memory);
    ck_assert_int_eq(kernel_launch(function, 1, 64, stream, &args), CU_OK);
    stream_finish(stream);
    ck_assert_int_eq(kernel_launch(function, 1, 64, stream, &args), CU_OK); /* it comes later */
    while (cuda.stream_query(stream) == CU_ERROR_NOT_READY) {
        usleep(100);
    }
    ck_assert_int_eq(cuda.stream_query(stream), CU_ERROR_LAUNCH_FAILED);
    ck_assert_int_eq(cuda.event_query(event), CU_ERROR_LAUNCH_FAILED);
    ck_assert_int_eq(cuda.fill(memory, 0, 8, stream), CU_ERROR_LAUNCH_FAILED);
    ck_assert_int_eq(cuda.memory_free(memory), CU_ERROR_LAUNCH_FAILED);
    ck_assert_int_eq(kernel_launch(function, 1, 64, stream, &args), CU_ERROR_LAUNCH_FAILED);
    DRIVER(context_current(&context));
    DRIVER(primary_context_release(0));
    ck_assert_int_eq(cuda.primary_context_retain(&context, 0), CU_ERROR_LAUNCH_FAILED);
}
END_TEST

START_TEST(work_behind_a_kernel_that_fails_is_discarded)
{
    struct gate first = {false, 0, 0, 0};
    struct gate behind = {true, 0, 0, 0};
    struct gpu_divide_args args;
    cu_function function;
    cu_stream stream;

    setenv("HSDP_DOUBLE_FAULTS", "launch_fails=1", 1);
    double_start();
    stream = stream_make();
    function = kernel_find("hsdp_divide");
    args = divide_args(device_memory(N_BYTES));
    gate_enqueue(&first, stream, NULL, 0);
    ck_assert_int_eq(kernel_launch(function, 1, 64, stream, &args), CU_OK);
    gate_enqueue(&behind, stream, NULL, 0);
    gate_open(&first);
    wait_until(&behind.n_discarded, 1);
    ck_assert_uint_eq(behind.n_passed, 0);
}
END_TEST

START_TEST(driver_is_as_old_as_is_asked)
{
    int32_t version;

    double_load();
    setenv("HSDP_DOUBLE_FAULTS", "old_driver=12040", 1);
    DRIVER(driver_version(&version));
    ck_assert_int_eq(version, 12040);
}
END_TEST

START_TEST(faults_are_of_a_rank_where_they_name_one)
{
    int64_t number;

    double_load();
    setenv("HSDP_DOUBLE_FAULTS", "a,b=5,c@3,d@3=7,e@0=1,e@3=2", 1);
    setenv("RANK", "3", 1);
    ck_assert(doubled.fault("a", &number) && number == 1);
    ck_assert(doubled.fault("b", &number) && number == 5);
    ck_assert(doubled.fault("c", NULL));
    ck_assert(doubled.fault("d", &number) && number == 7);
    ck_assert(doubled.fault("e", &number) && number == 2);
    ck_assert(!doubled.fault("f", &number) && !doubled.fault("", &number));
    setenv("HSDP_DOUBLE_RANK", "33", 1);
    ck_assert(!doubled.fault("c", &number) && !doubled.fault("d", &number));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("double_work");
    TCase *copies = tcase_create("copies");
    TCase *kernels = tcase_create("kernels");
    TCase *faults = tcase_create("faults");

    tcase_set_timeout(copies, 60);
    tcase_add_test(copies, copies_go_between_any_two_kinds_of_memory);
    tcase_add_test(copies, copy_of_pageable_memory_reads_it_before_it_returns);
    tcase_add_test(copies, copy_of_pinned_memory_reads_it_later);
    tcase_add_test(copies, copies_and_fills_refuse_what_cannot_be);
    suite_add_tcase(suite, copies);
    tcase_set_timeout(kernels, 60);
    tcase_add_test(kernels, kernel_reads_its_arguments_at_launch);
    tcase_add_test(kernels, launches_beyond_the_limits_are_refused);
    tcase_add_test(kernels, modules_find_kernels_by_name);
    tcase_add_test(kernels, kernel_that_misses_memory_ends_the_process);
    suite_add_tcase(suite, kernels);
    tcase_set_timeout(faults, 60);
    tcase_add_test(faults, kernel_that_fails_ends_its_context);
    tcase_add_test(faults, work_behind_a_kernel_that_fails_is_discarded);
    tcase_add_test(faults, driver_is_as_old_as_is_asked);
    tcase_add_test(faults, faults_are_of_a_rank_where_they_name_one);
    suite_add_tcase(suite, faults);
    return suite;
}
