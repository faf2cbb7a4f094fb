/* SPDX-License-Identifier: Apache-2.0 */
/* A device, on the double of the driver: memory and who gives it, events, copies, kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/gpu.h"
#include "hsdp/job.h"
#include "stand_in.h"
#include "suite.h"

static struct gpu gpu;
static struct hsdp_error err;

#define must(expression) ck_assert_msg((expression) == HSDP_OK, "%s", err.message)

static void open_gpu(void)
{
    must(gpu_open(double_path("libcuda.so.1"), 0, NULL, &gpu, &err));
}

static void close_gpu(void)
{
    gpu_close(&gpu);
    ck_assert_uint_eq(double_races(), 0);
}

/* Until the reduce stream has come to here. */
static void gpu_await(void)
{
    uint64_t deadline_ns = clock_deadline_ns(20000);
    cu_event event;
    int32_t status = HSDP_PENDING;

    must(gpu_event_create(&gpu, &event, &err));
    must(gpu_event_record(&gpu, event, gpu.reduce_stream, &err));
    while (status == HSDP_PENDING && clock_now_ns() < deadline_ns) {
        status = gpu_event_query(&gpu, event, &err);
    }
    ck_assert_int_eq(status, HSDP_OK);
    gpu_event_destroy(&gpu, event);
}

/* ------------------------------------------------------------------------------- opening */

START_TEST(gpu_open_device_has_streams_and_kernels)
{
    ck_assert_uint_gt(gpu.n_multiprocessors, 0);
    ck_assert_int_ge(gpu.capability, 80);
    ck_assert_ptr_nonnull(gpu.unshard_stream);
    ck_assert_ptr_nonnull(gpu.reduce_stream);
    for (int i = 0; i < GPU_N_KERNELS; i++) {
        ck_assert_ptr_nonnull(gpu.kernels[i]);
    }
}
END_TEST

/* All calls leave the context of the thread as it was: none. */
START_TEST(gpu_calls_leave_the_context_of_the_thread)
{
    struct gpu_memory memory;
    cu_context context;

    must(gpu_alloc(&gpu, 4096, HSDP_MEMORY_DEVICE, "this test", &memory, &err));
    must(gpu_fill(&gpu, memory.base, 1, 4096, gpu.reduce_stream, &err));
    gpu_await();
    gpu_free(&gpu, &memory);
    ck_assert_int_eq(gpu.cuda.context_current(&context), CU_OK);
    ck_assert_ptr_null(context);
}
END_TEST

static const struct {
    const char *faults;
    const char *sentence;
} refusals[] = {
    {"no_device", "cuInit: CUDA_ERROR_NO_DEVICE (no CUDA device that this process may use)"},
    {"alloc_fails=1", NULL}, /* not at open: nothing is allocated there */
};

START_TEST(gpu_open_with_a_fault_is_as_the_driver_says)
{
    setenv("HSDP_DOUBLE_FAULTS", refusals[_i].faults, 1);
    if (refusals[_i].sentence == NULL) {
        open_gpu();
        gpu_close(&gpu);
        return;
    }
    ck_assert_int_eq(gpu_open(double_path("libcuda.so.1"), 0, NULL, &gpu, &err),
                     HSDP_ERR_UNAVAILABLE);
    ck_assert_str_eq(err.message, refusals[_i].sentence);
}
END_TEST

START_TEST(gpu_close_of_nothing_is_accepted)
{
    struct gpu none;

    memset(&none, 0, sizeof(none));
    gpu_close(&none);
}
END_TEST

/* -------------------------------------------------------------------------------- memory */

START_TEST(gpu_alloc_is_aligned_and_of_both_kinds)
{
    static const int32_t kinds[] = {HSDP_MEMORY_DEVICE, HSDP_MEMORY_PINNED};
    struct gpu_memory memory;

    must(gpu_alloc(&gpu, 1000, kinds[_i], "this test", &memory, &err));
    ck_assert_uint_eq((uintptr_t)memory.base % 512, 0);
    ck_assert_uint_eq(memory.n_bytes, 1000);
    ck_assert_int_eq(memory.kind, kinds[_i]);
    gpu_free(&gpu, &memory);
    ck_assert_ptr_null(memory.base);
    gpu_free(&gpu, &memory);
}
END_TEST

