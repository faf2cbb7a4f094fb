/* SPDX-License-Identifier: Apache-2.0 */
/* Forks: a child keeps no descriptor of its parent's jobs open. */
#include "comm/forks.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/job_internal.h"
#include "comm/nodes.h"
#include "comm/wire.h"

/*
 * The one state outside of objects: a child has to find the jobs of its parent. The handlers go
 * with the plugin when it is unloaded; a library's are dropped then by the C library itself.
 */
static pthread_mutex_t forks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hsdp_job *first_job;
static bool has_handlers;

static void descriptor_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

static void descriptors_close(struct hsdp_job *job)
{
    descriptor_close(&job->listener);
    descriptor_close(&job->leader_bell);
    for (uint32_t rank = 0; rank < LAUNCH_MAX_RANKS; rank++) {
        descriptor_close(&job->connections[rank]);
        if (job->pidfds[rank] >= 0) {
            descriptor_close(&job->pidfds[rank]);
        }
    }
}

static void abort_fd_close(struct hsdp_job *job)
{
    int fd = atomic_exchange(&job->abort_fd, -1);

    descriptor_close(&fd);
}

/* Nobody is in the middle of serving a connection to another node then. */
static void fork_prepare(void)
{
    pthread_mutex_lock(&forks_lock);
    for (struct hsdp_job *job = first_job; job != NULL; job = job->next_job) {
        nodes_lock(job->nodes);
    }
}

static void fork_parent(void)
{
    for (struct hsdp_job *job = first_job; job != NULL; job = job->next_job) {
        nodes_unlock(job->nodes);
    }
    pthread_mutex_unlock(&forks_lock);
}

/* Only what is allowed between fork and exec in a program of several threads. */
static void fork_child(void)
{
    for (struct hsdp_job *job = first_job; job != NULL; job = job->next_job) {
        descriptors_close(job);
        abort_fd_close(job);
        nodes_unlock(job->nodes);
        nodes_close_in_child(job->nodes);
        job->nodes = NULL;
    }
    pthread_mutex_unlock(&forks_lock);
}

int forks_open_listener(struct hsdp_job *job)
{
    pthread_mutex_lock(&forks_lock);
    job->listener = wire_socket();
    pthread_mutex_unlock(&forks_lock);
    return job->listener;
}

void forks_close_listener(struct hsdp_job *job)
{
    pthread_mutex_lock(&forks_lock);
    descriptor_close(&job->listener);
    pthread_mutex_unlock(&forks_lock);
}

void forks_set_nodes(struct hsdp_job *job, struct nodes *nodes)
{
    pthread_mutex_lock(&forks_lock);
    job->nodes = nodes;
    pthread_mutex_unlock(&forks_lock);
}

int32_t forks_add(struct hsdp_job *job, struct hsdp_error *reterr)
{
    int failed = 0;

    pthread_mutex_lock(&forks_lock);
    if (!has_handlers) {
        failed = pthread_atfork(fork_prepare, fork_parent, fork_child);
        has_handlers = failed == 0;
    }
    if (failed == 0) {
        job->next_job = first_job;
        first_job = job;
    }
    pthread_mutex_unlock(&forks_lock);
    return failed == 0 ? HSDP_OK
                       : error_set(reterr, HSDP_ERR_NO_MEMORY, "job: no handler of forks: %s",
                                   strerror(failed));
}

void forks_close(struct hsdp_job *job)
{
    pthread_mutex_lock(&forks_lock);
    descriptors_close(job);
    pthread_mutex_unlock(&forks_lock);
}

void forks_remove(struct hsdp_job *job)
{
    struct hsdp_job **link = &first_job;

    pthread_mutex_lock(&forks_lock);
    while (*link != NULL && *link != job) {
        link = &(*link)->next_job;
    }
    if (*link != NULL) {
        *link = job->next_job;
    }
    descriptors_close(job);
    abort_fd_close(job);
    pthread_mutex_unlock(&forks_lock);
}
