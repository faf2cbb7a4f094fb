/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of NCCL's double: what its files share. */
#ifndef DOUBLES_NCCL_DOUBLE_H
#define DOUBLES_NCCL_DOUBLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/nccl.h"
#include "doubles/double.h"
#include "doubles/nccl_wire.h"

/*
 * Ranks are processes of one machine. They meet by a socket, and then share memory in which every
 * ordered pair of them has a lane of a few slots. Collectives are rings on these lanes, so that
 * sums are added up in the order of a ring: block b begins at rank b + 1, and every rank behind it
 * adds what it has, in the dtype of the collective and rounded there, until rank b is done. The
 * real library may choose other orders; nothing may depend on this one.
 *
 * A call puts operations into the group of its thread. When the outermost group ends they are
 * issued, communicator by communicator: what one communicator is given by one group is a plan, one
 * piece of work on a stream. A process runs one plan at a time, as a device would whose room is
 * taken up by one collective: so launches that cross between ranks wait for each other for ever.
 */

/* Beyond what the plugin declares: numbers, and functions that it does not use. */
#define NCCL_AVG                   4
#define NCCL_N_OPS                 5
#define NCCL_SPLIT_NO_COLOR        (-1)
#define NCCL_SCALAR_DEVICE         0
#define NCCL_SCALAR_HOST_IMMEDIATE 1

#define NCCL_PROTOTYPE(field, symbol, result, parameters) result symbol parameters;
NCCL_FUNCTIONS(NCCL_PROTOTYPE)
NCCL_NEWER_FUNCTIONS(NCCL_PROTOTYPE)

#define CUDA_PROTOTYPE(field, symbol, parameters) cu_result symbol parameters;
CUDA_FUNCTIONS(CUDA_PROTOTYPE)

nccl_result ncclCommSplit(nccl_comm comm, int32_t color, int32_t key, nccl_comm *ret_comm,
                          struct nccl_config *config);
nccl_result ncclReduce(const void *send, void *recv, size_t n_elems, int32_t dtype, int32_t op,
                       int32_t root, nccl_comm comm, cu_stream stream);
nccl_result ncclRedOpCreatePreMulSum(int32_t *ret_op, void *scalar, int32_t dtype,
                                     int32_t residence, nccl_comm comm);
nccl_result ncclRedOpDestroy(int32_t op, nccl_comm comm);
nccl_result ncclMemAlloc(void **ret_address, size_t n_bytes);
nccl_result ncclMemFree(void *address);

/* ------------------------------------------------------------------------------ sentences */

