/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup: names, resolved in a thread that can be left alone. */
#include "net/lookup.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"

#define MAX_HOST_CHARS 256u

enum {
    LOOKUP_RUNS,
    LOOKUP_DONE,
    LOOKUP_LEFT, /* alone: whoever comes second frees */
};

struct lookup {
    char host[MAX_HOST_CHARS];
    struct addresses addresses;
    int answer; /* of getaddrinfo */
    int system_errno;
    int fd;
    pthread_t thread;
    bool has_thread;
    _Atomic uint32_t state;
};

static void addresses_take(struct lookup *lookup, const struct addrinfo *found)
{
    struct addresses *rows = &lookup->addresses;

    for (const struct addrinfo *row = found; row != NULL && rows->n < ADDRESS_MAX;
         row = row->ai_next) {
        if (address_copy(&rows->rows[rows->n], row->ai_addr, row->ai_addrlen)) {
            rows->n++;
        }
    }
}

static void host_resolve(struct lookup *lookup, int flags)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *found = NULL;

    lookup->answer = getaddrinfo(lookup->host, NULL, &hints, &found);
    lookup->system_errno = errno;
    if (lookup->answer == 0) {
        addresses_take(lookup, found);
        freeaddrinfo(found);
    }
}

static void lookup_free(struct lookup *lookup)
{
    if (lookup->fd >= 0) {
        close(lookup->fd);
    }
    free(lookup);
}

static void *thread_run(void *argument)
{
    struct lookup *lookup = argument;
    int fd = lookup->fd;
    uint64_t one = 1;
    uint32_t runs = LOOKUP_RUNS;
    ssize_t n_written;

    host_resolve(lookup, 0);
    if (!atomic_compare_exchange_strong(&lookup->state, &runs, LOOKUP_DONE)) {
        lookup_free(lookup);
        return NULL;
    }
    n_written = write(fd, &one, sizeof(one)); /* the owner joins this thread before it closes */
    (void)n_written;
    return NULL;
}

/* All signals are the host's: none is handled in this thread. */
static int thread_start(struct lookup *lookup)
{
    sigset_t all;
    sigset_t old;
    int status;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    status = pthread_create(&lookup->thread, NULL, thread_run, lookup);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

/* A thread that is left alone still runs this code: whatever holds it is never unloaded. */
static void code_keep(void)
{
    Dl_info info;

    if (dladdr((void *)(uintptr_t)lookup_start, &info) != 0 && info.dli_fname != NULL) {
        dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

int32_t lookup_start(const char *host, struct lookup **ret, struct hsdp_error *reterr)
{
    struct lookup *lookup = calloc(1, sizeof(*lookup));
    int status;

    if (lookup == NULL) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "net: no memory to look for \"%s\"", host);
    }
    lookup->fd = -1;
    snprintf(lookup->host, sizeof(lookup->host), "%s", host);
    host_resolve(lookup, AI_NUMERICHOST);
    if (lookup->answer == 0 || strlen(host) >= sizeof(lookup->host)) {
        lookup->state = LOOKUP_DONE;
        *ret = lookup;
        return HSDP_OK;
    }
    lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = lookup->fd < 0 ? errno : thread_start(lookup);
    if (status != 0) {
        lookup_free(lookup);
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "net: no thread to look for \"%s\": %s",
                         host, strerror(status));
    }
    lookup->has_thread = true;
    *ret = lookup;
    return HSDP_OK;
}

int lookup_fd(const struct lookup *lookup)
{
    return lookup->fd;
}

int32_t lookup_result(struct lookup *lookup, struct addresses *ret, struct hsdp_error *reterr)
{
    if (atomic_load(&lookup->state) == LOOKUP_RUNS) {
        return HSDP_PENDING;
    }
    if (lookup->answer == EAI_SYSTEM) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "net: host \"%s\": %s", lookup->host,
                         strerror(lookup->system_errno));
    }
    if (lookup->answer != 0 || lookup->addresses.n == 0) {
        return error_set(reterr, HSDP_ERR_UNAVAILABLE, "net: host \"%s\": %s", lookup->host,
                         lookup->answer != 0 ? gai_strerror(lookup->answer) : "no address");
    }
    *ret = lookup->addresses;
    return HSDP_OK;
}

void lookup_end(struct lookup *lookup)
{
    uint32_t runs = LOOKUP_RUNS;
    pthread_t thread;

    if (lookup == NULL) {
        return;
    }
    if (lookup->has_thread) {
        thread = lookup->thread;
        if (atomic_load(&lookup->state) == LOOKUP_RUNS) {
            code_keep();
        }
        if (atomic_compare_exchange_strong(&lookup->state, &runs, LOOKUP_LEFT)) {
            pthread_detach(thread); /* the record may be gone already, its number is valid */
            return;
        }
        pthread_join(lookup->thread, NULL); /* it is at its end */
    }
    lookup_free(lookup);
}

void lookup_end_in_child(struct lookup *lookup)
{
    if (lookup != NULL) {
        lookup_free(lookup);
    }
}
