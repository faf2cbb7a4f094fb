/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL thread on the doubles: communicators, tasks with each collective, tickets, order. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/space.h"
#include "device_jobs.h"
#include "jobs.h"
#include "ranks.h"
#include "suite.h"

#define LIMIT_MS 60000u
#define N_ELEMS  1000u

static const uint32_t sizes[] = {1, 2, 4, 8};

/* ----------------------------------------------------------------------------------- connect */

static void connect_rank(uint32_t rank, void *shared)
{
    uint32_t n_threads = ranks_n_threads();
    struct hsdp_job *job;

    (void)shared;
    device_environment(NULL);
    job = device_job_open("60");
    ck_assert_uint_eq(device_world(job)->n_ranks, job_world_ranks(job));
    ck_assert_uint_eq(device_world(job)->index, rank);
    ck_assert_int_eq(device_world(job)->comm != NULL, job_world_ranks(job) > 1);
    ck_assert_ptr_eq(job_gpu(job), job_space(job)->gpu);
    device_job_end(job);
    ck_assert_uint_le(ranks_n_threads(), n_threads + 3); /* the doubles' own */
}

START_TEST(connect_of_ranks_makes_the_communicator_of_the_world)
{
    ranks_run(sizes[_i], LIMIT_MS, connect_rank, NULL);
}
END_TEST

static void report_rank(uint32_t rank, void *shared)
{
    static const char *const reports[] = {"ledger", "memory"};
    struct hsdp_job *job;
    char text[16384];
    uint64_t n_bytes;

    (void)rank;
    (void)shared;
    device_environment(NULL);
    job = device_job_open("60");
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(job_report(job, reports[i], text, sizeof(text), &n_bytes, NULL), HSDP_OK);
        ck_assert_ptr_nonnull(
            strstr(text, "\"communicators\":[{\"name\":\"world\",\"ranks\":[0,1]"));
        ck_assert_ptr_nonnull(strstr(text, "\"device_bytes\":"));
    }
    ck_assert_uint_gt(device_world(job)->memory_bytes, 0);
    device_job_end(job);
}

START_TEST(reports_name_communicators_and_their_memory)
{
    ranks_run(2, LIMIT_MS, report_rank, NULL);
}
END_TEST

/* One rank needs no NCCL. */
START_TEST(connect_of_one_rank_loads_no_nccl)
{
    struct hsdp_job *job;

    ranks_environment_clear();
    device_environment(NULL);
    setenv("HSDP_NCCL_LIBRARY", "libnccl-that-is-not-there.so", 1);
    job = device_job_open("60");
    device_check(job, device_floats(job, N_ELEMS, 3.0f), N_ELEMS, 3.0f);
    device_job_end(job);
}
END_TEST

static void twice_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    (void)shared;
    (void)rank;
    device_environment(NULL);
    for (int round = 0; round < 3; round++) {
        char attempt[8];
        struct hsdp_job *job;

        snprintf(attempt, sizeof(attempt), "%d", round);
        setenv("HSDP_ATTEMPT", attempt, 1);
        job = device_job_open("60");
        status_assert(device_all_reduce(job, device_world(job), &err), HSDP_OK, &err);
        device_job_end(job);
    }
}

START_TEST(jobs_of_a_process_follow_each_other)
{
    ranks_run(2, LIMIT_MS, twice_rank, NULL);
}
END_TEST

/* A child keeps nothing of it, and can give it back. */
static void fork_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    int wait_status;
    pid_t child;

    (void)rank;
    (void)shared;
    device_environment(NULL);
    job = device_job_open("60");
    child = fork();
    if (child == 0) {
        int32_t status = job_enter(job, &err);

        job_destroy(job);
        _exit(status == HSDP_ERR_FORKED ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &wait_status, 0), child);
    ck_assert_int_eq(wait_status, 0);
    status_assert(device_all_reduce(job, device_world(job), &err), HSDP_OK, &err);
    device_job_end(job);
}

START_TEST(child_gives_the_job_back_without_touching_the_device)
{
    ranks_run(2, LIMIT_MS, fork_rank, NULL);
}
END_TEST

/* -------------------------------------------------------------------------------- collectives */

static float sum_to(uint32_t n)
{
    return (float)(n * (n + 1) / 2);
}

/* Each rank gives rank + 1 everywhere. */
static void collective_check(struct hsdp_job *job, const struct device_task *task)
{
    uint32_t n = task->group->n_ranks;

    switch (task->kind) {
    case DEVICE_ALL_GATHER:
    case DEVICE_EXCHANGE:
        for (uint32_t i = 0; i < n; i++) {
            device_check(job, task->recv + task->n * i, task->n, (float)i + 1.0f);
        }
        break;
    case DEVICE_BROADCAST:
        device_check(job, task->recv, task->n, (float)task->root + 1.0f);
        break;
    default:
        device_check(job, task->recv, task->n, sum_to(n));
    }
}

