/* SPDX-License-Identifier: Apache-2.0 */
/* What fails around NCCL: collectives that differ, errors that come later, calls that never return.
 */
#include <check.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_jobs.h"
#include "jobs.h"
#include "ranks.h"
#include "suite.h"

#define LIMIT_MS 60000u
#define N_ELEMS  100u

/* A task with room for any collective. */
static void task_open(struct device_task *task, struct hsdp_job *job, enum device_kind kind,
                      uint64_t n)
{
    device_task_init(task, job, kind, device_world(job));
    task->n = n;
    task->send = device_floats(job, 2 * N_ELEMS, 1.0f);
    task->recv = device_floats(job, 2 * N_ELEMS, 0.0f);
}

/* One collective, awaited; what comes of it. */
static int32_t collective(struct hsdp_job *job, enum device_kind kind, uint64_t n,
                          struct hsdp_error *ret)
{
    struct device_task task;
    int32_t status;

    task_open(&task, job, kind, n);
    status = nccl_task_submit(&task.task, NULL, ret);
    if (status == HSDP_OK) {
        status = nccl_task_await(&task.task, ret);
    }
    nccl_task_fini(&task.task);
    return status;
}

/* Memory that a collective of a failed job may still be using goes with the process. */
static void job_drop(struct hsdp_job *job)
{
    job_leave(job);
    job_destroy(job);
}

/* ---------------------------------------------------------------------------------- mismatches */

/* What both ranks do, and what the error says of them. */
static const struct pairing {
    enum device_kind kinds[2];
    uint64_t n[2];
    const char *words[2];
} pairings[] = {
    {{DEVICE_ALL_REDUCE, DEVICE_BROADCAST},
     {N_ELEMS, N_ELEMS},
     {"all-reduce (sum) of 100 elements of float32", "broadcast from index 0 of 100 elements"}},
    {{DEVICE_ALL_GATHER, DEVICE_REDUCE_SCATTER},
     {N_ELEMS, N_ELEMS},
     {"all-gather of 100 elements of float32", "reduce-scatter of 100 elements of float32"}},
    {{DEVICE_ALL_REDUCE, DEVICE_ALL_REDUCE}, {N_ELEMS, 99}, {"of 100 elements", "of 99 elements"}},
};

static void differ_rank(uint32_t rank, void *shared)
{
    const struct pairing *pairing = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    device_environment(NULL);
    job = device_job_open("30");
    status_assert(collective(job, pairing->kinds[rank], pairing->n[rank], &err), HSDP_ERR_MISMATCH,
                  &err);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(strstr(err.message, pairing->words[i]) != NULL, "%s", err.message);
    }
    job_drop(job);
}

START_TEST(collectives_that_differ_are_told_with_both_sides)
{
    ranks_run(2, LIMIT_MS, differ_rank, (void *)(uintptr_t)&pairings[_i]);
}
END_TEST

/* -------------------------------------------------------------------------------- late failures */

static void late_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    int32_t status = HSDP_OK;

    (void)rank;
    (void)shared;
    device_environment("async_error@1=1");
    job = device_job_open("30");
    for (int i = 0; i < 100 && status == HSDP_OK; i++) {
        status = device_all_reduce(job, device_world(job), &err);
        ranks_sleep_ms(20);
    }
    status_assert(status, HSDP_ERR_DEVICE, &err);
    ck_assert_msg(strstr(err.message, "on rank 1: ") != NULL, "%s", err.message);
    job_drop(job);
}

START_TEST(error_that_comes_later_fails_the_job_on_all_ranks)
{
    ranks_run(2, LIMIT_MS, late_rank, NULL);
}
END_TEST