START_TEST(gpu_alloc_of_nothing_is_nothing)
{
    struct gpu_memory memory;

    must(gpu_alloc(&gpu, 0, HSDP_MEMORY_DEVICE, "this test", &memory, &err));
    ck_assert_ptr_null(memory.base);
    must(gpu_fill(&gpu, memory.base, 0, 0, gpu.reduce_stream, &err));
    must(gpu_copy(&gpu, memory.base, memory.base, 0, gpu.reduce_stream, &err));
    must(gpu_launch(&gpu, GPU_ADD, NULL, 0, gpu.reduce_stream, &err));
    gpu_free(&gpu, &memory);
}
END_TEST

static const struct {
    int32_t kind;
    const char *sentence;
} shortages[] = {
    {HSDP_MEMORY_DEVICE,
     "gpu: no memory on device 0 for slots of unit a: 1048576 bytes are wanted, "},
    {HSDP_MEMORY_PINNED,
     "gpu: no pinned memory for device 0 for slots of unit a: 1048576 bytes are wanted, "},
};

START_TEST(gpu_alloc_without_memory_says_what_is_wanted_and_free)
{
    struct gpu_memory memory;

    setenv("HSDP_DOUBLE_FAULTS", "alloc_fails=1", 1);
    ck_assert_int_eq(gpu_alloc(&gpu, 1 << 20, shortages[_i].kind, "slots of unit a", &memory, &err),
                     HSDP_ERR_NO_MEMORY);
    ck_assert_msg(strncmp(err.message, shortages[_i].sentence, strlen(shortages[_i].sentence)) == 0,
                  "%s", err.message);
    ck_assert_ptr_nonnull(strstr(err.message, " on the device are free"));
}
END_TEST

/* The host's allocator: what it was asked for, and what it gives. */
static struct {
    uint64_t n_bytes;
    int32_t kind;
    void *stream;
    void *gives;
    int n_freed;
} host;

static void *host_alloc(void *user, uint64_t n_bytes, uint64_t align_bytes, int32_t kind,
                        void *stream)
{
    ck_assert_ptr_eq(user, &host);
    ck_assert_uint_eq(align_bytes, 512);
    host.n_bytes = n_bytes;
    host.kind = kind;
    host.stream = stream;
    return host.gives;
}

static void host_free(void *user, void *base, uint64_t n_bytes, int32_t kind, void *stream)
{
    ck_assert_ptr_eq(user, &host);
    ck_assert_ptr_eq(base, host.gives);
    ck_assert_uint_eq(n_bytes, host.n_bytes);
    ck_assert_int_eq(kind, host.kind);
    ck_assert_ptr_eq(stream, host.stream);
    host.n_freed++;
}

static void host_open(void *gives)
{
    const struct gpu_allocator allocator = {host_alloc, host_free, &host};

    host.gives = gives;
    must(gpu_open(double_path("libcuda.so.1"), 0, &allocator, &gpu, &err));
}

START_TEST(gpu_alloc_asks_the_host_where_it_has_an_allocator)
{
    struct gpu_memory memory;

    host_open((void *)(uintptr_t)0x200000);
    must(gpu_alloc(&gpu, 1000, HSDP_MEMORY_PINNED, "this test", &memory, &err));
    ck_assert_ptr_eq(memory.base, host.gives);
    ck_assert_uint_eq(host.n_bytes, 1000);
    ck_assert_int_eq(host.kind, HSDP_MEMORY_PINNED);
    ck_assert_ptr_eq(host.stream, gpu.reduce_stream);
    gpu_free(&gpu, &memory);
    ck_assert_int_eq(host.n_freed, 1);
    gpu_close(&gpu);
}
END_TEST