static void collectives_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    uint32_t n;

    (void)shared;
    device_environment(NULL);
    job = device_job_open("60");
    n = job_world_ranks(job);
    for (int kind = DEVICE_ALL_GATHER; kind <= DEVICE_EXCHANGE; kind++) {
        struct device_task task;

        device_task_init(&task, job, (enum device_kind)kind, device_world(job));
        task.n = N_ELEMS;
        task.root = n - 1;
        task.send = device_floats(job, (uint64_t)N_ELEMS * n, (float)rank + 1.0f);
        task.recv = device_floats(job, (uint64_t)N_ELEMS * n, 0.0f);
        device_task_submit(&task);
        status_assert(nccl_task_await(&task.task, &err), HSDP_OK, &err);
        ck_assert_uint_eq(task.n_runs, 1);
        ck_assert_uint_eq(task.n_completed, 1);
        ck_assert(!nccl_task_is_open(&task.task));
        collective_check(job, &task);
        nccl_task_fini(&task.task);
    }
    ck_assert_uint_eq(device_world(job)->n_collectives, 5);
    device_job_end(job);
}

START_TEST(collectives_of_all_kinds_are_right)
{
    ranks_run(sizes[_i + 1], LIMIT_MS, collectives_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- tickets */

static void ticket_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct device_task task;
    struct hsdp_job *job;
    uint64_t ticket;

    (void)shared;
    device_environment("slow_stream=30000");
    job = device_job_open("60");
    device_task_init(&task, job, DEVICE_ALL_REDUCE, device_world(job));
    task.n = N_ELEMS;
    task.send = device_floats(job, N_ELEMS, (float)rank);
    task.recv = device_floats(job, N_ELEMS, 0.0f);
    for (uint32_t round = 1; round <= 3; round++) {
        ticket = device_task_submit(&task);
        ck_assert_int_eq(job_ticket_wait(job, ticket, 0, &err), HSDP_PENDING);
        ck_assert(nccl_task_is_open(&task.task));
        status_assert(job_ticket_wait(job, ticket, 60000, &err), HSDP_OK, &err);
        ck_assert_uint_eq(task.n_completed, round);
        status_assert(job_ticket_wait(job, ticket, 0, &err), HSDP_OK, &err);
    }
    nccl_task_fini(&task.task);
    device_job_end(job);
}

START_TEST(ticket_is_done_when_the_device_is)
{
    ranks_run(2, LIMIT_MS, ticket_rank, NULL);
}
END_TEST

/* The host's stream copies the result away; the host waits for no more than that. */
static void order_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct device_task task;
    struct hsdp_job *job;
    struct gpu *gpu;
    float *copy;
    uint64_t ticket;

    (void)shared;
    device_environment("slow_stream=20000");
    job = device_job_open("60");
    gpu = job_gpu(job);
    device_task_init(&task, job, DEVICE_ALL_REDUCE, device_world(job));
    task.n = N_ELEMS;
    task.send = device_floats(job, N_ELEMS, (float)rank + 1.0f);
    task.recv = device_floats(job, N_ELEMS, 0.0f);
    copy = device_floats(job, N_ELEMS, 0.0f);
    ticket = device_task_submit(&task);
    status_assert(job_ticket_order(job, ticket, gpu->unshard_stream, &err), HSDP_OK, &err);
    status_assert(
        gpu_copy(gpu, copy, task.recv, N_ELEMS * sizeof(float), gpu->unshard_stream, &err), HSDP_OK,
        &err);
    status_assert(job_space(job)->ops->follow(job_space(job), gpu->unshard_stream, &err), HSDP_OK,
                  &err);
    device_check(job, copy, N_ELEMS, 3.0f);
    status_assert(job_ticket_wait(job, ticket, 60000, &err), HSDP_OK, &err);
    status_assert(job_ticket_order(job, ticket, gpu->unshard_stream, &err), HSDP_OK, &err);
    status_assert(nccl_task_order(&task.task, gpu->unshard_stream, &err), HSDP_OK, &err);
    nccl_task_fini(&task.task);
    device_job_end(job);
}

START_TEST(ticket_order_lets_a_stream_wait_for_the_task)
{
    ranks_run(2, LIMIT_MS, order_rank, NULL);
}
END_TEST

/* ----------------------------------------------------------------------------------- many tasks */

#define N_MANY 24u

