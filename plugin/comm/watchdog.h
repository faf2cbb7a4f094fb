/* SPDX-License-Identifier: Apache-2.0 */
/* The watchdog: a thread per job of several ranks that sees what happens outside of calls. */
#ifndef COMM_WATCHDOG_H
#define COMM_WATCHDOG_H

#include <stdint.h>

#include "hsdp/job.h"

/*
 * Between connect and close it looks for
 *
 *   - ranks of the node whose process has ended, or has become another program, without a farewell;
 *   - a host that makes no call for too long (heartbeat_timeout_seconds, or its phase);
 *   - watchdogs of other ranks that do not go on; its own rank's calls look for that of itself;
 *   - a failure of any rank: it tells the host by on_abort, also while that computes.
 *
 * Whoever is inside of a call says more than the watchdog can: operation, group and unit. So it
 * wakes the call and gives it a moment before it speaks itself. Nothing but on_abort is called back
 * on its thread. It counts the time that it was awake, so that a process which was stopped is not
 * to blame for the time in which it could do nothing.
 */

/** Starts it: part of connect, whose thread is inside. HSDP_ERR_UNAVAILABLE without a thread. */
int32_t watchdog_start(struct hsdp_job *job, struct hsdp_error *reterr);

/**
 * Ends it; waits for it, at most a second: if a callback of the host holds it longer, or this is
 * that callback, the thread is left to end by itself, with the job's memory, and the plugin stays
 * loaded. Accepts a job without a watchdog.
 */
void watchdog_stop(struct hsdp_job *job);

/** Frees what is left of it, once it has stopped. Accepts a job without one. */
void watchdog_free(struct hsdp_job *job);

/** Makes it look at everything at once; before it is there, wakes connect. Any thread, any time. */
void watchdog_wake(struct hsdp_job *job);

/** A service that its thread gives: to connections of other nodes. */
struct watchdog_service {
    int fd; /* readable = there is something to do (an epoll descriptor stands for many); -1 = no */
    /**
     * Called on the watchdog's thread when fd is readable, when the time that it returned last has
     * come, after every watchdog_wake (so: when the job has failed), and once at the beginning.
     * Never blocks. Returns when it wants to be called again at the latest, in clock_now_ns(), or
     * UINT64_MAX. What it raises, it raises by failure_record. It may detach itself.
     */
    uint64_t (*serve)(void *user);
    void *user;
};

/** From start to stop. HSDP_ERR_STATE without a watchdog, or where it has a service already. */
int32_t watchdog_attach(struct hsdp_job *job, const struct watchdog_service *service,
                        struct hsdp_error *reterr);

/** Afterwards it is not called any more, nor is it being called. */
void watchdog_detach(struct hsdp_job *job);

/**
 * For a call of this rank that waits: fails the job when the watchdog has been stuck for longer
 * than heartbeat_timeout_seconds. Only on the thread that is inside.
 */
int32_t watchdog_check(struct hsdp_job *job, uint64_t now_ns, struct hsdp_error *reterr);

#endif /* COMM_WATCHDOG_H */
