/* SPDX-License-Identifier: Apache-2.0 */
/* A host program that joins jobs of its launcher, on the CPU and on a CUDA device, and says how. */
#include <stdio.h>

#include "hsdp/hsdp.h"
#include "hsdp/loader.h"

/* "cpu: 0 shm", or "cuda: -10 the sentence". */
static void job_try(const struct hsdp_api *api, const char *name, int32_t device_type)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_job *job = NULL;
    int32_t status;

    spec.name = name;
    spec.device_type = device_type;
    status = api->job->create(&spec, &job, &err);
    if (status == HSDP_OK) {
        status = api->job->connect(job, &err);
    }
    if (status == HSDP_OK) {
        status = api->job->info(job, &info, &err);
    }
    printf("%s: %d %s\n", name, (int)status, status == HSDP_OK ? info.backend : err.message);
    api->job->destroy(job);
}

int main(void)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    hsdp_plugin *plugin = NULL;

    if (hsdp_plugin_load(NULL, &plugin, &err) != HSDP_OK) {
        printf("load: %d %s\n", (int)err.status, err.message);
        return 1;
    }
    job_try(hsdp_plugin_api(plugin), "cpu", HSDP_DEVICE_CPU);
    job_try(hsdp_plugin_api(plugin), "cuda", HSDP_DEVICE_CUDA);
    job_try(hsdp_plugin_api(plugin), "again", HSDP_DEVICE_CPU);
    hsdp_plugin_unload(plugin);
    return 0;
}
