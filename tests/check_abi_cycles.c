/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin that is loaded, trains, and is unloaded, a thousand times: nothing of it grows. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host.h"
#include "node_ranks.h"
#include "process_state.h"
#include "ranks.h"
#include "suite.h"

#define N_WARM_UP 50
#define N_CYCLES  1200
#define LIMIT_MS  100000

/* The growth over many cycles, behind the first ones, which may keep something for good. */
static const char *cycles_growth(int n_cycles, void (*cycle)(const void *argument),
                                 const void *argument)
{
    struct process_size before = process_size();

    for (int i = 0; i < N_WARM_UP + n_cycles; i++) {
        if (i == N_WARM_UP) {
            before = process_size();
        }
        cycle(argument);
    }
    return process_size_growth(before, process_size());
}

/* ------------------------------------------------------------------------------ what is noticed */

static void descriptor_leak(const void *argument)
{
    (void)argument;
    ck_assert_int_ge(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
}

static void *thread_rest(void *argument)
{
    pause();
    return argument;
}

static void thread_leak(const void *argument)
{
    pthread_attr_t small;
    pthread_t thread;

    (void)argument;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    ck_assert_int_eq(pthread_create(&thread, &small, thread_rest, NULL), 0);
    pthread_attr_destroy(&small);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static void mapping_leak(const void *argument)
{
    int protection = rand() % 2 == 0 ? PROT_READ : PROT_NONE; /* neighbours become one mapping */

    (void)argument;
    ck_assert_ptr_ne(mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
}

static void heap_leak(const void *argument)
{
    char *volatile smallest = malloc(1);

    (void)argument;
    ck_assert_ptr_nonnull(smallest);
}

/* One mapping that is there from the first cycle on, of which each writes one page more. */
static void page_leak(const void *argument)
{
    static const size_t page_bytes = 4096;
    static char *next;

    (void)argument;
    if (next == NULL) {
        next = mmap(NULL, (N_WARM_UP + N_CYCLES) * page_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(next, MAP_FAILED);
    }
    *next = 1;
    next += page_bytes;
}

#endif

static const struct {
    const char *growth;
    void (*leak)(const void *argument);
    int n_cycles;
} leaks[] = {
    {"descriptors", descriptor_leak, 1},      {"threads", thread_leak, 1},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    {"mappings", mapping_leak, 20},           {"bytes of the heap", heap_leak, N_CYCLES},
    {"bytes in memory", page_leak, N_CYCLES},
#endif
};

#define N_LEAKS ((int)(sizeof(leaks) / sizeof(leaks[0])))

START_TEST(growth_of_each_kind_is_noticed)
{
    const char *growth = cycles_growth(leaks[_i].n_cycles, leaks[_i].leak, NULL);

    ck_assert_ptr_nonnull(growth);
    ck_assert_msg(strstr(growth, leaks[_i].growth) != NULL, "%s", growth);
}
END_TEST

/* ---------------------------------------------------------------------------------- the plugin */

static double half(struct host_at at)
{
    (void)at;
    return 0.5;
}

/* What a rank goes through in every cycle. */
struct life {
    uint32_t rank;
    const char *dims;
    const char *strategy;
};

/* Load, job, mesh, plan, model, values, one microbatch, one step, and all of it given back. */
static void life_train(const void *argument)
{
    const struct life *life = argument;
    struct host host;

    host_open(&host, life->rank, life->dims, life->strategy,
              "unit a: w[64]; unit b: x[5] y[3,2]!; unit c: z[7] v[7]=z");
    host_load(&host, half);
    host_forward(&host);
    host_backward(&host, HSDP_SCOPE_FULL, 0, half);
    host_step(&host, 1.0);
    host_must(&host, host_adamw(&host, 0.5, 0.0));
    host_step_end(&host);
    host_close(&host);
}

/* Ranks of two nodes meet and agree; no data moves between nodes yet. */
static void life_meet(const void *argument)
{
    const struct life *life = argument;
    struct host host;

    host_join(&host, life->rank, life->dims, "nccl_timeout_seconds=30");
    host_must(&host, host.api->job->setting_set(host.job, "nccl_timeout_seconds", "31", &host.err));
    host_close(&host);
}

/* A failure has more to give back. */
static void life_fail(const void *argument)
{
    const struct life *life = argument;
    struct host host;

    host_open(&host, life->rank, life->dims, life->strategy, "unit a: w[64]");
    host_must(&host, host_unshard(&host, 0, HSDP_USE_FORWARD));
    host_must(&host, host.api->job->abort(host.job, "enough", &host.err));
    ck_assert_int_eq(host_release(&host, 0), HSDP_ERR_ABORTED);
    host_leave(&host);
}

static void expect_no_growth(uint32_t rank, const char *dims, int n_cycles,
                             void (*cycle)(const void *argument))
{
    const struct life life = {rank, dims, "sharding_strategy=hsdp"};
    const char *growth = cycles_growth(n_cycles, cycle, &life);

    ck_assert_msg(growth == NULL, "after %d cycles %s", n_cycles, growth);
}

static void alone_rank(uint32_t rank, void *shared)
{
    (void)shared;
    expect_no_growth(rank, "dp=1", N_CYCLES, life_train);
}

START_TEST(plugin_trained_with_and_unloaded_1200_times_grows_nothing)
{
    ranks_run(1, LIMIT_MS, alone_rank, NULL);
}
END_TEST

static void pair_rank(uint32_t rank, void *shared)
{
    (void)shared;
    expect_no_growth(rank, "dp=2", N_CYCLES, life_train);
}

START_TEST(plugin_trained_with_by_two_ranks_and_unloaded_1200_times_grows_nothing)
{
    ranks_run(2, LIMIT_MS, pair_rank, NULL);
}
END_TEST

static void failed_rank(uint32_t rank, void *shared)
{
    (void)shared;
    expect_no_growth(rank, "dp=1", N_CYCLES, life_fail);
}

START_TEST(plugin_unloaded_1200_times_behind_a_failure_grows_nothing)
{
    ranks_run(1, LIMIT_MS, failed_rank, NULL);
}
END_TEST

static void node_rank(uint32_t rank, void *shared)
{
    node_ranks_environment(shared, rank);
    expect_no_growth(rank, "dp=2", 150, life_meet); /* each of them takes 20 ms */
}

START_TEST(plugin_of_two_nodes_unloaded_150_times_grows_nothing)
{
    struct nodes_case nodes = {"1,1", node_ranks_port()};

    ranks_run(2, LIMIT_MS, node_rank, &nodes);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_cycles");
    TCase *tcase = tcase_create("cycles");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, growth_of_each_kind_is_noticed, 0, N_LEAKS);
    tcase_add_test(tcase, plugin_trained_with_and_unloaded_1200_times_grows_nothing);
    tcase_add_test(tcase, plugin_trained_with_by_two_ranks_and_unloaded_1200_times_grows_nothing);
    tcase_add_test(tcase, plugin_unloaded_1200_times_behind_a_failure_grows_nothing);
    tcase_add_test(tcase, plugin_of_two_nodes_unloaded_150_times_grows_nothing);
    suite_add_tcase(suite, tcase);
    return suite;
}
