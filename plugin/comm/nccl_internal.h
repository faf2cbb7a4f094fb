/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the NCCL thread, for the files nccl_*.c that are its own. */
#ifndef COMM_NCCL_INTERNAL_H
#define COMM_NCCL_INTERNAL_H

#include <pthread.h>
#include <setjmp.h>

#include "comm/job_internal.h"
#include "comm/nccl_engine.h"

/* --------------------------------------------------------------------- boards: nccl_board.c */

/* What a rank is about to do with a communicator, for its peers to compare. */
struct nccl_signature {
    uint64_t n_elems; /* 0 where peers may differ */
    int32_t kind;     /* enum nccl_kind */
    int32_t dtype;
    int32_t op;
    uint32_t root;
    char what[NCCL_WHAT_BYTES]; /* of what it is part: a unit, or a collective of the host; cut */
};

enum nccl_kind {
    NCCL_ALL_GATHER,
    NCCL_REDUCE_SCATTER,
    NCCL_ALL_REDUCE,
    NCCL_BROADCAST,
    NCCL_EXCHANGE,
};

#define SIGNATURE_WORDS (sizeof(struct nccl_signature) / sizeof(uint64_t))
#define BOARD_N_POSTS   16u /* more than any rank is ahead of who waits for it */

_Static_assert(sizeof(struct nccl_signature) % sizeof(uint64_t) == 0, "it is whole words");

/* In shared memory; read while it is written. */
struct nccl_post {
    _Atomic uint64_t number; /* of the collective, from 1; 0 = being written */
    _Atomic uint64_t words[SIGNATURE_WORDS];
};

/* A member's line, written by it alone. */
struct nccl_line {
    _Alignas(64) _Atomic uint64_t has_come; /* 1 = it is about to make the communicator */
    _Atomic uint64_t n_posted;              /* collectives that it has issued, or is issuing */
    struct nccl_post posts[BOARD_N_POSTS];
};

struct nccl_board {
    struct nccl_line *lines[LAUNCH_MAX_RANKS]; /* by index in the group; in an engine's mappings */
};

/* Memory of a round of boards, mapped as a whole. */
struct nccl_mapping {
    struct nccl_mapping *next;
    void *base;
    uint64_t n_bytes;
};

/* ---------------------------------------------------------------------------------- engine */

/* Tasks that the device comes to in the order in which they were submitted, or nearly. */
struct nccl_lane {
    uint64_t n_submitted;
    _Atomic uint64_t n_done; /* the last one that is done; those before it are, or soon will be */
};

#define NCCL_N_LANES 2u

/* A communicator that is being made, as all ranks know it. */
struct nccl_making {
    struct nccl_making *next;
    struct nccl_unique_id id;
    bool has_id;
    uint64_t wanted_by; /* world ranks */
    uint32_t n_ranks;
    uint8_t ranks[LAUNCH_MAX_RANKS];
    char name[32];
    struct nccl_group *group; /* this rank's; NULL where it is no member */
};

/*
 * What the host's thread wants done by the other one, and waits for; one at a time. What it is
 * about lies in the engine, which outlives a call that does not wait any longer.
 */
typedef int32_t nccl_order(struct nccl_engine *engine, struct hsdp_error *reterr);

struct nccl_engine {
    struct hsdp_job *job;
    pthread_t thread;
    struct gpu gpu;
    struct nccl nccl;
    struct cu_uuid uuid;
    bool is_serial; /* launches of different communicators are put in order by us */
    bool is_over;   /* closed, by the host's thread */

    pthread_mutex_t lock; /* of what follows; never held during a call of a library */
    pthread_cond_t wake;  /* the thread has something to do */
    pthread_cond_t rest;  /* it has let go of a task, or ended */
    bool is_woken;        /* not to sleep yet */
    bool is_stopping;
    bool has_ended;    /* it touches nothing any more */
    bool is_abandoned; /* it has a reference to the job, and gives it back */
    bool is_away;      /* it is inside of a library, */
    bool is_orphaned;  /* and the owners of tasks have gone meanwhile: it touches none any more */
    nccl_order *order; /* NULL = none */
    struct nccl_task *first_queued;
    struct nccl_task *last_queued;

    /* Written by the thread, read by the host's. */
    _Atomic uint64_t n_orders; /* carried out */
    int32_t order_status;      /* of the last one, */
    struct hsdp_error order_error;
    _Atomic(const char *) call;              /* of NCCL that it is in, for sentences; NULL = none */
    _Atomic(struct nccl_group *) call_group; /* whose; likewise */
    _Atomic uint64_t call_ns;                /* since when */
    _Atomic uint64_t n_unissued;             /* tasks that wait for the thread */
    struct nccl_lane lanes[NCCL_N_LANES];

