/* SPDX-License-Identifier: Apache-2.0 */
/* A host that hears of failures by its callback, and computes meanwhile. */
#ifndef TESTS_LISTENER_H
#define TESTS_LISTENER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "comm/job.h"

/* What a rank's host hears of its job, and what it does then. */
struct listener {
    struct hsdp_job *job;
    _Atomic uint32_t n_told;
    pid_t thread;              /* on which it was told */
    _Atomic uint32_t sleep_ms; /* how long it keeps the thread */
    _Atomic bool destroys;
    struct hsdp_error reason;
};

/** A job of this name (NULL = the default), not connected. */
void listener_create(struct listener *listener, const char *name);
/** Connects, and goes out of the call as a host does that computes. */
void listener_open(struct listener *listener);
/** Until it has been told. Not bounded: the limit of the test is. */
void listener_await(struct listener *listener);
/** The next call says what the host has been told, and nobody tells it again. */
void listener_expect(struct listener *listener, int32_t status, const char *part);
int32_t listener_close(struct listener *listener, struct hsdp_error *err);

#endif /* TESTS_LISTENER_H */
