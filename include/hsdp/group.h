/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: the host's own collectives among selected ranks. */
#ifndef HSDP_GROUP_H
#define HSDP_GROUP_H

#include "hsdp/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Sharding makes the groups it needs by itself; these are for the host: losses, metrics, tensor
 * and expert parallelism, pipeline sends. A group of one rank needs no communicator and works
 * like any other.
 */

#define HSDP_COLL_BARRIER        1
#define HSDP_COLL_ALL_REDUCE     2
#define HSDP_COLL_ALL_GATHER     3
#define HSDP_COLL_REDUCE_SCATTER 4
#define HSDP_COLL_ALL_TO_ALL     5
#define HSDP_COLL_BROADCAST      6
#define HSDP_COLL_SEND           7
#define HSDP_COLL_RECV           8

#define HSDP_REDUCE_SUM  0
#define HSDP_REDUCE_MEAN 1 /* floating point only; the sum, divided once by the group's size */
#define HSDP_REDUCE_MAX  2
#define HSDP_REDUCE_MIN  3

/**
 * One collective. n = ranks of the group, N = elements. Input and output have one dtype and are
 * contiguous; counts of zero are legal. Sums are computed in fp32 for bf16 and fp16 and in the
 * dtype itself for fp32, fp64 and integers, over adjacent pairs in group order, and rounded once:
 * the bits do not depend on timing.
 *
 *     kind            input               output              send_elems, recv_elems
 *     BARRIER         NULL                NULL                NULL
 *     ALL_REDUCE      (N)                 (N)                 NULL
 *     ALL_GATHER      (N)                 (n * N)             recv_elems: N of each member
 *     REDUCE_SCATTER  (n * N)             (N)                 send_elems: N of each member
 *     ALL_TO_ALL      (n * N)             (n * N)             to and from each member
 *     BROADCAST       (N) at the root     (N)                 NULL; `peer` is the root
 *     SEND            (N)                 NULL                NULL; `peer` is the destination
 *     RECV            NULL                (N)                 NULL; `peer` is the source
 *
 * In place is allowed where the table gives both the same shape, with equal addresses.
 *
 * Since: 1.0
 */
struct hsdp_coll_spec {
    size_t struct_size;               /* sizeof(struct hsdp_coll_spec) */
    const struct hsdp_tensor *input;  /* the struct is borrowed for the call, its memory until the
                                         ticket is done; only the number of elements counts */
    const struct hsdp_tensor *output; /* likewise */
    const uint64_t *send_elems;       /* uneven forms: one number per member; NULL = equal */
    const uint64_t *recv_elems;
    uint64_t timeout_ms; /* 0 = the group's */
    int32_t kind;        /* HSDP_COLL_* */
    int32_t reduce;      /* HSDP_REDUCE_*, where something is reduced */
    uint32_t peer;       /* index in the group, not a world rank */
    uint32_t reserved;   /* zero */
};

/**
 * What to make.
 *
 * Since: 1.0
 */
struct hsdp_group_spec {
    size_t struct_size;   /* sizeof(struct hsdp_group_spec) */
    const char *selector; /* see mesh.h */
    uint64_t timeout_ms;  /* of each operation; 0 = the job's. Equal on all members */
};

/**
 * What a group is.
 *
 * Since: 1.0
 */
struct hsdp_group_info {
    size_t struct_size;    /* sizeof(struct hsdp_group_info) */
    const char *name;      /* the selector, "self" for ""; lives as long as the group */
    uint64_t timeout_ms;   /* of an operation, now */
    uint64_t n_bytes_sent; /* payload that left this rank through this group since connect */
    uint64_t n_bytes_received;
    uint32_t n_ranks;
    uint32_t index;        /* of this rank among them */
    uint32_t is_connected; /* 1 between group->connect and job->close */
    uint32_t reserved;     /* zero */
};

/**
 * Functions on groups.
 *
 * Since: 1.0
 */
struct hsdp_group_ops {
    size_t struct_size;

    /**
     * Asks for the group of this rank that `selector` picks; local.
     *
     * Ownership: the mesh may be destroyed afterwards.
     * Errors: HSDP_ERR_NOT_MEMBER when this rank is outside of the selector (no handle is made);
     * HSDP_ERR_INVALID for a text that is no selector of the mesh, and when the mesh's world or
     * rank is not the job's.
     */
    int32_t (*create)(hsdp_job *job, const hsdp_mesh *mesh, const struct hsdp_group_spec *spec,
                      hsdp_group **ret_group, struct hsdp_error *reterr);

    /**
     * Makes every communicator that any rank has asked for since the last call, in one agreed
     * order. Collective over the JOB, not over a group: ranks that asked for nothing call it too.
     * All members of a group ask for it before the same call.
     *
     * Errors: HSDP_ERR_MISMATCH when members gave a group other timeouts; a plugin may also answer
     * it when one of them has not asked for the group.
     */
    int32_t (*connect)(hsdp_job *job, struct hsdp_error *reterr);

    /** Tells what a group is. */
    int32_t (*info)(const hsdp_group *group, struct hsdp_group_info *ret_info,
                    struct hsdp_error *reterr);

    /**
     * Tells the world ranks of a group, in its order.
     *
     * Shapes: ret_ranks holds max_ranks >= n_ranks numbers, else HSDP_ERR_INVALID.
     */
    int32_t (*members)(const hsdp_group *group, uint32_t *ret_ranks, uint64_t max_ranks,
                       struct hsdp_error *reterr);

    /**
     * Starts n_specs collectives together, so that a send and a receive in one call cannot
     * deadlock. Collective over the group (a send and its receive over the two).
     *
     * Shapes: specs is an array of n_specs, 1 to 65536, with spec_bytes between its elements
     * (sizeof of the caller's struct, a multiple of 8). No element's struct_size is larger than
     * spec_bytes, else HSDP_ERR_VERSION.
     * Blocks: no. Work goes on inside later calls on the job; *ret_ticket (may be NULL) is done
     * when all of the n_specs are.
     * Errors: HSDP_ERR_MISMATCH on all members when they disagree on kind, count, dtype or
     * reduction; HSDP_ERR_STATE before connect; HSDP_ERR_INVALID for counts that do not fit;
     * HSDP_ERR_UNSUPPORTED for a dtype that is not built (a mean of integers among them) or a
     * tensor that is not contiguous, never a wrong number.
     */
    int32_t (*start)(hsdp_group *group, const struct hsdp_coll_spec *specs, uint64_t spec_bytes,
                     uint64_t n_specs, void *stream, uint64_t *ret_ticket,
                     struct hsdp_error *reterr);

    /** Gives a group back; NULL is accepted. Local. */
    void (*destroy)(hsdp_group *group);
};

#ifdef __cplusplus
} /* extern "C" */
#endif

#define HSDP_COLL_SPEC_INIT  HSDP_INIT_(hsdp_coll_spec)
#define HSDP_GROUP_SPEC_INIT HSDP_INIT_(hsdp_group_spec)
#define HSDP_GROUP_INFO_INIT HSDP_INIT_(hsdp_group_info)

#endif /* HSDP_GROUP_H */