    /* The thread's own. */
    jmp_buf retreat; /* out of a task whose owner has gone */
    struct nccl_task *first_issued;
    struct nccl_task *last_issued;
    struct nccl_task *running;
    struct {
        const struct nccl_task *task; /* the first issued one, NULL = none, */
        uint64_t place;
        uint64_t since_ns; /* since then, */
        uint64_t look_ns;  /* as seen then */
    } front;
    bool is_ending;       /* it has left its loop */
    bool is_inside;       /* of the device's context, */
    int32_t capture_mode; /* whose host had this one before */
    bool has_failed;   /* it has seen that the job has failed, and done what is to be done then */
    bool has_graphs;   /* collectives were captured: their communicators cannot be aborted */
    uint64_t moved_ns; /* when anything began or ended last, for how long to sleep */
    uint64_t asked_ns; /* when communicators were last asked how they are */
    struct nccl_group *last_group; /* whose collective was the last one, */
    cu_stream last_stream;         /* where, */
    cu_event last_event;           /* and its end */

    /* The host's, but for what is said. */
    uint64_t n_orders_given;
    struct nccl_group *groups;  /* in the order in which they were made; the thread adds, locked */
    struct nccl_group *opening; /* by the order that is given, */
    struct nccl_unique_id id;   /* with this; or from an order */
    struct nccl_mapping *mappings;
};

/* nccl_engine.c */

/** Starts the thread, of job_nccl(job) from now on. */
int32_t engine_start(struct hsdp_job *job, struct hsdp_error *reterr);
/** Lets the thread carry out an order and waits for it, and for what else `what` and `entries` say
 * but for the first entry, which is the order itself. */
int32_t engine_order(struct nccl_engine *engine, nccl_order *order, struct wait *what,
                     struct wait_entry *entries, struct hsdp_error *reterr);
/** On the thread: around every call of a library, which may not come back for a long time. */
void engine_leave(struct nccl_engine *engine);
void engine_return(struct nccl_engine *engine);
/** On the thread, between two looks: the failure that ends what it does, also when it has to stop.
 * Sees meanwhile which tasks are done. */
int32_t engine_pause(struct nccl_engine *engine, struct hsdp_error *reterr);
/** On the thread: sleeps a moment, short or long by how long nothing has happened. */
void engine_sleep(struct nccl_engine *engine);
/** Fails the job, on the thread; a better word of the watchdog, about who died, goes first. */
void engine_fail(struct nccl_engine *engine, struct hsdp_error *err);
/** Wakes a call of the host's that waits. */
void engine_ring(struct nccl_engine *engine);

/* nccl_task.c: on the thread */
void task_run(struct nccl_engine *engine, struct nccl_task *task);
/** Finds out which tasks are done. */
int32_t tasks_look(struct nccl_engine *engine, struct hsdp_error *reterr);
/** HSDP_ERR_TIMEOUT, in words, when the device has been at the first one for too long. */
int32_t tasks_judge(struct nccl_engine *engine, struct hsdp_error *reterr);
/** Lets go of all of them: the job has failed or ends. */
void tasks_drop(struct nccl_engine *engine);

/* nccl_group.c */
/** One call of nccl_groups_make, or a part of connect. */
struct groups_call {
    struct nccl_engine *engine;
    const char *operation;
    uint64_t deadline_ns; /* 0 = the operation timeout */
    const struct nccl_wanted *wanted;
    uint32_t n_wanted;
    struct nccl_making *making; /* private: in the order in which all ranks make them */
};
int32_t groups_make(struct groups_call *call, struct nccl_group **ret_groups,
                    struct hsdp_error *reterr);
void groups_free(struct nccl_engine *engine);

/* nccl_board.c */
/** Memory for the boards of communicators that are being made. Collective over the job. */
int32_t boards_share(struct nccl_engine *engine, const struct nccl_making *first,
                     struct hsdp_error *reterr);
void boards_free(struct nccl_engine *engine);
/** Shows what this rank does next with a communicator; HSDP_ERR_MISMATCH where a peer does
 * something else. */
int32_t board_post(struct nccl_engine *engine, struct nccl_group *group,
                   const struct nccl_signature *signature, struct hsdp_error *reterr);

/* nccl_call.c: on the thread */
/** HSDP_OK, or HSDP_ERR_DEVICE with what NCCL says of a call. */
int32_t nccl_check(struct nccl_engine *engine, struct nccl_group *group, const char *call,
                   nccl_result result, struct hsdp_error *reterr);
/** Says in which call of NCCL the thread is, until it is settled. */
void nccl_begin(struct nccl_engine *engine, struct nccl_group *group, const char *call);
/** Waits until what was begun with a communicator is done. */
int32_t nccl_settle(struct nccl_engine *engine, nccl_result result, struct hsdp_error *reterr);
/** Asks every communicator whether it has failed by itself. */
int32_t nccl_ask(struct nccl_engine *engine, struct hsdp_error *reterr);

/* nccl_end.c */
/** On the thread: ends all communicators, in the order in which they were made. */
void communicators_abort(struct nccl_engine *engine);
void communicators_revoke(struct nccl_engine *engine);
/** Likewise, but lets them finish; where that takes too long they are aborted. */
void communicators_finalize(struct nccl_engine *engine);
/** HSDP_ERR_UNAVAILABLE while a thread of an earlier job is still cleaning up. */
int32_t wedged_check(struct hsdp_error *reterr);
/** A thread is left behind; and has ended after all. */
void wedged_add(struct nccl_engine *engine);
void wedged_remove(void);

#endif /* COMM_NCCL_INTERNAL_H */
