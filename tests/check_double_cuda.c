/* SPDX-License-Identifier: Apache-2.0 */
/* The double of the CUDA driver: devices, contexts, memory, and what it refuses. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "double_fixture.h"
#include "suite.h"

/* ------------------------------------------------------------------ initialisation, devices */

START_TEST(calls_before_init_say_so)
{
    int32_t number;
    cu_context context;

    double_load();
    ck_assert_int_eq(cuda.device_count(&number), CU_ERROR_NOT_INITIALIZED);
    ck_assert_int_eq(cuda.context_current(&context), CU_ERROR_NOT_INITIALIZED);
    ck_assert_int_eq(cuda.primary_context_retain(&context, 0), CU_ERROR_NOT_INITIALIZED);
    ck_assert_int_eq(cuda.stream_query(NULL), CU_ERROR_NOT_INITIALIZED);
    ck_assert_int_eq(cuda.init(1), CU_ERROR_INVALID_VALUE);
    DRIVER(driver_version(&number));
    ck_assert_int_eq(number, 13000);
}
END_TEST

START_TEST(devices_are_eight_and_differ)
{
    struct cu_uuid uuids[8];
    cu_device device;
    int32_t n_devices;

    double_start();
    DRIVER(device_count(&n_devices));
    ck_assert_int_eq(n_devices, 8);
    for (int32_t i = 0; i < n_devices; i++) {
        DRIVER(device_get(&device, i));
        DRIVER(device_uuid(&uuids[i], device));
        for (int32_t j = 0; j < i; j++) {
            ck_assert_mem_ne(uuids[i].bytes, uuids[j].bytes, 16);
        }
    }
    ck_assert_int_eq(cuda.device_get(&device, 8), CU_ERROR_INVALID_DEVICE);
    ck_assert_int_eq(cuda.device_get(&device, -1), CU_ERROR_INVALID_DEVICE);
    ck_assert_int_eq(cuda.device_uuid(&uuids[0], 8), CU_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(devices_are_as_many_as_the_environment_says)
{
    int32_t n_devices;

    setenv("HSDP_DOUBLE_DEVICES", "2", 1);
    double_start();
    DRIVER(device_count(&n_devices));
    ck_assert_int_eq(n_devices, 2);
}
END_TEST

START_TEST(init_without_devices_says_so)
{
    double_load();
    setenv("HSDP_DOUBLE_DEVICES", "0", 1);
    ck_assert_int_eq(cuda.init(0), CU_ERROR_NO_DEVICE);
    setenv("HSDP_DOUBLE_DEVICES", "1", 1);
    setenv("HSDP_DOUBLE_FAULTS", "no_device", 1);
    ck_assert_int_eq(cuda.init(0), CU_ERROR_NO_DEVICE);
    setenv("HSDP_DOUBLE_FAULTS", "", 1);
    DRIVER(init(0));
}
END_TEST

START_TEST(attributes_are_those_that_are_asked_for)
{
    int32_t value;

    double_start();
    DRIVER(device_attribute(&value, CU_ATTRIBUTE_CAPABILITY_MAJOR, 7));
    ck_assert_int_eq(value, 9);
    DRIVER(device_attribute(&value, CU_ATTRIBUTE_CAPABILITY_MINOR, 7));
    ck_assert_int_eq(value, 0);
    DRIVER(device_attribute(&value, CU_ATTRIBUTE_MULTIPROCESSORS, 7));
    ck_assert_int_gt(value, 0);
    ck_assert_int_eq(cuda.device_attribute(&value, 12345, 7), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.device_attribute(&value, CU_ATTRIBUTE_CAPABILITY_MAJOR, 8),
                     CU_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(errors_have_names)
{
    const char *name;

    double_load();
    DRIVER(error_name(CU_ERROR_LAUNCH_FAILED, &name));
    ck_assert_str_eq(name, "CUDA_ERROR_LAUNCH_FAILED");
    DRIVER(error_name(CU_OK, &name));
    ck_assert_str_eq(name, "CUDA_SUCCESS");
    ck_assert_int_eq(cuda.error_name(12345, &name), CU_ERROR_INVALID_VALUE);
    ck_assert_ptr_null(name);
}
END_TEST

START_TEST(child_of_an_initialised_process_has_no_driver)
{
    cu_event event;
    int status;
    pid_t child;

    double_start();
    child = fork();
    if (child == 0) {
        bool is_refused = cuda.init(0) == CU_ERROR_NOT_INITIALIZED &&
                          cuda.event_create(&event, 0) == CU_ERROR_NOT_INITIALIZED &&
                          cuda.stream_query(NULL) == CU_ERROR_NOT_INITIALIZED;

        _exit(is_refused ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    event_make();
}
END_TEST

/* -------------------------------------------------------------------------------- contexts */

START_TEST(calls_without_a_context_say_so)
{
    cu_context context;
    cu_address address;

    double_start();
    DRIVER(context_pop(&context));
    ck_assert_int_eq(cuda.memory_alloc(&address, 512), CU_ERROR_INVALID_CONTEXT);
    ck_assert_int_eq(cuda.stream_query(NULL), CU_ERROR_INVALID_CONTEXT);
    ck_assert_int_eq(cuda.context_pop(&context), CU_ERROR_INVALID_CONTEXT);
    DRIVER(context_current(&context));
    ck_assert_ptr_null(context);
}
END_TEST

START_TEST(contexts_are_a_stack)
{
    cu_context first = double_start();
    cu_context second;
    cu_context found;

    DRIVER(primary_context_retain(&second, 1));
    ck_assert_ptr_ne(first, second);
    DRIVER(context_push(second));
    DRIVER(context_current(&found));
    ck_assert_ptr_eq(found, second);
    DRIVER(context_pop(&found));
    ck_assert_ptr_eq(found, second);
    DRIVER(context_current(&found));
    ck_assert_ptr_eq(found, first);
}
END_TEST

static void *current_of_thread(void *arg)
{
    cuda.context_current(arg);
    return NULL;
}

START_TEST(contexts_are_current_on_one_thread)
{
    cu_context found = double_start();
    pthread_t thread;

    pthread_create(&thread, NULL, current_of_thread, &found);
    pthread_join(thread, NULL);
    ck_assert_ptr_null(found);
}
END_TEST

START_TEST(context_lives_until_its_last_release)
{
    cu_context context = double_start();
    cu_context again;
    cu_stream stream = stream_make();
    cu_event event = event_make();
    cu_address address = device_memory(512);
    size_t free_bytes;
    size_t total_bytes;

    DRIVER(primary_context_retain(&again, 0));
    ck_assert_ptr_eq(context, again);
    DRIVER(primary_context_release(0));
    DRIVER(stream_query(stream));
    DRIVER(primary_context_release(0));
    ck_assert_int_eq(cuda.primary_context_release(0), CU_ERROR_INVALID_CONTEXT);
    ck_assert_int_eq(cuda.context_push(context), CU_ERROR_INVALID_CONTEXT);
    ck_assert_int_ne(cuda.stream_query(stream), CU_OK);
    DRIVER(primary_context_retain(&again, 0));
    ck_assert_int_eq(cuda.stream_query(stream), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.event_query(event), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.memory_free(address), CU_ERROR_INVALID_VALUE);
    DRIVER(memory_info(&free_bytes, &total_bytes));
    ck_assert_uint_eq(free_bytes, total_bytes);
}
END_TEST

START_TEST(handles_of_another_context_are_refused)
{
    cu_context second;
    cu_stream stream;
    cu_event event;
    cu_context found;

    double_start();
    stream = stream_make();
    event = event_make();
    DRIVER(primary_context_retain(&second, 1));
    DRIVER(context_push(second));
    ck_assert_int_eq(cuda.stream_query(stream), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.event_record(event, NULL), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.event_record(event, stream), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.event_query(event), CU_ERROR_INVALID_HANDLE);
    DRIVER(stream_context(stream, &found));
    ck_assert_ptr_ne(found, second);
    DRIVER(stream_context(NULL, &found));
    ck_assert_ptr_eq(found, second);
    DRIVER(stream_wait_event(NULL, event, 0)); /* devices may wait for each other */
}
END_TEST

START_TEST(handles_are_refused_where_they_are_no_such)
{
    cu_stream stream;
    cu_event event;

    double_start();
    stream = stream_make();
    event = event_make();
    ck_assert_int_eq(cuda.stream_query((cu_stream)event), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.event_query((cu_event)stream), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.event_query((cu_event)&stream), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.event_query(NULL), CU_ERROR_INVALID_HANDLE);
    DRIVER(stream_destroy(stream));
    DRIVER(event_destroy(event));
    ck_assert_int_eq(cuda.stream_destroy(stream), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.event_destroy(event), CU_ERROR_INVALID_HANDLE);
    ck_assert_ptr_ne(event_make(), event);
    ck_assert_int_eq(cuda.event_query(event), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.stream_destroy(NULL), CU_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(cuda.stream_create(&stream, 2, 0), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.event_create(&event, 8), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.event_create(&event, 4), CU_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(capture_mode_is_exchanged)
{
    int32_t mode = CU_CAPTURE_RELAXED;

    double_start();
    DRIVER(capture_mode_exchange(&mode));
    ck_assert_int_eq(mode, 0);
    DRIVER(capture_mode_exchange(&mode));
    ck_assert_int_eq(mode, CU_CAPTURE_RELAXED);
    mode = 3;
    ck_assert_int_eq(cuda.capture_mode_exchange(&mode), CU_ERROR_INVALID_VALUE);
}
END_TEST

/* ---------------------------------------------------------------------------------- memory */

START_TEST(memory_is_finite_and_counted)
{
    size_t free_bytes;
    size_t total_bytes;
    cu_address address;

    setenv("HSDP_DOUBLE_MEMORY_MIB", "2", 1);
    double_start();
    DRIVER(memory_info(&free_bytes, &total_bytes));
    ck_assert_uint_eq(total_bytes, 2u << 20);
    ck_assert_uint_eq(free_bytes, total_bytes);
    address = device_memory((1u << 20) + 1);
    DRIVER(memory_info(&free_bytes, &total_bytes));
    ck_assert_uint_eq(free_bytes, (1u << 20) - 512);
    ck_assert_int_eq(cuda.memory_alloc(&address, 1u << 20), CU_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(cuda.memory_alloc(&address, SIZE_MAX), CU_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(cuda.memory_alloc(&address, 0), CU_ERROR_INVALID_VALUE);
    DRIVER(memory_free(address));
    device_memory(2u << 20);
}
END_TEST

START_TEST(memory_is_aligned_and_poisoned)
{
    unsigned char bytes[700];

    double_start();
    for (int i = 0; i < 10; i++) {
        cu_address address = device_memory(sizeof(bytes));

        ck_assert_uint_eq(address % 512, 0);
        DRIVER(copy((cu_address)(uintptr_t)bytes, address, sizeof(bytes), NULL));
        for (size_t k = 0; k < sizeof(bytes); k++) {
            ck_assert_uint_eq(bytes[k], 0xff);
        }
    }
}
END_TEST

START_TEST(free_of_an_unknown_address_is_refused)
{
    cu_address address;
    void *pinned;
    int on_stack;

    double_start();
    address = device_memory(1024);
    pinned = pinned_memory(1024);
    ck_assert_int_eq(cuda.memory_free(address + 512), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.memory_free((cu_address)(uintptr_t)&on_stack), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.memory_free((cu_address)(uintptr_t)pinned), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.host_free((void *)(uintptr_t)address), CU_ERROR_INVALID_VALUE);
    DRIVER(memory_free(address));
    DRIVER(host_free(pinned));
    ck_assert_int_eq(cuda.memory_free(address), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.host_free(pinned), CU_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(addresses_never_come_twice)
{
    cu_address seen[64];

    double_start();
    for (int i = 0; i < 64; i++) {
        seen[i] = device_memory(4096);
        for (int j = 0; j < i; j++) {
            ck_assert_uint_ne(seen[i], seen[j]);
        }
        DRIVER(memory_free(seen[i]));
    }
}
END_TEST

START_TEST(pointer_attributes_tell_device_from_host)
{
    uint32_t type;
    int32_t ordinal;
    cu_context second;
    cu_address address;
    void *pinned;

    double_start();
    DRIVER(primary_context_retain(&second, 3));
    DRIVER(context_push(second));
    address = device_memory(1024);
    pinned = pinned_memory(1024);
    DRIVER(pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, address + 1023));
    ck_assert_uint_eq(type, CU_MEMORY_DEVICE);
    DRIVER(pointer_attribute(&ordinal, CU_POINTER_ORDINAL, address));
    ck_assert_int_eq(ordinal, 3);
    DRIVER(pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, (cu_address)(uintptr_t)pinned));
    ck_assert_uint_eq(type, CU_MEMORY_HOST);
    ck_assert_int_eq(cuda.pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, address + 1024),
                     CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuda.pointer_attribute(&type, 12345, address), CU_ERROR_INVALID_VALUE);
    ck_assert_int_eq(
        cuda.pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, (cu_address)(uintptr_t)&type),
        CU_ERROR_INVALID_VALUE);
    DRIVER(memory_free(address));
    ck_assert_int_eq(cuda.pointer_attribute(&type, CU_POINTER_MEMORY_TYPE, address),
                     CU_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(allocations_fail_from_the_nth_on)
{
    cu_address address;
    void *pinned;

    setenv("HSDP_DOUBLE_FAULTS", "slow_stream=1,alloc_fails=3", 1);
    double_start();
    address = device_memory(512);
    pinned_memory(512);
    ck_assert_int_eq(cuda.memory_alloc(&address, 512), CU_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(cuda.memory_alloc(&address, 512), CU_ERROR_OUT_OF_MEMORY);
    ck_assert_int_eq(cuda.host_alloc(&pinned, 512, 0), CU_ERROR_OUT_OF_MEMORY);
}
END_TEST

/* ----------------------------------------------------------- what no host and no work may do */

static volatile sig_atomic_t fault_is_expected;
static uintptr_t fault_address;

static void fault_caught(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    _exit(fault_is_expected && (uintptr_t)info->si_addr == fault_address ? 42 : 1);
}

/* Whether a child that reads or writes there faults there. */
static void check_faults(uintptr_t address, bool is_write)
{
    struct sigaction action = {.sa_sigaction = fault_caught, .sa_flags = SA_SIGINFO};
    volatile unsigned char *byte = (volatile unsigned char *)address;
    int status;
    pid_t child = fork();

    if (child == 0) {
        sigaction(SIGSEGV, &action, NULL);
        fault_address = address;
        fault_is_expected = 1;
        if (is_write) {
            *byte = 1;
        } else {
            (void)*byte;
        }
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 42, "status %d", status);
}

START_TEST(host_that_touches_device_memory_faults)
{
    cu_address address;
    void *pinned;

    double_start();
    address = device_memory(10000);
    pinned = pinned_memory(10000);
    check_faults(address, false);
    check_faults(address + 9999, true);
    memset(pinned, 7, 10000);
    DRIVER(memory_free(address));
    DRIVER(host_free(pinned));
    check_faults(address, false);
    check_faults((uintptr_t)pinned, false);
}
END_TEST

static void copy_past_the_end(void)
{
    char host[1024];

    double_start();
    cuda.copy((cu_address)(uintptr_t)host, device_memory(1000), 1001, NULL);
}

static void copy_before_the_beginning(void)
{
    char host[1024] = "";

    double_start();
    cuda.copy(device_memory(1000) - 1, (cu_address)(uintptr_t)host, 1001, NULL);
}

static void fill_of_freed_memory(void)
{
    cu_address address;

    double_start();
    address = device_memory(1000);
    cuda.memory_free(address);
    cuda.fill(address, 0, 8, NULL);
}

static void work_on_pageable_memory(void)
{
    char host[64];

    double_start();
    touch(NULL, "a kernel", (cu_address)(uintptr_t)host, 64, true);
}

static void work_on_another_device(void)
{
    cu_address address;
    cu_context second;

    double_start();
    address = device_memory(64);
    cuda.primary_context_retain(&second, 1);
    cuda.context_push(second);
    touch(NULL, "a kernel", address, 64, true);
}

static void shadow_of_nothing(void)
{
    double_start();
    doubled.shadow((void *)(uintptr_t)(device_memory(64) + 60), 5);
}

static void stray_kernel_run(void *arg)
{
    doubled.shadow(arg, 5);
}

static void work_beyond_what_it_said(void)
{
    double_start();
    doubled.enqueue(NULL, "stray", stray_kernel_run, (void *)(uintptr_t)(device_memory(64) + 60),
                    NULL, NULL, 0);
    stream_finish(NULL);
}

static const struct {
    void (*run)(void);
    const char *words;
} deaths[] = {
    {copy_past_the_end, "a copy reads 1001 bytes at"},
    {copy_before_the_beginning, "outside of the 1000 bytes"},
    {fill_of_freed_memory, "a fill writes 8 bytes at"},
    {fill_of_freed_memory, "that have been freed"},
    {work_on_pageable_memory, "a kernel writes 64 bytes"},
    {work_on_pageable_memory, "no memory that the driver has given out"},
    {work_on_another_device, "a kernel on device 1 touches memory of device 0"},
    {shadow_of_nothing, "the host touches 5 bytes"},
    {work_beyond_what_it_said, "stray touches 5 bytes"},
};

START_TEST(process_that_misses_memory_ends_with_a_sentence)
{
    double_check_dies(deaths[_i].run, deaths[_i].words);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("double_cuda");
    TCase *driver = tcase_create("driver");
    TCase *memory = tcase_create("memory");

    tcase_set_timeout(driver, 60);
    tcase_set_timeout(memory, 60);
    tcase_add_test(driver, calls_before_init_say_so);
    tcase_add_test(driver, devices_are_eight_and_differ);
    tcase_add_test(driver, devices_are_as_many_as_the_environment_says);
    tcase_add_test(driver, init_without_devices_says_so);
    tcase_add_test(driver, attributes_are_those_that_are_asked_for);
    tcase_add_test(driver, errors_have_names);
    tcase_add_test(driver, child_of_an_initialised_process_has_no_driver);
    tcase_add_test(driver, calls_without_a_context_say_so);
    tcase_add_test(driver, contexts_are_a_stack);
    tcase_add_test(driver, contexts_are_current_on_one_thread);
    tcase_add_test(driver, context_lives_until_its_last_release);
    tcase_add_test(driver, handles_of_another_context_are_refused);
    tcase_add_test(driver, handles_are_refused_where_they_are_no_such);
    tcase_add_test(driver, capture_mode_is_exchanged);
    tcase_add_test(memory, memory_is_finite_and_counted);
    tcase_add_test(memory, memory_is_aligned_and_poisoned);
    tcase_add_test(memory, free_of_an_unknown_address_is_refused);
    tcase_add_test(memory, addresses_never_come_twice);
    tcase_add_test(memory, pointer_attributes_tell_device_from_host);
    tcase_add_test(memory, allocations_fail_from_the_nth_on);
    tcase_add_test(memory, host_that_touches_device_memory_faults);
    tcase_add_loop_test(memory, process_that_misses_memory_ends_with_a_sentence, 0, N_OF(deaths));
    suite_add_tcase(suite, driver);
    suite_add_tcase(suite, memory);
    return suite;
}
