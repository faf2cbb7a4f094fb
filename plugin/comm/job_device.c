/* SPDX-License-Identifier: Apache-2.0 */
/* A call that waits for a device: its deadline, and failures meanwhile. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job_internal.h"

int32_t job_device_look(void *user, uint64_t waited_ns, struct hsdp_error *reterr)
{
    struct hsdp_job *job = user;
    uint64_t waited_ms = waited_ns / CLOCK_NS_PER_MS;
    struct hsdp_error err;

    if (failure_first(job) != NULL) {
        return failure_tell(job, reterr);
    }
    if (waited_ms < job_timeout_ms(job)) {
        return HSDP_OK;
    }
    error_set(&err, HSDP_ERR_TIMEOUT,
              "device: timeout after %.1f s on rank %" PRIu32
              ": its device has not come to what was enqueued",
              (double)waited_ns / 1e9, job->launch.rank);
    error_where(&err, "device", NULL, NULL);
    err.waited_ms = waited_ms;
    failure_raise(job, &err);
    return failure_tell(job, reterr);
}
