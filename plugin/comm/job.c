/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: making, connecting, closing and giving them back; who may enter. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/pages.h"
#include "comm/forks.h"
#include "comm/group_internal.h"
#include "comm/job_internal.h"
#include "comm/nccl_engine.h"
#include "comm/nodes.h"
#include "comm/process.h"
#include "comm/rendezvous.h"
#include "comm/watchdog.h"

/* ---------------------------------------------------------------------------------- making */

static int32_t spec_check(const struct hsdp_job_spec *spec, struct hsdp_error *reterr)
{
    if (spec->name != NULL && (spec->name[0] == '\0' || strlen(spec->name) > JOB_NAME_MAX)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: the name \"%.80s\" has %zu bytes; 1 to %u are allowed", spec->name,
                         strlen(spec->name), JOB_NAME_MAX);
    }
    if ((spec->kv_put == NULL) != (spec->kv_get == NULL)) {
        return error_set(reterr, HSDP_ERR_INVALID, "job: kv_put and kv_get go together; %s is NULL",
                         spec->kv_put == NULL ? "kv_put" : "kv_get");
    }
    if ((spec->memory_alloc == NULL) != (spec->memory_free == NULL)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: memory_alloc and memory_free go together; %s is NULL",
                         spec->memory_alloc == NULL ? "memory_alloc" : "memory_free");
    }
    if (spec->device_type != 0 && spec->device_type != HSDP_DEVICE_CPU &&
        spec->device_type != HSDP_DEVICE_CUDA) {
        return error_set(reterr, HSDP_ERR_UNSUPPORTED,
                         "job: device type %" PRId32
                         "; this version computes on CPUs (%d) and CUDA devices (%d)",
                         spec->device_type, HSDP_DEVICE_CPU, HSDP_DEVICE_CUDA);
    }
    if (spec->device_type == HSDP_DEVICE_CUDA && spec->device_id < 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: device_id is %" PRId32 "; CUDA devices count from 0",
                         spec->device_id);
    }
    return HSDP_OK;
}

/* The text that the meeting point of this node derives from; another attempt has the same. */
static int32_t identity_write(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct text text = TEXT_INIT;

    launch_meeting_key(&job->launch, &job->run, &text);
    if (text.is_failed) {
        text_fini(&text);
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "job: no memory for its identity");
    }
    job->identity = text.chars; /* handed over */
    return HSDP_OK;
}

/* Where ranks meet, and how they know each other. */
static int32_t identity_read(struct hsdp_job *job, struct hsdp_error *reterr)
{
    bool has_store = job->host.kv_put != NULL;
    bool is_known = false;
    uint16_t port = 0;
    int32_t status;

    if (settings_text(&job->settings, "rendezvous_port") != NULL) {
        port = (uint16_t)settings_integer(&job->settings, "rendezvous_port");
    }
    status = launch_place_read(&job->launch, has_store, port, reterr);
    if (status != HSDP_OK || has_store) {
        return status;
    }
    status = launch_identity_read(&job->launch, &job->run, &is_known, reterr);
    if (status != HSDP_OK || job->launch.world_ranks == 1) {
        return status;
    }
    if (!is_known) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "job: nothing in the environment tells this run of %" PRIu32
                         " ranks from others: set MASTER_ADDR and MASTER_PORT or HSDP_RUN_ID, or "
                         "give kv_put and kv_get",
                         job->launch.world_ranks);
    }
    return identity_write(job, reterr);
}

/* A page that reads zero in every child, so that a look at it needs no system call. */
static int32_t alive_map(struct hsdp_job *job, struct hsdp_error *reterr)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t *page =
        mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "job: no page: %s", strerror(errno));
    }
    if (madvise(page, page_bytes, MADV_WIPEONFORK) != 0) {
        error_set(reterr, HSDP_ERR_UNAVAILABLE, "job: this kernel cannot wipe a page on fork: %s",
                  strerror(errno));
        munmap(page, page_bytes);
        return HSDP_ERR_UNAVAILABLE;
    }
    *page = 1;
    job->alive = page;
    return HSDP_OK;
}

