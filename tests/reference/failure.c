/* SPDX-License-Identifier: Apache-2.0 */
/* Failures: the first reason of a job, and how the host hears of it. */
#include <stdio.h>

#include "job.h"

void job_fail_here(hsdp_job *job, const struct hsdp_error *error)
{
    bool is_first;

    pthread_mutex_lock(&job->mutex);
    is_first = !atomic_load(&job->is_failed) && !job->is_farewell;
    if (is_first) {
        job->failure = *error;
        job->had_operations = job->operations != NULL;
        atomic_store(&job->is_failed, true);
        pthread_cond_broadcast(&job->changed);
    }
    pthread_mutex_unlock(&job->mutex);
    if (is_first && job->spec.on_abort != NULL) {
        job->spec.on_abort(job->spec.user, error);
    }
}

void job_fail(hsdp_job *job, const struct hsdp_error *error)
{
    struct packet packet = {0};

    error_write(error, &packet);
    if (job->fd >= 0 && !packet.is_bad) {
        connection_send(job, (struct frame){.kind = FRAME_FAILED}, &packet);
    }
    packet_free(&packet);
    job_fail_here(job, error);
}

int32_t job_failure(const struct call *call, hsdp_job *job, const struct operation *waited)
{
    struct hsdp_error error;
    bool is_own;

    pthread_mutex_lock(&job->mutex);
    error = job->failure;
    is_own = waited != NULL || (job->had_operations && !job->was_told);
    job->was_told = true;
    pthread_mutex_unlock(&job->mutex);
    if (waited != NULL) {
        error.ticket = waited->ticket;
        error.waited_ms = now_ms() - waited->start_ms;
        if (error.status == HSDP_ERR_PEER_LOST) { /* in which each waited, it says by itself */
            error.sequence = waited->sequence;
            snprintf(error.operation, sizeof(error.operation), "%s", waited->name);
            snprintf(error.group, sizeof(error.group), "%s", waited->group);
            snprintf(error.unit, sizeof(error.unit), "%s", waited->unit);
        }
    }
    if (!is_own) {
        error.status = HSDP_ERR_ABORTED;
        snprintf(error.message, sizeof(error.message), "%s: the job has failed: %.400s", call->name,
                 job->failure.message);
    }
    return error_pass(call, &error);
}