/* As the host's graph would be made; the double puts nothing into one, and refuses the work. */
static void stream_capture(struct hsdp_job *job, bool is_captured)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    cu_result (*capture)(cu_stream, bool) = NULL;
    void *library = dlopen(getenv("HSDP_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    void *symbol;

    ck_assert_ptr_nonnull(library);
    symbol = dlsym(library, "double_capture");
    ck_assert_ptr_nonnull(symbol);
    memcpy(&capture, &symbol, sizeof(symbol));
    status_assert(gpu_enter(job_gpu(job), &err), HSDP_OK, &err);
    ck_assert_int_eq(capture(job_gpu(job)->reduce_stream, is_captured), CU_OK);
    gpu_leave(job_gpu(job));
    dlclose(library);
}

/* A graph of the host may hold the collective: its communicator is revoked, not aborted. */
static void captured_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct device_task task;
    struct hsdp_job *job;
    int32_t status;

    (void)rank;
    device_environment(NULL);
    job = device_job_open("30");
    task_open(&task, job, DEVICE_ALL_REDUCE, N_ELEMS);
    ranks_meet(shared, 2); /* the first to fail would fail what the other allocates */
    stream_capture(job, true);
    status = nccl_task_submit(&task.task, NULL, &err);
    if (status == HSDP_OK) { /* else the other one was faster */
        status = nccl_task_await(&task.task, &err);
    }
    status_assert(status, HSDP_ERR_DEVICE, &err);
    stream_capture(job, false);
    nccl_task_fini(&task.task);
    job_drop(job);
}

START_TEST(job_with_captured_collectives_is_revoked)
{
    ranks_run(2, LIMIT_MS, captured_rank, ranks_memory(sizeof(_Atomic uint32_t)));
}
END_TEST

/* --------------------------------------------------------------------------------------- hanging
 */

/* What hangs, and whether the process cannot have another job after it. */
static const struct hang {
    const char *faults;
    bool is_wedged[2];
} hangs[] = {
    {"peer_absent@1=1", {false, false}},
    {"calls_block@1=1", {false, true}},
    {"peer_absent@1=1,abort_hangs@0", {true, false}},
};

/* After a job that wedged the process no other connects. */
static void wedged_check_next(bool is_wedged)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;
    int32_t status;

    setenv("HSDP_ATTEMPT", "1", 1);
    job = device_job_create("5");
    status = job_connect(job, &err);
    ck_assert_int_ne(status, HSDP_OK);
    if (is_wedged) {
        status_assert(status, HSDP_ERR_UNAVAILABLE, &err);
        ck_assert_msg(strstr(err.message, "wedged") != NULL, "%s", err.message);
    }
    job_drop(job);
}

static void hang_rank(uint32_t rank, void *shared)
{
    const struct hang *hang = shared;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    device_environment(hang->faults);
    job = device_job_open("2");
    status_assert(device_all_reduce(job, device_world(job), &err), HSDP_ERR_TIMEOUT, &err);
    job_drop(job);
    if (hang->is_wedged[0] || hang->is_wedged[1]) {
        wedged_check_next(hang->is_wedged[rank]);
    }
}

START_TEST(collective_that_hangs_fails_in_time_and_wedges_whom_nothing_helps)
{
    ranks_run(2, LIMIT_MS, hang_rank, (void *)(uintptr_t)&hangs[_i]);
}
END_TEST

static const char *const init_faults[] = {"init_hangs", "init_blocks"};

static void init_rank(uint32_t rank, void *shared)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job;

    (void)rank;
    device_environment(shared);
    setenv("HSDP_INIT_TIMEOUT_SECONDS", "2", 1);
    job = device_job_create("2");
    status_assert(job_connect(job, &err), HSDP_ERR_TIMEOUT, &err);
    job_drop(job);
}

START_TEST(connect_that_hangs_fails_in_time)
{
    ranks_run(2, LIMIT_MS, init_rank, (void *)(uintptr_t)init_faults[_i]);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("nccl_failure");
    TCase *tcase = tcase_create("nccl_failure");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, collectives_that_differ_are_told_with_both_sides, 0, N_OF(pairings));
    tcase_add_test(tcase, error_that_comes_later_fails_the_job_on_all_ranks);
    tcase_add_test(tcase, job_with_captured_collectives_is_revoked);
    tcase_add_loop_test(tcase, collective_that_hangs_fails_in_time_and_wedges_whom_nothing_helps, 0,
                        N_OF(hangs));
    tcase_add_loop_test(tcase, connect_that_hangs_fails_in_time, 0, N_OF(init_faults));
    suite_add_tcase(suite, tcase);
    return suite;
}
