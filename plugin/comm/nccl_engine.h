/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL thread of a job: the only one that talks to NCCL; communicators, and tasks for it. */
#ifndef COMM_NCCL_ENGINE_H
#define COMM_NCCL_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/job.h"
#include "comm/nccl.h"
#include "device/gpu.h"

/*
 * A call of NCCL may block for as long as a peer likes, also where it has promised not to; and
 * while one thread is inside, no other may ask how it goes. So one thread of each job does all that
 * is done with NCCL, with the device's context pushed, and the host's thread waits for it like for
 * a peer: on its doorbell, until a deadline.
 *
 * What is to be done is a task. The thread runs tasks in the order in which they were submitted,
 * which is the same on all ranks of a communicator. To run one is to enqueue work on a stream:
 * kernels, copies, collectives; the thread then records the task's event, and sees when the device
 * has come to it. Of one communicator at most NCCL_MAX_QUEUED collectives are on the device at any
 * time, so that no launch blocks because a queue of the driver is full.
 */
struct nccl_engine;

#define NCCL_MAX_QUEUED 4u

/**
 * Part of job.connect, once the ranks have met: opens the device, starts the thread, makes the
 * world's communicator. Collective over the job; the deadline is connect's.
 *
 * Errors: HSDP_ERR_UNAVAILABLE without a library, a device, or in a process in which cleaning up an
 * earlier job never ended (`wedged`), with the reason of that; HSDP_ERR_INVALID where two ranks of
 * the job have the same device, naming both; HSDP_ERR_TIMEOUT; HSDP_ERR_DEVICE.
 */
int32_t nccl_engine_open(struct hsdp_job *job, uint64_t deadline_ns, struct hsdp_error *reterr);

/**
 * Part of job.destroy, and of a connect that has failed: ends communicators and thread. Returns
 * within two seconds whatever they do; what is still going on then is left behind, the plugin stays
 * in memory, and the process is wedged until it has ended. Accepts a job that has none.
 */
void nccl_engine_close(struct hsdp_job *job);

/** Frees what is left, and closes the device; accepts a job that has none. */
void nccl_engine_free(struct hsdp_job *job);

/** Makes the thread look for the failure of the job; any thread. Accepts a job that has none. */
void nccl_engine_wake(struct hsdp_job *job);

/** True while tasks wait for the thread, which may raise counters that peers wait for. */
bool nccl_engine_is_issuing(const struct hsdp_job *job);

/** Writes what a wait for the device is still waiting for: "the device has not finished: ...". */
void nccl_engine_where(const struct hsdp_job *job, char *ret_text, size_t max_bytes);

/** Writes the array "communicators" of a report, under the job's lock; of another job nothing. */
void nccl_engine_write(const struct hsdp_job *job, struct text *text);

/** Those of a connected job of backend nccl; NULL of another. */
struct nccl_engine *job_nccl(const struct hsdp_job *job);
struct gpu *job_gpu(const struct hsdp_job *job);

/* -------------------------------------------------------------------------------- communicators */

/*
 * Whatever stream they run on, and of whatever communicator they are, a rank's collectives are in
 * one order, that of its tasks; and ranks that share a communicator have the same order. Two
 * communicators that overlap in ranks would not help ranks with different ones: devices would wait
 * for each other for ever. What differs is found by comparing signatures: HSDP_ERR_MISMATCH.
 */

/** A communicator. There is one for each ordered list of ranks, for as long as the job lives. */
struct nccl_group {
    struct nccl_group *next; /* private to the engine, like what stands behind `name` */
    const uint32_t *ranks;   /* n_ranks world ranks, in its order */
    uint32_t n_ranks;        /* 1: there is no communicator, and no collective may be called */
    uint32_t index;          /* of this rank */
    const char *name;        /* for errors: "dp_shard"; who asked first has named it */
    nccl_comm comm;
    uint64_t memory_bytes; /* of the device, that came with it */
    uint64_t n_collectives;
    struct nccl_board *board;
    cu_event queued[NCCL_MAX_QUEUED]; /* the ends of the last collectives, by their numbers */
    cu_event sent[NCCL_MAX_QUEUED];   /* likewise of messages, of which there were n_messages */
    uint64_t n_messages;
};

/** A list of ranks that this rank is in. */
struct nccl_wanted {
    const uint32_t *ranks; /* borrowed for the call */
    uint32_t n_ranks;
    const char *name;
};

/**
 * Finds the communicators of n_wanted lists, making those that are not there yet. Collective over
 * the job: every rank calls it, with its own lists. Lists that overlap are in the same order on all
 * ranks that have them. *ret_groups gets n_wanted pointers.
 */
int32_t nccl_groups_make(struct hsdp_job *job, const struct nccl_wanted *wanted, uint32_t n_wanted,
                         struct nccl_group **ret_groups, struct hsdp_error *reterr);

/** That of the whole job, in order of rank. */
struct nccl_group *nccl_world(struct nccl_engine *engine);

/* ------------------------------------------------------------------------------------- tasks */

enum nccl_task_state {
    NCCL_TASK_IDLE,   /* never submitted, or given up by a job that has failed */
    NCCL_TASK_QUEUED, /* the thread has not come to it, or is at it */
    NCCL_TASK_ISSUED, /* all of it is on the stream, and `done` is recorded */
    NCCL_TASK_DONE,   /* the device has come to `done`; until the next submit */
};

