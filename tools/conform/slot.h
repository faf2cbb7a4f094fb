/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of one check and the runner share while it runs. */
#ifndef CONFORM_SLOT_H
#define CONFORM_SLOT_H

#include <stdatomic.h>
#include <stdint.h>

#include "conform.h"

#define SLOT_CALL_BYTES    192u
#define SLOT_MESSAGE_BYTES 2048u

/* The first who has something to say takes it from OPEN to WRITING, and then says what it is. */
enum slot_verdict { SLOT_OPEN, SLOT_WRITING, SLOT_FAILED, SLOT_SKIPPED };

struct slot_rank {
    _Atomic int32_t process;         /* 0 = has not begun */
    _Atomic int32_t expected_signal; /* 0 = it has to return */
    _Atomic uint32_t n_meetings;
    _Atomic uint32_t has_returned; /* from the check's function */
    _Atomic uint32_t has_ended;    /* told by the runner */
    _Atomic uint32_t is_meeting;   /* waits for the others of the check, by conform_meet() */
    _Atomic uint32_t is_inside;    /* of the call below, as far as is known */
    char call[SLOT_CALL_BYTES];
};

/* Zeroed when a check begins. */
struct slot {
    _Atomic uint32_t verdict;
    uint32_t rank; /* whose verdict it is */
    char message[SLOT_MESSAGE_BYTES];
    struct slot_rank ranks[CONFORM_MAX_RANKS];
    _Alignas(64) unsigned char shared[CONFORM_SHARED_BYTES];
};

#endif /* CONFORM_SLOT_H */
