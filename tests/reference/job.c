/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: the functions of the table, from create to destroy. */
#include "job.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group.h"
#include "intake.h"
#include "reference.h"

static const struct intake spec_intake = {"spec", 120, sizeof(struct hsdp_job_spec)};
static const struct intake info_intake = {"ret_info", 56, sizeof(struct hsdp_job_info)};

/* ------------------------------------------------------------------------------- entry of calls */

int32_t job_look(const struct call *call, const hsdp_job *job)
{
    if (!call_has(call, "job", job)) {
        return HSDP_ERR_INVALID;
    }
    if (job->pid != getpid()) {
        return error_raise(call, HSDP_ERR_FORKED, "%s: process %d made the job, this is a child",
                           call->name, (int)job->pid);
    }
    return HSDP_OK;
}

int32_t job_enter_to_ask(const struct call *call, const hsdp_job *job)
{
    int32_t status = job_look(call, job);

    if (status == HSDP_OK && atomic_exchange(&((hsdp_job *)job)->is_busy, true)) {
        status =
            error_raise(call, HSDP_ERR_BUSY, "%s: another thread is inside of the job", call->name);
    }
    if (status == HSDP_OK) {
        atomic_store(&((hsdp_job *)job)->last_call_ms, now_ms());
    }
    return status;
}

int32_t job_enter(const struct call *call, hsdp_job *job)
{
    int32_t status = job_enter_to_ask(call, job);

    if (status != HSDP_OK) {
        return status;
    }
    if (atomic_load(&job->is_failed)) {
        return job_leave(job, job_failure(call, job, NULL));
    }
    if (job->is_closed) {
        return job_leave(job, error_raise(call, HSDP_ERR_STATE,
                                          "%s: the job is closed; nothing more was expected",
                                          call->name));
    }
    job_progress(job);
    return HSDP_OK;
}

int32_t job_enter_connected(const struct call *call, hsdp_job *job)
{
    int32_t status = job_enter(call, job);

    if (status == HSDP_OK && !job->is_connected) {
        return job_leave(job, error_raise(call, HSDP_ERR_STATE,
                                          "%s: the job is not connected; job.connect was expected",
                                          call->name));
    }
    return status;
}

int32_t job_leave(const hsdp_job *job, int32_t status)
{
    atomic_store(&((hsdp_job *)job)->last_call_ms, now_ms());
    atomic_store(&((hsdp_job *)job)->is_busy, false);
    return status;
}

uint64_t job_timeout_ms(const hsdp_job *job)
{
    if (job->n_phases > 0) {
        return job->phases[job->n_phases - 1].timeout_ms;
    }
    return (uint64_t)settings_number(&job->settings, "nccl_timeout_seconds") * 1000;
}

/* -------------------------------------------------------------------------------------- create */

static int32_t spec_check(const struct call *call, const struct hsdp_job_spec *spec)
{
    size_t n = spec->name != NULL ? strlen(spec->name) : 1;

    if (n < 1 || n > 63) {
        return error_raise(call, HSDP_ERR_INVALID, "%s: a name of %zu bytes; 1 to 63 are allowed",
                           call->name, n);
    }
    if ((spec->kv_put == NULL) != (spec->kv_get == NULL) ||
        (spec->memory_alloc == NULL) != (spec->memory_free == NULL)) {
        return error_raise(call, HSDP_ERR_INVALID,
                           "%s: of two callbacks that belong together one is NULL", call->name);
    }
    if (spec->device_type != 0 && spec->device_type != HSDP_DEVICE_CPU) {
        return error_raise(call, HSDP_ERR_UNSUPPORTED,
                           "%s: device_type %d; this plugin knows only the CPU", call->name,
                           (int)spec->device_type);
    }
    return HSDP_OK;
}