/* More than may be queued at a time; the streams take turns. */
static void many_rank(uint32_t rank, void *shared)
{
    const char *faults = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct device_task tasks[N_MANY];
    struct hsdp_job *job;

    device_environment(faults);
    job = device_job_open("60");
    for (uint32_t i = 0; i < N_MANY; i++) {
        device_task_init(&tasks[i], job, DEVICE_ALL_REDUCE, device_world(job));
        tasks[i].n = N_ELEMS;
        tasks[i].send = device_floats(job, N_ELEMS, (float)(rank * i));
        tasks[i].recv = device_floats(job, N_ELEMS, 0.0f);
        if (i % 2 == 1) {
            tasks[i].task.stream = job_gpu(job)->unshard_stream;
        }
    }
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < N_MANY; i++) {
            device_task_submit(&tasks[i]);
        }
        for (uint32_t i = N_MANY; i-- > 0;) {
            status_assert(nccl_task_await(&tasks[i].task, &err), HSDP_OK, &err);
        }
    }
    for (uint32_t i = 0; i < N_MANY; i++) {
        ck_assert_uint_eq(tasks[i].n_completed, 2);
        device_check(job, tasks[i].recv, N_ELEMS, (float)i);
        nccl_task_fini(&tasks[i].task);
    }
    device_job_end(job);
}

START_TEST(tasks_beyond_the_queue_wait_for_their_turn)
{
    ranks_run(2, LIMIT_MS, many_rank, NULL);
}
END_TEST

START_TEST(tasks_of_a_slow_device_wait_for_their_turn)
{
    ranks_run(2, LIMIT_MS, many_rank, (void *)(uintptr_t) "slow_stream=2000");
}
END_TEST

/* A task that has not been awaited when it goes. */
static void leftover_rank(uint32_t rank, void *shared)
{
    struct device_task task;
    struct device_task copy;
    struct hsdp_job *job;

    (void)rank;
    (void)shared;
    device_environment("slow_stream=20000");
    job = device_job_open("60");
    device_task_init(&task, job, DEVICE_ALL_REDUCE, device_world(job));
    device_task_init(&copy, job, DEVICE_COPY, NULL);
    task.n = copy.n = N_ELEMS;
    task.send = device_floats(job, N_ELEMS, 1.0f);
    task.recv = device_floats(job, N_ELEMS, 0.0f);
    copy.send = task.recv;
    copy.recv = device_floats(job, N_ELEMS, 0.0f);
    device_task_submit(&task);
    device_task_submit(&copy);
    nccl_task_fini(&task.task);
    nccl_task_fini(&copy.task);
    nccl_task_fini(&copy.task);
    device_check(job, copy.recv, N_ELEMS, 2.0f);
    device_job_end(job);
}

START_TEST(task_that_goes_is_awaited)
{
    ranks_run(2, LIMIT_MS, leftover_rank, NULL);
}
END_TEST

/* ------------------------------------------------------------------------------------- groups */

/* Rows and columns of a square of four, and the world in another order. */
struct grid {
    uint32_t row[2];
    uint32_t column[2];
    uint32_t turned[4];
    uint32_t self[1];
    struct nccl_wanted wanted[5];
    struct nccl_group *groups[5];
};

static void grid_make(struct hsdp_job *job, uint32_t rank, struct grid *ret)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    *ret = (struct grid){.row = {rank / 2 * 2, rank / 2 * 2 + 1},
                         .column = {rank % 2, rank % 2 + 2},
                         .turned = {3, 2, 1, 0},
                         .self = {rank}};
    ret->wanted[0] = (struct nccl_wanted){ret->row, 2, "row"};
    ret->wanted[1] = (struct nccl_wanted){ret->column, 2, "column"};
    ret->wanted[2] = (struct nccl_wanted){ret->turned, 4, "turned"};
    ret->wanted[3] = (struct nccl_wanted){ret->self, 1, "self"};
    ret->wanted[4] = (struct nccl_wanted){ret->row, 2, "row again"};
    status_assert(nccl_groups_make(job, ret->wanted, 5, ret->groups, &err), HSDP_OK, &err);
}

static void grid_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    struct grid grid;
    struct grid again;

    (void)shared;
    device_environment(NULL);
    job = device_job_open("60");
    grid_make(job, rank, &grid);
    ck_assert_ptr_eq(grid.groups[0], grid.groups[4]);
    ck_assert_str_eq(grid.groups[0]->name, "row");
    ck_assert_ptr_ne(grid.groups[2], device_world(job));
    ck_assert_uint_eq(grid.groups[2]->index, 3 - rank);
    ck_assert_ptr_null(grid.groups[3]->comm);
    grid_make(job, rank, &again);
    ck_assert_mem_eq(grid.groups, again.groups, sizeof(grid.groups));
    for (int i = 0; i < 3; i++) {
        status_assert(device_all_reduce(job, grid.groups[i], &err), HSDP_OK, &err);
    }
    device_job_end(job);
}

START_TEST(groups_are_made_once_for_each_list)
{
    ranks_run(4, LIMIT_MS, grid_rank, NULL);
}
END_TEST

