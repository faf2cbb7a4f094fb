/* SPDX-License-Identifier: Apache-2.0 */
/* The device of a session: which one it is, and what this program keeps there. */
#include <stdlib.h>

#include "session.h"

/*
 * Which rank of its node this is says a job that is never connected: whatever the launcher, the
 * plugin reads it the same way for the one that is.
 */
static int local_rank_ask(struct session *session, uint32_t *ret_local_rank,
                          struct fault *ret_fault)
{
    static const char *const keys[] = {"backend"};
    static const char *const values[] = {"auto"};
    struct hsdp_error error = HSDP_ERROR_INIT;
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    hsdp_job *job = NULL;
    int status = 0;

    spec.settings = (struct hsdp_settings){keys, values, 1};
    if (session->api->job->create(&spec, &job, &error) != HSDP_OK ||
        session->api->job->info(job, &info, &error) != HSDP_OK) {
        status = session_fault(session, &error, ret_fault);
    }
    *ret_local_rank = info.local_rank;
    session->api->job->destroy(job);
    return status;
}

/* Where the plugin looks for the driver, too. */
static const char *library_name(const struct session *session)
{
    const char *name = config_text(session->config, "cuda_library");

    if (name == NULL) {
        name = getenv("HSDP_CUDA_LIBRARY");
    }
    return name == NULL || name[0] == '\0' ? "libcuda.so.1" : name;
}

int session_device(struct session *session, struct fault *ret_fault)
{
    uint32_t local_rank = 0;
    int status;

    if (!session->config->is_cuda) {
        return 0;
    }
    status = local_rank_ask(session, &local_rank, ret_fault);
    if (status == 0) {
        status = device_open(library_name(session), local_rank, &session->device, ret_fault);
    }
    if (status == 0) {
        session->stream = device_stream(session->device);
        status =
            device_host_alloc(session->device, SESSION_STAGE_BYTES, &session->stage, ret_fault);
    }
    if (status == 0) {
        status = device_alloc(session->device, SESSION_MAX_SUMS * sizeof(double), &session->sums,
                              ret_fault);
    }
    return status;
}
