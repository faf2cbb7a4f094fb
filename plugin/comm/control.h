/* SPDX-License-Identifier: Apache-2.0 */
/* The control block: what the ranks of a job share besides data. */
#ifndef COMM_CONTROL_H
#define COMM_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/failure.h"
#include "comm/job.h"

#define CONTROL_LINE_BYTES 64

/* What a rank says in an exchange. */
struct mailbox {
    char operation[32];
    uint64_t n_bytes;
    uint8_t bytes[JOB_EXCHANGE_MAX_BYTES];
};

/* One rank's part: but for the bell, written by that rank alone. */
struct control_rank {
    _Alignas(CONTROL_LINE_BYTES) _Atomic uint32_t bell; /* raised to wake the rank; a futex */
    _Atomic uint32_t is_sleeping;
    _Alignas(CONTROL_LINE_BYTES) _Atomic uint64_t n_exchanges; /* mailboxes filled */
    _Atomic uint64_t farewell;                                 /* 1 = it came to close */
    _Atomic uint32_t has_left;                                 /* 1 = it destroyed its job */
    uint32_t pid;
    struct mailbox mailboxes[2]; /* of odd and even exchanges: a slow reader is one behind */
};

struct control {
    uint64_t n_ranks;
    struct failure failure;
    struct control_rank ranks[]; /* n_ranks */
};

uint64_t control_bytes(uint32_t n_ranks);

/** Maps a control block from its file; fd -1 = one that nobody shares. */
int32_t control_map(int fd, uint32_t n_ranks, struct control **ret_control,
                    struct hsdp_error *reterr);
void control_unmap(struct control *control);

/** Wakes a rank, whether it sleeps or is about to. */
void control_ring(struct control *control, uint32_t rank);
void control_ring_all(struct control *control);

/** Sleeps until the bell is no longer `seen`, at most ms. */
void control_sleep(struct control *control, uint32_t rank, uint32_t seen, int ms);

#endif /* COMM_CONTROL_H */
