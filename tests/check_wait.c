/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: a rank that sleeps leaves the processor alone, and only those it needs wake it. */
#include <check.h>
#include <sched.h>
#include <sys/resource.h>

#include "comm/job_internal.h"
#include "jobs.h"
#include "ranks.h"
#include "suite.h"

#define LIMIT_MS 20000u

/* What ranks wait for: a counter of each. */
struct board {
    _Atomic uint64_t counters[3];
    _Atomic uint32_t n_done;
    _Atomic uint32_t n_worked; /* open work that has gone on */
    int cpu;                   /* that all are bound to, where they are */
};

static void signal_all(struct hsdp_job *job, struct board *board, uint64_t value)
{
    static const uint32_t all[] = {0, 1, 2};

    job_signal(job, &board->counters[job_rank(job)], value, all, job_world_ranks(job));
}

/* A wait for the counters of some ranks, each raised to 1. */
struct awaited {
    struct wait_entry entries[3];
    struct wait wait;
};

static void awaited_init(struct awaited *ret, struct board *board, const uint32_t *ranks,
                         uint32_t n_ranks)
{
    *ret = (struct awaited){.wait = {.operation = "wait", .n_entries = n_ranks}};
    for (uint32_t i = 0; i < n_ranks; i++) {
        ret->entries[i].counter = &board->counters[ranks[i]];
        ret->entries[i].target = 1;
        ret->entries[i].rank = ranks[i];
    }
    ret->wait.entries = ret->entries;
}

/* ------------------------------------------------------------------------------ processor time */

#define WAIT_MS     1600u
#define CPU_MAX_MS  (WAIT_MS / 4)
#define CPU_BUSY_MS 450u

static uint64_t cpu_ms(void)
{
    struct rusage usage;

    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0); /* with the watchdog's */
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000u +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000u;
}

static void processor_use(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(set), &set), 0);
}

/* Each on a processor of its own. */
static void own_rank(uint32_t rank, void *shared)
{
    cpu_set_t set;
    uint32_t cpu = 0;
    struct hsdp_job *job;

    (void)shared;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
    for (uint32_t n = 0; !CPU_ISSET(cpu, &set) || n++ < rank; cpu++) {
    }
    processor_use((int)cpu);
    job = test_job_open("60");
    ck_assert(!job->is_crowded);
    test_job_end(job);
}

START_TEST(ranks_bound_to_a_processor_each_are_not_crowded)
{
    cpu_set_t set;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
    if (CPU_COUNT(&set) >= 2) {
        ranks_run(2, LIMIT_MS, own_rank, NULL);
    }
}
END_TEST

/* Two ranks are bound to one processor; those that may use all of them are not crowded. */
static void half_rank(uint32_t rank, void *shared)
{
    cpu_set_t set;
    int n_processors;
    struct hsdp_job *job;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
    n_processors = CPU_COUNT(&set);
    if (rank < 2) {
        processor_use(*(int *)shared);
    }
    job = test_job_open("60");
    ck_assert_int_eq(job->is_crowded, rank < 2 || n_processors < 3);
    test_job_end(job);
}

START_TEST(ranks_bound_to_one_processor_are_crowded)
{
    int *cpu = ranks_memory(sizeof(*cpu));

    *cpu = sched_getcpu();
    ranks_run(3, LIMIT_MS, half_rank, cpu);
}
END_TEST

static void idle_rank(uint32_t rank, bool is_crowded, struct board *board)
{
    static const uint32_t peer[] = {1};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct awaited awaited;
    struct hsdp_job *job;
    uint64_t before_ms;

    if (is_crowded) {
        processor_use(board->cpu);
    }
    job = test_job_open("60");
    ck_assert(job->is_crowded || !is_crowded);
    awaited_init(&awaited, board, peer, 1);
    before_ms = cpu_ms();
    if (rank == 1) {
        ranks_sleep_ms(WAIT_MS);
        signal_all(job, board, 1);
    } else {
        status_assert(job_wait(job, &awaited.wait, &err), HSDP_OK, &err);
        ck_assert_uint_lt(cpu_ms() - before_ms, CPU_MAX_MS);
    }
    test_job_end(job);
}

static void dedicated_rank(uint32_t rank, void *shared)
{
    idle_rank(rank, false, shared);
}

static void crowded_rank(uint32_t rank, void *shared)
{
    idle_rank(rank, true, shared);
}

START_TEST(wait_that_lasts_leaves_the_processor_alone)
{
    struct board *board = ranks_memory(sizeof(*board));

    board->cpu = sched_getcpu();
    ranks_run(2, LIMIT_MS, _i == 0 ? dedicated_rank : crowded_rank, board);
}
END_TEST

START_TEST(time_of_a_busy_processor_is_seen)
{
    uint64_t before_ms = cpu_ms();

    while (cpu_ms() - before_ms < CPU_BUSY_MS) {
    }
    ck_assert_uint_ge(cpu_ms() - before_ms, CPU_MAX_MS);
}
END_TEST

/* ---------------------------------------------------------------------------------- who wakes */

static struct control_rank *control_of(struct hsdp_job *job, uint32_t rank)
{
    return &atomic_load(&job->control)->ranks[rank];
}

/* Until rank 0 sleeps and wants to be woken by these, and by nobody else. */
static void wakers_await(struct hsdp_job *job, uint64_t wakers)
{
    while (atomic_load(&control_of(job, 0)->sleeps_for) != wakers) {
        ranks_sleep_ms(1);
    }
}