static void fields_init(struct hsdp_job *job, const struct hsdp_job_spec *spec)
{
    snprintf(job->name, sizeof(job->name), "%s", spec->name == NULL ? "default" : spec->name);
    job->host.kv_put = spec->kv_put;
    job->host.kv_get = spec->kv_get;
    job->host.log = spec->log;
    job->host.on_abort = spec->on_abort;
    job->host.user = spec->user;
    job->host.memory = (struct gpu_allocator){spec->memory_alloc, spec->memory_free, spec->user};
    job->device_id = spec->device_id;
    job->failed_ticket = UINT64_MAX;
    atomic_init(&job->n_refs, 1);
    job->listener = -1;
    job->leader_bell = -1;
    atomic_init(&job->abort_fd, -1);
    job->position = &job->own_position;
    for (uint32_t rank = 0; rank < LAUNCH_MAX_RANKS; rank++) {
        job->pidfds[rank] = PIDFD_UNKNOWN;
        job->connections[rank] = -1;
    }
}

int32_t job_create(const struct hsdp_job_spec *spec, struct hsdp_job **ret_job,
                   struct hsdp_error *reterr)
{
    struct hsdp_job *job = calloc(1, sizeof(*job));
    int32_t status;

    if (job == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "job: cannot allocate %zu bytes",
                         sizeof(*job));
    }
    pthread_mutex_init(&job->lock, NULL);
    fields_init(job, spec);
    status = spec_check(spec, reterr);
    if (status == HSDP_OK) {
        status = launch_read(spec, &job->launch, reterr);
    }
    if (status == HSDP_OK) {
        status = alive_map(job, reterr);
    }
    if (status == HSDP_OK) {
        status = job_settings_init(job, spec, reterr);
    }
    if (status == HSDP_OK) {
        status = identity_read(job, reterr);
    }
    if (status == HSDP_OK) {
        status = counters_init(job, reterr);
    }
    if (status == HSDP_OK && job->launch.world_ranks > 1) {
        status = forks_add(job, reterr);
    }
    if (status != HSDP_OK) {
        job_unref(job);
        return status;
    }
    *ret_job = job;
    return HSDP_OK;
}

/* ----------------------------------------------------------------------------- giving back */

static void job_free(struct hsdp_job *job)
{
    struct counter *counter = atomic_load(&job->counters);

    communicators_free(job);
    if (job->alive == NULL || *job->alive != 0) { /* a child has no device */
        space_fini(&job->space);
    }
    nccl_engine_free(job);
    forks_remove(job);
    if (job->alive != NULL) {
        watchdog_free(job);
    }
    control_unmap(atomic_load(&job->control));
    standstill_fini(job);
    while (counter != NULL) {
        struct counter *next = atomic_load(&counter->next);

        free(counter);
        counter = next;
    }
    free(job->cancelled);
    settings_fini(&job->settings);
    free(job->identity);
    if (job->alive != NULL) {
        munmap((void *)(uintptr_t)job->alive, (size_t)sysconf(_SC_PAGESIZE));
    }
    pthread_mutex_destroy(&job->lock);
    free(job);
}

void job_ref(struct hsdp_job *job)
{
    atomic_fetch_add(&job->n_refs, 1u);
}

void job_unref(struct hsdp_job *job)
{
    if (atomic_fetch_sub(&job->n_refs, 1u) == 1) {
        job_free(job);
    }
}

void job_destroy(struct hsdp_job *job)
{
    struct control *control;

    if (job == NULL) {
        return;
    }
    control = atomic_load(&job->control);
    if (*job->alive != 0 && control != NULL && atomic_load(&job->state) != JOB_CLOSED) {
        atomic_store(&control->ranks[job->node_index].has_left, 1u);
        control_ring_all(control);
    }
    work_fail_all(job, HSDP_ERR_ABORTED);
    atomic_store(&job->state, JOB_DESTROYED);
    nodes_stop(job);
    watchdog_stop(job);
    nccl_engine_close(job);
    job_unref(job);
}

/* -------------------------------------------------------------------------------- entering */

int32_t job_check_process(const struct hsdp_job *job, struct hsdp_error *reterr)
{
    if (*job->alive == 0) {
        return error_set(reterr, HSDP_ERR_FORKED,
                         "job: made in another process, of which this one is a child");
    }
    return HSDP_OK;
}

/* In a child another thread of the parent may hold the lock for ever; there is no other here. */
void job_lock(struct hsdp_job *job)
{
    if (*job->alive != 0) {
        pthread_mutex_lock(&job->lock);
    }
}

void job_unlock(struct hsdp_job *job)
{
    if (*job->alive != 0) {
        pthread_mutex_unlock(&job->lock);
    }
}