START_TEST(gpu_alloc_host_that_has_none_left_is_no_memory)
{
    struct gpu_memory memory;

    host_open(NULL);
    ck_assert_int_eq(gpu_alloc(&gpu, 1000, HSDP_MEMORY_DEVICE, "slots of unit a", &memory, &err),
                     HSDP_ERR_NO_MEMORY);
    ck_assert_str_eq(err.message, "gpu: memory_alloc of the host has no 1000 bytes for slots of "
                                  "unit a (device)");
    gpu_close(&gpu);
}
END_TEST

START_TEST(gpu_alloc_host_that_does_not_align_is_refused)
{
    struct gpu_memory memory;

    host_open((void *)(uintptr_t)0x200100);
    ck_assert_int_eq(gpu_alloc(&gpu, 1000, HSDP_MEMORY_DEVICE, "slots of unit a", &memory, &err),
                     HSDP_ERR_INVALID);
    ck_assert_str_eq(err.message, "gpu: memory_alloc of the host gave 0x200100 for slots of unit "
                                  "a, which is not aligned to 512 bytes");
    ck_assert_int_eq(host.n_freed, 1);
    gpu_close(&gpu);
}
END_TEST

/* A minute of work: giving back waits for two seconds of it, and then not again. */
START_TEST(gpu_free_of_a_busy_device_keeps_the_memory)
{
    struct gpu_memory memory;
    struct gpu_memory other;

    must(gpu_alloc(&gpu, 4096, HSDP_MEMORY_DEVICE, "this test", &memory, &err));
    must(gpu_alloc(&gpu, 4096, HSDP_MEMORY_DEVICE, "this test", &other, &err));
    setenv("HSDP_DOUBLE_FAULTS", "slow_stream=60000000", 1);
    must(gpu_fill(&gpu, memory.base, 1, 4096, gpu.reduce_stream, &err));
    gpu_free(&gpu, &memory);
    ck_assert(atomic_load(&gpu.is_stuck));
    ck_assert_ptr_null(memory.base);
    gpu_free(&gpu, &other); /* would outlast the case's limit, if each waited to the end */
    ck_assert_ptr_null(other.base);
}
END_TEST

/* --------------------------------------------------------------------------------- work */

START_TEST(gpu_copy_and_event_bring_what_was_written)
{
    struct gpu_memory device;
    struct gpu_memory pinned;
    unsigned char *bytes;

    must(gpu_alloc(&gpu, 8192, HSDP_MEMORY_DEVICE, "this test", &device, &err));
    must(gpu_alloc(&gpu, 8192, HSDP_MEMORY_PINNED, "this test", &pinned, &err));
    bytes = pinned.base;
    memset(bytes, 7, 8192);
    must(gpu_fill(&gpu, device.base, 3, 8192, gpu.reduce_stream, &err));
    must(gpu_copy(&gpu, bytes, device.base, 4096, gpu.reduce_stream, &err));
    gpu_await();
    ck_assert_int_eq(bytes[0], 3);
    ck_assert_int_eq(bytes[4095], 3);
    ck_assert_int_eq(bytes[4096], 7);
    gpu_free(&gpu, &device);
    gpu_free(&gpu, &pinned);
}
END_TEST

START_TEST(gpu_stream_wait_orders_two_streams)
{
    struct gpu_memory pinned;
    struct gpu_memory device;
    cu_event event;

    must(gpu_alloc(&gpu, 512, HSDP_MEMORY_PINNED, "this test", &pinned, &err));
    must(gpu_alloc(&gpu, 512, HSDP_MEMORY_DEVICE, "this test", &device, &err));
    must(gpu_event_create(&gpu, &event, &err));
    setenv("HSDP_DOUBLE_FAULTS", "slow_stream=20000", 1);
    must(gpu_fill(&gpu, device.base, 9, 512, gpu.unshard_stream, &err));
    must(gpu_event_record(&gpu, event, gpu.unshard_stream, &err));
    ck_assert_int_eq(gpu_event_query(&gpu, event, &err), HSDP_PENDING);
    must(gpu_stream_wait(&gpu, gpu.reduce_stream, event, &err));
    must(gpu_copy(&gpu, pinned.base, device.base, 512, gpu.reduce_stream, &err));
    gpu_await();
    ck_assert_int_eq(*(unsigned char *)pinned.base, 9);
    gpu_event_destroy(&gpu, event);
    gpu_free(&gpu, &pinned);
    gpu_free(&gpu, &device);
}
END_TEST