static void job_init_locks(hsdp_job *job)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&job->mutex, NULL);
    pthread_mutex_init(&job->send_mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&job->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static int32_t job_fill(const struct call *call, hsdp_job *job)
{
    int32_t status = spec_check(call, &job->spec);
    const char *port;

    if (status == HSDP_OK) {
        status = settings_read(call, HOME_JOB, &job->spec.settings, NULL, &job->settings);
    }
    if (status == HSDP_OK) {
        status = job_settings_derive(call, &job->settings);
    }
    if (status == HSDP_OK) {
        status = job_settings_check(call, &job->settings);
    }
    if (status == HSDP_OK) {
        port = settings_text(&job->settings, "rendezvous_port");
        status = launch_read(call, &job->spec, port != NULL ? port : "", &job->launch);
    }
    snprintf(job->name, sizeof(job->name), "%s",
             job->spec.name != NULL ? job->spec.name : "default");
    return status;
}

static int32_t table_create(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                            struct hsdp_error *reterr)
{
    const struct call call = {"job.create", reterr};
    hsdp_job *job;
    int32_t status;

    if (!call_has(&call, "ret_job", ret_job)) {
        return HSDP_ERR_INVALID;
    }
    job = calloc(1, sizeof(*job));
    if (job == NULL) {
        return error_raise(&call, HSDP_ERR_NO_MEMORY, "job.create: no memory");
    }
    job_init_locks(job);
    job->n_references = 1;
    job->pid = getpid();
    job->fd = job->watch_fd = job->wake_fd = -1;
    job->last_call_ms = now_ms();
    status = intake_take(&call, &spec_intake, spec, &job->spec);
    if (status == HSDP_OK) {
        status = job_fill(&call, job);
    }
    if (status != HSDP_OK) {
        job_drop(job);
        return status;
    }
    *ret_job = job;
    return HSDP_OK;
}

/* ------------------------------------------------------------------------------- close, destroy */

/* Waits for what is still under way. */
static int32_t operations_end(const struct call *call, hsdp_job *job)
{
    int32_t status = HSDP_OK;

    while (status == HSDP_OK) {
        uint64_t ticket;

        pthread_mutex_lock(&job->mutex);
        ticket = job->operations != NULL ? job->operations->ticket : 0;
        pthread_mutex_unlock(&job->mutex);
        if (ticket == 0) {
            break;
        }
        status = job_wait(call, job, ticket, UINT64_MAX);
    }
    return status;
}

static int32_t table_close(hsdp_job *job, struct hsdp_error *reterr)
{
    const struct call call = {"job.close", reterr};
    int32_t status = job_enter_connected(&call, job);
    struct packet answer = {0};
    struct meeting_text text;
    struct request request;

    if (status != HSDP_OK) {
        return status;
    }
    status = operations_end(&call, job);
    if (status == HSDP_OK) {
        request_of_job(&call, job, &text, &request);
        request.key = KEY_CLOSE;
        status = job_meet(&call, job, &request, &answer);
        packet_free(&answer);
    }
    if (status == HSDP_OK) {
        job->is_connected = false;
        job->is_closed = true;
    }
    return job_leave(job, status);
}

void job_hold(hsdp_job *job)
{
    atomic_fetch_add(&job->n_references, 1);
}

void job_drop(hsdp_job *job)
{
    if (atomic_fetch_sub(&job->n_references, 1) > 1) {
        return;
    }
    operations_free(job);
    while (job->group_counts != NULL) {
        struct group_count *first = job->group_counts;

        job->group_counts = first->next;
        free(first);
    }
    settings_free(&job->settings);
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->mutex);
    pthread_mutex_destroy(&job->send_mutex);
    free(job);
}

static void descriptors_close(hsdp_job *job)
{
    int *const all[] = {&job->fd, &job->watch_fd, &job->wake_fd};

    for (int i = 0; i < 3; i++) {
        if (*all[i] >= 0) {
            close(*all[i]);
        }
        *all[i] = -1;
    }
}