/* Rank 0 is played: it would sleep now and then wake up to look around. */
static void rung_rank(uint32_t rank, void *shared)
{
    struct board *board = shared;
    struct hsdp_job *job = test_job_open("60");
    uint32_t before;

    if (rank == 0) {
        atomic_store(&control_of(job, 0)->sleeps_for, UINT64_C(1) << 1);
    }
    ranks_meet(&board->n_done, 3);
    before = atomic_load(&control_of(job, 0)->bell);
    if (rank == 2) {
        signal_all(job, board, 1);
        ck_assert_uint_eq(atomic_load(&control_of(job, 0)->bell), before);
        atomic_store(&board->n_worked, 1);
    } else if (rank == 1) {
        while (atomic_load(&board->n_worked) == 0) {
            ranks_sleep_ms(1);
        }
        signal_all(job, board, 1);
        ck_assert_uint_eq(atomic_load(&control_of(job, 0)->bell), before + 1);
        atomic_store(&board->n_worked, 2);
    }
    while (atomic_load(&board->n_worked) < 2) {
        ranks_sleep_ms(1);
    }
    atomic_store(&control_of(job, rank)->sleeps_for, 0);
    test_job_end(job);
}

START_TEST(signal_rings_once_and_only_who_sleeps_for_its_rank)
{
    ranks_run(3, LIMIT_MS, rung_rank, ranks_memory(sizeof(struct board)));
}
END_TEST

/* Rank 0 waits for both; they come in the order of `first` and the other. */
static void both_rank(uint32_t rank, uint32_t first, struct board *board)
{
    static const uint32_t peers[] = {1, 2};
    struct hsdp_job *job = test_job_open("60");
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct awaited awaited;

    awaited_init(&awaited, board, peers, 2);
    if (rank == 0) {
        status_assert(job_wait(job, &awaited.wait, &err), HSDP_OK, &err);
    } else {
        while (rank != first && atomic_load(&board->n_worked) == 0) {
            ranks_sleep_ms(1);
        }
        wakers_await(job, UINT64_C(1) << (rank == first ? 1 : 3 - first)); /* who is missing */
        signal_all(job, board, 1);
        atomic_store(&board->n_worked, 1);
    }
    ranks_meet(&board->n_done, 3);
    test_job_end(job);
}

static void ascending_rank(uint32_t rank, void *shared)
{
    both_rank(rank, 1, shared);
}

static void descending_rank(uint32_t rank, void *shared)
{
    both_rank(rank, 2, shared);
}

START_TEST(wait_for_two_wants_to_be_woken_by_one_that_is_missing)
{
    ranks_run(3, LIMIT_MS, _i == 0 ? ascending_rank : descending_rank,
              ranks_memory(sizeof(struct board)));
}
END_TEST

/* -------------------------------------------------------------------------------- open work */

struct task {
    struct work work;
    struct awaited awaited;
    struct board *board;
};

static int32_t task_progress(struct work *work, struct hsdp_error *reterr)
{
    struct task *task = (struct task *)work;

    (void)reterr;
    if (!wait_is_met(&task->awaited.wait)) {
        return HSDP_PENDING;
    }
    atomic_store(&task->board->n_worked, 1);
    return HSDP_OK;
}

static const struct wait *task_blocker(struct work *work)
{
    return &((struct task *)work)->awaited.wait;
}

static void task_finish(struct work *work, int32_t status)
{
    (void)work;
    (void)status;
}

/* Rank 0 waits for rank 1, which waits until rank 0's open work has gone on, which rank 2 lets. */
static void work_rank(uint32_t rank, bool has_more_blockers, struct board *board)
{
    static const uint32_t peers[] = {1, 2};
    struct hsdp_job *job = test_job_open("60");
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct task task = {.board = board,
                        .work = {.progress = task_progress,
                                 .blocker = task_blocker,
                                 .finish = task_finish,
                                 .has_more_blockers = has_more_blockers}};
    struct awaited awaited;

    awaited_init(&awaited, board, peers, 1);
    awaited_init(&task.awaited, board, peers + 1, 1);
    if (rank == 0) {
        status_assert(job_work_start(job, &task.work, NULL, &err), HSDP_OK, &err);
        status_assert(job_wait(job, &awaited.wait, &err), HSDP_OK, &err);
    } else if (rank == 2) {
        wakers_await(job, has_more_blockers ? UINT64_MAX : 6);
        signal_all(job, board, 1);
    } else {
        while (atomic_load(&board->n_worked) == 0) {
            ranks_sleep_ms(1);
        }
        wakers_await(job, UINT64_C(1) << 1);
        signal_all(job, board, 1);
    }
    ranks_meet(&board->n_done, 3);
    test_job_end(job);
}

static void exact_work_rank(uint32_t rank, void *shared)
{
    work_rank(rank, false, shared);
}

static void vague_work_rank(uint32_t rank, void *shared)
{
    work_rank(rank, true, shared);
}

START_TEST(wait_wants_to_be_woken_for_open_work_as_well)
{
    ranks_run(3, LIMIT_MS, _i == 0 ? exact_work_rank : vague_work_rank,
              ranks_memory(sizeof(struct board)));
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("wait");
    TCase *tcase = tcase_create("wait");

    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, wait_that_lasts_leaves_the_processor_alone, 0, 2);
    tcase_add_test(tcase, ranks_bound_to_a_processor_each_are_not_crowded);
    tcase_add_test(tcase, ranks_bound_to_one_processor_are_crowded);
    tcase_add_test(tcase, time_of_a_busy_processor_is_seen);
    tcase_add_test(tcase, signal_rings_once_and_only_who_sleeps_for_its_rank);
    tcase_add_loop_test(tcase, wait_for_two_wants_to_be_woken_by_one_that_is_missing, 0, 2);
    tcase_add_loop_test(tcase, wait_wants_to_be_woken_for_open_work_as_well, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
