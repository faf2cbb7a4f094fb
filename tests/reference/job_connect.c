/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting: where the ranks of a job meet, and what they agree on there. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "job.h"

/* What has to be alike on all ranks. */
static void alike_write(const hsdp_job *job, char *text, size_t n_bytes)
{
    static const char *const alike[] = {
        "backend",
        "nccl_timeout_seconds",
        "init_timeout_seconds",
        "heartbeat_timeout_seconds",
        "peer_silence_seconds",
        "rendezvous_port",
        "flight_records",
    };
    size_t n = (size_t)snprintf(text, n_bytes, "attempt %s\n", job->launch.attempt);

    for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]) && n < n_bytes; i++) {
        const char *value = settings_text(&job->settings, alike[i]);

        n += (size_t)snprintf(text + n, n_bytes - n, "%s=\"%s\"\n", alike[i],
                              value != NULL ? value : "");
    }
}

static int32_t callback_fail(const struct call *call, hsdp_job *job, const char *callback)
{
    struct hsdp_error error = HSDP_ERROR_INIT;

    error.status = HSDP_ERR_UNAVAILABLE;
    snprintf(error.operation, sizeof(error.operation), "%s", call->name);
    snprintf(error.message, sizeof(error.message), "%s: %s of the host failed", call->name,
             callback);
    job_fail_here(job, &error);
    return error_pass(call, &error);
}

/* Rank 0 makes the place known through the host's store, the others learn it there. */
static int32_t place_share(const struct call *call, hsdp_job *job, uint64_t deadline_ms)
{
    struct launch *launch = &job->launch;
    char key[96];
    const struct operation connecting = {.start_ms = now_ms(), .name = "job.connect"};
    uint64_t n_bytes = 0;
    int32_t result = 1;

    snprintf(key, sizeof(key), "hsdp/%s/place", job->name);
    if (launch->rank == 0) {
        snprintf(launch->place, sizeof(launch->place), "hsdp-reference-%d-%p-%" PRIu64,
                 (int)getpid(), (void *)job, now_ms());
        result = job->spec.kv_put(job->spec.user, key, launch->place, sizeof(launch->place));
        return result == 0 ? HSDP_OK : callback_fail(call, job, "kv_put");
    }
    while (result == 1 && now_ms() < deadline_ms) {
        if (atomic_load(&job->is_failed)) {
            return job_failure(call, job, &connecting);
        }
        result = job->spec.kv_get(job->spec.user, key, launch->place, sizeof(launch->place),
                                  &n_bytes, 100);
    }
    launch->place[sizeof(launch->place) - 1] = '\0';
    return result == 0 || result == 1 ? HSDP_OK : callback_fail(call, job, "kv_get");
}

static int32_t server_open(const struct call *call, hsdp_job *job)
{
    int error = server_start(job->launch.place, job->launch.world_ranks, &job->server);

    if (error == EADDRINUSE) {
        return error_raise(call, HSDP_ERR_ADDRESS_IN_USE,
                           "%s: another process is rank 0 of the job \"%s\" already", call->name,
                           job->name);
    }
    if (error != 0) {
        return error_raise(call, HSDP_ERR_UNAVAILABLE, "%s: cannot listen: %s", call->name,
                           strerror(error));
    }
    return HSDP_OK;
}

/* Says who this is, and waits until all others have done so. */
static int32_t ranks_meet(const struct call *call, hsdp_job *job, uint64_t deadline_ms)
{
    struct packet hello = {0}, answer = {0};
    struct meeting_text text;
    struct request request;
    char alike[1024];
    uint64_t now = now_ms();
    int32_t status;

    packet_put_number(&hello, job->launch.rank);
    packet_put_number(&hello, job->launch.world_ranks);
    connection_send(job, (struct frame){.kind = FRAME_HELLO}, &hello);
    packet_free(&hello);
    alike_write(job, alike, sizeof(alike));
    request_of_job(call, job, &text, &request);
    request.key = KEY_CONNECT;
    request.alike = alike;
    request.timeout_ms = deadline_ms > now ? deadline_ms - now : 1;
    status = job_meet(call, job, &request, &answer);
    packet_free(&answer);
    return status;
}

static int32_t job_connect(const struct call *call, hsdp_job *job)
{
    uint64_t deadline_ms =
        now_ms() + (uint64_t)settings_number(&job->settings, "init_timeout_seconds") * 1000;
    int32_t status = HSDP_OK;

    if (job->launch.world_ranks == 1) {
        return HSDP_OK;
    }
    if (job->spec.kv_put != NULL) {
        status = place_share(call, job, deadline_ms);
    }
    if (status == HSDP_OK && job->launch.rank == 0) {
        status = server_open(call, job);
    }
    if (status == HSDP_OK) {
        status = connection_open(call, job, job->launch.place, deadline_ms);
    }
    if (status == HSDP_OK) {
        status = ranks_meet(call, job, deadline_ms);
    }
    return status;
}

int32_t job_table_connect(hsdp_job *job, struct hsdp_error *reterr)
{
    const struct call call = {"job.connect", reterr};
    int32_t status = job_enter(&call, job);

    if (status != HSDP_OK) {
        return status;
    }
    if (job->has_tried) {
        return job_leave(job, error_raise(&call, HSDP_ERR_STATE,
                                          "job.connect: called before; a job connects once"));
    }
    job->has_tried = true;
    status = job_connect(&call, job);
    job->is_connected = status == HSDP_OK;
    return job_leave(job, status);
}
