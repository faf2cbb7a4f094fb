/* SPDX-License-Identifier: Apache-2.0 */
/* The host's collectives on devices: each call of group.start is one task of the NCCL thread. */
#ifndef COMM_NCCL_COLL_H
#define COMM_NCCL_COLL_H

#include "comm/group_internal.h"
#include "comm/nccl_engine.h"

/*
 * Members exchange what is to be reduced, and each reduces in the order of hsdp/group.h, by a
 * kernel of ours, so that bits are those of shared memory: nothing is left to how NCCL adds. Of an
 * all_reduce each member reduces one slice, and all gather the slices; what is small each reduces
 * as a whole. Large ones go in chunks, through scratch memory of the start.
 *
 * All of it is in the order of the job's reduce stream, behind what the host had on its own stream.
 */
#define COLL_SCRATCH_BYTES (UINT64_C(32) << 20)
#define COLL_SMALL_BYTES   (UINT64_C(64) << 10) /* of all sources: reduced by every member */

/* One call of group.start. */
struct nccl_coll {
    struct nccl_task task;  /* first */
    struct nccl_coll *next; /* of its group, which owns it */
    struct hsdp_group *group;
    cu_event begin; /* how far the host's stream was */
    struct gpu_memory scratch;
    struct op *ops; /* n_ops of max_ops */
    uint32_t n_ops;
    uint32_t max_ops;
    bool is_busy;
};

/**
 * Part of group.connect: finds the communicators of groups that wait for theirs; `first` is the
 * first that this call has added. Collective over the job.
 */
int32_t nccl_coll_connect(struct hsdp_job *job, const struct communicator *first,
                          struct hsdp_error *reterr);

/** group.start of a job of a device, whose arguments have been looked at. */
int32_t nccl_coll_start(struct hsdp_group *group, const struct hsdp_coll_spec *specs,
                        uint64_t n_specs, void *stream, uint64_t *ret_ticket,
                        struct hsdp_error *reterr);

/**
 * Gives back what a group has had under way; waits for nobody. False where a device is not through
 * with all of it: then the group is kept, for nccl_coll_free.
 */
bool nccl_coll_destroy(struct hsdp_group *group);
/** Gives back what groups that were kept have had. The engine is closed. */
void nccl_coll_free(struct hsdp_group *group);

/* nccl_coll_move.c: on the NCCL thread */
int32_t nccl_coll_run(struct nccl_task *task, struct hsdp_error *reterr);
/** Bytes of scratch that a collective wants, at most COLL_SCRATCH_BYTES unless it needs more. */
uint64_t nccl_coll_scratch(const struct op *op, uint32_t n_ranks);

#endif /* COMM_NCCL_COLL_H */