/** Ends the process with a sentence: the real library breaks without one. */
_Noreturn void nccl_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Keeps a sentence for ncclGetLastError, and hands on `result`. */
nccl_result nccl_fail(nccl_result result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Into stderr, if HSDP_DOUBLE_DEBUG is set. */
void nccl_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One thread is inside at a time, else the process ends. */
void call_enter(const char *name);
nccl_result call_leave(nccl_result result);

/* ----------------------------------------------------------------------- what is reduced */

struct reduction {
    int32_t dtype;
    int32_t op;            /* NCCL_SUM ... NCCL_MIN */
    bool is_scaled;        /* before anything is added */
    bool is_mean;          /* of integers: divided when all are added */
    double factor;         /* by which */
    const void *at_device; /* not NULL = where it stands while the collective runs */
};

/** Bytes of an element; 0 for what is no dtype that the double knows. */
size_t dtype_size(int32_t dtype);
/** ret[i] = first[i] op second[i], rounded to the dtype. ret may be one of them. */
void reduction_combine(const struct reduction *reduction, void *ret, const void *first,
                       const void *second, uint64_t n_elems);
/** ret[i] = values[i] * the factor, in the dtype. */
void reduction_scale(const struct reduction *reduction, void *ret, const void *values,
                     uint64_t n_elems);
/** values[i] /= n, of integers. */
void reduction_divide(const struct reduction *reduction, void *values, uint64_t n_elems,
                      uint32_t n);
/** The number at `address`, of a dtype. */
double dtype_number(int32_t dtype, const void *address);

/* --------------------------------------------------------------------------- communicators */

#define COMM_LIVE   UINT64_C(0x6c6976652e636f6d)
#define COMM_DEAD   UINT64_C(0x646561642e636f6d)
#define MAX_RED_OPS 16u

struct launch;

/* Never given back: who uses one that was destroyed is told so. */
struct ncclComm {
    uint64_t magic;
    struct ncclComm *next; /* of all that ever were */
    uint32_t n_ranks;
    uint32_t rank;
    struct nccl_config config;
    char name[64];
    cu_context context;
    cu_address memory; /* of the device, 0 = none */
    struct cu_uuid device;
    struct wire wire;
    struct ncclComm *parent; /* whose abort ends the making of this one; NULL = it is made */
    _Atomic int32_t state;   /* as ncclCommGetAsyncError says it */
    _Atomic bool is_mapped;
    _Atomic bool is_stopped; /* aborted or revoked: no work of it goes on */
    bool is_revoked;
    bool is_finalized;
    bool is_implicitly_ordered;
    struct launch *launch; /* under way on a thread; NULL = none */
    uint64_t n_plans;      /* that were issued; with `lock`, like the next */
    uint64_t n_plans_done;
    uint64_t n_collectives; /* of this communicator, zero counts left out */
    uint32_t n_splits;
    struct reduction red_ops[MAX_RED_OPS]; /* op 0 is one of NCCL's own; NCCL_N_OPS = free */
};

/* Over plans and communicators; with the condition that something of them has changed. */
extern pthread_mutex_t comm_lock;
extern pthread_cond_t comm_changed;

/** NCCL_OK for a live one; else a sentence with the call's name. */
nccl_result comm_check(const struct ncclComm *comm, const char *call);
/** The same, and that nothing of it is under way and that it is in no error. */
nccl_result comm_check_ready(struct ncclComm *comm, const char *call);
/** Its own error, or that of the process. */
int32_t comm_state(struct ncclComm *comm);
/** Ends all work of it, and the making of children. */
void comm_stop(struct ncclComm *comm);
/** Whether it, or the parent that it is made of, is stopped. */
bool comm_is_stopped(const struct ncclComm *comm);
struct ncclComm *comm_create(uint32_t n_ranks, uint32_t rank, const struct nccl_config *config);
/** Gives back what it has of the device and of others; not the struct. */
nccl_result comm_release(struct ncclComm *comm);

/** Checks a configuration, and gives it defaults for what is undefined; NULL = defaults only. */
nccl_result config_check(const struct nccl_config *config, struct nccl_config *ret);

/* -------------------------------------------------------------------------------- meeting */

struct meeting_guest {
    uint32_t n_ranks;
    uint32_t rank;
    struct cu_uuid device;
};

/** Names a new meeting, and starts the thread at which its ranks meet. */
nccl_result meeting_open(struct nccl_unique_id *ret_id);
/** Meets; the memory that all share comes as a descriptor. Ends when the communicator stops. */
nccl_result meeting_join(const struct nccl_unique_id *id, const struct meeting_guest *guest,
                         const struct ncclComm *comm, int *ret_fd);

/** The making of a communicator, on a thread: with `id`, or as a part of comm->parent. */
nccl_result init_run(struct ncclComm *comm, const struct nccl_unique_id *id);
nccl_result init_run_split(struct ncclComm *comm, const int32_t color_key[2],
                           struct ncclComm **ret_comm);

/* --------------------------------------------------------------------- operations, groups */

enum operation_kind {
    OPERATION_ALL_REDUCE,
    OPERATION_ALL_GATHER,
    OPERATION_REDUCE_SCATTER,
    OPERATION_BROADCAST,
    OPERATION_REDUCE,
    OPERATION_SEND,
    OPERATION_RECV,
};

struct operation {
    struct operation *next;
    enum operation_kind kind;
    struct ncclComm *comm;
    cu_stream stream;
    const void *send;
    void *recv;
    uint64_t n_elems; /* as the call has it */
    struct reduction reduction;
    uint32_t root; /* or the peer */
    uint64_t sequence;
};

const char *operation_name(enum operation_kind kind);

enum job_kind { JOB_INIT, JOB_SPLIT, JOB_FINALIZE, JOB_DESTROY, JOB_ABORT, JOB_REVOKE };

/* What is done to a communicator when the group ends. */
struct job {
    struct job *next;
    enum job_kind kind;
    struct ncclComm *comm; /* whose state says how it goes */
    struct ncclComm *child;
    struct ncclComm **ret_comm;
    struct nccl_unique_id id;
    int32_t color_key[2];
    nccl_result result;
    pthread_t thread;
    bool has_thread;
};

nccl_result job_run(struct job *job);

/** Around every call that has to do with a communicator. */
void group_enter(void);
void group_add_operation(const struct operation *operation);
void group_add_job(const struct job *job);
/** A call within the group has failed, so the group has. */
void group_fail(nccl_result result);
/**
 * Issues the group if it was the outermost. What goes on on a thread is in progress, also where it
 * ends before the call: the real library may say either.
 */
nccl_result group_leave(void);
bool group_is_open(void);
/** Collects the thread whose work is done; waits for it first if told to. */
void launch_collect(struct ncclComm *comm, bool waits);
/** An asker has seen that a group is under way. */
void launch_was_seen(struct ncclComm *comm);

/* --------------------------------------------------------------------------------- plans */

/** Issues what a communicator was given by a group; takes the list. */
nccl_result plan_issue(struct ncclComm *comm, struct operation *operations);
/** Waits until every plan of it is done. */
void plans_wait(struct ncclComm *comm);
/** Counts a collective of this process: each call, and all sends and receives of a group. */
uint64_t collectives_count(uint64_t n_more);

/** One collective; false if the communicator was stopped meanwhile. */
bool ring_run(const struct operation *operation);

/** All sends and receives of a plan at once. */
bool exchange_run(const struct operation *operations);

#endif /* DOUBLES_NCCL_DOUBLE_H */