/* Collectives of communicators that overlap, on two streams, without waiting in between. */
static void overlap_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct device_task tasks[12];
    struct hsdp_job *job;
    struct grid grid;

    device_environment("slow_stream=500");
    if (shared != NULL) {
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    }
    job = device_job_open("60");
    grid_make(job, rank, &grid);
    for (uint32_t i = 0; i < 12; i++) {
        device_task_init(&tasks[i], job, DEVICE_ALL_REDUCE, grid.groups[i % 3]);
        tasks[i].n = N_ELEMS;
        tasks[i].send = device_floats(job, N_ELEMS, 1.0f);
        tasks[i].recv = device_floats(job, N_ELEMS, 0.0f);
        if (i % 2 == 1) {
            tasks[i].task.stream = job_gpu(job)->unshard_stream;
        }
    }
    for (uint32_t i = 0; i < 12; i++) {
        device_task_submit(&tasks[i]);
    }
    for (uint32_t i = 0; i < 12; i++) {
        status_assert(nccl_task_await(&tasks[i].task, &err), HSDP_OK, &err);
        device_check(job, tasks[i].recv, N_ELEMS, i % 3 == 2 ? 4.0f : 2.0f);
        nccl_task_fini(&tasks[i].task);
    }
    device_job_end(job);
}

START_TEST(groups_that_overlap_are_launched_in_one_order)
{
    ranks_run(4, LIMIT_MS, overlap_rank, NULL);
}
END_TEST

START_TEST(groups_that_overlap_are_left_to_an_implicit_order)
{
    ranks_run(4, LIMIT_MS, overlap_rank, (void *)(uintptr_t) "");
}
END_TEST

/* Every rank asks for more than one exchange takes. */
static void pairs_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct nccl_wanted wanted[DEVICE_MAX_RANKS];
    struct nccl_group *groups[DEVICE_MAX_RANKS];
    uint32_t pairs[DEVICE_MAX_RANKS][2];
    struct hsdp_job *job;
    uint32_t n = 0;

    (void)shared;
    device_environment(NULL);
    job = device_job_open("60");
    for (uint32_t peer = 0; peer < job_world_ranks(job); peer++) {
        if (peer != rank) {
            pairs[n][0] = rank < peer ? rank : peer;
            pairs[n][1] = rank < peer ? peer : rank;
            wanted[n] = (struct nccl_wanted){pairs[n], 2, "pair"};
            n++;
        }
    }
    status_assert(nccl_groups_make(job, wanted, n, groups, &err), HSDP_OK, &err);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(groups[i]->n_ranks, 2);
    }
    device_job_end(job);
}

START_TEST(groups_of_all_pairs_are_made)
{
    ranks_run(6, LIMIT_MS, pairs_rank, NULL);
}
END_TEST

static void disagree_rank(uint32_t rank, void *shared)
{
    static const uint32_t both[] = {0, 1};
    struct nccl_wanted wanted = {both, 2, "both"};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct nccl_group *group;
    struct hsdp_job *job;

    (void)shared;
    device_environment(NULL);
    job = device_job_open("60");
    status_assert(nccl_groups_make(job, &wanted, rank == 0 ? 1 : 0, &group, &err),
                  HSDP_ERR_MISMATCH, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "rank 0 wants a communicator \"both\" with rank 1"));
    device_job_drop(job);
}

START_TEST(group_that_a_member_does_not_want_is_refused)
{
    ranks_run(3, LIMIT_MS, disagree_rank, NULL);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nccl_engine");
    TCase *tcase = tcase_create("nccl_engine");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, connect_of_ranks_makes_the_communicator_of_the_world, 0,
                        N_OF(sizes));
    tcase_add_test(tcase, reports_name_communicators_and_their_memory);
    tcase_add_test(tcase, connect_of_one_rank_loads_no_nccl);
    tcase_add_test(tcase, jobs_of_a_process_follow_each_other);
    tcase_add_test(tcase, child_gives_the_job_back_without_touching_the_device);
    tcase_add_loop_test(tcase, collectives_of_all_kinds_are_right, 0, N_OF(sizes) - 1);
    tcase_add_test(tcase, ticket_is_done_when_the_device_is);
    tcase_add_test(tcase, ticket_order_lets_a_stream_wait_for_the_task);
    tcase_add_test(tcase, tasks_beyond_the_queue_wait_for_their_turn);
    tcase_add_test(tcase, tasks_of_a_slow_device_wait_for_their_turn);
    tcase_add_test(tcase, task_that_goes_is_awaited);
    tcase_add_test(tcase, groups_are_made_once_for_each_list);
    tcase_add_test(tcase, groups_that_overlap_are_launched_in_one_order);
    tcase_add_test(tcase, groups_that_overlap_are_left_to_an_implicit_order);
    tcase_add_test(tcase, groups_of_all_pairs_are_made);
    tcase_add_test(tcase, group_that_a_member_does_not_want_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
