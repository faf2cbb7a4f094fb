/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of CUDA devices on the doubles. */
#include "device_jobs.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/space.h"
#include "jobs.h"

#define MAX_BUFFERS 64u

/* What a test has allocated; one job at a time. */
static struct {
    float *base;
    uint64_t n_bytes;
} buffers[MAX_BUFFERS];
static uint32_t n_buffers;

void device_environment(const char *faults)
{
    const char *folder = getenv("HSDP_TEST_DOUBLES");
    char path[4096];

    ck_assert_msg(folder != NULL, "HSDP_TEST_DOUBLES is not set: run make check");
    snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
    setenv("HSDP_CUDA_LIBRARY", path, 1);
    snprintf(path, sizeof(path), "%s/libnccl.so.2", folder);
    setenv("HSDP_NCCL_LIBRARY", path, 1);
    setenv("HSDP_DOUBLE_FAULTS", faults == NULL ? "" : faults, 1);
}

struct hsdp_job *device_job_create_on(const char *seconds, int32_t device_id)
{
    static const char *const keys[] = {"nccl_timeout_seconds"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = NULL;

    spec.settings.keys = keys;
    spec.settings.values = &seconds;
    spec.settings.n_settings = 1;
    spec.device_type = HSDP_DEVICE_CUDA;
    spec.device_id = device_id;
    status_assert(job_create(&spec, &job, &err), HSDP_OK, &err);
    status_assert(job_enter(job, &err), HSDP_OK, &err);
    return job;
}

struct hsdp_job *device_job_create(const char *seconds)
{
    const char *rank = getenv("RANK");

    return device_job_create_on(seconds, rank == NULL ? 0 : atoi(rank));
}

struct hsdp_job *device_job_open(const char *seconds)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct hsdp_job *job = device_job_create(seconds);

    status_assert(job_connect(job, &err), HSDP_OK, &err);
    return job;
}

void device_write(struct hsdp_job *job, float *dst, const float *values, uint64_t n)
{
    struct space *space = job_space(job);
    struct hsdp_error err = HSDP_ERROR_INIT;

    status_assert(space->ops->write(space, dst, values, n * sizeof(*dst), &err), HSDP_OK, &err);
}

void device_read(struct hsdp_job *job, float *ret_values, const float *src, uint64_t n)
{
    struct space *space = job_space(job);
    struct hsdp_error err = HSDP_ERROR_INIT;

    status_assert(space->ops->read(space, ret_values, src, n * sizeof(*src), &err), HSDP_OK, &err);
}

void device_check(struct hsdp_job *job, const float *src, uint64_t n, float value)
{
    float *values = calloc(n, sizeof(*values));

    ck_assert_ptr_nonnull(values);
    device_read(job, values, src, n);
    for (uint64_t i = 0; i < n; i++) {
        ck_assert_msg(values[i] == value, "element %llu is %g instead of %g", (unsigned long long)i,
                      (double)values[i], (double)value);
    }
    free(values);
}

float *device_floats(struct hsdp_job *job, uint64_t n, float value)
{
    struct space *space = job_space(job);
    struct hsdp_error err = HSDP_ERROR_INIT;
    float *values = calloc(n, sizeof(*values));
    void *base = NULL;

    ck_assert_ptr_nonnull(values);
    ck_assert_uint_lt(n_buffers, MAX_BUFFERS);
    status_assert(space->ops->alloc(space, n * sizeof(*values), "a test", &base, &err), HSDP_OK,
                  &err);
    for (uint64_t i = 0; i < n; i++) {
        values[i] = value;
    }
    device_write(job, base, values, n);
    free(values);
    buffers[n_buffers].base = base;
    buffers[n_buffers++].n_bytes = n * sizeof(*values);
    return base;
}

static void buffers_free(struct hsdp_job *job)
{
    struct space *space = job_space(job);

    while (n_buffers > 0) {
        n_buffers--;
        space->ops->free(space, buffers[n_buffers].base, buffers[n_buffers].n_bytes);
    }
}

void device_job_drop(struct hsdp_job *job)
{
    buffers_free(job);
    job_leave(job);
    job_destroy(job);
}

