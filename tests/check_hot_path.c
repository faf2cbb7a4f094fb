/* SPDX-License-Identifier: Apache-2.0 */
/* Behind two windows training allocates nothing, faults no page in, and makes no system call. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "faults/inject.h"
#include "host.h"
#include "ranks.h"
#include "suite.h"
#include "syscalls.h"

#define N_WARM_WINDOWS 2
#define N_WINDOWS      24
#define N_ROWS         3 /* of so many windows: the kernel may do something of its own in one */
#define N_VARIANTS     3

/* Larger than pages, frozen, of two hyper groups; "v" of unit b has another name in unit d. */
static const char units[] = "unit a: w[5000] k[3]!; unit b: x[70]@1 v[37]; unit c: y[9000]; "
                            "unit d: z[1031] n[37]=v";

#define SPLIT "shard_size=2 " /* of several ranks */

static const char *const variants[N_VARIANTS] = {
    SPLIT, SPLIT "slots=1 accumulation_scope=inner param_dtype=bf16",
    SPLIT "slots=3 accumulation_scope=full param_dtype=bf16 gradient_dtype=bf16"};
static const int32_t scopes[N_VARIANTS] = {HSDP_SCOPE_NONE, HSDP_SCOPE_INNER, HSDP_SCOPE_FULL};

static double number(struct host_at at)
{
    return ldexp(1.0 + (double)(at.elem % 64) / 64.0, (int)(at.elem % 5) - 2);
}

/* A pass whose end gives a ticket; the next one begins before that is waited for. */
static void ticket_pass_run(struct host *host, int32_t scope, uint64_t *ret_ticket)
{
    host_pass_begin(host, scope);
    for (uint32_t unit = host->n_units; unit-- > 0;) {
        host_acquire(host, unit);
        host_fill(host, unit, 0, number);
        host_hand_over(host, unit);
    }
    host_must(host,
              host->api->unit->backward_end(host->model, host->pass, NULL, ret_ticket, &host->err));
}

/* Microbatches, the last one of scope full, and a step. */
static void window_run(struct host *host, int32_t scope)
{
    uint64_t tickets[2];

    for (int i = 0; i < 2; i++) {
        host_forward(host);
        ticket_pass_run(host, scope, &tickets[i]);
    }
    host_must(host, host->api->job->ticket_wait(host->job, tickets[1], UINT64_MAX, &host->err));
    host_backward(host, HSDP_SCOPE_FULL, 2, number);
    host_step(host, 1.0);
    host_must(host, host_adamw(host, 0.125, 0.25));
    host_step_end(host);
}

static long faults_of_thread(void)
{
    struct rusage usage;

    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt + usage.ru_majflt;
}

/* -------------------------------------------------------------------------- what is looked at */

enum look {
    LOOK_ALLOCATIONS,
    LOOK_FAULTS,
    LOOK_CALLS,
    N_LOOKS,
};

struct hot_case {
    int32_t scope;
    enum look look;
    uint32_t n_ranks;
    uint32_t n_warm; /* windows before */
    bool is_found;   /* what is looked for is to be found */
};

static void windows_run(struct host *host, int32_t scope)
{
    for (int i = 0; i < N_WINDOWS; i++) {
        window_run(host, scope);
    }
}

/* All of them fail, so a call that needs one does too. */
static uint32_t row_allocations(struct host *host, int32_t scope)
{
    inject_arm(INJECT_MEMORY, 1, true);
    windows_run(host, scope);
    inject_disarm();
    return inject_n_failed();
}

static uint32_t row_faults(struct host *host, int32_t scope)
{
    long n_before = faults_of_thread();

    windows_run(host, scope);
    return (uint32_t)(faults_of_thread() - n_before);
}

/* Those that ranks need to wait for each other: to sleep, to wake, to give the processor away, and
 * after a while to look whether peers live. */
static uint32_t row_calls(struct host *host, int32_t scope)
{
    static const long waits[] = {
        SYS_futex,
        SYS_sched_yield,
        SYS_ppoll,
#ifdef SYS_poll
        SYS_poll,
#endif
    };
    uint32_t n_waits = host->n_ranks == 1 ? 0 : sizeof(waits) / sizeof(waits[0]);
    long other;

    syscalls_start();
    windows_run(host, scope);
    syscalls_stop();
    other = syscalls_other(waits, n_waits);
    return other < 0 ? 0 : syscalls_count(other);
}

