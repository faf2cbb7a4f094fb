/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on the doubles of CUDA and NCCL: one device each, and the calls that tests repeat. */
#ifndef TESTS_DOUBLE_RANKS_H
#define TESTS_DOUBLE_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/nccl.h"
#include "double_fixture.h"
#include "ranks.h"

/* What the double has beyond the functions that the plugin uses. */
struct nccl_extra {
    nccl_result (*split)(nccl_comm comm, int32_t color, int32_t key, nccl_comm *ret_comm,
                         struct nccl_config *config);
    nccl_result (*reduce)(const void *send, void *recv, size_t n_elems, int32_t dtype, int32_t op,
                          int32_t root, nccl_comm comm, cu_stream stream);
    nccl_result (*op_create)(int32_t *ret_op, void *scalar, int32_t dtype, int32_t residence,
                             nccl_comm comm);
    nccl_result (*op_destroy)(int32_t op, nccl_comm comm);
    nccl_result (*memory_alloc)(void **ret_address, size_t n_bytes);
    nccl_result (*memory_free)(void *address);
};

extern struct nccl nccl;
extern struct nccl_extra nccl_extra;

#define DOUBLE_MAX_IDS 4u

/* What the ranks of a test share beside the doubles. */
struct double_shared {
    struct nccl_unique_id ids[DOUBLE_MAX_IDS];
    _Atomic uint32_t n_ids;
    _Atomic uint32_t n_ranks_at[8]; /* of ranks_meet */
    uint32_t n_ranks;
    int32_t number; /* of a loop test */
};

/** Loads NCCL's double; nothing else. */
void double_nccl_load(void);
/** The same, and the driver's; the device of this number has its context current. */
void double_rank_start(uint32_t device);

/** Runs a function in n processes, with shared memory for them. */
void double_ranks_run(uint32_t n_ranks, int32_t number,
                      void (*function)(uint32_t rank, void *shared));

/** The same id on all ranks; rank 0 makes it. */
struct nccl_unique_id double_id(struct double_shared *shared, uint32_t rank, uint32_t index);
/** A communicator of all ranks whose calls do not block, ready. */
nccl_comm double_comm(struct double_shared *shared, uint32_t rank, uint32_t index);
/** Asks for one; *ret_comm is NULL or under way. */
nccl_result double_comm_ask(struct double_shared *shared, uint32_t rank, nccl_comm *ret_comm);
/** Polls until a communicator is no longer under way. */
nccl_result double_comm_wait(nccl_comm comm);
/** Polls so long; false = it is still under way. */
bool double_comm_wait_ms(nccl_comm comm, uint32_t ms, nccl_result *ret_result);
/** What a call answered must be success, at once or by polling. */
void double_comm_done(nccl_comm comm, nccl_result result);
/** Finalises and destroys; collective. */
void double_comm_end(nccl_comm comm);
/** Whether a stream is empty after so long. */
bool double_stream_ends(cu_stream stream, uint32_t ms);

/** Device memory with these bytes. */
void *double_put(const void *bytes, uint64_t n_bytes);
/** Copies from the device; the stream that wrote there is done. */
void double_get(void *ret, const void *address, uint64_t n_bytes);

#define NCCL(call) ck_assert_int_eq(nccl.call, NCCL_OK)

#endif /* TESTS_DOUBLE_RANKS_H */
