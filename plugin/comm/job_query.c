/* SPDX-License-Identifier: Apache-2.0 */
/* What a job tells of itself. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/job_internal.h"

int32_t job_info(const struct hsdp_job *job, struct hsdp_job_info *ret_info,
                 struct hsdp_error *reterr)
{
    (void)reterr;
    memset(ret_info, 0, sizeof(*ret_info));
    ret_info->struct_size = sizeof(*ret_info);
    ret_info->backend = job->has_device ? "nccl" : "shm";
    ret_info->rank = job->launch.rank;
    ret_info->world_ranks = job->launch.world_ranks;
    ret_info->local_rank = job->launch.local_rank;
    ret_info->local_ranks = job->launch.local_ranks;
    ret_info->n_tickets_open = atomic_load(&job->n_open);
    ret_info->timeout_ms = job_timeout_ms(job);
    ret_info->is_connected = job_is_connected(job);
    return HSDP_OK;
}

bool job_has_device(const struct hsdp_job *job)
{
    return job->has_device;
}

uint32_t job_rank(const struct hsdp_job *job)
{
    return job->launch.rank;
}

uint32_t job_world_ranks(const struct hsdp_job *job)
{
    return job->launch.world_ranks;
}

struct probe *job_probe(const struct hsdp_job *job)
{
    return job->probe;
}

bool job_is_connected(const struct hsdp_job *job)
{
    return atomic_load(&job->state) == JOB_CONNECTED;
}

bool job_is_closed(const struct hsdp_job *job)
{
    return atomic_load(&job->state) == JOB_CLOSED;
}

int32_t job_check_host(const struct hsdp_job *job, const char *operation, struct hsdp_error *reterr)
{
    if (!job->launch.is_one_host) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "%s: %" PRIu32 " of %" PRIu32
                         " ranks are on this host; backend shm moves data within one host",
                         operation, job->launch.local_ranks, job->launch.world_ranks);
    }
    return HSDP_OK;
}

uint64_t job_timeout_ms(const struct hsdp_job *job)
{
    return atomic_load(&job->timeout_ms);
}

uint64_t job_model_number(struct hsdp_job *job)
{
    return ++job->n_models;
}

const struct kernels *job_kernels(const struct hsdp_job *job)
{
    return job->kernels;
}

struct space *job_space(const struct hsdp_job *job)
{
    return (struct space *)(uintptr_t)&job->space;
}

void job_log(struct hsdp_job *job, int32_t level, const char *format, ...)
{
    char line[1024];
    va_list args;

    if (job->host.log == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    job->host.log(job->host.user, level, line);
}