START_TEST(gpu_launch_that_fails_names_call_and_kernel)
{
    struct gpu_add_args args = {.n_elems = 4};
    struct gpu_memory device;

    must(gpu_alloc(&gpu, 512, HSDP_MEMORY_DEVICE, "this test", &device, &err));
    args.dst = device.base;
    args.src = (char *)device.base + 256;
    setenv("HSDP_DOUBLE_FAULTS", "launch_fails=1", 1);
    /* which call says it first is the driver's affair */
    while (gpu_launch(&gpu, GPU_ADD, &args, 4, gpu.reduce_stream, &err) == HSDP_OK) {
    }
    ck_assert_int_eq(err.status, HSDP_ERR_DEVICE);
    ck_assert_ptr_nonnull(strstr(err.message, "CUDA_ERROR_LAUNCH_FAILED"));
}
END_TEST

START_TEST(gpu_is_capturing_is_false_without_a_graph)
{
    bool is_capturing = true;

    must(gpu_is_capturing(&gpu, gpu.reduce_stream, &is_capturing, &err));
    ck_assert(!is_capturing);
}
END_TEST

START_TEST(gpu_grid_is_enough_and_not_more_than_the_device_runs)
{
    ck_assert_uint_eq(gpu_grid(&gpu, 1), 1);
    ck_assert_uint_ge(gpu_grid(&gpu, 100000), 2);
    ck_assert_uint_ge(gpu_grid(&gpu, UINT64_MAX), gpu.n_multiprocessors);
    ck_assert_uint_le(gpu_grid(&gpu, UINT64_MAX), 32 * gpu.n_multiprocessors);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("gpu");
    TCase *device = tcase_create("device");
    TCase *open = tcase_create("open");

    suite_add_tcase(suite, device);
    tcase_add_checked_fixture(device, open_gpu, close_gpu);
    tcase_set_timeout(device, 30);
    tcase_add_test(device, gpu_open_device_has_streams_and_kernels);
    tcase_add_test(device, gpu_calls_leave_the_context_of_the_thread);
    tcase_add_loop_test(device, gpu_alloc_is_aligned_and_of_both_kinds, 0, 2);
    tcase_add_test(device, gpu_alloc_of_nothing_is_nothing);
    tcase_add_loop_test(device, gpu_alloc_without_memory_says_what_is_wanted_and_free, 0,
                        N_OF(shortages));
    tcase_add_test(device, gpu_free_of_a_busy_device_keeps_the_memory);
    tcase_add_test(device, gpu_copy_and_event_bring_what_was_written);
    tcase_add_test(device, gpu_stream_wait_orders_two_streams);
    tcase_add_test(device, gpu_launch_that_fails_names_call_and_kernel);
    tcase_add_test(device, gpu_is_capturing_is_false_without_a_graph);
    tcase_add_test(device, gpu_grid_is_enough_and_not_more_than_the_device_runs);
    suite_add_tcase(suite, open);
    tcase_add_loop_test(open, gpu_open_with_a_fault_is_as_the_driver_says, 0, N_OF(refusals));
    tcase_add_test(open, gpu_close_of_nothing_is_accepted);
    tcase_add_test(open, gpu_alloc_asks_the_host_where_it_has_an_allocator);
    tcase_add_test(open, gpu_alloc_host_that_has_none_left_is_no_memory);
    tcase_add_test(open, gpu_alloc_host_that_does_not_align_is_refused);
    return suite;
}