/* A sanitizer has allocations, faults and calls of its own. */
static bool look_is_possible(enum look look)
{
    return inject_is_possible(INJECT_MEMORY) && (look != LOOK_CALLS || syscalls_trap());
}

static void rows_look(struct host *host, const struct hot_case *hot)
{
    static uint32_t (*const rows[N_LOOKS])(struct host *, int32_t) = {row_allocations, row_faults,
                                                                      row_calls};
    uint32_t n_least = UINT32_MAX;

    for (int row = 0; row < (hot->is_found ? 1 : N_ROWS); row++) {
        uint32_t n_found = rows[hot->look](host, hot->scope);

        n_least = n_found < n_least ? n_found : n_least;
    }
    if (hot->is_found) {
        ck_assert_uint_gt(n_least, 0);
    } else {
        ck_assert_uint_eq(n_least, 0);
    }
}

static void hot_rank(uint32_t rank, void *shared)
{
    const struct hot_case *hot = shared;
    struct host host;

    host_open(&host, rank, hot->n_ranks == 1 ? "dp=1" : "dp=4", host_settings, units);
    host_load(&host, number);
    for (uint32_t i = 0; i < hot->n_warm; i++) {
        window_run(&host, hot->scope);
    }
    if (look_is_possible(hot->look)) {
        rows_look(&host, hot);
    } else {
        fprintf(stderr, "check_hot_path: skipped, this build or machine does not let us look\n");
    }
    host_close(&host);
}

static void hot_run(int test, enum look look, uint32_t n_ranks)
{
    struct hot_case *hot = ranks_memory(sizeof(*hot));
    int variant = test % N_VARIANTS;

    hot->scope = scopes[variant];
    hot->look = look;
    hot->n_ranks = n_ranks;
    hot->n_warm = N_WARM_WINDOWS;
    host_settings_set(test / N_VARIANTS,
                      n_ranks == 1 ? variants[variant] + strlen(SPLIT) : variants[variant]);
    ranks_run(n_ranks, RANKS_LIMIT_MS, hot_rank, hot);
}

START_TEST(windows_behind_the_second_allocate_nothing)
{
    hot_run(_i, LOOK_ALLOCATIONS, 1);
    hot_run(_i, LOOK_ALLOCATIONS, 4);
}
END_TEST

START_TEST(windows_behind_the_second_fault_no_page_in)
{
    hot_run(_i, LOOK_FAULTS, 1);
    hot_run(_i, LOOK_FAULTS, 4);
}
END_TEST

START_TEST(windows_of_one_rank_make_no_system_call)
{
    hot_run(_i, LOOK_CALLS, 1);
}
END_TEST

START_TEST(windows_of_ranks_make_only_the_calls_of_waiting)
{
    hot_run(_i, LOOK_CALLS, 4);
}
END_TEST

/* ------------------------------------------------------------------ what must not be overlooked */

/* The engine's own, where it has some: cold, or with protection that is changed all the time. */
static void found_run(enum look look, const char *settings)
{
    struct hot_case *hot = ranks_memory(sizeof(*hot));

    hot->scope = HSDP_SCOPE_FULL;
    hot->look = look;
    hot->n_ranks = 1;
    hot->is_found = true;
    host_settings_set(3, settings);
    ranks_run(1, RANKS_LIMIT_MS, hot_rank, hot);
}

START_TEST(faults_of_the_first_windows_are_found)
{
    found_run(LOOK_FAULTS, "");
}
END_TEST

START_TEST(calls_of_verified_access_are_found)
{
    found_run(LOOK_CALLS, "verify=access");
}
END_TEST

