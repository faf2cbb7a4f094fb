/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of CUDA devices on the doubles: connected, with memory of the device and tasks. */
#ifndef TESTS_DEVICE_JOBS_H
#define TESTS_DEVICE_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/nccl_engine.h"

#define DEVICE_MAX_RANKS 8u

/** Where the doubles are, for the jobs of this process; `faults` are those of double.h, or NULL. */
void device_environment(const char *faults);

/** A job of this process's launcher environment on the device of its rank; not connected. */
struct hsdp_job *device_job_create(const char *seconds);
/** The same on a device, entered. */
struct hsdp_job *device_job_create_on(const char *seconds, int32_t device_id);
/** Entered and connected. */
struct hsdp_job *device_job_open(const char *seconds);

/** Memory of the device, of n floats, all `value`; until device_job_end. */
float *device_floats(struct hsdp_job *job, uint64_t n, float value);
/** Writes and reads them; all that was enqueued has been done before. */
void device_write(struct hsdp_job *job, float *dst, const float *values, uint64_t n);
void device_read(struct hsdp_job *job, float *ret_values, const float *src, uint64_t n);
/** Each of n floats there is `value`. */
void device_check(struct hsdp_job *job, const float *src, uint64_t n, float value);

/** Closes and destroys the job; everything has to be done. */
void device_job_end(struct hsdp_job *job);
/** Destroys it as it is. */
void device_job_drop(struct hsdp_job *job);

/* A task with one collective, or none. */
enum device_kind {
    DEVICE_NOTHING,
    DEVICE_COPY, /* of recv from send */
    DEVICE_ALL_GATHER,
    DEVICE_REDUCE_SCATTER,
    DEVICE_ALL_REDUCE,
    DEVICE_BROADCAST,
    DEVICE_EXCHANGE, /* all to all */
};

struct device_task {
    struct nccl_task task; /* first */
    enum device_kind kind;
    struct gpu *gpu;
    struct nccl_group *group;
    const float *send;
    float *recv;
    uint64_t n; /* floats of the smaller side; of an exchange per member */
    uint32_t root;
    uint32_t n_runs;
    uint32_t n_completed;
};

/** Fills it and makes its event; operation "test", sequence 1, on the reduce stream. */
void device_task_init(struct device_task *task, struct hsdp_job *job, enum device_kind kind,
                      struct nccl_group *group);
/** Submits it, and returns its ticket. */
uint64_t device_task_submit(struct device_task *task);
/** The whole way: makes, submits, awaits and ends an all-reduce of one float; its status. */
int32_t device_all_reduce(struct hsdp_job *job, struct nccl_group *group, struct hsdp_error *ret);

/** The communicator of all ranks. */
struct nccl_group *device_world(struct hsdp_job *job);

#endif /* TESTS_DEVICE_JOBS_H */
