/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a job, for plugin/comm only. */
#ifndef COMM_JOB_INTERNAL_H
#define COMM_JOB_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/settings.h"
#include "comm/control.h"
#include "comm/failure.h"
#include "comm/flight.h"
#include "comm/job.h"
#include "comm/launch.h"
#include "comm/meeting_point.h"
#include "comm/position.h"
#include "comm/standstill.h"
#include "device/gpu.h"
#include "device/space.h"

#define JOB_NAME_MAX   63u
#define JOB_MAX_PHASES 16u
#define JOB_FAREWELL   "close" /* the exchange by which a job ends */

/* In place of a descriptor. */
#define PIDFD_UNKNOWN (-3) /* not tried */
#define PIDFD_NONE    (-1) /* this kernel or its filters have none: the process table is read */
#define PIDFD_GONE    (-2) /* the process had ended before it could be opened */

enum job_state {
    JOB_CREATED,
    JOB_CONNECTED,
    JOB_CLOSED,
    JOB_DESTROYED, /* by the host; groups and models keep the memory */
};

struct job_phase {
    char name[64];
    uint64_t timeout_ms;
};

/* The host's callbacks, as the spec gave them. */
struct job_host {
    int32_t (*kv_put)(void *user, const char *key, const void *value, uint64_t value_bytes);
    int32_t (*kv_get)(void *user, const char *key, void *ret_value, uint64_t max_bytes,
                      uint64_t *ret_bytes, uint32_t wait_ms);
    void (*log)(void *user, int32_t level, const char *text);
    void (*on_abort)(void *user, const struct hsdp_error *reason);
    void *user;
    struct gpu_allocator memory; /* of the device */
};

struct counter {
    _Atomic(struct counter *) next;
    _Atomic uint64_t value;
    char name[96];
};

/* Tickets whose work went with a model or a group before it was done. */
struct cancelled {
    uint64_t first;
    uint64_t last;
};

struct communicator; /* group_internal.h */
struct nccl_engine;  /* nccl_internal.h */
struct nodes;        /* nodes.h */
struct watchdog;     /* watchdog_internal.h */

/*
 * Who writes what: everything belongs to the thread that is inside (job_enter), but for what is
 * atomic, and for what `lock` guards so that abort, status and diag may look at any time.
 */
struct hsdp_job {
    /* Guards: read by every call. */
    const uint64_t *alive; /* a page that the kernel empties in a child */
    _Atomic uint32_t is_inside;
    _Atomic uint32_t n_refs;
    _Atomic uint32_t state; /* enum job_state */

    struct launch launch;
    struct job_host host;
    char name[JOB_NAME_MAX + 1];
    char *identity;             /* what the meeting point of this node derives from; owned */
    struct launch_identity run; /* what all ranks compare; of no use with the host's store */
    struct meeting_point point; /* with the host's store: rank 0 publishes it, the others read it */
    uint32_t spin_tries;        /* before a wait sleeps */
    bool is_crowded;            /* more ranks than processors */

    pthread_mutex_t lock; /* settings, phases, reporters, groups' ledger */
    struct settings settings;
    const struct kernels *kernels; /* of the setting cpu_path */
    bool has_device;               /* backend nccl */
    int32_t device_id;
    struct space space; /* of models: the host's, or from connect on a device's */
    struct job_phase phases[JOB_MAX_PHASES];
    uint32_t n_phases;
    _Atomic uint64_t timeout_ms;    /* of an operation, now */
    _Atomic uint64_t heartbeat_ms;  /* how long a watchdog may be stuck */
    _Atomic uint64_t idle_limit_ms; /* how long the host may make no call, now */
    _Atomic uint64_t silence_ms;    /* how long another node may be silent */
    struct reporter *reporters;

    /* Failure: the first one is in the control block once there is one, else here. */
    struct failure failure;
    _Atomic uint32_t is_noticed;  /* on_abort has been called */
    _Atomic uint32_t is_logged;   /* and the log */
    _Atomic int abort_fd;         /* wakes connect, later the watchdog; -1 = none */
    bool is_told;                 /* a call of this rank has returned the failure itself */
    uint64_t failed_ticket;       /* the first that was open when the job failed */
    _Atomic uint32_t files_state; /* flight_file.c: how far its files are */
    char files_trouble[256];

    _Atomic(struct control *) control; /* NULL before connect */
    uint32_t node_index;               /* of this rank among those of its node */
    int pidfds[LAUNCH_MAX_RANKS];      /* or PIDFD_* */
    uint64_t connecting;               /* the record of connect */
    int connections[LAUNCH_MAX_RANKS]; /* leader: by node index; others: [0], to the leader */
    int listener;        /* leader: of the meeting of its node, while it lasts; -1 = none */
    int leader_bell;     /* others: wakes the leader's watchdog, where there are several nodes */
    uint64_t asked_ns;   /* when the root was asked who is missing in the exchange under way */
    struct nodes *nodes; /* of a leader, where there are several; NULL = this is not one */
    uint64_t n_exchanges;
    uint64_t n_memories;
    uint64_t n_models; /* ever begun to be created */

    struct flight flight;      /* this rank's, in the control block */
    struct position *position; /* likewise; before connect, the next */
    struct position own_position;
    _Atomic uint32_t is_recording; /* 1 = other threads may look at both */