/* The first pass needs some, and says that there are none. */
static void cold_rank(uint32_t rank, void *shared)
{
    static const uint32_t first[] = {0};
    struct host host;
    uint64_t pass;
    int32_t status;

    (void)shared;
    host_open(&host, rank, "dp=1", host_settings, units);
    inject_arm(INJECT_MEMORY, 1, true);
    status = host_backward_begin(&host, first, 1, HSDP_SCOPE_FULL, &pass);
    inject_disarm();
    if (inject_is_possible(INJECT_MEMORY)) {
        ck_assert_uint_gt(inject_n_failed(), 0);
        ck_assert_int_eq(status, HSDP_ERR_NO_MEMORY);
    }
    host_leave(&host);
}

START_TEST(allocations_of_the_first_pass_are_found)
{
    host_settings_set(3, "");
    ranks_run(1, RANKS_LIMIT_MS, cold_rank, NULL);
}
END_TEST

/* ---------------------------------------------------------------------- what cannot be had at once
 */

/* A page of the slot is gone, as if there were no memory for it. */
static void no_memory_rank(uint32_t rank, void *shared)
{
    static const uint32_t first[] = {0};
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    struct hsdp_tensor grad;
    struct host host;
    uint64_t pass;

    (void)shared;
    host_open(&host, rank, "dp=1", host_settings, units);
    grad = host_view(&host, host_param(&host, "w"), HSDP_VIEW_GRAD);
    host_must(&host, host_backward_begin(&host, first, 1, HSDP_SCOPE_FULL, &pass));
    if (madvise(grad.base, page_bytes, 23 /* MADV_POPULATE_WRITE */) == 0) { /* Linux 5.14 */
        ck_assert_int_eq(munmap(grad.base, page_bytes), 0);
        host_must_refuse(&host, host_unshard(&host, 0, HSDP_USE_BACKWARD_SET), HSDP_ERR_NO_MEMORY,
                         "no memory for gradients of unit \"a\"");
        ck_assert_ptr_eq(mmap(grad.base, page_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                         grad.base);
    }
    host_must(&host, host_unshard(&host, 0, HSDP_USE_BACKWARD_SET)); /* now there is some */
    host_leave(&host);
}

START_TEST(unshard_without_memory_for_gradients_is_refused)
{
    host_settings_set(_i, "");
    ranks_run(1, RANKS_LIMIT_MS, no_memory_rank, NULL);
}
END_TEST

/* An assertion makes calls of its own. */
START_TEST(calls_are_made_and_counted)
{
    static const long allowed[] = {SYS_getppid};
    long parent;
    int error;

    if (!syscalls_trap()) {
        return;
    }
    ck_assert_int_eq(syscall(SYS_getpid), getpid());
    syscalls_start();
    parent = syscall(SYS_getppid);
    syscalls_stop();
    ck_assert_int_eq(parent, getppid());
    ck_assert_int_eq(syscalls_other(allowed, 1), -1);
    ck_assert_int_eq(syscalls_other(NULL, 0), SYS_getppid);
    syscalls_start();
    syscall(SYS_close, -1);
    error = errno;
    syscall(SYS_close, -1);
    syscalls_stop();
    ck_assert_int_eq(error, EBADF);
    ck_assert_uint_eq(syscalls_count(SYS_close), 2);
    ck_assert_int_eq(syscalls_other(allowed, 1), SYS_close);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("hot_path");
    TCase *tcase = tcase_create("hot_path");
    int n_cases = HOST_N_STRATEGIES * N_VARIANTS;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, windows_behind_the_second_allocate_nothing, 0, n_cases);
    tcase_add_loop_test(tcase, windows_behind_the_second_fault_no_page_in, 0, n_cases);
    tcase_add_loop_test(tcase, windows_of_one_rank_make_no_system_call, 0, n_cases);
    tcase_add_loop_test(tcase, windows_of_ranks_make_only_the_calls_of_waiting, 0, n_cases);
    tcase_add_test(tcase, faults_of_the_first_windows_are_found);
    tcase_add_test(tcase, calls_of_verified_access_are_found);
    tcase_add_test(tcase, allocations_of_the_first_pass_are_found);
    tcase_add_test(tcase, calls_are_made_and_counted);
    tcase_add_loop_test(tcase, unshard_without_memory_for_gradients_is_refused, 0,
                        HOST_N_STRATEGIES);
    suite_add_tcase(suite, tcase);
    return suite;
}