#define NCCL_TASK_MAX_GROUPS 4u
#define NCCL_WHAT_BYTES      64u

/**
 * Embedded in its owner's struct, and used again and again. What the owner sets before it submits
 * the task stays as it is until the task is done.
 */
struct nccl_task {
    struct work work; /* first: the queue hands it back */
    struct nccl_engine *engine;
    struct nccl_task *next; /* private to the engine */
    _Atomic uint64_t state; /* enum nccl_task_state; a counter that a wait can have */
    cu_stream stream;       /* where `done` is recorded */
    cu_event done;          /* owned by the task */
    struct wait label;      /* operation, group, unit, sequence, n_bytes: for errors and records */
    /* On the thread: enqueues everything. An error fails the job. */
    int32_t (*run)(struct nccl_task *task, struct hsdp_error *reterr);
    /* Or NULL: inside of a call of the host, once the task is done. An error fails the job. */
    int32_t (*complete)(struct nccl_task *task, struct hsdp_error *reterr);
    struct nccl_group *groups[NCCL_TASK_MAX_GROUPS]; /* whose collectives it has: n_groups */
    uint32_t n_groups;
    /* On the thread, or NULL: what comes next is part of, in words, for members to compare. */
    const char *what;
    /* Private to the engine. */
    bool is_open; /* its ticket is */
    uint32_t lane;
    uint64_t place;                                 /* in its lane */
    _Atomic uint64_t numbers[NCCL_TASK_MAX_GROUPS]; /* of the last collective begun in each group */
    struct wait_entry *entries;                     /* of the label; owned */
};

int32_t nccl_task_init(struct hsdp_job *job, struct nccl_task *task, struct hsdp_error *reterr);
/** Accepts a zeroed task. One that is not done is cancelled; the device is through with it then, or
 * the job has failed. */
void nccl_task_fini(struct nccl_task *task);

/** Nobody waits for it any more: its ticket is one of an owner that has gone. It goes on by itself,
 * and its owner keeps it until the engine is closed. */
void nccl_task_abandon(struct nccl_task *task);

/** Whether the thread or the device has something to do with it still. */
bool nccl_task_is_held(const struct nccl_task *task);

/** From submit until its ticket is done: a call of the host has seen that the device is. */
bool nccl_task_is_open(const struct nccl_task *task);

/**
 * Submits a task that is idle or done. Blocks: no. ret_ticket may be NULL; the ticket is done when
 * the device is.
 */
int32_t nccl_task_submit(struct nccl_task *task, uint64_t *ret_ticket, struct hsdp_error *reterr);

/** Waits, bounded, on the host, until the task has been issued. An idle one has. */
int32_t nccl_task_await_issue(struct nccl_task *task, struct hsdp_error *reterr);

/** Waits, bounded, on the host, until the device is done with it. */
int32_t nccl_task_await(struct nccl_task *task, struct hsdp_error *reterr);

/** Makes a stream wait for a task: until it has been issued the host waits. */
int32_t nccl_task_order(struct nccl_task *task, cu_stream stream, struct hsdp_error *reterr);

/* ------------------------------------------------------------------- collectives, within a task */

/*
 * Only within `run`, of one of the task's groups of more than one rank. All return when the
 * collective is on the stream; a peer that does something else with the same communicator at the
 * same place of its order is HSDP_ERR_MISMATCH. Counts are of elements, dtypes NCCL_*.
 */
int32_t nccl_all_gather(struct nccl_task *task, struct nccl_group *group, const void *send,
                        void *recv, uint64_t n_send_elems, int32_t dtype,
                        struct hsdp_error *reterr);
/** Sums; of a dtype in which sums are right: NCCL_FLOAT32 and wider. */
int32_t nccl_reduce_scatter(struct nccl_task *task, struct nccl_group *group, const void *send,
                            void *recv, uint64_t n_recv_elems, int32_t dtype,
                            struct hsdp_error *reterr);
int32_t nccl_all_reduce(struct nccl_task *task, struct nccl_group *group, const void *send,
                        void *recv, uint64_t n_elems, int32_t dtype, int32_t op,
                        struct hsdp_error *reterr);
int32_t nccl_broadcast(struct nccl_task *task, struct nccl_group *group, const void *send,
                       void *recv, uint64_t n_elems, int32_t dtype, uint32_t root,
                       struct hsdp_error *reterr);

/** One message: of n_bytes to, or from, a member. */
struct nccl_message {
    void *address;
    uint64_t n_bytes;
    uint32_t peer; /* index in the group; may be this rank, where both sides have the same size */
    bool is_send;
};
/**
 * All messages at once, so that sends and receives cannot wait for each other. A collective as the
 * others are: every member calls it, also one that has no message.
 */
int32_t nccl_exchange(struct nccl_task *task, struct nccl_group *group,
                      const struct nccl_message *messages, uint32_t n_messages,
                      struct hsdp_error *reterr);

/**
 * Messages between pairs of members, all at once: of those that it does not concern none calls it.
 * Each is received by its peer's, in order; both sides have the same size.
 */
int32_t nccl_messages(struct nccl_task *task, struct nccl_group *group,
                      const struct nccl_message *messages, uint32_t n_messages,
                      struct hsdp_error *reterr);

#endif /* COMM_NCCL_ENGINE_H */
