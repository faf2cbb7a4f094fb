/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: one rank's membership of a run, with its identity, transport and deadlines. */
#ifndef HSDP_JOB_H
#define HSDP_JOB_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A job is created locally, at once, and connected in a second step that waits for the others:
 * create() returns the handle that abort() needs while connect() is stuck.
 *
 * Who am I? If spec.world_ranks is not 0, from the spec. Else from the launcher's
 * environment, the first that is there of: RANK and WORLD_SIZE (hsdp-run, torchrun),
 * OMPI_COMM_WORLD_RANK and _SIZE (mpirun), PMI_RANK and PMI_SIZE with local ranks
 * (mpiexec.hydra), SLURM_PROCID and SLURM_NTASKS of a step (SLURM_STEP_ID: a batch script
 * itself is no task), PMI_RANK and PMI_SIZE alone. Else this is a job of one rank. One of a
 * pair without the other is an error. The ranks of one machine are a node. Of several nodes the
 * launcher also has to say which ranks are local; the lowest rank of each is its local rank 0.
 *
 * Where do we meet? With kv_put and kv_get set, through the host's key/value store. Else the
 * ranks of one node by what tells this run from others: HSDP_RUN_ID (hsdp-run), MASTER_ADDR
 * and MASTER_PORT, rendezvous_port, torchrun's run id, the namespace of mpirun or the job and
 * step of srun; at least one is needed. Nodes meet at MASTER_ADDR, or the first machine of an
 * srun step, at the port rendezvous_port, else MASTER_PORT and up to 16 above it. A process
 * of an earlier attempt (HSDP_ATTEMPT, torchrun's and Slurm's restart counts) is refused.
 * Several jobs under one launcher meet by `name`.
 *
 * Settings of a job (the rest of the settings belongs to plans and classes: plan.h):
 *
 *     backend                    auto   auto, shm, mpi, nccl, and what else describe() lists;
 *                                       auto is nccl with a device, shm on one host, else mpi
 *     nccl_timeout_seconds       180    1 to 2147483647; every wait
 *     init_timeout_seconds       nccl_timeout_seconds   connect; at least nccl_timeout_seconds
 *     heartbeat_timeout_seconds  nccl_timeout_seconds   the host makes no call, outside a phase
 *     peer_silence_seconds       min(5, nccl_timeout_seconds)   1 to nccl_timeout_seconds; of nodes
 *     rendezvous_port            MASTER_PORT, then probing   1 to 65535; no other one is tried
 *     token_file                 none   a path, or fd:N; without one nodes meet over loopback only
 *     flight_records             2000   16 to 1000000; equal on all ranks
 *     flight_dir                 none   a folder; each rank's last operations when the job fails
 *     cpu_path                   auto   auto, plain, avx2, avx512; the bits are the same
 *     nccl_library, cuda_library  libnccl.so.2, libcuda.so.1   sonames or paths
 *
 * A connected job of several ranks has a thread in each of its processes, from connect() to
 * destroy(). It makes failures known while hosts compute: a rank that ends or runs another program
 * without close() or destroy(), HSDP_ERR_PEER_LOST within a second; a node that is silent for
 * peer_silence_seconds, HSDP_ERR_PEER_LOST; a host that makes no call for
 * heartbeat_timeout_seconds (in a phase, for the phase's timeout where that is longer),
 * HSDP_ERR_TIMEOUT of "heartbeat"; a failure that another rank has reported. Time in which a
 * process was stopped, a second or longer, counts neither there nor for its own deadlines: a job
 * that was stopped as a whole goes on. Those who wait for it and run keep theirs. A child that is
 * forked keeps nothing of a job open.
 */

/**
 * What to join, and what the host lends the job. Callbacks are NULL where the host has none.
 *
 * Since: 1.0
 */
struct hsdp_job_spec {
    size_t struct_size; /* sizeof(struct hsdp_job_spec) */
    const char *name;   /* distinguishes jobs under one launcher: 1 to 63 bytes; NULL = "default" */
    struct hsdp_settings settings; /* of a job: the list above */

    /**
     * Stores bytes under a key, for all ranks to read; returns 0, else the job fails. Called only
     * inside connect(). Keys are "hsdp/NAME/WHAT" with the job's name, at most 127 bytes; values at
     * most 255 bytes. The store is fresh for each attempt of a run: a stale key would send ranks to
     * where nobody waits. kv_put and kv_get are both set or both NULL.
     */
    int32_t (*kv_put)(void *user, const char *key, const void *value, uint64_t value_bytes);

    /**
     * Reads what kv_put stored, waiting up to wait_ms for it (never more than 1000, so that abort
     * works); returns 0 with *ret_bytes <= max_bytes, 1 when it is not there yet, else the job
     * fails. Called only inside connect().
     */
    int32_t (*kv_get)(void *user, const char *key, void *ret_value, uint64_t max_bytes,
                      uint64_t *ret_bytes, uint32_t wait_ms);

    /**
     * Device memory from the host's allocator. kind is HSDP_MEMORY_*; align_bytes is a power of
     * two; NULL means "none left". Used on cold paths only; both are set or both NULL.
     * A plugin may take memory that ranks share from the system instead.
     */
    void *(*memory_alloc)(void *user, uint64_t n_bytes, uint64_t align_bytes, int32_t kind,
                          void *stream);
    void (*memory_free)(void *user, void *base, uint64_t n_bytes, int32_t kind, void *stream);

    void (*log)(void *user, int32_t level, const char *text); /* HSDP_LOG_*; NULL = silent */

    /**
     * Told once when the job fails, whether the host is inside of a call or computes; maybe on a
     * thread of the plugin, which takes no signals and has a stack of 512 KiB. Of the plugin it
     * calls only job->status and diag. destroy() waits up to a second for it to return;
     * if it does not, the plugin stays in memory, so that unloading it remains safe. `reason` is
     * as long as the plugin's own struct_size says, and lives for the call.
     */
    void (*on_abort)(void *user, const struct hsdp_error *reason);

    void *user;           /* handed to every callback */
    int32_t device_type;  /* HSDP_DEVICE_*; 0 = CPU */
    int32_t device_id;    /* the device of this rank */
    uint32_t rank;        /* this and the next three are used when world_ranks is not 0 */
    uint32_t world_ranks; /* 0 = ask the launcher's environment */
    uint32_t local_rank;  /* among the ranks of this node */
    uint32_t local_ranks; /* on this node; 0 = all of them */
};

#define HSDP_MEMORY_DEVICE 0
#define HSDP_MEMORY_PINNED 1 /* host memory that the device can reach */

#define HSDP_LOG_ERROR   0
#define HSDP_LOG_WARNING 1
#define HSDP_LOG_INFO    2
#define HSDP_LOG_DEBUG   3

/**
 * What a job is.
 *
 * Since: 1.0
 */
struct hsdp_job_info {
    size_t struct_size;  /* sizeof(struct hsdp_job_info) */
    const char *backend; /* "shm", ...: what auto became; lives as long as the job */
    uint32_t rank;
    uint32_t world_ranks;
    uint32_t local_rank;
    uint32_t local_ranks;
    uint64_t n_tickets_open; /* operations not finished */
    uint64_t timeout_ms;     /* of an operation, now (phases included) */
    uint32_t is_connected;   /* 1 between connect and close */
    uint32_t reserved;       /* zero */
};

/**
 * Functions on jobs.
 *
 * Since: 1.0
 */
struct hsdp_job_ops {
    size_t struct_size;

    /**
     * Makes a job; local, returns at once, opens nothing.
     *
     * Errors: HSDP_ERR_INVALID for settings and environment, naming key and text (RANK "-1",
     * nccl_timeout_seconds "30s"); HSDP_ERR_UNSUPPORTED for a backend that is not built, and more
     * ranks on one node than the plugin serves; HSDP_ERR_UNAVAILABLE when nothing tells this run
     * from others or where its nodes meet, and for a cpu_path that this processor or this build
     * lacks.
     */
    int32_t (*create)(const struct hsdp_job_spec *spec, hsdp_job **ret_job,
                      struct hsdp_error *reterr);

    /**
     * Meets the other ranks and agrees on settings. Collective over the job; waits up to
     * init_timeout_seconds, counted from each rank's own call. Once per job.
     *
     * Errors: HSDP_ERR_TIMEOUT names who did not come, HSDP_ERR_PEER_LOST who died meanwhile;
     * HSDP_ERR_MISMATCH the first differing setting and rank, differing world sizes, a rank that
     * came twice while they met, one of another run or attempt; HSDP_ERR_ADDRESS_IN_USE when
     * another process leads the ranks of this node already, or others hold all ports of rank 0;
     * HSDP_ERR_UNAVAILABLE for a backend without its library or device, ranks that cannot see
     * each other's processes, a token_file that cannot be read, and callbacks that fail;
     * HSDP_ERR_INVALID for a token_file that holds no token, or that others may read;
     * HSDP_ERR_STATE when called twice.
     */
    int32_t (*connect)(hsdp_job *job, struct hsdp_error *reterr);

    /**
     * Says farewell: waits until every rank has come here with no operation left open. Collective
     * over the job. Not needed before destroy(), but only close() can say that something was left
     * unmatched. Afterwards only what tells still answers; the rest is HSDP_ERR_STATE.
     *
     * Blocks: up to nccl_timeout_seconds.
     * Errors: HSDP_ERR_TIMEOUT and HSDP_ERR_PEER_LOST as any operation; HSDP_ERR_STATE when not
     * connected.
     */
    int32_t (*close)(hsdp_job *job, struct hsdp_error *reterr);

    /**
     * Gives a job back; NULL is accepted. Local. Groups and models that live on keep the memory
     * alive. Peers that wait for this rank learn that it has left. A process that ends without
     * close() or destroy() is lost, and fails the job on all other ranks.
     */
    void (*destroy)(hsdp_job *job);

    /**
     * Fails the job on all ranks with a reason (NULL = "abort called by the host"). A second abort
     * succeeds and changes nothing: the first reason is kept. So does one after close(). Ranks that
     * this one has not met yet cannot hear it: to them it is one that does not come to connect().
     * status() answers HSDP_ERR_ABORTED then, with the reason.
     *
     * Blocks: up to two seconds.
     * Threads: any, also while another one is inside connect().
     */
    int32_t (*abort)(hsdp_job *job, const char *reason, struct hsdp_error *reterr);

    /**
     * Returns HSDP_OK, or the status of the first failure with its reason.
     *
     * Threads: any.
     */
    int32_t (*status)(const hsdp_job *job, struct hsdp_error *reterr);

    /** Tells what a job is. */
    int32_t (*info)(const hsdp_job *job, struct hsdp_job_info *ret_info, struct hsdp_error *reterr);

    /**
     * Reads back a setting of the job: the effective value and where it came from, a text for
     * people that begins with one of host, environment, default, derived ("derived from
     * nccl_timeout_seconds").
     *
     * Ownership: both texts live until the job is destroyed or the key is set again.
     * Errors: HSDP_ERR_INVALID for an unknown key, listing the known ones.
     */
    int32_t (*setting)(const hsdp_job *job, const char *key, const char **ret_value,
                       const char **ret_source, struct hsdp_error *reterr);

    /**
     * Changes a timeout of a running job: nccl_timeout_seconds, init_timeout_seconds,
     * heartbeat_timeout_seconds or peer_silence_seconds. Those that are derived from it follow.
     * Collective over the job, so that the ranks stay equal.
     *
     * Errors: HSDP_ERR_STATE for another key, all of which are fixed once the job exists, or before
     * connect; HSDP_ERR_INVALID for an unknown key, and as create for the value;
     * HSDP_ERR_MISMATCH when ranks set other values.
     */
    int32_t (*setting_set)(hsdp_job *job, const char *key, const char *value,
                           struct hsdp_error *reterr);

    /**
     * Opens a named phase with its own operation timeout, for what takes long and is no fault
     * (compiling, saving a checkpoint). Phases nest; the innermost counts. Local: every rank that
     * waits longer must say so itself. Names have 1 to 63 bytes.
     *
     * Units: timeout_ms, milliseconds, at least 1.
     * Errors: HSDP_ERR_STATE when 16 are open already.
     */
    int32_t (*phase_push)(hsdp_job *job, const char *phase, uint64_t timeout_ms,
                          struct hsdp_error *reterr);

    /** Closes the innermost phase. Errors: HSDP_ERR_STATE when none is open. */
    int32_t (*phase_pop)(hsdp_job *job, struct hsdp_error *reterr);

    /**
     * Waits for an operation, on the host. A ticket is a number of the job that never wraps; it
     * need not be waited for, and 0 is always done (of a failed job a plugin may say so, or answer
     * as for any other).
     *
     * Units: wait_ms, milliseconds; 0 only asks; UINT64_MAX waits until the deadline of the
     * operation itself.
     * Errors: HSDP_PENDING (positive) when it has not finished in time; HSDP_ERR_INVALID for a
     * ticket never handed out; HSDP_ERR_STATE when its model or group was destroyed before it had
     * finished; else how the operation failed.
     */
    int32_t (*ticket_wait)(hsdp_job *job, uint64_t ticket, uint64_t wait_ms,
                           struct hsdp_error *reterr);

    /**
     * Makes a stream wait for an operation; the host goes on. On a CPU, where the host is the
     * stream, it is ticket_wait with the deadline of the operation.
     */
    int32_t (*ticket_order)(hsdp_job *job, uint64_t ticket, void *stream,
                            struct hsdp_error *reterr);
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#define HSDP_JOB_SPEC_INIT HSDP_INIT_(hsdp_job_spec)
#define HSDP_JOB_INFO_INIT HSDP_INIT_(hsdp_job_info)

#endif /* HSDP_JOB_H */
