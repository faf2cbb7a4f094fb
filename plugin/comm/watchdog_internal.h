/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the watchdog: its thread, and what it has seen. */
#ifndef COMM_WATCHDOG_INTERNAL_H
#define COMM_WATCHDOG_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/launch.h"
#include "comm/watchdog.h"

#define WATCHDOG_PERIOD_MS 50u /* between two looks at what no descriptor tells */

/* What its poll waits for: the bell of this process, the service, two descriptors a rank. */
#define WATCHDOG_N_POLLS (2u + 2u * LAUNCH_MAX_RANKS)

struct watchdog {
    struct hsdp_job *job;
    pthread_t thread;
    _Atomic int32_t thread_id; /* the kernel's; 0 = not running yet */
    _Atomic uint32_t is_stopping;
    bool is_over; /* stopped: joined or abandoned */

    pthread_mutex_t end_lock; /* of the next two */
    pthread_cond_t end;
    bool has_ended;    /* the thread touches nothing any more */
    bool is_abandoned; /* it has a reference to the job, and gives it back */

    pthread_mutex_t service_lock; /* of the service; held while it is called */
    struct watchdog_service service;
    bool has_service;
    uint64_t service_wake_ns;

    /* The thread's own. */
    struct pollfd polls[WATCHDOG_N_POLLS];
    uint64_t now_ns;
    uint64_t awake_ns;   /* how long this thread has been running or free to run */
    uint64_t failure_ns; /* when it saw that the job had failed; 0 = it has not */
    uint64_t lost_ns;    /* when it saw the first loss; likewise */
    uint64_t n_looks;
    uint64_t gone;    /* ranks whose process has ended */
    uint64_t cut;     /* ranks whose connection has */
    uint64_t n_moves; /* of the host, and awake_ns when it was seen to have moved last */
    uint64_t moved_ns;
    uint64_t beats[LAUNCH_MAX_RANKS]; /* of the other watchdogs, likewise */
    uint64_t beat_ns[LAUNCH_MAX_RANKS];
};

/* watchdog_look.c: takes up what poll has told, judges, and tells the host. */
void watchdog_look(struct watchdog *dog);

#endif /* COMM_WATCHDOG_INTERNAL_H */