    struct work *first_work;
    struct work *last_work;
    struct work *next_work; /* the one that job_progress visits next */
    bool is_progressing;
    _Atomic uint64_t n_open;
    uint64_t last_ticket;
    uint64_t left_ns;          /* when the host left with work open; 0 = it is inside, or none is */
    uint64_t away_ns;          /* all of its long absences so far, and when it was stopped inside */
    uint64_t look_ns;          /* when the call that waits was last seen to run */
    uint64_t next_look_ns;     /* when deadlines and peers are looked at again */
    _Atomic uint32_t look_now; /* or at once: somebody has died */
    struct standstill standstill;
    struct {
        const char *call; /* that is collective over the job, and has begun; NULL = none */
        bool is_told;     /* no rank waits for what this one says of its failure */
    } collective;
    struct cancelled *cancelled; /* n_cancelled ranges of tickets, in order */
    uint64_t n_cancelled;

    _Atomic(struct watchdog *) watchdog; /* NULL before connect, and where there is one rank */
    uint64_t beat;                       /* of it, as last seen by a call that waited, */
    uint64_t beat_look_ns;               /* when, */
    uint64_t beatless_ns;                /* and how long it has been the same */
    struct hsdp_job *next_job;           /* private to forks.c */

    _Atomic(struct counter *) counters;
    _Atomic uint64_t *n_waits; /* counters: waits that were not over at once, and their time */
    _Atomic uint64_t *wait_ns;
    _Atomic(struct nccl_engine *) nccl; /* NULL before connect, and without a device */
    struct communicator *communicators;
    struct probe *probe;            /* a test's; NULL = none */
    struct hsdp_group *groups;      /* not destroyed, newest first; guarded by lock */
    struct hsdp_group *gone_groups; /* destroyed while a device was at their collectives */
};

/* The ranks of this node, of a job that has a control block. */
static inline uint32_t job_node_ranks(const struct hsdp_job *job)
{
    return atomic_load(&job->control)->n_ranks;
}

/* counters.c: those that every job has, whatever it does. */
int32_t counters_init(struct hsdp_job *job, struct hsdp_error *reterr);

/* job.c: HSDP_ERR_FORKED in a child of the process that made the job. */
int32_t job_check_process(const struct hsdp_job *job, struct hsdp_error *reterr);
/* Of the control block of this rank's node. */
struct control_size job_control_size(const struct hsdp_job *job);
/* The lock, in the process that made the job. */
void job_lock(struct hsdp_job *job);
void job_unlock(struct hsdp_job *job);

/* job_settings.c: the job's own settings; what is derived from what. */
int32_t job_settings_init(struct hsdp_job *job, const struct hsdp_job_spec *spec,
                          struct hsdp_error *reterr);
/** For the ledger: the four timeouts, each with its source; locked. */
void job_timeouts_write(const struct hsdp_job *job, struct text *text);

/* report.c: the members of the report "error"; the groups of the ledger. */
void report_failure(const struct hsdp_job *job, struct text *text);
void report_groups(struct hsdp_job *job, struct text *text);

/* work.c: fails all that is open, once the job has failed or goes. */
void work_fail_all(struct hsdp_job *job, int32_t status);
/** The open work of a ticket; NULL when that is done. */
struct work *work_find(const struct hsdp_job *job, uint64_t ticket);

/* wait.c */
#define AWAY_MIN_NS UINT64_C(1000000000) /* who does nothing for so long was not there */

struct waiting {
    const struct wait *wait; /* NULL = only for the ticket */
    uint64_t ticket;         /* 0 = only for the wait */
    uint64_t give_up_ns;     /* HSDP_PENDING from then on; UINT64_MAX = never, 0 = at once */
    uint64_t start_ns;       /* this and the next two are set by wait_run */
    uint64_t away_ns;        /* as in work */
    uint64_t serial;         /* among the waits of the job */
};
/** Finds out how to spin: how many processors the ranks of this node have, which have met. */
void wait_init(struct hsdp_job *job);
int32_t wait_run(struct hsdp_job *job, struct waiting *waiting, struct hsdp_error *reterr);

/* watch.c: looks, where it is time again, for peers that are gone and deadlines that have passed,
 * of the wait and of all open work; fails the job then. */
int32_t watch_look(struct hsdp_job *job, const struct waiting *waiting, struct hsdp_error *reterr);
/** The ranks of this node that a wait lacks, by their index. */
uint64_t missing_ranks(const struct wait *wait);

/* watch.c: a timeout in words: who has not come to what is waited for. Any thread. */
void watch_blame(const struct hsdp_job *job, const struct wait *wait, uint64_t waited_ns,
                 struct hsdp_error *ret_err);

/* watch.c: tells the other ranks what this one waits for; asked_ns as in position_wait. */
void watch_tell(struct hsdp_job *job, const struct waiting *waiting, uint64_t asked_ns);

/* exchange.c: with a deadline of its own; 0 = the operation timeout. All mailboxes lie on the board
 * then: control_mailbox(control, job->n_exchanges, rank). */
int32_t exchange_run(struct hsdp_job *job, const struct mailbox *mine, uint64_t deadline_ns,
                     struct hsdp_error *reterr);
/** job_exchange with a deadline. */
struct exchange {
    const char *operation;
    const void *mine;
    uint64_t n_bytes;
    uint64_t deadline_ns; /* 0 = the operation timeout */
};
int32_t exchange_all(struct hsdp_job *job, const struct exchange *what, void *ret_all,
                     struct hsdp_error *reterr);
/**
 * All ranks tell whether a step of something collective went well (status, with *reterr filled);
 * if it did not on any, all fail with that, and the job goes on.
 */
int32_t exchange_agree(struct hsdp_job *job, const char *operation, int32_t status,
                       struct hsdp_error *reterr);
int32_t exchange_agree_by(struct hsdp_job *job, const char *operation, int32_t status,
                          uint64_t deadline_ns, struct hsdp_error *reterr);

/* memory.c: a file without a name. */
int32_t memory_file_create(const char *name, uint64_t n_bytes, int *ret_fd,
                           struct hsdp_error *reterr);

#endif /* COMM_JOB_INTERNAL_H */