int32_t job_enter_failed(struct hsdp_job *job, struct hsdp_error *reterr)
{
    int32_t status = job_check_process(job, reterr);
    uint64_t away_ns;

    if (status != HSDP_OK) {
        return status;
    }
    if (atomic_exchange(&job->is_inside, 1u) != 0) {
        return error_set(reterr, HSDP_ERR_BUSY,
                         "job: a call is inside already, on this or "
                         "another thread");
    }
    if (atomic_load(&job->state) == JOB_DESTROYED) {
        job_leave(job);
        return error_set(reterr, HSDP_ERR_STATE, "job: destroyed");
    }
    if (job->left_ns != 0) {
        away_ns = clock_now_ns() - job->left_ns;
        job->away_ns += away_ns >= AWAY_MIN_NS ? away_ns : 0;
        job->left_ns = 0;
    }
    position_enter(job->position);
    return HSDP_OK;
}

void job_call(struct hsdp_job *job, const char *name)
{
    position_call(job->position, name);
}

int32_t job_enter(struct hsdp_job *job, struct hsdp_error *reterr)
{
    int32_t status = job_enter_failed(job, reterr);

    if (status == HSDP_OK && failure_first(job) != NULL) {
        status = failure_refuse(job, reterr);
        job_leave(job);
    }
    return status;
}

void job_leave(struct hsdp_job *job)
{
    if (job->first_work != NULL) {
        job->left_ns = clock_now_ns(); /* open work's clocks stand still while the host is away */
    }
    position_leave(job->position, job->left_ns);
    atomic_store(&job->is_inside, 0u);
}

/* ------------------------------------------------------------------------------ connecting */

/* Opens all peers' processes. Whoever has died before is missing in the exchange that follows. */
static int32_t peers_watch(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);

    if (control->ranks[job->node_index].pid != (uint32_t)getpid()) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE,
                         "connect: process %ld is number %" PRIu32
                         " to the leader of its node: ranks live in different process "
                         "namespaces",
                         (long)getpid(), control->ranks[job->node_index].pid);
    }
    for (uint32_t rank = 0; rank < control->n_ranks; rank++) {
        if (rank == job->node_index) {
            continue;
        }
        job->pidfds[rank] = process_open(control->ranks[rank].pid);
        if (job->pidfds[rank] < 0) {
            job->pidfds[rank] = errno == ESRCH ? PIDFD_GONE : PIDFD_NONE;
        }
    }
    return HSDP_OK;
}

/* Whoever holds the meeting has counted this rank in. */
static void node_index_find(struct hsdp_job *job)
{
    const struct control *control = atomic_load(&job->control);

    while (job->node_index + 1 < control->n_ranks &&
           control->ranks[job->node_index].rank != job->launch.rank) {
        job->node_index++;
    }
    assert(control->ranks[job->node_index].rank == job->launch.rank);
}

struct control_size job_control_size(const struct hsdp_job *job)
{
    struct control_size size = {.n_ranks = job->launch.local_ranks,
                                .world_ranks = job->launch.world_ranks};

    size.n_records = (uint64_t)settings_integer(&job->settings, "flight_records");
    return size;
}

/* From here on everybody on this node sees what this rank does, and did since start_ns. */
static void recorder_open(struct hsdp_job *job, uint64_t start_ns)
{
    struct control *control = atomic_load(&job->control);
    struct wait what = {.operation = "connect"};

    position_copy(&control->ranks[job->node_index].position, &job->own_position);
    job->position = &control->ranks[job->node_index].position;
    job->flight = control_flight(control, job->node_index);
    /* In vain is no harm: it is only slower then. */
    pages_populate(job->flight.ring, flight_ring_bytes(job->flight.max_records), true);
    atomic_store(&job->is_recording, 1u);
    job->connecting = flight_begin(&job->flight, &what, 0, start_ns, start_ns);
}

/* Watches the peers and serves the other nodes. Where that fails on a leader of several nodes,
 * nobody carries the exchange that follows: the job fails then, and nodes_stop tells them. */
static int32_t watching_start(struct hsdp_job *job, struct hsdp_error *reterr)
{
    struct hsdp_error err;
    int32_t status = peers_watch(job, &err);

    if (status == HSDP_OK) {
        status = standstill_init(job, &err);
    }
    if (status == HSDP_OK) {
        status = watchdog_start(job, &err);
    }
    if (status == HSDP_OK) {
        status = nodes_start(job, &err);
    }
    if (status != HSDP_OK && job->nodes != NULL) {
        error_where(&err, "connect", NULL, NULL);
        failure_raise(job, &err);
        return failure_tell(job, reterr);
    }
    if (status != HSDP_OK && reterr != NULL) {
        *reterr = err;
    }
    return status;
}

static int32_t ranks_meet(struct hsdp_job *job, uint64_t start_ns, uint64_t deadline_ns,
                          struct hsdp_error *reterr)
{
    int32_t status;

