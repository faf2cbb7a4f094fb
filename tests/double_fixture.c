/* SPDX-License-Identifier: Apache-2.0 */
/* The double of the CUDA driver, loaded by its path; gates, and children that it ends. */
#include "double_fixture.h"

#include <check.h>
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct cuda cuda;
struct double_calls doubled;

static void symbol_find(void *library, const char *symbol, void *ret_function)
{
    void *found = dlsym(library, symbol);

    ck_assert_msg(found != NULL, "libcuda.so.1 lacks %s", symbol);
    memcpy(ret_function, &found, sizeof(found));
}

void double_load(void)
{
    const char *folder = getenv("HSDP_TEST_DOUBLES");
    char path[4096];
    void *library;

    ck_assert_msg(folder != NULL, "HSDP_TEST_DOUBLES is not set: run make check");
    snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    ck_assert_msg(library != NULL, "%s", dlerror());
#define FIND(field, symbol, parameters) symbol_find(library, #symbol, &cuda.field);
    CUDA_FUNCTIONS(FIND)
#undef FIND
    symbol_find(library, "double_shadow", &doubled.shadow);
    symbol_find(library, "double_enqueue", &doubled.enqueue);
    symbol_find(library, "double_n_races", &doubled.n_races);
    symbol_find(library, "double_host_access", &doubled.host_access);
    symbol_find(library, "double_capture", &doubled.capture);
    symbol_find(library, "double_fault", &doubled.fault);
}

cu_context double_start(void)
{
    cu_context context;

    double_load();
    DRIVER(init(0));
    DRIVER(primary_context_retain(&context, 0));
    DRIVER(context_push(context));
    return context;
}

cu_address device_memory(size_t n_bytes)
{
    cu_address address;

    DRIVER(memory_alloc(&address, n_bytes));
    return address;
}

void *pinned_memory(size_t n_bytes)
{
    void *address;

    DRIVER(host_alloc(&address, n_bytes, 0));
    return address;
}

cu_stream stream_make(void)
{
    cu_stream stream;

    DRIVER(stream_create(&stream, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

cu_event event_make(void)
{
    cu_event event;

    DRIVER(event_create(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

void stream_finish(cu_stream stream)
{
    cu_result result;

    while ((result = cuda.stream_query(stream)) == CU_ERROR_NOT_READY) {
        sched_yield();
    }
    ck_assert_int_eq(result, CU_OK);
}

void event_finish(cu_event event)
{
    cu_result result;

    while ((result = cuda.event_query(event)) == CU_ERROR_NOT_READY) {
        sched_yield();
    }
    ck_assert_int_eq(result, CU_OK);
}

/* --------------------------------------------------------------------------------- gates */

static void gate_pass(void *arg)
{
    struct gate *gate = arg;

    atomic_fetch_add(&gate->n_waiting, 1);
    while (!atomic_load(&gate->is_open)) {
        usleep(100);
    }
    atomic_fetch_add(&gate->n_passed, 1);
}

static void gate_discard(void *arg)
{
    struct gate *gate = arg;

    atomic_fetch_add(&gate->n_discarded, 1);
}

void gate_enqueue(struct gate *gate, cu_stream stream, const struct double_access *accesses,
                  uint32_t n_accesses)
{
    ck_assert_int_eq(
        doubled.enqueue(stream, "a gate", gate_pass, gate, gate_discard, accesses, n_accesses),
        CU_OK);
}

void gate_open(struct gate *gate)
{
    atomic_store(&gate->is_open, true);
}

static void nothing(void *arg)
{
    (void)arg;
}

void touch(cu_stream stream, const char *name, cu_address address, uint64_t n_bytes, bool is_write)
{
    struct double_access access = {(void *)(uintptr_t)address, n_bytes, is_write, 0};

    ck_assert_int_eq(doubled.enqueue(stream, name, nothing, NULL, NULL, &access, 1), CU_OK);
}

/* ------------------------------------------------------------------------------ children */

static _Noreturn void child_run(void (*run)(void), int output)
{
    struct rlimit no_core = {0, 0};

    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGABRT, SIG_DFL);
    dup2(output, STDERR_FILENO);
    run();
    _exit(0);
}

void double_check_dies(void (*run)(void), const char *words)
{
    char text[4096] = "";
    size_t n_read = 0;
    ssize_t n;
    int ends[2];
    int status;
    pid_t child;

    ck_assert_int_eq(pipe(ends), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        child_run(run, ends[1]);
    }
    close(ends[1]);
    while ((n = read(ends[0], text + n_read, sizeof(text) - 1 - n_read)) > 0) {
        n_read += (size_t)n;
    }
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %d: %s", status,
                  text);
    ck_assert_msg(strstr(text, words) != NULL, "no \"%s\" in: %s", words, text);
}