/* A thread is still in a callback of the host: its code has to stay. */
static void plugin_keep(void)
{
    Dl_info info;

    if (dladdr(&spec_intake, &info) != 0) {
        dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

static void table_destroy(hsdp_job *job)
{
    if (job == NULL) {
        return;
    }
    if (job->pid != getpid()) { /* the parent goes on */
        server_forget(job->server);
        job->server = NULL;
        descriptors_close(job);
        job_drop(job);
        return;
    }
    if (!connection_close(job)) {
        plugin_keep();
        server_stop(job->server);
        return; /* and so does the memory that it uses */
    }
    server_stop(job->server);
    job->server = NULL;
    job->is_connected = false;
    descriptors_close(job);
    job_drop(job);
}

/* ------------------------------------------------------------------------------- abort, status */

static int32_t table_abort(hsdp_job *job, const char *reason, struct hsdp_error *reterr)
{
    const struct call call = {"job.abort", reterr};
    struct hsdp_error error = HSDP_ERROR_INIT;
    int32_t status = job_look(&call, job);

    if (status != HSDP_OK || atomic_load(&job->is_failed)) {
        return status;
    }
    error.status = HSDP_ERR_ABORTED;
    snprintf(error.operation, sizeof(error.operation), "job.abort");
    snprintf(error.message, sizeof(error.message), "%s",
             reason != NULL ? reason : "abort called by the host");
    job_fail_here(job, &error);
    if (job->has_thread) {
        job_fail(job, &error);
    }
    return HSDP_OK;
}

static int32_t table_status(const hsdp_job *job, struct hsdp_error *reterr)
{
    const struct call call = {"job.status", reterr};
    int32_t status = job_look(&call, job);

    if (status != HSDP_OK || !atomic_load(&job->is_failed)) {
        return status;
    }
    return error_pass(&call, &job->failure);
}

static int32_t table_info(const hsdp_job *job, struct hsdp_job_info *ret_info,
                          struct hsdp_error *reterr)
{
    const struct call call = {"job.info", reterr};
    struct hsdp_job_info info = HSDP_JOB_INFO_INIT;
    int32_t status = job_enter_to_ask(&call, job);

    if (status != HSDP_OK) {
        return status;
    }
    status = intake_check(&call, &info_intake, ret_info);
    if (status != HSDP_OK) {
        return job_leave(job, status);
    }
    info.backend = "socket";
    info.rank = job->launch.rank;
    info.world_ranks = job->launch.world_ranks;
    info.local_rank = job->launch.local_rank;
    info.local_ranks = job->launch.local_ranks;
    info.n_tickets_open = job_open_tickets((hsdp_job *)job);
    info.timeout_ms = job_timeout_ms(job);
    info.is_connected = job->is_connected;
    intake_give(&info_intake, &info, ret_info);
    return job_leave(job, HSDP_OK);
}

/* ------------------------------------------------------------------------------ phases, tickets */

static int32_t table_phase_push(hsdp_job *job, const char *phase, uint64_t timeout_ms,
                                struct hsdp_error *reterr)
{
    const struct call call = {"job.phase_push", reterr};
    int32_t status = job_enter(&call, job);
    struct phase *next;

    if (status != HSDP_OK) {
        return status;
    }
    if (!call_has(&call, "phase", phase)) {
        return job_leave(job, HSDP_ERR_INVALID);
    }
    if (strlen(phase) < 1 || strlen(phase) > 63 || timeout_ms < 1) {
        return job_leave(job,
                         error_raise(&call, HSDP_ERR_INVALID,
                                     "job.phase_push: \"%.64s\", %" PRIu64
                                     " ms; a name of 1 to 63 bytes and at least 1 ms are allowed",
                                     phase, timeout_ms));
    }
    if (job->n_phases == MOST_PHASES) {
        return job_leave(job,
                         error_raise(&call, HSDP_ERR_STATE,
                                     "job.phase_push: %d phases are open already", MOST_PHASES));
    }
    pthread_mutex_lock(&job->mutex);
    next = &job->phases[job->n_phases++];
    snprintf(next->name, sizeof(next->name), "%s", phase);
    next->timeout_ms = timeout_ms;
    pthread_mutex_unlock(&job->mutex);
    return job_leave(job, HSDP_OK);
}

static int32_t table_phase_pop(hsdp_job *job, struct hsdp_error *reterr)
{
    const struct call call = {"job.phase_pop", reterr};
    int32_t status = job_enter(&call, job);

    if (status != HSDP_OK) {
        return status;
    }
    if (job->n_phases == 0) {
        return job_leave(job, error_raise(&call, HSDP_ERR_STATE,
                                          "job.phase_pop: no phase is open; job.phase_push was "
                                          "expected"));
    }
    pthread_mutex_lock(&job->mutex);
    job->n_phases--;
    pthread_mutex_unlock(&job->mutex);
    return job_leave(job, HSDP_OK);
}

static int32_t ticket_wait(const struct call *call, hsdp_job *job, uint64_t ticket,
                           uint64_t wait_ms)
{
    int32_t status = job_enter_connected(call, job);

    if (status != HSDP_OK) {
        return status;
    }
    if (ticket > job->n_tickets) {
        return job_leave(job, error_raise(call, HSDP_ERR_INVALID,
                                          "%s: ticket %" PRIu64 " was never handed out; there "
                                          "are %" PRIu64,
                                          call->name, ticket, job->n_tickets));
    }
    for (uint64_t i = 0; i < job->n_orphans; i++) {
        if (job->orphans[i] == ticket) {
            return job_leave(job, error_raise(call, HSDP_ERR_STATE,
                                              "%s: the model or group of ticket %" PRIu64
                                              " was destroyed before it had finished",
                                              call->name, ticket));
        }
    }
    return job_leave(job, job_wait(call, job, ticket, wait_ms));
}

static int32_t table_ticket_wait(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                                 struct hsdp_error *reterr)
{
    const struct call call = {"job.ticket_wait", reterr};

    return ticket_wait(&call, job, ticket, wait_ms);
}

static int32_t table_ticket_order(hsdp_job *job, uint64_t ticket, void *stream,
                                  struct hsdp_error *reterr)
{
    const struct call call = {"job.ticket_order", reterr};
    int32_t status = stream_check(&call, stream);

    return status == HSDP_OK ? ticket_wait(&call, job, ticket, UINT64_MAX) : status;
}

const struct hsdp_job_ops reference_job = {
    .struct_size = sizeof(struct hsdp_job_ops),
    .create = table_create,
    .connect = job_table_connect,
    .close = table_close,
    .destroy = table_destroy,
    .abort = table_abort,
    .status = table_status,
    .info = table_info,
    .setting = job_table_setting,
    .setting_set = job_table_setting_set,
    .phase_push = table_phase_push,
    .phase_pop = table_phase_pop,
    .ticket_wait = table_ticket_wait,
    .ticket_order = table_ticket_order,
};