    if (atomic_load(&job->abort_fd) < 0) {
        atomic_store(&job->abort_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    if (atomic_load(&job->abort_fd) < 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "connect: no event: %s", strerror(errno));
    }
    status = rendezvous_meet(job, deadline_ns, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    node_index_find(job);
    wait_init(job);
    recorder_open(job, start_ns);
    failure_share(job); /* an abort during the last moments of the meeting */
    status = watching_start(job, reterr);
    if (status != HSDP_OK && job->nodes != NULL) {
        return status;
    }
    /* Twice: what a rank has opened before the first is right if its peer comes to the second. */
    for (int round = 0; round < 2; round++) {
        status = exchange_agree_by(job, "connect", status, deadline_ns, reterr);
    }
    return status;
}

/* Models of this job lie on the device from here on. */
static int32_t device_open(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr)
{
    const struct space_patience patience = {.look = job_device_look, .user = job};
    struct hsdp_error err;
    int32_t status = nccl_engine_open(job, deadline_ns, reterr);

    if (status != HSDP_OK) {
        return status;
    }
    status = space_cuda(job_gpu(job), job->kernels, &patience, &job->space, &err);
    status = exchange_agree_by(job, "connect", status, deadline_ns, &err);
    if (status != HSDP_OK && reterr != NULL) {
        *reterr = err;
    }
    return status;
}

int32_t job_connect(struct hsdp_job *job, struct hsdp_error *reterr)
{
    uint64_t seconds = (uint64_t)settings_integer(&job->settings, "init_timeout_seconds");
    uint64_t deadline_ns = clock_deadline_ns(seconds * 1000u);
    uint64_t start_ns = clock_now_ns();
    struct control_size size;
    struct control *control = NULL;
    int32_t status;

    if (atomic_load(&job->state) != JOB_CREATED || atomic_load(&job->control) != NULL) {
        return error_set(reterr, HSDP_ERR_STATE, "job: connect comes once, and it has come");
    }
    if (job->launch.world_ranks == 1) {
        size = job_control_size(job);
        status = control_map(-1, &size, &control, reterr);
        if (status == HSDP_OK) {
            atomic_store(&job->control, control);
            wait_init(job);
            recorder_open(job, start_ns);
            failure_share(job);
        }
    } else {
        status = ranks_meet(job, start_ns, deadline_ns, reterr);
    }
    if (status == HSDP_OK && job->has_device) {
        status = device_open(job, deadline_ns, reterr);
    }
    job_record_end(job, job->connecting, status);
    if (status != HSDP_OK) {
        nodes_stop(job);
        watchdog_stop(job);
        nccl_engine_close(job);
        forks_close(job);
        return status;
    }
    atomic_store(&job->state, JOB_CONNECTED);
    job_log(job, HSDP_LOG_INFO, "job \"%s\": rank %" PRIu32 " of %" PRIu32 " is connected",
            job->name, job->launch.rank, job->launch.world_ranks);
    return HSDP_OK;
}

/* --------------------------------------------------------------------------------- closing */

/* An exchange of nothing: all have come. From here on the death of one is no loss. */
static int32_t farewell_wait(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr)
{
    struct control *control = atomic_load(&job->control);
    struct mailbox mailbox = {.operation = JOB_FAREWELL};
    int32_t status = exchange_run(job, &mailbox, deadline_ns, reterr);

    if (status == HSDP_OK) {
        atomic_store(&control->ranks[job->node_index].has_closed, 1u);
    }
    return status;
}

int32_t job_close(struct hsdp_job *job, struct hsdp_error *reterr)
{
    uint64_t deadline_ns = clock_deadline_ns(job_timeout_ms(job));
    int32_t status = HSDP_OK;

    if (failure_first(job) != NULL) {
        return failure_refuse(job, reterr);
    }
    if (atomic_load(&job->state) != JOB_CONNECTED) {
        return error_set(reterr, HSDP_ERR_STATE, "job: close needs a connected job; this one is %s",
                         atomic_load(&job->state) == JOB_CLOSED ? "closed" : "not connected");
    }
    while (job->first_work != NULL && status == HSDP_OK) {
        struct waiting waiting = {.ticket = job->first_work->ticket, .give_up_ns = UINT64_MAX};

        status = wait_run(job, &waiting, reterr);
    }
    if (status == HSDP_OK) {
        status = farewell_wait(job, deadline_ns, reterr);
    }
    if (status == HSDP_OK) {
        atomic_store(&job->state, JOB_CLOSED);
    }
    return status;
}