void device_job_end(struct hsdp_job *job)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    buffers_free(job);
    status_assert(job_close(job, &err), HSDP_OK, &err);
    device_job_drop(job);
}

/* ------------------------------------------------------------------------------------- tasks */

static int32_t messages_run(struct device_task *task, struct hsdp_error *reterr)
{
    struct nccl_message messages[2u * DEVICE_MAX_RANKS];
    uint32_t n = task->group->n_ranks;
    uint64_t n_bytes = task->n * sizeof(float);

    for (uint32_t peer = 0; peer < n; peer++) {
        messages[2 * peer] =
            (struct nccl_message){.address = (void *)(uintptr_t)(task->send + task->n * peer),
                                  .n_bytes = n_bytes,
                                  .peer = peer,
                                  .is_send = true};
        messages[2 * peer + 1] = (struct nccl_message){
            .address = task->recv + task->n * peer, .n_bytes = n_bytes, .peer = peer};
    }
    return nccl_exchange(&task->task, task->group, messages, 2 * n, reterr);
}

static int32_t task_run_kind(struct nccl_task *base, struct hsdp_error *reterr)
{
    struct device_task *task = (struct device_task *)base;

    task->n_runs++;
    switch (task->kind) {
    case DEVICE_COPY:
        return gpu_copy(task->gpu, task->recv, task->send, task->n * sizeof(float), base->stream,
                        reterr);
    case DEVICE_ALL_GATHER:
        return nccl_all_gather(base, task->group, task->send, task->recv, task->n, NCCL_FLOAT32,
                               reterr);
    case DEVICE_REDUCE_SCATTER:
        return nccl_reduce_scatter(base, task->group, task->send, task->recv, task->n, NCCL_FLOAT32,
                                   reterr);
    case DEVICE_ALL_REDUCE:
        return nccl_all_reduce(base, task->group, task->send, task->recv, task->n, NCCL_FLOAT32,
                               NCCL_SUM, reterr);
    case DEVICE_BROADCAST:
        return nccl_broadcast(base, task->group, task->send, task->recv, task->n, NCCL_FLOAT32,
                              task->root, reterr);
    case DEVICE_EXCHANGE:
        return messages_run(task, reterr);
    default:
        return HSDP_OK;
    }
}

static int32_t task_complete_one(struct nccl_task *base, struct hsdp_error *reterr)
{
    (void)reterr;
    ((struct device_task *)base)->n_completed++;
    return HSDP_OK;
}

void device_task_init(struct device_task *task, struct hsdp_job *job, enum device_kind kind,
                      struct nccl_group *group)
{
    struct hsdp_error err = HSDP_ERROR_INIT;

    memset(task, 0, sizeof(*task));
    status_assert(nccl_task_init(job, &task->task, &err), HSDP_OK, &err);
    task->kind = kind;
    task->gpu = job_gpu(job);
    task->group = group;
    task->task.stream = job_gpu(job)->reduce_stream;
    task->task.run = task_run_kind;
    task->task.complete = task_complete_one;
    task->task.label.operation = "test";
    task->task.label.group = group == NULL ? NULL : group->name;
    task->task.label.sequence = 1;
    task->task.groups[0] = group;
    task->task.n_groups = kind == DEVICE_NOTHING || kind == DEVICE_COPY ? 0 : 1;
}

uint64_t device_task_submit(struct device_task *task)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint64_t ticket = 0;

    status_assert(nccl_task_submit(&task->task, &ticket, &err), HSDP_OK, &err);
    return ticket;
}

int32_t device_all_reduce(struct hsdp_job *job, struct nccl_group *group, struct hsdp_error *ret)
{
    struct device_task task;
    int32_t status;

    device_task_init(&task, job, DEVICE_ALL_REDUCE, group);
    task.send = device_floats(job, 1, 1.0f);
    task.recv = device_floats(job, 1, 0.0f);
    task.n = 1;
    status = nccl_task_submit(&task.task, NULL, ret);
    if (status == HSDP_OK) {
        status = nccl_task_await(&task.task, ret);
    }
    nccl_task_fini(&task.task);
    return status;
}

struct nccl_group *device_world(struct hsdp_job *job)
{
    return nccl_world(job_nccl(job));
}
